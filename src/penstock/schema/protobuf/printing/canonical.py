"""The canonical text: one text for all schemas that mean the same.

Everything whose order has no meaning is sorted: fields by number, imports, enums, extensions and services by name,
ranges and reserved names.

The order of messages stays, because payloads are the first message, and clients of other registries name a message by
its position. The first value of an enum stays first, because it is the default of a closed enum.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf import descriptor_pb2

from penstock.schema.protobuf.elements import ElementKind, elements
from penstock.schema.protobuf.linking.library import ROOT, FileLibrary
from penstock.schema.protobuf.linking.linked_file import LinkedFile
from penstock.schema.protobuf.literals import quoted
from penstock.schema.protobuf.names import camel_case
from penstock.schema.protobuf.numbers import Ranges
from penstock.schema.protobuf.printing.text import PrintContext, print_file, print_uninterpreted_option

_Proto: Final = descriptor_pb2.FieldDescriptorProto
_PACKED_BY_DEFAULT: Final = {"proto3": True, "": False}


def canonical(library: FileLibrary) -> str:
    """Return the schema's own file, and then all others it needs that are not well known, each below its name."""
    others = sorted(name for name in library.files if name != ROOT and name not in library.well_known)
    pieces = (f"// {quoted(name)}\n\n{_canonical(library.files[name], library.pool)}" for name in others)
    return "\n".join((_canonical(library.files[ROOT], library.pool), *pieces))


def _canonical(linked: LinkedFile, pool: Any) -> str:
    file = descriptor_pb2.FileDescriptorProto()
    file.CopyFrom(linked.file)
    _sort_file(file)
    for element in elements(file):
        if element.descriptor.HasField("options"):
            _drop_defaults(file, element.descriptor)
        if element.sort is ElementKind.FIELD and element.descriptor.json_name == camel_case(element.descriptor.name):
            element.descriptor.ClearField("json_name")
    return print_file(PrintContext(file, pool, lambda full, _: full))


def _sort_file(file: Any) -> None:
    _sort_imports(file)
    for message in file.message_type:
        _sort_message(message)
    _sort_enums_and_extensions(file)
    file.service.sort(key=lambda each: each.name)
    for service in file.service:
        service.method.sort(key=lambda each: each.name)


def _sort_imports(file: Any) -> None:
    public = {file.dependency[index] for index in file.public_dependency}
    weak = {file.dependency[index] for index in file.weak_dependency}
    names = sorted(file.dependency)
    for attribute, values in (
        ("dependency", names),
        ("public_dependency", [index for index, name in enumerate(names) if name in public]),
        ("weak_dependency", [index for index, name in enumerate(names) if name in weak]),
    ):
        file.ClearField(attribute)
        getattr(file, attribute).extend(values)


def _sort_enums_and_extensions(holder: Any) -> None:
    """Sort the contents that files and messages have in common."""
    holder.enum_type.sort(key=lambda each: each.name)
    for enum in holder.enum_type:
        _sort_enum(enum)
    holder.extension.sort(key=lambda each: (each.extendee, each.number))


def _sort_message(message: Any) -> None:
    for nested in message.nested_type:
        _sort_message(nested)
    message.nested_type.sort(key=lambda each: each.options.map_entry)
    _sort_oneofs(message)
    message.field.sort(key=lambda each: each.number)
    message.extension_range.sort(key=lambda each: each.start)
    _sort_reserved(message, past=0)
    _sort_enums_and_extensions(message)


def _sort_oneofs(message: Any) -> None:
    names = [each.name for each in message.oneof_decl]
    message.oneof_decl.sort(key=lambda each: each.name)
    indices = {each.name: index for index, each in enumerate(message.oneof_decl)}
    for field in message.field:
        if field.HasField("oneof_index"):
            field.oneof_index = indices[names[field.oneof_index]]


def _sort_enum(enum: Any) -> None:
    first = enum.value[0].name
    enum.value.sort(key=lambda each: (each.name != first, each.number))
    _sort_reserved(enum, past=1)


def _sort_reserved(holder: Any, past: int) -> None:
    ranges = Ranges.of(holder.reserved_range, past).joined()
    names = sorted(holder.reserved_name)
    holder.ClearField("reserved_range")
    holder.ClearField("reserved_name")
    for start, end in zip(ranges.starts, ranges.ends, strict=True):
        holder.reserved_range.add(start=start, end=end - past)
    holder.reserved_name.extend(names)


def _drop_defaults(file: Any, holder: Any) -> None:
    """Drop options that state the default."""
    options = holder.options
    options.uninterpreted_option.sort(key=print_uninterpreted_option)
    for field, value in options.ListFields():
        scalar = not field.is_repeated and field.message_type is None and not field.is_extension
        if scalar and value == _default_value(file, field):
            options.ClearField(field.name)
    if not options.ByteSize():
        holder.ClearField("options")


def _default_value(file: Any, field: Any) -> Any:
    return _PACKED_BY_DEFAULT.get(file.syntax) if field.name == "packed" else field.default_value
