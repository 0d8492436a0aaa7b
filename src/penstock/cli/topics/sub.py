"""`penstock sub`: show, create and change durable subscriptions of a broker."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from penstock.cli import options as opt
from penstock.cli.output import confirm, many, print_facts, print_json, table
from penstock.core.errors import InvalidRequest, TopicNotSupported
from penstock.core.positions import parse_position
from penstock.core.units import parse_duration_ms

app = typer.Typer(help="Subscriptions: list, describe, create, seek, pause, skip, delete.", no_args_is_help=True)

_CONSUMER = ("name", "address", "active", "ack_rate", "in_flight", "in_flight_bytes")

Name = Annotated[str, typer.Argument(help="The subscription.")]


@app.command("ls")
@opt.bundled
def list_(
    broker: opt.BrokerOptions,
    topic: Annotated[str | None, typer.Argument(help="Those of one topic. Default: all.")] = None,
    all_: Annotated[bool, typer.Option("--all", "-a", help="Those, too, that the broker keeps for itself.")] = False,
    json: opt.Json = False,
) -> None:
    """List subscriptions: lag in messages and seconds, consumers, and why they do not move.

    Examples:

    `penstock sub ls`

    `penstock sub ls orders.created --json`

    `penstock sub ls --all`
    """
    with broker.connect() as client:
        answer = client.ask("system.subscription.list", {} if topic is None else {"topic": topic})
    subscriptions = [subscription for subscription in answer["subscriptions"] if all_ or not subscription["internal"]]
    if json:
        for facts in subscriptions:
            print_json(facts)
    elif not subscriptions:
        typer.echo("no subscriptions yet: penstock sub create TOPIC NAME, or consume with --subscription")
    else:
        columns = ("topic", "subscription", "type", "lag", "lag seconds", "in flight", "consumers", "state")
        table("subscriptions", columns, [_row(facts) for facts in subscriptions])
    if answer.get("truncated"):
        sys.stderr.write(f"penstock: {len(answer['subscriptions'])} of {answer['total']:,} are shown: name a topic\n")


def _row(facts: dict[str, Any]) -> list[Any]:
    kept = ("topic", "subscription", "type", "lag", "lag_seconds", "in_flight", "consumers")
    return [*(facts[name] for name in kept), "; ".join(facts["state"])]


@app.command()
@opt.bundled
def describe(broker: opt.BrokerOptions, topic: opt.Topic, name: Name, json: opt.Json = False) -> None:
    """Show why a subscription does not move: lag, reasons, consumers, partitions, options.

    Example: `penstock sub describe orders.created billing`
    """
    with broker.connect() as client:
        facts = client.ask("system.subscription.describe", {"topic": topic, "subscription": name})
    if json:
        print_json(facts)
    else:
        _print(facts)


def _print(facts: dict[str, Any]) -> None:
    first, *more = facts["state"]
    print_facts(
        [
            ("topic", facts["topic"]),
            ("subscription", facts["subscription"]),
            ("type", facts["type"]),
            ("lag", f"{many(facts['lag'], 'message')}, {facts['lag_seconds']:,.1f} s"),
            ("state", first),
            *(("", reason) for reason in more),
            *((name.replace("_", " "), facts[name]) for name in ("in_flight", "delivered", "dropped", "lost")),
            *((name.replace("_", " "), value) for name, value in _options(facts["options"]).items()),
        ]
    )
    consumers = [
        (*(consumer[name] for name in _CONSUMER), consumer["window"]["messages"], consumer["window"]["bytes"])
        for consumer in facts["consumers"]
    ]
    if consumers:
        named = ("name", "address", "active", "acks a second", "in flight", "bytes", "window", "window bytes")
        table("consumers", named, consumers)
    kept = ("partition", "floor", "next_offset", "lag", "waiting", "failing")
    columns = (*(name.replace("_", " ") for name in kept), "acked above the floor")
    rows = [(*(cursor[name] for name in kept), _ranges(cursor["acked_above"])) for cursor in facts["partitions"]]
    table("partitions", columns, rows)


def _options(options: dict[str, Any]) -> dict[str, Any]:
    filters = {f"only {name}": ", ".join(globs) for name, globs in options["filter"].items() if globs}
    return {name: value for name, value in options.items() if name != "filter"} | filters


def _ranges(spans: list[list[int]]) -> str:
    shown = ", ".join(f"{start}" if stop == start + 1 else f"{start} to {stop - 1}" for start, stop in spans[:5])
    return f"{shown}, ... ({len(spans):,} ranges)" if len(spans) > 5 else shown


@app.command()
@opt.bundled
def create(
    broker: opt.BrokerOptions,
    topic: opt.Topic,
    name: Name,
    from_: opt.From = "latest",
    type_: opt.SubscriptionType = None,
    sub_type: opt.SubType = None,
    only_type: opt.OnlyType = None,
    only_key: opt.OnlyKey = None,
    ack_timeout: Annotated[str | None, typer.Option(help="Redeliver what is not acknowledged by then: 30s.")] = None,
    backoff: Annotated[str | None, typer.Option(help="Before the first redelivery: 1s; doubles each time.")] = None,
    backoff_max: Annotated[str | None, typer.Option(help="The longest wait before a redelivery: 60s.")] = None,
    redeliveries: Annotated[int | None, typer.Option(min=0, help="How often a delivery is repeated: 5.")] = None,
    exhausted: Annotated[
        str | None, typer.Option(help="And what happens then: dead_letter, block or drop.", metavar="WHAT")
    ] = None,
    json: opt.Json = False,
) -> None:
    """Create a subscription, so that nothing published from now on is missed.

    Examples:

    `penstock sub create orders.created billing --type shared`

    `penstock sub create orders.created audit --from earliest --only-type 'order.*' --redeliveries 2 --exhausted block`
    """
    parse_position(from_)
    kind = opt.subscription_type(type_, sub_type) or "exclusive"
    spans = {"ack_timeout_ms": ack_timeout, "backoff_ms": backoff, "backoff_ms_max": backoff_max}
    options: dict[str, Any] = {option: parse_duration_ms(text) for option, text in spans.items() if text is not None}
    others = {"redeliveries": redeliveries, "exhausted": exhausted}
    options |= {option: value for option, value in others.items() if value is not None}
    with broker.connect() as client:
        if name in _subscription_names(client, topic):
            raise InvalidRequest(f"{topic} has a subscription {name} already", subscription=name)
        client.consumer(
            topic,
            name,
            type=kind,
            start=from_,
            window=1,
            filter_types=opt.globs(only_type),
            filter_keys=opt.globs(only_key),
            **options,
        ).close()
    if json:
        print_json({"topic": topic, "subscription": name, "created": True})
    else:
        typer.echo(f"created subscription {name} of {topic}")


def _subscription_names(client: Any, topic: str) -> list[str]:
    """Return the names of a topic's subscriptions; empty if the topic does not exist."""
    try:
        names: list[str] = client.ask("system.topic.describe", {"topic": topic})["subscriptions"]
    except TopicNotSupported:
        return []
    return names


class SeekCommand(TyperCommand):
    """A command that accepts an argument such as `-1h`, which would otherwise be parsed as an option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [opt.absolute_position(argument) for argument in args])


@app.command(cls=SeekCommand)
@opt.bundled
def seek(
    broker: opt.BrokerOptions,
    topic: opt.Topic,
    name: Name,
    position: opt.Position,
    partition: opt.Partition = None,
    json: opt.Json = False,
) -> None:
    """Move the cursor of a subscription: back, to see messages again, or forward, past some.

    Examples:

    `penstock sub seek orders.created billing 2026-01-31T12:00:00Z`

    `penstock sub seek orders.created billing -1h`

    `penstock sub seek orders.created billing 4711 --partition 2`
    """
    parse_position(position)
    fields: dict[str, Any] = {"topic": topic, "subscription": name, "position": position}
    with broker.connect() as client:
        answer = client.ask("system.subscription.seek", fields | _partition_field(partition))
    if json:
        print_json(answer)
    else:
        for number, offset in answer["positions"].items():
            typer.echo(f"{name} of {topic}: partition {number} goes on at offset {offset}")


def _partition_field(partition: int | None) -> dict[str, int]:
    return {} if partition is None else {"partition": partition}


@app.command()
@opt.bundled
def pause(broker: opt.BrokerOptions, topic: opt.Topic, name: Name, json: opt.Json = False) -> None:
    """Pause a subscription: nothing is delivered to any of its consumers until it is resumed.

    Example: `penstock sub pause orders.created billing`
    """
    _change(broker, "pause", {"topic": topic, "subscription": name}, "paused", json=json)


@app.command()
@opt.bundled
def resume(broker: opt.BrokerOptions, topic: opt.Topic, name: Name, json: opt.Json = False) -> None:
    """Resume delivery; a message that blocked the subscription is tried once more.

    Example: `penstock sub resume orders.created billing`
    """
    _change(broker, "resume", {"topic": topic, "subscription": name}, "resumed", json=json)


@app.command()
@opt.bundled
def skip(
    broker: opt.BrokerOptions,
    topic: opt.Topic,
    name: Name,
    offset: Annotated[int, typer.Argument(min=0, help="The message that is not to be delivered any more.")],
    partition: opt.Partition = None,
    json: opt.Json = False,
) -> None:
    """Skip one message that is not acknowledged, such as one that blocks the subscription.

    Example: `penstock sub skip orders.created billing 4711`
    """
    fields: dict[str, Any] = {"topic": topic, "subscription": name}
    with broker.connect() as client:
        cursors = client.ask("system.subscription.describe", fields)["partitions"]
        cursor = next(
            (candidate for candidate in cursors if candidate["partition"] == (partition or 0)), {"next_offset": 0}
        )
        if offset >= cursor["next_offset"]:
            raise InvalidRequest(f"partition {partition or 0} of {topic} has no offset {offset} yet", offset=offset)
        client.ask("system.subscription.skip", fields | {"offsets": [offset]} | _partition_field(partition))
    _print_done(fields, f"offset {offset} skipped", json=json)


@app.command()
@opt.bundled
def delete(
    broker: opt.BrokerOptions, topic: opt.Topic, name: Name, yes: opt.Yes = False, json: opt.Json = False
) -> None:
    """Delete a subscription and its cursor; says what would be lost, and asks.

    Examples:

    `penstock sub delete orders.created billing`

    `penstock sub delete orders.created billing --yes`
    """
    fields = {"topic": topic, "subscription": name}
    with broker.connect() as client:
        facts = client.ask("system.subscription.describe", fields)
        state = f"{many(facts['lag'], 'message')} to go and {many(len(facts['consumers']), 'consumer')}"
        confirm(f"{name} of {facts['topic']} has {state}. Delete it, and where it was?", yes=yes)
        client.ask("system.subscription.delete", fields)
    _print_done(fields, "deleted", json=json)


def _change(broker: opt.BrokerOptions, what: str, fields: dict[str, Any], done: str, *, json: bool) -> None:
    with broker.connect() as client:
        client.ask(f"system.subscription.{what}", fields)
    _print_done(fields, done, json=json)


def _print_done(fields: dict[str, Any], done: str, *, json: bool) -> None:
    if json:
        print_json({"topic": fields["topic"], "subscription": fields["subscription"], "done": done})
    else:
        typer.echo(f"{fields['subscription']} of {fields['topic']}: {done}")
