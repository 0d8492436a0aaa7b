"""Topic selection: the partitions that a query reads, and their logs. Spark is not imported here."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.core.errors import TopicNotSupported
from penstock.core.names import DEFAULT_NAMESPACE, TopicName
from penstock.core.offsets import OffsetRange
from penstock.core.positions import AtTime
from penstock.spark.source.offsets import PartitionKey
from penstock.storage.inspect.data_reader import DataReader
from penstock.storage.log import log_view
from penstock.storage.log.log_view import Segment, view_of

_ONE_RECORD: Final = 1
"""The size of a read that wants a single record. A read returns at least one whole record, however few bytes it asks
for."""


@dataclass(frozen=True, slots=True)
class TopicSelection:
    """Topics by name, or all topics that a pattern matches as a whole.

    A pattern that begins with a slash is compared with full names (`/shop/carts`). Any other pattern is compared with
    the names of topics in the default namespace.
    """

    topics: tuple[TopicName, ...] = ()
    pattern: re.Pattern[str] | None = None

    def selects(self, name: TopicName) -> bool:
        if self.pattern is None:
            return name in self.topics
        if self.pattern.pattern.lstrip("^(").startswith("/"):
            return self.pattern.fullmatch(str(name)) is not None
        return name.namespace == DEFAULT_NAMESPACE and self.pattern.fullmatch(name.topic) is not None

    def find_logs(self, data: DataReader, *, missing_ok: bool = False) -> dict[PartitionKey, Path]:
        """Return the directory of each selected partition's log. Raises `TopicNotSupported` for a named topic that does
        not exist, unless `missing_ok`."""
        found = [topic for topic in data.topics() if self.selects(topic.name)]
        if not missing_ok:
            self._check(data, {topic.name for topic in found})
        return {(str(topic.name), number): path for topic in found for number, path in topic.logs.items()}

    def _check(self, data: DataReader, there: set[TopicName]) -> None:
        for name in self.topics:
            if name not in there:
                known = ", ".join(str(topic.name) for topic in data.topics()[:10]) or "none yet"
                raise TopicNotSupported(
                    f"option subscribe names {name}, which is not there; there are: {known}", topic=str(name)
                )


class PartitionLog:
    """A reader of one partition's files, without the broker: the offsets it holds, and ids and times of its records."""

    def __init__(self, data: DataReader, key: PartitionKey, path: Path) -> None:
        self.key = key
        self.path = path
        self._disk = data.disk
        self._newest: Segment | None = None

    def offset_range(self) -> tuple[int, int]:
        """Return the first offset that the log holds, and the offset that its next message will get."""
        edges, self._newest = log_view.log_range(self._disk, self.path, known=self._newest)
        return int(edges.start), int(edges.stop)

    def id_at(self, offset: int) -> str | None:
        """Return the id of a record, in hexadecimal; None if it is missing or damaged."""
        if offset < 0:
            return None
        view = view_of(self._disk, self.path, within=OffsetRange.of(offset, offset + 1))
        if not view.first_offset <= offset < view.next_offset:
            return None
        block = log_view.read(self._disk, view, offset, bytes_max=_ONE_RECORD).block
        return block.id(0).hex() if len(block) and int(block.offsets.start) == offset else None

    def offset_at_time(self, time_ms: int) -> int:
        """Return the first offset whose message is not older than a time in Unix milliseconds; the next offset if all
        are older."""
        return int(log_view.offset_of(self._disk, view_of(self._disk, self.path), AtTime(time_ms)))
