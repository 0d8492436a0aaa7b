"""The Protobuf codecs: one for messages of generated classes, and one for dicts, if only the schema's text is known."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.message import DecodeError, EncodeError, Message

from penstock.client.serde.codecs import Indexes, abbreviated
from penstock.client.serde.framing import FIRST_MESSAGE
from penstock.client.serde.python_types import to_builtins
from penstock.client.serde.values import ValueMismatch, json_pointer
from penstock.core.errors import InvalidRequest
from penstock.core.schemas import Definition
from penstock.schema.protobuf import parse

_KNOWN_TO_ALL: Final = "google/protobuf/"
"""The path of files that every Protobuf library includes. They are not registered."""

_DESCRIPTORS_MAX: Final = 1000
"""The most messages whose fields are cached: the same number as cached schemas."""

Steps = tuple[str | int, ...]


class ClassCodec:
    """A codec for messages of a generated class. It encodes dicts too, and decodes to the class."""

    def __init__(self, generated: type[Any], *, first: bool = False) -> None:
        """Create the codec. With `first`, `files` returns the class's file with its outermost message moved to the
        first place, since a payload without framing is read as the first message."""
        self._generated = generated
        self._first = first
        outermost, *inner = _indexes(generated.DESCRIPTOR)
        self.indexes: Indexes = (0 if first else outermost, *inner)

    def files(self) -> list[ProtoFile]:
        """Return the files to register: imported files before those that import them, and the file of the class
        last."""
        return _files(self._generated.DESCRIPTOR, reordered=self._first)

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, self._generated):
            value = _message(self._generated, to_builtins(value))
        try:
            encoded: bytes = value.SerializeToString()
        except (EncodeError, ValueError) as error:
            raise ValueMismatch(str(error)) from None
        return encoded

    def decode(self, payload: bytes) -> Any:
        message = self._generated()
        try:
            message.ParseFromString(payload)
        except DecodeError as error:
            raise ValueMismatch(str(error)) from None
        if not message.IsInitialized():
            missing = message.FindInitializationErrors()
            raise ValueMismatch("it is required and missing", json_pointer(*missing[0].split(".")))
        return message


class MessageCodec:
    """A codec between dicts and payloads, for one message of a schema."""

    def __init__(self, definition: Definition, message: str | tuple[int, ...] | None = None) -> None:
        """Create the codec. `message` is the message's name, with or without the package, or its path; default: the
        first one."""
        self._codec = ClassCodec(message_class(definition, message))
        self.indexes: Indexes = self._codec.indexes

    def encode(self, value: Any) -> bytes:
        return self._codec.encode(value)

    def decode(self, payload: bytes) -> Any:
        return _as_dict(self._codec.decode(payload))


# from dicts and back


def _message(generated: type[Any], value: Any) -> Any:
    if not isinstance(value, Mapping):
        raise ValueMismatch(f"expected {generated.DESCRIPTOR.full_name} or a dict, not {type(value).__name__}")
    try:
        return generated(**value)
    except (TypeError, ValueError, AttributeError) as error:
        mismatch = next(_mismatches(generated.DESCRIPTOR, value, ()), None)
        raise mismatch or ValueMismatch(str(error)) from None


def _mismatches(descriptor: Any, value: Mapping[str, Any], steps: Steps) -> Iterator[ValueMismatch]:
    """Yield the mismatches of a value that is known to have one: field by field, inner ones before the field that has
    them."""
    generated = message_factory.GetMessageClass(descriptor)
    for name, item in value.items():
        try:
            generated(**{name: item})
        except (TypeError, ValueError, AttributeError) as error:
            field = descriptor.fields_by_name.get(name)
            if field is not None and field.message_type is not None:
                yield from _nested_mismatches(field.message_type, item, (*steps, name))
            elif field is not None and field.type == field.TYPE_STRING:
                yield from _text_mismatches(item, (*steps, name), repeated=field.is_repeated)
            yield ValueMismatch(str(error), json_pointer(*steps, name))


def _nested_mismatches(descriptor: Any, value: Any, steps: Steps) -> Iterator[ValueMismatch]:
    is_map = descriptor.GetOptions().map_entry
    if isinstance(value, Mapping) and not is_map:
        yield from _mismatches(descriptor, value, steps)
        return
    inner = descriptor.fields_by_name["value"].message_type if is_map else descriptor
    for step, item in _parts(value):
        if inner is not None and isinstance(item, Mapping):
            yield from _mismatches(inner, item, (*steps, step))
    if is_map and isinstance(value, Mapping):
        yield from _map_mismatches(descriptor, value, steps)


def _map_mismatches(entry: Any, value: Mapping[Any, Any], steps: Steps) -> Iterator[ValueMismatch]:
    """Yield the mismatches of the keys and values of a map. `entry` is the descriptor of its entries, messages with the
    fields `key` and `value`."""
    for key, item in value.items():
        for entry_fields in ({"key": key}, {"value": item}):
            for mismatch in _mismatches(entry, entry_fields, ()):
                yield ValueMismatch(mismatch.message, json_pointer(*steps, str(key)))


def _text_mismatches(value: Any, steps: Steps, *, repeated: bool) -> Iterator[ValueMismatch]:
    """Yield mismatches for values of a string field that are not text. The library's own message does not say what is
    wrong."""
    if repeated:
        for index, item in _parts(value):
            yield from _text_mismatches(item, (*steps, index), repeated=False)
    elif not isinstance(value, str | bytes):
        yield ValueMismatch(f"{abbreviated(value)} is no string", json_pointer(*steps))


def _parts(value: Any) -> Iterable[tuple[str | int, Any]]:
    if isinstance(value, Mapping):
        return value.items()
    return enumerate(value) if isinstance(value, Sequence) else ()


def _as_dict(message: Any) -> dict[str, Any]:
    """Convert a message to a dict of all its fields, enums by name. Fields that track presence are left out if they are
    not set."""
    return {
        name: _plain(getattr(message, name), field)
        for name, field, has_presence in _fields(message.DESCRIPTOR)
        if not has_presence or message.HasField(name)
    }


@lru_cache(_DESCRIPTORS_MAX)
def _fields(descriptor: Any) -> list[tuple[str, Any, bool]]:
    """Return the fields of a message: name, descriptor, and whether the field tracks presence. Cached, since reading
    them from the library for each message would take most of the decoding time."""
    return [(field.name, field, field.has_presence) for field in descriptor.fields]


def _plain(value: Any, field: Any) -> Any:
    if isinstance(value, Message):
        return _as_dict(value)
    if isinstance(value, Mapping):
        inner = field.message_type.fields_by_name["value"]
        return {key: _plain(value[key], inner) for key in value}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_plain(item, field) for item in value]
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return value if known is None else known.name
    return value


# files, and messages in them


def message_class(definition: Definition, message: str | tuple[int, ...] | None = None) -> type[Any]:
    """Return the generated class of one message of a schema, by its name or its path; default: the first one.

    Raises `InvalidSchema`, `InvalidRequest` for a name that the schema does not have, and `ValueMismatch` for such a
    path.
    """
    file = _file(definition)
    descriptor = _named(file, message) if isinstance(message, str) else _at(file, message or FIRST_MESSAGE)
    generated: type[Any] = message_factory.GetMessageClass(descriptor)
    return generated


@dataclass(frozen=True, slots=True)
class ProtoFile:
    name: str
    text: str
    """The base64 of the file's serialized descriptor, which registries accept in place of the source text."""
    needs: tuple[str, ...]
    """The names of the files that it imports."""


def _files(descriptor: Any, *, reordered: bool) -> list[ProtoFile]:
    files: dict[str, ProtoFile] = {}
    _add_file(descriptor.file, files)
    if reordered:
        file = descriptor_pb2.FileDescriptorProto()
        descriptor.file.CopyToProto(file)
        messages = list(file.message_type)
        first = messages.pop(_indexes(descriptor)[0])
        del file.message_type[:]
        file.message_type.extend([first, *messages])
        files[file.name] = _proto_file(file)
    return list(files.values())


def _add_file(descriptor: Any, files: dict[str, ProtoFile]) -> None:
    if descriptor.name in files or descriptor.name.startswith(_KNOWN_TO_ALL):
        return
    for needed in descriptor.dependencies:
        _add_file(needed, files)
    file = descriptor_pb2.FileDescriptorProto()
    descriptor.CopyToProto(file)
    files[descriptor.name] = _proto_file(file)


def _proto_file(file: Any) -> ProtoFile:
    text = base64.b64encode(file.SerializeToString(deterministic=True)).decode()
    return ProtoFile(file.name, text, tuple(file.dependency))


def _indexes(descriptor: Any) -> tuple[int, ...]:
    outer = descriptor.containing_type
    if outer is None:
        return (list(descriptor.file.message_types_by_name).index(descriptor.name),)
    return (*_indexes(outer), [sibling.name for sibling in outer.nested_types].index(descriptor.name))


def _file(definition: Definition) -> Any:
    """Return the descriptor of a schema's own file. Raises `InvalidSchema`, also if the file has no message."""
    return parse(definition.text, dict(definition.references)).message_class().DESCRIPTOR.file


def _named(file: Any, name: str) -> Any:
    """Return the descriptor of a message by its name, with or without the package. Raises `InvalidRequest` if there is
    none."""
    within = name.removeprefix(f"{file.package}.") if file.package else name
    first, *rest = within.split(".")
    descriptor = file.message_types_by_name.get(first)
    for part in rest:
        descriptor = descriptor and descriptor.nested_types_by_name.get(part)
    if descriptor is None:
        raise InvalidRequest(f"the schema has no message {name!r}")
    return descriptor


def _at(file: Any, indexes: tuple[int, ...]) -> Any:
    descriptor, within = None, list(file.message_types_by_name.values())
    for index in indexes:
        if not 0 <= index < len(within):
            raise ValueMismatch(f"the schema has no message {'.'.join(map(str, indexes))}")
        descriptor = within[index]
        within = list(descriptor.nested_types)
    return descriptor
