"""The comparison of two Protobuf schemas: kind, path and advice for each problem.

Bytes hold numbers, not names: messages are matched by name, because a reader has to choose one, and everything in them
by number. A payload without a type name is the first message of its file: the first messages are matched too. A reader
skips fields that it does not know; Protobuf is made that way, and it is not a problem by itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, Final

from penstock.schema.problems import Problem
from penstock.schema.protobuf.compatibility import enums as enum_rules
from penstock.schema.protobuf.compatibility import oneofs as oneof_rules
from penstock.schema.protobuf.compatibility.encodings import (
    NUMERIC,
    READABLE,
    SCALAR,
    SOMETIMES_READABLE,
    Encoding,
    encoding,
    is_map,
    is_text,
    shown,
    type_text,
)
from penstock.schema.protobuf.compatibility.numbers import check_added, check_removed
from penstock.schema.protobuf.compatibility.problem_kinds import ProblemCollector
from penstock.schema.protobuf.linking.feature_rules import messages
from penstock.schema.protobuf.linking.library import ROOT, FileLibrary
from penstock.schema.protobuf.names import local

_FIELDS_MAX: Final = 30_000
"""Fields visited in one comparison. Two files have fewer fields together, but hostile ones could make the same field be
compared with many others."""


def compatibility_problems(reader: FileLibrary, writer: FileLibrary, *, lenient: bool) -> list[Problem]:
    """Return the reasons why `reader` cannot read data written with `writer`."""
    return _Comparison(reader, writer, lenient=lenient).problems()


class _Comparison:
    def __init__(
        self, reader: FileLibrary, writer: FileLibrary, *, lenient: bool, fields_max: int = _FIELDS_MAX
    ) -> None:
        self._reader, self._writer, self._lenient = reader, writer, lenient
        self._collector = ProblemCollector(lenient=lenient)
        self._waiting: deque[tuple[Any, Any, str]] = deque()
        self._seen: set[tuple[str, str]] = set()
        self._fields_left = fields_max

    def problems(self) -> list[Problem]:
        self._compare_files()
        self._compare_waiting()
        self._compare_first()
        if self._fields_left <= 0:
            self._collector.add("TYPES_TOO_MANY", "", f"more than {_FIELDS_MAX} fields are to be compared")
        return self._collector.problems

    # Files

    def _compare_files(self) -> None:
        mine, theirs = self._reader.pool.FindFileByName(ROOT), self._writer.pool.FindFileByName(ROOT)
        if mine.package != theirs.package:
            self._collector.add(
                "PACKAGE_CHANGED",
                "",
                f'messages are in the package "{theirs.package}" for the writer, in "{mine.package}" for the reader',
                mine.package,
                theirs.package,
                name=f'"{theirs.package}"',
            )
        known = self._reader_messages(mine)
        used = {field.message_type.full_name for field in _message_fields(theirs)}
        for message in messages(theirs):
            if not message.GetOptions().map_entry:
                self._match(message, known.get(_local(message)), is_used=message.full_name in used)

    def _reader_messages(self, own: Any) -> dict[str, Any]:
        """Return the reader's messages by their names without a package. Those of imported files are included, because
        a message may have moved there."""
        files = [self._reader.pool.FindFileByName(name) for name in self._reader.files if name != ROOT]
        return {_local(message): message for file in (*files, own) for message in messages(file)}

    def _match(self, theirs: Any, mine: Any, *, is_used: bool) -> None:
        """Compare a writer's message with the reader's (`mine`), or report it as removed if the reader has none. A
        nested message that is the type of a field is not reported: payloads contain it only as that field."""
        if mine is not None:
            self._enqueue(mine, theirs, _path(theirs))
        elif theirs.containing_type is None or not is_used:
            self._collector.add(
                "MESSAGE_REMOVED",
                _path(theirs),
                f"the writer may write a {_local(theirs)}, and the reader has no such message",
                writer=f"message {theirs.name}",
                name=_local(theirs),
            )

    def _compare_first(self) -> None:
        """Compare the first messages. A payload is the first message of the writer's schema, and the reader takes it
        for the first message of its own. Without a message in the writer's schema there are no payloads."""
        mine, theirs = _first(self._reader), _first(self._writer)
        if theirs is None or self._can_replace(mine, theirs):
            return
        what = "nothing" if mine is None else f"a {_local(mine)}"
        self._collector.add(
            "FIRST_MESSAGE_CHANGED",
            _path(theirs),
            f"a payload is the first message of its schema: a {_local(theirs)} for the writer, {what} for the reader",
            "" if mine is None else f"message {mine.name}",
            f"message {theirs.name}",
            name=_local(theirs),
        )

    def _can_replace(self, mine: Any, theirs: Any) -> bool:
        if mine is None:
            return False
        return _local(mine) == _local(theirs) or self._reads(mine, theirs)

    def _reads(self, mine: Any, theirs: Any) -> bool:
        """Return whether the reader's message, under another name, has all fields of the writer's, and comparing them
        finds no problem."""
        alone = _Comparison(self._reader, self._writer, lenient=self._lenient, fields_max=self._fields_left)
        if not alone._has_all_of(mine, theirs):
            return False
        alone._enqueue(mine, theirs, _path(theirs))
        alone._compare_waiting()
        self._fields_left = alone._fields_left
        return not alone._collector.problems

    # Messages

    def _compare_waiting(self) -> None:
        while self._waiting and self._fields_left > 0:
            self._compare_messages(*self._waiting.popleft())

    def _enqueue(self, mine: Any, theirs: Any, path: str) -> None:
        """Enqueue a comparison of two messages, unless the two were enqueued before."""
        pair = mine.full_name, theirs.full_name
        if pair not in self._seen:
            self._seen.add(pair)
            self._waiting.append((mine, theirs, path))

    def _compare_messages(self, mine: Any, theirs: Any, path: str) -> None:
        my_fields, their_fields = _fields(mine, self._reader.pool), _fields(theirs, self._writer.pool)
        self._fields_left -= len(my_fields) + len(their_fields)
        if mine.GetOptions().message_set_wire_format != theirs.GetOptions().message_set_wire_format:
            message = "a message set is encoded in a way of its own"
            self._collector.add("MESSAGE_SET_CHANGED", path, message, _local(mine), _local(theirs))
            return
        check_removed(my_fields, their_fields, path, self._collector)
        check_added(mine, theirs, my_fields, their_fields, path, self._collector)
        oneof_rules.check(my_fields, their_fields, path, self._collector)
        for number, field in their_fields.items():
            if number in my_fields:
                self._compare_fields(my_fields[number], field, f"{path}/{_name(my_fields[number])}")

    # Fields

    def _compare_fields(self, mine: Any, theirs: Any, path: str) -> None:
        if mine.is_required and not theirs.is_required:
            self._add(
                "REQUIRED_FIELD_ADDED", path, "the reader requires a field that the writer may leave out", mine, theirs
            )
        if is_map(mine) or is_map(theirs):
            self._compare_maps(mine, theirs, path)
            return
        ours = encoding(mine), encoding(theirs)
        if ours not in READABLE:
            self._add_kind_changed(mine, theirs, path)
        elif theirs.is_repeated and not mine.is_repeated and ours[1] in NUMERIC:
            message = "the writer packs several numbers together, where the reader expects one"
            self._add("FIELD_NUMERIC_LABEL_CHANGED", path, message, mine, theirs)
        else:
            self._compare_types(mine, theirs, path)

    def _add_kind_changed(self, mine: Any, theirs: Any, path: str) -> None:
        pair = encoding(mine), encoding(theirs)
        kind = "FIELD_SCALAR_KIND_CHANGED" if set(pair) <= SCALAR else "FIELD_KIND_CHANGED"
        why = SOMETIMES_READABLE.get(pair)
        message = f"what is written as {type_text(theirs)} cannot be read as {type_text(mine)}"
        self._add(kind, path, f"{message}: {why}" if why else message, mine, theirs, tolerable=why is not None)

    def _compare_types(self, mine: Any, theirs: Any, path: str) -> None:
        """Compare the types of fields whose encodings are readable as each other."""
        if mine.message_type is not None and theirs.message_type is not None:
            self._compare_named(mine, theirs, path)
        elif mine.enum_type is not None:
            self._compare_enums(mine, theirs, path)
        elif is_text(mine) and not is_text(theirs):
            message = "the reader demands UTF-8 of a string that may be any bytes for the writer"
            self._add("FIELD_UTF8_DEMANDED", path, message, mine, theirs)

    def _compare_maps(self, mine: Any, theirs: Any, path: str) -> None:
        """Compare two fields of which at least one is a map. A map is encoded as a repeated message with a key and a
        value, so each can be read as the other."""
        if not mine.is_repeated or not theirs.is_repeated or not _are_entries(mine, theirs):
            message = f"what is written as {type_text(theirs)} cannot be read as {type_text(mine)}"
            self._add("FIELD_KIND_CHANGED", path, message, mine, theirs)
        else:
            self._enqueue(mine.message_type, theirs.message_type, path)

    def _compare_named(self, mine: Any, theirs: Any, path: str) -> None:
        reader, writer = mine.message_type, theirs.message_type
        if _local(reader) != _local(writer) and not self._has_all_of(reader, writer):
            self._add_named_type_changed(mine, theirs, path)
        else:
            self._enqueue(reader, writer, _path(reader))

    def _has_all_of(self, mine: Any, theirs: Any) -> bool:
        """Return whether `mine` has all fields of `theirs`, with the same numbers and names. It is then the same type
        under another name."""
        if (mine.full_name, theirs.full_name) in self._seen:
            return True
        known = mine.fields_by_number
        return all(field.number in known and known[field.number].name == field.name for field in theirs.fields)

    def _compare_enums(self, mine: Any, theirs: Any, path: str) -> None:
        reader, writer = mine.enum_type, theirs.enum_type
        if writer is None:
            if reader.is_closed:
                message = f"not every {type_text(theirs)} is a value of the enum"
                self._add("FIELD_KIND_CHANGED", path, message, mine, theirs, tolerable=True)
        elif (reader.full_name, writer.full_name) not in self._seen:
            if _local(reader) != _local(writer) and not enum_rules.has_all_of(reader, writer):
                self._add_named_type_changed(mine, theirs, path)
                return
            self._seen.add((reader.full_name, writer.full_name))
            enum_rules.check(reader, writer, _path(reader), self._collector)

    def _add_named_type_changed(self, mine: Any, theirs: Any, path: str) -> None:
        message = f"what is a {_local(theirs.message_type or theirs.enum_type)} for the writer is a"
        message += (
            f" {_local(mine.message_type or mine.enum_type)} for the reader, which does not have all that was in it"
        )
        self._add("FIELD_NAMED_TYPE_CHANGED", path, message, mine, theirs)

    def _add(self, kind: str, path: str, message: str, mine: Any, theirs: Any, *, tolerable: bool = False) -> None:
        names = {"name": theirs.name, "number": theirs.number, "type": type_text(theirs)}
        self._collector.add(kind, path, message, shown(mine), shown(theirs), tolerable=tolerable, **names)


def _first(library: FileLibrary) -> Any:
    """Return the first message of a schema's own file, which is the type of its payloads; None in a file without
    messages."""
    return next(iter(library.pool.FindFileByName(ROOT).message_types_by_name.values()), None)


def _fields(message: Any, pool: Any) -> dict[int, Any]:
    """Return all fields of a message by number. Extensions are included, because bytes do not tell them from fields."""
    extensions = pool.FindAllExtensions(message) if message.is_extendable else ()
    return {field.number: field for field in (*extensions, *message.fields)}


def _message_fields(file: Any) -> Iterator[Any]:
    for message in messages(file):
        for field in (*message.fields, *message.extensions):
            if field.message_type is not None:
                yield field
    for field in file.extensions_by_name.values():
        if field.message_type is not None:
            yield field


def _are_entries(mine: Any, theirs: Any) -> bool:
    """Return whether both fields are messages with the field numbers 1 and 2 alone, like the key and value of a map."""
    return all(
        field.message_type is not None
        and encoding(field) is Encoding.MESSAGE
        and set(field.message_type.fields_by_number) == {1, 2}
        for field in (mine, theirs)
    )


def _local(descriptor: Any) -> str:
    return local(descriptor.full_name, descriptor.file.package)


def _path(descriptor: Any) -> str:
    return "/" + _local(descriptor).replace(".", "/")


def _name(field: Any) -> str:
    return f"({field.full_name})" if field.is_extension else str(field.name)
