"""The speed of scanning, verifying, encoding and stamping blocks, compared with copying the same bytes in memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from penstock.bench import Figure, best_seconds
from penstock.core.clock import SystemClock
from penstock.core.ids import IdGenerator
from penstock.core.limits import MIB
from penstock.record import layout as at
from penstock.record.arrow import encode, encoder_columns
from penstock.record.block import Block, Draft, scan, stamp
from penstock.record.hashing import as_array
from penstock.record.kernels import block_kernels
from penstock.record.message import Message

_ROWS = 1024
_BLOCK_BYTES = MIB


def sample(payload_bytes: int) -> Message:
    return Message(
        payload=bytes(payload_bytes), type="order.created", producer_name="bench", producer_id=7, request_id=1
    )


def measure(*, megabytes: int = 256, rounds: int = 5) -> Iterator[Figure]:
    for label, size in (("100 B", 100), ("1 KiB", 1024), ("64 KiB", 65_536)):
        yield from _measure_size(label, size, megabytes, rounds)


def _measure_size(label: str, size: int, megabytes: int, rounds: int) -> Iterator[Figure]:
    record = Draft.of([sample(size)]).data
    count = max(2, megabytes * MIB // len(record))
    data = bytearray(record * count)
    ids = IdGenerator(SystemClock(), node=1)
    stamped = best_seconds(lambda: stamp(data, count, ids.take(count), 0), rounds=rounds)
    array = as_array(data)
    target = np.empty_like(array)
    target.fill(1)
    copied = best_seconds(lambda: np.copyto(target, array), rounds=rounds)
    verified = best_seconds(lambda: scan_all(array, verify=True), rounds=rounds)
    yield _share(f"scan and verify, {label}", array.size, verified, "memory copy", copied)
    if size == 100:
        unverified = best_seconds(lambda: scan_all(array, verify=False), rounds=rounds)
        yield _share(f"scan without verifying, {label}", array.size, unverified, "memory copy", copied)
    yield _share(f"stamp, {label}", array.size, stamped, "scan and verify", verified)
    yield _encode_figure(label, array, rounds)


def _share(name: str, size: int, seconds: float, reference: str, reference_seconds: float) -> Figure:
    return Figure(
        name=name,
        value=size / seconds / 1e9,
        unit="GB/s",
        reference=reference,
        reference_value=size / reference_seconds / 1e9,
        ratio=reference_seconds / seconds,
    )


def scan_all(array: object, *, verify: bool) -> int:
    """Scan every record of a buffer and return their number. The same columns are filled again and again, as when a
    large file is read."""
    columns = np.empty((_ROWS, at.COLUMNS), dtype=np.int64)
    mode = at.STAMPED | at.ENVELOPES | at.TEXTS | (at.VERIFY if verify else 0)
    position = high = low = 0
    done: int = 0
    size = len(array)  # type: ignore[arg-type]
    while True:
        count, position, reason = block_kernels.scan(array, position, size, mode, high, low, done, columns)
        done += count
        if reason != at.MORE:
            return done
        high, low = int(columns[-1, at.ID_HIGH]), int(columns[-1, at.ID_LOW])


def _encode_figure(label: str, array: np.ndarray[tuple[int], np.dtype[np.uint8]], rounds: int) -> Figure:
    block, _ = scan(array[:_BLOCK_BYTES])
    columns = encoder_columns(block.to_arrow(views=False))
    encoded = best_seconds(lambda: encode(columns), rounds=20 * rounds)
    scanned = best_seconds(lambda: _rescan(block), rounds=20 * rounds)
    return _share(f"encode a block, {label}", len(block.raw), encoded, "scan and verify", scanned)


def _rescan(block: Block) -> int:
    return scan_all(block.data[: int(block.columns[-1, at.END])], verify=True)
