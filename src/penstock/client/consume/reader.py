"""The topic reader: a topic, read from one position to another without a subscription, so that the broker keeps no
cursor.

The end is where the topic ended when reading began, unless the reader follows. Messages that are damaged, filtered out
or gone are not waited for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, Self

from penstock.core.errors import InvalidRequest
from penstock.core.ids import format_id
from penstock.core.positions import AtId, AtOffset, AtTime, Earliest, Latest, Position

if TYPE_CHECKING:
    from penstock.client.consume.blocking import BlockingClient
    from penstock.client.consume.consumer import Gap
    from penstock.client.consume.messages import Batch, StreamMessage

_IDLE_SECONDS: Final = 0.1
"""The time without a message after which the broker is asked for any that are left."""


class TopicReader:
    """A reader: use it with `with`, and iterate over lists of messages that arrived together, each of one partition."""

    def __init__(
        self,
        client: BlockingClient,
        topic: str,
        *,
        start: str = "earliest",
        stop: Position | None = None,
        partition: int | None = None,
        follow: bool = False,
        types: Iterable[str] = (),
        keys: Iterable[str] = (),
    ) -> None:
        """Raises `InvalidRequest`, or the broker's error; a topic that is not there is not created."""
        description = client.ask("system.topic.describe", {"topic": topic})
        _check_partition(description, partition, stop)
        self.partitions: int = description["partitions"]
        chosen = None if self.partitions == 1 else partition
        self._client = client
        self._topic = topic
        self._stop = stop
        self._consumer = client.consumer(
            topic,
            start=start if chosen is None else "latest",  # the other partitions are not read
            filter_types=types,
            filter_keys=keys,
        )
        with ExitStack() as failed:
            failed.callback(self._consumer.close)
            if chosen is not None:
                self._consumer.seek(start, partition=chosen)
            failed.pop_all()
        logs = [log for log in description["logs"] if partition in (None, log["partition"])]
        ends = ((log, _end(log, stop, follow=follow)) for log in logs)
        self._ends = {log["partition"]: end for log, end in ends if end is None or end > log["first_offset"]}
        """The offset before which reading ends, by partition that has something to read; None if it is not known."""

        self._open = self._ends.copy()
        """The same for partitions that have more to come."""

    @property
    def gaps(self) -> list[Gap]:
        """Messages between the two positions that cannot be read, as far as reading has come."""
        known = [(gap, self._ends[gap.partition]) for gap in self._consumer.gaps if gap.partition in self._ends]
        return [gap for gap, end in known if end is None or gap.start < end]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._consumer.close()

    def __iter__(self) -> Iterator[list[StreamMessage]]:
        while self._open:
            batch = self._next()
            if batch is None:
                continue
            messages = self._before_end(batch)
            if messages:
                yield messages
            self._consumer.ack(batch)  # so that more comes: a reader has a window too

    def _next(self) -> Batch | None:
        """Return the next batch; None if nothing came for a while, after closing the partitions that have
        nothing left."""
        endless = all(end is None for end in self._open.values())
        try:
            return self._consumer.receive_batch(None if endless else _IDLE_SECONDS)
        except TimeoutError:
            self._close_finished()
            return None

    def _close_finished(self) -> None:
        self._consumer.flush()
        fields = {"topic": self._topic, "subscription": self._consumer.subscription}
        for cursor in self._client.ask("system.subscription.describe", fields)["partitions"]:
            self._advance(cursor["partition"], cursor["floor"])

    def _advance(self, partition: int, offset: int) -> None:
        """Note that every message before this offset has been seen, or will never be."""
        end = self._open.get(partition)
        if end is not None and offset >= end:
            del self._open[partition]

    def _before_end(self, batch: Batch) -> list[StreamMessage]:
        if batch.partition not in self._open:
            return []
        end = self._open[batch.partition]
        messages = [
            message for message in batch if (end is None or message.offset < end) and not _is_past(message, self._stop)
        ]
        if len(messages) < len(batch):
            del self._open[batch.partition]
        else:
            self._advance(batch.partition, messages[-1].offset + 1)
        return messages


def _check_partition(description: dict[str, Any], partition: int | None, stop: Position | None) -> None:
    topic, count = description["topic"], description["partitions"]
    if partition is not None and partition >= count:
        raise InvalidRequest(f"{topic} has partitions 0 to {count - 1}, not {partition}")
    if isinstance(stop, AtOffset) and count > 1 and partition is None:
        raise InvalidRequest(f"{topic} has {count} partitions, each with offsets of its own: name the partition too")


def _end(log: dict[str, Any], stop: Position | None, *, follow: bool) -> int | None:
    """Return the offset before which to stop, if it is known; a time or an id may be yet to come."""
    last: int = log["next_offset"]
    match stop:
        case Earliest():
            return 0
        case Latest():
            return last
        case AtOffset(offset):
            return int(offset) if follow else min(int(offset), last)
    return None if follow else last


def _is_past(message: StreamMessage, stop: Position | None) -> bool:
    match stop:
        case AtTime(unix_ms):
            return message.publish_time_ms >= unix_ms
        case AtId(id_):
            return message.id >= format_id(id_)  # in text form, ids have the same order
    return False
