"""The options of the sink, parsed and checked together into one value. Spark is not imported here."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from penstock.client.wire.address import parse_url
from penstock.core.errors import InvalidRequest
from penstock.core.limits import PARTITIONS_MAX
from penstock.core.names import TopicName

BATCHES_MAX: Final = (1 << 31) - 1
"""The number of possible batches: with more, a row's number would not fit into 63 bits. See `numbers`."""

_RUN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)
"""The pattern of run names and producer names: a run's name becomes the name of a directory and part of a producer's
name."""

ONCE: Final = "once-"
"""The prefix of the names of writes that are never repeated. A user's run name may not begin with it."""


class RowOrder(StrEnum):
    """The order in which the rows of a task are numbered, and so published."""

    ENGINE = "engine"
    """The order in which Spark hands the rows over."""
    CONTENT = "content"
    """The order of the checksums of the rows' contents: the same in whatever order Spark hands the rows over."""


class RowNumbers(StrEnum):
    """The source of a row's number."""

    ROWS = "rows"
    """The row's position in its task."""
    COLUMNS = "columns"
    """The columns `producer_name` and `request_id`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """The destination of rows and their identity. Exactly one of `broker` and `path` is set."""

    topic: str | None = None
    broker: str | None = None
    path: Path | None = None
    staging: Path | None = None
    """A directory that the driver and every executor see. Always set with `path`."""

    producer: str = "spark"
    run: str | None = None
    batch: int = 0
    order: RowOrder = RowOrder.ENGINE
    numbers: RowNumbers = RowNumbers.ROWS
    rows_per_second: float | None = None
    create_partitions: int | None = None
    """The number of partitions for a topic that the sink creates; with None it creates none."""

    timeout: float = 60.0
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    token_file: str | None = None
    """A file with the token. A token itself is no option: Spark shows options in plans and keeps them in
    checkpoints."""

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> SinkOptions:
        """Parse options; names are case-insensitive, as in Spark. Raises `InvalidRequest` naming the option and the
        allowed values."""
        options = {name.lower(): value for name, value in given.items()}
        _check_known(options)
        path, staging = _target(options)
        return cls(
            topic=_topic(options),
            broker=_broker(options),
            path=path,
            staging=staging,
            producer=_producer(options),
            run=_run(options),
            batch=_whole(options, "batch", 0, BATCHES_MAX - 1) or 0,
            order=RowOrder(_choice(options, "order", RowOrder)),
            numbers=RowNumbers(_choice(options, "numbers", RowNumbers)),
            rows_per_second=_rate(options),
            create_partitions=_whole(options, "createpartitions", 1, PARTITIONS_MAX),
            timeout=_seconds(options),
            tls_ca=options.get("tlsca"),
            tls_cert=options.get("tlscert"),
            tls_key=options.get("tlskey"),
            token_file=options.get("tokenfile"),
        )

    @property
    def staged(self) -> bool:
        """True if the tasks write rows to staged files, which the driver publishes when all tasks are done."""
        return self.staging is not None


NAMES: Final = (
    "topic",
    "broker",
    "path",
    "staging",
    "producer",
    "run",
    "batch",
    "order",
    "numbers",
    "rowsPerSecond",
    "createPartitions",
    "timeout",
    "tlsCa",
    "tlsCert",
    "tlsKey",
    "tokenFile",
)
_KNOWN: Final = {name.lower(): name for name in NAMES}
"""The documented spelling of each option by its name in lower case, as Spark passes it."""

_SPARKS_OWN: Final = ("checkpointlocation", "queryname", "outputmode", "serialization.format", "provider")


def _check_known(options: Mapping[str, str]) -> None:
    for name in options:
        if name not in _KNOWN and name not in _SPARKS_OWN:
            close = difflib.get_close_matches(name, _KNOWN, n=1)
            hint = f"did you mean {_KNOWN[close[0]]}?" if close else f"it has {', '.join(NAMES)}"
            raise InvalidRequest(f"the sink has no option {name}: {hint}", option=name)


def _target(options: Mapping[str, str]) -> tuple[Path | None, Path | None]:
    """Return the data directory and the staging directory; None for one that the write does not use."""
    path, broker = options.get("path"), options.get("broker")
    if bool(path) == bool(broker):
        both = f"path={path!r} and broker={broker!r} are" if path else "neither broker nor path is"
        raise InvalidRequest(
            f"{both} given: broker=HOST:PORT publishes through a running broker, path=DIRECTORY writes into a data"
            " directory that no broker owns; give one of them",
            option="broker",
        )
    root = _absolute("path", path) if path else None
    staging = options.get("staging")
    if staging:
        return root, _absolute("staging", staging)
    return root, None if root is None else root.with_name(f"{root.name}.staging")


def _absolute(option: str, given: str) -> Path:
    if "://" in given:
        raise InvalidRequest(f"{option}={given!r}: the sink writes to a local or shared directory", option=option)
    return Path(given).expanduser().absolute()


def _broker(options: Mapping[str, str]) -> str | None:
    given = options.get("broker")
    if not given:
        return None
    try:
        return str(parse_url(given))
    except InvalidRequest as error:
        raise InvalidRequest(f"broker={given!r}: {error.message}", option="broker") from None


def _topic(options: Mapping[str, str]) -> str | None:
    given = options.get("topic")
    return None if given is None else str(TopicName.parse(given))


def _producer(options: Mapping[str, str]) -> str:
    given = options.get("producer", "spark")
    if not _RUN.fullmatch(given):
        raise InvalidRequest(f"producer={given!r}: {_NAME_RULE}", option="producer")
    return given


def _run(options: Mapping[str, str]) -> str | None:
    given = options.get("run")
    if given is not None and not _RUN.fullmatch(given):
        raise InvalidRequest(f"run={given!r}: {_NAME_RULE}", option="run")
    if given is not None and given.startswith(ONCE):
        raise InvalidRequest(
            f"run={given!r}: names that begin with {ONCE!r} are those of writes that nobody repeats", option="run"
        )
    return given


_NAME_RULE: Final = "1 to 100 letters, digits, '.', '_' and '-', the first a letter or a digit"


def _whole(options: Mapping[str, str], name: str, low: int, high: int) -> int | None:
    given = options.get(name)
    if given is None:
        return None
    if not re.fullmatch(r"[0-9]{1,18}", given, re.ASCII) or not low <= int(given) <= high:
        raise InvalidRequest(
            f"{_KNOWN[name]}={given!r}: expected a whole number from {low} to {high}", option=_KNOWN[name]
        )
    return int(given)


def _choice(options: Mapping[str, str], name: str, kind: type[StrEnum]) -> str:
    allowed = [each.value for each in kind]
    given = options.get(name, allowed[0]).lower()
    if given not in allowed:
        raise InvalidRequest(f"{name}={given!r}: expected {' or '.join(allowed)}", option=name)
    return given


def _rate(options: Mapping[str, str]) -> float | None:
    given = options.get("rowspersecond")
    return None if given is None else _positive("rowsPerSecond", given)


def _seconds(options: Mapping[str, str]) -> float:
    return _positive("timeout", options.get("timeout", "60"))


def _positive(name: str, given: str) -> float:
    if not re.fullmatch(r"[0-9]{1,15}(\.[0-9]{1,9})?", given, re.ASCII) or not float(given):
        raise InvalidRequest(f"{name}={given!r}: expected a number above 0", option=name)
    return float(given)
