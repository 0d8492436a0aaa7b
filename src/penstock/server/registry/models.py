"""The registry's request and answer bodies. Field names are those of the dialect.

Unknown fields are ignored; empty fields are left out of an answer.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from msgspec import UNSET, Meta, Struct, UnsetType

from penstock.core.schemas import Compatibility, Reference, Schema, SchemaKind, SubjectMode
from penstock.schema.errors import InvalidSchema, OperationNotPermitted
from penstock.schema.registry.transfer import RECORDS_MAX
from penstock.storage.catalog.schema_rows import VersionMetadata
from penstock.storage.catalog.topics import SchemaPolicy

_INT_MAX: Final = 2**31 - 1

SchemaId = Annotated[int, Meta(ge=1, le=_INT_MAX, description="the same for the same schema, whatever its subject")]
Version = Annotated[int, Meta(ge=1, le=_INT_MAX, description="of a subject, from 1")]
WantedNumber = Annotated[int, Meta(ge=-1, le=_INT_MAX)]


def _one_of(words: type[Any]) -> Meta:
    """Return a description with the allowed values. Others get an error of the registry, not of the decoder."""
    return Meta(extra_json_schema={"enum": [word.value for word in words]})


# requests


class ReferenceBody(Struct, frozen=True):
    """Another registered schema that this one uses, and the name it has in there."""

    name: str
    subject: str
    version: Annotated[int, Meta(ge=-1, le=_INT_MAX, description="-1 is the latest")]


class MetadataBody(Struct, frozen=True, omit_defaults=True):
    """Notes about a version, for people."""

    properties: dict[str, str] | None = None
    tags: dict[str, list[str]] | None = None
    sensitive: list[str] | None = None


class SchemaBody(Struct, frozen=True, rename="camel"):
    """A schema in a request."""

    schema: str | None = None
    schema_type: Annotated[str | None, _one_of(SchemaKind)] = None
    references: Annotated[list[ReferenceBody], Meta(max_length=1000)] | None = None
    metadata: MetadataBody | None = None
    rule_set: Any = None
    description: str = ""
    tags: list[str] = []
    id: Annotated[WantedNumber | None, Meta(description="in IMPORT mode: the id it had elsewhere")] = None
    version: Annotated[WantedNumber | None, Meta(description="in IMPORT mode: the version it had elsewhere")] = None

    def as_schema(self) -> Schema:
        """Return the schema. Raises `InvalidSchema` and other registry errors."""
        name = (self.schema_type or SchemaKind.AVRO).upper()
        if name not in tuple(SchemaKind):
            raise InvalidSchema(f"{self.schema_type!r} is no type of schema: choose from {', '.join(SchemaKind)}")
        references = tuple(
            Reference(name=each.name, subject=each.subject, version=each.version) for each in self.references or ()
        )
        return Schema(kind=SchemaKind(name), text=self.schema or "", references=references)

    def as_metadata(self) -> VersionMetadata:
        """Return the metadata. Properties are stored as tags. Rules are refused, since a client that sends them relies
        on them."""
        sent = self.metadata or MetadataBody()
        if self.rule_set or sent.tags or sent.sensitive:
            raise OperationNotPermitted("rules and tags of fields are not kept here: leave them out")
        properties = (f"{name}={value}" for name, value in (sent.properties or {}).items())
        return VersionMetadata(description=self.description, tags=(*self.tags, *properties))

    def wanted_id(self) -> int | None:
        return _wanted(self.id)

    def wanted_version(self) -> int | None:
        return _wanted(self.version)


def _wanted(number: int | None) -> int | None:
    """Return the id or version, or None: some clients send 0 or -1 for none."""
    return number if number is not None and number > 0 else None


def properties(metadata: VersionMetadata) -> dict[str, str]:
    """Return the tags that are properties."""
    return dict(tag.split("=", 1) for tag in metadata.tags if "=" in tag)


def properties_of(metadata: VersionMetadata) -> MetadataBody | None:
    known = properties(metadata)
    return MetadataBody(properties=known) if known else None


class CompatibilityBody(Struct, frozen=True, rename="camel"):
    """The compatibility level of new versions."""

    compatibility: Annotated[str, _one_of(Compatibility)] | UnsetType = UNSET
    lenient: bool | UnsetType = UNSET
    """An extension of Penstock: optional additions under open content are no problem."""
    normalize: Annotated[bool | None, Meta(description="true, which it always is")] = None
    compatibility_group: Any = None
    alias: Any = None
    default_metadata: Any = None
    override_metadata: Any = None
    default_rule_set: Any = None
    override_rule_set: Any = None

    def check(self) -> None:
        """Raise `OperationNotPermitted` for settings that would be ignored: a client that sends them relies on them."""
        if self.normalize is False:
            raise OperationNotPermitted(
                "normalize cannot be switched off: schemas that mean the same are one schema here, however they are"
                " written. Leave it out, or say true",
                field="normalize",
            )
        for name, reason in _NOT_KEPT.items():
            if getattr(self, name):
                raise OperationNotPermitted(f"{reason} Leave it out", field=reason.split()[0])


_NOT_KEPT: Final = {
    "compatibility_group": "compatibilityGroup is not kept here: a new version is held against those before it that its"
    " compatibility names, whatever their metadata say. A subject of its own does what a group does.",
    "alias": "alias is not kept here: a subject has one name.",
    "default_metadata": "defaultMetadata is not kept here: metadata are given with each version.",
    "override_metadata": "overrideMetadata is not kept here: metadata are given with each version.",
    "default_rule_set": "defaultRuleSet is not kept here: there are no rules.",
    "override_rule_set": "overrideRuleSet is not kept here: there are no rules.",
}
"""Settings of other registries that this one lacks, with the reason."""


class ModeBody(Struct, frozen=True):
    """The mode: which changes are allowed."""

    mode: Annotated[str, _one_of(SubjectMode)]


class DeprecationBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The reason why a version should no longer be used, and what to use instead."""

    message: Annotated[str, Meta(min_length=1, max_length=1024)]


class TopicSchemaBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The schema policy of a topic. A field that is left out stays; null restores the default."""

    policy: Annotated[str, _one_of(SchemaPolicy)] | UnsetType | None = UNSET
    subjects: list[str] | UnsetType | None = UNSET
    payloads: bool | UnsetType | None = UNSET
    default: str | int | UnsetType | None = UNSET
    deprecated: bool | UnsetType | None = UNSET


class ImportBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Records of an export, in its order."""

    records: Annotated[list[dict[str, Any]], Meta(max_length=RECORDS_MAX)]


# answers


class RegisteredAnswer(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The id; and further fields for clients that accept them."""

    id: SchemaId
    version: Version | None = None
    subject: str | None = None
    schema_type: str | None = None
    schema: str | None = None
    references: list[ReferenceBody] = []


class SchemaAnswer(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A schema by its id. No type means Avro."""

    schema: str
    schema_type: str | None = None
    references: list[ReferenceBody] = []
    max_id: int | None = None
    subject: str | None = None
    version: Version | None = None
    id: SchemaId | None = None


class VersionAnswer(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A version of a subject. No type means Avro."""

    subject: str
    version: Version
    id: SchemaId
    schema: str
    schema_type: str | None = None
    references: list[ReferenceBody] = []
    metadata: MetadataBody | None = None
    deleted: bool | None = None
    deprecated: str | None = None
    description: str | None = None
    tags: list[str] = []
    created_by: str | None = None
    created_ms: int | None = None
    fingerprint: str | None = None


class SubjectVersion(Struct, frozen=True):
    subject: str
    version: Version


class CheckAnswer(Struct, frozen=True, omit_defaults=True):
    is_compatible: bool
    messages: list[str] | None = None
    problems: list[dict[str, Any]] | None = None


class ConfigAnswer(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The compatibility level of one subject, or of all."""

    compatibility_level: Compatibility
    lenient: bool | None = None
    normalize: bool | None = None


class ConfigSetAnswer(Struct, frozen=True, omit_defaults=True):
    compatibility: Compatibility
    lenient: bool | None = None
    normalize: bool | None = None


class ModeAnswer(Struct, frozen=True):
    mode: SubjectMode


class TopicSchemaAnswer(Struct, frozen=True):
    """The schema policy of a topic."""

    topic: str
    policy: SchemaPolicy
    subjects: list[str]
    payloads: bool
    default: str | int | None
    deprecated: bool


class RefusedRecord(Struct, frozen=True):
    """A record that was not imported, and the reason."""

    index: int
    subject: str
    version: int | None
    message: str


class ImportedAnswer(Struct, frozen=True):
    """The numbers of records that were imported and that existed before."""

    imported: int
    known: int
    refused: list[RefusedRecord]


class ExportAnswer(Struct, frozen=True):
    """Records in an order in which they can be imported."""

    records: list[dict[str, Any]]


class VersionsAnswer(Struct, frozen=True):
    versions: list[Version]


class Clusters(Struct, frozen=True, rename={"kafka": "kafka-cluster", "registry": "schema-registry-cluster"}):
    kafka: str
    registry: str


class ServerScope(Struct, frozen=True):
    path: list[str]
    clusters: Clusters


class ServerIdAnswer(Struct, frozen=True):
    id: str
    scope: ServerScope


class ServerVersionAnswer(Struct, frozen=True, rename="camel"):
    version: str
    commit_id: str
