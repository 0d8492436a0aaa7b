"""The encoder of a producer: it encodes values with one version of a subject."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from penstock.client.serde.codecs import Codec, codec_of
from penstock.client.serde.framing import FIRST_MESSAGE, prefix, write_indexes
from penstock.client.serde.python_types import TypeCodec, type_codec_of
from penstock.client.serde.registry_client import RegisteredVersion, RegistryClient
from penstock.client.serde.schemas import AvroSchema, JsonSchema, Pinned, ProtobufSchema, Source, UseLatest
from penstock.client.serde.values import ValueMismatch
from penstock.core.errors import InvalidRequest, PenstockError, SchemaRejected
from penstock.core.schemas import Reference, Schema, SchemaKind
from penstock.record.message import SchemaRef

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.client.serde.protobuf import ProtoFile

Encode = Callable[[Any], bytes]
ResolveVersion = Callable[[str, Schema], Awaitable[RegisteredVersion]]
"""A function that returns the registered version of a schema: it registers the schema under a subject, or only looks it
up there."""
LocalSchema = AvroSchema | JsonSchema | ProtobufSchema | SchemaKind | TypeCodec
"""A schema that the program has given, in contrast to one fetched from the registry."""

_WITHOUT_TEXT: Final = ((str, SchemaKind.STRING), (bytes, SchemaKind.BYTES))
_NOT_THERE: Final = (40401, 40402, 40403)
"""Registry error codes for a subject, a version or a schema that does not exist."""


class ValueEncoder:
    """An encoder of values with one version of a subject. Every message names that version by `schema`."""

    def __init__(self, registered: RegisteredVersion, encode: Encode, before: bytes = b"") -> None:
        self.schema = SchemaRef(registered.id, registered.version)
        self._subject = registered.subject
        self._encode = encode
        self._framing_prefix = before
        """The bytes that the framing puts before every payload."""

    def encode(self, value: Any) -> bytes:
        """Encode a value. Raises `SchemaRejected`, with the path to the mismatch, if it does not fit the schema."""
        try:
            return self._framing_prefix + self._encode(value)
        except ValueMismatch as mismatch:
            raise self._rejected(mismatch) from None

    def encode_all(self, values: Sequence[Any]) -> list[bytes]:
        """Encode many values. Raises `SchemaRejected` with the number of the first value that does not fit."""
        payloads = []
        for number, value in enumerate(values):
            try:
                payloads.append(self.encode(value))
            except SchemaRejected as error:
                raise SchemaRejected(f"value {number}: {error.message}", record=number, **error.details) from None
        return payloads

    def encode_arrow(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch with its `value` column encoded, and the columns `schema_id` and `schema_version` added.
        Raises `SchemaRejected`."""
        import pyarrow as pa

        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        columns["value"] = pa.array(self.encode_all(batch.column("value").to_pylist()), pa.binary())
        for name, number in (("schema_id", self.schema.id), ("schema_version", self.schema.version)):
            columns[name] = pa.repeat(number, batch.num_rows)
        return pa.RecordBatch.from_pydict(columns)

    def _rejected(self, mismatch: ValueMismatch) -> SchemaRejected:
        where = f" at {mismatch.path}" if mismatch.path else ""
        return SchemaRejected(
            f"the value does not fit version {self.schema.version} of {self._subject}{where}: {mismatch.message}",
            path=mismatch.path,
            subject=self._subject,
            schema_id=self.schema.id,
            schema_version=self.schema.version,
        )


async def make_encoder(
    registry: RegistryClient, source: Source, subject: str, *, register: bool, framed: bool
) -> ValueEncoder:
    """Register the schema under `subject`, or with `register=False` look it up there, and build its encoder.

    Raises `InvalidRequest` for a source that is no schema, and the registry's error if it refuses the schema or does
    not have it.
    """
    resolve = registry.register if register else partial(_look_up, registry)
    parsed = parse_source(source)
    if isinstance(parsed, UseLatest | Pinned):
        registered = await existing_version(registry, parsed, subject)
        codec = codec_of(await registry.definition(registered.id))
        _check_first(codec, framed=framed)
    else:
        schema, codec = await _schema_and_codec(registry, parsed, resolve, framed=framed)
        _check_first(codec, framed=framed)
        registered = await resolve(subject, schema)
    return ValueEncoder(registered, codec.encode, _framing_prefix(registered, codec) if framed else b"")


async def _schema_and_codec(
    registry: RegistryClient, parsed: LocalSchema, resolve: ResolveVersion, *, framed: bool
) -> tuple[Schema, Codec]:
    """Return the schema of a local source, not registered yet, and its codec. Files imported by a Protobuf class are
    registered or looked up."""
    if isinstance(parsed, TypeCodec):
        return parsed.schema(), parsed
    if isinstance(parsed, ProtobufSchema) and parsed.message_class is not None:
        from penstock.client.serde.protobuf import ClassCodec

        codec = ClassCodec(parsed.message_class, first=not framed)
        _check_first(codec, framed=framed)
        return await _with_imports(resolve, codec.files()), codec
    schema = schema_of(parsed)
    message = parsed.message if isinstance(parsed, ProtobufSchema) else None
    return schema, codec_of(await registry.closed(schema), message)


async def _with_imports(resolve: ResolveVersion, files: list[ProtoFile]) -> Schema:
    """Resolve the imported files, each under its own file name as the subject, and return the schema of the last file.
    Clients of other registries use the same names."""
    versions: dict[str, int] = {}
    for file in files[:-1]:
        versions[file.name] = (await resolve(file.name, _referring(file, versions))).version
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


def _framing_prefix(registered: RegisteredVersion, codec: Codec) -> bytes:
    """Return the bytes that the framing puts before every payload."""
    return prefix(registered.id) + (b"" if codec.indexes is None else write_indexes(codec.indexes))


def parse_source(source: Source) -> LocalSchema | UseLatest | Pinned:
    """Convert the source of a schema to one of its classes, or to the codec of a type. Raises `InvalidRequest` if it is
    none."""
    if isinstance(source, AvroSchema | JsonSchema | ProtobufSchema | UseLatest | Pinned):
        return source
    if hasattr(source, "DESCRIPTOR"):
        return ProtobufSchema(source)
    return next((kind for plain, kind in _WITHOUT_TEXT if source is plain), None) or type_codec_of(source)


def schema_of(parsed: AvroSchema | JsonSchema | ProtobufSchema | SchemaKind) -> Schema:
    """Convert a schema to the form that the registry takes."""
    if isinstance(parsed, SchemaKind):
        return Schema(kind=parsed, text="")
    return Schema(kind=parsed.kind, text=parsed.text or "", references=tuple(parsed.references))


async def existing_version(registry: RegistryClient, parsed: UseLatest | Pinned, subject: str) -> RegisteredVersion:
    """Return the latest or the pinned version of a subject. Raises the registry's error, with advice if there is
    none."""
    version = parsed.version if isinstance(parsed, Pinned) else "latest"
    with _add_hint(
        f"register it first (penstock schema register {subject} FILE), or name another subject (subject=...)"
    ):
        return await registry.version(subject, version)


async def _look_up(registry: RegistryClient, subject: str, schema: Schema) -> RegisteredVersion:
    with _add_hint(f"register it first (penstock schema register {subject} FILE), or leave out register=False"):
        return await registry.look_up(subject, schema)


@contextmanager
def _add_hint(hint: str) -> Iterator[None]:
    """Add `hint` to the message of errors about a subject, version or schema that the registry does not have. Other
    errors stay as they are."""
    try:
        yield
    except PenstockError as error:
        if error.details.get("registry_code") not in _NOT_THERE:
            raise
        hinted = type(error)(f"{error.message.rstrip('.')}; {hint}")
        hinted.details = error.details
        raise hinted from None
