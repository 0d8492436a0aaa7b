from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

import pytest

from penstock.broker.reads.merge import ReadPosition
from penstock.core.errors import StorageFailed
from penstock.server.events import shared_chunks as module
from penstock.server.events.shared_chunks import ChunkCache
from penstock.server.events.stream_formats import StreamChunk


def run(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    @wraps(test)
    def ran(**fixtures: Any) -> None:
        asyncio.run(test(**fixtures))  # type: ignore[arg-type]

    return ran


def chunk(size: int) -> StreamChunk:
    return StreamChunk(b"x" * size, [size], 1, {})


@run
async def test_all_who_want_the_same_wait_for_one_read() -> None:
    chunks, reads, go_on = ChunkCache(), 0, asyncio.Event()

    async def load() -> StreamChunk:
        nonlocal reads
        reads += 1
        await go_on.wait()
        return chunk(10)

    waiting = [asyncio.ensure_future(chunks.get("a", load)) for _ in range(100)]
    await asyncio.sleep(0)
    waiting.pop().cancel()
    go_on.set()
    found = await asyncio.gather(*waiting)
    assert len({id(each) for each in found}) == 1
    assert await chunks.get("a", load) is found[0]
    assert reads == 1


@run
async def test_a_read_that_fails_fails_for_all_and_is_tried_again() -> None:
    chunks = ChunkCache()

    async def fail() -> StreamChunk:
        raise StorageFailed("broken")

    async def load() -> StreamChunk:
        return chunk(1)

    found = await asyncio.gather(*(chunks.get("a", fail) for _ in range(3)), return_exceptions=True)
    assert [type(each) for each in found] == [StorageFailed] * 3
    assert len((await chunks.get("a", load)).body) == 1


@run
async def test_what_is_kept_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CACHED_BYTES_MAX", 100)
    monkeypatch.setattr(module, "CACHED_MAX", 8)
    chunks = ChunkCache()

    async def load(size: int) -> StreamChunk:
        return chunk(size)

    for number in range(50):
        await chunks.get(number, lambda: load(30))
        assert chunks._cached_bytes <= 100
    for number in range(100, 150):
        await chunks.get(number, lambda: load(1))
    assert len(chunks._cached) == 8
    assert chunks._cached_bytes == sum(each.size for each in chunks._cached.values())


@run
async def test_where_readers_are_in_many_logs_counts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CACHED_BYTES_MAX", 1000)
    chunks = ChunkCache()

    async def load() -> StreamChunk:
        return StreamChunk(b"x", [1], 1, {number: ReadPosition(number) for number in range(3)})  # type: ignore[misc]

    for number in range(10):
        await chunks.get(number, load)
    assert len(chunks._cached) == 1


@run
async def test_where_too_much_is_lent_whoever_has_not_moved_for_longest_is_cut_off_and_nobody_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "SENDING_BYTES_MAX", 100)
    chunks, cut = ChunkCache(), list[str]()

    async def load() -> StreamChunk:
        return chunk(1)

    with (
        chunks.sending(chunk(40), lambda: cut.append("moves")) as moved,
        chunks.sending(chunk(40), lambda: cut.append("no")),
    ):
        moved()
        with chunks.sending(chunk(30), lambda: cut.append("last")):
            assert (cut, chunks.sending_bytes) == (["no"], 70)
            assert len((await chunks.get("a", load)).body) == 1
    assert chunks.sending_bytes == 0


@run
async def test_what_several_have_they_have_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SENDING_BYTES_MAX", 100)
    chunks, large, cut = ChunkCache(), chunk(99), list[int]()
    with chunks.sending(large, lambda: cut.append(1)):
        with chunks.sending(large, lambda: cut.append(2)):
            assert (cut, chunks.sending_bytes) == ([], 99)
        assert chunks.sending_bytes == 99
        with chunks.sending(chunk(101), lambda: cut.append(3)):
            assert cut == [1], "the newest is given its own, however large"
    assert chunks.sending_bytes == 0
