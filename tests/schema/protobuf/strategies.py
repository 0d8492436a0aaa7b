"""Strategies that generate Protobuf schemas, and messages of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import strategies as st

from penstock.schema.protobuf.compatibility.encodings import is_text

SCALARS = (
    *("int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed32", "sfixed64"),
    *("bool", "float", "double", "string", "bytes"),
)
KEYS = ("int32", "uint64", "sint32", "fixed64", "bool", "string")
NAMES = ("Alpha", "Beta", "Gamma")
ENUMS = ("Colour", "Shape")


@dataclass(frozen=True)
class Field:
    name: str
    number: int
    type: str
    label: str = ""
    oneof: str = ""
    key: str = ""
    """The key type of a map, whose values are of `type`."""


@dataclass(frozen=True)
class Message:
    name: str
    fields: tuple[Field, ...] = ()
    nested: tuple[Message, ...] = ()
    reserved: tuple[int, ...] = ()


@dataclass(frozen=True)
class Enum:
    name: str
    values: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class File:
    syntax: str
    package: str = ""
    messages: tuple[Message, ...] = ()
    enums: tuple[Enum, ...] = field(default=())


# Text


def written(file: Any) -> str:
    head = f'syntax = "{file.syntax}";\n' + (f"package {file.package};\n" if file.package else "")
    blocks = [*(_message(each, file.syntax) for each in file.messages), *map(_enum, file.enums)]
    return head + "\n".join(blocks)


def _message(message: Message, syntax: str) -> str:
    lines = [_message(each, syntax) for each in message.nested]
    lines += [f"reserved {number};" for number in message.reserved]
    lines += [_field(each, syntax) for each in message.fields if not each.oneof]
    for oneof in dict.fromkeys(each.oneof for each in message.fields if each.oneof):
        members = " ".join(_field(each, syntax) for each in message.fields if each.oneof == oneof)
        lines.append(f"oneof {oneof} {{ {members} }}")
    return f"message {message.name} {{ // words\n" + "\n".join(f"  {line}" for line in lines) + "\n}"


def _field(each: Field, syntax: str) -> str:
    if each.key:
        return f"map<{each.key}, {each.type}> {each.name} = {each.number};"
    label = each.label or ("optional" if syntax == "proto2" and not each.oneof else "")
    return f"{label} {each.type} {each.name} = {each.number};".strip()


def _enum(enum: Enum) -> str:
    return f"enum {enum.name} {{ " + " ".join(f"{name} = {number};" for name, number in enum.values) + " }"


# Random schemas

labels = st.sampled_from(["", "", "repeated", "optional"])
types = st.sampled_from([*SCALARS, "string", *NAMES, *ENUMS])


@st.composite
def fields(draw: st.DrawFn, number: int) -> Field:
    name = f"field_{number}"
    kind = draw(st.sampled_from(["plain", "plain", "plain", "map", "oneof"]))
    if kind == "map":
        return Field(name, number, draw(types), key=draw(st.sampled_from(KEYS)))
    if kind == "oneof":
        return Field(name, number, draw(types), oneof=draw(st.sampled_from(["one", "two"])))
    return Field(name, number, draw(types), draw(labels))


@st.composite
def messages(draw: st.DrawFn, name: str, *, nested: bool = True) -> Message:
    numbers = draw(st.lists(st.integers(1, 12), unique=True, max_size=5))
    inner = (draw(messages("Inner", nested=False)),) if nested and draw(st.booleans()) else ()
    reserved = tuple(draw(st.lists(st.integers(13, 20), unique=True, max_size=2)))
    return Message(name, tuple(draw(fields(number)) for number in numbers), inner, reserved)


@st.composite
def enums(draw: st.DrawFn, name: str) -> Enum:
    numbers = draw(st.lists(st.integers(1, 6), unique=True, max_size=4))
    return Enum(name, tuple((f"{name}_{number}".upper(), number) for number in (0, *numbers)))


@st.composite
def _files(draw: st.DrawFn) -> File:
    return File(
        draw(st.sampled_from(["proto2", "proto3"])),
        draw(st.sampled_from(["", "shop", "shop.v1"])),
        tuple(draw(messages(name)) for name in NAMES),
        tuple(draw(enums(name)) for name in ENUMS),
    )


files = _files()


# Evolution: small changes, good and bad


@st.composite
def evolved(draw: st.DrawFn, file: File) -> File:
    for _ in range(draw(st.integers(1, 3))):
        file = draw(draw(st.sampled_from(CHANGES))(file))
    return file


def _with_message(file: File, index: int, message: Message) -> File:
    return replace(file, messages=(*file.messages[:index], message, *file.messages[index + 1 :]))


@st.composite
def _one(draw: st.DrawFn, file: File) -> tuple[int, int | None]:
    """Draw a message, and one of its fields if it has any."""
    index = draw(st.integers(0, len(file.messages) - 1))
    count = len(file.messages[index].fields)
    return index, draw(st.integers(0, count - 1)) if count else None


def _changing(change: Any) -> Any:
    @st.composite
    def changed(draw: st.DrawFn, file: File) -> File:
        index, place = draw(_one(file))
        if place is None:
            return file
        message = file.messages[index]
        new = change(draw, message.fields[place])
        kept = (*message.fields[:place], *([new] if new else []), *message.fields[place + 1 :])
        return _with_message(file, index, replace(message, fields=kept))

    return changed


_retyped = _changing(lambda draw, each: replace(each, type=draw(types)))
_relabelled = _changing(lambda draw, each: each if each.oneof or each.key else replace(each, label=draw(labels)))
_removed = _changing(lambda draw, each: None)
_renamed = _changing(lambda draw, each: replace(each, name=f"renamed_{each.number}"))
_moved = _changing(
    lambda draw, each: each if each.key else replace(each, label="", oneof=draw(st.sampled_from(["", "one", "two"])))
)


@st.composite
def _added(draw: st.DrawFn, file: File) -> File:
    index, _ = draw(_one(file))
    message = file.messages[index]
    number = draw(st.sampled_from([n for n in range(1, 13) if n not in {each.number for each in message.fields}]))
    return _with_message(file, index, replace(message, fields=(*message.fields, draw(fields(number)))))


@st.composite
def _grown(draw: st.DrawFn, file: File) -> File:
    index = draw(st.integers(0, len(file.enums) - 1))
    return replace(file, enums=(*file.enums[:index], draw(enums(file.enums[index].name)), *file.enums[index + 1 :]))


def _reordered(file: File) -> st.SearchStrategy[File]:
    """Put another message first."""
    return st.just(replace(file, messages=(*file.messages[1:], file.messages[0])))


def translated(file: File) -> st.SearchStrategy[File]:
    """Translate from proto2, with its closed enums and strings of any bytes, to proto3, or back."""
    return st.just(replace(file, syntax="proto3" if file.syntax == "proto2" else "proto2"))


CHANGES = (
    *(_retyped, _relabelled, _removed, _added, _moved, _renamed, _grown),
    *(_reordered, _reordered, translated),
)


# Messages

Draw = Callable[[st.SearchStrategy[Any]], Any]
_INTEGERS = {
    **dict.fromkeys(("int32", "sint32", "sfixed32"), (-(2**31), 2**31 - 1)),
    **dict.fromkeys(("int64", "sint64", "sfixed64"), (-(2**63), 2**63 - 1)),
    **dict.fromkeys(("uint32", "fixed32"), (0, 2**32 - 1)),
    **dict.fromkeys(("uint64", "fixed64"), (0, 2**64 - 1)),
}


def filled(draw: Draw, made: Any, depth: int = 3) -> Any:
    """Draw a message with some of its fields set."""
    for each in made.DESCRIPTOR.fields:
        if draw(st.booleans()):
            _fill(draw, made, each, depth)
    return made


def _fill(draw: Draw, made: Any, each: Any, depth: int) -> None:
    held = getattr(made, each.name)
    entry = each.message_type if each.message_type is not None and each.message_type.GetOptions().map_entry else None
    if _takes_any_bytes(entry.fields[1] if entry else each) and draw(st.booleans()):
        raw = draw(st.just(b"\xff") | st.binary(max_size=4))
        made.MergeFromString(_encoded(each.number, _encoded(2, raw) if entry else raw))
    elif entry:
        key, value = each.message_type.fields
        for _ in range(draw(st.integers(1, 2))):
            if value.message_type is None:
                held[draw(_values(key))] = draw(_values(value))
            elif depth:
                filled(draw, held[draw(_values(key))], depth - 1)
    elif each.message_type is not None:
        if depth:
            inner = held.add() if each.is_repeated else held
            inner.SetInParent()
            filled(draw, inner, depth - 1)
    elif each.is_repeated:
        held.extend(draw(st.lists(_values(each), max_size=3)))
    else:
        setattr(made, each.name, draw(_values(each)))


def _takes_any_bytes(each: Any) -> bool:
    return bool(each.type == each.TYPE_STRING and not is_text(each))


def _encoded(number: int, data: bytes) -> bytes:
    """Encode a string as it lies in a message: no other way puts one there that is not UTF-8."""
    return bytes([number << 3 | 2, len(data)]) + data


def _values(each: Any) -> st.SearchStrategy[Any]:
    name = next(name for name in dir(each) if name.startswith("TYPE_") and getattr(each, name) == each.type)[5:].lower()
    if name == "enum":
        known = st.sampled_from([value.number for value in each.enum_type.values])
        return known if each.enum_type.is_closed else known | st.integers(*_INTEGERS["int32"])
    if name in _INTEGERS:
        return st.integers(*_INTEGERS[name])
    return {
        "bool": st.booleans(),
        "float": st.floats(width=32, allow_nan=False),
        "double": st.floats(allow_nan=False),
        "string": st.text(max_size=4).filter(lambda text: text.isprintable()),
        "bytes": st.binary(max_size=4),
    }[name]
