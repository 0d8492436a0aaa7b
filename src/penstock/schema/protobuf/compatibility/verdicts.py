"""The problems a comparison can find, one row each, and the list they are gathered in."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from penstock.schema.problems import PROBLEMS_MAX, Problem, fragment


class Row(NamedTuple):
    fix: str
    """With `{name}` and `{number}` of what the writer has, and `{type}` of it."""
    tolerable: bool = False
    """It concerns only some of the values a writer can write, or names that are not in the bytes: `lenient` lets it
    pass."""


ROWS: Final[dict[str, Row]] = {
    "PACKAGE_CHANGED": Row("keep the package {name}", tolerable=True),
    "MESSAGE_REMOVED": Row("keep the message {name}"),
    "FIRST_MESSAGE_CHANGED": Row("put the message {name} first again"),
    "MESSAGE_SET_CHANGED": Row("keep the option message_set_wire_format as it is"),
    "FIELD_NUMBER_CHANGED": Row('give "{name}" its number {number} again'),
    "FIELD_NUMBER_RESERVED": Row('give "{name}" a number that was never used'),
    "FIELD_SCALAR_KIND_CHANGED": Row("keep the type {type}, or give the new field a number of its own"),
    "FIELD_KIND_CHANGED": Row("keep the type {type}, or give the new field a number of its own"),
    "FIELD_UTF8_DEMANDED": Row(
        'let "{name}" be bytes, or a string with features.utf8_validation = NONE', tolerable=True
    ),
    "FIELD_NAMED_TYPE_CHANGED": Row("keep the type {type}, or let the other type have all of its fields or values"),
    "FIELD_NUMERIC_LABEL_CHANGED": Row('keep "{name}" repeated, or give the new field a number of its own'),
    "REQUIRED_FIELD_ADDED": Row('let "{name}" be optional'),
    "REQUIRED_FIELD_REMOVED": Row('keep "{name}", and keep it required'),
    "ONEOF_FIELD_REMOVED": Row('keep "{name}" in the oneof', tolerable=True),
    "MULTIPLE_FIELDS_MOVED_TO_ONEOF": Row("move one of them at most, and leave the others outside", tolerable=True),
    "FIELD_MOVED_TO_EXISTING_ONEOF": Row('leave "{name}" outside of the oneof', tolerable=True),
    "ENUM_CLOSED": Row("let the enum {name} stay open", tolerable=True),
    "ENUM_VALUE_REMOVED": Row("keep the value {name} = {number}, or make the enum open", tolerable=True),
    "ENUM_VALUE_RENUMBERED": Row("give the value {name} its number {number} again"),
    "TYPES_TOO_MANY": Row("register schemas that have less in common"),
}


class Verdicts:
    """At most `PROBLEMS_MAX` of them; further ones are dropped."""

    def __init__(self, *, lenient: bool) -> None:
        self.problems: list[Problem] = []
        self._lenient = lenient

    def add(
        self,
        kind: str,
        path: str,
        message: str,
        reader: str = "",
        writer: str = "",
        *,
        tolerable: bool = False,
        **names: Any,
    ) -> None:
        """`names` fill the gaps of the row's advice; `tolerable` says that this one is, though its row does not."""
        row = ROWS[kind]
        if len(self.problems) >= PROBLEMS_MAX or (self._lenient and (row.tolerable or tolerable)):
            return
        fix = row.fix.format(**names)
        self.problems.append(
            Problem(kind=kind, path=path, message=message, reader=fragment(reader), writer=fragment(writer), fix=fix)
        )
