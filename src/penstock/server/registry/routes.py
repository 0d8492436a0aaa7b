"""The routes of the schema registry."""

from __future__ import annotations

from typing import Any, Final

from penstock.broker.access.policy import Operation
from penstock.core.limits import KIB, MIB
from penstock.core.schemas import SCHEMA_BYTES_MAX, SUBJECT_CHARS_MAX
from penstock.schema.errors import SchemaNotFound
from penstock.schema.registry.models import parse_version
from penstock.server.api.errors import FLAT, PLAIN
from penstock.server.api.routing import (
    PUBLIC,
    Method,
    Parameter,
    Permission,
    Route,
    flag,
    number,
    quoted,
    text,
    texts,
    whole,
)
from penstock.server.registry import config, extensions, models
from penstock.server.registry import handlers as dialect

_BODY_BYTES_MAX: Final[dict[Any, int]] = {
    models.SchemaBody: 2 * SCHEMA_BYTES_MAX + 256 * KIB,
    models.ImportBody: 16 * MIB,
}
"""The largest bodies by their type, in bytes. A single schema is a JSON string in which every other character may be
escaped, with its references. An import holds thousands of ordinary schemas; more take several requests."""
_SMALL_BODY_BYTES_MAX: Final = 64 * KIB

_GET, _POST, _PUT, _DELETE = Method.GET, Method.POST, Method.PUT, Method.DELETE


# path parameters


def _version(text: str) -> str:
    """Return the text of a version if it is a valid one. Raises `InvalidVersion`."""
    parse_version(text)
    return text


def _schema_id(text: str) -> int:
    try:
        return whole(text, 1)
    except ValueError:
        raise SchemaNotFound(f"Schema {quoted(text)} not found") from None


PATH_PARAMETERS: Final = {
    "subject": Parameter(
        name="subject",
        about=f"a name of 1 to {SUBJECT_CHARS_MAX} characters; slashes are written %2F",
        parse=str,
        schema={"type": "string", "minLength": 1, "maxLength": SUBJECT_CHARS_MAX},
    ),
    "version": Parameter(
        name="version",
        about='a number from 1, or "latest", which may be written -1',
        parse=_version,
        schema={"type": "string", "pattern": "^([1-9][0-9]{0,8}|latest|-1)$"},
    ),
    "id": Parameter(
        name="id",
        about="of a schema, whatever its subject",
        parse=_schema_id,
        schema={"type": "integer", "minimum": 1, "maximum": 2**31 - 1},
    ),
    "topic": Parameter(
        name="topic",
        about="a topic's name; that of another namespace with it, as %2Fnamespace%2Ftopic",
        parse=str,
        schema={"type": "string", "minLength": 1},
    ),
}

# query parameters

_DELETED: Final = flag("deleted", "true: those too that are deleted softly")
_ONLY: Final = flag("deletedOnly", "true: those alone that are deleted softly", alias="deleted_only")
_PAGE: Final = (
    number("offset", "how many to leave out at the beginning", 0),
    number("limit", "how many at most; -1 for all that fit one answer", -1, at_least=-1),
)
_PREFIX: Final = text("subjectPrefix", "what the names of subjects begin with")
_HINT: Final = text("subject", "where to look first: a hint, and an id is found wherever it is; :.: is no hint")
_SUBJECT: Final = text("subject", "the only subject to look in; :.: is any")
_PERMANENT: Final = flag("permanent", "true: for good, which takes that it is deleted softly before")
_NORMALIZE: Final = flag("normalize", "schemas that mean the same are the same here, normalised or not")
_FORMAT: Final = text(
    "format", "serialized: schemas of Protobuf as the base64 of a descriptor, and else as .proto text"
)
_KEY: Final = texts("key", "the name of a property; may be repeated")
_VALUE: Final = texts("value", "the value of the property in the same place; may be repeated")
_VERBOSE: Final = flag("verbose", "true: with the reasons")
_GLOBAL: Final = flag("defaultToGlobal", "true: what holds for all, where the subject has nothing of its own")
_FORCE: Final = flag("force", "true: also where there are schemas already")


# routes


_READ: Final = Permission(Operation.SCHEMA_READ, "subject")
_WRITE: Final = Permission(Operation.SCHEMA_WRITE, "subject")
_REMOVE: Final = Permission(Operation.SCHEMA_DELETE, "subject")
_ANY: Final = Permission(Operation.SCHEMA_READ, checked=False)
"""The permission of routes that list things. It is not checked before the handler runs: the handler lists only the
subjects that the client may read."""


def _route(method: Method, path: str, handler: Any, about: str, permission: Permission, **more: Any) -> Route:
    most = _BODY_BYTES_MAX.get(more.get("body"), _SMALL_BODY_BYTES_MAX)
    given: dict[str, Any] = {"body_bytes_max": most, "dialect": FLAT} | more
    return Route(method=method, path=path, handler=handler, about=about, permission=permission, **given)


_SERVER: Final = (
    _route(_GET, "/contexts", dialect.list_contexts, "the one context", PUBLIC, query=_PAGE, answer=list[str]),
    _route(_GET, "/v1/metadata/id", dialect.get_server_id, "who serves", PUBLIC, answer=models.ServerIdAnswer),
    _route(
        _GET,
        "/v1/metadata/version",
        dialect.get_server_version,
        "which release",
        PUBLIC,
        answer=models.ServerVersionAnswer,
    ),
)

_SUBJECTS: Final = (
    _route(
        _GET, "/subjects", dialect.list_subjects, "names of subjects", _ANY,
        query=(_PREFIX, _DELETED, _ONLY, *_PAGE), answer=list[str],
    ),
    _route(
        _POST, "/subjects/{subject}", dialect.look_up, "the version that is this schema", _READ,
        query=(_NORMALIZE, _DELETED, _FORMAT), body=models.SchemaBody, answer=models.VersionAnswer,
        errors=(40401, 40403, 42201),
    ),
    _route(
        _DELETE, "/subjects/{subject}", dialect.delete_subject, "delete all its versions", _REMOVE,
        query=(_PERMANENT,), answer=list[models.Version], errors=(40401, 40404, 40405, 42205, 42206),
    ),
    _route(
        _GET, "/subjects/{subject}/metadata", dialect.get_with_metadata, "the latest version with these properties",
        _READ,
        query=(_KEY, _VALUE, _DELETED, _FORMAT), answer=models.VersionAnswer, errors=(40401, 40403),
    ),
    _route(
        _GET, "/subjects/{subject}/versions", dialect.list_versions, "numbers of versions", _READ,
        query=(_DELETED, _ONLY, *_PAGE), answer=list[models.Version], errors=(40401,),
    ),
    _route(
        _POST, "/subjects/{subject}/versions", dialect.register, "register a schema as the next version", _WRITE,
        query=(_NORMALIZE,), body=models.SchemaBody, answer=models.RegisteredAnswer,
        errors=(409, 42201, 42205),
    ),
    _route(
        _GET, "/subjects/{subject}/versions/{version}", dialect.get_version, "one version", _READ,
        query=(_DELETED, _FORMAT), answer=models.VersionAnswer, errors=(40401, 40402, 42202),
    ),
    _route(
        _DELETE, "/subjects/{subject}/versions/{version}", dialect.delete_version, "delete one version", _REMOVE,
        query=(_PERMANENT,), answer=models.Version, errors=(40401, 40402, 40406, 40407, 42202, 42205, 42206),
    ),
    _route(
        _GET, "/subjects/{subject}/versions/{version}/schema", dialect.get_version_text,
        "its text, as it was written", _READ,
        query=(_DELETED, _FORMAT), answer=Any, errors=(40401, 40402, 42202),
    ),
    _route(
        _GET, "/subjects/{subject}/versions/{version}/referencedby", dialect.list_referrers,
        "ids of schemas that refer to it", _READ,
        query=(_DELETED, *_PAGE), answer=list[models.SchemaId], errors=(40401, 40402, 42202),
    ),
)  # fmt: skip

_LIST: Final = (_PREFIX, _DELETED, flag("latestOnly", "true: the last version of each"), *_PAGE)

_SCHEMAS: Final = (
    _route(
        _GET, "/schemas", dialect.list_schemas, "versions of all subjects that are Avro, JSON Schema or Protobuf", _ANY,
        query=(*_LIST, _FORMAT), answer=list[models.VersionAnswer],
    ),
    _route(_GET, "/schemas/types", dialect.list_schema_types, "what schemas are written in", PUBLIC, answer=list[str]),
    _route(
        _GET, "/schemas/ids/{id}", dialect.get_schema, "a schema", _ANY,
        query=(_HINT, _FORMAT, flag("fetchMaxId", "true: with the highest id there is")),
        answer=models.SchemaAnswer, errors=(40403,),
    ),
    _route(
        _GET, "/schemas/ids/{id}/schema", dialect.get_schema_text, "its text, as it was written", _ANY,
        query=(_HINT, _FORMAT), answer=Any, errors=(40403,),
    ),
    _route(
        _GET, "/schemas/ids/{id}/subjects", dialect.list_schema_subjects, "subjects that have it", _ANY,
        query=(_SUBJECT, _DELETED, *_PAGE), answer=list[str], errors=(40403,),
    ),
    _route(
        _GET, "/schemas/ids/{id}/versions", dialect.list_schema_versions, "versions that have it", _ANY,
        query=(_SUBJECT, _DELETED, *_PAGE), answer=list[models.SubjectVersion], errors=(40403,),
    ),
)  # fmt: skip

_COMPATIBILITY: Final = (
    _route(
        _POST, "/compatibility/subjects/{subject}/versions", config.check, "whether it could be registered", _READ,
        query=(_VERBOSE, _NORMALIZE), body=models.SchemaBody, answer=models.CheckAnswer, errors=(42201,),
    ),
    _route(
        _POST, "/compatibility/subjects/{subject}/versions/{version}", config.check_version,
        "whether it goes with one version", _READ,
        query=(_VERBOSE, _NORMALIZE), body=models.SchemaBody, answer=models.CheckAnswer,
        errors=(40401, 40402, 42201, 42202),
    ),
)  # fmt: skip


def _settings(place: str, of: str) -> tuple[Route, ...]:
    """Return the routes for settings at the path `place`: one set for the whole registry, and one for a subject."""
    subject = "subject" if place else None
    read, write = Permission(Operation.SCHEMA_READ, subject), Permission(Operation.SCHEMA_WRITE, subject)
    return (
        _route(
            _GET, f"/config{place}", config.get_config, f"what new versions {of} are held to", read,
            query=(_GLOBAL,), answer=models.ConfigAnswer, errors=(40408,) if place else (),
        ),
        _route(
            _PUT, f"/config{place}", config.put_config, f"hold new versions {of} to this", write,
            body=models.CompatibilityBody, answer=models.ConfigSetAnswer, errors=(42203, 42205),
        ),
        _route(
            _DELETE, f"/config{place}", config.delete_config, f"what new versions {of} were held to; no longer", write,
            answer=models.ConfigAnswer, errors=(40401, 42205) if place else (42205,),
        ),
        _route(
            _GET, f"/mode{place}", config.get_mode, f"what may be done with versions {of}", read,
            query=(_GLOBAL,), answer=models.ModeAnswer, errors=(40409,) if place else (),
        ),
        _route(
            _PUT, f"/mode{place}", config.put_mode, f"let this be done with versions {of}", write,
            query=(_FORCE,), body=models.ModeBody, answer=models.ModeAnswer, errors=(42204, 42205),
        ),
        _route(
            _DELETE, f"/mode{place}", config.delete_mode, f"what might be done with versions {of}; no longer", write,
            answer=models.ModeAnswer, errors=(40401,) if place else (),
        ),
    )  # fmt: skip


def _own(method: Method, path: str, handler: Any, about: str, permission: Permission, **more: Any) -> Route:
    return _route(method, path, handler, about, permission, dialect=PLAIN, **more)


_OWN: Final = (
    _own(
        _GET, "/v1/topics/{topic}/schema", extensions.get_topic_schema,
        "what a topic wants of its messages' schemas", Permission(Operation.DESCRIBE, "topic"),
        answer=models.TopicSchemaAnswer, errors=(404,),
    ),
    _own(
        _PUT, "/v1/topics/{topic}/schema", extensions.put_topic_schema,
        "let a topic want this", Permission(Operation.ALTER, "topic"),
        body=models.TopicSchemaBody, answer=models.TopicSchemaAnswer, errors=(404, 422),
    ),
    _own(
        _GET, "/v1/schemas", dialect.list_all_schemas, "versions of all subjects, of every type", _ANY,
        query=(*_LIST, _FORMAT), answer=list[models.VersionAnswer],
    ),
    _own(_GET, "/v1/schemas/types", extensions.list_schema_types, "types of schemas, with those of Penstock's own",
        PUBLIC, answer=list[str],
    ),
    _own(
        _POST, "/v1/subjects/{subject}/undelete", extensions.undelete, "bring back what was deleted softly", _WRITE,
        query=(number("version", "one version alone", at_least=1),),
        answer=models.VersionsAnswer, errors=(40401, 40402, 42205),
    ),
    _own(
        _PUT, "/v1/subjects/{subject}/versions/{version}/deprecation", extensions.put_deprecation,
        "say why a version should no longer be used", _WRITE,
        body=models.DeprecationBody, answer=models.VersionAnswer, errors=(40401, 40402, 42202, 42205),
    ),
    _own(
        _DELETE, "/v1/subjects/{subject}/versions/{version}/deprecation", extensions.delete_deprecation,
        "take that back", _WRITE,
        answer=models.VersionAnswer, errors=(40401, 40402, 42202, 42205),
    ),
    _own(
        _GET, "/v1/export", extensions.export_schemas,
        "all versions and settings, to be taken in elsewhere", Permission(Operation.SCHEMA_READ),
        query=(_PREFIX,), answer=models.ExportAnswer,
    ),
    _own(
        _POST, "/v1/import", extensions.import_schemas,
        "take in what was exported, with its ids and versions", Permission(Operation.SCHEMA_WRITE),
        body=models.ImportBody, answer=models.ImportedAnswer,
    ),
)  # fmt: skip

_ALL: Final = _settings("", "of all subjects that have nothing of their own")
_EACH: Final = _settings("/{subject}", "of a subject")
ROUTES: Final = (*_SERVER, *_SUBJECTS, *_SCHEMAS, *_COMPATIBILITY, *_ALL, *_EACH, *_OWN)
