"""Rules of protoc beyond the grammar, except those about options. They are checked here because the library's
descriptor pool would accept most violations."""

from __future__ import annotations

import re
from typing import Any, Final

from google.protobuf import descriptor_pb2

from penstock.schema.protobuf.elements import Element, ElementKind
from penstock.schema.protobuf.limits import LIBRARY_NUMBERS, MESSAGE_DEPTH_MAX, NUMBER_MAX
from penstock.schema.protobuf.linking.checks import Rule, RuleContext, outer
from penstock.schema.protobuf.names import IDENTIFIER, camel_case, local, value_name
from penstock.schema.protobuf.numbers import Ranges
from penstock.schema.protobuf.parsing.cursor import Dialect

_Proto: Final = descriptor_pb2.FieldDescriptorProto
_MESSAGES: Final = (_Proto.TYPE_MESSAGE, _Proto.TYPE_GROUP)
_KEYS_REFUSED: Final = (*_MESSAGES, _Proto.TYPE_ENUM, _Proto.TYPE_FLOAT, _Proto.TYPE_DOUBLE, _Proto.TYPE_BYTES)

_DEFAULTS: Final = {
    **dict.fromkeys(
        (
            *(_Proto.TYPE_INT32, _Proto.TYPE_INT64, _Proto.TYPE_UINT32, _Proto.TYPE_UINT64, _Proto.TYPE_SINT32),
            *(_Proto.TYPE_SINT64, _Proto.TYPE_FIXED32, _Proto.TYPE_FIXED64, _Proto.TYPE_SFIXED32, _Proto.TYPE_SFIXED64),
        ),
        re.compile(r"-?(?:0|[1-9][0-9]{0,19})"),
    ),
    **dict.fromkeys(
        (_Proto.TYPE_FLOAT, _Proto.TYPE_DOUBLE),
        re.compile(r"-?(?:inf|nan|(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:e[+-]?[0-9]{1,3})?)"),
    ),
    _Proto.TYPE_BOOL: re.compile("true|false"),
    _Proto.TYPE_BYTES: re.compile(r"""(?:[ !#-\[\]-~]|\\[0-3][0-7]{2}|\\[nrt"'\\])*+"""),
}


# Names


def _is_named(file: RuleContext, element: Element) -> str | None:  # noqa: ARG001
    """Check the name: the grammar ensures it, but not for a descriptor from elsewhere."""
    return None if IDENTIFIER.fullmatch(element.descriptor.name) else "a name has letters, digits and underscores only"


def _is_not_too_deep(file: RuleContext, element: Element) -> str | None:
    depth = len(local(element.name, file.linked.file.package).split("."))
    return f"messages are nested more than {MESSAGE_DEPTH_MAX} deep" if depth > MESSAGE_DEPTH_MAX else None


# Messages


def _has_sound_ranges(file: RuleContext, element: Element) -> str | None:  # noqa: ARG001
    message = element.descriptor
    for number_range in (*message.reserved_range, *message.extension_range):
        if not 1 <= number_range.start < number_range.end:
            return "the numbers of fields begin at 1"
    number = Ranges.of((*message.reserved_range, *message.extension_range)).first_overlap()
    return None if number is None else f"the number {number} is in two ranges, reserved or of extensions"


def _has_its_own_reserved_names(file: RuleContext, element: Element) -> str | None:  # noqa: ARG001
    names = element.descriptor.reserved_name
    return "a name is reserved twice" if len(set(names)) < len(names) else None


def _has_distinct_numbers(file: RuleContext, element: Element) -> str | None:  # noqa: ARG001
    seen: dict[int, str] = {}
    for field in element.descriptor.field:
        other = seen.setdefault(field.number, field.name)
        if other != field.name:
            return f'the fields "{other}" and "{field.name}" have the number {field.number} in common'
    return None


def _has_distinct_json_names(file: RuleContext, element: Element) -> str | None:  # noqa: ARG001
    """Check given and derived JSON names. In proto2 protoc only warns of derived ones, but no library that makes JSON
    can have such fields."""
    fields = element.descriptor.field
    derived = {field.name: camel_case(field.name) for field in fields}
    return _clash(derived) or _clash({field.name: field.json_name or derived[field.name] for field in fields})


def _clash(names: dict[str, str]) -> str | None:
    seen: dict[str, str] = {}
    for field, name in names.items():
        other = seen.setdefault(name, field)
        if other != field:
            return f'the fields "{other}" and "{field}" have the name "{name}" in JSON in common'
    return None


def _has_no_empty_oneof(file: RuleContext, element: Element) -> str | None:  # noqa: ARG001
    message = element.descriptor
    used = {field.oneof_index for field in message.field if field.HasField("oneof_index")}
    if used - set(range(len(message.oneof_decl))):
        return "a field is in a oneof that is not there"
    empty = [oneof.name for index, oneof in enumerate(message.oneof_decl) if index not in used]
    return f'the oneof "{empty[0]}" has no fields' if empty else None


# Fields


def _has_number(file: RuleContext, element: Element) -> str | None:
    number = element.descriptor.number
    if not 1 <= number <= NUMBER_MAX and not _is_of_message_set(file, element):
        return f"the number of a field is 1 to {NUMBER_MAX}, not {number}"
    if number in LIBRARY_NUMBERS:
        return "the numbers 19000 to 19999 belong to Protobuf itself"
    return None


def _is_of_message_set(file: RuleContext, element: Element) -> bool:
    """Return whether an extension is of a message set: options are not interpreted yet, but only message sets have so
    many extensions."""
    if element.sort is not ElementKind.EXTENSION:
        return False
    extendee = file.find(element.descriptor.extendee).descriptor
    return bool(extendee.extension_range and extendee.extension_range[-1].end > NUMBER_MAX + 1)


def _is_not_reserved(file: RuleContext, element: Element) -> str | None:
    field = element.descriptor
    numbers, names = file.taken(element)
    if field.name in names:
        return f'the name "{field.name}" is reserved'
    return f"the number {field.number} is reserved, or one of extensions" if field.number in numbers else None


def _has_a_name_for_json(file: RuleContext, element: Element) -> str | None:  # noqa: ARG001
    name = element.descriptor.json_name
    if "\0" in name or (name.startswith("[") and name.endswith("]")):
        return "a json_name has no NUL in it, and is not in square brackets"
    return None


def _has_the_label_of_its_dialect(file: RuleContext, element: Element) -> str | None:
    field, spoken = element.descriptor, file.dialect
    if spoken is Dialect.PROTO3 and (field.label == _Proto.LABEL_REQUIRED or field.type == _Proto.TYPE_GROUP):
        return "there are neither required fields nor groups in proto3"
    if field.HasField("oneof_index") and field.label != _Proto.LABEL_OPTIONAL:
        return "a field of a oneof has no label"
    if field.proto3_optional and (spoken is not Dialect.PROTO3 or field.label != _Proto.LABEL_OPTIONAL):
        return "only an optional field of proto3 can be marked as such"
    return None


def _may_have_its_default(file: RuleContext, element: Element) -> str | None:
    field = element.descriptor
    if not field.HasField("default_value"):
        return None
    if file.dialect is Dialect.PROTO3:
        return "there are no defaults in proto3"
    if field.label == _Proto.LABEL_REPEATED:
        return "a repeated field has no default"
    if field.type in _MESSAGES:
        return "a message has no default"
    if field.type == _Proto.TYPE_ENUM:
        return None if _is_value(file, field) else f'the enum has no value "{field.default_value}"'
    return None


def _has_a_default_as_parsers_write_it(file: RuleContext, element: Element) -> str | None:  # noqa: ARG001
    field = element.descriptor
    written = _DEFAULTS.get(field.type)
    if field.HasField("default_value") and written is not None and not written.fullmatch(field.default_value):
        return "the default is not a value of the field's type"
    return None


def _is_value(file: RuleContext, field: Any) -> bool:
    """Return whether the default is a value of the enum. Values are siblings of their enum, not within it."""
    enum = file.find(field.type_name)
    beside = f"{outer(enum.name)}.{field.default_value}".removeprefix(".")
    value = file.scope.symbols.get(beside)
    return value is not None and value.parent is enum.descriptor


def _is_a_map_if_it_looks_like_one(file: RuleContext, element: Element) -> str | None:
    """Check map entries: a descriptor could mark any message as one, and libraries believe it."""
    field = element.descriptor
    if field.type != _Proto.TYPE_MESSAGE:
        return None
    entry = file.find(field.type_name)
    if not entry.descriptor.options.map_entry:
        return None
    if (
        element.sort is not ElementKind.FIELD
        or field.label != _Proto.LABEL_REPEATED
        or outer(entry.name) != outer(element.name)
    ):
        return "the entry of a map is in the same message as the map, which is repeated"
    return None


def _has_its_group_beside_it(file: RuleContext, element: Element) -> str | None:
    """Check groups: text cannot declare them otherwise, but a descriptor could."""
    field = element.descriptor
    if field.type != _Proto.TYPE_GROUP:
        return None
    scope, _, name = field.type_name[1:].rpartition(".")
    if file.dialect is not Dialect.PROTO2 or scope != outer(element.name) or name.lower() != field.name:
        return "a group is declared with its field, and has the same name"
    return None


def _is_an_entry_if_it_says_so(file: RuleContext, element: Element) -> str | None:  # noqa: ARG001
    message = element.descriptor
    if not message.options.map_entry:
        return None
    shape = [(field.name, field.number, field.label) for field in message.field]
    if shape != [("key", 1, _Proto.LABEL_OPTIONAL), ("value", 2, _Proto.LABEL_OPTIONAL)] or message.oneof_decl:
        return "the entry of a map has a key and a value, and nothing else"
    if message.field[0].type in _KEYS_REFUSED or message.field[1].type == _Proto.TYPE_GROUP:
        return "the key of a map is an integer, a bool or a string"
    return None


# Extensions


def _extends_what_may_be_extended(file: RuleContext, element: Element) -> str | None:
    extension = element.descriptor
    extendee = file.find(extension.extendee)
    if extension.number not in file.extensible(extendee):
        return f'"{extendee.name}" does not have {extension.number} among the numbers of its extensions'
    if file.first_extension(element) != element.name:
        return f'"{file.first_extension(element)}" already extends that message with the number {extension.number}'
    if extension.label == _Proto.LABEL_REQUIRED or extension.HasField("oneof_index"):
        return "an extension is not required and in no oneof"
    if file.dialect is Dialect.PROTO3 and not _holds_options(extendee.name):
        return "proto3 has extensions of options only"
    return None


def _holds_options(name: str) -> bool:
    return name.startswith("google.protobuf.") and name.endswith(("Options", "FeatureSet"))


# Enums


def _has_values(file: RuleContext, element: Element) -> str | None:  # noqa: ARG001
    return None if element.descriptor.value else "an enum has at least one value"


def _has_values_that_are_not_reserved(file: RuleContext, element: Element) -> str | None:  # noqa: ARG001
    enum = element.descriptor
    if any(number_range.start > number_range.end for number_range in enum.reserved_range):
        return "a range ends before it begins"
    reserved = Ranges.of(enum.reserved_range, past=1)
    overlap = reserved.first_overlap()
    if overlap is not None:
        return f"the number {overlap} is reserved twice"
    names = set(enum.reserved_name)
    used = [value.name for value in enum.value if value.number in reserved or value.name in names]
    return f'the name or number of "{used[0]}" is reserved' if used else None


def _has_distinct_values(file: RuleContext, element: Element) -> str | None:  # noqa: ARG001
    enum = element.descriptor
    seen: dict[str, Any] = {}
    for value in enum.value:
        other = seen.setdefault(value_name(enum.name, value.name), value)
        if other.number != value.number:
            return f'the values "{other.name}" and "{value.name}" differ only in letter case or the enum\'s name'
    return None


STRUCTURE: Final[dict[ElementKind, tuple[Rule, ...]]] = {
    ElementKind.MESSAGE: (
        _is_named,
        _is_not_too_deep,
        _has_sound_ranges,
        _has_its_own_reserved_names,
        _has_distinct_numbers,
        _has_distinct_json_names,
        _has_no_empty_oneof,
        _is_an_entry_if_it_says_so,
    ),
    ElementKind.FIELD: (
        _is_named,
        _has_number,
        _is_not_reserved,
        _has_a_name_for_json,
        _has_the_label_of_its_dialect,
        _may_have_its_default,
        _has_a_default_as_parsers_write_it,
        _is_a_map_if_it_looks_like_one,
        _has_its_group_beside_it,
    ),
    ElementKind.EXTENSION: (
        _is_named,
        _has_number,
        _has_the_label_of_its_dialect,
        _may_have_its_default,
        _has_a_default_as_parsers_write_it,
        _is_a_map_if_it_looks_like_one,
        _has_its_group_beside_it,
        _extends_what_may_be_extended,
    ),
    ElementKind.ONEOF: (_is_named,),
    ElementKind.ENUM: (
        _is_named,
        _has_values,
        _has_its_own_reserved_names,
        _has_values_that_are_not_reserved,
        _has_distinct_values,
    ),
    ElementKind.VALUE: (_is_named,),
    ElementKind.SERVICE: (_is_named,),
    ElementKind.METHOD: (_is_named,),
}
