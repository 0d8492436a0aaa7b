"""A connection that lasts: made again when it breaks, with its subscriptions. Calls wait for it or are told."""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from penstock.client.wire.address import Address
from penstock.client.wire.credentials import Secret
from penstock.client.wire.protocol import Answered, Call, Core, Dropped, Due, Event, Wanted
from penstock.client.wire.transport import Link, open_link
from penstock.core.errors import InvalidRequest, PenstockError, ServiceUnavailable, Timeout, Unauthorized

_LOG: Final = logging.getLogger(__name__)
_BACKOFF_SECONDS: Final = (0.1, 10.0)
_ASK_AFTER_SECONDS: Final = 20.0
_GONE_AFTER_SECONDS: Final = 60.0
_FINAL: Final = (Unauthorized, InvalidRequest)
"""What a new connection is refused with that another one would be refused with, too: a key that was revoked."""
_GOODBYE_SECONDS: Final = 2.0
"""For what was written to be sent when the client is closed."""


class Connection:
    """Calls in, answers out, on whatever link there is. Other events go to `handle`.

    A subscription that a new link was refused goes to `refused`, the end of it all to `over`.
    """

    def __init__(
        self,
        address: Address,
        core: Core,
        *,
        tls: ssl.SSLContext | None,
        secret: Secret | None = None,
        timeout: float,
        again: bool,
        handle: Callable[[Event], None],
        refused: Callable[[Wanted, PenstockError], None],
        over: Callable[[PenstockError], None],
    ) -> None:
        self.timeout = timeout
        self._address = address
        self._core = core
        self._tls = tls
        self._secret = secret
        self._again = again
        self._handle_other = handle
        self._refused = refused
        self._over = over
        self.links = 0
        """How many there were: what is known of one is not known of the next."""

        self._held = False
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
            await asyncio.wait({self._link.lost}, timeout=_GOODBYE_SECONDS)
            self._link.abort()
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)

    # calls

    async def call(self, call: Call, timeout: float | None = None) -> bytes:
        """The payload of the answer. Raises the error that it is, `Timeout`, or `ServiceUnavailable`."""
        timeout = timeout or self.timeout
        try:
            async with asyncio.timeout(timeout):
                return await (await self.send(call))
        except TimeoutError:
            raise Timeout(f"no answer from the broker within {timeout:g} s") from None

    async def answer(self, waiting: asyncio.Future[bytes]) -> bytes:
        """The same, of a call that was sent before."""
        try:
            async with asyncio.timeout(self.timeout):
                return await waiting
        except TimeoutError:
            raise Timeout(f"no answer from the broker within {self.timeout:g} s") from None

    async def send(self, call: Call) -> asyncio.Future[bytes]:
        """Send it, once there is a connection; its answer, to be awaited. Returns when there is room for more."""
        link = await self.ready()
        waiting = self._expect(call)
        link.write(call.data)
        if not link.writable:
            room = asyncio.ensure_future(link.drained())
            either: set[asyncio.Future[Any]] = {room, waiting}
            try:
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            finally:
                room.cancel()
        return waiting

    def _expect(self, call: Call) -> asyncio.Future[bytes]:
        """Whoever waits for an answer needs it read, however much else waits to be taken."""
        waiting: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        waiting.add_done_callback(partial(self._done, call.request_id))
        self._calls[call.request_id] = waiting
        self._read_or_not()
        return waiting

    def _done(self, request_id: str, waiting: asyncio.Future[bytes]) -> None:
        self._calls.pop(request_id, None)
        self._read_or_not()
        if not waiting.cancelled():
            waiting.exception()  # looked at: an error that nobody waits for any more is no reason for a warning

    async def ready(self) -> Link:
        """A link to write to, if need be the next one."""
        if self._keeper is None and self._failure is None:
            raise InvalidRequest("not connected yet: use the client with `async with`, or await it")
        try:
            async with asyncio.timeout(self.timeout):
                while True:
                    if self._failure is not None:
                        raise repeated(self._failure)
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

    def hold_reading(self, *, hold: bool) -> None:
        """Read nothing more, but for answers, while this is so."""
        self._held = hold
        self._read_or_not()

    def _read_or_not(self) -> None:
        if self._link is not None:
            if self._held and not self._calls:
                self._link.pause_reading()
            else:
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
        waiting = self._calls.get(request_id)
        if waiting is None:
            if error is not None:
                _LOG.warning("the broker refused what nobody waits for: %s", error.message)
        elif waiting.done():
            pass  # nobody waits for it any more
        elif error is None:
            waiting.set_result(payload)
        else:
            waiting.set_exception(error)

    # links

    async def _open(self) -> Link:
        link = await open_link(self._address, self._tls, self._core, self._handle, self.timeout)
        try:
            if self._secret is not None:
                await self._authenticate(link, self._secret)
        except BaseException:
            link.abort()
            raise
        return link

    async def _authenticate(self, link: Link, secret: Secret) -> None:
        """Say who we are, before anything else. Raises what the broker says to it."""
        call = self._core.authenticate(secret.reveal())
        waiting = self._expect(call)
        link.write(call.data)
        either: set[asyncio.Future[Any]] = {waiting, link.lost}
        done, _ = await asyncio.wait(either, timeout=self.timeout, return_when=asyncio.FIRST_COMPLETED)
        if waiting in done:
            waiting.result()
        elif link.lost in done:
            raise link.lost.result()
        else:
            waiting.cancel()
            raise Timeout(f"no answer from the broker within {self.timeout:g} s")

    def _use(self, link: Link) -> None:
        self._link, self._usable = link, True
        self.links += 1
        self._changed.set()

    async def _keep(self, link: Link) -> None:
        """Watch the link, and make a new one when it is gone."""
        while True:
            reason = await self._watch(link)
            if self._failure is not None:
                return  # it was closed by us
            self._usable = False
            self._handle_other(Dropped())
            lost = ServiceUnavailable(f"the connection was lost before this was confirmed: {reason.message}")
            self._fail_calls(lost)
            if not self._again:
                self._fail(reason)
                self._over(reason)
                return
            _LOG.warning("lost the broker at %s: %s; connecting again", self._address, reason.message)
            try:
                link = await self._open_again()
            except _FINAL as error:
                self._fail(error)
                self._over(error)
                return

    async def _watch(self, link: Link) -> PenstockError:
        """Until the link is gone, asking now and then whether it still is there; why it went."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.wait({link.lost}, timeout=_ASK_AFTER_SECONDS)
            if link.lost.done():
                return link.lost.result()
            if not link.reading:
                link.heard = loop.time()  # it is we who do not listen
            silent = loop.time() - link.heard
            if silent >= _GONE_AFTER_SECONDS:
                link.abort(ServiceUnavailable(f"nothing was heard of the broker for {silent:.0f} s"))
            elif silent >= _ASK_AFTER_SECONDS:
                link.write(self._core.heartbeat().data)

    async def _open_again(self) -> Link:
        wait, longest = _BACKOFF_SECONDS
        while True:
            await asyncio.sleep(wait * random.uniform(0.5, 1.0))  # noqa: S311 - so that not all come back at once
            wait = min(wait * 2, longest)
            try:
                link = self._link = await self._open()
            except _FINAL:
                raise
            except PenstockError as error:
                _LOG.info("still no broker at %s: %s", self._address, error.message)
                continue
            if await self._restore(link):
                self._use(link)
                _LOG.warning("connected to %s again", self._address)
                return link

    async def _restore(self, link: Link) -> bool:
        """Make the new link like the last one; False if it was lost in doing so, or something must be tried again."""
        restored = []
        for wanted, call in self._core.restoring():
            waiting = self._expect(call)
            link.write(call.data)
            either: set[asyncio.Future[Any]] = {waiting, link.lost}
            done, _ = await asyncio.wait(either, timeout=self.timeout, return_when=asyncio.FIRST_COMPLETED)
            error = waiting.exception() if waiting in done else Timeout("no answer while connecting again")
            if isinstance(error, PenstockError) and error.retriable:
                link.abort()
                return False
            if isinstance(error, PenstockError) and wanted is not None:
                self._refused(wanted, error)
            elif error is not None:
                _LOG.error("this service could not be registered again: %s", error)
            elif wanted is not None:
                restored.append(wanted)
        for wanted in restored:
            if not self._core.wants(wanted):  # it was given up meanwhile
                link.write(self._core.unsubscribe(wanted).data)
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


def repeated(error: PenstockError) -> PenstockError:
    """The same once more: an exception that is raised twice keeps the traces of both."""
    return type(error)(error.message, **error.details)
