"""Compatibility of oneofs: a reader keeps only the last of several fields of a oneof. Could the writer have set two of
them?"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from penstock.schema.problems import fragment
from penstock.schema.protobuf.compatibility.encodings import shown
from penstock.schema.protobuf.compatibility.problem_kinds import ProblemCollector

Fields = dict[int, Any]


def check(mine: Fields, theirs: Fields, path: str, collector: ProblemCollector) -> None:
    for name, numbers in _oneofs(mine).items():
        _check_moved(name, [number for number in numbers if number in theirs], mine, theirs, path, collector)
    for numbers in _oneofs(theirs).values():
        _check_lost(numbers, mine, theirs, path, collector)


def _oneofs(fields: Fields) -> dict[str, list[int]]:
    """Return the field numbers of each oneof. An `optional` of proto3 is a oneof too: with a single field it has no
    conflicts."""
    oneofs: dict[str, list[int]] = defaultdict(list)
    for number, field in fields.items():
        if field.containing_oneof is not None:
            oneofs[field.containing_oneof.name].append(number)
    return oneofs


def _check_moved(
    oneof: str, numbers: list[int], mine: Fields, theirs: Fields, path: str, collector: ProblemCollector
) -> None:
    """Report fields that the reader has moved into a oneof. Fields of one oneof are never set together, but a field
    from outside may be set beside them."""
    existing = _existing(oneof, numbers, theirs)
    moved = [number for number in numbers if number not in existing]
    if existing:
        for number in moved:
            name = mine[number].name
            message = f'the writer may set "{name}" and another field of the oneof "{oneof}": the reader keeps one'
            collector.add(
                "FIELD_MOVED_TO_EXISTING_ONEOF",
                f"{path}/{name}",
                message,
                f"oneof {oneof}: {shown(mine[number])}",
                shown(theirs[number]),
                name=name,
            )
    elif len(moved) > 1:
        names = ", ".join(f'"{mine[number].name}"' for number in moved)
        message = f"the writer may set several of {fragment(names)}: the reader keeps one"
        collector.add("MULTIPLE_FIELDS_MOVED_TO_ONEOF", f"{path}/{oneof}", message, f"oneof {oneof}")


def _existing(oneof: str, numbers: list[int], theirs: Fields) -> set[int]:
    """Return those of the fields that were in a oneof together, or in one that has this name; of several such sets the
    one with the name, or else the largest."""
    among = _oneofs({number: theirs[number] for number in numbers})
    shared = {
        name: set(members)
        for name, members in among.items()
        if name == oneof or len(theirs[members[0]].containing_oneof.fields) > 1
    }
    return shared.get(oneof) or max(shared.values(), key=len, default=set())


def _check_lost(numbers: list[int], mine: Fields, theirs: Fields, path: str, collector: ProblemCollector) -> None:
    kept = [number for number in numbers if number in mine and mine[number].containing_oneof is not None]
    if not kept:
        return
    oneof = mine[kept[0]].containing_oneof.name
    for number in numbers:
        if number not in mine:
            name = theirs[number].name
            message = f'the writer may set "{name}", and to the reader the oneof "{oneof}" will seem unset'
            collector.add(
                "ONEOF_FIELD_REMOVED", f"{path}/{name}", message, f"oneof {oneof}", shown(theirs[number]), name=name
            )
