"""HighwayHash-64: the published answers, a second implementation, and bytes that come in pieces."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.record.reference import KEY, Hash, highwayhash64
from tests.record.samples import unhurried

from penstock.record.hashing import StreamHash, hash64
from penstock.record.kernels import block_kernels
from penstock.record.kernels.simd import STATE_WORDS, initial_state

# google/highwayhash, c/highwayhash_test.c: row n is the hash of the n bytes 00 01 .. under the key 00 01 .. 1f.
ANSWERS = (
    *("907a56de22c26e53", "7eab43aac7cddd78", "b8d0569ab0b53d62", "5c6befab8a463d80", "f205a46893007eda"),
    *("2b8a1668e4a94541", "bd4ccc325befca6f", "4d02ae1738f59482", "e1205108e55f3171", "32d2644ec77a1584"),
    *("f6e10acdb103a90b", "c3bbf4615b415c15", "243cc2040063fa9c", "a89a58ce65e641ff", "24b031a348455a23"),
    *("40793f86a449f33b", "cfab3489f97eb832", "19fe67d2c8c5c0e2", "04dd90a69c565cc2", "75d9518e2371c504"),
    *("38ad9b1141d3dd16", "0264432ccd8a70e0", "a9db5a6288683390", "d7b05492003f028c", "205f615aea59e51e"),
    *("eee0c89621052884", "1bfc1a93a7284f4f", "512175b5b70da91d", "f71f8976a0a2c639", "ae093fef1f84e3e7"),
    *("22ca92b01161860f", "9fc7007ccf035a68", "a0c964d9ecd580fc", "2c90f73ca03181fc", "185cf84e5691eb9e"),
    *("4fc1f5ef2752aa9b", "f5b7391a5e0a33eb", "b9b84b83b4e96c9c", "5e42fe712a5cd9b4", "a150f2f90c3f97dc"),
    *("7fa522d75e2d637d", "181ad0cc0dffd32b", "3889ed981e854028", "fb4297e8c586ee2d", "6d064a45bb28059c"),
    *("90563609b3ec860c", "7aa4fce94097c666", "1326bac06b911e08", "b926168d2b154f34", "9919848945b1948d"),
    *("a2a98fc534825ebe", "e9809095213ef0b6", "582e5483707bc0e9", "086e9414a88a6af5", "ee86b98d20f6743d"),
    *("f89b7ff609b1c0a7", "4c7d9cc19e22c3e8", "9a97005024562a6f", "5dd41cf423e6ebef", "df13609c0468e227"),
    *("6e0da4f64188155a", "b755ba4b50d7d4a1", "887a3484647479bd", "ab8eebe9bf2139a0", "75542c5d4cd2a6ff"),
)

# Published beside them: 33 bytes under the key of the words 1, 2, 3, 4.
OTHER_KEY = (1, 2, 3, 4)
OTHER_DATA = bytes(range(0x80, 0xA1))
OTHER_ANSWER = 0x53C516CCE478CAD7


CHANCE = random.Random(64)
NOISE = CHANCE.randbytes(4_096)


def state_of(key: tuple[int, int, int, int]) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    hashing = Hash(key)
    return np.array(hashing.v0 + hashing.v1 + hashing.mul0 + hashing.mul1, dtype=np.uint64)


# The published answers


def test_there_is_an_answer_for_every_length_up_to_two_packets() -> None:
    assert len(ANSWERS) == 65


@pytest.mark.parametrize("size", range(len(ANSWERS)))
def test_the_published_answer(size: int) -> None:
    data = bytes(range(size))
    assert hash64(data) == int(ANSWERS[size], 16)
    assert highwayhash64(data) == int(ANSWERS[size], 16)


def test_the_answer_published_for_another_key() -> None:
    assert highwayhash64(OTHER_DATA, OTHER_KEY) == OTHER_ANSWER
    state = state_of(OTHER_KEY)
    block_kernels.hash_absorb(state, np.frombuffer(OTHER_DATA, dtype=np.uint8), 1)
    assert block_kernels.hash_finish(state, np.frombuffer(OTHER_DATA[32:], dtype=np.uint8)) == OTHER_ANSWER


def test_a_hash_begins_with_the_state_that_the_key_gives() -> None:
    assert len(initial_state()) == STATE_WORDS
    assert list(initial_state()) == state_of(KEY).tolist()


# The second implementation


@given(st.integers(0, 2_000), st.integers(0, 70), st.randoms(use_true_random=False))
@unhurried
def test_any_bytes_at_any_place_hash_as_the_reference_has_it(size: int, start: int, chance: random.Random) -> None:
    data = chance.randbytes(start + size + 40)
    assert hash64(memoryview(data)[start : start + size]) == highwayhash64(data[start : start + size])


@pytest.mark.parametrize("start", range(8))
def test_every_remainder_at_every_alignment(start: int) -> None:
    for size in range(100):
        assert hash64(memoryview(NOISE)[start : start + size]) == highwayhash64(NOISE[start : start + size])


@pytest.mark.parametrize("size", range(66))
def test_bytes_before_and_after_do_not_matter(size: int) -> None:
    inside = NOISE[:size]
    hashes = {
        hash64(memoryview(edge + inside + edge)[64 : 64 + size]) for edge in (bytes(64), b"\xff" * 64, NOISE[:64])
    }
    assert hashes == {hash64(inside)}


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda data: np.frombuffer(data, dtype=np.uint8)])
def test_any_buffer_will_do(kind: type[bytes]) -> None:
    assert hash64(kind(NOISE)) == highwayhash64(NOISE)
    stream = StreamHash()
    stream.update(kind(NOISE[:33]))
    stream.update(kind(NOISE[33:]))
    assert stream.digest() == highwayhash64(NOISE)


# In pieces


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=12))
@unhurried
def test_any_split_of_the_bytes_gives_the_hash_of_the_whole(data: bytes, cuts: list[int]) -> None:
    stream = StreamHash()
    bounds = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for start, stop in itertools.pairwise(bounds):
        stream.update(data[start:stop])
    assert stream.digest() == hash64(data)


@pytest.mark.parametrize("size", [1, 31, 32, 33, 64, 100])
def test_every_cut_into_two_and_every_step(size: int) -> None:
    data = NOISE[:size]
    for cut in range(size + 1):
        stream = StreamHash()
        stream.update(data[:cut])
        stream.update(data[cut:])
        assert stream.digest() == hash64(data)
    for step in range(1, size + 1):
        stream = StreamHash()
        for start in range(0, size, step):
            stream.update(data[start : start + step])
        assert stream.digest() == hash64(data)


def test_a_stream_of_nothing_has_the_hash_of_nothing() -> None:
    stream = StreamHash()
    stream.update(b"")
    assert stream.digest() == hash64(b"") == int(ANSWERS[0], 16)


def test_what_was_given_may_change_after_it_was_taken() -> None:
    piece = bytearray(b"abc")
    stream = StreamHash()
    stream.update(piece)
    piece[:] = b"xyz"
    stream.update(b"def")
    assert stream.digest() == hash64(b"abcdef")
