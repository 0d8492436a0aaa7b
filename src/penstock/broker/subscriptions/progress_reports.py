"""Progress reports: a reader that the broker does not serve, such as a Spark job that reads the log's files, reports
its position.

The position is kept as the cursor of a subscription, which the first report creates. So its lag is listed with all
others, and retention can wait for it. While a consumer is connected to the subscription, reports are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.broker.base import request_fields as read
from penstock.broker.base.effects import Effect
from penstock.broker.base.request_fields import Fields
from penstock.broker.context import Reply
from penstock.broker.subscriptions import events
from penstock.broker.subscriptions.delivery import SubscriptionRunner
from penstock.broker.subscriptions.service import Subscriptions
from penstock.broker.topics.topics import Topics, TopicState
from penstock.core.errors import InvalidRequest, NotOwner, PenstockError, TopicNotSupported
from penstock.core.offsets import Offset, parse_offset
from penstock.storage.catalog.subscriptions import check_subscription_name

_FIELDS: Final = ("topic", "subscription", "positions", "archive")


def report(topics: Topics, subscriptions: Subscriptions, fields: Fields, reply: Reply) -> list[Effect]:
    """Store the positions that a request reports: the next offset of each partition that it names. A lower position
    than the stored one is ignored. The reply comes when they are durable, and has the positions of all partitions."""
    read.check_known(fields, _FIELDS)
    topic = topics.find(read.topic_name(fields))
    name = read.text(fields, "subscription")
    check_subscription_name(name)
    if not topic.is_durable:
        raise TopicNotSupported(f"{topic.name} is a live topic: it keeps nothing that could be read later")
    positions = _positions(topic, fields.get("positions"))

    def then(runner: SubscriptionRunner | PenstockError) -> list[Effect]:
        if isinstance(runner, PenstockError):
            return reply(runner)
        try:
            effects = _advance(runner, positions)
        except PenstockError as error:
            return reply(error)
        return [*effects, *subscriptions.cursor_store.when_durable(reply, _answer(runner))]

    return subscriptions.get_or_create(topic, name, _start_offsets(topic, positions), then)


def _positions(topic: TopicState, positions: object) -> dict[int, int]:
    if not isinstance(positions, dict) or not positions:
        raise InvalidRequest('positions are the next offsets by partition: {"0": 120, "1": 80}', field="positions")
    known = {str(number): number for number in range(len(topic.logs))}
    unknown = sorted(positions.keys() - known.keys())
    if unknown:
        raise InvalidRequest(
            f"{topic.name} has partitions 0 to {len(topic.logs) - 1}, not {unknown[0][:20]!r}", field="positions"
        )
    return {known[number]: int(parse_offset(offset)) for number, offset in positions.items()}


def _start_offsets(topic: TopicState, positions: Mapping[int, int]) -> dict[int, Offset]:
    """Return where a new subscription starts: at the reported positions, and at the beginning of partitions that the
    report does not name."""
    return {
        number: Offset(min(max(positions.get(number, 0), int(log.first_offset)), int(log.next_offset)))
        for number, log in enumerate(topic.logs)
    }


def _advance(runner: SubscriptionRunner, positions: Mapping[int, int]) -> list[Effect]:
    """Move the cursor forward, at most to the log's end: the reader may have seen messages in the files a moment before
    the broker knows of them. Raises `NotOwner` if a consumer is connected."""
    if runner.machine.consumers:
        names = ", ".join(sorted(each.name for each in runner.machine.consumers.values())[:3])
        raise NotOwner(
            f"subscription {runner.name} of {runner.topic.name} is consumed by {names}: report under another name",
            subscription=runner.name,
        )
    effects = runner.note_report(positions)
    for partition, offset in positions.items():
        end = int(runner.topic.logs[partition].next_offset)
        effects += runner.handle(events.LogGrown(partition, end))
        floor = runner.machine.cursor(partition).floor
        if floor < min(offset, end):
            effects += runner.handle(events.Skip(partition, floor, min(offset, end)))
    return effects


def _answer(runner: SubscriptionRunner) -> Fields:
    cursors = runner.machine.cursors
    return {
        "subscription": runner.name,
        "positions": {str(partition): cursor.floor for partition, cursor in cursors.items()},
        "lag": sum(cursor.backlog for cursor in cursors.values()),
    }
