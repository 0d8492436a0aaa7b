"""Events and effects of the subscription machine: all that can happen to a subscription, and all it can decide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from penstock.broker.subscriptions.partition import OffsetRun
from penstock.core.gaps import RETENTION, Gap
from penstock.core.offset_set import Span

# events


class Connect(NamedTuple):
    consumer: str
    name: str
    window: int
    """The most messages in flight at this consumer."""
    window_bytes: int
    """The most bytes in flight; a single larger message is delivered all the same."""


class Disconnect(NamedTuple):
    consumer: str


class LogGrown(NamedTuple):
    """The log of a partition has grown, and now ends at `end`."""

    partition: int
    end: int


class Supplied(NamedTuple):
    """The answer to a `Fetch` from `offset`. Messages between the runs do not pass the subscription's filter."""

    partition: int
    offset: int
    runs: Sequence[OffsetRun]
    next_offset: int
    slots: Sequence[int] = ()
    """For key_shared: the key slot of each message of the runs, one after another; `NO_KEY` for a message without a
    key."""
    gaps: Sequence[Gap] = ()
    """Messages in this range that cannot be read."""


class Ack(NamedTuple):
    consumer: str
    partition: int
    spans: Sequence[Span]


class AckThrough(NamedTuple):
    """A cumulative ack: every message up to and including this offset."""

    consumer: str
    partition: int
    offset: int


class Nack(NamedTuple):
    consumer: str
    partition: int
    spans: Sequence[Span]
    delay_ms: int | None = None
    reason: str = "refused by the consumer"


class Extend(NamedTuple):
    """Messages still being worked on: their ack timeout starts again."""

    consumer: str
    partition: int
    spans: Sequence[Span]


class Seek(NamedTuple):
    starts: Mapping[int, int]


class Pause(NamedTuple):
    pass


class Resume(NamedTuple):
    pass


class Tick(NamedTuple):
    pass


class DeadLettered(NamedTuple):
    """The answer to a `DeadLetter`: the message is durably in the dead-letter topic, or could not be stored there."""

    partition: int
    offset: int
    stored: bool
    seek: int = 0
    """The seek counter of the `DeadLetter` that this answers: after another seek, the answer is void."""

    permanent_error: str = ""
    """The reason why the message can never become a dead letter; empty if a retry may help."""


class Lost(NamedTuple):
    """Messages that can no longer be read, because of retention or damage."""

    partition: int
    start: int
    stop: int
    reason: str = RETENTION


class Skip(NamedTuple):
    """Messages that an operator or a report marks as done although no consumer acknowledged them."""

    partition: int
    start: int
    stop: int


MachineEvent = (
    Connect
    | Disconnect
    | LogGrown
    | Supplied
    | Ack
    | AckThrough
    | Nack
    | Extend
    | Seek
    | Pause
    | Resume
    | Tick
    | DeadLettered
    | Lost
    | Skip
)

# effects


class Deliver(NamedTuple):
    consumer: str
    partition: int
    spans: tuple[Span, ...]


class Fetch(NamedTuple):
    """A read of the log from `offset`, answered with `Supplied`."""

    partition: int
    offset: int


class DeadLetter(NamedTuple):
    """A message for the dead-letter topic, once all pending cursors are durable; answered with `DeadLettered`."""

    partition: int
    offset: int
    attempts: int
    reason: str
    seek: int
    """The number of seeks so far: after another seek the same message may fail once more."""


class SaveCursor(NamedTuple):
    """The partition whose cursor has changed and must be saved."""

    partition: int


class AckCounts(NamedTuple):
    """Counts of an ack, nack or extend: `messages` were in flight at this consumer, and `already` were acked before.
    All others that it named are ignored."""

    messages: int
    already: int = 0


class Promote(NamedTuple):
    """The consumer that is the active one now."""

    consumer: str


class Evict(NamedTuple):
    """The consumer that was replaced by another connection with its name."""

    consumer: str


class ReportGap(NamedTuple):
    """A gap that consumers are told of; `messages` of its messages were not acked before."""

    partition: int
    gap: Gap
    messages: int


MachineEffect = Deliver | Fetch | DeadLetter | SaveCursor | AckCounts | Promote | Evict | ReportGap
