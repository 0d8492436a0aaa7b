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
from penstock.schema.protobuf.linking.linked_file import LinkedFile
from penstock.schema.protobuf.linking.option_values import known_options
from penstock.schema.protobuf.literals import escaped, quoted, shortest
from penstock.schema.protobuf.names import local
from penstock.schema.protobuf.parsing.fields import SCALARS
from penstock.schema.protobuf.parsing.files import EDITIONS

_SKIPPED: Final = ("uninterpreted_option", "map_entry")
_REALS: Final = (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT)


def print_options(holder: Any, pool: Any) -> Iterator[str]:
    """Yield `name = value` for each option; Protobuf's own first, and then by number."""
    if not holder.HasField("options"):
        return
    known = known_options(holder.options, pool)
    fields = [(field, value) for field, value in known.ListFields() if field.name not in _SKIPPED]
    for field, value in sorted(fields, key=lambda item: (item[0].is_extension, item[0].number)):
        yield from _print_option(field, value)
    for option in holder.options.uninterpreted_option:
        yield print_uninterpreted_option(option)


def print_uninterpreted_option(option: Any) -> str:
    """Return an option that was not interpreted."""
    return f"{_written_name(option)} = {_written_value(option)}"


def _print_option(field: Any, value: Any) -> Iterator[str]:
    name = f"({field.full_name})" if field.is_extension else field.name
    if field.full_name.endswith("Options.features"):
        for inner, inner_value in value.ListFields():
            yield from (f"{name}.{each}" for each in _print_option(inner, inner_value))
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
TypeNaming = Callable[[str, str], str]
"""A function that returns the name of a type, given its full name with a leading dot and the full name of the element
that uses it."""


@dataclass(frozen=True, slots=True)
class PrintContext:
    file: Any
    pool: Any
    """A pool that knows the options that the file uses."""
    name: TypeNaming

    def options(self, holder: Any) -> Lines:
        return (f"option {option};" for option in print_options(holder, self.pool))

    def brackets(self, holder: Any, first: Iterable[str] = ()) -> str:
        options = [*first, *print_options(holder, self.pool)]
        return f" [{', '.join(options)}]" if options else ""

    def reserved(self, holder: Any, past: int, to_max: int) -> Lines:
        """Yield ranges and names; `past` and `to_max` as for `print_range`."""
        if holder.reserved_range:
            yield f"reserved {', '.join(print_range(each, past, to_max) for each in holder.reserved_range)};"
        if holder.reserved_name:
            names = holder.reserved_name if self.file.edition else map(quoted, holder.reserved_name)
            yield f"reserved {', '.join(names)};"


def print_range(number_range: Any, past: int, to_max: int) -> str:
    """Return a range as text. `past` is 1 where the range's end is one past the last number, and 0 where it is the
    last. An end from `to_max` on is written as `max`."""
    last = number_range.end - past
    if last == number_range.start:
        return str(last)
    return f"{number_range.start} to {'max' if last >= to_max else last}"


def block(head: str, lines: Iterable[str]) -> Lines:
    within = [f"  {line}" for line in lines]
    if not within:
        yield f"{head} {{}}"
        return
    yield f"{head} {{"
    yield from within
    yield "}"


def scoped_name(scope: str, name: str) -> str:
    """Return the full name of an element in a scope."""
    return f"{scope}.{name}" if scope else name


def last_name(full: str) -> str:
    return full.rpartition(".")[2]


_Proto: Final = descriptor_pb2.FieldDescriptorProto
_SCALARS: Final = {number: name for name, number in SCALARS.items()}
_LABELS: Final = {_Proto.LABEL_REQUIRED: "required ", _Proto.LABEL_REPEATED: "repeated "}

Companions = dict[str, Any]
"""Messages that are declared with a field: entries of maps and bodies of groups, by full name with a leading dot."""


def companion_messages(scope: str, messages: Iterable[Any], fields: Iterable[Any]) -> Companions:
    """Return the companions among the messages of a scope. `fields`: the fields and extensions of that scope."""
    groups = {field.type_name for field in fields if field.type == _Proto.TYPE_GROUP}
    named = ((f".{scoped_name(scope, candidate.name)}", candidate) for candidate in messages)
    return {name: candidate for name, candidate in named if candidate.options.map_entry or name in groups}


def message(context: PrintContext, descriptor: Any, name: str) -> Lines:
    yield from block(f"message {descriptor.name}", _body(context, descriptor, name))


def enum(context: PrintContext, descriptor: Any) -> Lines:
    def lines() -> Lines:
        yield from context.options(descriptor)
        yield from context.reserved(descriptor, past=0, to_max=INT32_MAX)
        for value in descriptor.value:
            yield f"{value.name} = {value.number}{context.brackets(value)};"

    yield from block(f"enum {descriptor.name}", lines())


def extend_blocks(context: PrintContext, holder: Any, scope: str, within: Companions) -> Iterator[Lines]:
    """Yield one block for each run of extensions of the same message."""
    for extendee, fields in groupby(holder.extension, key=lambda field: str(field.extendee)):
        lines = [line for field in fields for line in _field(context, field, scope, within)]
        yield block(f"extend {context.name(extendee, scoped_name(scope, '_'))}", lines)


def _body(context: PrintContext, descriptor: Any, name: str) -> Lines:
    within = companion_messages(name, descriptor.nested_type, (*descriptor.field, *descriptor.extension))
    yield from context.options(descriptor)
    yield from context.reserved(descriptor, past=1, to_max=NUMBER_MAX)
    for element in descriptor.extension_range:
        yield f"extensions {print_range(element, 1, NUMBER_MAX)}{context.brackets(element)};"
    for element in descriptor.enum_type:
        yield from enum(context, element)
    yield from _members(context, descriptor, name, within)
    for lines in extend_blocks(context, descriptor, name, within):
        yield from lines


def _members(context: PrintContext, descriptor: Any, name: str, within: Companions) -> Lines:
    """Yield fields and messages.

    A companion message keeps its place among the others: those before it are printed before its field, so that
    positions of messages are the same when the text is parsed.
    """
    waiting = deque(descriptor.nested_type)
    for fields in _field_groups(descriptor):
        for field in fields:
            if field.type_name in within:
                yield from _plain_messages(context, waiting, name, within, up_to=field.type_name)
        yield from _field_group(context, descriptor, fields, name, within)
    yield from _plain_messages(context, waiting, name, within, up_to="")


def _plain_messages(context: PrintContext, waiting: deque[Any], name: str, within: Companions, up_to: str) -> Lines:
    while waiting:
        full = scoped_name(name, waiting[0].name)
        if f".{full}" == up_to:
            return
        nested = waiting.popleft()
        if f".{full}" not in within:
            yield from message(context, nested, full)


def _field_groups(descriptor: Any) -> Iterator[list[Any]]:
    """Yield each field by itself, but all fields of a oneof at the first of them."""
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


def _field_group(context: PrintContext, descriptor: Any, fields: list[Any], name: str, within: Companions) -> Lines:
    lines = (line for field in fields for line in _field(context, field, name, within))
    if not _is_in_oneof(fields[0]):
        yield from lines
        return
    oneof = descriptor.oneof_decl[fields[0].oneof_index]
    yield from block(f"oneof {oneof.name}", (*context.options(oneof), *lines))


def _field(context: PrintContext, field: Any, scope: str, within: Companions) -> Lines:
    declared = within.get(field.type_name)
    if field.type == _Proto.TYPE_GROUP:
        head = f"{_label(context, field)}group {last_name(field.type_name)} = {field.number}{context.brackets(field)}"
        yield from block(head, _body(context, declared, field.type_name[1:]))
        return
    brackets = context.brackets(field, _pseudo_options(field))
    yield f"{_kind(context, field, declared, scoped_name(scope, field.name))} {field.name} = {field.number}{brackets};"


def _kind(context: PrintContext, field: Any, entry: Any, own: str) -> str:
    if entry is None:
        return f"{_label(context, field)}{_type(context, field, own)}"
    key, value = (
        _type(context, entry_field, f"{field.type_name[1:]}.{entry_field.name}") for entry_field in entry.field
    )
    return f"map<{key}, {value}>"


def _type(context: PrintContext, field: Any, own: str) -> str:
    return context.name(field.type_name, own) if field.type_name else _SCALARS[field.type]


def _label(context: PrintContext, field: Any) -> str:
    if _is_in_oneof(field):
        return ""
    wordless = context.file.edition or (context.file.syntax == "proto3" and not field.proto3_optional)
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


def print_proto(linked: LinkedFile, pool: Any) -> str:
    """Return a text that parses to the same descriptors."""
    return print_file(PrintContext(linked.file, pool, _short_names(linked)))


def print_file(context: PrintContext) -> str:
    blocks = (_head(context.file), _imports(context.file), context.options(context.file), *_declarations(context))
    return "\n\n".join(text for text in ("\n".join(lines) for lines in blocks) if text) + "\n"


def _short_names(linked: LinkedFile) -> TypeNaming:
    """Return a function that names types without their package, where the short name means the same type."""

    visible = linked.scope()

    def name(full: str, scope: str) -> str:
        short = local(full[1:], linked.file.package)
        element = visible.find(short, scope, (visible.symbols[full[1:]].sort,))
        return short if not isinstance(element, str) and element.name == full[1:] else full

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


def _declarations(context: PrintContext) -> Iterator[Lines]:
    file, scope = context.file, context.file.package
    within = companion_messages(scope, file.message_type, file.extension)
    for element in file.message_type:
        name = scoped_name(scope, element.name)
        if f".{name}" not in within:
            yield message(context, element, name)
    for element in file.enum_type:
        yield enum(context, element)
    yield from extend_blocks(context, file, scope, within)
    for element in file.service:
        yield _service(context, element, scoped_name(scope, element.name))


def _service(context: PrintContext, service: Any, name: str) -> Lines:
    def lines() -> Lines:
        yield from context.options(service)
        for method in service.method:
            yield from _method(context, method, scoped_name(name, method.name))

    yield from block(f"service {service.name}", lines())


def _method(context: PrintContext, method: Any, name: str) -> Lines:
    input_ = ("stream " if method.client_streaming else "") + context.name(method.input_type, name)
    output = ("stream " if method.server_streaming else "") + context.name(method.output_type, name)
    head = f"rpc {method.name}({input_}) returns ({output})"
    if method.HasField("options"):
        yield from block(head, context.options(method))
    else:
        yield f"{head};"
