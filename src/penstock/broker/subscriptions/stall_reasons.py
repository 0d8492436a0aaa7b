"""Stall reasons: sentences that say why a subscription does not move, and what to do about it. This module only
describes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from penstock.broker.base.recent_rate import SECONDS
from penstock.broker.subscriptions.machine import SubscriptionMachine
from penstock.broker.subscriptions.partition import PartitionCursor
from penstock.broker.subscriptions.ready_queue import Consumer
from penstock.core.errors import PenstockError

TimeOf = Callable[[int], str]
"""A function that formats a time of the broker's monotonic clock as a time of day."""
AddressOf = Callable[[str], str]
"""A function that returns the address of a consumer's connection, or an empty text."""

MOVING: Final = "moving"
_QUIET_MS: Final = SECONDS * 1000
"""The time after which a consumer with a full window and no ack counts as stalled."""


def stall_reasons(
    machine: SubscriptionMachine,
    *,
    now_ms: int,
    reported_at: str | None,
    last_error: PenstockError | None,
    time_of: TimeOf,
    address_of: AddressOf,
) -> list[str]:
    """Return a sentence for each reason why the subscription does not move. If there is none, say that it moves or is
    caught up. Warnings come last."""
    causes = [*_consumers(machine, reported_at, now_ms, address_of), *_partition_reasons(machine, time_of)]
    if last_error is not None:
        causes.append(f"in trouble: {last_error.message}")
    failed = [_failed(cursor, time_of(due_ms)) for cursor, due_ms in _waiting(machine)]
    filtered = list(_filter(machine))
    if causes:
        return causes + failed + filtered
    left = sum(cursor.backlog - cursor.waiting.count for cursor in machine.cursors.values())
    moving = [_moving(machine, now_ms)] if left > 0 else []
    return (moving + failed or ["caught up"]) + filtered


def _moving(machine: SubscriptionMachine, now_ms: int) -> str:
    """Return that the subscription moves. If full windows limit it, add how many messages a second are acknowledged."""
    if any(consumer.room for consumer in machine.eligible):
        return MOVING
    pace = sum(consumer.acks.per_second(now_ms) for consumer in machine.eligible)
    return f"{MOVING}: {_pace(pace)}, and every window is full" if pace else MOVING


def _pace(a_second: float) -> str:
    return f"{a_second:,.1f} messages a second are acknowledged"


def _consumers(
    machine: SubscriptionMachine, reported_at: str | None, now_ms: int, address_of: AddressOf
) -> Iterator[str]:
    if machine.paused:
        yield "paused: resume it"
    if not machine.consumers and reported_at is not None:
        yield f"read elsewhere, which is reported: last at {reported_at}"
    elif not machine.consumers:
        yield "no consumer is connected"
    elif any(each.room for each in machine.eligible):
        yield from _keys(machine, now_ms, address_of)
    elif (quiet_ms := machine.quiet_ms(now_ms)) >= _QUIET_MS:
        who = _named(machine.eligible[0], address_of) if len(machine.eligible) == 1 else "every consumer"
        nothing = f"has acknowledged nothing for {quiet_ms // 1000:,} s"
        yield f"window full: {who} has as much in flight as it asked for, and {nothing}"


def _named(consumer: Consumer, address_of: AddressOf) -> str:
    address = address_of(consumer.id)
    return f"consumer {consumer.name!r} at {address}" if address else f"consumer {consumer.name!r}"


def _keys(machine: SubscriptionMachine, now_ms: int, address_of: AddressOf) -> Iterator[str]:
    for consumer, count in machine.ready_by_holder().items():
        holder = machine.consumers[consumer]
        if not holder.room:
            pace = f"where {_pace(holder.acks.per_second(now_ms))}"
            yield (
                f"{count} ready messages have keys of {_named(holder, address_of)}, whose window is full, and {pace}"
            )


def _filter(machine: SubscriptionMachine) -> Iterator[str]:
    """Yield a warning if the filter has excluded every message so far, which may be a mistake: such messages are acked
    without a delivery."""
    globs_by_field = [("types", machine.options.types), ("keys", machine.options.keys)]
    only = " and ".join(f"{field} {', '.join(globs)}" for field, globs in globs_by_field if globs)
    if only and machine.filtered and not machine.matched:
        yield f"its filter ({only}) has let none of {machine.filtered:,} messages through, and settled them all"


def _partition_reasons(machine: SubscriptionMachine, time_of: TimeOf) -> Iterator[str]:
    for cursor in machine.cursors.values():
        for offset, failed in sorted(cursor.poison.items())[:1]:
            yield (
                f"blocked on poison offset {offset} of partition {cursor.partition} since {time_of(failed.since_ms)}"
                f" ({failed.reason}): skip it, or resume to try it again"
            )
        if cursor.dead_lettering:
            yield f"{len(cursor.dead_lettering)} on their way to the dead letters of partition {cursor.partition}"


def _waiting(machine: SubscriptionMachine) -> Iterator[tuple[PartitionCursor, int]]:
    """Yield each partition with messages that wait for redelivery, with the time of the next one. Its other messages
    need not wait for them."""
    for cursor in machine.cursors.values():
        due_ms = machine.next_retry_ms(cursor.partition)
        if cursor.waiting.count and due_ms is not None:
            yield cursor, due_ms


def _failed(cursor: PartitionCursor, next_at: str) -> str:
    return (
        f"failed messages of partition {cursor.partition} that wait to be delivered again: {cursor.waiting.count},"
        f" the next at {next_at}"
    )
