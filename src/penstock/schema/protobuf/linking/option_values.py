"""The interpreter of options: from names and values as written to the fields of option messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf import descriptor_pb2, message_factory, text_format
from google.protobuf.descriptor import FieldDescriptor

from penstock.schema.errors import InvalidSchema
from penstock.schema.problems import fragment
from penstock.schema.protobuf.elements import Element, ElementKind, elements
from penstock.schema.protobuf.linking.linked_file import LinkedFile, VisibleNames

_DESCRIPTORS: Final = "google/protobuf/descriptor.proto"
_INT32: Final = range(-(2**31), 2**31)
_INT64: Final = range(-(2**63), 2**63)
_UINT32: Final = range(2**32)
_UINT64: Final = range(2**64)
_RANGES: Final = {
    FieldDescriptor.CPPTYPE_INT32: _INT32,
    FieldDescriptor.CPPTYPE_INT64: _INT64,
    FieldDescriptor.CPPTYPE_UINT32: _UINT32,
    FieldDescriptor.CPPTYPE_UINT64: _UINT64,
}


class _OptionError(Exception):
    """The reason why an option is invalid."""


@dataclass(frozen=True, slots=True)
class OptionInterpreter:
    """The interpreter for the options that one file can use."""

    linked: LinkedFile
    scope: VisibleNames
    pool: Any
    """A pool with a draft of that file; None if only built-in options are interpreted."""

    def interpret(self, file: Any) -> None:
        """Interpret the options of every element. An option that nothing visible defines stays uninterpreted. Raises
        `InvalidSchema` for an option with an invalid name or value."""
        for element in elements(file):
            descriptor = element.descriptor
            if descriptor.HasField("options") and descriptor.options.uninterpreted_option:
                self._interpret(element)

    def _interpret(self, element: Element) -> None:
        written = list(element.descriptor.options.uninterpreted_option)
        element.descriptor.options.ClearField("uninterpreted_option")
        options = known_options(element.descriptor.options, self.pool)
        unknown = []
        for index, option in enumerate(written):
            try:
                if not self._set(options, option, _scope(element)):
                    unknown.append(option)
            except _OptionError as wrong:
                raise self._refusal(element, index, str(wrong)) from None
        if not options.IsInitialized():
            raise self._refusal(element, 0, "in a message that is the value of an option, required fields are missing")
        element.descriptor.options.ParseFromString(options.SerializePartialToString(deterministic=True))
        element.descriptor.options.uninterpreted_option.extend(unknown)

    def _refusal(self, element: Element, index: int, message: str) -> InvalidSchema:
        package = self.linked.file.package
        return self.linked.source.refusal(message, element.option_key(index, package), element.name)

    def _set(self, options: Any, option: Any, scope: str) -> bool:
        """Set an option; return False if nothing visible defines it."""
        shown = _shown(option)
        if not option.name:
            raise _OptionError("an option without a name")
        if self.pool is None and any(part.is_extension for part in option.name):
            return False
        holder, *inner = list(option.name)
        field = self._field(options, holder, scope, shown)
        if field is None:
            return False
        message = options
        for part in inner:
            message = _step_into(message, field, shown)
            field = self._field(message, part, scope, shown)
            if field is None:
                raise _OptionError(f"the option {shown} is unknown")
        _assign(message, field, option, shown, self.pool)
        return True

    def _field(self, message: Any, part: Any, scope: str, shown: str) -> Any:
        if part.is_extension:
            return self._extension(message, part.name_part, scope, shown)
        field = message.DESCRIPTOR.fields_by_name.get(part.name_part)
        if field is None or _is_not_for_people(field):
            raise _OptionError(f"the option {shown} is unknown")
        return field

    def _extension(self, message: Any, name: str, scope: str, shown: str) -> Any:
        element = self.scope.find(name, scope, (ElementKind.EXTENSION,))
        if isinstance(element, str):
            return None
        field = self.pool.FindExtensionByName(element.name)
        if field.containing_type is not message.DESCRIPTOR:
            raise _OptionError(
                f"the option {shown} is one of {field.containing_type.full_name}, not of what it stands on"
            )
        return field


def known_options(options: Any, pool: Any) -> Any:
    """Return a copy of an options message in which the extensions that `pool` knows are fields, not unknown bytes."""
    kind = type(options)
    if pool is not None and _has_file(pool, _DESCRIPTORS):
        kind = message_factory.GetMessageClass(pool.FindMessageTypeByName(options.DESCRIPTOR.full_name))
    return kind.FromString(options.SerializePartialToString())


def _has_file(pool: Any, name: str) -> bool:
    try:
        pool.FindFileByName(name)
    except KeyError:
        return False
    return True


def draft(linked: LinkedFile) -> Any:
    """Return a copy of the file without custom options: a pool with it knows the options that the file defines
    itself."""
    copy = descriptor_pb2.FileDescriptorProto()
    copy.CopyFrom(linked.file)
    OptionInterpreter(linked, linked.scope(), None).interpret(copy)
    for element in elements(copy):
        if element.descriptor.HasField("options"):
            element.descriptor.options.ClearField("uninterpreted_option")
    return copy


def has_options(file: Any) -> bool:
    """Return whether any option of the file is still uninterpreted."""
    return any(True for _ in _written(file))


def has_custom_options(file: Any) -> bool:
    return any(part.is_extension for option in _written(file) for part in option.name)


def _written(file: Any) -> Iterator[Any]:
    for element in elements(file):
        if element.descriptor.HasField("options"):
            yield from element.descriptor.options.uninterpreted_option


def _is_not_for_people(field: Any) -> bool:
    return field.name == "uninterpreted_option" or str(field.full_name) == "google.protobuf.MessageOptions.map_entry"


def _scope(element: Element) -> str:
    return f"{element.name}.file" if element.sort is ElementKind.FILE else element.name


def _shown(option: Any) -> str:
    names = (f"({part.name_part})" if part.is_extension else part.name_part for part in option.name)
    return f'"{".".join(names)}"'


def _step_into(message: Any, field: Any, shown: str) -> Any:
    if field.message_type is None:
        raise _OptionError(f'in the option {shown}, "{field.name}" is not a message')
    if field.is_repeated:
        raise _OptionError(f'in the option {shown}, "{field.name}" is repeated, and can only be given as a whole')
    inner = message.Extensions[field] if field.is_extension else getattr(message, field.name)
    inner.SetInParent()
    return inner


def _assign(message: Any, field: Any, option: Any, shown: str, pool: Any) -> None:
    if not field.is_repeated and _has(message, field):
        raise _OptionError(f"the option {shown} is already given")
    if field.message_type is not None:
        _assign_message(message, field, option, shown, pool)
        return
    value = _READERS[field.cpp_type](field, option, shown)
    if field.is_repeated:
        _held(message, field).append(value)
    elif field.is_extension:
        message.Extensions[field] = value
    else:
        setattr(message, field.name, value)


def _assign_message(message: Any, field: Any, option: Any, shown: str, pool: Any) -> None:
    if not option.HasField("aggregate_value"):
        raise _OptionError(f"the value of the option {shown} is a message, in braces")
    held = _held(message, field)
    target = held.add() if field.is_repeated else held
    target.SetInParent()
    try:
        text_format.Parse(option.aggregate_value, target, descriptor_pool=pool)
    except (text_format.ParseError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise _OptionError(f"the value of the option {shown}: {fragment(str(error))}") from None


def _has(message: Any, field: Any) -> bool:
    return bool(message.HasExtension(field) if field.is_extension else message.HasField(field.name))


def _held(message: Any, field: Any) -> Any:
    return message.Extensions[field] if field.is_extension else getattr(message, field.name)


def _integer(field: Any, option: Any, shown: str) -> int:
    for value_field in ("positive_int_value", "negative_int_value"):
        if option.HasField(value_field):
            value = int(getattr(option, value_field))
            if value not in _RANGES[field.cpp_type]:
                raise _OptionError(f"the value of the option {shown} does not fit its type")
            return value
    raise _OptionError(f"the value of the option {shown} is an integer")


def _real(field: Any, option: Any, shown: str) -> float:  # noqa: ARG001
    for value_field in ("double_value", "positive_int_value", "negative_int_value"):
        if option.HasField(value_field):
            return float(getattr(option, value_field))
    if option.identifier_value in ("inf", "nan"):
        return float(option.identifier_value)
    raise _OptionError(f"the value of the option {shown} is a number")


def _bool(field: Any, option: Any, shown: str) -> bool:  # noqa: ARG001
    if option.identifier_value not in ("true", "false"):
        raise _OptionError(f"the value of the option {shown} is true or false")
    return bool(option.identifier_value == "true")


def _enum(field: Any, option: Any, shown: str) -> int:
    value = field.enum_type.values_by_name.get(option.identifier_value)
    if value is None:
        raise _OptionError(f"the value of the option {shown} is one of {field.enum_type.full_name}")
    return int(value.number)


def _string(field: Any, option: Any, shown: str) -> str | bytes:
    if not option.HasField("string_value"):
        raise _OptionError(f"the value of the option {shown} is a string")
    if field.type == FieldDescriptor.TYPE_BYTES:
        return bytes(option.string_value)
    try:
        return bytes(option.string_value).decode()
    except UnicodeDecodeError:
        raise _OptionError(f"the value of the option {shown} is not text in UTF-8") from None


_READERS: Final[dict[int, Callable[[Any, Any, str], Any]]] = {
    **dict.fromkeys(_RANGES, _integer),
    FieldDescriptor.CPPTYPE_DOUBLE: _real,
    FieldDescriptor.CPPTYPE_FLOAT: _real,
    FieldDescriptor.CPPTYPE_BOOL: _bool,
    FieldDescriptor.CPPTYPE_ENUM: _enum,
    FieldDescriptor.CPPTYPE_STRING: _string,
}
