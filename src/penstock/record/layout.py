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
"""Bytes of a record before its message, without those of the type."""
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
"""Bytes of an envelope whose variable fields (producer name, key, attributes) are empty, without the payload."""

FLAG_SCHEMA: Final = 1
FLAG_KEY: Final = 2
FLAGS_KNOWN: Final = FLAG_SCHEMA | FLAG_KEY

MESSAGE_RECORD_BYTES_MIN: Final = RECORD_BYTES_MIN + ENVELOPE_BYTES_MIN
"""The fewest bytes that a message takes in a segment."""

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
"""Mode of a scan: the checksum of every record is checked."""
ENVELOPES: Final = 2
"""Mode of a scan: messages must be Penstock envelopes. Without it they may be any bytes."""
STAMPED: Final = 4
"""Mode of a scan: the records are stamped. Ids must be UUIDv6 and rise, and offsets must have no gaps if the first is
known. Zeros where a record might begin are unused space."""
TEXTS: Final = 8
"""Mode of a scan: type, producer name and attributes must be UTF-8, so that decoding cannot fail."""

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
