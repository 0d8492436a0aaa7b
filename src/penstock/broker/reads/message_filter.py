"""Message filters: by type, key, attributes, and bytes in the payload.

The columns of a whole block are matched first. Only the remaining candidates become Python objects. This module reads
no log.
"""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as Base64Error
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import re2

from penstock.broker.base import request_fields as read
from penstock.broker.base.request_fields import Fields
from penstock.broker.live.connections import Pattern
from penstock.core.errors import InvalidRequest
from penstock.core.limits import ATTRIBUTE_NAME_BYTES_MAX, KEY_BYTES_MAX, KIB
from penstock.record import layout as at
from penstock.record.block import Block, Bools, Longs
from penstock.record.rows import RecordRow, attributes_of
from penstock.storage.catalog.subscriptions import FILTER_CHARS_MAX, FILTERS_MAX

PATTERN_CHARS_MAX: Final = 256
"""The most characters of a regular expression. It is tried on every type of a block."""
CONTAINS_BYTES_MAX: Final = 4 * KIB
"""The most bytes to search for in payloads: enough for a sentence."""
FILTER_ATTRIBUTES_MAX: Final = 16
"""The most attributes in one filter: each is compared with every message that passed the conditions before it."""

FILTER_FIELDS: Final = ("type", "type_regex", "key", "key_base64", "attributes", "contains", "contains_base64")
"""The request fields of a filter. A message must match all that are given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageFilter:
    """A filter of messages. A message must match all conditions; a filter without conditions matches everything."""

    types: tuple[str, ...] = ()
    """Globs for the type: at least one must match. Empty for any type."""

    pattern: Pattern | None = None
    """A regular expression that must be found in the type."""

    keys: tuple[str, ...] = ()
    """Globs for the key: at least one must match. Empty for any key."""

    key: bytes | None = None
    """The exact key; None for any."""

    attributes: Mapping[str, str] = field(default_factory=dict)
    """Attributes that a message must have, with exactly these values."""

    contains: bytes = b""
    """Bytes that must be in the payload."""

    def mask(self, block: Block) -> Bools:
        """Return an array with True for each record of the block that matches."""
        mask = block.matching(self.types, self.keys)
        if self.pattern is not None:
            pattern = self.pattern
            mask &= block.accepted(lambda text: pattern.search(text) is not None)
        if not self._looks_inside or not mask.any():
            return mask
        mask &= self._candidates(block)
        mask[np.flatnonzero(mask)] = [self._matches(row) for row in block.filtered(mask).rows()] if mask.any() else []
        return mask

    @property
    def _looks_inside(self) -> bool:
        return self.key is not None or bool(self.attributes) or bool(self.contains)

    def _candidates(self, block: Block) -> Bools:
        """Return a mask of the records that may match. It searches raw bytes, which is fast but may find too much:
        `_matches` then checks each of the few candidates."""
        columns = block.columns
        starts, payloads, ends = columns[:, at.START], columns[:, at.PAYLOAD], columns[:, at.END] - at.CHECKSUM_BYTES
        matched = np.ones(len(block), np.bool_)
        for written in self._encoded_needles():
            matched &= rows_containing(block, written, starts, payloads)
        if self.contains:
            matched &= rows_containing(block, self.contains, payloads, ends)
        return matched

    def _encoded_needles(self) -> Iterator[bytes]:
        """Yield the key and each attribute in the bytes in which a record contains them."""
        if self.key is not None:
            yield len(self.key).to_bytes(2) + self.key
        for name, value in self.attributes.items():
            named, valued = name.encode(errors="replace"), value.encode(errors="replace")
            yield len(named).to_bytes(2) + named + len(valued).to_bytes(4) + valued

    def _matches(self, row: RecordRow) -> bool:
        key, payload, attributes = row[4], row[5], attributes_of(row)
        return (
            self.key in (None, key)
            and all(attributes.get(name) == value for name, value in self.attributes.items())
            and self.contains in payload
        )


def rows_containing(block: Block, needle: bytes, starts: Longs, stops: Longs) -> Bools:
    """Return a mask of the records that contain `needle`. Of each record, the bytes from its `starts` to its `stops`
    count, which are positions in the block's data. One search runs through the whole buffer; after a match it continues
    at the next record."""
    matched = np.zeros(len(block), np.bool_)
    raw, base = block.raw.tobytes(), int(block.columns[0, at.START])
    begins, ends = (starts - base).tolist(), (stops - base).tolist()
    row, position = 0, raw.find(needle, begins[0])
    while position >= 0:
        row = bisect_right(begins, position, lo=row) - 1
        matched[row] |= position + len(needle) <= ends[row]
        row += 1
        if row == len(begins):
            break
        position = raw.find(needle, begins[row])
    return matched


def parse_filter(fields: Fields) -> MessageFilter:
    """Parse a filter. Raises `InvalidRequest` naming the field that is wrong."""
    for text, base64 in (("key", "key_base64"), ("contains", "contains_base64")):
        if text in fields and base64 in fields:
            raise InvalidRequest(f"Give {text} or {base64}, not both", field=base64)
    return MessageFilter(
        types=_parse_globs(fields, "type"),
        pattern=_parse_pattern(fields, "type_regex"),
        keys=_parse_globs(fields, "key"),
        key=_parse_base64(fields, "key_base64", KEY_BYTES_MAX),
        attributes=_parse_attributes(fields),
        contains=_parse_contains(fields),
    )


def _parse_globs(fields: Fields, name: str) -> tuple[str, ...]:
    globs = read.texts(fields, name)
    if len(globs) > FILTERS_MAX or any(len(glob) > FILTER_CHARS_MAX for glob in globs):
        raise InvalidRequest(
            f"Invalid {name}: at most {FILTERS_MAX} globs of at most {FILTER_CHARS_MAX} characters", field=name
        )
    return globs


def _parse_pattern(fields: Fields, name: str) -> Pattern | None:
    """Compile the regular expression in a field with RE2, which takes linear time. None if the field is absent. Raises
    `InvalidRequest`."""
    if name not in fields:
        return None
    written = read.text(fields, name)
    if len(written) > PATTERN_CHARS_MAX:
        raise InvalidRequest(f"Invalid {name}: at most {PATTERN_CHARS_MAX} characters", field=name)
    options = re2.Options()
    options.log_errors = False
    try:
        compiled: Pattern = re2.compile(written, options)
    except (re2.error, UnicodeEncodeError):
        raise InvalidRequest(f"Invalid {name}: expected a regular expression as RE2 has it", field=name) from None
    return compiled


def _parse_attributes(fields: Fields) -> Mapping[str, str]:
    attributes = fields.get("attributes", {})
    if not isinstance(attributes, dict) or not all(isinstance(value, str) for value in attributes.values()):
        raise InvalidRequest('Invalid attributes: expected {"name": "value"}', field="attributes", given=attributes)
    if len(attributes) > FILTER_ATTRIBUTES_MAX or any(len(name) > ATTRIBUTE_NAME_BYTES_MAX for name in attributes):
        raise InvalidRequest(
            f"Invalid attributes: at most {FILTER_ATTRIBUTES_MAX}, with names of at most {ATTRIBUTE_NAME_BYTES_MAX}"
            " characters",
            field="attributes",
        )
    return attributes


def _parse_contains(fields: Fields) -> bytes:
    if "contains" in fields:
        try:
            needle = read.text(fields, "contains").encode()
        except UnicodeEncodeError:
            raise InvalidRequest("Invalid contains: not valid Unicode", field="contains") from None
        if len(needle) > CONTAINS_BYTES_MAX:
            raise InvalidRequest(f"Invalid contains: at most {CONTAINS_BYTES_MAX} bytes", field="contains")
        return needle
    return _parse_base64(fields, "contains_base64", CONTAINS_BYTES_MAX) or b""


def _parse_base64(fields: Fields, name: str, bytes_max: int) -> bytes | None:
    if name not in fields:
        return None
    written = fields[name]
    try:
        data = b64decode(written, validate=True) if isinstance(written, str) else None
    except (Base64Error, ValueError):
        data = None
    if data is None or len(data) > bytes_max:
        raise InvalidRequest(f"Invalid {name}: expected base64 of at most {bytes_max} bytes", field=name)
    return data
