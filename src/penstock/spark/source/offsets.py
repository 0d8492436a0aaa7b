"""Positions in many partitions: the bounds of a read as a user writes them, and the offsets that a stream has read.

Spark keeps `Offsets` in a query's checkpoint. Their format is Penstock's own; docs/spark.md describes it, and golden
files in the tests fix it. Spark compares offsets as text, so equal offsets always give equal text. No file is read
here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.core.errors import InvalidRequest, PenstockError, StorageFailed, VersionNotSupported
from penstock.core.names import TopicName
from penstock.core.offsets import parse_offset

FORMAT: Final = 1
EARLIEST: Final = -2
LATEST: Final = -1

PartitionKey = tuple[str, int]
"""A topic's full name and the number of a partition."""


@dataclass(frozen=True, slots=True)
class ReadBound:
    """The beginning or the end of a read. One of three is set: a word for all partitions (`earliest` or `latest`),
    offsets by partition, or a time in Unix milliseconds."""

    word: str | None = None
    offsets: tuple[tuple[PartitionKey, int], ...] = ()
    """Offsets by partition. `EARLIEST` stands for the first offset of the log, `LATEST` for its end. For a partition
    that is not listed, the reader decides."""
    time_ms: int | None = None

    @property
    def by_partition(self) -> dict[PartitionKey, int]:
        return dict(self.offsets)


def parse_bound(text: str) -> ReadBound:
    """Parse `earliest`, `latest`, or JSON: `{"topic": {"partition": offset}}`. Raises `ValueError` that says what is
    wrong."""
    if text.strip().lower() in ("earliest", "latest"):
        return ReadBound(word=text.strip().lower())
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"it is no JSON: {error}") from None
    if not isinstance(data, dict) or not data:
        raise ValueError("it is no JSON object of topics")
    found: dict[PartitionKey, int] = {}
    for topic, partitions in data.items():
        for partition, offset in _partitions(topic, partitions):
            found[_topic(topic), partition] = offset
    return ReadBound(offsets=tuple(sorted(found.items())))


def _topic(text: str) -> str:
    try:
        return str(TopicName.parse(text))
    except PenstockError as error:
        raise ValueError(f"it is no topic: {error}") from None


def _partitions(topic: str, data: Any) -> Iterator[tuple[int, int]]:
    if not isinstance(data, dict):
        raise ValueError(f"it is no JSON object of partitions that {topic!r} has")
    for partition, offset in data.items():
        if not partition.isdecimal():
            raise ValueError(f"it is no number of a partition, {partition!r} of {topic!r}")
        if isinstance(offset, bool) or not isinstance(offset, int) or not EARLIEST <= offset < 2**63:
            raise ValueError(f"it is no offset, {offset!r} of {topic!r} partition {partition}")
        yield int(partition), offset


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """The position of a stream in one partition."""

    offset: int
    """The next offset to read."""
    after: str | None = None
    """The id of the record before the position, in hexadecimal; None if there is no such record.

    No id is ever used twice. If the topic was deleted and created again, the record there has another id.
    """
    since: int = 0
    """The offset at which the stream began to read this log."""
    life: int = 0
    """The number of times that the stream found the topic created anew and read on, which needs `failOnDataLoss` to be
    false."""


@dataclass(frozen=True, slots=True)
class Offsets:
    """The position of a stream in each partition."""

    positions: Mapping[PartitionKey, StreamPosition] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the offsets as values for JSON. Topics, partitions and fields are in a fixed order, so equal offsets
        give equal text."""
        topics: dict[str, dict[str, dict[str, Any]]] = {}
        for (topic, partition), position in sorted(self.positions.items()):
            topics.setdefault(topic, {})[str(partition)] = _as_json(position)
        return {"version": FORMAT, "topics": topics}

    @classmethod
    def of_json(cls, data: Any) -> Offsets:
        """Parse offsets from a checkpoint. Raises `VersionNotSupported` if a newer Penstock wrote them, and
        `StorageFailed` if they cannot be read, as those of another source."""
        version = data.get("version") if isinstance(data, dict) else None
        if isinstance(version, int) and version > FORMAT:
            raise VersionNotSupported(
                f"the checkpoint has offsets of format {version}, and this Penstock reads format {FORMAT}:"
                " use a newer Penstock",
                format=version,
            )
        if version != FORMAT:
            raise _unreadable(data)
        try:
            return cls(
                {
                    (str(TopicName.parse(topic)), int(partition)): _position(fields)
                    for topic, partitions in data["topics"].items()
                    for partition, fields in partitions.items()
                }
            )
        except (AttributeError, KeyError, TypeError, ValueError, PenstockError):
            raise _unreadable(data) from None


def _unreadable(data: Any) -> StorageFailed:
    return StorageFailed(
        f"the checkpoint's offsets cannot be read: {json.dumps(data)[:200]}. Is it the checkpoint of another source?"
    )


def _as_json(position: StreamPosition) -> dict[str, Any]:
    fields: dict[str, Any] = {"offset": position.offset}
    if position.after is not None:
        fields["after"] = position.after
    if position.since:
        fields["since"] = position.since
    if position.life:
        fields["life"] = position.life
    return fields


_FIELDS: Final = frozenset({"offset", "after", "since", "life"})


def _position(fields: Mapping[str, Any]) -> StreamPosition:
    if not _FIELDS.issuperset(fields):
        raise InvalidRequest("unknown fields")
    after = fields.get("after")
    if after is not None:
        bytes.fromhex(after)
    numbers = [parse_offset(fields[name] if name == "offset" else fields.get(name, 0)) for name in _NUMBERS]
    return StreamPosition(numbers[0], after, numbers[1], numbers[2])


_NUMBERS: Final = ("offset", "since", "life")
