"""Payloads encoded as a block without a Python object for each record: their common fields are encoded once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from penstock.core import limits
from penstock.core.errors import InvalidRequest, PenstockError
from penstock.record import layout as at
from penstock.record.hashing import as_array
from penstock.record.kernels import stream_kernels
from penstock.record.message import Message, check_request_ids, checked_bytes, draft_bytes

_Bytes = np.ndarray[Any, np.dtype[np.uint8]]
_Longs = np.ndarray[Any, np.dtype[np.int64]]

_BYTES_ONLY: Final = frozenset({bytes})
_NO_KEY: Final = -1


def encode_payloads(payloads: Sequence[bytes], keys: Sequence[bytes | None] | None, common: Message) -> _Bytes:
    """Encode payloads as records with right checksums. All fields but payload, key and request id are those of
    `common`.

    Request ids count up from that of `common`; with 0 no record has one. Raises `InvalidRequest` or `PayloadTooLarge`
    with the number of the message.
    """
    check_request_ids(common.request_id, len(payloads))
    data, sizes = _joined(payloads, "payload", limits.SEGMENT_BYTES_CEILING)
    key_data, key_sizes = _no_keys(len(payloads)) if keys is None else _joined_keys(keys, len(payloads))
    return _encode(common, data, np.cumsum(sizes) - sizes, sizes, key_data, key_sizes, checksums=True)


def encode_ranges(data: _Bytes, starts: _Longs, sizes: _Longs, common: Message) -> _Bytes:
    """Encode ranges of a buffer as the payloads of records without keys, whose checksums are zero."""
    return _encode(common, data, starts, sizes, *_no_keys(starts.size), checksums=False)


def _encode(
    common: Message, data: _Bytes, starts: _Longs, sizes: _Longs, keys: _Bytes, key_sizes: _Longs, *, checksums: bool
) -> _Bytes:
    if not sizes.size:
        raise InvalidRequest("a block has at least one message")
    record = draft_bytes(common)
    name = at.HEAD_BYTES + record[at.TYPE_LENGTH_AT] + at.NAME_LENGTH_AT
    key = name + 2 + int.from_bytes(record[name : name + 2])
    head, tail = as_array(record[:key]), as_array(record[key + 2 : -at.CHECKSUM_BYTES])
    out = np.empty(sizes.size * len(record) + int(sizes.sum()) + keys.size, dtype=np.uint8)
    columns = (head, tail, data, starts, sizes, keys, key_sizes)
    taken = stream_kernels.encode_alike(*columns, common.request_id, checksums, out)
    assert taken == out.size, "encode_alike wrote another size than was added up"  # noqa: S101 - a bug, not bad input
    return out


def _no_keys(count: int) -> tuple[_Bytes, _Longs]:
    return as_array(b""), np.full(count, _NO_KEY, dtype=np.int64)


def _joined_keys(keys: Sequence[bytes | None], count: int) -> tuple[_Bytes, _Longs]:
    if len(keys) != count:
        raise InvalidRequest(f"{count} messages have {count} keys, not {len(keys)}", field="keys")
    data, sizes = _joined([b"" if key is None else key for key in keys], "key", limits.KEY_BYTES_MAX)
    sizes[[key is None for key in keys]] = _NO_KEY
    return data, sizes


def _joined(values: Sequence[bytes], what: str, bytes_max: int) -> tuple[_Bytes, _Longs]:
    """Return all values as one array, one behind the other, and the size of each. Raises as `checked_bytes` does."""
    if not _BYTES_ONLY.issuperset(map(type, values)):
        values = _checked(values, what, bytes_max)
    sizes = np.fromiter(map(len, values), np.int64, len(values))
    if int(sizes.max(initial=0)) > bytes_max:
        _checked(values, what, bytes_max)
    return as_array(b"".join(values)), sizes


def _checked(values: Sequence[bytes], what: str, bytes_max: int) -> list[bytes]:
    """Check each value by itself, and return them as bytes. Slow, but right for memory views of any shape too."""
    checked = []
    for number, value in enumerate(values):
        try:
            checked.append(checked_bytes(value, what, bytes_max))
        except PenstockError as error:
            sentence = f"message {number} of the block: {error.message}"
            raise type(error)(sentence, record=number, **error.details) from None
    return checked  # type: ignore[return-value]
