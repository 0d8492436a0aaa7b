"""Live messaging: subscriptions, topics that are served, and `Pending`, a call that can be awaited or used with `async
with`."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
from typing import Any, Final, Generic, Protocol, Self, TypeVar

from penstock.client.wire.protocol import Message
from penstock.core.errors import PenstockError, QuotaExceeded
from penstock.core.limits import MIB
from penstock.core.names import TopicPattern

_WAITING_MAX: Final = 65_536
_WAITING_BYTES_MAX: Final = 64 * MIB
"""The size of the backlog of one subscription, in messages (`_WAITING_MAX`) and bytes, from which on the subscription
is full. While one is full, the connection is read only if a call waits for its response."""
_HALF: Final = 0.5
_OVERFULL: Final = 4
"""The multiple of that size at which the subscription ends with `QuotaExceeded`, since it is too slow."""


class Subscription:
    """Messages of one pattern, in order: iterate over it, or pass a callback to `subscribe`. Use it with `async with`,
    which unsubscribes at the end."""

    def __init__(
        self,
        pattern: TopicPattern,
        *,
        leave: Callable[[Subscription], Awaitable[None]],
        room: Callable[[], None],
    ) -> None:
        self.pattern = pattern
        self._leave = leave
        self._has_room = room
        self._waiting: deque[Message] = deque()
        self._bytes = 0
        self._arrived = asyncio.Event()
        self._reason: PenstockError | None = None
        self._closed = False

    @property
    def _fill(self) -> float:
        """The fill level of the backlog: 1 means full."""
        return max(len(self._waiting) / _WAITING_MAX, self._bytes / _WAITING_BYTES_MAX)

    @property
    def full(self) -> bool:
        return self._fill >= 1 and not self._closed

    def put(self, message: Message) -> None:
        if self._closed:
            return
        self._waiting.append(message)
        self._bytes += len(message.payload)
        self._arrived.set()
        if self._fill >= _OVERFULL:
            error = QuotaExceeded(f"too slow: {len(self._waiting)} messages of {self.pattern} wait to be taken")
            self.end(error)

    def end(self, reason: PenstockError | None) -> None:
        """End the subscription. Messages that have arrived can still be taken; then iterating raises `reason`, or stops
        if there is none."""
        self._reason, self._closed = reason, True
        self._arrived.set()

    def __aiter__(self) -> AsyncIterator[Message]:
        return self

    async def __anext__(self) -> Message:
        while not self._waiting:
            if self._reason is not None:
                raise self._reason
            if self._closed:
                raise StopAsyncIteration
            self._arrived.clear()
            await self._arrived.wait()
        before = self._fill
        message = self._waiting.popleft()
        self._bytes -= len(message.payload)
        if before >= _HALF > self._fill:  # not at every message: the callee looks at all subscriptions
            self._has_room()
        return message

    async def get(self, timeout: float | None = None) -> Message | None:
        """Return the next message; None if the subscription was closed. Raises `TimeoutError` after `timeout` seconds,
        or the error that ended the subscription."""
        async with asyncio.timeout(timeout):
            return await anext(self, None)

    async def close(self) -> None:
        if not self._closed:
            self.end(None)
            await self._leave(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self.close()


class _Leavable(Protocol):
    async def __aexit__(self, kind: object, error: object, trace: object, /) -> None: ...


_Closing = TypeVar("_Closing", bound=_Leavable)


class Pending(Generic[_Closing]):
    """A call that has not run yet. Await it for its result, or use it with `async with`, which closes the result at the
    end."""

    def __init__(self, work: Coroutine[Any, Any, _Closing]) -> None:
        self._work = work
        self._come: _Closing | None = None

    def __await__(self) -> Generator[Any, None, _Closing]:
        return self._work.__await__()

    def __aiter__(self: Pending[Subscription]) -> AsyncIterator[Message]:
        """Subscribe, yield messages, and unsubscribe when the iterator ends."""
        return self._messages()

    async def _messages(self: Pending[Subscription]) -> AsyncIterator[Message]:
        async with self as subscription:
            async for message in subscription:
                yield message

    async def __aenter__(self) -> _Closing:
        self._come = await self
        return self._come

    async def __aexit__(self, *exception: object) -> None:
        if self._come is not None:
            await self._come.__aexit__(*exception)


class Serving:
    """A topic that this client serves. Use it with `async with`, or call `close` to stop serving."""

    def __init__(self, leave: Callable[[], Awaitable[None]]) -> None:
        self._leave = leave

    async def close(self) -> None:
        await self._leave()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self.close()
