"""Chunks of streams, written once for all who read the same, and never more of them than fit into a bounded memory."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from penstock.core.limits import MIB
from penstock.server.events.stream_formats import Chunk

CACHED_BYTES_MAX: Final = 16 * MIB
"""Written and perhaps wanted again: the last hundred of each of a few topics that many follow."""
CACHED_MAX: Final = 512
"""Of them: at the end of a topic they are small, and who comes later reads larger ones."""
SENDING_BYTES_MAX: Final = 64 * MIB
"""At readers that have not taken them yet. Past this those who have not moved for longest are cut off: nobody waits
for them, and they come back where they were."""

Key = Hashable


@dataclass(eq=False, slots=True)
class _ChunkLoan:
    """A chunk on its way to one reader."""

    chunk: Chunk
    cut: Callable[[], None]


class ChunkCache:
    """Those that were written lately, and those that are being sent."""

    def __init__(self) -> None:
        self._cached: OrderedDict[Key, Chunk] = OrderedDict()
        self._cached_bytes = 0
        self._loading: dict[Key, asyncio.Future[Chunk]] = {}
        self._sending: OrderedDict[_ChunkLoan, None] = OrderedDict()
        """Those that have not moved for longest are first."""
        self._holders: dict[int, int] = {}
        """Of each chunk, how many have it."""
        self.sending_bytes = 0

    async def get(self, key: Key, load: Callable[[], Awaitable[Chunk]]) -> Chunk:
        """The chunk of that key; all who want it at the same time wait for the same read. Raises what that raises."""
        cached = self._cached.get(key)
        if cached is not None:
            self._cached.move_to_end(key)
            return cached
        loading = self._loading.get(key)
        if loading is None:
            loading = self._loading[key] = asyncio.ensure_future(load())
            loading.add_done_callback(lambda done: self._loaded(key, done))
        # Whoever goes away meanwhile takes nothing from the others.
        return await asyncio.shield(loading)

    def _loaded(self, key: Key, done: asyncio.Future[Chunk]) -> None:
        self._loading.pop(key, None)
        if not done.cancelled() and done.exception() is None:
            self._cache(key, done.result())

    def _cache(self, key: Key, chunk: Chunk) -> None:
        self._cached[key] = chunk
        self._cached_bytes += chunk.size
        while self._cached_bytes > CACHED_BYTES_MAX or len(self._cached) > CACHED_MAX:
            _, gone = self._cached.popitem(last=False)
            self._cached_bytes -= gone.size

    @contextmanager
    def sending(self, chunk: Chunk, cut: Callable[[], None]) -> Iterator[Callable[[], None]]:
        """While it is being sent to somebody; to be called whenever some of it was taken.

        Several who have the same one have it once. Where there is no room for all, `cut` is called of whoever has not
        moved for longest: it lets go of its chunk at once.
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
        """Once: one that was cut off has given it back before."""
        if loan not in self._sending:
            return
        del self._sending[loan]
        chunk = loan.chunk
        self._holders[id(chunk)] -= 1
        if not self._holders[id(chunk)]:
            del self._holders[id(chunk)]
            self.sending_bytes -= chunk.size
