"""System topics about schemas: the schema registry over the wire. One row each."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from penstock.broker.access.policy import SERVER, Operation, Resource, ResourceKind
from penstock.broker.base import request_fields as read
from penstock.broker.base.effects import Effect, RunRegistryProcedure
from penstock.broker.base.replies import encode_list, json_bytes
from penstock.broker.base.request_fields import Fields
from penstock.broker.context import Reply
from penstock.broker.live.connections import Client
from penstock.broker.topics.schema_usage import forget_unused, with_topic_names
from penstock.core.errors import InvalidRequest, PayloadTooLarge, PenstockError, VerbatimDetails
from penstock.core.schemas import SCHEMA_REFERENCES_MAX, SCHEMA_VERSION_MAX, Reference, Schema, SchemaKind, SubjectMode
from penstock.schema.errors import ReferenceExists, RegistryError, SubjectNotFound
from penstock.schema.problems import Problem
from penstock.schema.registry.models import LookupFilter, RegisteredVersion, parse_version
from penstock.schema.registry.registry import Registry
from penstock.schema.steps import Procedure
from penstock.storage.catalog.schema_rows import VersionMetadata

if TYPE_CHECKING:
    from penstock.broker.durable import DurableBroker

_SCHEMA: Final = ("type", "schema", "references")
_PROBLEMS_MAX: Final = 20
"""The most problems in one error: it has to fit into a frame, and twenty are enough to correct before the next
check."""

Handler = Callable[["DurableBroker", Client, Fields, Reply], list[Effect]]


# form of answers


def _numbered(error: PenstockError) -> PenstockError:
    """Add the error number of the registry protocol to an error, for clients that know errors by it. Other errors are
    returned unchanged."""
    if isinstance(error, RegistryError):
        error.details["registry_code"] = error.number
        problems = error.details.get("problems")
        if isinstance(problems, list):
            error.details |= {"problems": VerbatimDetails(problems[:_PROBLEMS_MAX]), "total": len(problems)}
    return error


def _with_encoded_answer(handle: Handler) -> Handler:
    def answer(durable: DurableBroker, client: Client, fields: Fields, reply: Reply) -> list[Effect]:
        def fitting(outcome: Any) -> list[Effect]:
            if isinstance(outcome, PenstockError):
                return reply(_numbered(outcome))
            encoded = outcome if isinstance(outcome, bytes) else json_bytes(outcome)
            return reply(_too_large(encoded) if len(encoded) > durable.answer_bytes_max else encoded)

        try:
            return handle(durable, client, fields, fitting)
        except PenstockError as error:
            raise _numbered(error) from None

    return answer


def _too_large(encoded: bytes) -> PenstockError:
    return PayloadTooLarge(f"the answer has {len(encoded)} bytes and does not fit into a message; ask over HTTP")


def _run(procedure: Procedure[Any], reply: Reply, shape: Callable[[Any], Fields]) -> list[Effect]:
    def done(outcome: Any) -> list[Effect]:
        return reply(outcome if isinstance(outcome, PenstockError) else shape(outcome))

    return [RunRegistryProcedure(procedure, done)]


# request fields


def _schema(fields: Fields) -> Schema:
    kind = read.text(fields, "type", SchemaKind.AVRO.value).upper()
    if kind not in tuple(SchemaKind):
        raise InvalidRequest(f"type is one of {', '.join(SchemaKind)}", field="type", given=kind)
    text = fields.get("schema", "")
    if not isinstance(text, str):
        raise InvalidRequest("schema must be the text of a schema", field="schema")
    references = fields.get("references", [])
    if not isinstance(references, list) or len(references) > SCHEMA_REFERENCES_MAX:
        raise InvalidRequest(f"references must be a list of at most {SCHEMA_REFERENCES_MAX}", field="references")
    return Schema(kind=SchemaKind(kind), text=text, references=tuple(map(_reference, references)))


def _reference(reference: object) -> Reference:
    if not isinstance(reference, dict):
        raise InvalidRequest("a reference has a name, a subject and a version", field="references", given=reference)
    version = read.number(reference, "version", at_least=1, at_most=SCHEMA_VERSION_MAX)
    return Reference(name=read.text(reference, "name"), subject=read.text(reference, "subject"), version=version)


def _version(fields: Fields) -> int | str:
    version: object = fields.get("version")
    if isinstance(version, bool) or not isinstance(version, int | str):
        raise InvalidRequest('version must be a number or "latest"', field="version", given=version)
    return version


def _version_of(registry: Registry, fields: Fields) -> RegisteredVersion:
    """Return the version that a request names: a number also finds a deleted version, `latest` finds the last one that
    is not deleted. Raises `RegistryError`."""
    subject, version = read.text(fields, "subject"), _version(fields)
    which = LookupFilter.ACTIVE if parse_version(version) is None else LookupFilter.INCLUDE_DELETED
    return registry.version(subject, version, which)


def _which(fields: Fields) -> LookupFilter:
    return LookupFilter.INCLUDE_DELETED if read.flag(fields, "deleted") else LookupFilter.ACTIVE


def _schema_to_compare(durable: DurableBroker, client: Client, fields: Fields) -> Schema:
    """Return one of the two schemas of a comparison. The request names it by id, by subject and version, or contains
    its text."""
    if "id" in fields:
        return durable.registry.schema(read.number(fields, "id")).schema
    if "subject" in fields:
        return _version_of(durable.registry, fields).schema
    return _sent_schema(durable, client, fields)


def _sent_schema(durable: DurableBroker, client: Client, fields: Fields) -> Schema:
    schema = _schema(fields)
    durable.check_references(client, schema)
    return schema


# answer fields


def _registered_fields(registered: RegisteredVersion) -> Fields:
    return {
        "subject": registered.subject,
        "version": registered.version,
        "id": registered.schema_id,
        "type": registered.schema.kind.value,
    }


def _version_fields(registered: RegisteredVersion) -> Fields:
    facts = {
        **_registered_fields(registered),
        "deleted": registered.deleted,
        "deprecated": registered.deprecated,
        "description": registered.metadata.description,
        "tags": list(registered.metadata.tags),
        "created_by": registered.metadata.created_by,
        "created_ms": registered.created_ms,
        "fingerprint": registered.fingerprint,
    }
    return {name: value for name, value in facts.items() if value not in (None, "", [])}


def _text_fields(schema: Schema) -> Fields:
    references = [asdict(reference) for reference in schema.references]
    return {"type": schema.kind.value, "schema": schema.text, "references": references}


def _compatibility_fields(problems: list[Problem]) -> Fields:
    shown = [problem.as_dict() for problem in problems[:_PROBLEMS_MAX]]
    return {"compatible": not problems, "problems": shown, "total": len(problems)}


# registering and reading


def _register(durable: DurableBroker, client: Client, fields: Fields, reply: Reply) -> list[Effect]:
    read.check_known(fields, ("subject", *_SCHEMA, "description", "tags", "id", "version"))
    metadata = VersionMetadata(
        description=read.text(fields, "description") if "description" in fields else "",
        tags=read.texts(fields, "tags"),
        created_by=client.signature,
    )
    procedure = durable.registry.register(
        read.text(fields, "subject"),
        _sent_schema(durable, client, fields),
        schema_id=read.number(fields, "id", at_least=1) if "id" in fields else None,
        version=read.number(fields, "version", at_least=1) if "version" in fields else None,
        metadata=metadata,
    )
    return _run(procedure, reply, _registered_fields)


def _look_up(durable: DurableBroker, client: Client, fields: Fields, reply: Reply) -> list[Effect]:
    read.check_known(fields, ("subject", *_SCHEMA, "deleted"))
    schema, deleted = _sent_schema(durable, client, fields), read.flag(fields, "deleted")
    procedure = durable.registry.look_up(read.text(fields, "subject"), schema, deleted=deleted)
    return _run(procedure, reply, _registered_fields)


def _may_read(durable: DurableBroker, client: Client, subject: str) -> bool:
    """Return whether the client may read a subject. `subject` is its normalized name."""
    return durable.is_allowed(client, Operation.SCHEMA_READ, Resource(ResourceKind.SUBJECT, subject))


def _check_read(durable: DurableBroker, client: Client, fields: Fields) -> None:
    """Check that the client may read the schema that a request names. For an id, permission for any subject with that
    schema is enough, so that readers of messages can decode them. Raises `Unauthorized` or `Forbidden`."""
    if "id" not in fields:
        if "subject" in fields:
            durable.check(client, Operation.SCHEMA_READ, Resource.subject(read.text(fields, "subject")))
        return
    versions = durable.registry.versions_of_schema(read.number(fields, "id"), LookupFilter.INCLUDE_DELETED)
    if not any(_may_read(durable, client, subject) for subject, _ in versions):
        durable.check(client, Operation.SCHEMA_READ, SERVER)


def _get(durable: DurableBroker, client: Client, fields: Fields, reply: Reply) -> list[Effect]:
    read.check_known(fields, ("id", "subject", "version", "closure"))
    _check_read(durable, client, fields)
    registry = durable.registry
    if "id" in fields:
        stored = registry.schema(read.number(fields, "id"))
        answer: Fields = {"id": stored.schema_id, "fingerprint": stored.fingerprint} | _text_fields(stored.schema)
    else:
        registered = _version_of(registry, fields)
        answer = _version_fields(registered) | _text_fields(registered.schema)
    versions = registry.versions_of_schema(answer["id"], LookupFilter.INCLUDE_DELETED)
    answer["versions"] = [
        {"subject": subject, "version": version} for subject, version in versions if _may_read(durable, client, subject)
    ]
    if read.flag(fields, "closure"):
        answer["closure"] = registry.definition(answer["id"]).references
    return reply(answer)


def _subjects(durable: DurableBroker, client: Client, fields: Fields, reply: Reply) -> list[Effect]:
    """List subjects in the order of names. A request with `after`, the last name of the previous answer, gets the ones
    that follow."""
    read.check_known(fields, ("prefix", "deleted", "after"))
    prefix, after = (read.text(fields, name) if fields.get(name) else "" for name in ("prefix", "after"))
    names = [
        name
        for name in durable.registry.subjects(prefix, _which(fields))
        if name > after and _may_read(durable, client, name)
    ]
    return reply(encode_list(durable.answer_bytes_max, "subjects", names, len(names)))


def _versions(durable: DurableBroker, _client: Client, fields: Fields, reply: Reply) -> list[Effect]:
    """List the versions of a subject in their order. A request with `after`, the last number of the previous answer,
    gets the ones that follow."""
    read.check_known(fields, ("subject", "deleted", "after"))
    subject, which, registry = read.text(fields, "subject"), _which(fields), durable.registry
    after = read.number(fields, "after", 0)
    numbers = [number for number in registry.versions(subject, which) if number > after]
    entries = (_version_fields(registry.version(subject, number, which)) for number in numbers)
    return reply(encode_list(durable.answer_bytes_max, "versions", entries, len(numbers)))


# comparing


def _check(durable: DurableBroker, client: Client, fields: Fields, reply: Reply) -> list[Effect]:
    read.check_known(fields, ("subject", *_SCHEMA, "version"))
    subject, registry = read.text(fields, "subject"), durable.registry
    version = _version(fields) if "version" in fields else None
    rules = registry.compatibility(subject, default_to_global=True)
    demanded = {"compatibility": rules.compatibility.value, "lenient": rules.lenient}
    procedure = registry.check(subject, _sent_schema(durable, client, fields), version)
    return _run(procedure, reply, lambda problems: demanded | _compatibility_fields(problems))


def _compare(durable: DurableBroker, client: Client, fields: Fields, reply: Reply) -> list[Effect]:
    read.check_known(fields, ("reader", "writer", "lenient"))
    sides = []
    for side in ("reader", "writer"):
        description = fields.get(side)
        if not isinstance(description, dict):
            raise InvalidRequest(f"{side} must be an object: an id, a subject and version, or a schema", field=side)
        _check_read(durable, client, description)
        sides.append(_schema_to_compare(durable, client, description))
    procedure = durable.registry.check_pair(*sides, lenient=read.flag(fields, "lenient"))
    return _run(procedure, reply, _compatibility_fields)


# changing


def _delete(durable: DurableBroker, _client: Client, fields: Fields, reply: Reply) -> list[Effect]:
    """Delete a version or a whole subject. `permanent` removes it for good, which is allowed only if no message uses
    its schemas: topics that once had such messages are scanned first.

    Archives cannot be scanned. Their uses count until the request says `archived`, which confirms that the archives no
    longer need the schema.
    """
    read.check_known(fields, ("subject", "version", "permanent", "archived"))
    subject = read.text(fields, "subject")
    permanent, archived = read.flag(fields, "permanent"), read.flag(fields, "archived")
    version = _version(fields) if "version" in fields else None
    if archived and not permanent:
        raise InvalidRequest("archived is about what is deleted for good: say permanent too", field="archived")

    def delete(_outcome: object = None) -> list[Effect]:
        try:
            deletion = _deletion(durable.registry, subject, version, permanent=permanent, archived=archived)
            return _run(deletion, reply_with_names, _deleted_fields)
        except PenstockError as error:
            return reply_with_names(error)

    def reply_with_names(outcome: Any) -> list[Effect]:
        return reply(with_topic_names(durable, outcome) if isinstance(outcome, ReferenceExists) else outcome)

    return forget_unused(durable, subject, version, delete) if permanent else delete()


def _deletion(registry: Registry, subject: str, version: int | str | None, **grade: bool) -> Procedure[tuple[int, ...]]:
    if version is None:
        return (yield from registry.delete_subject(subject, **grade))
    return ((yield from registry.delete_version(subject, version, **grade)),)


def _deleted_fields(versions: tuple[int, ...]) -> Fields:
    return {"versions": list(versions)}


def _undelete(durable: DurableBroker, _client: Client, fields: Fields, reply: Reply) -> list[Effect]:
    read.check_known(fields, ("subject", "version"))
    version = _version(fields) if "version" in fields else None
    return _run(durable.registry.undelete(read.text(fields, "subject"), version), reply, _deleted_fields)


def _deprecate(durable: DurableBroker, _client: Client, fields: Fields, reply: Reply) -> list[Effect]:
    """Deprecate a version, with a message that says why. `null` as the message ends the deprecation; without a message
    the request is refused."""
    read.check_known(fields, ("subject", "version", "message"))
    if "message" not in fields:
        raise InvalidRequest("message must say why, or be null, which takes the deprecation back", field="message")
    message = read.text(fields, "message") if fields.get("message") is not None else None
    procedure = durable.registry.deprecate(read.text(fields, "subject"), _version(fields), message)
    return _run(procedure, reply, _version_fields)


def _describe(durable: DurableBroker, _client: Client, fields: Fields, reply: Reply) -> list[Effect]:
    """Change the description and tags of a version. A field that the request lacks is left as it is."""
    read.check_known(fields, ("subject", "version", "description", "tags"))
    description = fields.get("description")
    if description is not None and not isinstance(description, str):
        raise InvalidRequest("description must be text", field="description")
    tags = read.texts(fields, "tags") if "tags" in fields else None
    subject, version = read.text(fields, "subject"), _version(fields)
    procedure = durable.registry.describe(subject, version, description=description, tags=tags)
    return _run(procedure, reply, _version_fields)


def _config(durable: DurableBroker, client: Client, fields: Fields, reply: Reply) -> list[Effect]:
    """Change the compatibility and mode of a subject, or the global ones, as far as the request has them, and answer
    the result. `null` resets a setting."""
    read.check_known(fields, ("subject", "compatibility", "lenient", "mode"))
    subject = read.text(fields, "subject") if "subject" in fields else None
    changes = bool(fields.keys() - {"subject"})
    about = SERVER if subject is None else Resource.subject(subject)
    operation = Operation.SCHEMA_WRITE if changes else Operation.SCHEMA_READ
    durable.check(client, operation, about, "system.schema.config")
    return _run(_configure(durable.registry, subject, fields), reply, lambda facts: facts)


def _configure(registry: Registry, subject: str | None, fields: Fields) -> Procedure[Fields]:
    """Apply mode and compatibility, and return the result. A read-only mode is set last, because nothing can be changed
    after it."""
    steps = [_set_mode, _set_rules]
    if str(fields.get("mode")).upper().startswith(SubjectMode.READONLY):
        steps.reverse()
    for step in steps:
        yield from step(registry, subject, fields)
    return _configuration(registry, subject)


def _set_rules(registry: Registry, subject: str | None, fields: Fields) -> Procedure[None]:
    if fields.get("compatibility", fields.get("lenient", "")) is None:
        yield from _unless_unset(registry.clear_compatibility(subject))
    elif "compatibility" in fields or "lenient" in fields:
        level = read.text(fields, "compatibility") if "compatibility" in fields else None
        lenient = read.flag(fields, "lenient") if "lenient" in fields else None
        yield from registry.set_compatibility(subject, level, lenient=lenient)


def _set_mode(registry: Registry, subject: str | None, fields: Fields) -> Procedure[None]:
    if "mode" in fields and fields["mode"] is None:
        yield from _unless_unset(registry.clear_mode(subject))
    elif "mode" in fields:
        yield from registry.set_mode(subject, read.text(fields, "mode"))


def _unless_unset(procedure: Procedure[Any]) -> Procedure[None]:
    """Run a procedure that resets a setting, and ignore the error that nothing was set."""
    with suppress(SubjectNotFound):
        yield from procedure


def _configuration(registry: Registry, subject: str | None) -> Fields:
    rules = registry.compatibility(subject, default_to_global=True)
    try:
        registry.compatibility(subject)
        inherited = False
    except RegistryError:
        inherited = True
    return {
        "compatibility": rules.compatibility.value,
        "lenient": rules.lenient,
        "mode": registry.mode(subject, default_to_global=True).value,
        "inherited": inherited,
    }


# export and import


def _export(durable: DurableBroker, _client: Client, fields: Fields, reply: Reply) -> list[Effect]:
    """Answer as many records as fit. A request with `after`, the number of records that were received so far, gets the
    ones that follow."""
    read.check_known(fields, ("prefix", "after"))
    after = read.number(fields, "after", 0)
    prefix = read.text(fields, "prefix") if fields.get("prefix") else ""
    records = durable.registry.export(prefix)[after:]
    return reply(encode_list(durable.answer_bytes_max, "records", records, len(records)))


def _import(durable: DurableBroker, _client: Client, fields: Fields, reply: Reply) -> list[Effect]:
    read.check_known(fields, ("records",))
    records = fields.get("records")
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise InvalidRequest("records must be a list of objects, as an export has them", field="records")
    return _run(durable.registry.import_(records), reply, asdict)


TOPICS: Final[dict[str, Handler]] = {
    topic: _with_encoded_answer(handle)
    for topic, handle in {
        "system.schema.register": _register,
        "system.schema.lookup": _look_up,
        "system.schema.get": _get,
        "system.schema.subjects": _subjects,
        "system.schema.versions": _versions,
        "system.schema.check": _check,
        "system.schema.compare": _compare,
        "system.schema.delete": _delete,
        "system.schema.undelete": _undelete,
        "system.schema.deprecate": _deprecate,
        "system.schema.describe": _describe,
        "system.schema.config": _config,
        "system.schema.export": _export,
        "system.schema.import": _import,
    }.items()
}
