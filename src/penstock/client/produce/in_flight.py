"""Blocks of one producer in flight: sent in order, sent again after a break, each resolved once as stored or failed."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from typing import Any, Final

from penstock.client.produce.receipts import BlockReceipts, Outcome, Receipt, refused_rows, rejection_error
from penstock.client.wire.connection import Connection, error_copy
from penstock.client.wire.protocol import ClientProtocol
from penstock.core.errors import (
    NotOwner,
    PayloadTooLarge,
    PenstockError,
    QuotaExceeded,
    SchemaRejected,
    ServiceUnavailable,
    Timeout,
)


class OutgoingBlock:
    """A block: its bytes, its request ids, and its outcome."""

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
        """Return the outcomes of some of its messages, once it is resolved."""
        if self.error is not None or self.answer is None:
            error = self.error or PenstockError("the producer did not say what became of it")
            return [error_copy(error) for _ in range(first, stop)]
        return [self.answer[index] for index in range(first, stop)]


class Sent:
    """Messages on their way, one or several: await it for the receipt. A failure that is not looked at here is raised
    by `flush`."""

    __slots__ = ("_count", "_first", "_parts", "_single")

    def __init__(self, parts: list[OutgoingBlock], first: int, count: int, *, single: bool) -> None:
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
                raise error_copy(part.error)
        outcomes = self._outcomes()
        refused = {row: outcome for row, outcome in enumerate(outcomes) if isinstance(outcome, SchemaRejected)}
        if refused:
            raise error_copy(refused[0]) if self._single else rejection_error(refused, len(outcomes))
        receipts = [outcome for outcome in outcomes if isinstance(outcome, Receipt)]
        return receipts[0] if self._single else receipts

    async def stored(self) -> None:
        """Wait until every message is on disk. Raises as awaiting it does, and makes no receipts."""
        before = 0
        for part in self._parts:
            await asyncio.shield(part.done)
            if part.error is not None:
                raise error_copy(part.error)
            if part.answer is not None and part.answer.refused:
                refused = {before - self._first + row: error for row, error in part.answer.refused.items()}
                raise rejection_error(refused, self._count)
            before += part.count

    async def outcomes(self) -> list[Outcome]:
        """Return the outcome of each message: its receipt, or the error that kept it from being stored. Raises none of
        them."""
        for part in self._parts:
            await asyncio.shield(part.done)
        return self._outcomes()

    def _outcomes(self) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for part in self._parts:
            first = self._first if part is self._parts[0] else 0
            outcomes += part.outcomes(first, min(part.count, first + self._count - len(outcomes)))
        return outcomes


_LOG: Final = logging.getLogger(__name__)
BLOCKS_SENT: Final = 4
"""Blocks in flight at once: while one is synced the next are on the wire, and messages gather into larger ones."""
_AGAIN_SECONDS: Final = (0.05, 2.0)


class BlockSender:
    """The queue of blocks: `add` them from any thread that holds the producer's lock; `run` sends them, in the event
    loop.

    `register` registers the producer on a new connection, `gather` adds gathered messages when there is nothing else to
    send, `resolved` is called for each block that is stored or has failed.
    """

    def __init__(
        self,
        connection: Connection,
        protocol: ClientProtocol,
        topic: str,
        *,
        timeout: float,
        register: Callable[[], Awaitable[None]],
        gather: Callable[[], None],
        resolved: Callable[[OutgoingBlock], None],
    ) -> None:
        self.generation = 0
        """The generation of the connection on which the producer is registered."""
        self.window = 0
        """The most unconfirmed messages on a connection: as many as the broker recognises when they are sent again."""
        self.partitions = 1
        self.sent: deque[tuple[OutgoingBlock, asyncio.Future[bytes]]] = deque()
        self.work = asyncio.Event()
        """Set when there is more to do."""

        self._connection = connection
        self._protocol = protocol
        self._topic = topic
        self._timeout = timeout
        self._register = register
        self._gather = gather
        self._block_resolved = resolved
        self._loop = asyncio.get_running_loop()
        self._queue: deque[OutgoingBlock] = deque()
        self._failing: list[OutgoingBlock] = []
        """Blocks that could not be encoded, and whose failure is yet to be reported."""
        self._failed: PenstockError | None = None
        self._since: float | None = None
        """The time at which the block at the head of the queue first failed."""

    def add(self, block: OutgoingBlock) -> None:
        self._queue.append(block)

    def add_failed(self, block: OutgoingBlock, error: PenstockError) -> None:
        """Resolve, soon and in the event loop, a block that could not be encoded."""
        self._failing.append(block)
        self._loop.call_soon_threadsafe(self._resolve, block, error)

    def unresolved(self) -> list[OutgoingBlock]:
        return [*(block for block, _ in self.sent), *self._queue, *self._failing]

    def take_failure(self) -> PenstockError | None:
        """Return the first failure since the last call."""
        failed, self._failed = self._failed, None
        return failed

    def end(self, error: PenstockError) -> None:
        """Fail all blocks that are queued or in flight."""
        left = [*(block for block, _ in self.sent), *self._queue]
        self.sent.clear()
        self._queue.clear()
        for block in left:
            self._resolve(block, error)

    # in the event loop

    async def run(self) -> None:
        """Send blocks for ever. Raises the error that ends the producer."""
        while True:
            await self._send_some()
            await self._next_event()

    async def _send_some(self) -> None:
        """Send blocks until enough are in flight. Gathered messages join when there is nothing else to send."""
        while len(self.sent) < BLOCKS_SENT and self._has_window():
            if not self._queue:
                self._gather()
                if not self._queue:
                    break
            block = self._queue[0]
            try:
                await self._connection.ready()
                if self.generation != self._connection.generation:
                    if self.sent:  # lost with the last connection, and first on this one
                        await self._send_again(ServiceUnavailable("the connection was lost before this was confirmed"))
                        continue
                    await self._register()
                answer = await self._connection.send(self._protocol.append(self._topic, block.block))
            except (ServiceUnavailable, Timeout, QuotaExceeded) as error:
                await self._send_again(error)
                continue
            except PayloadTooLarge as error:
                self._queue.popleft()
                self._resolve(block, error)
                continue
            if not self._queue or self._queue[0] is not block:
                return  # the producer was closed meanwhile
            self._queue.popleft()
            self.sent.append((block, answer))
            answer.add_done_callback(self._answered)

    def _has_window(self) -> bool:
        """Return False if the next block would exceed the number of messages that the broker recognises as
        duplicates."""
        if not self.sent or not self._queue:
            return True
        return sum(block.count for block, _ in self.sent) + self._queue[0].count <= self.window

    def _answered(self, _answer: asyncio.Future[bytes]) -> None:
        self.work.set()

    async def _next_event(self) -> None:
        """Handle the response to the oldest block, or wait until there is more to do."""
        if not self.sent or not self.sent[0][1].done():
            await self.work.wait()
            self.work.clear()
            return
        block, answer = self.sent[0]
        error = answer.exception()
        if error is None:
            self.sent.popleft()
            self._confirm(block, json.loads(answer.result()))
        else:
            await self._handle_refusal(block, error)

    async def _handle_refusal(self, block: OutgoingBlock, error: BaseException) -> None:
        """Send the block again if that can help; otherwise it has failed."""
        fenced = isinstance(error, NotOwner) and self.generation == self._connection.generation
        if not isinstance(error, PenstockError) or fenced:
            raise error
        if not error.retriable and not isinstance(error, NotOwner):
            self.sent.popleft()
            self._refuse(block, error)
            return
        await self._send_again(error)

    async def _send_again(self, error: PenstockError) -> None:
        """Return unconfirmed blocks to the head of the queue, in order, once the last of them is answered;
        then pause."""
        if self.sent:
            await asyncio.wait([answer for _, answer in self.sent], timeout=self._timeout)
        confirmed = []
        for block, answer in reversed(self.sent):
            if answer.done() and not answer.cancelled() and answer.exception() is None:
                confirmed.append((block, json.loads(answer.result())))
            else:
                self._queue.appendleft(block)
        self.sent.clear()
        for block, answer in reversed(confirmed):
            self._confirm(block, answer)
        await self._pause(error)

    async def _pause(self, error: PenstockError) -> None:
        wait, longest = _AGAIN_SECONDS
        now = self._loop.time()
        if self._queue and self._since is None:
            self._since = now
        began = self._since if self._since is not None else now
        if now - began > self._timeout:
            while self._queue:
                self._resolve(self._queue.popleft(), error)
            self._since = None
            return
        _LOG.info("%s: not confirmed, sending again: %s", self._topic, error.message)
        await asyncio.sleep(min(longest, wait * 2 ** min(6, int((now - began) / wait))))

    # outcomes of a block

    def _confirm(self, block: OutgoingBlock, answer: Mapping[str, Any]) -> None:
        """Resolve a block as stored, except for messages that were refused."""
        block.answer = BlockReceipts(answer, block.count, block.keys, self.partitions)
        refused = block.answer.refused
        if refused and self._failed is None:
            self._failed = rejection_error(refused, block.count)
        self._resolve(block, None)

    def _refuse(self, block: OutgoingBlock, error: PenstockError) -> None:
        """Fail a block as a whole; where each of its messages was refused, each has a reason of its own."""
        if isinstance(error, SchemaRejected) and len(refused_rows(error.details)) == block.count:
            self._confirm(block, {"parts": [], "duplicates": []} | error.details)
        else:
            self._resolve(block, error)

    def _resolve(self, block: OutgoingBlock, error: PenstockError | None) -> None:
        block.error = error
        if block in self._failing:
            self._failing.remove(block)
        if error is None:
            self._since = None
        elif self._failed is None:
            self._failed = error
        block.block = b""
        if not block.done.done():
            block.done.set_result(None)
        self._block_resolved(block)
