"""The kinds of problems that a comparison can find, one row each, and their collector."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from penstock.schema.problems import PROBLEMS_MAX, Problem, fragment


class ProblemKind(NamedTuple):
    fix: str
    """The advice, with `{name}` and `{number}` of the writer's element, and its `{type}`."""
    tolerable: bool = False
    """True if the problem concerns only some of the values that a writer can write, or names that are not in the bytes:
    `lenient` ignores such problems."""


PROBLEM_KINDS: Final[dict[str, ProblemKind]] = {
    "PACKAGE_CHANGED": ProblemKind("keep the package {name}", tolerable=True),
    "MESSAGE_REMOVED": ProblemKind("keep the message {name}"),
    "FIRST_MESSAGE_CHANGED": ProblemKind("put the message {name} first again"),
    "MESSAGE_SET_CHANGED": ProblemKind("keep the option message_set_wire_format as it is"),
    "FIELD_NUMBER_CHANGED": ProblemKind('give "{name}" its number {number} again'),
    "FIELD_NUMBER_RESERVED": ProblemKind('give "{name}" a number that was never used'),
    "FIELD_SCALAR_KIND_CHANGED": ProblemKind("keep the type {type}, or give the new field a number of its own"),
    "FIELD_KIND_CHANGED": ProblemKind("keep the type {type}, or give the new field a number of its own"),
    "FIELD_UTF8_DEMANDED": ProblemKind(
        'let "{name}" be bytes, or a string with features.utf8_validation = NONE', tolerable=True
    ),
    "FIELD_NAMED_TYPE_CHANGED": ProblemKind(
        "keep the type {type}, or let the other type have all of its fields or values"
    ),
    "FIELD_NUMERIC_LABEL_CHANGED": ProblemKind('keep "{name}" repeated, or give the new field a number of its own'),
    "REQUIRED_FIELD_ADDED": ProblemKind('let "{name}" be optional'),
    "REQUIRED_FIELD_REMOVED": ProblemKind('keep "{name}", and keep it required'),
    "ONEOF_FIELD_REMOVED": ProblemKind('keep "{name}" in the oneof', tolerable=True),
    "MULTIPLE_FIELDS_MOVED_TO_ONEOF": ProblemKind(
        "move one of them at most, and leave the others outside", tolerable=True
    ),
    "FIELD_MOVED_TO_EXISTING_ONEOF": ProblemKind('leave "{name}" outside of the oneof', tolerable=True),
    "ENUM_CLOSED": ProblemKind("let the enum {name} stay open", tolerable=True),
    "ENUM_VALUE_REMOVED": ProblemKind("keep the value {name} = {number}, or make the enum open", tolerable=True),
    "ENUM_VALUE_RENUMBERED": ProblemKind("give the value {name} its number {number} again"),
    "TYPES_TOO_MANY": ProblemKind("register schemas that have less in common"),
}


class ProblemCollector:
    """A collector of at most `PROBLEMS_MAX` problems. Further ones are dropped, and with `lenient` so are tolerable
    ones."""

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
        """Add a problem, unless there are `PROBLEMS_MAX` already, or it is tolerable and the comparison is lenient.

        `names` fill the gaps of the row's advice. `tolerable` marks this one as tolerable even if its row is not.
        """
        row = PROBLEM_KINDS[kind]
        if len(self.problems) >= PROBLEMS_MAX or (self._lenient and (row.tolerable or tolerable)):
            return
        fix = row.fix.format(**names)
        self.problems.append(
            Problem(kind=kind, path=path, message=message, reader=fragment(reader), writer=fragment(writer), fix=fix)
        )
