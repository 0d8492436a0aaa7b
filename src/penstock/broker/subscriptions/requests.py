"""Requests to subscribe: the options of a `subscribe`, checked and given their defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from penstock.broker.base import request_fields as read
from penstock.broker.base.request_fields import Fields
from penstock.broker.live.connections import Client
from penstock.core.errors import InvalidRequest
from penstock.core.limits import MIB
from penstock.core.names import TopicName
from penstock.core.positions import Position
from penstock.storage.catalog.subscriptions import SubscriptionKind, SubscriptionOptions, check_subscription_name
from penstock.storage.catalog.topics import Exhausted

WINDOW_MESSAGES: Final = 1_000
WINDOW_BYTES: Final = 1 * MIB
WINDOW_MESSAGES_MAX: Final = 100_000
"""The most messages in flight at one consumer. The broker remembers each until it is acked."""
_CONSUMER_CHARS_MAX: Final = 128

DURABLE_OPTIONS: Final = (
    "subscription",
    "type",
    "from",
    "window",
    "format",
    "filter",
    "consumer",
    "ack_timeout_ms",
    "backoff_ms",
    "backoff_ms_max",
    "redeliveries",
    "exhausted",
)
"""The options of durable subscriptions and readers. A `subscribe` that has none of them is live."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribeRequest:
    """A `subscribe` to a durable topic, parsed and checked."""

    topic: TopicName
    name: str | None
    """The name of the subscription; None for a reader, whose cursor is not saved."""

    options: Fields
    """The options that the request names, out of those that are stored with a subscription."""

    start: Position | dict[int, Position]
    consumer: str
    window: int
    window_bytes: int
    blocks: bool


def parse_subscribe(name: TopicName, fields: Fields, client: Client) -> SubscribeRequest:
    """Parse a `subscribe`. Raises `InvalidRequest` naming the option that is wrong."""
    read.check_known(fields, DURABLE_OPTIONS)
    subscription = None
    if "subscription" in fields:
        subscription = read.text(fields, "subscription")
        check_subscription_name(subscription)
    given_window = fields.get("window", {})
    if not isinstance(given_window, dict):
        raise InvalidRequest('window is {"messages": 1000, "bytes": 1048576}', field="window")
    window = {f"window.{each}": value for each, value in given_window.items()}
    read.check_known(window, ("window.messages", "window.bytes"))
    form = read.text(fields, "format", "message")
    if form not in ("message", "records"):
        raise InvalidRequest("format is message or records", field="format", given=form)
    consumer = read.text(fields, "consumer", client.name or client.id)
    if len(consumer) > _CONSUMER_CHARS_MAX:
        raise InvalidRequest(f"A consumer's name has at most {_CONSUMER_CHARS_MAX} characters", field="consumer")
    return SubscribeRequest(
        topic=name,
        name=subscription,
        options=_parse_options(fields),
        start=read.positions(fields.get("from", "latest"), "from"),
        consumer=consumer,
        window=read.number(window, "window.messages", WINDOW_MESSAGES, at_least=1, at_most=WINDOW_MESSAGES_MAX),
        window_bytes=read.number(window, "window.bytes", WINDOW_BYTES, at_least=1),
        blocks=form == "records",
    )


def _parse_options(fields: Fields) -> Fields:
    """Return the options that are stored with a subscription, under the names they are stored by. Raises
    `InvalidRequest` for a wrong value."""
    options: Fields = {}
    if "type" in fields:
        options["kind"] = _choice(SubscriptionKind, read.text(fields, "type"), "type")
    if "exhausted" in fields:
        options["exhausted"] = _choice(Exhausted, read.text(fields, "exhausted"), "exhausted")
    for name in ("ack_timeout_ms", "backoff_ms", "backoff_ms_max", "redeliveries"):
        if name in fields:
            options[name] = read.number(fields, name)
    filters = fields.get("filter", {})
    if not isinstance(filters, dict):
        raise InvalidRequest('filter is {"type": ["order.*"], "key": ["customer-*"]}', field="filter")
    read.check_known(filters, ("type", "key"))
    for name, stored in (("type", "types"), ("key", "keys")):
        if name in filters:
            options[stored] = read.texts(filters, name)
    subscription_options(options)  # raises if a value is out of range
    return options


def subscription_options(options: Fields) -> SubscriptionOptions:
    chosen: Fields = {"kind": SubscriptionKind.EXCLUSIVE} | options
    return SubscriptionOptions(**chosen)


def _choice(kind: Any, given: str, field: str) -> Any:
    try:
        return kind(given)
    except ValueError:
        raise InvalidRequest(f"{field} is one of {', '.join(kind)}", field=field, given=given) from None


_PUBLIC_NAMES: Final = {"kind": "type", "types": "filter", "keys": "filter"}


def check_same_options(options: SubscriptionOptions, request: SubscribeRequest) -> None:
    """Raise `InvalidRequest` if a request names an option with another value than the subscription has: a consumer that
    joins cannot change any."""
    for name, value in request.options.items():
        if getattr(options, name) != value:
            field = _PUBLIC_NAMES.get(name, name)
            raise InvalidRequest(
                f"subscription {request.name} of {request.topic} has {field} {_text_of(getattr(options, name))}, not"
                f" {_text_of(value)}: leave it out, or delete the subscription and create it anew",
                field=field,
            )


def _text_of(value: Any) -> str:
    return ", ".join(value) or "nothing" if isinstance(value, tuple) else str(value)
