"""Blocks as columns in one pass, against the same records read one by one."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.record.samples import blocks, stamped, unhurried

from penstock.record.block import Block, scan
from penstock.record.kernels import column_kernels as kernels
from penstock.record.message import Message

FENCE = 0xAB
EVERYTHING = 1023
BITS = {1 << place for place in range(10)}


class Fenced:
    """Arrays with a fence on either side, which nobody may touch."""

    def __init__(self) -> None:
        self._made: list[tuple[Any, int]] = []

    def array(self, *shape: int, kind: Any = np.uint8) -> Any:
        size = int(np.prod(shape)) * np.dtype(kind).itemsize
        whole = np.full(size + 128, FENCE, dtype=np.uint8)
        self._made.append((whole, size))
        return whole[64 : 64 + size].view(kind).reshape(shape)

    def check(self) -> None:
        for whole, size in self._made:
            assert (whole[:64] == FENCE).all()
            assert (whole[64 + size :] == FENCE).all()


def filled(block: Block, wants: int) -> dict[str, Any]:
    fenced, rows = Fenced(), len(block)
    sizes = kernels.text_bytes(block.columns)
    bits = (kernels.TYPE, kernels.NAME, kernels.KEY, kernels.VALUE)
    numbers = wants & (kernels.OFFSET | kernels.TIME | kernels.PRODUCER_ID | kernels.REQUEST_ID | kernels.SCHEMA)
    made: dict[str, Any] = {
        "numbers": fenced.array(kernels.NUMBERS, rows if numbers else 0, kind=np.int64),
        "versions": fenced.array(rows if wants & kernels.SCHEMA else 0, kind=np.int32),
        "ids": fenced.array(16 * rows if wants & kernels.ID else 0),
        "present": fenced.array(2, (rows + 7) // 8),
        "ends": fenced.array(kernels.TEXTS, rows + 1, kind=np.int32),
    }
    made["texts"] = [fenced.array(size if wants & bit else 0) for bit, size in zip(bits, sizes, strict=True)]
    counts = kernels.fill(
        block.data,
        block.columns,
        wants,
        *(made[name] for name in ("numbers", "versions", "ids", "present", "ends")),
        *made["texts"],
    )
    fenced.check()
    return made | {"counts": counts}


def texts(made: dict[str, Any], which: int) -> list[bytes]:
    ends, data = made["ends"][which].tolist(), made["texts"][which].tobytes()
    return [data[start:stop] for start, stop in pairwise(ends)]


def bits(made: dict[str, Any], which: int, rows: int) -> list[bool]:
    found: list[bool] = np.unpackbits(made["present"][which], bitorder="little")[:rows].astype(bool).tolist()
    return found


@unhurried
@given(blocks, st.integers(0, 2**40), st.sets(st.sampled_from(sorted(BITS))))
def test_columns_are_those_of_the_records(messages: list[Message], first: int, wanted: set[int]) -> None:
    block, _ = scan(stamped(messages * 3, first_offset=first))
    records, wants = list(block), sum(wanted)
    made = filled(block, wants)
    numbers = made["numbers"].tolist()
    expected: dict[int, Callable[[], bool]] = {
        kernels.OFFSET: lambda: numbers[kernels.OFFSETS] == [record.offset for record in records],
        kernels.TIME: lambda: numbers[kernels.TIMES] == [1000 * record.publish_time_ms for record in records],
        kernels.PRODUCER_ID: lambda: numbers[kernels.PRODUCER_IDS] == [r.message.producer_id for r in records],
        kernels.REQUEST_ID: lambda: numbers[kernels.REQUEST_IDS] == [r.message.request_id for r in records],
        kernels.SCHEMA: lambda: schemas(made, records),
        kernels.ID: lambda: made["ids"].tobytes() == b"".join(record.id for record in records),
        kernels.TYPE: lambda: texts(made, kernels.TYPES) == [r.message.type.encode() for r in records],
        kernels.NAME: lambda: texts(made, kernels.NAMES) == [r.message.producer_name.encode() for r in records],
        kernels.KEY: lambda: keys(made, records),
        kernels.VALUE: lambda: texts(made, kernels.VALUES) == [bytes(r.message.payload) for r in records],
    }
    assert [bit for bit in wanted if not expected[bit]()] == []


def schemas(made: dict[str, Any], records: list[Any]) -> bool:
    there = [record.message.schema is not None for record in records]
    found = zip(made["numbers"][kernels.SCHEMA_IDS].tolist(), made["versions"].tolist(), strict=True)
    named = [(r.message.schema.id, r.message.schema.version) if r.message.schema else (0, 0) for r in records]
    marked = bits(made, kernels.WITH_SCHEMA, len(records))
    return list(found) == named and marked == there and made["counts"][0] == sum(there)


def keys(made: dict[str, Any], records: list[Any]) -> bool:
    there = [record.message.key is not None for record in records]
    same = texts(made, kernels.KEYS) == [record.message.key or b"" for record in records]
    return same and bits(made, kernels.WITH_KEY, len(records)) == there and made["counts"][1] == sum(there)


def test_a_block_without_records_has_empty_columns() -> None:
    block, _ = scan(b"")
    made = filled(block, EVERYTHING)
    assert made["counts"] == (0, 0)
    assert made["ends"][:, 0].tolist() == [0, 0, 0, 0]


def test_records_that_were_chosen_are_filled_as_if_they_were_all() -> None:
    messages = [Message(payload=b"%d" % number * number, type="ab"[number % 2]) for number in range(40)]
    block, _ = scan(stamped(messages))
    chosen = block.filtered(block.accepted("b".__eq__))
    made = filled(chosen, EVERYTHING)
    assert texts(made, kernels.VALUES) == [bytes(message.payload) for message in messages[1::2]]
    assert made["numbers"][kernels.OFFSETS].tolist() == list(range(1, 40, 2))
