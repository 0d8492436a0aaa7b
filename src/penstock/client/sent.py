"""Messages on their way: the blocks they are in, and what becomes of each of them."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from typing import Any

from penstock.client.connection import repeated
from penstock.client.receipts import BlockReceipts, Outcome, Receipt, rejection
from penstock.core.errors import PenstockError, SchemaRejected


class Outgoing:
    """One block: its bytes, its numbers, and what became of it."""

    __slots__ = ("answer", "block", "count", "done", "error", "first", "keys", "size")

    def __init__(self, done: asyncio.Future[None]) -> None:
        self.done = done
        self.block: Any = b""
        self.count = 0
        self.first = 0
        self.size = 0
        self.keys: Sequence[bytes | None] | None = None
        self.answer: BlockReceipts | None = None
        self.error: PenstockError | None = None

    def outcomes(self, first: int, stop: int) -> list[Outcome]:
        """Of some of its messages, once it is settled."""
        if self.error is not None or self.answer is None:
            error = self.error or PenstockError("the producer did not say what became of it")
            return [repeated(error) for _ in range(first, stop)]
        return [self.answer[index] for index in range(first, stop)]


class Sent:
    """A message, or several, on the way: await it for the receipt. Not awaiting it is fine: `flush` tells."""

    __slots__ = ("_count", "_first", "_parts", "_single")

    def __init__(self, parts: list[Outgoing], first: int, count: int, *, single: bool) -> None:
        self._parts = parts
        self._first = first
        self._count = count
        self._single = single

    def __await__(self) -> Generator[Any, None, Any]:
        return self._wait().__await__()

    async def _wait(self) -> Receipt | list[Receipt]:
        for part in self._parts:
            await asyncio.shield(part.done)
            if part.error is not None:
                raise repeated(part.error)
        outcomes = self._outcomes()
        refused = {row: each for row, each in enumerate(outcomes) if isinstance(each, SchemaRejected)}
        if refused:
            raise repeated(refused[0]) if self._single else rejection(refused, len(outcomes))
        receipts = [each for each in outcomes if isinstance(each, Receipt)]
        return receipts[0] if self._single else receipts

    async def stored(self) -> None:
        """Until all of them are on disk. Raises what awaiting it raises, and makes no receipts."""
        before = 0
        for part in self._parts:
            await asyncio.shield(part.done)
            if part.error is not None:
                raise repeated(part.error)
            if part.answer is not None and part.answer.refused:
                refused = {before - self._first + row: each for row, each in part.answer.refused.items()}
                raise rejection(refused, self._count)
            before += part.count

    async def outcomes(self) -> list[Outcome]:
        """What became of each message: its receipt, or the error that kept it from being stored. Raises none of
        them."""
        for part in self._parts:
            await asyncio.shield(part.done)
        return self._outcomes()

    def _outcomes(self) -> list[Outcome]:
        found: list[Outcome] = []
        for part in self._parts:
            first = self._first if part is self._parts[0] else 0
            found += part.outcomes(first, min(part.count, first + self._count - len(found)))
        return found
