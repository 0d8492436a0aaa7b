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
    """At most so many messages in flight at it,"""
    window_bytes: int
    """and so many bytes; but always one message."""


class Disconnect(NamedTuple):
    consumer: str


class LogGrown(NamedTuple):
    """The log of a partition goes up to `end` now."""

    partition: int
    end: int


class Supplied(NamedTuple):
    """What was fetched from `offset` on. What lies between the pieces is not wanted by this subscription."""

    partition: int
    offset: int
    runs: Sequence[OffsetRun]
    next_offset: int
    slots: Sequence[int] = ()
    """For key_shared: the slot of the key of each message of the pieces, one after another; `NO_KEY` without one."""
    gaps: Sequence[Gap] = ()
    """What of it cannot be read."""


class Ack(NamedTuple):
    consumer: str
    partition: int
    spans: Sequence[Span]


class AckThrough(NamedTuple):
    """Everything up to and with this offset."""

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
    """Still being worked on: the time to acknowledge begins again."""

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
    """A message is among the dead letters, durably; or could not be put there."""

    partition: int
    offset: int
    stored: bool
    seek: int = 0
    """As in the `DeadLetter` that this answers: after a seek it is somebody else's."""

    permanent_error: str = ""
    """Why it never can be."""


class Lost(NamedTuple):
    """Messages that can no longer be read: retention was quicker, or they are damaged."""

    partition: int
    start: int
    stop: int
    reason: str = RETENTION


class Skip(NamedTuple):
    """Messages that somebody wants settled although nobody acknowledged them."""

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
    """Look at what lies from `offset` on, and say so with `Supplied`."""

    partition: int
    offset: int


class DeadLetter(NamedTuple):
    """Put it among the dead letters once all that was to be saved is durable, and say so with `DeadLettered`."""

    partition: int
    offset: int
    attempts: int
    reason: str
    seek: int
    """How often somebody had sought elsewhere: the same message may fail once more after the next time."""


class SaveCursor(NamedTuple):
    """The cursor of this partition has changed."""

    partition: int


class AckCounts(NamedTuple):
    """So many of what a consumer spoke of were in flight at it, and so many were settled before; the rest was not its
    to speak of."""

    messages: int
    already: int = 0


class Promote(NamedTuple):
    """This consumer is the active one now."""

    consumer: str


class Evict(NamedTuple):
    """Another connection has taken this consumer's place."""

    consumer: str


class ReportGap(NamedTuple):
    """Messages of these offsets, so many of them not settled before, are lost to the subscription: its consumers are
    told."""

    partition: int
    gap: Gap
    messages: int


MachineEffect = Deliver | Fetch | DeadLetter | SaveCursor | AckCounts | Promote | Evict | ReportGap
