"""Fields of messages, oneofs and extensions, with maps and groups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf import descriptor_pb2

from penstock.schema.protobuf.limits import INT32_MAX
from penstock.schema.protobuf.names import map_entry_name
from penstock.schema.protobuf.parsing import options
from penstock.schema.protobuf.parsing.cursor import Cursor, Dialect
from penstock.schema.protobuf.parsing.defaults import default_value

_Proto: Final = descriptor_pb2.FieldDescriptorProto

SCALARS: Final[dict[str, int]] = {
    name: getattr(_Proto, f"TYPE_{name.upper()}")
    for name in (
        *("double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64"),
        *("fixed32", "fixed64", "sfixed32", "sfixed64", "bool", "string", "bytes"),
    )
}
_LABELS: Final[dict[str, int]] = {
    "optional": _Proto.LABEL_OPTIONAL,
    "required": _Proto.LABEL_REQUIRED,
    "repeated": _Proto.LABEL_REPEATED,
}
_REFUSED_LABELS: Final = {
    (Dialect.PROTO3, "required"): "there are no required fields in proto3",
    (Dialect.EDITIONS, "required"): "in editions, say features.field_presence = LEGACY_REQUIRED instead of 'required'",
    (Dialect.EDITIONS, "optional"): "in editions a field is optional without the word",
}

GroupBody = Callable[[Cursor, Any, str], None]


@dataclass(frozen=True, slots=True)
class FieldContainer:
    """The message, oneof or extension block that a field belongs to."""

    scope: str
    """The scope in which the field's name is unique."""
    fields: Any
    nested: Any
    """The list for messages that a field declares implicitly: entries of maps, bodies of groups."""
    group_body: GroupBody
    oneof: int | None = None
    extendee: str = ""


def field(cursor: Cursor, container: FieldContainer) -> None:
    """Parse one field, up to its semicolon."""
    label = _label(cursor, container)
    added = container.fields.add(label=_LABELS[label or "optional"])
    if container.oneof is not None:
        added.oneof_index = container.oneof
    if container.extendee:
        added.extendee = container.extendee
    if label == "optional" and cursor.dialect is Dialect.PROTO3:
        added.proto3_optional = True
    _typed(cursor, container, added, label)


def _label(cursor: Cursor, container: FieldContainer) -> str:
    if not cursor.at("optional") and not cursor.at("required") and not cursor.at("repeated"):
        return ""
    if container.oneof is not None:
        raise cursor.refuse("a field of a oneof has no label")
    refused = _REFUSED_LABELS.get((cursor.dialect, cursor.token.text))
    if refused:
        raise cursor.refuse(refused)
    return cursor.next().text


def _typed(cursor: Cursor, container: FieldContainer, added: Any, label: str) -> None:
    begin = cursor.token.at
    if cursor.at("map"):
        cursor.next()
        if cursor.at("<"):
            _map(cursor, container, added, label, begin)
            return
        _demand_label(cursor, container, label, begin)
        added.type_name = "map"
    else:
        _demand_label(cursor, container, label, begin)
        _type(cursor, added)
    if added.type == _Proto.TYPE_GROUP:
        _group(cursor, container, added, begin)
    else:
        _named(cursor, container, added)


def _demand_label(cursor: Cursor, container: FieldContainer, label: str, begin: int) -> None:
    if cursor.dialect is Dialect.PROTO2 and not label and container.oneof is None:
        raise cursor.refuse("a field of proto2 is optional, required or repeated, and has to say which", begin)


def _type(cursor: Cursor, added: Any) -> None:
    word = cursor.token.text
    if word in SCALARS:
        added.type = SCALARS[cursor.next().text]
    elif word == "group":
        cursor.next()
        added.type = _Proto.TYPE_GROUP
    else:
        added.type_name = cursor.qualified("the type of a field")


def _named(cursor: Cursor, container: FieldContainer, added: Any) -> None:
    path = _name_and_number(cursor, container, added)
    _options(cursor, container, added, path)
    cursor.expect(";")


def _name_and_number(cursor: Cursor, container: FieldContainer, added: Any) -> str:
    at = cursor.token.at
    added.name = cursor.name("the name of a field")
    path = cursor.declare(container.scope, added.name, at)
    cursor.expect("=")
    added.number = cursor.integer("the number of a field")
    return path


def _options(cursor: Cursor, container: FieldContainer, added: Any, path: str) -> None:
    def pseudo(cursor: Cursor) -> bool:
        if cursor.at("default"):
            _default(cursor, added)
        elif cursor.at("json_name"):
            _json_name(cursor, container, added)
        else:
            return False
        return True

    options.bracketed(cursor, added, path, pseudo)


def _default(cursor: Cursor, added: Any) -> None:
    if added.HasField("default_value"):
        raise cursor.refuse("the default is already given")
    cursor.next()
    cursor.expect("=")
    added.default_value = default_value(cursor, added.type if added.HasField("type") else _Proto.TYPE_ENUM)


def _json_name(cursor: Cursor, container: FieldContainer, added: Any) -> None:
    if container.extendee:
        raise cursor.refuse("an extension has no json_name")
    if added.HasField("json_name"):
        raise cursor.refuse("the json_name is already given")
    cursor.next()
    cursor.expect("=")
    added.json_name = cursor.words("a string for the json_name")


def _map(cursor: Cursor, container: FieldContainer, added: Any, label: str, begin: int) -> None:
    """Parse a map: a repeated field of a message with a key and a value, which is made here."""
    if label or container.oneof is not None or container.extendee:
        raise cursor.refuse("a map has no label, is in no oneof and extends nothing", begin)
    entry = descriptor_pb2.DescriptorProto()
    key, value = _entry_field(entry, "key"), _entry_field(entry, "value")
    cursor.expect("<")
    _type(cursor, key)
    cursor.expect(",")
    _type(cursor, value)
    cursor.expect(">")
    if _Proto.TYPE_GROUP in (key.type, value.type):
        raise cursor.refuse("a map has no groups", begin)
    path = _name_and_number(cursor, container, added)
    _entry(cursor, container, added, entry)
    _options(cursor, container, added, path)
    _copy_features(added, key, value)
    container.nested.append(entry)
    cursor.expect(";")


def _entry_field(entry: Any, name: str) -> Any:
    number = len(entry.field) + 1
    return entry.field.add(name=name, number=number, label=_Proto.LABEL_OPTIONAL)


def _entry(cursor: Cursor, container: FieldContainer, added: Any, entry: Any) -> None:
    entry.name = map_entry_name(added.name)
    entry.options.map_entry = True
    cursor.declare(container.scope, entry.name, cursor.positions[f"{container.scope}.{added.name}"])
    cursor.count_type()
    added.label, added.type_name = _Proto.LABEL_REPEATED, entry.name


def _copy_features(added: Any, *entry_fields: Any) -> None:
    """Copy features of a map to its key and its value: how strings are checked, for one."""
    for option in added.options.uninterpreted_option:
        if option.name[0].name_part == "features" and not option.name[0].is_extension:
            for entry_field in entry_fields:
                entry_field.options.uninterpreted_option.append(option)


def _group(cursor: Cursor, container: FieldContainer, added: Any, begin: int) -> None:
    """Parse a group: a message declared where it is used. The field has its name in lower case."""
    if cursor.dialect is not Dialect.PROTO2:
        raise cursor.refuse("there are groups in proto2 only", begin)
    at = cursor.token.at
    name = cursor.name("the name of a group")
    if not name[0].isupper():
        raise cursor.refuse("the name of a group begins with a capital letter", at)
    added.name, added.type_name = name.lower(), name
    path = cursor.declare(container.scope, name, at)
    if added.name != name:
        cursor.declare(container.scope, added.name, at)
    cursor.expect("=")
    added.number = cursor.integer("the number of a field", INT32_MAX)
    _options(cursor, container, added, path)
    body = container.nested.add(name=name)
    cursor.count_type()
    container.group_body(cursor, body, path)
