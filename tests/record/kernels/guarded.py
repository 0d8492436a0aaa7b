"""Hostile blocks between two pages that nobody may touch: a kernel that reads or writes one byte too far dies here.

Run as a program of its own, because what it looks for ends the process.
"""

from __future__ import annotations

import ctypes
import mmap
import random
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np

from penstock.core.errors import PenstockError
from penstock.core.ids import IdRun
from penstock.record.block import Block, Draft, scan, stamp
from penstock.record.kernels import block_kernels, stream_kernels, text_kernels
from penstock.record.message import Message, SchemaRef

PAGE = mmap.PAGESIZE
PAGES = 16
IDS = IdRun(0x1F0_0000_0000_0000, 8, 0x8000_0100_0000_0001)


class Guarded:
    """Memory with a forbidden page on either side."""

    def __init__(self) -> None:
        self.map = mmap.mmap(-1, (PAGES + 2) * PAGE)
        self.start = ctypes.addressof(ctypes.c_char.from_buffer(self.map)) + PAGE
        library = ctypes.CDLL(None, use_errno=True)
        for place in (self.start - PAGE, self.start + PAGES * PAGE):
            if library.mprotect(ctypes.c_void_p(place), ctypes.c_size_t(PAGE), 0) != 0:
                raise OSError(ctypes.get_errno(), "mprotect")

    def holding(self, data: bytes) -> Iterator[Any]:
        """The bytes right behind the first forbidden page, then right before the second."""
        for place in (self.start, self.start + PAGES * PAGE - len(data)):
            ctypes.memmove(place, data, len(data))
            memory: Any = (ctypes.c_uint8 * len(data)).from_address(place)
            yield np.frombuffer(memory, dtype=np.uint8)


def some_messages(chance: random.Random) -> list[Message]:
    def some_bytes(limit: int) -> bytes:
        return chance.randbytes(chance.choice((0, 1, chance.randrange(limit))))

    def some_text(limit: int) -> str:
        return "".join(chance.choice("ax.é漢🜁") for _ in range(chance.choice((0, 1, chance.randrange(limit)))))

    return [
        Message(
            payload=some_bytes(200),
            type=some_text(40),
            key=chance.choice((None, some_bytes(40))),
            attributes={some_text(10): some_text(30) for _ in range(chance.randrange(4))},
            producer_name=some_text(20),
            producer_id=chance.getrandbits(63),
            request_id=chance.getrandbits(63),
            schema=chance.choice((None, SchemaRef(chance.getrandbits(63), chance.getrandbits(31)))),
        )
        for _ in range(IDS.count)
    ]


def damaged(data: bytes, chance: random.Random) -> bytes:
    """Bytes changed, numbers made extreme, pieces moved, the end cut, a little unused space."""
    changed = bytearray(data)
    for _ in range(chance.choice((0, 1, 1, 2, 5))):
        place = chance.randrange(len(changed))
        piece = chance.choice((b"\xff", b"\0", b"\xff\xff", b"\0\0\0\1", b"\xff\xff\xff\xff", chance.randbytes(3)))
        changed[place : place + len(piece)] = piece
    if chance.random() < 0.3:
        source, size = chance.randrange(len(changed)), chance.randrange(100)
        place = chance.randrange(len(changed))
        changed[place:place] = changed[source : source + size]
    if chance.random() < 0.7:
        del changed[chance.randrange(len(changed)) :]
    return bytes(changed) + bytes(chance.choice((0, 0, 1, 15, 16, 17)))


def use(block: Block) -> None:
    """Read all that a block offers; text that is none may only fail as text."""
    for row in range(len(block)):
        with suppress(UnicodeDecodeError):
            block.record(row)
    block.to_arrow()
    block.to_arrow(views=False)
    text_kernels.first_bad_text(block.data, block.columns)
    use_many(block)


def use_many(block: Block) -> None:
    """The same for what looks at all records at once."""
    block.rows()
    block.key_hashes()
    block.matching(["a*", "*x"], ["*"])
    for chosen in (np.arange(len(block)), np.arange(len(block))[::-2]):
        gathered = block.gather(chosen)
        assert gathered.rows() == [block.rows()[row] for row in chosen]
    out = np.empty(len(block) * (4 + 36 + 1) + int(block.payload_sizes.sum()), np.uint8)
    stream_kernels.publish(block.data, block.columns, np.zeros(36, np.uint8), 0, out)


def look_at(data: Any, chance: random.Random) -> None:
    for verify in (True, False):
        use(scan(data, verify=verify)[0])
        use(scan(data, verify=verify, start=chance.randrange(data.size + 1))[0])
        use(scan(data, verify=verify, stop=chance.randrange(data.size + 1))[0])
        use(scan(data, verify=verify, envelopes=False)[0])
        with suppress(PenstockError):
            Draft.parse(data, verify=verify)
    block_kernels.find(data, 0, data.size, 0, 0, 0, 2**63 - 1, chance.randrange(99), 2**62)
    block_kernels.find(data, min(1, data.size), data.size, 0, 0, 0, 2**63 - 1, chance.randrange(99), 2**62)
    block_kernels.first_used(data)
    block_kernels.hash_bytes(data)


def change(data: Any, _chance: random.Random) -> None:
    for count in (IDS.count, 1):
        with suppress(PenstockError):
            stamp(data, count, IdRun(IDS.first_ticks, count, IDS.low), 0)


def play(seed: int, action: Callable[[Any, random.Random], None], memory: Guarded) -> None:
    chance = random.Random(seed)
    data = bytearray(Draft.of(some_messages(chance)).data)
    stamp(data, IDS.count, IDS, 0)
    for array in memory.holding(damaged(bytes(data), chance)):
        action(array, chance)


def short_records() -> Iterator[bytes]:
    """Records whose lengths just do, or just do not, leave room for what has to follow."""
    for size in range(64):
        for type_bytes in (0, 1, 200, 255):
            message = b"\1" + bytes(size)[1:]
            yield bytes(range(1, 17)) + bytes((type_bytes,)) + bytes(size)
            yield bytes(16) + bytes((type_bytes,)) + bytes(type_bytes) + struct.pack(">I", size) + message + bytes(8)
            yield bytes(size)


def play_short(memory: Guarded) -> None:
    chance = random.Random(0)
    for data in short_records():
        for array in memory.holding(data):
            look_at(array, chance)
            change(array, chance)


def main(first: int, last: int) -> None:
    memory = Guarded()
    play_short(memory)
    for seed in range(first, last):
        play(seed, look_at, memory)
        play(seed, change, memory)
    print("whole")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
