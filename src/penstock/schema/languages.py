"""The schema languages behind one interface: parse, check compatibility, validate. In the broker this runs only in the
worker process."""

from __future__ import annotations

import base64
from collections import OrderedDict
from typing import Final

from penstock.core.schemas import Definition, SchemaKind
from penstock.schema.errors import InvalidSchema
from penstock.schema.language import Language, ParsedSchema, Validator
from penstock.schema.problems import Problem
from penstock.schema.steps import SchemaForm, SchemaPair

_PARSED_CHARS_MAX: Final = 1_000_000
"""Characters of schema texts that stay parsed in memory: many versions of ordinary schemas, or a single huge one."""


class SchemaLanguages:
    """A cache of recently parsed schemas and their validators."""

    def __init__(self) -> None:
        self._parsed: OrderedDict[Definition, ParsedSchema] = OrderedDict()
        self._validators: dict[Definition, Validator] = {}

    def parse(self, definition: Definition, form: SchemaForm = SchemaForm.CANONICAL) -> str:
        """Return the schema in one of its forms. Raises `InvalidSchema`."""
        parsed = self._parse(definition)
        match form:
            case SchemaForm.CANONICAL:
                return parsed.canonical()
            case SchemaForm.FORMER:
                return _legacy_canonical(parsed)
            case SchemaForm.TEXT | SchemaForm.SERIALIZED:
                return _protobuf(parsed, form)

    def check_compatibility(self, pairs: tuple[SchemaPair, ...], *, lenient: bool) -> list[list[Problem]]:
        return [self._problems(pair, lenient=lenient) for pair in pairs]

    def validator(self, definition: Definition) -> Validator:
        """Return the schema's validator, which is cached as long as the parsed schema. Raises `InvalidSchema`."""
        parsed = self._parse(definition)
        if definition not in self._validators:
            self._validators[definition] = parsed.validator()
        return self._validators[definition]

    def _problems(self, pair: SchemaPair, *, lenient: bool) -> list[Problem]:
        reader, writer = self._parse(pair.reader), self._parse(pair.writer)
        if pair.reader.kind is pair.writer.kind:
            return reader.compatibility_problems(writer, lenient=lenient)
        return _cross_language_problems(pair.reader.kind, pair.writer.kind)

    def _parse(self, definition: Definition) -> ParsedSchema:
        known = self._parsed.get(definition)
        if known is None:
            parsed = language(definition.kind).parse(definition.text, dict(definition.references))
            known = self._parsed[definition] = parsed
        self._parsed.move_to_end(definition)
        while len(self._parsed) > 1 and sum(map(_size, self._parsed)) > _PARSED_CHARS_MAX:
            forgotten, _ = self._parsed.popitem(last=False)
            self._validators.pop(forgotten, None)
        return known


def _legacy_canonical(parsed: ParsedSchema) -> str:
    from penstock.schema import avro

    return parsed.legacy_canonical() if isinstance(parsed, avro.AvroSchema) else parsed.canonical()


def _protobuf(parsed: ParsedSchema, form: SchemaForm) -> str:
    from penstock.schema import protobuf

    if not isinstance(parsed, protobuf.ProtobufSchema):
        raise InvalidSchema(f"only a schema in Protobuf has the form {form}")
    if form is SchemaForm.TEXT:
        return protobuf.proto_text(parsed)
    return base64.b64encode(protobuf.file_descriptor(parsed)).decode()


def _size(definition: Definition) -> int:
    return len(definition.text) + sum(len(text) for _, text in definition.references)


def language(kind: SchemaKind) -> Language:
    """Return the implementation of a schema language; for plain kinds, a `PlainSchema`.

    Its module is imported on first use: a worker that never sees Protobuf does not hold it in memory.
    """
    match kind:
        case SchemaKind.AVRO:
            from penstock.schema import avro

            return avro
        case SchemaKind.JSON:
            from penstock.schema import jsonschema

            return jsonschema
        case SchemaKind.PROTOBUF:
            from penstock.schema import protobuf

            return protobuf
        case SchemaKind.STRING | SchemaKind.NUMBER | SchemaKind.BYTES:
            from penstock.schema.plain import PlainSchema

            return PlainSchema(kind)


def _cross_language_problems(reader: SchemaKind, writer: SchemaKind) -> list[Problem]:
    """Return the problem if the languages differ and the reader's cannot read the writer's. A reader of bytes reads
    anything, a reader of strings reads numbers and JSON."""
    readable = reader is SchemaKind.BYTES or (
        reader is SchemaKind.STRING and writer in (SchemaKind.NUMBER, SchemaKind.JSON)
    )
    if readable:
        return []
    return [
        Problem(
            kind="KIND_CHANGED",
            path="",
            message=f"what was written as {writer} cannot be read as {reader}",
            reader=reader,
            writer=writer,
            fix=f"register it under another subject, or keep {writer}",
        )
    ]
