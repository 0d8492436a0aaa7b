"""A connection to a broker that lasts longer than one TCP connection: it opens a new transport after a break and
restores the subscriptions. Calls wait for the new transport, or fail."""

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
from penstock.client.wire.protocol import (
    BrokerCall,
    ClientProtocol,
    ConnectionLost,
    Event,
    ReplyDue,
    ResponseReceived,
    SubscriptionSpec,
)
from penstock.client.wire.transport import ClientTransport, open_transport
from penstock.core.errors import InvalidRequest, PenstockError, ServiceUnavailable, Timeout, Unauthorized

_LOG: Final = logging.getLogger(__name__)
_BACKOFF_SECONDS: Final = (0.1, 10.0)
_ASK_AFTER_SECONDS: Final = 20.0
_GONE_AFTER_SECONDS: Final = 60.0
_FINAL: Final = (Unauthorized, InvalidRequest)
"""Errors after which it does not try to connect again, since the broker would refuse every attempt, such as a revoked
key."""
_GOODBYE_SECONDS: Final = 2.0
"""The time in seconds in which written bytes must be sent when the client is closed."""


class Connection:
    """A sender of calls over the current transport, which matches responses to them. All other events go to `on_event`.

    If the broker refuses a subscription on a new transport, `on_refused` is called with it. If no transport will be
    opened any more, `on_end` is called with the error.
    """

    def __init__(
        self,
        address: Address,
        protocol: ClientProtocol,
        *,
        tls: ssl.SSLContext | None,
        secret: Secret | None = None,
        timeout: float,
        reconnect: bool,
        on_event: Callable[[Event], None],
        on_refused: Callable[[SubscriptionSpec, PenstockError], None],
        on_end: Callable[[PenstockError], None],
    ) -> None:
        self.timeout = timeout
        self._address = address
        self._protocol = protocol
        self._tls = tls
        self._secret = secret
        self._reconnects = reconnect
        self._on_event = on_event
        self._on_refused = on_refused
        self._on_end = on_end
        self.generation = 0
        """The number of transports used so far. The broker keeps some state, such as a registered producer, only for
        one of them."""

        self._reading_held = False
        self._transport: ClientTransport | None = None
        self._changed = asyncio.Event()
        self._usable = False
        self._calls: dict[str, asyncio.Future[bytes]] = {}
        self._keeper: asyncio.Task[None] | None = None
        self._failure: PenstockError | None = None

    @property
    def open(self) -> bool:
        return self._usable and self._transport is not None and self._transport.open

    async def start(self) -> None:
        """Connect. Raises if this first attempt fails; it may then be called again.

        Once connected, a further call does nothing. After a later break the connection keeps trying if it was made
        with `reconnect`, until the broker refuses for good.
        """
        if self._keeper is None:
            transport = self._transport = await self._open()
            self._use(transport)
            self._keeper = asyncio.create_task(self._keep_connected(transport))

    async def close(self) -> None:
        """Send written bytes, for up to two seconds, and end. Calls that still wait raise `ServiceUnavailable`."""
        self._fail(ServiceUnavailable("the client is closed"))
        if self._transport is not None:
            self._transport.close()
            await asyncio.wait({self._transport.lost}, timeout=_GOODBYE_SECONDS)
            self._transport.abort()
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)

    # calls

    async def call(self, call: BrokerCall, timeout: float | None = None) -> bytes:
        """Send a call, and return the payload of its response. `timeout` is in seconds; default: that of the
        connection.

        Raises the error in the response, `Timeout`, or `ServiceUnavailable` if the connection is lost.
        """
        timeout = timeout or self.timeout
        try:
            async with asyncio.timeout(timeout):
                return await (await self.send(call))
        except TimeoutError:
            raise Timeout(f"no answer from the broker within {timeout:g} s") from None

    async def answer(self, waiting: asyncio.Future[bytes]) -> bytes:
        """Wait for the response to a call that was sent by `send`, and return its payload. Raises as `call` does."""
        try:
            async with asyncio.timeout(self.timeout):
                return await waiting
        except TimeoutError:
            raise Timeout(f"no answer from the broker within {self.timeout:g} s") from None

    async def send(self, call: BrokerCall) -> asyncio.Future[bytes]:
        """Send a call once a transport is connected, and return the future of its response. If the write buffer is
        full, it first waits until there is room. Raises `ServiceUnavailable` if no transport is connected within the
        timeout."""
        transport = await self.ready()
        waiting = self._expect(call)
        transport.write(call.data)
        if not transport.writable:
            room = asyncio.ensure_future(transport.drained())
            either: set[asyncio.Future[Any]] = {room, waiting}
            try:
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            finally:
                room.cancel()
        return waiting

    def _expect(self, call: BrokerCall) -> asyncio.Future[bytes]:
        """Create the future of a call's response. While it waits, reading goes on even if `hold_reading` is set:
        otherwise the response would not arrive."""
        waiting: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        waiting.add_done_callback(partial(self._forget_call, call.request_id))
        self._calls[call.request_id] = waiting
        self._pause_or_resume_reading()
        return waiting

    def _forget_call(self, request_id: str, waiting: asyncio.Future[bytes]) -> None:
        self._calls.pop(request_id, None)
        self._pause_or_resume_reading()
        if not waiting.cancelled():
            waiting.exception()  # retrieved: asyncio warns about an error of a future that no caller awaits any more

    async def ready(self) -> ClientTransport:
        """Return a transport that can be written to, after waiting for the next one if the last is lost.

        Raises `ServiceUnavailable` if there is none within the timeout, or the error that ended the connection.
        """
        if self._keeper is None and self._failure is None:
            raise InvalidRequest("not connected yet: use the client with `async with`, or await it")
        try:
            async with asyncio.timeout(self.timeout):
                while True:
                    if self._failure is not None:
                        raise error_copy(self._failure)
                    if self.open and self._transport is not None:
                        return self._transport
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise ServiceUnavailable(f"no connection to {self._address} within {self.timeout:g} s") from None

    def write(self, data: bytes) -> None:
        """Write bytes that need no response. Without a transport they are dropped: the broker has already failed the
        request that they belong to."""
        if self._transport is not None and self._transport.open:
            self._transport.write(data)

    def hold_reading(self, *, hold: bool) -> None:
        """With `hold`, stop reading from the transport, except while a call waits for its response. Without it, read
        again."""
        self._reading_held = hold
        self._pause_or_resume_reading()

    def _pause_or_resume_reading(self) -> None:
        if self._transport is not None:
            if self._reading_held and not self._calls:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    # events

    def _handle(self, event: Event) -> None:
        match event:
            case ResponseReceived(request_id, payload, error):
                self._answered(request_id, payload, error)
            case ReplyDue(data):
                self.write(data)
            case _:
                self._on_event(event)

    def _answered(self, request_id: str, payload: bytes, error: PenstockError | None) -> None:
        waiting = self._calls.get(request_id)
        if waiting is None:
            if error is not None:
                _LOG.warning("the broker refused a call that has no caller any more: %s", error.message)
        elif waiting.done():
            pass  # the caller has stopped waiting
        elif error is None:
            waiting.set_result(payload)
        else:
            waiting.set_exception(error)

    # transports

    async def _open(self) -> ClientTransport:
        transport = await open_transport(self._address, self._tls, self._protocol, self._handle, self.timeout)
        try:
            if self._secret is not None:
                await self._authenticate(transport, self._secret)
        except BaseException:
            transport.abort()
            raise
        return transport

    async def _authenticate(self, transport: ClientTransport, secret: Secret) -> None:
        """Send the credentials, as the first call on a transport. Raises the broker's error, the reason for which the
        transport was lost, or `Timeout`."""
        call = self._protocol.authenticate(secret.reveal())
        waiting = self._expect(call)
        transport.write(call.data)
        either: set[asyncio.Future[Any]] = {waiting, transport.lost}
        done, _ = await asyncio.wait(either, timeout=self.timeout, return_when=asyncio.FIRST_COMPLETED)
        if waiting in done:
            waiting.result()
        elif transport.lost in done:
            raise transport.lost.result()
        else:
            waiting.cancel()
            raise Timeout(f"no answer from the broker within {self.timeout:g} s")

    def _use(self, transport: ClientTransport) -> None:
        self._transport, self._usable = transport, True
        self.generation += 1
        self._changed.set()

    async def _keep_connected(self, transport: ClientTransport) -> None:
        """Wait until the transport is lost, and open a new one, again and again. Ends when the connection is closed,
        when it must not reconnect, or when the broker refuses for good."""
        while True:
            reason = await self._watch(transport)
            if self._failure is not None:
                return  # closed by `close`
            self._usable = False
            self._on_event(ConnectionLost())
            lost = ServiceUnavailable(f"the connection was lost before this was confirmed: {reason.message}")
            self._fail_calls(lost)
            if not self._reconnects:
                self._fail(reason)
                self._on_end(reason)
                return
            _LOG.warning("lost the broker at %s: %s; connecting again", self._address, reason.message)
            try:
                transport = await self._reconnect()
            except _FINAL as error:
                self._fail(error)
                self._on_end(error)
                return

    async def _watch(self, transport: ClientTransport) -> PenstockError:
        """Wait until the transport is lost, and return the reason. A silent transport is sent heartbeats after 20
        seconds and aborted after 60."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.wait({transport.lost}, timeout=_ASK_AFTER_SECONDS)
            if transport.lost.done():
                return transport.lost.result()
            if not transport.reading:
                transport.heard = loop.time()  # silent because we have paused reading
            silent = loop.time() - transport.heard
            if silent >= _GONE_AFTER_SECONDS:
                transport.abort(ServiceUnavailable(f"nothing was heard of the broker for {silent:.0f} s"))
            elif silent >= _ASK_AFTER_SECONDS:
                transport.write(self._protocol.heartbeat().data)

    async def _reconnect(self) -> ClientTransport:
        wait, longest = _BACKOFF_SECONDS
        while True:
            await asyncio.sleep(wait * random.uniform(0.5, 1.0))  # noqa: S311 - jitter, so that clients do not all reconnect at the same moment
            wait = min(wait * 2, longest)
            try:
                transport = self._transport = await self._open()
            except _FINAL:
                raise
            except PenstockError as error:
                _LOG.info("still no broker at %s: %s", self._address, error.message)
                continue
            if await self._restore_subscriptions(transport):
                self._use(transport)
                _LOG.warning("connected to %s again", self._address)
                return transport

    async def _restore_subscriptions(self, transport: ClientTransport) -> bool:
        """Subscribe again on a new transport; return True if that is done. Return False if the transport was lost
        meanwhile, or the broker answered that a call must be tried again."""
        restored = []
        for spec, call in self._protocol.restore_calls():
            waiting = self._expect(call)
            transport.write(call.data)
            either: set[asyncio.Future[Any]] = {waiting, transport.lost}
            done, _ = await asyncio.wait(either, timeout=self.timeout, return_when=asyncio.FIRST_COMPLETED)
            error = waiting.exception() if waiting in done else Timeout("no answer while connecting again")
            if isinstance(error, PenstockError) and error.retriable:
                transport.abort()
                return False
            if isinstance(error, PenstockError) and spec is not None:
                self._on_refused(spec, error)
            elif error is not None:
                _LOG.error("this service could not be registered again: %s", error)
            elif spec is not None:
                restored.append(spec)
        for spec in restored:
            if not self._protocol.has_subscription(spec):  # unsubscribed meanwhile
                transport.write(self._protocol.unsubscribe(spec).data)
        return True

    def _fail(self, error: PenstockError) -> None:
        """End for good: all waiting calls fail with `error`, and no transport is opened any more."""
        self._failure, self._usable = self._failure or error, False
        self._fail_calls(error)
        self._changed.set()

    def _fail_calls(self, error: PenstockError) -> None:
        calls, self._calls = self._calls, {}
        for waiting in calls.values():
            if not waiting.done():
                waiting.set_exception(error)


def error_copy(error: PenstockError) -> PenstockError:
    """Return a new exception with the same message and details. Raising the same object twice would mix the tracebacks
    of both."""
    return type(error)(error.message, **error.details)
