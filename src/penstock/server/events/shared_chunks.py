"""Shared chunks: parts of event streams, encoded once for all readers at the same position, within a limit of
memory."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from penstock.core.limits import MIB
from penstock.server.events.stream_formats import StreamChunk

CACHED_BYTES_MAX: Final = 16 * MIB
"""The most bytes of chunks that are cached because another reader may want them: the latest of a few topics with many
readers."""
CACHED_MAX: Final = 512
"""The most cached chunks. Chunks at the end of a topic are small; those for readers that are behind are large."""
SENDING_BYTES_MAX: Final = 64 * MIB
"""The most bytes of chunks that are being sent. Beyond this limit the reader is cut off that has taken nothing for the
longest time. When it reconnects, it goes on where it was."""

Key = Hashable


@dataclass(eq=False, slots=True)
class _ChunkLoan:
    """A chunk that is being sent to one reader. `cut` is called to cut that reader off."""

    chunk: StreamChunk
    cut: Callable[[], None]


class ChunkCache:
    """A cache of the chunks that were encoded lately, and a count of those that are being sent."""

    def __init__(self) -> None:
        self._cached: OrderedDict[Key, StreamChunk] = OrderedDict()
        self._cached_bytes = 0
        self._loading: dict[Key, asyncio.Future[StreamChunk]] = {}
        self._sending: OrderedDict[_ChunkLoan, None] = OrderedDict()
        """The chunks that are being sent. The one whose reader has taken nothing for the longest time comes first."""
        self._holders: dict[int, int] = {}
        """The number of readers to whom each chunk is being sent, by the `id()` of the chunk."""
        self.sending_bytes = 0

    async def get(self, key: Key, load: Callable[[], Awaitable[StreamChunk]]) -> StreamChunk:
        """Return the chunk of this key: from the cache, or else from `load`. Readers that ask for a key at the same
        time share one call of `load`, and get the same error if it raises one."""
        cached = self._cached.get(key)
        if cached is not None:
            self._cached.move_to_end(key)
            return cached
        loading = self._loading.get(key)
        if loading is None:
            loading = self._loading[key] = asyncio.ensure_future(load())
            loading.add_done_callback(lambda done: self._loaded(key, done))
        # A reader that goes away meanwhile does not cancel the load for the others.
        return await asyncio.shield(loading)

    def _loaded(self, key: Key, done: asyncio.Future[StreamChunk]) -> None:
        self._loading.pop(key, None)
        if not done.cancelled() and done.exception() is None:
            self._cache(key, done.result())

    def _cache(self, key: Key, chunk: StreamChunk) -> None:
        self._cached[key] = chunk
        self._cached_bytes += chunk.size
        while self._cached_bytes > CACHED_BYTES_MAX or len(self._cached) > CACHED_MAX:
            _, gone = self._cached.popitem(last=False)
            self._cached_bytes -= gone.size

    @contextmanager
    def sending(self, chunk: StreamChunk, cut: Callable[[], None]) -> Iterator[Callable[[], None]]:
        """Count the chunk as being sent while the context lasts. The context returns a function: call it whenever the
        reader has taken a part of the chunk.

        A chunk that is being sent to several readers counts once. While the sum is over the limit, the `cut` of the
        reader that has taken nothing for the longest time is called. It must let go of its chunk at once.
        """
        loan = _ChunkLoan(chunk, cut)
        self._begin_sending(loan)
        try:
            yield partial(self._progressed, loan)
        finally:
            self._end_sending(loan)

    def _begin_sending(self, loan: _ChunkLoan) -> None:
        self._sending[loan] = None
        chunk = loan.chunk
        self._holders[id(chunk)] = self._holders.get(id(chunk), 0) + 1
        if self._holders[id(chunk)] == 1:
            self.sending_bytes += chunk.size
        while self.sending_bytes > SENDING_BYTES_MAX and len(self._sending) > 1:
            slowest = next(iter(self._sending))
            self._end_sending(slowest)
            slowest.cut()

    def _progressed(self, loan: _ChunkLoan) -> None:
        if loan in self._sending:
            self._sending.move_to_end(loan)

    def _end_sending(self, loan: _ChunkLoan) -> None:
        """Stop counting the chunk for this reader. Does nothing for a reader that was cut off before."""
        if loan not in self._sending:
            return
        del self._sending[loan]
        chunk = loan.chunk
        self._holders[id(chunk)] -= 1
        if not self._holders[id(chunk)]:
            del self._holders[id(chunk)]
            self.sending_bytes -= chunk.size
