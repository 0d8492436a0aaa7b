"""Options that several commands share. Options that are always used together form a bundle: a dataclass with a field
for each option."""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from penstock.core.clock import SystemClock, iso_time, now_ms
from penstock.core.errors import InvalidRequest
from penstock.core.units import parse_duration_ms

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.client.sync import Client

Data = Annotated[
    Path,
    # Not checked for being readable here: `segment verify` of a file works wherever the variable points to.
    typer.Option("--data", "-d", envvar="PENSTOCK_DATA", help="The data directory.", readable=False),
]
Config = Annotated[
    Path | None, typer.Option("--config", "-c", envvar="PENSTOCK_CONFIG", help="TOML file with the broker's settings.")
]
ServerData = Annotated[Path | None, typer.Option("--data", "-d", help="Data directory. Default: penstock-data.")]
Host = Annotated[str | None, typer.Option(help="Address to listen on. Default: 127.0.0.1.")]
Port = Annotated[str | None, typer.Option(metavar="PORT", help="Port number, 0 for any free one, or 'off'.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object a line, for scripts.")]


def absolute_position(text: str) -> str:
    """Convert a position relative to now, such as `-1h`, to a time; return any other position unchanged."""
    if not _AGO.fullmatch(text):
        return text
    return iso_time(max(0, now_ms(SystemClock()) - parse_duration_ms(text[1:])))


def _absolute_or_none(text: str | None) -> str | None:
    return None if text is None else absolute_position(text)


_AGO = re.compile("-[0-9]+[A-Za-z]+", re.ASCII)
_PLACE = "earliest, latest, an offset, a time (ISO 8601, or -1h: an hour ago), or a message id."
From = Annotated[str, typer.Option("--from", help=f"Start: {_PLACE}", callback=_absolute_or_none)]
OptionalFrom = Annotated[str | None, typer.Option("--from", help=f"Start: {_PLACE}", callback=_absolute_or_none)]
Position = Annotated[str, typer.Argument(help=_PLACE[0].upper() + _PLACE[1:])]
To = Annotated[
    str | None,
    typer.Option(
        "--to",
        help="Stop before: an offset, a time (or -5m), or a message id. Default: the end.",
        callback=_absolute_or_none,
    ),
]


def _refuse_former_filter(text: str | None) -> None:
    if text is not None:
        raise _former_filter_error(text, "--type says what something is, and is no filter")


def _former_filter_error(text: str, why: str) -> InvalidRequest:
    """Build the error for a filter that was given by its former option, with the option's new name."""
    advice = f"--only-type {shlex.quote(text)} lets through only messages whose type matches"
    return InvalidRequest(f"{why}: {advice}", given=text)


FormerType = Annotated[str | None, typer.Option("--type", hidden=True, callback=_refuse_former_filter)]
"""The former name of `--only-type`. A command that creates nothing with a type uses this to refuse `--type` with
advice."""
OnlyType = Annotated[
    str | None, typer.Option("--only-type", help="Only messages whose type matches this glob, such as 'order.*'.")
]
OnlyKey = Annotated[
    str | None,
    typer.Option("--only-key", "--key", help="Only messages whose key matches this glob, such as 'customer-*'."),
]
SubscriptionType = Annotated[
    str | None,
    typer.Option("--type", metavar="TYPE", help="Of the subscription: exclusive, failover, shared or key_shared."),
]
SubType = Annotated[str | None, typer.Option("--sub-type", hidden=True)]
"""The former name of `--type`, still accepted."""
Limit = Annotated[int | None, typer.Option("--limit", "-n", min=1, help="At most so many messages.")]
Partition = Annotated[int | None, typer.Option(min=0, help="One partition. Default: all.")]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Wait for more; end with Ctrl-C.")]
PayloadAlone = Annotated[bool, typer.Option("--payload", help="Only the payloads, one a line.")]
Raw = Annotated[bool, typer.Option("--raw", help="On a terminal too, bytes as they are, whatever they do to it.")]
Attr = Annotated[list[str] | None, typer.Option(help="name=value, may be repeated.")]
Topic = Annotated[str, typer.Argument(help="orders.created, or /namespace/orders.created")]
HashKey = Annotated[
    str | None,
    typer.Option(
        "--hash-key", metavar="HEX", help="Of the checksums of raw files: 64 hexadecimal digits. Default: ours."
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]

DEFAULT_DATA = Path("penstock-data")
SUBSCRIPTION_TYPES = ("exclusive", "failover", "shared", "key_shared")


# bundles


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerOptions:
    """The options for the broker to connect to, and for the client's credentials."""

    url: Annotated[
        str | None, typer.Option("--url", "-u", envvar="PENSTOCK_URL", help="tcp://host:port or tls://host:port.")
    ] = None
    tls_ca: Annotated[Path | None, typer.Option(help="Trust brokers whose certificate this signed (PEM).")] = None
    tls_cert: Annotated[Path | None, typer.Option(help="Our own certificate, where the broker asks for one (PEM).")] = (
        None
    )
    tls_key: Annotated[Path | None, typer.Option(help="Its private key (PEM).")] = None
    token_file: Annotated[
        Path | None,
        typer.Option(
            envvar="PENSTOCK_TOKEN_FILE",
            help="A file with a key or a token that says who we are; or set PENSTOCK_TOKEN.",
        ),
    ] = None

    def connect(self, *, reconnect: bool = False, name: str | None = None) -> Client:
        """Connect, and return the client, to be used with `with`. With `reconnect`, the client reconnects after a lost
        connection; `name` registers it as a service."""
        from penstock.client.sync import connect

        return connect(
            self.url,
            reconnect=reconnect,
            name=name,
            tls_ca=self.tls_ca,
            tls_cert=self.tls_cert,
            tls_key=self.tls_key,
            token_file=self.token_file,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkOptions:
    """The options for the Spark master, its memory, and its settings."""

    master: Annotated[
        str | None,
        typer.Option(
            envvar="SPARK_MASTER", help="Where Spark runs: local[2], spark://host:7077, ... Default: local[*]."
        ),
    ] = None
    memory: Annotated[str | None, typer.Option(help="The driver's memory, such as 2g.")] = None
    conf: Annotated[
        list[str] | None, typer.Option("--conf", help="A setting of Spark's own, name=value; may be repeated.")
    ] = None

    def session(self, name: str, *, quick: bool = False) -> SparkSession:
        """Start a Spark session. With `quick`, the first result comes in half the time, but later rows are half as
        fast."""
        from penstock.spark.runtime.session import session

        return session(name, master=self.master, memory=self.memory, quick=quick, config=parse_settings(self.conf))


def bundled(command: Callable[..., None]) -> Callable[..., None]:
    """Decorate a command so that each parameter that is a bundle appears as the options of the bundle's fields."""
    signature = inspect.signature(command, eval_str=True)
    bundles = {
        parameter.name: parameter.annotation
        for parameter in signature.parameters.values()
        if is_dataclass(parameter.annotation)
    }
    own = [parameter for parameter in signature.parameters.values() if parameter.name not in bundles]
    options = [
        parameter for bundle in reversed(bundles.values()) for parameter in _bundle_parameters(bundle)
    ]  # options of the broker last

    @wraps(command)
    def called(**values: Any) -> None:
        built = {name: _build_bundle(bundle, values) for name, bundle in bundles.items()}
        command(**built, **values)

    together = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in (*own, *options)]
    called.__signature__ = signature.replace(parameters=together)  # type: ignore[attr-defined]  # read by inspect.signature
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in together}
    return called


def _bundle_parameters(bundle: Any) -> Iterator[inspect.Parameter]:
    kinds = get_type_hints(bundle, include_extras=True)
    for field in fields(bundle):
        yield inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=kinds[field.name]
        )


def _build_bundle(bundle: Any, values: dict[str, Any]) -> Any:
    """Build a bundle from the values of its fields, which are removed from `values`."""
    return bundle(**{field.name: values.pop(field.name) for field in fields(bundle)})


# parsing


def globs(glob: str | None) -> list[str]:
    """Return the glob of a filter as a list; an empty list for None."""
    return [] if glob is None else [glob]


def subscription_type(type_: str | None, former: str | None) -> str | None:
    """Return the type of a subscription that was given by `--type` or its former name `--sub-type`; None if neither
    was."""
    name = type_ if type_ is not None else former
    if name is None or name in SUBSCRIPTION_TYPES:
        return name
    kinds = ", ".join(SUBSCRIPTION_TYPES)
    raise _former_filter_error(name, f"--type is the subscription's type, one of {kinds}, not {name!r}")


def parse_settings(pairs: list[str] | None) -> dict[str, str]:
    """Parse `--conf spark.name=value` options to a dict. Raises `InvalidRequest` for an option of another form."""
    settings: dict[str, str] = {}
    for pair in pairs or []:
        name, equals, value = pair.partition("=")
        if not equals or not name.startswith("spark."):
            raise InvalidRequest(f"--conf {pair!r}: expected spark.name=value", given=pair)
        settings[name] = value
    return settings


def parse_attributes(pairs: list[str] | None) -> dict[str, str]:
    """Parse `--attr name=value` options to a dict. Raises `InvalidRequest` for an option of another form, and for a
    name that is given twice."""
    attributes: dict[str, str] = {}
    for pair in pairs or []:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise InvalidRequest(f"--attr {pair!r}: expected name=value", given=pair)
        if name in attributes:
            raise InvalidRequest(f"--attr {name!r} is given twice: an attribute has one value", given=pair)
        attributes[name] = value
    return attributes
