"""`penstock topic`: show, create and change topics of a broker, and the default settings of namespaces."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from penstock.cli import options as opt
from penstock.cli.output import bytes_text, confirm, duration_text, many, print_facts, print_json, table, time_text
from penstock.cli.topics.topic_schema import payloads_text
from penstock.core.errors import InvalidRequest
from penstock.core.names import TopicName
from penstock.core.units import parse_duration_ms, parse_size

if TYPE_CHECKING:
    from penstock.client.sync import Client

app = typer.Typer(help="Topics of a broker: create, list, describe, alter, delete.", no_args_is_help=True)

_NONE: Final = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingOptions:
    """The options for settings that can be changed on an existing topic. The value `none` resets a setting to its
    default."""

    retention_age: Annotated[str | None, typer.Option(help="Keep so long, such as 7d.")] = None
    retention_bytes: Annotated[str | None, typer.Option(help="Keep so much of each partition, such as 10GiB.")] = None
    retention_count: Annotated[str | None, typer.Option(help="Keep so many messages of each partition.")] = None
    keep_for: Annotated[
        str | None,
        typer.Option(
            help="Retention drops nothing that these subscriptions have yet to acknowledge; commas between them.",
            metavar="NAMES",
        ),
    ] = None
    payload_bytes: Annotated[str | None, typer.Option(help="The largest message, such as 1MiB.")] = None
    segment_bytes: Annotated[str | None, typer.Option(help="Size of a segment file, such as 64MiB.")] = None
    segment_age: Annotated[str | None, typer.Option(help="A segment is complete after so long, such as 1h.")] = None
    rate: Annotated[str | None, typer.Option(help="Messages a second that may be published.")] = None
    schema_policy: Annotated[str | None, typer.Option(help="none, warn or enforce.")] = None
    redeliveries: Annotated[str | None, typer.Option(help="How often a failed delivery is repeated.")] = None
    exhausted: Annotated[
        str | None, typer.Option(help="And what happens then: dead_letter, block or drop.", metavar="WHAT")
    ] = None

    def named(self) -> dict[str, Any]:
        """Return the given settings by the names that the broker uses, with None for `none`. Settings of retention are
        in a dict of their own. Raises `InvalidRequest` for an invalid value."""
        retention: dict[str, Any] = {}
        settings: dict[str, Any] = {}
        for option, text in asdict(self).items():
            if text is not None:
                name, parse = _SETTINGS[option]
                group, _, key = name.rpartition(".")
                (retention if group else settings)[key] = _parsed(option, text, parse)
        return settings | ({"retention": retention} if retention else {})


def _number(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,19}", text, re.ASCII):
        raise InvalidRequest(f"{text!r} is not a whole number of at least 0", given=text)
    return int(text)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


_SETTINGS: Final[dict[str, tuple[str, Callable[[str], Any]]]] = {
    "retention_age": ("retention.age_ms", parse_duration_ms),
    "retention_bytes": ("retention.bytes", parse_size),
    "retention_count": ("retention.count", _number),
    "keep_for": ("retention.keep_for", _names),
    "payload_bytes": ("payload_bytes_max", parse_size),
    "segment_bytes": ("segment_bytes_max", parse_size),
    "segment_age": ("segment_age_ms_max", parse_duration_ms),
    "rate": ("rate_max", _number),
    "schema_policy": ("schema_policy", str),
    "redeliveries": ("redeliveries", _number),
    "exhausted": ("exhausted", str),
}


_SCHEMA_SETTINGS: Final = ("schema_subjects", "schema_default", "schema_deprecated")
"""Settings that are shown with the schema policy, but set by `penstock topic schema`."""


def _parsed(option: str, text: str, parse: Callable[[str], Any]) -> Any:
    if text == _NONE and option != "schema_policy":  # there it is a policy
        return None
    try:
        return parse(text)
    except InvalidRequest as error:
        raise InvalidRequest(f"--{option.replace('_', '-')}: {error.message}", **error.details) from None


def _merge(named: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """Merge the settings of retention with the present ones, `before`, since the broker replaces them all at once."""
    if "retention" not in named:
        return named
    both = before.get("retention", {}) | named["retention"]
    return named | {"retention": {name: value for name, value in both.items() if value is not None}}


# commands


@app.command()
@opt.bundled
def create(
    broker: opt.BrokerOptions,
    settings: SettingOptions,
    topic: opt.Topic,
    partitions: Annotated[int, typer.Option(help="Fixed for the life of the topic.")] = 1,
    dispatch: Annotated[
        str, typer.Option(help="reliable: kept; live: for whoever listens. Fixed, too.", metavar="WHAT")
    ] = "reliable",
    json: opt.Json = False,
) -> None:
    """Create a topic.

    Examples:

    `penstock topic create orders.created --partitions 4 --retention-age 7d`

    `penstock topic create /shop/clicks --dispatch live`
    """
    asked = {"topic": topic, "partitions": partitions, "dispatch": dispatch} | _merge(settings.named(), {})
    with broker.connect() as client:
        answer = client.ask("system.topic.create", asked)
    if json:
        print_json(answer)
    else:
        typer.echo(f"created {answer['topic']} ({answer['dispatch']}) with {many(answer['partitions'], 'partition')}")


@app.command("ls")
@opt.bundled
def list_(
    broker: opt.BrokerOptions,
    namespace: Annotated[str | None, typer.Option(help="Only those of this namespace.")] = None,
    json: opt.Json = False,
) -> None:
    """List topics: messages, bytes, messages a second, partitions, subscriptions.

    Examples:

    `penstock topic ls`

    `penstock topic ls --namespace shop --json`
    """
    name = None if namespace is None else TopicName(namespace, "topic").namespace
    with broker.connect() as client:
        topics = list(client.topics(name))
    if json:
        for facts in topics:
            print_json(facts)
    elif not topics:
        typer.echo("no topics yet: penstock topic create TOPIC, or publish to one")
    else:
        columns = ("topic", "messages", "bytes", "a second", "partitions", "subscriptions", "dispatch")
        table("topics", columns, [_row(facts) for facts in topics])


def _row(facts: dict[str, Any]) -> list[Any]:
    numbers = [facts["rate"], facts["partitions"], facts["subscriptions"]]
    return [facts["topic"], facts["messages"], bytes_text(facts["bytes"]), *numbers, facts["dispatch"]]


@app.command()
@opt.bundled
def describe(broker: opt.BrokerOptions, topic: opt.Topic, json: opt.Json = False) -> None:
    """Show everything about a topic: settings, partitions, offsets, subscriptions.

    Example: `penstock topic describe orders.created`
    """
    with broker.connect() as client:
        facts = client.ask("system.topic.describe", {"topic": topic})
    if json:
        print_json(facts)
    else:
        _print(facts)


def _print(facts: dict[str, Any]) -> None:
    print_facts(
        [
            ("topic", facts["topic"]),
            ("dispatch", facts["dispatch"]),
            ("created", time_text(facts["created_ms"])),
            ("messages", facts["messages"]),
            ("size", bytes_text(facts["bytes"])),
            ("messages a second", facts["rate"]),
            ("subscriptions", ", ".join(facts["subscriptions"]) or "none"),
            *_settings_shown(facts["settings"]),
            *_awaited(facts.get("retention_awaits", [])),
        ]
    )
    if facts["logs"]:
        columns = ("partition", "first", "next", "size", "segments", "damages", "failure")
        table("partitions", columns, [_log_row(log) for log in facts["logs"]])
        for log in facts["logs"]:
            for start, stop in log.get("missing", []):
                typer.echo(f"partition {log['partition']}: offsets {start} to {stop - 1} are gone with their files")


def _awaited(names: list[str]) -> list[tuple[str, Any]]:
    if not names:
        return []
    return [("retention", f"drops nothing until there is a subscription {' and a subscription '.join(names)}")]


def _log_row(log: dict[str, Any]) -> list[Any]:
    offsets = [log["partition"], log["first_offset"], log["next_offset"]]
    return [*offsets, bytes_text(log["bytes"]), log["segments"], log["damages"], log["failure"]]


def _settings_shown(settings: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return settings and their values, by the names of the options."""
    shown = settings | {f"retention.{name}": value for name, value in settings.get("retention", {}).items()}
    own = [
        (option.replace("_", " "), _with_unit(name, shown[name]))
        for option, (name, _) in _SETTINGS.items()
        if shown.get(name) not in (None, [])
    ]
    policy = settings.get("schema_policy", _NONE)
    if policy != _NONE or "schema_payloads" in settings:
        own.append(("schema payloads", payloads_text(policy, checked=settings.get("schema_payloads", False))))
    wishes = [(name, settings.get(name)) for name in _SCHEMA_SETTINGS]
    return own + [(name.replace("_", " "), _setting_text(value)) for name, value in wishes if value is not None]


def _setting_text(value: Any) -> Any:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(value) if isinstance(value, list) else value


def _with_unit(name: str, value: Any) -> Any:
    if name.endswith(("bytes", "bytes_max")):
        return bytes_text(value)
    if isinstance(value, list):
        return ", ".join(value)
    return duration_text(value) if name.endswith(("age_ms", "age_ms_max")) else value


@app.command()
@opt.bundled
def alter(broker: opt.BrokerOptions, settings: SettingOptions, topic: opt.Topic, json: opt.Json = False) -> None:
    """Change settings of a topic: only those that are given. `none` is the default again.

    Partitions and dispatch never change.

    Examples:

    `penstock topic alter orders.created --retention-age 30d --rate 5000`

    `penstock topic alter orders.created --retention-bytes none`
    """
    named = _require_settings(settings)
    with broker.connect() as client:
        before = client.ask("system.topic.describe", {"topic": topic})["settings"]
        answer = client.ask("system.topic.alter", {"topic": topic} | _merge(named, before))
    _print_settings(answer["topic"], answer["settings"], answer, json=json)


def _require_settings(settings: SettingOptions) -> dict[str, Any]:
    named = settings.named()
    if not named:
        raise InvalidRequest("nothing to change: name at least one setting, such as --retention-age 7d")
    return named


def _print_settings(name: str, settings: dict[str, Any], facts: dict[str, Any], *, json: bool) -> None:
    if json:
        print_json(facts)
    else:
        print_facts([("name", name), *(_settings_shown(settings) or [("settings", "the broker's own")])])


@app.command()
@opt.bundled
def namespace(
    broker: opt.BrokerOptions,
    settings: SettingOptions,
    name: Annotated[str, typer.Argument(help="The namespace.")],
    json: opt.Json = False,
) -> None:
    """Show the defaults for topics created in a namespace from now on; with settings, change them first.

    Examples:

    `penstock topic namespace shop`

    `penstock topic namespace shop --retention-age 30d --exhausted block`
    """
    named = settings.named()
    with broker.connect() as client:
        answer = client.ask("system.namespace", {"namespace": name})
        if named:
            answer = client.ask("system.namespace", {"namespace": name} | _merge(named, answer["settings"]))
    _print_settings(answer["namespace"], answer["settings"], answer, json=json)


@app.command()
@opt.bundled
def delete(broker: opt.BrokerOptions, topic: opt.Topic, yes: opt.Yes = False, json: opt.Json = False) -> None:
    """Delete a topic with all its messages and subscriptions; says what would be lost, and asks.

    Examples:

    `penstock topic delete orders.created`

    `penstock topic delete orders.created --yes`
    """
    with broker.connect() as client:
        _delete(client, topic, yes=yes)
    if json:
        print_json({"topic": str(TopicName.parse(topic)), "deleted": True})
    else:
        typer.echo(f"deleted {TopicName.parse(topic)}")


def _delete(client: Client, topic: str, *, yes: bool) -> None:
    """Delete a topic. If it has messages or subscriptions, the broker demands a confirmation, and the user is asked."""
    answer = client.ask("system.topic.delete", {"topic": topic})
    while answer["status"] == "confirm":
        lost = f"{many(answer['messages'], 'message')} ({bytes_text(answer['bytes'])})"
        confirm(
            f"{answer['topic']} would be lost with {lost} and {many(answer['subscriptions'], 'subscription')}. Delete?",
            yes=yes,
        )
        answer = client.ask("system.topic.delete", {"topic": topic, "confirm": answer["confirm"]})
