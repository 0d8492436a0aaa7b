"""What a producer writes with: a version of its subject, and how values become payloads of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from penstock.client.serde.codecs import Codec, codec_of
from penstock.client.serde.framing import FIRST_MESSAGE, prefix, write_indexes
from penstock.client.serde.python_types import Shape, shape_of
from penstock.client.serde.registry_client import Registered, Schemas
from penstock.client.serde.schemas import AvroSchema, JsonSchema, Pinned, ProtobufSchema, Source, UseLatest
from penstock.client.serde.values import Misfit
from penstock.core.errors import InvalidRequest, PenstockError, SchemaRejected
from penstock.core.schemas import Reference, Schema, SchemaKind
from penstock.record.message import SchemaRef

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.client.serde.protobuf import ProtoFile

Encode = Callable[[Any], bytes]
Place = Callable[[str, Schema], Awaitable[Registered]]
"""Registers a schema under a subject, or looks it up there."""
Written = AvroSchema | JsonSchema | ProtobufSchema | SchemaKind | Shape
"""A schema that is known without the registry."""

_WITHOUT_TEXT: Final = ((str, SchemaKind.STRING), (bytes, SchemaKind.BYTES))
_NOT_THERE: Final = (40401, 40402, 40403)
"""What the registry says of a subject, a version and a schema that it does not have."""


class Writer:
    """Encodes values with one version of a subject, by which every message is stamped."""

    def __init__(self, registered: Registered, encode: Encode, before: bytes = b"") -> None:
        self.schema = SchemaRef(registered.id, registered.version)
        self._subject = registered.subject
        self._encode = encode
        self._before = before
        """What the framing puts before every payload."""

    def encode(self, value: Any) -> bytes:
        """Raises `SchemaRejected` with the path to what does not fit."""
        try:
            return self._before + self._encode(value)
        except Misfit as misfit:
            raise self._rejected(misfit) from None

    def encode_all(self, values: Sequence[Any]) -> list[bytes]:
        """The same for many; the error says which."""
        payloads = []
        for number, value in enumerate(values):
            try:
                payloads.append(self.encode(value))
            except SchemaRejected as error:
                raise SchemaRejected(f"value {number}: {error.message}", record=number, **error.details) from None
        return payloads

    def encode_arrow(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Its `value` column encoded, and the columns that say with which schema."""
        import pyarrow as pa

        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        columns["value"] = pa.array(self.encode_all(batch.column("value").to_pylist()), pa.binary())
        for name, number in (("schema_id", self.schema.id), ("schema_version", self.schema.version)):
            columns[name] = pa.repeat(number, batch.num_rows)
        return pa.RecordBatch.from_pydict(columns)

    def _rejected(self, misfit: Misfit) -> SchemaRejected:
        where = f" at {misfit.path}" if misfit.path else ""
        return SchemaRejected(
            f"the value does not fit version {self.schema.version} of {self._subject}{where}: {misfit.message}",
            path=misfit.path,
            subject=self._subject,
            schema_id=self.schema.id,
            schema_version=self.schema.version,
        )


async def make_writer(schemas: Schemas, source: Source, subject: str, *, register: bool, framed: bool) -> Writer:
    """Registers the schema, or finds it. Raises what is wrong with it, or why the registry refuses it."""
    place = schemas.register if register else partial(_look_up, schemas)
    understood = understand(source)
    if isinstance(understood, UseLatest | Pinned):
        registered = await found(schemas, understood, subject)
        codec = codec_of(await schemas.definition(registered.id))
        _check_first(codec, framed=framed)
    else:
        schema, codec = await _drafted(schemas, understood, place, framed=framed)
        _check_first(codec, framed=framed)
        registered = await place(subject, schema)
    return Writer(registered, codec.encode, _before(registered, codec) if framed else b"")


async def _drafted(schemas: Schemas, understood: Written, place: Place, *, framed: bool) -> tuple[Schema, Codec]:
    """A schema that is yet to be registered, or looked up."""
    if isinstance(understood, Shape):
        return understood.schema(), understood
    if isinstance(understood, ProtobufSchema) and understood.message_class is not None:
        from penstock.client.serde.protobuf import ClassCodec

        codec = ClassCodec(understood.message_class, first=not framed)
        _check_first(codec, framed=framed)
        return await _with_imports(place, codec.files()), codec
    schema = schema_of(understood)
    message = understood.message if isinstance(understood, ProtobufSchema) else None
    return schema, codec_of(await schemas.closed(schema), message)


async def _with_imports(place: Place, files: list[ProtoFile]) -> Schema:
    """The last of these; the others are registered under their own names, as clients of other registries do it."""
    versions: dict[str, int] = {}
    for file in files[:-1]:
        versions[file.name] = (await place(file.name, _referring(file, versions))).version
    return _referring(files[-1], versions)


def _referring(file: ProtoFile, versions: Mapping[str, int]) -> Schema:
    needed = [name for name in file.needs if name in versions]
    references = tuple(Reference(name=name, subject=name, version=versions[name]) for name in needed)
    return Schema(kind=SchemaKind.PROTOBUF, text=file.text, references=references)


def _check_first(codec: Codec, *, framed: bool) -> None:
    if not framed and codec.indexes not in (None, FIRST_MESSAGE):
        raise InvalidRequest(
            "without a framing a payload is the first message of its Protobuf schema: make it the first, or write with"
            " framing='confluent', which says which one it is"
        )


def _before(registered: Registered, codec: Codec) -> bytes:
    """What the framing puts before every payload."""
    return prefix(registered.id) + (b"" if codec.indexes is None else write_indexes(codec.indexes))


def understand(source: Source) -> Written | UseLatest | Pinned:
    """Raises `InvalidRequest` for what is no source of a schema."""
    if isinstance(source, AvroSchema | JsonSchema | ProtobufSchema | UseLatest | Pinned):
        return source
    if hasattr(source, "DESCRIPTOR"):
        return ProtobufSchema(source)
    return next((kind for plain, kind in _WITHOUT_TEXT if source is plain), None) or shape_of(source)


def schema_of(understood: AvroSchema | JsonSchema | ProtobufSchema | SchemaKind) -> Schema:
    """As the registry has it."""
    if isinstance(understood, SchemaKind):
        return Schema(kind=understood, text="")
    return Schema(kind=understood.kind, text=understood.text or "", references=tuple(understood.references))


async def found(schemas: Schemas, understood: UseLatest | Pinned, subject: str) -> Registered:
    """A version that is there already."""
    version = understood.version if isinstance(understood, Pinned) else "latest"
    with _hinted(f"register it first (penstock schema register {subject} FILE), or name another subject (subject=...)"):
        return await schemas.version(subject, version)


async def _look_up(schemas: Schemas, subject: str, schema: Schema) -> Registered:
    with _hinted(f"register it first (penstock schema register {subject} FILE), or leave out register=False"):
        return await schemas.look_up(subject, schema)


@contextmanager
def _hinted(hint: str) -> Iterator[None]:
    """What the registry does not have, told with what to do about it."""
    try:
        yield
    except PenstockError as error:
        if error.details.get("registry_code") not in _NOT_THERE:
            raise
        hinted = type(error)(f"{error.message.rstrip('.')}; {hint}")
        hinted.details = error.details
        raise hinted from None
