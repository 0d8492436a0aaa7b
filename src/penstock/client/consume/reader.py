"""The topic reader: it reads a topic from one position to another. It uses no durable subscription, so the broker keeps
no cursor.

Reading ends where the topic ended when reading began, unless the reader follows the topic. It does not wait for
messages that are damaged, filtered out, or dropped by retention.
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
"""The time without a message after which the broker is asked whether any are left to come."""


class TopicReader:
    """A reader of a topic. Use it with `with`, and iterate: each item is a list of messages of one partition that
    arrived together."""

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
        """Open the reader; a topic that does not exist is not created.

        `stop` is the position before which to stop; default: the end. `partition` restricts reading to one. With
        `follow`, reading goes on with new messages. Raises `InvalidRequest` for a partition that the topic does not
        have, and for an offset in `stop` if the topic has several partitions and none is named. Raises the broker's
        error.
        """
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
        """The offset before which reading ends, by partition that has something to read; None if that offset is not
        known yet."""

        self._open = self._ends.copy()
        """The entries of `_ends` for partitions that are not read to their end yet."""

    @property
    def gaps(self) -> list[Gap]:
        """The gaps between the two positions that reading has met so far: messages that cannot be read."""
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
        """Return the next batch; None if nothing came for 0.1 seconds. In that case partitions with nothing left to
        read are closed first."""
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
        """Close a partition if its end is at or before `offset`: all messages before it were read or will never
        come."""
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
    """Return the offset before which to stop; None if it is not known yet, since a stop at a time or an id may lie in
    the future, or the reader follows."""
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
