"""The producers and consumers of one client: they come and go with its connection, and hear what the broker says."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock.client.serde.registry_client import Ask, Schemas
from penstock.client.serde.schemas import Serde
from penstock.client.wire.connection import Connection
from penstock.client.wire.protocol import Core, Fed, Noticed, Wanted
from penstock.core.errors import InvalidRequest, NotOwner, PenstockError
from penstock.core.names import TopicName, TopicPattern
from penstock.protocol.notices import ACTIVE, ENDED, FENCED, GAP, SOUGHT

if TYPE_CHECKING:
    from penstock.client.consume.consumer import Consumer
    from penstock.client.produce.producer import Producer


@contextmanager
def _needs_blocks() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise InvalidRequest(
            f"producers and consumers need the package {error.name!r}: pip install 'penstock[stream]'"
        ) from None


def _one(topic: object, who: str) -> str:
    """The name of a topic, which may come from a program that nobody type-checked."""
    if not isinstance(topic, str):
        raise InvalidRequest(
            f"topic is one name, such as 'orders.created', not {topic!r}: make {who} for each topic", argument="topic"
        )
    return topic


class Streams:
    def __init__(self, connection: Connection, core: Core, ask: Ask) -> None:
        self._connection = connection
        self._core = core
        self.schemas = Schemas(ask)
        self._consumers: dict[str, Consumer] = {}
        self._producers: list[Producer] = []

    async def produce(self, topic: str, serde: Serde, options: dict[str, Any]) -> Producer:
        with _needs_blocks():
            from penstock.client.produce.producer import Producer

        writer = await serde.writer(self.schemas, _one(topic, "a producer"))
        made: Producer = Producer(self._connection, self._core, topic, writer=writer, **options)
        await made.start()
        self._producers = [*(each for each in self._producers if each.open), made]
        return made

    async def consume(self, topic: str, subscription: str, serde: Serde, asked: dict[str, Any]) -> Consumer:
        with _needs_blocks():
            from penstock.client.consume.consumer import Consumer

        name = TopicName.parse(_one(topic, "a consumer"))
        reader = await serde.reader(self.schemas, topic)
        wanted = Wanted(
            TopicPattern(name.namespace, name.topic),
            "durable",
            subscribe_id=str(uuid.uuid4()),
            subscription=subscription,
            options=json.dumps(asked),
        )
        made: Consumer = Consumer(self._connection, self._core, wanted, reader=reader, leave=self._left)
        self._consumers[wanted.subscribe_id] = made
        try:
            return await made.start()
        except BaseException:
            self._left(made)
            self._core.forget(wanted)
            raise

    def _left(self, consumer: Consumer) -> None:
        self._consumers.pop(consumer.wanted.subscribe_id, None)

    async def close_producers(self) -> None:
        for producer in list(self._producers):
            await producer.close()

    def end(self, reason: PenstockError | None) -> None:
        """No more will come for any consumer."""
        for consumer in list(self._consumers.values()):
            consumer.end(reason)

    # what the broker says

    def fed(self, fed: Fed) -> None:
        consumer = self._consumers.get(fed.subscribe_id)
        if consumer is not None:
            consumer.put(fed)

    def dropped(self) -> None:
        """The connection is gone; another will come."""
        for consumer in self._consumers.values():
            consumer.dropped()

    def refused(self, wanted: Wanted, error: PenstockError) -> None:
        """The broker would not have it again on a new connection."""
        consumer = self._consumers.pop(wanted.subscribe_id, None)
        if consumer is not None:
            consumer.end(error)

    def notice(self, notice: Noticed) -> None:
        consumer = self._consumers.get(str(notice.facts.get("subscribeId")))
        if notice.topic == ENDED and consumer is not None:
            self._core.forget(consumer.wanted)
            self._left(consumer)
            consumer.end(NotOwner(f"{consumer.subscription}: {notice.facts.get('reason')}"))
        elif notice.topic == ACTIVE and consumer is not None:
            consumer.active = True
        elif notice.topic == SOUGHT and consumer is not None:
            consumer.sought(notice.facts.get("positions", {}))
        elif notice.topic == GAP and consumer is not None:
            consumer.missed(notice.facts)
        elif notice.topic == FENCED:
            for producer in self._producers:
                if producer.producer_id == notice.facts.get("producer_id"):
                    producer.fenced()
