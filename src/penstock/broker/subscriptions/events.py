"""Events and effects of the subscription machine. Events are what can happen to a subscription, effects are what it can
decide."""

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
    """The most messages that may be in flight at this consumer."""
    window_bytes: int
    """The most bytes that may be in flight. A single larger message is delivered if nothing else is in flight."""


class Disconnect(NamedTuple):
    consumer: str


class LogGrown(NamedTuple):
    """New messages are in the log of a partition, whose next offset is now `end`."""

    partition: int
    end: int


class Supplied(NamedTuple):
    """The answer to a `Fetch`: the messages from `offset` up to `next_offset`. Those that are in no run were excluded
    by the filter or are in a gap."""

    partition: int
    offset: int
    runs: Sequence[OffsetRun]
    next_offset: int
    slots: Sequence[int] = ()
    """Only for key_shared: the key slot of each message of all runs, in their order; `NO_KEY` for a message without a
    key."""
    gaps: Sequence[Gap] = ()
    """Messages in this range that can no longer be read."""


class Ack(NamedTuple):
    consumer: str
    partition: int
    spans: Sequence[Span]


class AckThrough(NamedTuple):
    """A cumulative ack: acknowledges every message up to this offset, and including it."""

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
    """A consumer still works on these messages: their ack timeout starts again."""

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
    """The answer to a `DeadLetter`: the message is durable in the dead-letter topic, or could not be stored there."""

    partition: int
    offset: int
    stored: bool
    seek: int = 0
    """The `seek` of the `DeadLetter` that this answers. If the subscription was moved since, the answer is ignored."""

    permanent_error: str = ""
    """The reason why this message can never be stored as a dead letter; empty if it was stored or another try may
    help."""


class Lost(NamedTuple):
    """Messages that can no longer be read, because retention deleted them or they are damaged."""

    partition: int
    start: int
    stop: int
    reason: str = RETENTION


class Skip(NamedTuple):
    """Messages that are acked without a consumer, because an operator or an external reader's report says so."""

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
    """A request to read the log from `offset`. Its answer is `Supplied`."""

    partition: int
    offset: int


class DeadLetter(NamedTuple):
    """A request to store a message in the dead-letter topic, once all changed cursors are durable. Its answer is
    `DeadLettered`."""

    partition: int
    offset: int
    attempts: int
    reason: str
    seek: int
    """The number of seeks so far. It distinguishes failures of the same message before and after a seek."""


class SaveCursor(NamedTuple):
    """A request to save the cursor of a partition, which has changed."""

    partition: int


class AckCounts(NamedTuple):
    """The counts of an ack, nack or extend. `messages` were in flight at this consumer, so that the request had effect;
    `already` had been acked before. Other offsets that it named are ignored."""

    messages: int
    already: int = 0


class Promote(NamedTuple):
    """The consumer that is active from now on, in an exclusive or failover subscription."""

    consumer: str


class Evict(NamedTuple):
    """A consumer that is removed, because another connection has taken its name."""

    consumer: str


class ReportGap(NamedTuple):
    """A gap that consumers must be told of. `messages` of the messages in it were not acked."""

    partition: int
    gap: Gap
    messages: int


MachineEffect = Deliver | Fetch | DeadLetter | SaveCursor | AckCounts | Promote | Evict | ReportGap
