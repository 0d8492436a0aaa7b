"""Options as text, whether they were interpreted or not."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

from google.protobuf import text_format
from google.protobuf.descriptor import FieldDescriptor

from penstock.schema.protobuf.linking.interpreting import known_options
from penstock.schema.protobuf.literals import escaped, quoted, shortest

_SKIPPED: Final = ("uninterpreted_option", "map_entry")
_REALS: Final = (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT)


def printed_options(holder: Any, pool: Any) -> Iterator[str]:
    """`name = value`, each; those of Protobuf itself first, and then in the order of their numbers."""
    if not holder.HasField("options"):
        return
    known = known_options(holder.options, pool)
    fields = [(field, value) for field, value in known.ListFields() if field.name not in _SKIPPED]
    for field, value in sorted(fields, key=lambda each: (each[0].is_extension, each[0].number)):
        yield from _printed(field, value)
    for option in holder.options.uninterpreted_option:
        yield written_option(option)


def written_option(option: Any) -> str:
    """One that was not interpreted."""
    return f"{_written_name(option)} = {_written_value(option)}"


def _printed(field: Any, value: Any) -> Iterator[str]:
    name = f"({field.full_name})" if field.is_extension else field.name
    if field.full_name.endswith("Options.features"):
        for inner, given in value.ListFields():
            yield from (f"{name}.{each}" for each in _printed(inner, given))
        return
    for each in value if field.is_repeated else (value,):
        yield f"{name} = {_value(field, each)}"


def _value(field: Any, value: Any) -> str:
    if field.message_type is not None:
        return _aggregate(text_format.MessageToString(value, as_utf8=True, as_one_line=True))
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else str(known.name)
    if field.cpp_type in _REALS:
        return _real(value)
    if isinstance(value, bytes):
        return f'"{escaped(value)}"'
    return quoted(value) if isinstance(value, str) else str(value).lower()


def _real(value: float) -> str:
    return f"-{shortest(-value)}" if value < 0 or math.copysign(1.0, value) < 0 else shortest(value)


def _aggregate(words: str) -> str:
    words = words.strip()
    return f"{{ {words} }}" if words else "{}"


def _written_name(option: Any) -> str:
    return ".".join(f"({part.name_part})" if part.is_extension else part.name_part for part in option.name)


def _written_value(option: Any) -> str:
    if option.HasField("aggregate_value"):
        return _aggregate(option.aggregate_value)
    if option.HasField("string_value"):
        return f'"{escaped(option.string_value)}"'
    if option.HasField("double_value"):
        return _real(option.double_value)
    for name in ("identifier_value", "positive_int_value", "negative_int_value"):
        if option.HasField(name):
            return str(getattr(option, name))
    return "{}"
