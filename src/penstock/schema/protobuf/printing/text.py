"""Descriptors as .proto text, as a person would write it."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from google.protobuf import descriptor_pb2, text_format
from google.protobuf.descriptor import FieldDescriptor

from penstock.schema.protobuf.limits import INT32_MAX, NUMBER_MAX
from penstock.schema.protobuf.linking.link import Linked
from penstock.schema.protobuf.linking.option_values import known_options
from penstock.schema.protobuf.literals import escaped, quoted, shortest
from penstock.schema.protobuf.names import local
from penstock.schema.protobuf.parsing.fields import SCALARS
from penstock.schema.protobuf.parsing.files import EDITIONS

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


Lines = Iterator[str]
Naming = Callable[[str, str], str]
"""How a type is called, given its full name with a dot before it, by something that has a full name itself."""


@dataclass(frozen=True, slots=True)
class Style:
    file: Any
    pool: Any
    """Knows the options that the file uses."""
    name: Naming

    def options(self, holder: Any) -> Lines:
        return (f"option {each};" for each in printed_options(holder, self.pool))

    def brackets(self, holder: Any, first: Iterable[str] = ()) -> str:
        given = [*first, *printed_options(holder, self.pool)]
        return f" [{', '.join(given)}]" if given else ""

    def reserved(self, holder: Any, past: int, to_max: int) -> Lines:
        """Ranges and names; `past` and `to_max` as for `printed_range`."""
        if holder.reserved_range:
            yield f"reserved {', '.join(printed_range(each, past, to_max) for each in holder.reserved_range)};"
        if holder.reserved_name:
            names = holder.reserved_name if self.file.edition else map(quoted, holder.reserved_name)
            yield f"reserved {', '.join(names)};"


def printed_range(given: Any, past: int, to_max: int) -> str:
    """`past` is 1 where the end is one past the last, and 0 where it is the last."""
    last = given.end - past
    if last == given.start:
        return str(last)
    return f"{given.start} to {'max' if last >= to_max else last}"


def block(head: str, lines: Iterable[str]) -> Lines:
    within = [f"  {line}" for line in lines]
    if not within:
        yield f"{head} {{}}"
        return
    yield f"{head} {{"
    yield from within
    yield "}"


def below(scope: str, name: str) -> str:
    """The full name of something in a scope."""
    return f"{scope}.{name}" if scope else name


def last_name(full: str) -> str:
    return full.rpartition(".")[2]


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


_EDITIONS: Final = {number: name for name, number in EDITIONS.items()}


def printed(linked: Linked, pool: Any) -> str:
    """Parsed again, it gives the same descriptors."""
    return printed_file(Style(linked.file, pool, _short_names(linked)))


def printed_file(style: Style) -> str:
    blocks = (_head(style.file), _imports(style.file), style.options(style.file), *_declarations(style))
    return "\n\n".join(each for each in ("\n".join(lines) for lines in blocks) if each) + "\n"


def _short_names(linked: Linked) -> Naming:
    """Without the package where that means the same."""

    visible = linked.scope()

    def name(full: str, scope: str) -> str:
        short = local(full[1:], linked.file.package)
        found = visible.find(short, scope, (visible.symbols[full[1:]].sort,))
        return short if not isinstance(found, str) and found.name == full[1:] else full

    return name


def _head(file: Any) -> Lines:
    yield f'edition = "{_EDITIONS[file.edition]}";' if file.edition else f'syntax = "{file.syntax or "proto2"}";'
    if file.package:
        yield ""
        yield f"package {file.package};"


def _imports(file: Any) -> Lines:
    for index, name in enumerate(file.dependency):
        public = "public " if index in file.public_dependency else ""
        weak = "weak " if index in file.weak_dependency else ""
        yield f"import {public}{weak}{quoted(name)};"


def _declarations(style: Style) -> Iterator[Lines]:
    file, scope = style.file, style.file.package
    within = brought(scope, file.message_type, file.extension)
    for each in file.message_type:
        name = below(scope, each.name)
        if f".{name}" not in within:
            yield message(style, each, name)
    for each in file.enum_type:
        yield enum(style, each)
    yield from extends(style, file, scope, within)
    for each in file.service:
        yield _service(style, each, below(scope, each.name))


def _service(style: Style, service: Any, name: str) -> Lines:
    def lines() -> Lines:
        yield from style.options(service)
        for method in service.method:
            yield from _method(style, method, below(name, method.name))

    yield from block(f"service {service.name}", lines())


def _method(style: Style, method: Any, name: str) -> Lines:
    taken = ("stream " if method.client_streaming else "") + style.name(method.input_type, name)
    given = ("stream " if method.server_streaming else "") + style.name(method.output_type, name)
    head = f"rpc {method.name}({taken}) returns ({given})"
    if method.HasField("options"):
        yield from block(head, style.options(method))
    else:
        yield f"{head};"
