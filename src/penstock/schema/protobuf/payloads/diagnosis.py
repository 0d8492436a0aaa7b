"""The diagnosis of bytes that the library could not parse: fault and path. It runs only then, because it is much
slower."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from google.protobuf.descriptor import FieldDescriptor

from penstock.schema.language import PayloadFault
from penstock.schema.protobuf.compatibility.encodings import Encoding, encoding, is_text
from penstock.schema.protobuf.limits import PAYLOAD_DEPTH_MAX
from penstock.schema.protobuf.payloads.wire import BrokenWire, WireField, WireReader, WireType

_SIZES: Final = {
    Encoding.FIXED32: 4,
    Encoding.FIXED64: 8,
    Encoding.FLOAT: 4,
    Encoding.DOUBLE: 8,
}


class _Task(NamedTuple):
    """A message within the payload that waits to be inspected."""

    descriptor: Any
    begin: int
    end: int
    path: str
    depth: int


def diagnosis(descriptor: Any, payload: bytes) -> PayloadFault:
    """Return the first fault of a payload that is not a valid message, as deep in it as it can be located."""
    wire = WireReader(payload)
    waiting = [_Task(descriptor, 0, len(payload), "", 0)]
    while waiting:
        task = waiting.pop()
        if task.depth > PAYLOAD_DEPTH_MAX:
            return PayloadFault(task.path, f"messages are nested more than {PAYLOAD_DEPTH_MAX} deep")
        within: list[_Task | PayloadFault] = []
        try:
            within.extend(_inspect(task, wire))
        except BrokenWire as broken:
            within.append(PayloadFault(task.path, str(broken)))
        for result in within:
            if isinstance(result, PayloadFault):
                return result
        waiting.extend(result for result in reversed(within) if isinstance(result, _Task))
    return PayloadFault("", f"it is not a {descriptor.full_name}")


def knows_a_field(descriptor: Any, payload: bytes) -> bool:
    """Return whether the payload has a field that the message's type knows. For a payload that the library has parsed
    without setting any field. False if none of the fields that may be visited is known."""
    try:
        pieces = WireReader(payload).pieces(0, len(payload))
        return any(_field(descriptor, piece.number) is not None for piece in pieces)
    except BrokenWire:
        return False


def _inspect(task: _Task, wire: WireReader) -> Iterator[_Task | PayloadFault]:
    """Yield the messages within one message, and the faults of its other fields."""
    seen: dict[int, int] = {}
    for piece in wire.pieces(task.begin, task.end):
        field = _field(task.descriptor, piece.number)
        if field is None:
            continue
        index = seen[piece.number] = seen.get(piece.number, -1) + 1
        path = f"{task.path}/{field.name}" + (f"/{index}" if field.is_repeated else "")
        if field.message_type is not None:
            if piece.wire_type is _wire_type(field):
                yield _Task(field.message_type, piece.begin, piece.end, path, task.depth + 1)
        else:
            yield from _faults(field, piece, wire.payload[piece.begin : piece.end], path)


def _faults(field: Any, piece: WireField, contents: bytes, path: str) -> Iterator[PayloadFault]:
    if piece.wire_type is not WireType.LENGTH:
        return
    if field.type == FieldDescriptor.TYPE_STRING:
        if is_text(field) and not _is_utf8(contents):
            yield PayloadFault(path, "it is not text in UTF-8")
    elif field.is_repeated and field.type != FieldDescriptor.TYPE_BYTES:
        size = _SIZES.get(encoding(field))
        if size is not None and len(contents) % size:
            yield PayloadFault(path, f"{len(contents)} bytes are not numbers of {size} bytes each")
        elif size is None and contents and contents[-1] & 0x80:
            yield PayloadFault(path, "the last of its numbers has no end")


def _wire_type(field: Any) -> WireType:
    return WireType.START if field.type == FieldDescriptor.TYPE_GROUP else WireType.LENGTH


def _field(descriptor: Any, number: int) -> Any:
    known = descriptor.fields_by_number.get(number)
    if known is None and descriptor.is_extendable:
        extensions = descriptor.file.pool.FindAllExtensions(descriptor)
        return next((extension for extension in extensions if extension.number == number), None)
    return known


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
