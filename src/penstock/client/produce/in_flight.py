"""Blocks of one producer that are on their way to the broker.

They are sent in order, and sent again after a lost connection. Each is resolved exactly once: as stored or as failed.
"""

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
    """A block that is queued or in flight: its bytes, its request ids, and its outcome once `done` is set."""

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
        """Return the outcomes of the messages from index `first` up to, and without, `stop`. Call it once the block is
        resolved."""
        if self.error is not None or self.answer is None:
            error = self.error or PenstockError("the producer did not say what became of it")
            return [error_copy(error) for _ in range(first, stop)]
        return [self.answer[index] for index in range(first, stop)]


class Sent:
    """One or several messages on their way to the broker. Await it for the receipt, or the list of receipts.

    Awaiting raises the error if a message was not stored; the next `flush` raises a failure too.
    """

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
        """Wait until every message is on disk. Raises the same errors as awaiting, but builds no receipts, which is
        faster."""
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
        """Wait for the outcome of each message and return them in order: its receipt, or the error for which it was not
        stored. The errors are returned, not raised."""
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
"""The most blocks in flight at a time. While the broker syncs one, the next are on the wire, and new messages gather
into larger blocks."""
_AGAIN_SECONDS: Final = (0.05, 2.0)


class BlockSender:
    """The queue of blocks. `add` may be called from any thread that holds the producer's lock; `run` sends the blocks,
    in the event loop.

    It calls `register` to register the producer on a new connection, `gather` when the queue is empty, so that the
    producer adds the messages gathered so far, and `resolved` for each block that is stored or has failed.
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
        """The generation of the connection on which the producer was registered last."""
        self.window = 0
        """The most unconfirmed messages on one connection. The broker recognises this many as duplicates if they are
        sent again."""
        self.partitions = 1
        self.sent: deque[tuple[OutgoingBlock, asyncio.Future[bytes]]] = deque()
        self.work = asyncio.Event()
        """An event that is set when there may be something to send or a response to handle."""

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
        """Blocks that could not be encoded and are not resolved yet."""
        self._failed: PenstockError | None = None
        self._since: float | None = None
        """The time at which the block at the head of the queue first failed; None if it has not."""

    def add(self, block: OutgoingBlock) -> None:
        self._queue.append(block)

    def add_failed(self, block: OutgoingBlock, error: PenstockError) -> None:
        """Resolve a block that could not be encoded as failed with `error`. This happens soon afterwards, in the event
        loop."""
        self._failing.append(block)
        self._loop.call_soon_threadsafe(self._resolve, block, error)

    def unresolved(self) -> list[OutgoingBlock]:
        return [*(block for block, _ in self.sent), *self._queue, *self._failing]

    def take_failure(self) -> PenstockError | None:
        """Return the first failure since the last call, and forget it; None if there was none."""
        failed, self._failed = self._failed, None
        return failed

    def end(self, error: PenstockError) -> None:
        """Resolve all blocks that are queued or in flight as failed with `error`."""
        left = [*(block for block, _ in self.sent), *self._queue]
        self.sent.clear()
        self._queue.clear()
        for block in left:
            self._resolve(block, error)

    # in the event loop

    async def run(self) -> None:
        """Send blocks until cancelled. Raises the error that ends the producer, such as `NotOwner` when another has
        taken over."""
        while True:
            await self._send_some()
            await self._next_event()

    async def _send_some(self) -> None:
        """Send blocks until four are in flight, the window is full, or there is nothing to send. If the queue is empty,
        ask the producer for the messages gathered so far."""
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
        """Return True if the next block fits into the window together with those in flight, or if none is in flight."""
        if not self.sent or not self._queue:
            return True
        return sum(block.count for block, _ in self.sent) + self._queue[0].count <= self.window

    def _answered(self, _answer: asyncio.Future[bytes]) -> None:
        self.work.set()

    async def _next_event(self) -> None:
        """Handle the response to the oldest block in flight; if there is none yet, wait until there is something to
        do."""
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
        """Send the block again if its error is temporary; otherwise resolve it as failed. Raises the error if it ends
        the producer."""
        fenced = isinstance(error, NotOwner) and self.generation == self._connection.generation
        if not isinstance(error, PenstockError) or fenced:
            raise error
        if not error.retriable and not isinstance(error, NotOwner):
            self.sent.popleft()
            self._refuse(block, error)
            return
        await self._send_again(error)

    async def _send_again(self, error: PenstockError) -> None:
        """Wait until the blocks in flight are answered, return those not confirmed to the head of the queue in their
        order, and pause before they are sent again.

        Blocks whose retries have taken longer than the timeout fail with `error`.
        """
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
        """Resolve a block as stored, from the broker's answer. Messages in it that the schema policy refused keep their
        error."""
        block.answer = BlockReceipts(answer, block.count, block.keys, self.partitions)
        refused = block.answer.refused
        if refused and self._failed is None:
            self._failed = rejection_error(refused, block.count)
        self._resolve(block, None)

    def _refuse(self, block: OutgoingBlock, error: PenstockError) -> None:
        """Resolve a block that the broker refused as failed. If the broker gave a reason for each message, each message
        gets its own error."""
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
