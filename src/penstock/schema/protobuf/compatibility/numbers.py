"""Compatibility of field numbers that only one side has: moved, required, or reserved before."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2

from penstock.schema.protobuf.compatibility.encodings import shown
from penstock.schema.protobuf.compatibility.problem_kinds import ProblemCollector
from penstock.schema.protobuf.numbers import Ranges

Fields = dict[int, Any]


def check_removed(mine: Fields, theirs: Fields, path: str, collector: ProblemCollector) -> None:
    """Report fields of the writer that the reader has under another number: their data is lost. A field that the reader
    does not have at all is skipped, which is no problem.

    A number whose field merely has another name is still the same field, whatever else has its name now.
    """
    by_name = {field.name: field for field in mine.values()}
    their_names = {field.name for field in theirs.values()}
    for number, field in theirs.items():
        moved = by_name.get(field.name)
        if moved is None or moved.number == number:
            continue
        here, there = mine.get(number), theirs.get(moved.number)
        if (here is None or here.name in their_names) and (there is None or there.name in by_name):
            message = f"the writer's \"{field.name}\" has the number {number}, the reader's has {moved.number}"
            names = {"name": field.name, "number": number}
            collector.add("FIELD_NUMBER_CHANGED", f"{path}/{field.name}", message, shown(moved), shown(field), **names)


def check_added(
    mine: Any, theirs: Any, my_fields: Fields, their_fields: Fields, path: str, collector: ProblemCollector
) -> None:
    """Report required fields of the reader that the writer does not have: data lacks them. Report also added fields
    whose number the writer had reserved, if the reader neither uses nor reserves some name that the writer reserves."""
    added = [field for number, field in my_fields.items() if number not in their_fields]
    if not added:
        return
    reserved = _reserved(theirs)
    numbers = Ranges.of(reserved.reserved_range).joined()
    forgotten = set(reserved.reserved_name) - _names(mine, my_fields)
    for field in added:
        where, put_away = f"{path}/{field.name}", field.number in numbers
        if field.is_required:
            kind = "REQUIRED_FIELD_REMOVED" if put_away else "REQUIRED_FIELD_ADDED"
            message = f'the reader requires "{field.name}", which the writer does not have'
            collector.add(kind, where, message, shown(field), name=field.name)
        if put_away and forgotten and field.name not in reserved.reserved_name:
            message = f"the number {field.number} was reserved: bytes written before may have something else under it"
            collector.add("FIELD_NUMBER_RESERVED", where, message, shown(field), name=field.name)


def _names(message: Any, fields: Fields) -> set[str]:
    """Return the names that the reader uses or reserves. If the writer reserves others, the reader is a later schema
    that has forgotten them: an earlier one would still have those fields."""
    return {field.name for field in fields.values()} | set(_reserved(message).reserved_name)


def _reserved(message: Any) -> Any:
    described = descriptor_pb2.DescriptorProto()
    message.CopyToProto(described)
    return described
