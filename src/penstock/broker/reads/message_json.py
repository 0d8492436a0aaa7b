"""Messages as JSON, for people and for programs that do not know the binary formats. Long values are cut, and marked as
cut.

Bytes that are UTF-8 are shown as text, others as base64 in a field whose name says so. The JSON of one message has a
maximal size, whatever the message contains.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import Final

from penstock.broker.base.request_fields import Fields
from penstock.core.ids import format_id
from penstock.core.limits import KIB
from penstock.record.rows import RecordRow

PREVIEW_BYTES: Final = 1 * KIB
"""The default number of bytes to which a payload is cut in a list."""
PREVIEW_BYTES_MAX: Final = 64 * KIB
"""The most bytes of a payload that a list may have. A longer payload is fetched by itself."""
_KEY_BYTES_MAX: Final = 4 * KIB
_ATTRIBUTE_BYTES_MAX: Final = 16 * KIB
"""The most bytes of attribute names and values that a list has for one message."""
_CONTINUES: Final = 0b1000_0000
_MARK: Final = 0b1100_0000


def message_json(partition: int, row: RecordRow, preview: int = PREVIEW_BYTES, *, whole: bool = False) -> Fields:
    """Return the fields of a message, with its payload cut to `preview` bytes. Key and attributes are cut too, unless
    `whole`."""
    id_, offset, time_ms, type_, key, payload, producer, producer_id, request_id, schema, attributes = row
    fields: Fields = {
        "partition": partition,
        "offset": offset,
        "id": format_id(id_),
        "publish_time": time_ms,
        "type": type_,
        "producer_name": producer,
        "producer_id": producer_id,
        "request_id": request_id,
        "payload_bytes": len(payload),
    }
    if key is not None:
        fields |= bytes_field("key", key, len(key) if whole else _KEY_BYTES_MAX)
    if schema is not None:
        fields |= {"schema_id": schema.id, "schema_version": schema.version}
    fields |= {"attributes": dict(attributes or {})} if whole else _attributes(attributes or {})
    return fields | bytes_field("payload", payload, preview)


def message_stub(partition: int, row: RecordRow) -> Fields:
    """Return the smallest description of a message: its position, time and size, with an empty payload that is marked
    as cut."""
    position = {"partition": partition, "offset": row[1], "id": format_id(row[0]), "publish_time": row[2]}
    return position | {"payload_bytes": len(row[5]), "payload": "", "payload_cut": True, "attributes_cut": True}


def bytes_field(name: str, data: bytes, room: int) -> Fields:
    """Return a field with the bytes as text, or as base64 if they are not UTF-8. If they are longer than `room`, they
    are cut, and a second field says so."""
    cut = {f"{name}_cut": True} if len(data) > room else {}
    try:
        data.decode()
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(data[:room]).decode()} | cut
    return {name: _cut(data, room).decode()} | cut


def _cut(data: bytes, room: int) -> bytes:
    """Cut UTF-8 to at most `room` bytes, without splitting a character."""
    if len(data) <= room:
        return data
    while room and data[room] & _MARK == _CONTINUES:
        room -= 1
    return data[:room]


def _attributes(attributes: Mapping[str, str]) -> Fields:
    """Return the attributes that there is room for, in their order, and a mark if some are left out."""
    kept: dict[str, str] = {}
    room = _ATTRIBUTE_BYTES_MAX
    for name, value in attributes.items():
        room -= len(name.encode(errors="replace")) + len(value.encode(errors="replace"))
        if room < 0:
            return {"attributes": kept, "attributes_cut": True}
        kept[name] = value
    return {"attributes": kept}
