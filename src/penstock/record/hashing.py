"""HighwayHash-64 over bytes that are here, and over bytes that come in pieces."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.record import kernels
from penstock.record.simd import PACKET_BYTES, initial_state


def as_array(data: Any) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The bytes of any buffer as an array, without a copy."""
    return np.frombuffer(data, dtype=np.uint8)


def as_signed(word: int) -> int:
    """The same 64 bits as a signed number, which is what kernels take."""
    return word - 2**64 if word >= 2**63 else word


def hash64(data: Any) -> int:
    return int(kernels.hash_bytes(as_array(data)))


class StreamHash:
    """The same hash, for data too large to hold: `update` with pieces of any size, then `digest` once."""

    def __init__(self) -> None:
        self._state = np.array(initial_state(), dtype=np.uint64)
        self._rest = b""

    def update(self, data: Any) -> None:
        array = as_array(data)
        if self._rest:
            missing = PACKET_BYTES - len(self._rest)
            self._rest += array[:missing].tobytes()
            if len(self._rest) < PACKET_BYTES:
                return
            kernels.hash_absorb(self._state, as_array(self._rest), 1)
            array = array[missing:]
        whole = array.size // PACKET_BYTES
        kernels.hash_absorb(self._state, array, whole)
        self._rest = array[whole * PACKET_BYTES :].tobytes()

    def digest(self) -> int:
        return int(kernels.hash_finish(self._state, as_array(self._rest)))
