"""System topics about durable state: topics, namespaces, producers, subscriptions. One row each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.broker.access.policy import Operation, Resource
from penstock.broker.base import request_fields as read
from penstock.broker.base.effects import Effect, RunInThread
from penstock.broker.base.replies import SUCCESS, encode_list
from penstock.broker.base.request_fields import Fields
from penstock.broker.context import Reply, errors_to
from penstock.broker.live.connections import Client
from penstock.broker.reads.publish_times import published_ms
from penstock.broker.subscriptions import events
from penstock.broker.subscriptions.delivery import SubscriptionRunner
from penstock.broker.subscriptions.progress_reports import report
from penstock.broker.subscriptions.requests import DURABLE_OPTIONS, parse_subscribe
from penstock.broker.topics.schema_usage import record_archive_uses
from penstock.broker.topics.topics import TopicState
from penstock.core.errors import InvalidRequest, OffsetOutOfRange, PenstockError, TopicNotSupported
from penstock.core.limits import LIST_ENTRIES_MAX, PARTITIONS_MAX
from penstock.core.names import TopicName
from penstock.schema.registry.models import parse_subject
from penstock.storage.catalog.subscriptions import SubscriptionOptions
from penstock.storage.catalog.topics import Dispatch, Exhausted, Retention, SchemaPolicy, Topic, TopicSettings
from penstock.storage.log.log import Log

if TYPE_CHECKING:
    from penstock.broker.durable import DurableBroker

SETTINGS: Final = tuple(TopicSettings.__struct_fields__)
_GAPS_MAX: Final = 100
"""The most gaps that are listed for one partition. A log usually has none, or a few."""
_SUBSCRIPTION: Final = ("topic", "subscription")
_CREATED: Final = tuple(
    option for option in DURABLE_OPTIONS if option not in ("subscription", "window", "format", "consumer")
)
"""The options that a subscription is created with. The other options belong to its consumers."""


# settings


def parse_settings(fields: Fields, before: TopicSettings) -> TopicSettings:
    """Return the settings `before`, changed by the fields of a request: an absent field changes nothing, null resets to
    the default. Raises `InvalidRequest`."""
    changes: Fields = {name: fields[name] for name in SETTINGS if name in fields}
    for name, kind in (("exhausted", Exhausted), ("schema_policy", SchemaPolicy)):
        if changes.get(name) is not None and changes[name] not in tuple(kind):
            raise InvalidRequest(f"{name} is one of {', '.join(kind)}", field=name, given=changes[name])
    if changes.get("retention") is not None:
        changes["retention"] = _convert("retention", changes["retention"], Retention)
    elif "retention" in changes:
        changes["retention"] = Retention()
    merged = {name: getattr(before, name) for name in SETTINGS} | changes
    if _turns_on_validation(changes, merged):
        merged["schema_payloads"] = True
    defined = {name: value for name, value in merged.items() if value is not None}
    settings: TopicSettings = _convert("settings", defined, TopicSettings)
    for subject in settings.schema_subjects or ():
        parse_subject(subject)
    return settings


def _turns_on_validation(changes: Fields, merged: Fields) -> bool:
    """Return whether a change turns on the validation of payloads: the policy becomes `enforce`, and `schema_payloads`
    was never set.

    The result is stored with the topic. Topics whose `enforce` was set by a release that checked only schema ids keep
    that meaning until the policy is set again.
    """
    asked = "schema_policy" in changes or "schema_payloads" in changes
    return asked and merged["schema_policy"] == SchemaPolicy.ENFORCE and merged["schema_payloads"] is None


def _check_policy(settings: TopicSettings, dispatch: Dispatch) -> None:
    if dispatch is Dispatch.LIVE and settings.schema_policy not in (None, SchemaPolicy.NONE):
        raise InvalidRequest("a live topic keeps nothing, and so has no schema policy", field="schema_policy")


def _convert(name: str, value: object, kind: type[Any]) -> Any:
    if isinstance(value, kind):
        return value
    if isinstance(value, dict):
        value = {key: msgspec.to_builtins(each) for key, each in value.items()}
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        cause = error.__cause__
        if isinstance(cause, PenstockError):
            raise cause from None
        raise InvalidRequest(f"Invalid {name}: {error}", field=name) from None


def _settings(settings: TopicSettings) -> Fields:
    return {name: value for name in SETTINGS if (value := msgspec.to_builtins(getattr(settings, name))) is not None}


# topics


def _create(durable: DurableBroker, _client: Client, fields: Fields, reply: Reply) -> list[Effect]:
    read.check_known(fields, ("topic", "partitions", "dispatch", *SETTINGS))
    name = read.topic_name(fields)
    partitions = read.number(fields, "partitions", 1, at_least=1, at_most=PARTITIONS_MAX)
    dispatch = read.text(fields, "dispatch", Dispatch.RELIABLE.value)
    if dispatch not in tuple(Dispatch):
        raise InvalidRequest("dispatch is reliable or live", field="dispatch", given=dispatch)
    _check_policy(parse_settings(fields, TopicSettings()), Dispatch(dispatch))
    store = durable.topics.store

    def created(outcome: Topic | PenstockError) -> list[Effect]:
        if isinstance(outcome, PenstockError):
            return reply(outcome)
        return reply(_topic(durable.topics.add(outcome)))

    def create() -> Topic:
        usual = store.catalog.namespace_settings(name.namespace) if dispatch == Dispatch.RELIABLE else TopicSettings()
        settings = parse_settings(fields, TopicSettings(schema_payloads=usual.schema_payloads))
        return store.create_topic(name, partitions=partitions, dispatch=Dispatch(dispatch), settings=settings)

    return [RunInThread(create, created)]


def _describe(durable: DurableBroker, _client: Client, fields: Fields, reply: Reply) -> list[Effect]:
    read.check_known(fields, ("topic",))
    topic = durable.topics.find(read.topic_name(fields))
    logs = [_log(number, log) for number, log in enumerate(topic.logs)]
    subscriptions = [subscription.name for subscription in topic.subscriptions.values() if not subscription.is_reader]
    awaited = [name for name in topic.settings.retention.keep_for if name not in subscriptions]
    details = {"logs": logs, "subscriptions": subscriptions} | ({"retention_awaits": awaited} if awaited else {})
    return reply(_topic(topic) | details)


def _topic(topic: TopicState) -> Fields:
    stored = topic.catalog_topic
    views = [log.view for log in topic.logs]
    return {
        "topic": str(stored.name),
        "dispatch": stored.dispatch.value,
        "partitions": stored.partitions,
        "created_ms": stored.created_ms,
        "messages": sum(view.messages for view in views),
        "bytes": sum(view.size for view in views),
        "rate": topic.rate,
        "settings": _settings(stored.settings),
        "subscriptions": sum(not subscription.is_reader for subscription in topic.subscriptions.values()),
    }


def _log(number: int, log: Log) -> Fields:
    view = log.view
    return {
        "partition": number,
        "first_offset": view.first_offset,
        "next_offset": view.next_offset,
        "bytes": view.size,
        "segments": len(view.segments),
        "damages": len(log.damages),
        "missing": [[int(gap.start), int(gap.stop)] for gap in log.missing[:_GAPS_MAX]],
        "failure": None if log.failure is None else log.failure.message,
    }


def _alter(durable: DurableBroker, _client: Client, fields: Fields, reply: Reply) -> list[Effect]:
    for fixed in ("partitions", "dispatch"):
        if fixed in fields:
            raise InvalidRequest(f"{fixed} never change: create another topic and copy", field=fixed)
    read.check_known(fields, ("topic", *SETTINGS))
    topic = durable.topics.find(read.topic_name(fields))
    store = durable.topics.store
    # Invalid settings are refused before anything waits.
    _check_policy(parse_settings(fields, topic.settings), topic.catalog_topic.dispatch)

    def alter() -> Topic:
        """Merge the changes into the stored settings. Runs in the catalog's thread, so that all earlier changes are
        included."""
        return store.alter_topic(topic.name, parse_settings(fields, store.catalog.get_topic(topic.name).settings))

    def altered(outcome: Topic | PenstockError) -> list[Effect]:
        if isinstance(outcome, PenstockError):
            return reply(outcome)
        topic.catalog_topic = outcome
        durable.rate_limiter.set_topic(topic.name, outcome.settings.rate_max)
        return reply(_topic(topic))

    return [RunInThread(alter, altered)]


def _delete(durable: DurableBroker, _client: Client, fields: Fields, reply: Reply) -> list[Effect]:
    """Delete a topic. If messages or subscriptions would be lost, the first request deletes nothing: its answer says
    what would be lost, and has the text that a second request must repeat as `confirm`. Missing log files need the
    confirmation too, as they may be restored."""
    read.check_known(fields, ("topic", "confirm"))
    topic = durable.topics.find(read.topic_name(fields))
    summary, token = _topic(topic), str(topic.uid)
    at_stake = summary["messages"] or summary["subscriptions"] or any(log.missing for log in topic.logs)
    if at_stake and fields.get("confirm") != token:
        lost = {name: summary[name] for name in ("topic", "messages", "bytes", "subscriptions")}
        return reply({"status": "confirm", "confirm": token} | lost)
    durable.topics.remove(topic.name)
    durable.rate_limiter.set_topic(topic.name, None)
    durable.schema_enforcer.forget(topic)
    ended = [
        effect
        for runner in list(topic.subscriptions.values())
        for effect in durable.subscriptions.end(runner, "the topic was deleted")
    ]

    def deleted(outcome: object) -> list[Effect]:
        return reply(outcome if isinstance(outcome, PenstockError) else SUCCESS)

    return [*ended, RunInThread(lambda: durable.topics.store.delete_topic(topic.name), deleted)]


def _catalog(durable: DurableBroker, client: Client, fields: Fields, reply: Reply) -> list[Effect]:
    """List topics in the order of names. A request with `after`, the last name of the previous answer, gets the ones
    that follow."""
    read.check_known(fields, ("namespace", "after", "limit"))
    namespace = read.text(fields, "namespace").lower() if "namespace" in fields else None
    after = read.text(fields, "after").lower() if "after" in fields else ""
    limit = _limit(fields)
    topics = sorted(
        (
            topic
            for topic in durable.topics
            if namespace in (None, topic.name.namespace)
            and str(topic.name) > after
            and durable.can_describe(client, topic.name)
        ),
        key=lambda topic: str(topic.name),
    )
    entries = (_topic(topic) for topic in topics[:limit])
    return reply(encode_list(durable.answer_bytes_max, "topics", entries, len(topics)))


def _limit(fields: Fields) -> int:
    """Read the most entries that the answer may have. Raises `InvalidRequest`."""
    return read.number(fields, "limit", LIST_ENTRIES_MAX, at_least=1, at_most=LIST_ENTRIES_MAX)


# namespaces


def _namespace(durable: DurableBroker, client: Client, fields: Fields, reply: Reply) -> list[Effect]:
    """Answer the defaults that a namespace has for new topics. Settings in the request are stored first."""
    read.check_known(fields, ("namespace", *SETTINGS))
    name = TopicName(read.text(fields, "namespace"), "topic").namespace
    operation = Operation.ALTER if len(fields) > 1 else Operation.DESCRIBE
    durable.check(client, operation, Resource.namespace(name), "system.namespace")
    catalog = durable.topics.store.catalog

    def work() -> Fields:
        settings = parse_settings(fields, catalog.namespace_settings(name))
        if len(fields) > 1:
            catalog.set_namespace_settings(name, settings)
        return {"namespace": name, "settings": _settings(settings)}

    return [RunInThread(work, reply)]


def _list_namespaces(durable: DurableBroker, client: Client, fields: Fields, reply: Reply) -> list[Effect]:
    """List namespaces in the order of names: those with topics that the client may see, and those with defaults of
    their own."""
    read.check_known(fields, ("after", "limit"))
    after = read.text(fields, "after").lower() if "after" in fields else ""
    limit, catalog = _limit(fields), durable.topics.store.catalog
    counts = Counter(topic.name.namespace for topic in durable.topics if durable.can_describe(client, topic.name))

    def continue_with(names: tuple[str, ...] | PenstockError) -> list[Effect]:
        if isinstance(names, PenstockError):
            return reply(names)
        visible = {name for name in names if durable.is_allowed(client, Operation.DESCRIBE, Resource.namespace(name))}
        listed_names = sorted(name for name in visible | counts.keys() if name > after)
        entries = ({"namespace": name, "topics": counts[name]} for name in listed_names[:limit])
        return reply(encode_list(durable.answer_bytes_max, "namespaces", entries, len(listed_names)))

    return [RunInThread(catalog.namespaces, continue_with)]


def _register_producer(durable: DurableBroker, client: Client, fields: Fields, reply: Reply) -> list[Effect]:
    return durable.register_producer(client, fields, reply)


# subscriptions


def _find_subscription(durable: DurableBroker, fields: Fields) -> SubscriptionRunner:
    return durable.subscriptions.find(read.topic_name(fields), read.text(fields, "subscription"))


def _find_durable_subscription(durable: DurableBroker, fields: Fields) -> SubscriptionRunner:
    runner = _find_subscription(durable, fields)
    if runner.is_reader:
        raise InvalidRequest(f"{runner.name} is a reader: it goes with its connection", field="subscription")
    return runner


def _create_subscription(durable: DurableBroker, client: Client, fields: Fields, reply: Reply) -> list[Effect]:
    """Create a subscription that has no consumer yet, so that nothing published from now on is missed."""
    read.check_known(fields, (*_SUBSCRIPTION, *_CREATED))
    topic = durable.topics.find(read.topic_name(fields))
    if not topic.is_durable:
        raise TopicNotSupported(f"{topic.name} is a live topic: it keeps nothing to read later")
    options: Fields = {name: fields[name] for name in ("subscription", *_CREATED) if name in fields}
    options["consumer"] = read.text(options, "subscription")  # no consumer exists yet: any name will do
    return durable.subscriptions.create(topic, parse_subscribe(topic.name, options, client), reply)


def _list_subscriptions(durable: DurableBroker, client: Client, fields: Fields, reply: Reply) -> list[Effect]:
    """List subscriptions in the order of topics and names. A request with `after`, the last entry of the previous
    answer, such as "/ns/topic name", gets the ones that follow.

    `reported` selects the subscriptions of external readers, such as Spark, which report their positions.
    """
    read.check_known(fields, ("topic", "after", "limit", "reported"))
    if "topic" in fields:
        durable.check(client, Operation.DESCRIBE, Resource.topic(read.topic_name(fields)))
    only_topic = durable.topics.find(read.topic_name(fields)) if "topic" in fields else None
    after, reported, limit = fields.get("after", ""), read.flag(fields, "reported"), _limit(fields)
    if not isinstance(after, str):
        raise InvalidRequest('Invalid after: expected "/namespace/topic subscription"', field="after")
    after_key = tuple(after.split(" ", 1))
    runners = [
        runner
        for runner in durable.subscriptions
        if only_topic in (None, runner.topic)
        and _sort_key(runner) > after_key
        and (runner.reported_at is not None or not reported)
        and durable.can_describe(client, runner.topic.name)
    ]
    runners.sort(key=_sort_key)
    described = [_summary(runner) for runner in runners[:limit]]
    lags = [list(_oldest_unacked(runner)) for runner in runners[:limit]]

    def measured() -> bytes:
        shown = (
            facts | {"lag_seconds": _lag(lag, durable.unix_ms())} for facts, lag in zip(described, lags, strict=True)
        )
        return encode_list(durable.answer_bytes_max, "subscriptions", shown, len(runners))

    return [RunInThread(measured, reply, read_only=True)]


def _sort_key(runner: SubscriptionRunner) -> tuple[str, ...]:
    return str(runner.topic.name), runner.name


def _summary(runner: SubscriptionRunner) -> Fields:
    description = runner.describe()
    names = ("topic", "subscription", "type", "internal", "paused", "lag", "in_flight", "state", "reported_at")
    return {name: description[name] for name in names} | {"consumers": len(description["consumers"])}


def _oldest_unacked(runner: SubscriptionRunner) -> Iterator[tuple[Log, int]]:
    """Yield, for each partition with a backlog, the log and the offset of the oldest message that is not acked."""
    for partition, cursor in runner.machine.cursors.items():
        if cursor.backlog:
            yield runner.topic.logs[partition], cursor.floor


def _lag(floors: list[tuple[Log, int]], now_ms: int) -> float:
    """Return the age in seconds of the oldest of these messages, which are not acked; 0 if there are none, or their
    times are unknown. Reads the logs."""
    times = [time for log, floor in floors if (time := published_ms(log, floor)) is not None]
    return max(0.0, (now_ms - min(times)) / 1000) if times else 0.0


def _describe_subscription(durable: DurableBroker, _client: Client, fields: Fields, reply: Reply) -> list[Effect]:
    read.check_known(fields, _SUBSCRIPTION)
    runner = _find_subscription(durable, fields)
    facts = runner.describe() | {"options": _options(runner.machine.options)}
    floors = list(_oldest_unacked(runner))
    return [RunInThread(lambda: facts | {"lag_seconds": _lag(floors, durable.unix_ms())}, reply, read_only=True)]


def _options(options: SubscriptionOptions) -> Fields:
    shown = {
        name: getattr(options, name) for name in options.__struct_fields__ if name not in ("kind", "types", "keys")
    }
    return shown | {"filter": {"type": options.types, "key": options.keys}}


def _seek(durable: DurableBroker, client: Client, fields: Fields, reply: Reply) -> list[Effect]:
    return durable.subscriptions.seek(client, read.topic_name(fields), fields, reply)


def _report(durable: DurableBroker, _client: Client, fields: Fields, reply: Reply) -> list[Effect]:
    """Store the position of an external reader. For an archive, first record durably which schemas it may use: once its
    position is stored, retention may delete the messages that show it."""
    store_report = partial(report, durable.topics, durable.subscriptions, fields, reply)
    if not read.flag(fields, "archive"):
        return store_report()
    return record_archive_uses(durable, fields, errors_to(reply, lambda _noted: store_report()))


def _pause(durable: DurableBroker, _client: Client, fields: Fields, reply: Reply) -> list[Effect]:
    return _set_paused(durable, fields, reply, events.Pause(), paused=True)


def _resume(durable: DurableBroker, _client: Client, fields: Fields, reply: Reply) -> list[Effect]:
    return _set_paused(durable, fields, reply, events.Resume(), paused=False)


def _set_paused(
    durable: DurableBroker, fields: Fields, reply: Reply, event: events.MachineEvent, *, paused: bool
) -> list[Effect]:
    read.check_known(fields, _SUBSCRIPTION)
    runner = _find_durable_subscription(durable, fields)

    def done(outcome: object) -> list[Effect]:
        if isinstance(outcome, PenstockError):
            return reply(outcome)
        return [*runner.handle(event), *durable.subscriptions.cursor_store.when_durable(reply, SUCCESS)]

    return [RunInThread(lambda: durable.topics.store.catalog.alter_subscription(runner.uid, paused=paused), done)]


def _delete_subscription(durable: DurableBroker, _client: Client, fields: Fields, reply: Reply) -> list[Effect]:
    read.check_known(fields, _SUBSCRIPTION)
    runner = _find_durable_subscription(durable, fields)

    def done(outcome: object) -> list[Effect]:
        if isinstance(outcome, PenstockError):
            return reply(outcome)
        return [*durable.subscriptions.end(runner, "the subscription was deleted"), *reply(SUCCESS)]

    return [RunInThread(lambda: durable.topics.store.catalog.delete_subscription(runner.uid), done)]


def _skip(durable: DurableBroker, _client: Client, fields: Fields, reply: Reply) -> list[Effect]:
    """Ack messages that are not delivered, or not any more: a poison message, or dead letters that were dealt with."""
    read.check_known(fields, (*_SUBSCRIPTION, "partition", "offsets", "ranges"))
    runner = _find_durable_subscription(durable, fields)
    partition = read.number(fields, "partition", 0)
    spans = read.spans(fields)
    end = runner.machine.cursor(partition).end
    effects: list[Effect] = []
    last = max((stop for _, stop in spans), default=0) - 1
    if last >= end:
        raise OffsetOutOfRange(f"partition {partition} goes up to offset {end - 1}, not {last}", offset=last)
    for start, stop in spans:
        effects += runner.handle(events.Skip(partition, start, stop))
    return [*effects, *durable.subscriptions.cursor_store.when_durable(reply, SUCCESS)]


TOPICS: Final[dict[str, Callable[[DurableBroker, Client, Fields, Reply], list[Effect]]]] = {
    "system.topic.create": _create,
    "system.topic.describe": _describe,
    "system.topic.alter": _alter,
    "system.topic.delete": _delete,
    "system.topic.catalog": _catalog,
    "system.namespace": _namespace,
    "system.namespace.list": _list_namespaces,
    "system.producer.register": _register_producer,
    "system.subscription.create": _create_subscription,
    "system.subscription.list": _list_subscriptions,
    "system.subscription.describe": _describe_subscription,
    "system.subscription.seek": _seek,
    "system.subscription.report": _report,
    "system.subscription.pause": _pause,
    "system.subscription.resume": _resume,
    "system.subscription.delete": _delete_subscription,
    "system.subscription.skip": _skip,
}
