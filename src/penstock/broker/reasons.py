"""Why a subscription does not move, in sentences that say what to do about it. Nothing is decided here."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from penstock.broker.lane import Lane
from penstock.broker.subscription import Group
from penstock.core.errors import PenstockError

TimeOf = Callable[[int], str]
"""The time of day when the clock of the subscription showed this."""


def reasons(group: Group, *, reported_at: str | None, trouble: PenstockError | None, time_of: TimeOf) -> list[str]:
    """All there are; or that it moves, or has nothing to do."""
    found = [*_consumers(group, reported_at), *_lanes(group, time_of)]
    if trouble is not None:
        found.append(f"in trouble: {trouble.message}")
    failed = [_failed(lane, time_of(due_ms)) for lane, due_ms in _waiting(group)]
    if found:
        return found + failed
    left = sum(lane.backlog - lane.waiting.count for lane in group.lanes.values())
    return (["moving"] if left > 0 else []) + failed or ["caught up"]


def _consumers(group: Group, reported_at: str | None) -> Iterator[str]:
    if group.paused:
        yield "paused: resume it"
    if not group.consumers and reported_at is not None:
        yield f"read elsewhere, which is reported: last at {reported_at}"
    elif not group.consumers:
        yield "no consumer is connected"
    elif not any(each.room for each in group.served):
        who = "every consumer" if group.active is None else f"consumer {group.consumers[group.active].name!r}"
        yield f"window full: {who} has as much in flight as it asked for, and acknowledges nothing"
    else:
        yield from _keys(group)


def _keys(group: Group) -> Iterator[str]:
    for consumer, count in group.kept_by_keys().items():
        holder = group.consumers[consumer]
        if not holder.room:
            yield f"{count} ready messages have keys of consumer {holder.name!r}, whose window is full"


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
