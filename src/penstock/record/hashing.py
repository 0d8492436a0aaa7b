"""HighwayHash-64 over whole buffers, and over data in pieces."""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np

from penstock.core.errors import InvalidRequest
from penstock.record.kernels import block_kernels
from penstock.record.kernels.simd import KEY, PACKET_BYTES, initial_state

KEY_BYTES: Final = len(KEY)
_KEY: Final = re.compile(rf"[0-9a-fA-F]{{{2 * KEY_BYTES}}}", re.ASCII)


def as_array(data: Any) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return the bytes of any buffer as an array, without a copy."""
    return np.frombuffer(data, dtype=np.uint8)


def as_signed(word: int) -> int:
    """Return an unsigned 64-bit number as the signed one with the same bits, because kernels take signed numbers."""
    return word - 2**64 if word >= 2**63 else word


def hash64(data: Any) -> int:
    """Return the HighwayHash-64 of a buffer under Penstock's key."""
    return int(block_kernels.hash_bytes(as_array(data)))


def parse_hash_key(text: str) -> bytes:
    """Parse a hash key of another system, 32 bytes in hexadecimal digits. Raises `InvalidRequest` for any other
    text."""
    if not _KEY.fullmatch(text):
        raise InvalidRequest(
            f"a hash key is {KEY_BYTES} bytes in {2 * KEY_BYTES} hexadecimal digits, not {text[:80]!r}"
        )
    return bytes.fromhex(text)


def keyed_hash64(data: Any, key: bytes) -> int:
    """Return the HighwayHash-64 of a buffer under a key of 32 bytes."""
    hashing = StreamHash(key)
    hashing.update(data)
    return hashing.digest()


class StreamHash:
    """The HighwayHash-64 of data in pieces of any size: call `update` for each piece, then `digest` once."""

    def __init__(self, key: bytes = KEY) -> None:
        self._state = np.array(initial_state(key), dtype=np.uint64)
        self._rest = b""

    def update(self, data: Any) -> None:
        array = as_array(data)
        if self._rest:
            missing = PACKET_BYTES - len(self._rest)
            self._rest += array[:missing].tobytes()
            if len(self._rest) < PACKET_BYTES:
                return
            block_kernels.hash_absorb(self._state, as_array(self._rest), 1)
            array = array[missing:]
        whole = array.size // PACKET_BYTES
        block_kernels.hash_absorb(self._state, array, whole)
        self._rest = array[whole * PACKET_BYTES :].tobytes()

    def digest(self) -> int:
        return int(block_kernels.hash_finish(self._state, as_array(self._rest)))
