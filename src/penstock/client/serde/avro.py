"""The Avro codec. It uses fastavro, but refuses values that the schema does not allow, and payloads that would crash
fastavro."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from io import BytesIO
from typing import Any, Final

import fastavro

from penstock.client.serde.codecs import Indexes, abbreviated
from penstock.client.serde.python_types import to_builtins
from penstock.client.serde.values import ValueMismatch, json_pointer
from penstock.core.errors import InvalidRequest
from penstock.core.schemas import Definition, SchemaKind
from penstock.schema.avro.payload_steps import PAYLOAD_DEPTH_MAX
from penstock.schema.language import Validator
from penstock.schema.languages import language

_REFUSALS: Final = (ValueError, TypeError, AttributeError, KeyError, ArithmeticError, RecursionError)
"""Exceptions that fastavro raises for values that it cannot write. Its validation raises some of them too, for a
decimal with too many digits."""


class AvroCodec:
    indexes: Indexes = None

    def __init__(self, definition: Definition, reader: Definition | None = None, *, branches: bool = False) -> None:
        """Create a codec for payloads written with `definition`. Decoded values are converted to the schema `reader` if
        it is set.

        With `branches`, the value of a named branch of a union is decoded as a pair of the branch's name and the value.
        Raises `InvalidRequest` if fastavro does not accept the schema.
        """
        parsed = language(SchemaKind.AVRO).parse(definition.text, dict(definition.references))
        self._validator: Validator = parsed.validator()
        self._names: dict[str, Any] = {}
        self._schema = _parsed(definition, self._names)
        self._reader = None if reader is None else _parsed(reader, {})
        self._boundless = _UnboundedTypes(self._names).occur_in(self._schema)
        self._branches = branches

    def encode(self, value: Any) -> bytes:
        """Validate and encode a value. Validation is needed since fastavro alone would write 3 for 3.7. Raises
        `ValueMismatch`."""
        plain, payload = to_builtins(value), BytesIO()
        if self._boundless:
            _check_depth(plain)
        try:
            if not fastavro.validate(plain, self._schema, raise_errors=False):
                raise self._mismatch(plain)
            fastavro.schemaless_writer(payload, self._schema, plain, strict_allow_default=True)
        except _REFUSALS as error:
            if isinstance(error, ValueMismatch):
                raise
            raise self._mismatch(plain, str(error)) from None
        return payload.getvalue()

    def decode(self, payload: bytes) -> Any:
        if self._boundless:
            self._check(payload)
        data = BytesIO(payload)
        try:
            value = fastavro.schemaless_reader(data, self._schema, self._reader, return_named_type=self._branches)
        except Exception:
            self._check(payload)  # the validator says better what is wrong, and where
            raise
        if data.tell() < len(payload):
            self._check(payload)
        return value

    def _check(self, payload: bytes) -> None:
        fault = self._validator.fault(payload)
        if fault is not None:
            raise ValueMismatch(fault.message, fault.path)

    def _mismatch(self, value: Any, otherwise: str = "") -> ValueMismatch:
        """Return the error for the first mismatch in a value, as deep in the value as it can be located. `otherwise` is
        its text if none is found."""
        try:
            mismatch = next(_mismatches(self._schema, value, (), self._names), None)
        except RecursionError:
            mismatch = ValueMismatch("it is nested too deeply")
        return mismatch or ValueMismatch(otherwise or f"{abbreviated(value)} does not fit the schema")


def _parsed(definition: Definition, names: dict[str, Any]) -> Any:
    """Parse a schema and those that it refers to with fastavro, and add its named types to `names`. Raises
    `InvalidRequest`."""
    try:
        for _, text in definition.references:
            fastavro.parse_schema(json.loads(text), named_schemas=names)
        return fastavro.parse_schema(json.loads(definition.text), named_schemas=names)
    except (ValueError, fastavro.schema.SchemaParseException, fastavro.schema.UnknownType) as error:
        raise InvalidRequest(f"fastavro does not take this schema: {type(error).__name__}: {error}") from None


def _check_depth(value: Any) -> None:
    """Raise `ValueMismatch` for a value that is nested deeper than the broker accepts. fastavro would crash the
    process."""
    waiting = [(value, 0)]
    while waiting:
        item, depth = waiting.pop()
        if depth > PAYLOAD_DEPTH_MAX:
            raise ValueMismatch(f"it is nested more than {PAYLOAD_DEPTH_MAX} deep")
        inner = item.values() if isinstance(item, Mapping) else item if isinstance(item, list | tuple) else ()
        waiting += [(child, depth + 1) for child in inner]


Steps = tuple[str | int, ...]


def _mismatches(schema: Any, value: Any, steps: Steps, names: dict[str, Any]) -> Iterator[ValueMismatch]:
    """Yield the mismatches of a value that is known to have one, with their paths."""
    schema = names.get(schema, schema) if isinstance(schema, str) else schema
    kind = schema.get("type") if isinstance(schema, dict) else None
    if isinstance(schema, list):
        yield from _union_mismatches(schema, value, steps, names)
    elif kind == "record" and isinstance(value, Mapping):
        yield from _record_mismatches(schema, value, steps, names)
    elif kind == "array" and isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _mismatches(schema["items"], item, (*steps, index), names)
    elif kind == "map" and isinstance(value, Mapping):
        for key, item in value.items():
            yield from _mismatches(schema["values"], item, (*steps, key), names)
    elif not _fits(schema, value, names):
        yield ValueMismatch(f"{abbreviated(value)} is no {_named(schema)}", json_pointer(*steps))


def _record_mismatches(
    schema: dict[str, Any], value: Mapping[str, Any], steps: Steps, names: dict[str, Any]
) -> Iterator[ValueMismatch]:
    for field in schema["fields"]:
        name = field["name"]
        if name in value:
            yield from _mismatches(field["type"], value[name], (*steps, name), names)
        elif "default" not in field and not _fits(field["type"], None, names):
            yield ValueMismatch("it is missing, and has no default", json_pointer(*steps, name))
    for name in value.keys() - {field["name"] for field in schema["fields"]} - {"-type"}:
        yield ValueMismatch(f"{_named(schema)} has no such field", json_pointer(*steps, name))


def _union_mismatches(schema: list[Any], value: Any, steps: Steps, names: dict[str, Any]) -> Iterator[ValueMismatch]:
    """Yield the mismatches of a value of a union. If only one branch beside null is possible, search inside that
    branch."""
    likely = [branch for branch in schema if branch != "null"]
    if len(likely) == 1 and value is not None:
        yield from _mismatches(likely[0], value, steps, names)
    elif not _fits(schema, value, names):
        kinds = ", ".join(map(_named, schema))
        yield ValueMismatch(f"{abbreviated(value)} is none of {kinds}", json_pointer(*steps))


def _fits(schema: Any, value: Any, names: dict[str, Any]) -> bool:
    if isinstance(schema, list):
        return any(_fits(branch, value, names) for branch in schema)
    if isinstance(schema, str) and schema in names:
        return _fits(names[schema], value, names)
    if isinstance(schema, dict):
        schema = schema | {"__fastavro_parsed": True, "__named_schemas": names}
    try:
        if not fastavro.validate(value, schema, raise_errors=False):
            return False
        fastavro.schemaless_writer(BytesIO(), schema, value, strict_allow_default=True)
    except _REFUSALS:
        return False
    return True


def _named(schema: Any) -> str:
    if not isinstance(schema, dict):
        return str(schema)
    if schema.get("logicalType") == "decimal":
        return f"decimal({schema['precision']}, {schema.get('scale', 0)})"
    return str(schema.get("name") or schema.get("logicalType") or schema["type"])


class _UnboundedTypes:
    """A search for types by which a short payload can stand for a very large value: types nested in themselves, or
    arrays of items that take no bytes. fastavro would crash the process on such a payload."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        self._names = names
        self._known: dict[str, bool] = {}
        """Results by record name. A record counts as unbounded while it is searched: if it is met again, it is nested
        in itself."""
        self._empty: dict[str, bool] = {}

    def occur_in(self, schema: Any) -> bool:
        schema = self._resolved(schema)
        if isinstance(schema, list):
            return any(map(self.occur_in, schema))
        match schema:
            case {"type": "record", "name": name, "fields": fields}:
                if name not in self._known:
                    self._known[name] = True
                    self._known[name] = any(self.occur_in(field["type"]) for field in fields)
                return self._known[name]
            case {"type": "array", "items": items}:
                return self._is_nothing(items) or self.occur_in(items)
            case {"type": "map", "values": values}:
                return self.occur_in(values)
        return False

    def _is_nothing(self, schema: Any) -> bool:
        """Return True if every value of the schema takes no bytes."""
        match self._resolved(schema):
            case "null" | {"type": "null"} | {"type": "fixed", "size": 0}:
                return True
            case {"type": "record", "name": name, "fields": fields}:
                if name not in self._empty:
                    self._empty[name] = False
                    self._empty[name] = all(self._is_nothing(field["type"]) for field in fields)
                return self._empty[name]
        return False

    def _resolved(self, schema: Any) -> Any:
        return self._names.get(schema, schema) if isinstance(schema, str) else schema
