"""A connection that lasts: made again when it breaks, with its subscriptions. Calls wait for it or are told."""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
from collections.abc import Callable
from typing import Any, Final

from penstock.client.core import Answered, Call, Core, Due, Event
from penstock.client.link import Link, open_link
from penstock.client.urls import Address
from penstock.core.errors import InvalidRequest, PenstockError, ServiceUnavailable, Timeout

_LOG: Final = logging.getLogger(__name__)
_BACKOFF_SECONDS: Final = (0.1, 10.0)
_ASK_AFTER_SECONDS: Final = 20.0
_GONE_AFTER_SECONDS: Final = 60.0


class Connection:
    """Calls in, answers out, on whatever link there is. Other events go to `handle`, the end of it all to `over`."""

    def __init__(
        self,
        address: Address,
        core: Core,
        *,
        tls: ssl.SSLContext | None,
        timeout: float,
        again: bool,
        handle: Callable[[Event], None],
        over: Callable[[PenstockError], None],
    ) -> None:
        self.timeout = timeout
        self._address = address
        self._core = core
        self._tls = tls
        self._again = again
        self._handle_other = handle
        self._over = over
        self._link: Link | None = None
        self._changed = asyncio.Event()
        self._usable = False
        self._calls: dict[str, asyncio.Future[bytes]] = {}
        self._keeper: asyncio.Task[None] | None = None
        self._failure: PenstockError | None = None

    @property
    def open(self) -> bool:
        return self._usable and self._link is not None and self._link.open

    async def start(self) -> None:
        """Connect. The first time a failure is raised; later ones are tried again."""
        if self._keeper is None:
            link = self._link = await self._open()
            self._use(link)
            self._keeper = asyncio.create_task(self._keep(link))

    async def close(self) -> None:
        """Send what was written, and end. Calls that still wait are told."""
        self._fail(ServiceUnavailable("the client is closed"))
        if self._link is not None:
            self._link.close()
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)

    # calls

    async def call(self, call: Call, timeout: float | None = None) -> bytes:
        """The payload of the answer. Raises the error that it is, `Timeout`, or `ServiceUnavailable`."""
        try:
            return await self.answer(await self.send(call), timeout)
        finally:
            self._calls.pop(call.request_id, None)

    async def answer(self, waiting: asyncio.Future[bytes], timeout: float | None = None) -> bytes:
        """The same, of a call that was sent before."""
        timeout = timeout or self.timeout
        try:
            async with asyncio.timeout(timeout):
                return await waiting
        except TimeoutError:
            raise self._no_answer(timeout) from None

    def _no_answer(self, timeout: float) -> Timeout:
        if self._link is not None and self._link.open and not self._link.reading:
            return Timeout(
                f"no answer was read within {timeout:g} s: a subscription of this client is full, and nobody takes"
                " its messages; take them, or use a client of its own for it"
            )
        return Timeout(f"no answer from the broker within {timeout:g} s")

    async def send(self, call: Call) -> asyncio.Future[bytes]:
        """Send it, once there is a connection with room; its answer, to be awaited."""
        link = await self._ready()
        waiting = self._expect(call)
        link.write(call.data)
        await link.drained()
        return waiting

    def _expect(self, call: Call) -> asyncio.Future[bytes]:
        waiting: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        waiting.add_done_callback(_looked_at)
        self._calls[call.request_id] = waiting
        return waiting

    async def _ready(self) -> Link:
        """A link to write to, if need be the next one."""
        if self._keeper is None and self._failure is None:
            raise InvalidRequest("not connected yet: use the client with `async with`, or await it")
        try:
            async with asyncio.timeout(self.timeout):
                while True:
                    if self._failure is not None:
                        raise self._failure
                    if self.open and self._link is not None:
                        return self._link
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise ServiceUnavailable(f"no connection to {self._address} within {self.timeout:g} s") from None

    def write(self, data: bytes) -> None:
        """An answer of ours. Where the connection is gone nobody waits for it any more: the broker has told them."""
        if self._link is not None and self._link.open:
            self._link.write(data)

    def pause_reading(self) -> None:
        if self._link is not None:
            self._link.pause_reading()

    def resume_reading(self) -> None:
        if self._link is not None:
            self._link.resume_reading()

    # what arrives

    def _handle(self, event: Event) -> None:
        match event:
            case Answered(request_id, payload, error):
                self._answered(request_id, payload, error)
            case Due(data):
                self.write(data)
            case _:
                self._handle_other(event)

    def _answered(self, request_id: str, payload: bytes, error: PenstockError | None) -> None:
        waiting = self._calls.pop(request_id, None)
        if waiting is None or waiting.done():
            if error is not None:
                _LOG.warning("the broker refused what nobody waits for: %s", error.message)
        elif error is None:
            waiting.set_result(payload)
        else:
            waiting.set_exception(error)

    # links

    async def _open(self) -> Link:
        return await open_link(self._address, self._tls, self._core, self._handle, self.timeout)

    def _use(self, link: Link) -> None:
        self._link, self._usable = link, True
        self._changed.set()

    async def _keep(self, link: Link) -> None:
        """Watch the link, and make a new one when it is gone."""
        while True:
            reason = await self._watch(link)
            self._usable = False
            lost = ServiceUnavailable(f"the connection was lost before this was confirmed: {reason.message}")
            self._fail_calls(lost)
            if not self._again:
                self._fail(reason)
                self._over(reason)
                return
            _LOG.warning("lost the broker at %s: %s; connecting again", self._address, reason.message)
            link = await self._open_again()

    async def _watch(self, link: Link) -> PenstockError:
        """Until the link is gone, asking now and then whether it still is there; why it went."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.wait({link.lost}, timeout=_ASK_AFTER_SECONDS)
            if link.lost.done():
                return link.lost.result()
            silent = loop.time() - link.heard
            if silent >= _GONE_AFTER_SECONDS:
                link.abort()
            elif silent >= _ASK_AFTER_SECONDS:
                link.write(self._core.heartbeat().data)

    async def _open_again(self) -> Link:
        wait, longest = _BACKOFF_SECONDS
        while True:
            await asyncio.sleep(wait * random.uniform(0.5, 1.0))  # noqa: S311 - so that not all come back at once
            wait = min(wait * 2, longest)
            try:
                link = self._link = await self._open()
            except PenstockError as error:
                _LOG.info("still no broker at %s: %s", self._address, error.message)
                continue
            if await self._restore(link):
                self._use(link)
                _LOG.warning("connected to %s again", self._address)
                return link

    async def _restore(self, link: Link) -> bool:
        """Make the new link like the last one; False if it was lost in doing so."""
        for call in self._core.connected():
            waiting = self._expect(call)
            link.write(call.data)
            either: set[asyncio.Future[Any]] = {waiting, link.lost}
            done, _ = await asyncio.wait(either, timeout=self.timeout, return_when=asyncio.FIRST_COMPLETED)
            if waiting not in done:
                link.abort()
                return False
            if waiting.exception() is not None:
                _LOG.error("a subscription could not be restored: %s", waiting.exception())
        return True

    def _fail(self, error: PenstockError) -> None:
        """There will be no more links."""
        self._failure, self._usable = self._failure or error, False
        self._fail_calls(error)
        self._changed.set()

    def _fail_calls(self, error: PenstockError) -> None:
        calls, self._calls = self._calls, {}
        for waiting in calls.values():
            if not waiting.done():
                waiting.set_exception(error)


def _looked_at(waiting: asyncio.Future[bytes]) -> None:
    """An error that nobody waits for any more is no reason for a warning."""
    if not waiting.cancelled():
        waiting.exception()
