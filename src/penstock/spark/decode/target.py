"""The target of decoding: the columns of one schema, or of several at once. Made on the driver, and pickled."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Final

import pyarrow as pa

from penstock.client.serde.schemas import require_schema_extra
from penstock.core.errors import InvalidRequest
from penstock.core.names import TopicName
from penstock.core.schemas import SchemaKind
from penstock.spark.decode.columns.merged_shapes import merged
from penstock.spark.decode.columns.shapes import Record, arrow_schema, root_record, without_readers
from penstock.spark.decode.languages.writer_schemas import Schemas, writer_schema
from penstock.spark.decode.options import LATEST, MERGED

_DIGITS_MAX: Final = 10


@dataclass(frozen=True, slots=True)
class Target:
    topic: str
    shape: Record
    kinds: frozenset[SchemaKind]
    """The kinds of the target's schemas. Payloads of another kind do not decode, except that a target of bytes takes
    any payload, and one of text takes numbers and JSON."""
    schema_ids: tuple[int, ...]
    """The ids of the target's schemas, the latest last."""
    keys: frozenset[str]
    """The keys that the columns have in payloads. A schema with none of these keys describes something else."""

    @property
    def fields(self) -> pa.Schema:
        """The columns, in types that Spark takes. Each may be null."""
        return arrow_schema(self.shape)

    def only(self, names: Collection[str]) -> Target:
        """Return the target with these columns alone: others are not decoded."""
        fields = tuple(field for field in self.shape.fields if field.name in names)
        return replace(self, shape=replace(self.shape, fields=fields))


def target_for(
    schemas: Schemas,
    topic: TopicName | Sequence[TopicName],
    *,
    pick: str = LATEST,
    subject: str | None = None,
    message: str | None = None,
    deleted: bool = False,
) -> Target:
    """Return the target for the messages of a topic; for several topics, one with the columns of all.

    `pick` is `latest`, the number of a version, or `merged`: the columns of every version, in types that hold the
    values of all. A topic with several subjects takes part with all of them, unless `subject` names one. `message`
    names the message of a Protobuf schema. `deleted` includes deleted versions, which messages may still name. Raises
    `InvalidRequest` if there is no such schema, or if `pick` is a number and there are several subjects.
    """
    topics = [topic] if isinstance(topic, TopicName) else topic
    name = ", ".join(map(str, topics))
    subjects = _subjects(schemas, topics) if subject is None else [subject]
    ids = _picked(schemas, subjects, pick, deleted=deleted)
    if not ids:
        raise InvalidRequest(
            f"{name} has no schema: nothing is registered under {', '.join(subjects)}; register one"
            f" (penstock schema register), name the subject, or read the topic without decode",
            topic=name,
        )
    return target_of(schemas, name, ids, message=message)


def target_of(schemas: Schemas, topic: str, ids: Sequence[int], *, message: str | None = None) -> Target:
    """Return the target for schemas by their ids, the latest last. Raises `InvalidRequest` for an unknown id."""
    with require_schema_extra():
        definitions = [schemas.schema(id_) for id_ in ids]
        shapes = [without_readers(writer_schema(definition, message).shape) for definition in definitions]
        together = root_record(without_readers(reduce(merged, shapes)))
        keys = frozenset(key for field in together.fields for key in field.keys)
        return Target(topic, together, frozenset(each.kind for each in definitions), tuple(ids), keys)


def _subjects(schemas: Schemas, topics: Sequence[TopicName]) -> list[str]:
    return list(dict.fromkeys(subject for topic in topics for subject in schemas.subjects_of(topic)))


def has_schemas(schemas: Schemas, topic: TopicName, *, deleted: bool = False) -> bool:
    return any(schemas.versions(subject, deleted=deleted) for subject in schemas.subjects_of(topic))


def _picked(schemas: Schemas, subjects: list[str], pick: str, *, deleted: bool) -> list[int]:
    """Return the ids of the chosen schemas, each once and the oldest first, so that new columns of later versions come
    last."""
    versions = {subject: schemas.versions(subject, deleted=deleted) for subject in subjects}
    if pick == LATEST:
        chosen = [version[-1] for version in versions.values() if version]
    elif pick == MERGED:
        chosen = sorted((each for found in versions.values() for each in found), key=lambda each: each[1])
    else:
        chosen = [_version(subjects, versions, pick)]
    return list(dict.fromkeys(schema_id for _, schema_id in chosen))


def _version(subjects: list[str], versions: dict[str, list[tuple[int, int]]], pick: str) -> tuple[int, int]:
    if not (pick.isascii() and pick.isdigit() and len(pick) <= _DIGITS_MAX):
        raise InvalidRequest(f"pick={pick!r}: it is {LATEST}, {MERGED}, or the number of a version", pick=pick)
    if len(subjects) != 1:
        raise InvalidRequest(
            f"pick={pick!r}: the topic has {len(subjects)} subjects ({', '.join(subjects)}), and each has versions of"
            f" its own: name one of them with subject, or pick {LATEST} or {MERGED}"
        )
    found = next((each for each in versions[subjects[0]] if each[0] == int(pick)), None)
    if found is None:
        known = ", ".join(str(number) for number, _ in versions[subjects[0]]) or "none"
        raise InvalidRequest(f"pick={pick!r}: subject {subjects[0]!r} has no such version; it has: {known}")
    return found
