"""Reading a topic from one place to another, without a subscription: nobody keeps how far it came.

The end is where the topic ended when the reading began, unless it is to follow. What is damaged, filtered out or gone
is not waited for.
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
"""Without a message for so long, the broker is asked whether there are any left."""


class TopicReader:
    """Use it with `with`, and iterate: messages that arrived together, of one partition each."""

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
        """Raises what is wrong with it; a topic that is not there is not created."""
        facts = client.ask("system.topic.describe", {"topic": topic})
        _check_partition(facts, partition, stop)
        self.partitions: int = facts["partitions"]
        chosen = None if self.partitions == 1 else partition
        self._client = client
        self._topic = topic
        self._stop = stop
        self._consumer = client.consumer(
            topic,
            start=start if chosen is None else "latest",  # of the other partitions nothing is wanted
            filter_types=types,
            filter_keys=keys,
        )
        with ExitStack() as failed:
            failed.callback(self._consumer.close)
            if chosen is not None:
                self._consumer.seek(start, partition=chosen)
            failed.pop_all()
        logs = [log for log in facts["logs"] if partition in (None, log["partition"])]
        ends = ((log, _end(log, stop, follow=follow)) for log in logs)
        self._ends = {log["partition"]: end for log, end in ends if end is None or end > log["first_offset"]}
        """Before which offset each partition that has something to read ends; None if nobody knows."""

        self._open = self._ends.copy()
        """Partitions that have more to come, and before which offset each of them ends; None if nobody knows."""

    @property
    def gaps(self) -> list[Gap]:
        """Messages between the two places that cannot be read, as far as it has come."""
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
        """None if nothing came for a while, and those that have nothing left are closed then."""
        endless = all(end is None for end in self._open.values())
        try:
            return self._consumer.receive_batch(None if endless else _IDLE_SECONDS)
        except TimeoutError:
            self._close_finished()
            return None

    def _close_finished(self) -> None:
        self._consumer.flush()
        asked = {"topic": self._topic, "subscription": self._consumer.subscription}
        for progress in self._client.ask("system.subscription.describe", asked)["partitions"]:
            self._advance(progress["partition"], progress["floor"])

    def _advance(self, partition: int, offset: int) -> None:
        """Everything before this offset has been seen, or will never be."""
        end = self._open.get(partition)
        if end is not None and offset >= end:
            del self._open[partition]

    def _before_end(self, batch: Batch) -> list[StreamMessage]:
        if batch.partition not in self._open:
            return []
        end = self._open[batch.partition]
        found = [each for each in batch if (end is None or each.offset < end) and not _is_past(each, self._stop)]
        if len(found) < len(batch):
            del self._open[batch.partition]
        else:
            self._advance(batch.partition, found[-1].offset + 1)
        return found


def _check_partition(facts: dict[str, Any], partition: int | None, stop: Position | None) -> None:
    topic, count = facts["topic"], facts["partitions"]
    if partition is not None and partition >= count:
        raise InvalidRequest(f"{topic} has partitions 0 to {count - 1}, not {partition}")
    if isinstance(stop, AtOffset) and count > 1 and partition is None:
        raise InvalidRequest(f"{topic} has {count} partitions, each with offsets of its own: name the partition too")


def _end(log: dict[str, Any], stop: Position | None, *, follow: bool) -> int | None:
    """The offset before which to stop, if it is known; a time or an id may be yet to come."""
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
            return message.id >= format_id(id_)  # as text they are in the same order
    return False
