"""Python types as schemas: the JSON Schema of a dataclass, a msgspec Struct or a pydantic model, and its codec."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import cached_property, partial
from inspect import signature
from typing import Any, Final, is_typeddict
from uuid import UUID

import msgspec
from msgspec import inspect

from penstock.client.serde.values import ValueMismatch, json_pointer
from penstock.core.errors import InvalidRequest
from penstock.core.schemas import Schema, SchemaKind

_DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
_BUILT_IN: Final = (bytes, date, datetime, Decimal, time, timedelta, UUID)
_NUMBERS: Final = (int, float)
_ONE: Final = frozenset({"items", "additionalProperties"})
_SEVERAL: Final = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_NAMED: Final = frozenset({"properties", "$defs"})
"""JSON Schema keywords that contain other schemas: `_ONE` a single schema, `_SEVERAL` a list, `_NAMED` a dict by
name."""
_STEP: Final = re.compile(r"\.([^.\[\]]+)|\[([^\]]*)\]")
_MSGSPEC_PATH: Final = re.compile(r" - at `(?:key in )?\$(.*)`$", re.DOTALL)
_EXTRA: Final = ("extra_forbidden", "unexpected_keyword_argument")
"""The types of pydantic's errors for a name that is not a field of the model or dataclass."""

Steps = tuple[str | int, ...]


class MsgspecCodec:
    """A codec for dataclasses, Structs, and any other type that msgspec knows."""

    indexes = None

    def __init__(self, kind: Any) -> None:
        try:
            self._decoder = msgspec.json.Decoder(kind)
        except (TypeError, NameError) as error:
            raise _no_type_codec(kind, error) from None
        self._kind = kind
        self._class = _class_of(kind)

    @cached_property
    def _info(self) -> inspect.Type:
        return inspect.type_info(self._kind)

    def schema(self) -> Schema:
        if self._kind in _NUMBERS:
            return Schema(kind=SchemaKind.NUMBER, text="")
        try:
            return _json_schema(msgspec.json.schema(self._kind))
        except TypeError as error:
            raise _no_type_codec(self._kind, error) from None

    def encode(self, value: Any) -> bytes:
        """Encode a value. Raises `ValueMismatch` if it does not fit the type, also for a name in a dict that is no
        field: its value would be lost.

        Python does not check the types of fields when an object is created, so the encoded payload is decoded once to
        check it.
        """
        if isinstance(value, dict):
            self._check_names(value)
            value = self.convert(value)
        elif not isinstance(value, self._class):
            raise _another_type(value, self._kind)
        try:
            written = msgspec.json.encode(value)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise ValueMismatch(str(error)) from None
        if msgspec.json.encode(self.decode(written)) != written:
            self._check_names(msgspec.json.decode(written))  # a dict may stand where an object should
        return written

    def _check_names(self, value: Any) -> None:
        try:
            unknown = next(_unknown(self._info, value, ()), None)
        except RecursionError:
            raise ValueMismatch("it is nested too deeply") from None
        if unknown is not None:
            raise unknown

    def decode(self, payload: bytes) -> Any:
        """Decode a payload. Unknown fields are ignored, and fields with a default may be missing. Raises
        `ValueMismatch`."""
        return _reading(self._decoder.decode, payload)

    def convert(self, plain: Any) -> Any:
        """Convert dicts, lists and plain values, as codecs of other languages return them, to this type. Raises
        `ValueMismatch`."""
        return _reading(partial(msgspec.convert, type=self._kind), plain)


class PydanticCodec:
    """A codec for pydantic models and dataclasses. pydantic validates a value when it is created."""

    indexes = None

    def __init__(self, kind: Any) -> None:
        from pydantic import PydanticUserError, TypeAdapter

        self._kind = kind
        try:
            self._adapter = TypeAdapter(kind)
        except (PydanticUserError, NameError) as error:
            raise _no_type_codec(kind, error) from None

    @cached_property
    def _derived(self) -> dict[str, Any]:
        from pydantic import PydanticUserError

        try:
            return self._adapter.json_schema(mode="serialization")
        except PydanticUserError as error:
            raise _no_type_codec(self._kind, error) from None

    def schema(self) -> Schema:
        return _json_schema(self._derived)

    def encode(self, value: Any) -> bytes:
        from pydantic_core import PydanticSerializationError

        if isinstance(value, dict):
            value = self._validated(self._validate_known, value)
        elif not isinstance(value, self._kind):
            raise _another_type(value, self._kind)
        try:
            return self._adapter.dump_json(value, by_alias=True, warnings="error")
        except PydanticSerializationError as error:
            self.convert(self._adapter.dump_python(value, by_alias=True, warnings=False))
            raise ValueMismatch(str(error)) from None

    def decode(self, payload: bytes) -> Any:
        return self._validated(self._adapter.validate_json, payload)

    def convert(self, plain: Any) -> Any:
        return self._validated(self._adapter.validate_python, plain)

    @cached_property
    def _validate_known(self) -> Callable[[Any], Any]:
        """The function that validates a dict and refuses unknown names, unless the model allows extra fields somewhere.
        With pydantic before 2.12, which has no such option, only the model's own rules apply."""
        validate = self._adapter.validate_python
        if _is_open(self._derived) or "extra" not in signature(validate).parameters:
            return validate
        return partial(validate, extra="forbid")

    def _validated(self, validate: Callable[[Any], Any], data: Any) -> Any:
        from pydantic import ValidationError

        try:
            return validate(data)
        except ValidationError as error:
            errors = error.errors(include_url=False, include_input=False)
            first = next((problem for problem in errors if problem["type"] in _EXTRA), errors[0])
            raise ValueMismatch(first["msg"], json_pointer(*first["loc"])) from None


TypeCodec = MsgspecCodec | PydanticCodec
"""The codec of a Python type. Values are written as JSON."""


def type_codec_of(kind: Any) -> TypeCodec:
    """Return the codec of a type: pydantic's for its models and dataclasses, else msgspec's. Raises `InvalidRequest`
    for a schema's text or JSON, and for a type whose values cannot be written as JSON."""
    if isinstance(kind, str | bytes | dict | list):
        raise InvalidRequest(f"which language is this schema in? AvroSchema({kind!r:.40}), or JsonSchema(...)")
    return PydanticCodec(kind) if isinstance(kind, type) and _is_pydantic(kind) else MsgspecCodec(kind)


def to_builtins(value: Any) -> Any:
    """Convert a dataclass, a Struct or a pydantic model to dicts; return any other value unchanged."""
    if _is_pydantic(type(value)):
        from pydantic import TypeAdapter

        return TypeAdapter(type(value)).dump_python(value, by_alias=True)
    if isinstance(value, msgspec.Struct) or is_dataclass(value):
        return msgspec.to_builtins(value, builtin_types=_BUILT_IN)
    return value


def _reading(read: Callable[[Any], Any], data: Any) -> Any:
    try:
        return read(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _mismatch(str(error)) from None


def _mismatch(sentence: str) -> ValueMismatch:
    """Build an error from msgspec's message, which ends with the path: "Expected `int`, got `str` - at
    `$.items[1].count`"."""
    location = _MSGSPEC_PATH.search(sentence)
    if location is None:
        return ValueMismatch(sentence)
    steps = (name or index for name, index in _STEP.findall(location[1]))
    return ValueMismatch(sentence[: location.start()], json_pointer(*steps))


def _class_of(kind: Any) -> type[Any]:
    """Return a class for `isinstance` checks of values of a type; `object` if the type has no such class."""
    if is_typeddict(kind):
        return dict
    return kind if isinstance(kind, type) and kind is not float else object


def _another_type(value: Any, kind: Any) -> ValueMismatch:
    return ValueMismatch(f"expected {kind.__name__}, not {type(value).__name__}")


def _no_type_codec(kind: Any, error: Exception) -> InvalidRequest:
    """Build the error for a type without a schema, from msgspec's error. Replaces msgspec's advice, which is for code
    that calls msgspec, by advice for users of Penstock."""
    advice, _, reason = str(error).rpartition("\n\n")
    hint = (
        "; make that a dataclass or a msgspec Struct, or all of it a pydantic model" if "schema_hook" in advice else ""
    )
    detail = reason if hint else error
    return InvalidRequest(f"{kind!r} is no type that a schema can be derived from: {detail}{hint}")


def _is_pydantic(kind: Any) -> bool:
    return hasattr(kind, "__pydantic_validator__")


def _json_schema(derived: dict[str, Any]) -> Schema:
    """Build the JSON Schema of a type, without additional properties. A field with a default can then be added in a
    later version, and the new type reads messages of the old one."""
    text = json.dumps({"$schema": _DRAFT} | _closed(derived), ensure_ascii=False)
    return Schema(kind=SchemaKind.JSON, text=text)


def _closed(schema: Any) -> Any:
    """Return a copy of a schema in which objects with named properties allow no others, unless the schema allows
    them."""
    if not isinstance(schema, dict):
        return schema
    closed = {word: _closed_under(word, inner) for word, inner in schema.items()}
    return {"additionalProperties": False} | closed if "properties" in schema else closed


def _closed_under(word: str, inner: Any) -> Any:
    if word in _ONE:
        return _closed(inner)
    if word in _SEVERAL:
        return [_closed(item) for item in inner]
    if word in _NAMED:
        return {name: _closed(item) for name, item in inner.items()}
    return inner


def _is_open(derived: Any) -> bool:
    """Return True if an object with named fields may have others, at any depth."""
    if isinstance(derived, list):
        return any(map(_is_open, derived))
    if not isinstance(derived, dict):
        return False
    here = "properties" in derived and derived.get("additionalProperties", False) is not False
    return here or any(map(_is_open, derived.values()))


# unknown names


def _unknown(kind: inspect.Type, value: Any, steps: Steps) -> Iterator[ValueMismatch]:
    """Yield a mismatch for each name in a value that is no field of its type. Other mismatches are found by the
    decoder."""
    match kind:
        case inspect.Metadata(type=inner):
            yield from _unknown(inner, value, steps)
        case inspect.UnionType(types=kinds):
            for item in kinds:
                if not _is_tagged_otherwise(item, value):
                    yield from _unknown(item, value, steps)
        case inspect.StructType(array_like=False) | inspect.DataclassType() | inspect.TypedDictType():
            yield from _fields_unknown(kind, value, steps)
        case _:
            for step, inner, item in _elements(kind, value):
                yield from _unknown(inner, item, (*steps, step))


def _fields_unknown(
    kind: inspect.StructType | inspect.DataclassType | inspect.TypedDictType, value: Any, steps: Steps
) -> Iterator[ValueMismatch]:
    if not isinstance(value, dict):
        return
    fields = {field.encode_name: field.type for field in kind.fields}
    tag_field = getattr(kind, "tag_field", None)
    for name, item in value.items():
        if name in fields:
            yield from _unknown(fields[name], item, (*steps, name))
        elif name != tag_field:
            yield ValueMismatch(f"{kind.cls.__name__} has no such field", json_pointer(*steps, str(name)))


def _elements(kind: inspect.Type, value: Any) -> Iterable[tuple[str | int, inspect.Type, Any]]:
    """Return the elements of a list, or of a dict with arbitrary keys, as triples: path step, type, value. Empty for
    other types."""
    match kind, value:
        case inspect.DictType(value_type=inner), dict():
            return [(str(name), inner, item) for name, item in value.items()]
        case inspect.CollectionType(item_type=inner), list() | tuple():
            return [(index, inner, item) for index, item in enumerate(value)]
        case inspect.TupleType(item_types=inners), list() | tuple():
            return [(index, *both) for index, both in enumerate(zip(inners, value, strict=False))]
        case inspect.NamedTupleType(fields=fields), list() | tuple():
            return [(index, field.type, item) for index, (field, item) in enumerate(zip(fields, value, strict=False))]
        case inspect.StructType(fields=fields, tag=tag), list() | tuple():
            start = 0 if tag is None else 1
            pairs = zip(fields, value[start:], strict=False)
            return [(index, field.type, item) for index, (field, item) in enumerate(pairs, start)]
    return ()


def _is_tagged_otherwise(kind: inspect.Type, value: Any) -> bool:
    """Return True if the tag in a value names another Struct of the union than `kind`."""
    match kind, value:
        case inspect.StructType(tag_field=str(field), tag=tag, array_like=False), dict():
            return bool(value.get(field) != tag)
        case inspect.StructType(tag_field=str(), tag=tag, array_like=True), [first, *_]:
            return bool(first != tag)
    return False
