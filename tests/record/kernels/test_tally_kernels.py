"""The kernels that count against plain Python, and between forbidden pages.

Run as a program (`python -m tests.record.kernels.test_tally_kernels 0 100`) it gives each kernel arrays that begin or
end at a page that nobody may touch, with exactly as much room as is needed: one byte too far ends the process.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.record.kernels.guarded import some_messages
from tests.record.kernels.test_stream_kernels import Fence, Fences, unmoved
from tests.record.samples import stamped

from penstock.record.block import Block, scan
from penstock.record.hashing import as_array, hash64
from penstock.record.kernels import tally_kernels as kernel
from penstock.record.message import Message
from penstock.storage.log.index import encode_entries

ROWS = 64


def tallied(block: Block, width_ms: int, spans: int, fence: Fence = unmoved) -> dict[str, Any]:
    """Return all arrays after one call, or several where a table was full; full tables are emptied into counters."""
    since = int(block.columns[0, 8]) - width_ms
    arrays = {
        "totals": fence(np.array([0, 2**62, -(2**62), 2**62, 0], dtype=np.int64)),
        "sizes": fence(np.zeros(kernel.BUCKETS, dtype=np.int64)),
        "volume": fence(np.zeros((spans, kernel.VOLUME_COLUMNS), dtype=np.int64)),
        "producers": fence(np.zeros((ROWS, kernel.ROW), dtype=np.int64)),
        "schemas": fence(np.zeros((ROWS, kernel.ROW), dtype=np.int64)),
        "used": fence(np.zeros(2, dtype=np.int64)),
    }
    counted: dict[str, Counter[tuple[int, int]]] = {"producers": Counter(), "schemas": Counter()}
    columns, row = fence(block.columns), 0
    while row < len(block):
        row = kernel.tally(columns, row, since, width_ms, *arrays.values())
        for name, counter in counted.items():
            table = arrays[name]
            assert arrays["used"][int(name == "schemas")] == np.count_nonzero(table[:, kernel.COUNT]) < ROWS
            for key, second, count, *_ in table[table[:, kernel.COUNT] > 0].tolist():
                counter[key, second] += count
            table[:] = 0
        arrays["used"][:] = 0
    return arrays | counted


def check(messages: list[Message], fence: Fence = unmoved) -> None:
    block = scan(stamped(messages))[0]
    found = tallied(block, 1000, 3, fence)
    sizes = [len(message.payload) for message in messages]
    times = [record.publish_time_ms for record in block]
    assert found["totals"].tolist() == [sum(sizes), min(times), max(times), min(sizes), max(sizes)]
    assert found["sizes"].sum() == len(messages)
    assert found["volume"].sum(axis=0).tolist() == [len(messages), len(block.raw)]
    numbered = [each for each in messages if each.producer_id and each.request_id]
    assert found["producers"] == Counter((each.producer_id, 0) for each in numbered)
    assert found["schemas"] == Counter((each.schema.id, each.schema.version) for each in messages if each.schema)
    check_hashes(block, fence)


def check_hashes(block: Block, fence: Fence) -> None:
    starts = np.ascontiguousarray(block.columns[:, 15])
    sizes = np.ascontiguousarray(block.payload_sizes)
    hashes = fence(np.zeros(len(block), dtype=np.uint64))
    kernel.hash_ranges(fence(block.data), fence(starts), fence(sizes), hashes)
    assert hashes.tolist() == [hash64(record.message.payload) for record in block]


def test_an_index_holds_what_its_own_writer_has_written() -> None:
    block = scan(stamped([Message(payload=bytes(number)) for number in range(9)]))[0]
    for position, offset in ((0, 0), (2**31, 5), (2**32 - 2000, 2**62)):
        entries = bytearray(encode_entries(block.columns[:, 1] + position, offset))
        assert kernel.entries_held(as_array(bytes(entries)), block.columns, position, offset) == 9
        for bit in (3 * 64, 3 * 64 + 63):
            entries[bit // 8] ^= 1 << bit % 8
            assert kernel.entries_held(as_array(bytes(entries)), block.columns, position, offset) == 3
            entries[bit // 8] ^= 1 << bit % 8


def test_counts_are_those_of_plain_python() -> None:
    for seed in range(60):
        check(some_messages(random.Random(seed)))


@pytest.mark.parametrize("many", [3 * ROWS // 4, 3 * ROWS // 4 + 1, 5 * ROWS])
def test_a_full_table_stops_the_kernel_and_nothing_is_lost(many: int) -> None:
    check([Message(payload=b"x", producer_id=number + 1, request_id=1) for number in range(many)])


def test_a_producer_s_first_and_last_request_and_its_breaks_are_kept() -> None:
    numbers = [5, 6, 6, 9, 2, 3]
    block = scan(stamped([Message(payload=b"", producer_id=1, request_id=number) for number in numbers]))[0]
    producers = np.zeros((ROWS, kernel.ROW), dtype=np.int64)
    arrays = [np.zeros(size, dtype=np.int64) for size in (kernel.TOTALS, kernel.BUCKETS, (1, 2))]
    spare, used = np.zeros((ROWS, kernel.ROW), dtype=np.int64), np.zeros(2, dtype=np.int64)
    assert kernel.tally(block.columns, 0, 0, 1, *arrays, producers, spare, used) == 6
    (row,) = producers[producers[:, kernel.COUNT] > 0].tolist()
    assert row == [1, 0, 6, 5, 3, 2]


def test_what_lies_outside_of_all_spans_counts_with_the_first_or_the_last() -> None:
    block = scan(stamped([Message(payload=b"")]))[0]
    volume = np.zeros((3, 2), dtype=np.int64)
    for since in (int(block.columns[0, 8]) + 10_000, 0):
        arrays = [np.zeros(size, dtype=np.int64) for size in (kernel.TOTALS, kernel.BUCKETS)]
        tables = [np.zeros((ROWS, kernel.ROW), dtype=np.int64) for _ in range(2)]
        kernel.tally(block.columns, 0, since, 1000, *arrays, volume, *tables, np.zeros(2, dtype=np.int64))
    assert volume[:, 0].tolist() == [1, 0, 1]


def main(first: int, last: int) -> None:
    for fence in (Fences(at_end=False), Fences(at_end=True)):
        for seed in range(first, last):
            check(some_messages(random.Random(seed)), fence)
    print("whole")


def test_no_kernel_touches_a_byte_outside_its_arrays() -> None:
    """Runs in a process of its own, between guard pages; freed memory is overwritten at once."""
    command = [sys.executable, "-m", "tests.record.kernels.test_tally_kernels", "0", "40"]
    environment = os.environ | {"MALLOC_PERTURB_": "165"}
    here = Path(__file__).parents[3]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=here, check=False)
    assert (done.returncode, done.stdout) == (0, "whole\n"), done.stderr


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
