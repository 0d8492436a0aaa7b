"""The answers of the admin API. Its OpenAPI description is generated from these, and tests hold the broker to them."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

Offset = Annotated[int, msgspec.Meta(ge=0)]
Count = Annotated[int, msgspec.Meta(ge=0)]


class StatusAnswer(msgspec.Struct, frozen=True):
    status: str


class NamespaceFacts(msgspec.Struct, frozen=True):
    """The defaults of topics that are created in it from now on."""

    namespace: str
    settings: dict[str, Any]


class NamespaceEntry(msgspec.Struct, frozen=True):
    namespace: str
    topics: Count


class NamespacesAnswer(msgspec.Struct, frozen=True):
    namespaces: list[NamespaceEntry]
    next: str | UnsetType = UNSET


class LogFacts(msgspec.Struct, frozen=True):
    partition: Count
    first_offset: Offset
    next_offset: Offset
    bytes: Count
    segments: Count
    damages: Count
    missing: list[tuple[Offset, Offset]]
    """Offsets whose segment files are gone: from the first up to, not with, the second."""
    failure: str | None


class TopicFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A topic: what it holds, and how many messages came in the last second."""

    topic: str
    dispatch: str
    partitions: Count
    created_ms: int
    messages: Count
    bytes: Count
    rate: Count
    settings: dict[str, Any]


class TopicEntry(TopicFacts, frozen=True, kw_only=True):
    subscriptions: Count


class TopicAnswer(TopicFacts, frozen=True, kw_only=True):
    subscriptions: list[str]
    logs: list[LogFacts]
    retention_awaits: list[str] | UnsetType = UNSET


class TopicsAnswer(msgspec.Struct, frozen=True):
    topics: list[TopicEntry]
    next: str | UnsetType = UNSET


class Gap(msgspec.Struct, frozen=True):
    """The offsets from `start` up to, not with, `stop`."""

    partition: Count
    start: Offset
    stop: Offset
    reason: str | UnsetType = UNSET


class MessageAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A message. A field that is not UTF-8 has a name that ends in `_base64`; a payload that was cut says so."""

    partition: Count
    offset: Offset
    id: str
    publish_time: int
    payload_bytes: Count
    type: str | UnsetType = UNSET
    producer_name: str | UnsetType = UNSET
    producer_id: int | UnsetType = UNSET
    request_id: int | UnsetType = UNSET
    schema_id: int | UnsetType = UNSET
    schema_version: int | UnsetType = UNSET
    key: str | UnsetType = UNSET
    key_base64: str | UnsetType = UNSET
    key_cut: bool | UnsetType = UNSET
    attributes: dict[str, str] | UnsetType = UNSET
    attributes_cut: bool | UnsetType = UNSET
    payload: str | UnsetType = UNSET
    payload_base64: str | UnsetType = UNSET
    payload_cut: bool | UnsetType = UNSET


class Scanned(msgspec.Struct, frozen=True, kw_only=True):
    """The extent of a scan. `resume` goes on exactly there, also at the `end`, once there is more."""

    scanned: Count
    matched: Count
    end: bool
    resume: str
    lost: list[Gap] | UnsetType = UNSET
    """Messages that retention removed before they were scanned."""
    damaged: list[Gap] | UnsetType = UNSET


class BrowseAnswer(Scanned, frozen=True, kw_only=True):
    topic: str
    messages: list[MessageAnswer]
    bytes: Count


class StoredAnswer(msgspec.Struct, frozen=True):
    """The durable position of a message."""

    topic: str
    partition: Count
    offset: Offset
    id: str


class SubscriptionEntry(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    subscription: str
    type: str
    internal: bool
    """True for the broker's own subscription for dead letters, which has no consumers."""
    paused: bool
    lag: Count
    lag_seconds: float
    in_flight: Count
    state: list[str]
    consumers: Count
    reported_at: str | None


class SubscriptionsAnswer(msgspec.Struct, frozen=True):
    subscriptions: list[SubscriptionEntry]
    next: str | UnsetType = UNSET


class LaneFacts(msgspec.Struct, frozen=True):
    partition: Count
    floor: Offset
    next_offset: Offset
    lag: Count
    acked_above: list[tuple[Offset, Offset]]
    waiting: Count
    failing: Count


class SubscriptionFacts(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    subscription: str
    type: str
    internal: bool
    """True for the broker's own subscription for dead letters, which has no consumers."""
    paused: bool
    lag: Count
    in_flight: Count
    state: list[str]
    consumers: list[dict[str, Any]]
    partitions: list[LaneFacts]
    delivered: Count
    dropped: Count
    lost: Count
    reported_at: str | None


class SubscriptionAnswer(SubscriptionFacts, frozen=True, kw_only=True):
    lag_seconds: float
    options: dict[str, Any]


class SubscribedAnswer(SubscriptionFacts, frozen=True, kw_only=True):
    created: bool
    """False if it existed already, with the requested options."""


class SoughtAnswer(msgspec.Struct, frozen=True):
    subscription: str
    positions: dict[str, Offset]


class LettersEntry(msgspec.Struct, frozen=True):
    topic: str
    dead_letters: str
    left: Count
    messages: Count
    bytes: Count


class LettersListAnswer(msgspec.Struct, frozen=True):
    dead_letters: list[LettersEntry]
    next: str | UnsetType = UNSET


class LetterAnswer(MessageAnswer, frozen=True, kw_only=True):
    """A dead letter: the message, and what became of it."""

    original_topic: str | UnsetType = UNSET
    original_offset: str | UnsetType = UNSET
    subscription: str | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    attempts: str | UnsetType = UNSET
    redrives: int | UnsetType = UNSET
    verdict: str | UnsetType = UNSET


class LettersAnswer(Scanned, frozen=True, kw_only=True):
    topic: str
    dead_letters: str
    messages: list[LetterAnswer]
    left: Count
    bytes: Count
    until: str
    """A bound for the next call: with it and `resume`, dead letters that came in the meantime are left out."""


class Refusal(msgspec.Struct, frozen=True):
    partition: Count
    offset: Offset
    code: str
    message: str


class Stopped(msgspec.Struct, frozen=True):
    """The reason why the call stopped early."""

    code: str
    message: str


class TreatedAnswer(Scanned, frozen=True, kw_only=True):
    topic: str
    dead_letters: str
    left: Count
    until: str
    stopped: Stopped | UnsetType = UNSET


class DroppedAnswer(TreatedAnswer, frozen=True, kw_only=True):
    dropped: Count


class RedrivenAnswer(TreatedAnswer, frozen=True, kw_only=True):
    redriven: Count
    repeated: Count
    """Messages among them that an earlier call had sent without recording it."""
    too_often: Count
    strangers: Count
    refused: Count
    refusals: list[Refusal] | UnsetType = UNSET


class ServiceEntry(msgspec.Struct, frozen=True):
    id: str
    name: str
    description: str
    connectedAt: str  # noqa: N815 - as the founding protocol has it
    lastHeartbeat: str  # noqa: N815


class ServicesAnswer(msgspec.Struct, frozen=True):
    services: list[ServiceEntry]
    truncated: bool | UnsetType = UNSET
    total: Count | UnsetType = UNSET


class ConnectionEntry(ServiceEntry, frozen=True, kw_only=True):
    address: str
    principal: str
    errors: Count
    subscriptions: Count
    consumes: Count
    produces: Count


class ConnectionsAnswer(msgspec.Struct, frozen=True):
    connections: list[ConnectionEntry]
    next: str | UnsetType = UNSET


class LiveSubscription(msgspec.Struct, frozen=True):
    action: str
    topic: str
    priority: int | UnsetType = UNSET


class LiveSubscriptionsAnswer(msgspec.Struct, frozen=True):
    subscriptions: list[LiveSubscription]
    truncated: bool | UnsetType = UNSET
    total: Count | UnsetType = UNSET


class PipelinesAnswer(msgspec.Struct, frozen=True):
    """External readers of the log's files that report their positions."""

    pipelines: list[SubscriptionEntry]
    next: str | UnsetType = UNSET


class KeyEntry(msgspec.Struct, frozen=True, kw_only=True):
    key_id: str
    name: str
    principal: str
    created_ms: int
    expires_ms: int | UnsetType = UNSET
    revoked_ms: int | UnsetType = UNSET


class KeysAnswer(msgspec.Struct, frozen=True):
    keys: list[KeyEntry]
    truncated: bool | UnsetType = UNSET
    total: Count | UnsetType = UNSET


class NewKeyAnswer(KeyEntry, frozen=True, kw_only=True):
    """A new key, which is shown only this once."""

    key: str
    bindings: list[str]


class RevokedAnswer(msgspec.Struct, frozen=True):
    revoked: list[str]


class BindingEntry(msgspec.Struct, frozen=True):
    principal: str
    role: str
    scope: str
    binding: str
    created_ms: int


class BindingsAnswer(msgspec.Struct, frozen=True):
    bindings: list[BindingEntry]
    truncated: bool | UnsetType = UNSET
    total: Count | UnsetType = UNSET


class StandingAnswer(msgspec.Struct, frozen=True):
    """The role bindings of the principal, as far as they were granted here."""

    principal: str
    bindings: list[str]
