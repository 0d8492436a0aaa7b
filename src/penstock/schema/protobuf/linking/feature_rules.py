"""Rules of protoc that depend on the features in force for an element. The library resolves those, so the rules run on
its descriptors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from penstock.schema.protobuf.linking.source import SourceFile


def check_built(source: SourceFile, file: Any) -> None:
    """Check the library's FileDescriptor `file`. Raises `InvalidSchema`."""
    for descriptor in _enums(file):
        _refuse_wrong(source, descriptor, _ENUM_RULES)
    rules = _PROTO3_FIELD_RULES if source.file.syntax == "proto3" else _FIELD_RULES
    for descriptor in _fields(file):
        _refuse_wrong(source, descriptor, rules)


def _refuse_wrong(source: SourceFile, descriptor: Any, rules: tuple[Callable[[Any], str | None], ...]) -> None:
    for rule in rules:
        wrong = rule(descriptor)
        if wrong is not None:
            raise source.refusal(wrong, descriptor.full_name)


def messages(file: Any) -> Iterator[Any]:
    """Yield all messages of a file, outer ones first."""
    waiting = list(reversed(list(file.message_types_by_name.values())))
    while waiting:
        message = waiting.pop()
        yield message
        waiting.extend(reversed(message.nested_types))


def _enums(file: Any) -> Iterator[Any]:
    yield from file.enum_types_by_name.values()
    for message in messages(file):
        yield from message.enum_types


def _fields(file: Any) -> Iterator[Any]:
    yield from file.extensions_by_name.values()
    for message in messages(file):
        yield from message.fields
        yield from message.extensions


def _begins_at_zero(enum: Any) -> str | None:
    if not enum.is_closed and enum.values[0].number != 0:
        return "the first value of an open enum is 0"
    return None


def _has_an_open_enum(field: Any) -> str | None:
    if field.enum_type is not None and field.enum_type.is_closed:
        return f'"{field.enum_type.full_name}" is a closed enum, which cannot be used here'
    return None


def _has_an_open_enum_or_presence(field: Any) -> str | None:
    """Refuse a closed enum in a field that cannot tell an absent value from 0: the enum may have no value 0."""
    return None if field.has_presence or field.is_repeated else _has_an_open_enum(field)


def _has_a_default_only_with_presence(field: Any) -> str | None:
    if field.has_default_value and not field.has_presence:
        return "a field whose presence is implicit has no default"
    return None


_ENUM_RULES: Final = (_begins_at_zero,)
_FIELD_RULES: Final = (_has_an_open_enum_or_presence, _has_a_default_only_with_presence)
_PROTO3_FIELD_RULES: Final = (_has_an_open_enum,)
