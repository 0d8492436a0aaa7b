"""LLVM intrinsics under the kernels: HighwayHash-64 on 256-bit vectors, big-endian loads and stores, raw copies.

Numba compiles plain Python arithmetic to scalar code, about a tenth of what the hash can do. These functions hand
LLVM the four 64-bit lanes as one `<4 x i64>`; it lowers them to AVX2, SSE or NEON, whatever the machine has.

Nothing here checks bounds: a kernel calls these only for ranges it has checked.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils as _cgutils
from numba.core import types
from numba.extending import intrinsic as _intrinsic

# Numba types its own interfaces only in part.
intrinsic: Any = _intrinsic
cgutils: Any = _cgutils

_I8, _I16, _I32, _I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
_LANES = ir.VectorType(_I64, 4)
_WORDS = ir.VectorType(_I32, 8)
_BYTES = ir.VectorType(_I8, 32)

PACKET_BYTES = 32
STATE_WORDS = 16
"""Words of a hash in progress: v0, v1, mul0, mul1, four each."""

_MUL0 = (0xDBE6D5D5FE4CCE2F, 0xA4093822299F31D0, 0x13198A2E03707344, 0x243F6A8885A308D3)
_MUL1 = (0x3BD39E10CB0EF593, 0xC0ACF169B5F18A8C, 0xBE5466CF34E90C6C, 0x452821E638D01377)
KEY = bytes(range(PACKET_BYTES))
"""Penstock's own hash key: that of the published test vectors."""
_ZIPPER = (3, 12, 2, 5, 14, 1, 15, 0, 11, 4, 10, 13, 9, 6, 8, 7)
_ZIPPER_BOTH_HALVES = _ZIPPER + tuple(16 + byte for byte in _ZIPPER)
_HASH_ROUNDS = 4  # the 64-bit variant of the hash permutes four times at the end


def _swapped(word: int) -> int:
    return (word >> 32) | (word << 32) & 0xFFFFFFFFFFFFFFFF


def initial_state(key: bytes = KEY) -> tuple[int, ...]:
    """Return the state before the first byte, under a key of 32 bytes."""
    words = [int.from_bytes(key[at : at + 8], "little") for at in (0, 8, 16, 24)]
    v0 = tuple(mul ^ word for mul, word in zip(_MUL0, words, strict=True))
    v1 = tuple(mul ^ _swapped(word) for mul, word in zip(_MUL1, words, strict=True))
    return v0 + v1 + _MUL0 + _MUL1


class _Hash:
    """An emitter of the rounds of the hash; the state lives in four stack slots that LLVM turns into registers."""

    def __init__(self, builder: Any, state: list[Any]) -> None:
        self.builder = builder
        self.slots = [cgutils.alloca_once(builder, _LANES) for _ in range(4)]
        for slot, value in zip(self.slots, state, strict=True):
            builder.store(value, slot)

    def state(self) -> list[Any]:
        return [self.builder.load(slot) for slot in self.slots]

    def update(self, lanes: Any) -> None:
        b = self.builder
        v0, v1, mul0, mul1 = self.state()
        v1 = b.add(v1, b.add(mul0, lanes))
        mul0 = b.xor(mul0, _low_times_high(b, v1, v0))
        v0 = b.add(v0, mul1)
        mul1 = b.xor(mul1, _low_times_high(b, v0, v1))
        v0 = b.add(v0, _zipper(b, v1))
        v1 = b.add(v1, _zipper(b, v0))
        for slot, value in zip(self.slots, (v0, v1, mul0, mul1), strict=True):
            b.store(value, slot)

    def absorb(self, pointer: Any, packets: Any) -> None:
        b = self.builder
        with cgutils.for_range(b, packets) as loop:
            at = b.gep(pointer, [b.mul(loop.index, ir.Constant(_I64, PACKET_BYTES))])
            self.update(_load(b, at, _LANES))

    def absorb_rest(self, pointer: Any, size: Any) -> None:
        """Absorb the last 1..31 bytes; nothing if `size` is 0."""
        b = self.builder
        with b.if_then(b.icmp_unsigned("!=", size, ir.Constant(_I64, 0))):
            self._mix_size(b.trunc(size, _I32))
            self.update(_last_packet(b, pointer, size))

    def _mix_size(self, size: Any) -> None:
        b = self.builder
        v0_slot, v1_slot = self.slots[0], self.slots[1]
        sizes = _splat(b, size, _WORDS)
        v0 = b.add(b.load(v0_slot), b.bitcast(sizes, _LANES))
        halves = b.bitcast(b.load(v1_slot), _WORDS)
        rest = b.sub(_constant(_WORDS, 32), sizes)
        rotated = b.or_(b.shl(halves, sizes), b.lshr(halves, rest))
        b.store(v0, v0_slot)
        b.store(b.bitcast(rotated, _LANES), v1_slot)

    def finish(self) -> Any:
        b = self.builder
        for _ in range(_HASH_ROUNDS):
            halves = b.bitcast(b.load(self.slots[0]), _WORDS)
            permuted = _shuffle(b, halves, (5, 4, 7, 6, 1, 0, 3, 2))
            self.update(b.bitcast(permuted, _LANES))
        first = [b.extract_element(value, ir.Constant(_I32, 0)) for value in self.state()]
        return b.add(b.add(first[0], first[1]), b.add(first[2], first[3]))


def _constant(kind: ir.VectorType, value: int) -> Any:
    return ir.Constant(kind, [value] * kind.count)


def _splat(b: Any, scalar: Any, kind: ir.VectorType) -> Any:
    one = b.insert_element(ir.Constant(kind, ir.Undefined), scalar, ir.Constant(_I32, 0))
    return _shuffle(b, one, (0,) * kind.count)


def _shuffle(b: Any, vector: Any, order: tuple[int, ...]) -> Any:
    mask = ir.Constant(ir.VectorType(_I32, len(order)), list(order))
    return b.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), mask)


def _low_times_high(b: Any, low: Any, high: Any) -> Any:
    """Multiply the low 32 bits of one by the high 32 bits of the other: one `vpmuludq`."""
    return b.mul(b.and_(low, _constant(_LANES, 0xFFFFFFFF)), b.lshr(high, _constant(_LANES, 32)))


def _zipper(b: Any, vector: Any) -> Any:
    return b.bitcast(_shuffle(b, b.bitcast(vector, _BYTES), _ZIPPER_BOTH_HALVES), _LANES)


def _load(b: Any, pointer: Any, kind: Any) -> Any:
    return b.load(b.bitcast(pointer, kind.as_pointer()), typ=kind, align=1)


def _last_packet(b: Any, pointer: Any, size: Any) -> Any:
    """Build the last packet from an input's last 1 to 31 bytes, padded as HighwayHash defines, without reading past
    them."""
    whole = b.and_(size, ir.Constant(_I64, ~3))
    words = _masked_words(b, pointer, b.trunc(b.lshr(size, ir.Constant(_I64, 2)), _I32))
    slot = cgutils.alloca_once(b, _WORDS)
    b.store(words, slot)
    large = b.icmp_unsigned(">=", size, ir.Constant(_I64, 16))
    with b.if_else(large) as (then, otherwise):
        with then:
            last = _load(b, b.gep(pointer, [b.sub(size, ir.Constant(_I64, 4))]), _I32)
            b.store(b.insert_element(words, last, ir.Constant(_I32, 7)), slot)
        with otherwise:
            odd = b.and_(size, ir.Constant(_I64, 3))
            with b.if_then(b.icmp_unsigned("!=", odd, ir.Constant(_I64, 0))):
                tail = _odd_bytes(b, b.gep(pointer, [whole]), odd)
                b.store(b.insert_element(words, tail, ir.Constant(_I32, 4)), slot)
    return b.bitcast(b.load(slot), _LANES)


def _masked_words(b: Any, pointer: Any, count: Any) -> Any:
    """Load the first `count` 32-bit words at `pointer`; the others are zero and not read."""
    numbers = ir.Constant(_WORDS, list(range(8)))
    mask = b.icmp_unsigned("<", numbers, _splat(b, count, _WORDS))
    typed = b.bitcast(pointer, _WORDS.as_pointer())
    kind = ir.FunctionType(_WORDS, (typed.type, _I32, mask.type, _WORDS))
    masked_load = cgutils.get_or_insert_function(b.module, kind, "llvm.masked.load.v8i32.p0")
    return b.call(masked_load, (typed, ir.Constant(_I32, 1), mask, _constant(_WORDS, 0)))


def _odd_bytes(b: Any, pointer: Any, odd: Any) -> Any:
    """Load three bytes that together cover the last 1 to 3 bytes: the first, the middle and the last of them."""
    middle = b.lshr(odd, ir.Constant(_I64, 1))
    last = b.sub(odd, ir.Constant(_I64, 1))
    word = b.zext(b.load(pointer, typ=_I8), _I32)
    for shift, at in ((8, middle), (16, last)):
        byte = b.zext(b.load(b.gep(pointer, [at]), typ=_I8), _I32)
        word = b.or_(word, b.shl(byte, ir.Constant(_I32, shift)))
    return word


def _at(builder: Any, base: Any, position: Any) -> Any:
    return builder.inttoptr(builder.add(base, position), _I8.as_pointer())


@intrinsic
def address(_context, array):  # type: ignore[no-untyped-def]
    """Return the address of an array's bytes. The caller keeps the array alive.

    Kernels pass addresses, not arrays, to inlined functions: numba counts references of every array it passes on, and
    four atomic operations a record cost more than reading the record.
    """

    def emit(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.ptrtoint(context.make_array(signature.args[0])(context, builder, args[0]).data, _I64)

    return types.int64(array), emit


@intrinsic
def hash64(_context, _base, _start, _size):  # type: ignore[no-untyped-def]
    """Return the HighwayHash-64 of `size` bytes from `base + start` on, under Penstock's key."""

    def emit(_context, builder, _signature, args):  # type: ignore[no-untyped-def]
        words = initial_state()
        hashing = _Hash(builder, [ir.Constant(_LANES, list(words[row : row + 4])) for row in (0, 4, 8, 12)])
        pointer, size = _at(builder, args[0], args[1]), args[2]
        rest = builder.and_(size, ir.Constant(_I64, PACKET_BYTES - 1))
        hashing.absorb(pointer, builder.lshr(size, ir.Constant(_I64, 5)))
        hashing.absorb_rest(builder.gep(pointer, [builder.sub(size, rest)]), rest)
        return hashing.finish()

    return types.uint64(types.int64, types.int64, types.int64), emit


def _state_places(builder: Any, state: Any) -> list[Any]:
    offsets = [ir.Constant(_I64, row * PACKET_BYTES) for row in range(4)]
    return [builder.bitcast(_at(builder, state, offset), _LANES.as_pointer()) for offset in offsets]


@intrinsic
def absorb(_context, _state, _base, _start, _packets):  # type: ignore[no-untyped-def]
    """Absorb whole packets from `base + start` on into a hash in progress, whose sixteen words lie at `state`."""

    def emit(context, builder, _signature, args):  # type: ignore[no-untyped-def]
        places = _state_places(builder, args[0])
        hashing = _Hash(builder, [_load(builder, place, _LANES) for place in places])
        hashing.absorb(_at(builder, args[1], args[2]), args[3])
        for value, place in zip(hashing.state(), places, strict=True):
            builder.store(value, place, align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64, types.int64), emit


@intrinsic
def finish(_context, _state, _base, _start, _size):  # type: ignore[no-untyped-def]
    """Return the hash of everything absorbed so far and the last `size` < 32 bytes from `base + start` on."""

    def emit(_context, builder, _signature, args):  # type: ignore[no-untyped-def]
        hashing = _Hash(builder, [_load(builder, place, _LANES) for place in _state_places(builder, args[0])])
        hashing.absorb_rest(_at(builder, args[1], args[2]), args[3])
        return hashing.finish()

    return types.uint64(types.int64, types.int64, types.int64, types.int64), emit


def _loader(kind: Any, *, swap: bool) -> Any:
    """Return an intrinsic that reads an unsigned integer at `base + position`, as int64."""

    def typed(_context, _base, _position):  # type: ignore[no-untyped-def]
        def emit(_context, builder, _signature, args):  # type: ignore[no-untyped-def]
            value = _load(builder, _at(builder, args[0], args[1]), kind)
            value = builder.bswap(value) if swap else value
            return value if kind is _I64 else builder.zext(value, _I64)

        return types.int64(types.int64, types.int64), emit

    return intrinsic(typed)


def _storer(kind: Any, *, swap: bool) -> Any:
    """Return an intrinsic that writes the low bits of an int64 at `base + position`."""

    def typed(_context, _base, _position, _value):  # type: ignore[no-untyped-def]
        def emit(context, builder, _signature, args):  # type: ignore[no-untyped-def]
            value = args[2] if kind is _I64 else builder.trunc(args[2], kind)
            target = builder.bitcast(_at(builder, args[0], args[1]), kind.as_pointer())
            builder.store(builder.bswap(value) if swap else value, target, align=1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64), emit

    return intrinsic(typed)


load8 = _loader(_I8, swap=False)
load16 = _loader(_I16, swap=True)
load32 = _loader(_I32, swap=True)
load64 = _loader(_I64, swap=True)
store8 = _storer(_I8, swap=False)
store16 = _storer(_I16, swap=True)
store32 = _storer(_I32, swap=True)
store64 = _storer(_I64, swap=True)
native32 = _storer(_I32, swap=False)
"""A 32-bit store in the machine's byte order, as Arrow has its numbers."""


@intrinsic
def get(_context, _row, _field):  # type: ignore[no-untyped-def]
    """Read one field of a row of columns."""

    def emit(_context, builder, _signature, args):  # type: ignore[no-untyped-def]
        return _load(builder, _at(builder, args[0], builder.shl(args[1], ir.Constant(_I64, 3))), _I64)

    return types.int64(types.int64, types.int64), emit


@intrinsic
def put(_context, _row, _field, _value):  # type: ignore[no-untyped-def]
    """Set one field of a row of columns."""

    def emit(context, builder, _signature, args):  # type: ignore[no-untyped-def]
        place = _at(builder, args[0], builder.shl(args[1], ir.Constant(_I64, 3)))
        builder.store(args[2], builder.bitcast(place, _I64.as_pointer()), align=8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), emit


@intrinsic
def copy(_context, _target, _target_start, _source, _source_start, _size):  # type: ignore[no-untyped-def]
    """Copy bytes with memcpy: numba's slice assignment costs three times as much for short ranges."""

    def emit(context, builder, _signature, args):  # type: ignore[no-untyped-def]
        target, source = _at(builder, args[0], args[1]), _at(builder, args[2], args[3])
        cgutils.raw_memcpy(builder, target, source, args[4], itemsize=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64, types.int64, types.int64), emit
