"""Messages, their fields, extensions and enums as text."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, Final

from google.protobuf import descriptor_pb2

from penstock.schema.protobuf.limits import INT32_MAX, NUMBER_MAX
from penstock.schema.protobuf.literals import quoted
from penstock.schema.protobuf.parsing.fields import SCALARS
from penstock.schema.protobuf.printing.lines import Lines, Style, below, block, last_name, printed_range

_Proto: Final = descriptor_pb2.FieldDescriptorProto
_SCALARS: Final = {number: name for name, number in SCALARS.items()}
_LABELS: Final = {_Proto.LABEL_REQUIRED: "required ", _Proto.LABEL_REPEATED: "repeated "}

Brought = dict[str, Any]
"""Messages that are declared with a field: entries of maps and bodies of groups, by full name with a dot before it."""


def brought(scope: str, messages: Iterable[Any], fields: Iterable[Any]) -> Brought:
    """Those among the messages of a scope, whose fields and extensions these are."""
    groups = {field.type_name for field in fields if field.type == _Proto.TYPE_GROUP}
    named = ((f".{below(scope, each.name)}", each) for each in messages)
    return {name: each for name, each in named if each.options.map_entry or name in groups}


def message(style: Style, descriptor: Any, name: str) -> Lines:
    yield from block(f"message {descriptor.name}", _body(style, descriptor, name))


def enum(style: Style, descriptor: Any) -> Lines:
    def lines() -> Lines:
        yield from style.options(descriptor)
        yield from style.reserved(descriptor, past=0, to_max=INT32_MAX)
        for value in descriptor.value:
            yield f"{value.name} = {value.number}{style.brackets(value)};"

    yield from block(f"enum {descriptor.name}", lines())


def extends(style: Style, holder: Any, scope: str, within: Brought) -> Iterator[Lines]:
    """One block for each run of extensions of the same message."""
    for extendee, fields in groupby(holder.extension, key=lambda field: str(field.extendee)):
        lines = [line for field in fields for line in _field(style, field, scope, within)]
        yield block(f"extend {style.name(extendee, below(scope, '_'))}", lines)


def _body(style: Style, descriptor: Any, name: str) -> Lines:
    within = brought(name, descriptor.nested_type, (*descriptor.field, *descriptor.extension))
    yield from style.options(descriptor)
    yield from style.reserved(descriptor, past=1, to_max=NUMBER_MAX)
    for each in descriptor.extension_range:
        yield f"extensions {printed_range(each, 1, NUMBER_MAX)}{style.brackets(each)};"
    for each in descriptor.enum_type:
        yield from enum(style, each)
    yield from _members(style, descriptor, name, within)
    for lines in extends(style, descriptor, name, within):
        yield from lines


def _members(style: Style, descriptor: Any, name: str, within: Brought) -> Lines:
    """Fields and messages. One that a field brings with it keeps its place among the others: those before it are
    printed before it, so that positions of messages are the same when the text is parsed."""
    waiting = deque(descriptor.nested_type)
    for fields in _together(descriptor):
        for field in fields:
            if field.type_name in within:
                yield from _ordinary(style, waiting, name, within, up_to=field.type_name)
        yield from _one_or_oneof(style, descriptor, fields, name, within)
    yield from _ordinary(style, waiting, name, within, up_to="")


def _ordinary(style: Style, waiting: deque[Any], name: str, within: Brought, up_to: str) -> Lines:
    while waiting:
        full = below(name, waiting[0].name)
        if f".{full}" == up_to:
            return
        each = waiting.popleft()
        if f".{full}" not in within:
            yield from message(style, each, full)


def _together(descriptor: Any) -> Iterator[list[Any]]:
    """Each field by itself, but all of a oneof at the first of them."""
    oneofs: dict[int, list[Any]] = defaultdict(list)
    for field in descriptor.field:
        if _is_in_oneof(field):
            oneofs[field.oneof_index].append(field)
    for field in descriptor.field:
        if not _is_in_oneof(field):
            yield [field]
        elif field.oneof_index in oneofs:
            yield oneofs.pop(field.oneof_index)


def _is_in_oneof(field: Any) -> bool:
    return field.HasField("oneof_index") and not field.proto3_optional


def _one_or_oneof(style: Style, descriptor: Any, fields: list[Any], name: str, within: Brought) -> Lines:
    lines = (line for field in fields for line in _field(style, field, name, within))
    if not _is_in_oneof(fields[0]):
        yield from lines
        return
    oneof = descriptor.oneof_decl[fields[0].oneof_index]
    yield from block(f"oneof {oneof.name}", (*style.options(oneof), *lines))


def _field(style: Style, field: Any, scope: str, within: Brought) -> Lines:
    declared = within.get(field.type_name)
    if field.type == _Proto.TYPE_GROUP:
        head = f"{_label(style, field)}group {last_name(field.type_name)} = {field.number}{style.brackets(field)}"
        yield from block(head, _body(style, declared, field.type_name[1:]))
        return
    given = style.brackets(field, _pseudo_options(field))
    yield f"{_kind(style, field, declared, below(scope, field.name))} {field.name} = {field.number}{given};"


def _kind(style: Style, field: Any, entry: Any, own: str) -> str:
    if entry is None:
        return f"{_label(style, field)}{_type(style, field, own)}"
    key, value = (_type(style, each, f"{field.type_name[1:]}.{each.name}") for each in entry.field)
    return f"map<{key}, {value}>"


def _type(style: Style, field: Any, own: str) -> str:
    return style.name(field.type_name, own) if field.type_name else _SCALARS[field.type]


def _label(style: Style, field: Any) -> str:
    if _is_in_oneof(field):
        return ""
    wordless = style.file.edition or (style.file.syntax == "proto3" and not field.proto3_optional)
    return _LABELS.get(field.label, "" if wordless else "optional ")


def _pseudo_options(field: Any) -> Lines:
    if field.HasField("default_value"):
        yield f"default = {_default(field)}"
    if field.HasField("json_name"):
        yield f"json_name = {quoted(field.json_name)}"


def _default(field: Any) -> str:
    if field.type == _Proto.TYPE_STRING:
        return quoted(field.default_value)
    return f'"{field.default_value}"' if field.type == _Proto.TYPE_BYTES else str(field.default_value)
