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

KEPT_BYTES_MAX: Final = 16 * MIB
"""Written and perhaps wanted again: the last hundred of each of a few topics that many follow."""
KEPT_MAX: Final = 512
"""Of them: at the end of a topic they are small, and who comes later reads larger ones."""
LENT_BYTES_MAX: Final = 64 * MIB
"""At readers that have not taken them yet. Past this those who have not moved for longest are cut off: nobody waits
for them, and they come back where they were."""

Key = Hashable


@dataclass(eq=False, slots=True)
class _Loan:
    """A chunk on its way to one reader."""

    chunk: Chunk
    cut: Callable[[], None]


class Chunks:
    """Those that were written lately, and those that are being sent."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Key, Chunk] = OrderedDict()
        self._kept_bytes = 0
        self._coming: dict[Key, asyncio.Future[Chunk]] = {}
        self._loans: OrderedDict[_Loan, None] = OrderedDict()
        """Those that have not moved for longest are first."""
        self._holders: dict[int, int] = {}
        """Of each chunk, how many have it."""
        self.lent_bytes = 0

    async def get(self, key: Key, load: Callable[[], Awaitable[Chunk]]) -> Chunk:
        """The chunk of that key; all who want it at the same time wait for the same read. Raises what that raises."""
        kept = self._kept.get(key)
        if kept is not None:
            self._kept.move_to_end(key)
            return kept
        coming = self._coming.get(key)
        if coming is None:
            coming = self._coming[key] = asyncio.ensure_future(load())
            coming.add_done_callback(lambda done: self._came(key, done))
        # Whoever goes away meanwhile takes nothing from the others.
        return await asyncio.shield(coming)

    def _came(self, key: Key, done: asyncio.Future[Chunk]) -> None:
        self._coming.pop(key, None)
        if not done.cancelled() and done.exception() is None:
            self._keep(key, done.result())

    def _keep(self, key: Key, chunk: Chunk) -> None:
        self._kept[key] = chunk
        self._kept_bytes += chunk.size
        while self._kept_bytes > KEPT_BYTES_MAX or len(self._kept) > KEPT_MAX:
            _, gone = self._kept.popitem(last=False)
            self._kept_bytes -= gone.size

    @contextmanager
    def lent(self, chunk: Chunk, cut: Callable[[], None]) -> Iterator[Callable[[], None]]:
        """While it is being sent to somebody; to be called whenever some of it was taken.

        Several who have the same one have it once. Where there is no room for all, `cut` is called of whoever has not
        moved for longest: it lets go of its chunk at once.
        """
        loan = _Loan(chunk, cut)
        self._hand_out(loan)
        try:
            yield partial(self._moved, loan)
        finally:
            self._take_back(loan)

    def _hand_out(self, loan: _Loan) -> None:
        self._loans[loan] = None
        chunk = loan.chunk
        self._holders[id(chunk)] = self._holders.get(id(chunk), 0) + 1
        if self._holders[id(chunk)] == 1:
            self.lent_bytes += chunk.size
        while self.lent_bytes > LENT_BYTES_MAX and len(self._loans) > 1:
            slowest = next(iter(self._loans))
            self._take_back(slowest)
            slowest.cut()

    def _moved(self, loan: _Loan) -> None:
        if loan in self._loans:
            self._loans.move_to_end(loan)

    def _take_back(self, loan: _Loan) -> None:
        """Once: one that was cut off has given it back before."""
        if loan not in self._loans:
            return
        del self._loans[loan]
        chunk = loan.chunk
        self._holders[id(chunk)] -= 1
        if not self._holders[id(chunk)]:
            del self._holders[id(chunk)]
            self.lent_bytes -= chunk.size
