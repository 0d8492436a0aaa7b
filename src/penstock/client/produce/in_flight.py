"""Messages and blocks of one producer in flight: sent in order, sent again after a break, each settled once."""

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
            return [error_copy(error) for _ in range(first, stop)]
        return [self.answer[index] for index in range(first, stop)]


class Sent:
    """A message, or several, on the way: await it for the receipt. Not awaiting it is fine: `flush` tells."""

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
        refused = {row: each for row, each in enumerate(outcomes) if isinstance(each, SchemaRejected)}
        if refused:
            raise error_copy(refused[0]) if self._single else rejection_error(refused, len(outcomes))
        receipts = [each for each in outcomes if isinstance(each, Receipt)]
        return receipts[0] if self._single else receipts

    async def stored(self) -> None:
        """Until all of them are on disk. Raises what awaiting it raises, and makes no receipts."""
        before = 0
        for part in self._parts:
            await asyncio.shield(part.done)
            if part.error is not None:
                raise error_copy(part.error)
            if part.answer is not None and part.answer.refused:
                refused = {before - self._first + row: each for row, each in part.answer.refused.items()}
                raise rejection_error(refused, self._count)
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


_LOG: Final = logging.getLogger(__name__)
BLOCKS_SENT: Final = 4
"""On their way at once: while one is synced the next are on the wire, and the rest gathers into larger ones."""
_AGAIN_SECONDS: Final = (0.05, 2.0)


class BlockSender:
    """`add` blocks, from any thread that holds the producer's lock; `run` sends them, in the event loop.

    `register` makes the producer known to a new connection, `gather` adds what has gathered when there is nothing else
    to send, `resolved` hears of every block whose fate is known.
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
        """The connection to which the producer is known."""
        self.window = 0
        """Messages that may be unconfirmed on a connection: what the broker recognises when they come again."""
        self.partitions = 1
        self.sent: deque[tuple[OutgoingBlock, asyncio.Future[bytes]]] = deque()
        self.work = asyncio.Event()
        """There is more to do."""

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
        """Blocks that could not be made, and are yet to be told of."""
        self._failed: PenstockError | None = None
        self._since: float | None = None
        """When what is now at the head of the queue first failed."""

    def add(self, block: OutgoingBlock) -> None:
        self._queue.append(block)

    def add_failed(self, block: OutgoingBlock, error: PenstockError) -> None:
        """A block that could not be made: settled soon, in the event loop."""
        self._failing.append(block)
        self._loop.call_soon_threadsafe(self._resolve, block, error)

    def unresolved(self) -> list[OutgoingBlock]:
        return [*(block for block, _ in self.sent), *self._queue, *self._failing]

    def take_failure(self) -> PenstockError | None:
        """The first since this was last asked."""
        failed, self._failed = self._failed, None
        return failed

    def end(self, error: PenstockError) -> None:
        """Nothing more will be confirmed."""
        left = [*(block for block, _ in self.sent), *self._queue]
        self.sent.clear()
        self._queue.clear()
        for block in left:
            self._resolve(block, error)

    # in the event loop

    async def run(self) -> None:
        """For ever. Raises what ends it all."""
        while True:
            await self._send_some()
            await self._next_event()

    async def _send_some(self) -> None:
        """As many blocks as may be on their way. What has gathered joins when there is nothing else to send."""
        while len(self.sent) < BLOCKS_SENT and self._has_window():
            if not self._queue:
                self._gather()
                if not self._queue:
                    break
            block = self._queue[0]
            try:
                await self._connection.ready()
                if self.generation != self._connection.generation:
                    if self.sent:  # they went with the last connection, and come first on this one
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
                return  # it was ended meanwhile
            self._queue.popleft()
            self.sent.append((block, answer))
            answer.add_done_callback(self._answered)

    def _has_window(self) -> bool:
        """No more may be unconfirmed than the broker would recognise if it came again."""
        if not self.sent or not self._queue:
            return True
        return sum(block.count for block, _ in self.sent) + self._queue[0].count <= self.window

    def _answered(self, _answer: asyncio.Future[bytes]) -> None:
        self.work.set()

    async def _next_event(self) -> None:
        """The oldest block is answered, or there is more to do."""
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
        """Sent again if that can help; otherwise it has failed."""
        fenced = isinstance(error, NotOwner) and self.generation == self._connection.generation
        if not isinstance(error, PenstockError) or fenced:
            raise error
        if not error.retriable and not isinstance(error, NotOwner):
            self.sent.popleft()
            self._refuse(block, error)
            return
        await self._send_again(error)

    async def _send_again(self, error: PenstockError) -> None:
        """All that is not confirmed goes back to the head of the queue, in order, when the last of it is answered."""
        if self.sent:
            await asyncio.wait([answer for _, answer in self.sent], timeout=self._timeout)
        confirmed = []
        for block, answer in reversed(self.sent):
            if answer.done() and not answer.cancelled() and answer.exception() is None:
                confirmed.append((block, json.loads(answer.result())))
            else:
                self._queue.appendleft(block)
        self.sent.clear()
        for block, facts in reversed(confirmed):
            self._confirm(block, facts)
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

    # what becomes of a block

    def _confirm(self, block: OutgoingBlock, facts: Mapping[str, Any]) -> None:
        """Stored, but for those of its messages that were refused."""
        block.answer = BlockReceipts(facts, block.count, block.keys, self.partitions)
        refused = block.answer.refused
        if refused and self._failed is None:
            self._failed = rejection_error(refused, block.count)
        self._resolve(block, None)

    def _refuse(self, block: OutgoingBlock, error: PenstockError) -> None:
        """As a whole; where each of its messages was refused, each has a reason of its own."""
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
