"""The bodies of admin requests. The OpenAPI description of the API is generated from these.

A field that no body has is refused; one that is left out stays as it is; null restores the default.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, UnsetType

from penstock.core.limits import PARTITIONS_MAX


class Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of all bodies."""


class RetentionBody(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The retention of each partition."""

    age_ms: int | UnsetType | None = UNSET
    bytes: int | UnsetType | None = UNSET
    count: int | UnsetType | None = UNSET
    keep_for: list[str] | UnsetType = UNSET


class SettingsBody(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of a topic, or the defaults of a namespace."""

    retention: RetentionBody | UnsetType | None = UNSET
    segment_bytes_max: int | UnsetType | None = UNSET
    segment_age_ms_max: int | UnsetType | None = UNSET
    payload_bytes_max: int | UnsetType | None = UNSET
    rate_max: int | UnsetType | None = UNSET
    schema_policy: Literal["none", "warn", "enforce"] | UnsetType | None = UNSET
    schema_subjects: list[str] | UnsetType | None = UNSET
    schema_payloads: bool | UnsetType | None = UNSET
    schema_default: int | str | UnsetType | None = UNSET
    schema_deprecated: bool | UnsetType | None = UNSET
    redeliveries: int | UnsetType | None = UNSET
    exhausted: Literal["dead_letter", "block", "drop"] | UnsetType | None = UNSET


class TopicBody(SettingsBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A new topic."""

    topic: str
    partitions: Annotated[int, msgspec.Meta(ge=1, le=PARTITIONS_MAX)] | UnsetType = UNSET
    dispatch: Literal["reliable", "live"] | UnsetType = UNSET


class MessageBody(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message: exactly one of the payloads, and its optional fields."""

    payload: str | UnsetType = UNSET
    payload_base64: str | UnsetType = UNSET
    payload_json: msgspec.Raw | UnsetType = UNSET
    """JSON that is stored as it was written."""
    type: str | UnsetType = UNSET
    key: str | UnsetType = UNSET
    key_base64: str | UnsetType = UNSET
    attributes: dict[str, str] | UnsetType = UNSET
    schema_id: int | UnsetType = UNSET
    schema_version: int | UnsetType = UNSET


class FilterBody(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    type: list[str] | UnsetType = UNSET
    key: list[str] | UnsetType = UNSET


class SubscriptionBody(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A new subscription."""

    subscription: str
    type: Literal["exclusive", "failover", "shared", "key_shared"] | UnsetType = UNSET
    from_: str | int | dict[str, str | int] | UnsetType = msgspec.field(default=UNSET, name="from")
    filter: FilterBody | UnsetType = UNSET
    ack_timeout_ms: int | UnsetType = UNSET
    backoff_ms: int | UnsetType = UNSET
    backoff_ms_max: int | UnsetType = UNSET
    redeliveries: int | UnsetType = UNSET
    exhausted: Literal["dead_letter", "block", "drop"] | UnsetType = UNSET


class SeekBody(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    position: str | int
    partition: int | UnsetType = UNSET


class SkipBody(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Messages that the subscription skips, as if they had been acknowledged."""

    partition: int | UnsetType = UNSET
    offsets: list[int] | UnsetType = UNSET
    ranges: list[list[int]] | UnsetType = UNSET


class LettersBody(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A selection of dead letters; they match all of the fields."""

    type: str | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    subscription: str | UnsetType = UNSET
    partition: int | UnsetType = UNSET
    limit: int | UnsetType = UNSET
    scan: int | UnsetType = UNSET
    resume: str | UnsetType = UNSET
    until: str | UnsetType = UNSET


class RedriveBody(LettersBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    redrives_max: int | UnsetType = UNSET


class KeyBody(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A new key."""

    name: str
    bindings: list[str] | UnsetType = UNSET
    expires_ms: int | UnsetType | None = UNSET


class BindingBody(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A role binding to grant or to revoke."""

    principal: str
    binding: str | list[str]
