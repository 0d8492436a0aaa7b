"""The layout of a record and its envelope: the numbers of docs/formats.md, once."""

from __future__ import annotations

from typing import Final

# record: id | type length | type | message length | message | checksum
ID_BYTES: Final = 16
TYPE_AT: Final = 17
TYPE_LENGTH_AT: Final = 16
MESSAGE_LENGTH_BYTES: Final = 4
CHECKSUM_BYTES: Final = 8
HEAD_BYTES: Final = ID_BYTES + 1 + MESSAGE_LENGTH_BYTES
"""Bytes before the message, without the type."""
RECORD_BYTES_MIN: Final = HEAD_BYTES + CHECKSUM_BYTES

# envelope: the fixed part, from the first byte of the message
VERSION: Final = 1
FLAGS_AT: Final = 1
OFFSET_AT: Final = 2
PRODUCER_ID_AT: Final = 10
REQUEST_ID_AT: Final = 18
PUBLISH_TIME_AT: Final = 26
SCHEMA_ID_AT: Final = 34
SCHEMA_VERSION_AT: Final = 42
NAME_LENGTH_AT: Final = 46
ENVELOPE_BYTES_MIN: Final = 52
"""The fixed part and the three empty variable fields: producer name, key, attributes."""

FLAG_SCHEMA: Final = 1
FLAG_KEY: Final = 2
FLAGS_KNOWN: Final = FLAG_SCHEMA | FLAG_KEY

MESSAGE_RECORD_BYTES_MIN: Final = RECORD_BYTES_MIN + ENVELOPE_BYTES_MIN
"""The least room that a message takes in a segment."""

# columns of a scan: the fields of each record, one int64 each
START: Final = 0
END: Final = 1
ID_HIGH: Final = 2
ID_LOW: Final = 3
TYPE_BYTES: Final = 4
OFFSET: Final = 5
PRODUCER_ID: Final = 6
REQUEST_ID: Final = 7
PUBLISH_TIME: Final = 8
SCHEMA_ID: Final = 9
SCHEMA_VERSION: Final = 10
FLAGS: Final = 11
NAME_BYTES: Final = 12
KEY_BYTES: Final = 13
ATTRIBUTES: Final = 14
PAYLOAD: Final = 15
COLUMNS: Final = 16
ROW_BYTES: Final = COLUMNS * 8

# modes of a scan
VERIFY: Final = 1
"""Check the checksum of every record."""
ENVELOPES: Final = 2
"""The message is a Penstock envelope; otherwise any bytes."""
STAMPED: Final = 4
"""Ids are UUIDv6 and rise, zeros are unused space, and offsets are dense where the first is known."""
TEXTS: Final = 8
"""Check that type, producer name and attributes are UTF-8, so that decoding cannot fail."""

# reasons why a scan stopped
AT_END: Final = 0
UNUSED: Final = 1
CUT: Final = 2
BAD_CHECKSUM: Final = 3
BAD_ENVELOPE: Final = 4
BAD_ID: Final = 5
BAD_ORDER: Final = 6
BAD_OFFSET: Final = 7
MORE: Final = 8
BAD_TEXT: Final = 9

REASONS: Final = {
    AT_END: "end of the data",
    UNUSED: "unused space",
    CUT: "the record reaches past the end of the data",
    BAD_CHECKSUM: "the checksum does not match",
    BAD_ENVELOPE: "the message is not a valid envelope",
    BAD_ID: "the id is not a UUIDv6",
    BAD_ORDER: "the id is not greater than the one before it",
    BAD_OFFSET: "the offset is not the one that belongs here",
    MORE: "more records follow",
    BAD_TEXT: "type, producer name or an attribute is not UTF-8",
}
