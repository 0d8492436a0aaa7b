"""Compatibility of enums: can every value of the writer's be read with the reader's?"""

from __future__ import annotations

from typing import Any

from penstock.schema.protobuf.compatibility.problem_kinds import ProblemCollector


def check(mine: Any, theirs: Any, path: str, collector: ProblemCollector) -> None:
    """Report to `collector` the writer's values (`theirs`) that the reader's enum (`mine`) does not take.

    An open enum takes any number. A closed one sets unknown numbers aside, and the field seems unset. A value with
    another name is the same value; a name with another number is another value.
    """
    if mine.is_closed and not theirs.is_closed:
        message = "the writer's enum is open and may be any number, the reader's is closed: the field may seem unset"
        collector.add("ENUM_CLOSED", path, message, f"enum {mine.name}", f"enum {theirs.name}", name=mine.name)
    for value in theirs.values:
        names = {"name": value.name, "number": value.number}
        shown = f"{value.name} = {value.number}"
        if _moved(mine, theirs, value):
            number = mine.values_by_name[value.name].number
            message = f"the writer's {value.name} is {value.number}, the reader's is {number}"
            collector.add(
                "ENUM_VALUE_RENUMBERED", f"{path}/{value.name}", message, f"{value.name} = {number}", shown, **names
            )
        elif mine.is_closed and value.number not in mine.values_by_number:
            message = f"the reader's enum is closed and has no value {value.number}: the field will seem unset"
            collector.add("ENUM_VALUE_REMOVED", f"{path}/{value.name}", message, "", shown, **names)


def has_all_of(mine: Any, theirs: Any) -> bool:
    """Return whether `mine` has all values of `theirs`, with the same names and numbers. It is then the same enum under
    another name."""
    known = mine.values_by_name
    return all(value.name in known and known[value.name].number == value.number for value in theirs.values)


def _moved(mine: Any, theirs: Any, value: Any) -> bool:
    """Return whether the reader has the writer's value under another number. A number that merely has another name on
    the other side does not count as moved."""
    moved = mine.values_by_name.get(value.name)
    if moved is None or moved.number == value.number:
        return False
    here, there = mine.values_by_number.get(value.number), theirs.values_by_number.get(moved.number)
    return (here is None or here.name in theirs.values_by_name) and (there is None or there.name in mine.values_by_name)
