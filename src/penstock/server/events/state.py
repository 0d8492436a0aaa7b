"""The service of events: the open streams, the chunks that they share, and the requests to the broker that they
make."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from penstock.broker.base.effects import Effect
from penstock.broker.context import Reply
from penstock.broker.durable import DurableBroker
from penstock.broker.reads.feed import FeedRequest, Feeds, FeedSelection, FeedStart
from penstock.broker.reads.merge import ReadPositions
from penstock.broker.topics.publish_batch import MessageNumbers, StoredAt
from penstock.core.errors import PenstockError, QuotaExceeded, ServiceUnavailable
from penstock.core.names import TopicName
from penstock.core.positions import Position
from penstock.server.background.registry_tasks import resolved
from penstock.server.events.publish_formats import PublishRequest
from penstock.server.events.shared_chunks import ChunkCache
from penstock.server.events.stream_formats import StreamChunk, StreamFormat, StreamWriter
from penstock.server.hub import Hub

STREAMS_MAX: Final = 512
"""The most open streams of the server: half of the ordinary HTTP connections, so that other requests are still
answered."""
STREAMS_PER_CLIENT_MAX: Final = STREAMS_MAX // 2
"""The most open streams of one principal, or of one address without credentials, so that no client can take all."""


class EventService:
    """The service of events of one broker, on one event loop."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._wake_functions: dict[object, Callable[[], object]] = {}
        self._clients: dict[object, str] = {}
        self._writers = {form: StreamWriter(form) for form in StreamFormat}
        self.chunks = ChunkCache()
        self.closing = False
        self._unwatch = hub.access.watch(self._wake_all)

    def close(self) -> None:
        """End all streams, because the broker stops. Readers go on where they were once it is back."""
        self.closing = True
        self._unwatch()
        self._wake_all()

    def _wake_all(self) -> None:
        for wake in list(self._wake_functions.values()):
            wake()

    # the broker

    @property
    def durable(self) -> DurableBroker:
        if self._hub.broker.durable is None:
            raise ServiceUnavailable("this broker keeps nothing")
        return self._hub.broker.durable

    @property
    def feeds(self) -> Feeds:
        return self.durable.feeds

    @property
    def hub(self) -> Hub:
        return self._hub

    async def _ask_broker(self, ask: Callable[[Reply], list[Effect]]) -> Any:
        """Call `ask` with a function that takes the reply, carry out the effects that it returns, and return the reply.
        If the reply is an error, raises it."""
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        context = self._hub.broker.context
        context.now_ms = max(context.now_ms, self._hub.now_ms())
        self._hub.apply(ask(partial(resolved, answered)))
        outcome = await answered
        if isinstance(outcome, PenstockError):
            raise outcome
        return outcome

    async def post(self, topic: TopicName, posted: PublishRequest, numbered: MessageNumbers | None) -> list[StoredAt]:
        """Publish the messages, and return where they are stored. They are durable on return. Raises the broker's
        refusal, with the number of the message in the body that it is about."""
        metrics = self._hub.broker.metrics
        try:
            places: list[StoredAt] = await self._ask_broker(
                partial(self.durable.batch_publisher.post, topic, posted.messages, numbered)
            )
        except PenstockError as error:
            metrics.add("http.events.refused", len(posted.messages))
            raise posted.with_position(error) from None
        metrics.add("http.events.published", len(places))
        return places

    # streams

    @property
    def streams(self) -> int:
        return len(self._wake_functions)

    @property
    def queued_bytes(self) -> int:
        """The bytes of chunks that are being sent to readers."""
        return self.chunks.sending_bytes

    def check_room(self, client: str) -> None:
        if self.streams >= STREAMS_MAX:
            raise QuotaExceeded(f"{STREAMS_MAX} streams are open, and no more may be: try again", limit=STREAMS_MAX)
        if list(self._clients.values()).count(client) >= STREAMS_PER_CLIENT_MAX:
            raise QuotaExceeded(
                f"{STREAMS_PER_CLIENT_MAX} streams are open for {client}, and no more may be: end one of them",
                limit=STREAMS_PER_CLIENT_MAX,
            )
        if self.closing:
            raise ServiceUnavailable("the broker stops: ask again when it is back")

    def register(self, stream: object, client: str, wake: Callable[[], object]) -> None:
        """Register a stream of this client. `wake` is called when the stream may have to end: the broker stops, or
        permissions have changed."""
        self._wake_functions[stream] = wake
        self._clients[stream] = client
        self._hub.broker.metrics.add("http.streams.opened")

    def unregister(self, stream: object) -> None:
        self._clients.pop(stream, None)
        if self._wake_functions.pop(stream, None) is not None:
            self._hub.broker.metrics.add("http.streams.closed")

    async def start(self, feed: FeedRequest, position: Position, *, resumed: bool) -> FeedStart:
        start: FeedStart = await self._ask_broker(partial(self._start, feed, position, resumed))
        return start

    def _start(self, feed: FeedRequest, position: Position, resumed: bool, reply: Reply) -> list[Effect]:
        return self.feeds.start(feed, position, resumed=resumed, reply=reply)

    async def chunk(
        self,
        feed: FeedRequest,
        form: StreamFormat,
        selection: FeedSelection,
        after: int,
        positions: ReadPositions,
        *,
        resumed: bool,
    ) -> StreamChunk:
        """Return the next chunk after the position `after`, encoded. It is encoded once for all readers at the same
        position."""

        def read(reply: Reply) -> list[Effect]:
            writer = self._writers[form]
            writer.address = self._hub.broker.context.address
            return self.feeds.fetch(
                selection,
                positions,
                after=after,
                resumed=resumed,
                written=writer.chunk,
                reply=reply,
            )

        key = (feed, selection.revision, form, after, resumed)
        return await self.chunks.get(key, partial(self._ask_broker, read))

    def sent(self, events: int) -> None:
        self._hub.broker.metrics.add("http.events.sent", events)
