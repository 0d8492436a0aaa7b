"""The producers and consumers of one client, and the dispatch of the broker's records and notices to them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock.client.serde.registry_client import Ask, RegistryClient
from penstock.client.serde.schemas import Serde
from penstock.client.wire.connection import Connection
from penstock.client.wire.protocol import ClientProtocol, NoticeReceived, RecordsReceived, SubscriptionSpec
from penstock.core.errors import InvalidRequest, NotOwner, PenstockError
from penstock.core.names import TopicName, TopicPattern
from penstock.protocol.notices import ACTIVE, ENDED, FENCED, GAP, SOUGHT

if TYPE_CHECKING:
    from penstock.client.consume.consumer import Consumer
    from penstock.client.produce.producer import Producer


@contextmanager
def _require_stream_extra() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise InvalidRequest(
            f"producers and consumers need the package {error.name!r}: pip install 'penstock[stream]'"
        ) from None


def _topic_name(topic: object, who: str) -> str:
    """Return the topic if it is a text, else raise `InvalidRequest`: callers may pass a list. `who` names the caller in
    the error."""
    if not isinstance(topic, str):
        raise InvalidRequest(
            f"topic is one name, such as 'orders.created', not {topic!r}: make {who} for each topic", argument="topic"
        )
    return topic


class Endpoints:
    def __init__(self, connection: Connection, protocol: ClientProtocol, ask: Ask) -> None:
        self._connection = connection
        self._protocol = protocol
        self.registry = RegistryClient(ask)
        self._consumers: dict[str, Consumer] = {}
        self._producers: list[Producer] = []

    async def open_producer(self, topic: str, serde: Serde, options: dict[str, Any]) -> Producer:
        with _require_stream_extra():
            from penstock.client.produce.producer import Producer

        encoder = await serde.encoder(self.registry, _topic_name(topic, "a producer"))
        opened: Producer = Producer(self._connection, self._protocol, topic, encoder=encoder, **options)
        await opened.start()
        self._producers = [*(producer for producer in self._producers if producer.open), opened]
        return opened

    async def open_consumer(self, topic: str, subscription: str, serde: Serde, request: dict[str, Any]) -> Consumer:
        with _require_stream_extra():
            from penstock.client.consume.consumer import Consumer

        name = TopicName.parse(_topic_name(topic, "a consumer"))
        decoder = await serde.decoder(self.registry, topic)
        spec = SubscriptionSpec(
            TopicPattern(name.namespace, name.topic),
            "durable",
            subscribe_id=str(uuid.uuid4()),
            subscription=subscription,
            options=json.dumps(request),
        )
        opened: Consumer = Consumer(
            self._connection, self._protocol, spec, decoder=decoder, leave=self._forget_consumer
        )
        self._consumers[spec.subscribe_id] = opened
        try:
            return await opened.start()
        except BaseException:
            self._forget_consumer(opened)
            self._protocol.forget(spec)
            raise

    def _forget_consumer(self, consumer: Consumer) -> None:
        self._consumers.pop(consumer.spec.subscribe_id, None)

    async def close_producers(self) -> None:
        for producer in list(self._producers):
            await producer.close()

    def end(self, reason: PenstockError | None) -> None:
        """End every consumer: it raises `reason` after the messages that have arrived, or stops if there is none."""
        for consumer in list(self._consumers.values()):
            consumer.end(reason)

    # events of the broker

    def records_received(self, event: RecordsReceived) -> None:
        consumer = self._consumers.get(event.subscribe_id)
        if consumer is not None:
            consumer.records_received(event)

    def connection_lost(self) -> None:
        """Drop undelivered messages of every consumer: the broker sends them again on the next connection."""
        for consumer in self._consumers.values():
            consumer.connection_lost()

    def subscription_refused(self, spec: SubscriptionSpec, error: PenstockError) -> None:
        """End the consumer whose subscription the broker has refused on a new connection."""
        consumer = self._consumers.pop(spec.subscribe_id, None)
        if consumer is not None:
            consumer.end(error)

    def notice_received(self, event: NoticeReceived) -> None:
        consumer = self._consumers.get(str(event.facts.get("subscribeId")))
        if event.topic == ENDED and consumer is not None:
            self._protocol.forget(consumer.spec)
            self._forget_consumer(consumer)
            consumer.end(NotOwner(f"{consumer.subscription}: {event.facts.get('reason')}"))
        elif event.topic == ACTIVE and consumer is not None:
            consumer.active = True
        elif event.topic == SOUGHT and consumer is not None:
            consumer.position_moved(event.facts.get("positions", {}))
        elif event.topic == GAP and consumer is not None:
            consumer.gap_reported(event.facts)
        elif event.topic == FENCED:
            for producer in self._producers:
                if producer.producer_id == event.facts.get("producer_id"):
                    producer.fenced()
