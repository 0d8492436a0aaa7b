"""The contents of a topic's log: every record is read from the files, while the broker runs or after it was killed.

The broker is not asked, so the result shows whether it stored what it acknowledged.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from penstock.core.errors import MalformedMessage
from penstock.core.names import TopicName
from penstock.demo.base.ledger import Acknowledged
from penstock.record.block import Block
from penstock.storage.inspect.data_reader import DataReader, LogReader

NO_EVENT: Final = -1
"""The number that stands for an offset whose record is missing, cannot be read, or is no event of the demo."""


class _Numbered(msgspec.Struct):
    event: int


_DECODER: Final = msgspec.json.Decoder(_Numbered)


@dataclass(frozen=True, slots=True)
class LogContents:
    """The events that a topic's log has: for each partition an array of event numbers by offset."""

    partitions: tuple[npt.NDArray[np.int64], ...]

    def __len__(self) -> int:
        return sum(map(len, self.partitions))

    def times(self, count: int) -> npt.NDArray[np.int64]:
        """Return how many records each event has, in an array by event number of at least `count` entries."""
        everything = np.concatenate([*self.partitions, np.zeros(0, np.int64)])
        return np.bincount(everything[everything != NO_EVENT], minlength=count)

    def missing(self, acknowledged: Acknowledged) -> int:
        """Return how many acknowledged events are not at the partition and offset that the broker had named."""
        found = np.zeros(len(acknowledged), np.bool_)
        for partition, numbers in enumerate(self.partitions):
            mine = np.flatnonzero((acknowledged.partitions == partition) & (acknowledged.offsets < len(numbers)))
            found[mine] = numbers[acknowledged.offsets[mine]] == acknowledged.numbers[mine]
        return len(acknowledged) - int(np.count_nonzero(found))


def read_log(data: Path, topic: TopicName) -> LogContents:
    """Return the events in the files of a topic's log. Raises `TopicNotSupported` if the topic is missing."""
    reader = DataReader(data).topic(topic)
    return LogContents(tuple(_numbers(reader.partition(number)) for number in range(reader.partitions)))


def number_of(payload: bytes) -> int:
    """Return the number of an event, from its payload. Raises `MalformedMessage` if it has none."""
    try:
        return _DECODER.decode(payload).event
    except msgspec.MsgspecError as error:
        raise MalformedMessage(f"not an event of the demo: {error}") from None


def _numbers(log: LogReader) -> npt.NDArray[np.int64]:
    """Return event numbers by offset. Dropped or damaged records are `NO_EVENT`."""
    found = np.full(int(log.view.next_offset), NO_EVENT, np.int64)
    offset = int(log.view.first_offset)
    while offset < len(found):
        chunk = log.read(offset)
        for number, place in _events(chunk.block):
            found[place] = number
        offset = int(chunk.next_offset)
    return found


def _events(block: Block) -> list[tuple[int, int]]:
    if not len(block):
        return []
    columns = block.to_arrow(["offset", "value"]).to_pydict()
    return [(_number(value), place) for place, value in zip(columns["offset"], columns["value"], strict=True)]


def _number(payload: bytes) -> int:
    try:
        return number_of(payload)
    except MalformedMessage:
        return NO_EVENT
