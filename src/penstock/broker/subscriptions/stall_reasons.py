"""Why a subscription does not move, in sentences that say what to do about it. Nothing is decided here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from penstock.broker.base.recent_rate import SECONDS
from penstock.broker.subscriptions.machine import Group
from penstock.broker.subscriptions.partition import Lane
from penstock.broker.subscriptions.ready_queue import Consumer
from penstock.core.errors import PenstockError

TimeOf = Callable[[int], str]
"""The time of day when the clock of the subscription showed this."""
AddressOf = Callable[[str], str]
"""Where the connection of a consumer comes from; nothing where that is not known."""

MOVING: Final = "moving"
_QUIET_MS: Final = SECONDS * 1000
"""A full window without an acknowledgement for so long is a reason; a shorter one is a consumer at work."""


def reasons(
    group: Group,
    *,
    now_ms: int,
    reported_at: str | None,
    trouble: PenstockError | None,
    time_of: TimeOf,
    address_of: AddressOf,
) -> list[str]:
    """All there are; or that it moves, or has nothing to do."""
    found = [*_consumers(group, reported_at, now_ms, address_of), *_lanes(group, time_of)]
    if trouble is not None:
        found.append(f"in trouble: {trouble.message}")
    failed = [_failed(lane, time_of(due_ms)) for lane, due_ms in _waiting(group)]
    filtered = list(_filter(group))
    if found:
        return found + failed + filtered
    left = sum(lane.backlog - lane.waiting.count for lane in group.lanes.values())
    moving = [_moving(group, now_ms)] if left > 0 else []
    return (moving + failed or ["caught up"]) + filtered


def _moving(group: Group, now_ms: int) -> str:
    """With its pace where consumers, not the log, are what keeps it from being quicker."""
    if any(each.room for each in group.served):
        return MOVING
    pace = sum(each.acks.a_second(now_ms) for each in group.served)
    return f"{MOVING}: {_pace(pace)}, and every window is full" if pace else MOVING


def _pace(a_second: float) -> str:
    return f"{a_second:,.1f} messages a second are acknowledged"


def _consumers(group: Group, reported_at: str | None, now_ms: int, address_of: AddressOf) -> Iterator[str]:
    if group.paused:
        yield "paused: resume it"
    if not group.consumers and reported_at is not None:
        yield f"read elsewhere, which is reported: last at {reported_at}"
    elif not group.consumers:
        yield "no consumer is connected"
    elif any(each.room for each in group.served):
        yield from _keys(group, now_ms, address_of)
    elif (quiet_ms := group.quiet_ms(now_ms)) >= _QUIET_MS:
        who = _named(group.served[0], address_of) if len(group.served) == 1 else "every consumer"
        nothing = f"has acknowledged nothing for {quiet_ms // 1000:,} s"
        yield f"window full: {who} has as much in flight as it asked for, and {nothing}"


def _named(consumer: Consumer, address_of: AddressOf) -> str:
    address = address_of(consumer.id)
    return f"consumer {consumer.name!r} at {address}" if address else f"consumer {consumer.name!r}"


def _keys(group: Group, now_ms: int, address_of: AddressOf) -> Iterator[str]:
    for consumer, count in group.kept_by_keys().items():
        holder = group.consumers[consumer]
        if not holder.room:
            pace = f"where {_pace(holder.acks.a_second(now_ms))}"
            yield (
                f"{count} ready messages have keys of {_named(holder, address_of)}, whose window is full, and {pace}"
            )


def _filter(group: Group) -> Iterator[str]:
    """A filter that wants nothing of what there is, which may well be a mistake: it settles messages unseen."""
    wanted = [("types", group.options.types), ("keys", group.options.keys)]
    only = " and ".join(f"{what} {', '.join(globs)}" for what, globs in wanted if globs)
    if only and group.filtered and not group.passed:
        yield f"its filter ({only}) has let none of {group.filtered:,} messages through, and settled them all"


def _lanes(group: Group, time_of: TimeOf) -> Iterator[str]:
    for lane in group.lanes.values():
        for offset, failed in sorted(lane.poison.items())[:1]:
            yield (
                f"blocked on poison offset {offset} of partition {lane.partition} since {time_of(failed.since_ms)}"
                f" ({failed.reason}): skip it, or resume to try it again"
            )
        if lane.burying:
            yield f"{len(lane.burying)} on their way to the dead letters of partition {lane.partition}"


def _waiting(group: Group) -> Iterator[tuple[Lane, int]]:
    """Partitions with messages that wait for their next delivery, and when that is. They need not keep others."""
    for lane in group.lanes.values():
        due_ms = group.again_ms(lane.partition)
        if lane.waiting.count and due_ms is not None:
            yield lane, due_ms


def _failed(lane: Lane, next_at: str) -> str:
    return (
        f"failed messages of partition {lane.partition} that wait to be delivered again: {lane.waiting.count},"
        f" the next at {next_at}"
    )
