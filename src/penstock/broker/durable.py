"""The durable broker: durable topics with their producers and subscriptions."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from penstock.broker.access.policy import AuditedAction, Operation, Resource
from penstock.broker.access_enforcement import AccessEnforcer
from penstock.broker.base import request_fields as read
from penstock.broker.base.effects import AdjustBacklog, Effect, RunInThread, Send
from penstock.broker.base.replies import json_bytes, own_message
from penstock.broker.base.request_fields import Fields
from penstock.broker.context import BrokerContext, Reply, errors_to
from penstock.broker.live.connections import Client
from penstock.broker.live.rate_limits import RateLimiter
from penstock.broker.live.routing import Routes
from penstock.broker.reads.feed import Feeds
from penstock.broker.reads.scan import Scans
from penstock.broker.subscriptions import events
from penstock.broker.subscriptions.dead_letters import DeadLetterWriter
from penstock.broker.subscriptions.requests import DURABLE_OPTIONS, parse_subscribe
from penstock.broker.subscriptions.service import Subscriptions
from penstock.broker.topics.idempotence import ProducerOwner, TopicProducers, check_not_reserved
from penstock.broker.topics.publish_batch import BatchPublisher
from penstock.broker.topics.publisher import TopicPublisher
from penstock.broker.topics.schema_policy import SchemaPolicyEnforcer
from penstock.broker.topics.topics import AutoCreate, Topics, TopicState
from penstock.core.errors import InvalidRequest, NotOwner, PenstockError, ServiceUnavailable, TopicNotSupported
from penstock.core.limits import WireLimits
from penstock.core.names import TopicName, TopicPattern
from penstock.core.schemas import Schema
from penstock.protocol.actions import Action
from penstock.protocol.batch_reader import PublishBatch
from penstock.protocol.frames import Frame
from penstock.protocol.header import Head
from penstock.protocol.notices import FENCED
from penstock.schema.registry.registry import Registry
from penstock.storage.catalog.topics import check_producer_name
from penstock.storage.producer_windows import WINDOW
from penstock.storage.store import Store

_LOG: Final = logging.getLogger(__name__)
_RETAIN_EVERY_MS: Final = 60_000
_SESSION_CHARS_MAX: Final = 64


class DurableBroker:
    """The part of the broker whose state outlives a connection: topics, producers, subscriptions, schemas."""

    def __init__(
        self,
        store: Store,
        context: BrokerContext,
        routes: Routes,
        rate_limiter: RateLimiter,
        limits: WireLimits,
        *,
        auto_create: AutoCreate,
    ) -> None:
        self._context = context
        self._limits = limits
        self.rate_limiter = rate_limiter
        store.catalog.suggests = not context.access.enabled
        self.topics = Topics(store, auto_create=auto_create)
        self.registry = Registry(store.catalog.schemas)
        self.schema_enforcer = SchemaPolicyEnforcer(self.registry, store.catalog.schemas, context)
        self.publisher = TopicPublisher(self.topics, context, routes, rate_limiter, self.schema_enforcer)
        self.dead_letter_writer = DeadLetterWriter(self.topics, self.publisher)
        self.subscriptions = Subscriptions(self.topics, context, limits, self.dead_letter_writer.write)
        self.feeds = Feeds(self.topics)
        self.batch_publisher = BatchPublisher(self.topics, self.publisher)
        self.scans = Scans()
        self.enforcer: AccessEnforcer | None = None
        self._retain_ms = context.now_ms + _RETAIN_EVERY_MS
        self.topics.on_added = self._added
        for topic in self.topics:
            self._added(topic)

    def _added(self, topic: TopicState) -> None:
        self.rate_limiter.set_topic(topic.name, topic.settings.rate_max)

    def enforce_access(self, enforcer: AccessEnforcer) -> None:
        """Start enforcing access control through `enforcer`."""
        self.enforcer = enforcer
        enforcer.attach(self.topics.store.catalog.access, self.subscriptions)

    def is_allowed(self, client: Client, operation: Operation, resource: Resource) -> bool:
        """Return whether a client may do this. Writes no audit entry: lists use it to leave out what a client may not
        see."""
        return self._context.access.allows(client.principal, operation, resource)

    def can_describe(self, client: Client, name: TopicName) -> bool:
        """Return whether a client may see a topic in lists."""
        return self.is_allowed(client, Operation.DESCRIBE, Resource.topic(name))

    def check(self, client: Client, operation: Operation, resource: Resource, action: str = "") -> None:
        """Check a permission, and add it to the audit trail of the current request. `action` is what the audit entry
        says was requested. Raises `Unauthorized` or `Forbidden`."""
        audited = AuditedAction(action)
        self._context.access.require(client.principal, operation, resource, client.origin, audited)
        if client.trail is None:
            self._context.access.record(client.principal, operation, resource, client.origin, audited)
        else:  # the outcome is added when it is known
            client.trail.add(operation, resource, audited)

    def check_create(self, client: Client, name: TopicName) -> None:
        """Check that a client may create a topic, if a message to that topic would create it. Raises `Unauthorized` or
        `Forbidden`."""
        if self.would_create(name):
            self.check(client, Operation.CREATE, Resource.topic(name))

    def check_references(self, client: Client, schema: Schema) -> None:
        """Check that a client may read the subjects that a schema refers to. A reference shows the content of its
        subject, and keeps it from being deleted. Raises `Unauthorized` or `Forbidden`."""
        if self._context.access.enabled:
            for subject in sorted({reference.subject for reference in schema.references}):
                self.check(client, Operation.SCHEMA_READ, Resource.subject(subject))

    def would_create(self, name: TopicName) -> bool:
        """Return whether a message to this topic would create it, because it does not exist."""
        return self.topics.auto_create is AutoCreate.RELIABLE and self.topics.get(name) is None

    def unix_ms(self) -> int:
        """Return the time of day, in ms since 1970."""
        return self._context.unix_ms()

    @property
    def answer_bytes_max(self) -> int:
        """The most bytes of a list in an answer: the largest message, less the frame around the list."""
        return self._limits.answer_bytes_max

    @property
    def idle(self) -> bool:
        """True if no message and no cursor waits for the disk, and no block for its validation."""
        return not self.publisher.pending and self.schema_enforcer.idle and self.subscriptions.cursor_store.idle

    # topics

    def is_durable(self, name: TopicName) -> bool:
        """Return whether messages to this topic are stored. If the topic does not exist, return whether a message would
        create it as a durable one."""
        topic = self.topics.get(name)
        return topic.is_durable if topic is not None else self.topics.auto_create is AutoCreate.RELIABLE

    def publish_error(self, name: TopicName) -> PenstockError | None:
        """Return the error for a message to a topic that does not exist and is not created by itself; None if the topic
        may be published to."""
        if self.topics.auto_create is AutoCreate.OFF and self.topics.get(name) is None:
            return TopicNotSupported(
                f"there is no topic {name}, and this broker creates none by itself: `penstock topic create` does",
                topic=str(name),
            )
        return None

    def wake_subscribers(self) -> list[Effect]:
        """Tell feeds and subscriptions about all blocks that became durable since the last call."""
        effects: list[Effect] = []
        stored = self.publisher.take_stored()
        if stored:
            effects += self.feeds.log_grown([(topic, appended) for (topic, _), appended in stored.items()])
        for (topic, partition), appended in stored.items():
            try:
                effects += self.subscriptions.log_grown(topic, partition, appended)
            except Exception:
                _LOG.exception("unhandled error in waking subscribers", extra={"topic": str(topic.name)})
        return effects

    # messages from clients

    def publish(self, client: Client, name: TopicName, batch: PublishBatch) -> list[Effect]:
        kept = batch.copy()

        def then(topic: TopicState | PenstockError) -> list[Effect]:
            if not isinstance(topic, PenstockError) and not topic.is_durable:
                topic = ServiceUnavailable(f"{name} was just created as a live topic; try again")
            if not isinstance(topic, PenstockError):
                return self.publisher.publish(client, topic, kept)
            failure = self._context.failure(client, topic, len(kept))
            self._context.metrics.add("router.publish.error", len(kept))
            return [Send(client.id, kept.answer_frames(self._context.new_id(), failure))]

        return self._ensure(client, name, then, AdjustBacklog(client.id, kept.payload_bytes))

    def _ensure(self, client: Client, name: TopicName, then: Reply, backlog: AdjustBacklog) -> list[Effect]:
        """Call `then` with the topic to write to, which is created if necessary, or with the error. If access is not
        enforced, the creation is audited here; otherwise it was when the message was checked."""
        if not self._context.access.enabled:
            self.check_create(client, name)
        return self.topics.get_or_create(name, then, backlog=backlog)

    def handle(self, client: Client, frame: Frame) -> list[Effect]:
        """Handle a message to a durable topic that is not part of a publish batch. Raises the error to answer with."""
        head, reply = frame.header.head, self._context.reply(client, frame.header)
        backlog = AdjustBacklog(client.id, len(frame.payload))
        match frame.header.action:
            case Action.PUBLISH:
                then = partial(self._publish_one, client, frame)
                return self._ensure(client, head.destination, errors_to(reply, then), backlog)
            case Action.APPEND | Action.MESSAGE as action:
                store = self.publisher.append if action is Action.APPEND else self.publisher.message
                store_it = partial(self._store, client, frame.payload, reply, store)
                return self._ensure(client, head.destination, errors_to(reply, store_it), backlog)
            case Action.ACK | Action.NACK as action:
                acknowledge = self.subscriptions.ack if action is Action.ACK else self.subscriptions.nack
                confirm = frame.header.request_id is not None
                return acknowledge(client, head.destination, read.read_fields(frame.payload), reply, confirm=confirm)
            case Action.SEEK:
                self._check_seek(client, head.destination, read.read_fields(frame.payload))
                return self.subscriptions.seek(client, head.destination, read.read_fields(frame.payload), reply)
            case action:
                raise InvalidRequest(f"Only the broker sends {action.value}", action=action.value)

    def _check_seek(self, client: Client, topic: TopicName, fields: Fields) -> None:
        """Check that a client may seek: a consumer of the subscription must be allowed to consume, any other client to
        manage the topic. Raises `Unauthorized` or `Forbidden`."""
        is_consumer = self.subscriptions.consumes(client, topic, fields.get("subscription"))
        self.check(client, Operation.CONSUME if is_consumer else Operation.MANAGE, Resource.topic(topic))

    def _publish_one(self, client: Client, frame: Frame, topic: TopicState) -> list[Effect]:
        if not topic.is_durable:
            raise ServiceUnavailable(f"{topic.name} was just created as a live topic; try again")
        return self.publisher.publish_one(client, topic, frame)

    def _store(
        self,
        client: Client,
        payload: bytes,
        reply: Reply,
        store: Callable[[Client, TopicState, bytes, Reply], list[Effect]],
        topic: TopicState,
    ) -> list[Effect]:
        if not topic.is_durable:
            raise TopicNotSupported(f"{topic.name} is a live topic: publish to it; append and message need a kept one")
        return store(client, topic, payload, reply)

    def is_durable_subscription(self, fields: Fields) -> bool:
        """Return whether a `subscribe` or `unsubscribe` with these fields is about a durable subscription or a reader.
        Otherwise it is live."""
        return not fields.keys().isdisjoint(DURABLE_OPTIONS)

    def subscribe(self, client: Client, frame: Frame, fields: Fields) -> list[Effect]:
        header = frame.header
        wish = parse_subscribe(_one_topic(header.head), fields, client)
        self.check(client, Operation.CONSUME, Resource.topic(wish.topic))
        self.check_create(client, wish.topic)
        return self.subscriptions.subscribe(client, header, wish, self._context.reply(client, header))

    def unsubscribe(self, client: Client, frame: Frame, fields: Fields) -> list[Effect]:
        read.check_known(fields, ("subscription",))
        effects = self.subscriptions.unsubscribe(
            client, _one_topic(frame.header.head), read.text(fields, "subscription")
        )
        answer = {"status": "failure" if effects is None else "success"}
        return [*(effects or []), *self._context.reply(client, frame.header)(answer)]

    def disconnect(self, client: Client) -> list[Effect]:
        for topic in client.producer_topics:
            if topic.producers is not None:
                topic.producers.release(client.id)
        client.producer_topics.clear()
        return self.subscriptions.disconnect(client)

    # producers

    def register_producer(self, client: Client, fields: Fields, reply: Reply) -> list[Effect]:
        """Reply with the id of a producer on a topic. A name always has the same id; without a name the id is new."""
        read.check_known(fields, ("topic", "name", "access", "producer_id", "session", "resume"))
        topic = read.topic_name(fields)
        self.check_create(client, topic)
        access = read.text(fields, "access", "exclusive")
        if access not in ("exclusive", "shared"):
            raise InvalidRequest("access is exclusive or shared", field="access", given=access)
        name = read.text(fields, "name") if "name" in fields else ""
        if name:
            check_producer_name(name)
            check_not_reserved(name)
        number = read.number(fields, "producer_id", at_least=1) if "producer_id" in fields else None
        owner = ProducerOwner(
            client.id,
            name,
            exclusive=access == "exclusive",
            session=read.text(fields, "session", client.id)[:_SESSION_CHARS_MAX],
            resumes=read.flag(fields, "resume"),
        )
        with_topic = partial(self._register, client, owner, number, reply)
        return self.topics.get_or_create(topic, errors_to(reply, with_topic))

    def _register(
        self, client: Client, owner: ProducerOwner, number: int | None, reply: Reply, topic: TopicState
    ) -> list[Effect]:
        if not topic.is_durable:
            raise TopicNotSupported(f"{topic.name} is a live topic: nothing in it is kept; publish to it instead")
        catalog, stored = self.topics.store.catalog, topic.catalog_topic
        principal = client.principal.signature if self._context.access.enabled else ""

        def take() -> int:
            if owner.name and owner.exclusive:
                resumes, session = owner.resumes, owner.session
                return catalog.claim_producer(stored, owner.name, session, resumes=resumes, principal=principal)
            if owner.name:
                return catalog.producer_id(stored, owner.name, principal=principal)
            if number is None:
                return catalog.take_producer_id()
            if any(producer.producer_id == number for producer in catalog.producers(stored)):
                raise NotOwner(f"producer {number} of {topic.name} has a name: register under it", producer_id=number)
            return number

        def taken(outcome: int | PenstockError) -> list[Effect]:
            if isinstance(outcome, PenstockError):
                return reply(outcome)
            claimed = partial(self._claimed, client, owner, outcome, reply, topic)
            return self.topics.with_producers(topic, claimed)

        return [RunInThread(take, taken)]

    def _claimed(
        self,
        client: Client,
        owner: ProducerOwner,
        producer_id: int,
        reply: Reply,
        topic: TopicState,
        producers: TopicProducers | PenstockError,
    ) -> list[Effect]:
        if isinstance(producers, PenstockError):
            return reply(producers)
        if not client.connected:
            return []
        lost = producers.claim(producer_id, owner)
        notice = {"topic": str(topic.name), "producer_id": producer_id, "name": owner.name}
        fenced = [Send(each, own_message(FENCED, json_bytes(notice))) for each in lost]
        client.producer_topics.add(topic)
        window = producers.window(producer_id)
        answer = {
            "producer_id": producer_id,
            "name": owner.name,
            "last_request_id": max(window.highest, window.submitted),
            "partitions": len(topic.logs),
            "payload_bytes_max": topic.logs[0].limits.payload_bytes_max,
            "window": WINDOW,
            "block_bytes_max": min(topic.logs[0].limits.block_bytes_max, self._limits.block_bytes_max),
        }
        return [*fenced, *reply(answer)]

    # time

    def next_due_ms(self) -> int:
        due_ms, warned_ms = self._retain_ms, self.schema_enforcer.mismatch_log.due_ms
        if warned_ms is not None and warned_ms < due_ms:
            due_ms = warned_ms
        consumed_ms = self.subscriptions.next_due_ms()
        return due_ms if consumed_ms is None or consumed_ms > due_ms else consumed_ms

    def tick(self) -> list[Effect]:
        self.schema_enforcer.mismatch_log.tick(self._context.now_ms)
        effects = self.subscriptions.tick()
        if self._retain_ms <= self._context.now_ms:
            self._retain_ms = self._context.now_ms + _RETAIN_EVERY_MS
            effects.append(RunInThread(self.topics.store.retain, self._retained))
        return effects

    def second_passed(self) -> None:
        for topic in self.topics:
            topic.second_passed()

    def _retained(self, outcome: object) -> list[Effect]:
        """Tell subscriptions which messages retention has deleted, so that they skip them."""
        if isinstance(outcome, int):
            self._context.metrics.add("retention.segments", outcome)
        return [effect for topic in self.topics for effect in self.skip_expired(topic)]

    def skip_expired(self, topic: TopicState) -> list[Effect]:
        effects: list[Effect] = []
        for runner in topic.subscriptions.values():
            for partition, cursor in runner.machine.cursors.items():
                first = int(topic.logs[partition].first_offset)
                if cursor.floor < first:
                    effects += runner.handle(events.Lost(partition, cursor.floor, first))
        return effects

    def close(self) -> None:
        """Save all changes now, and wait for the disk. The broker stops: nothing is written afterwards."""
        self.schema_enforcer.mismatch_log.close()
        self.subscriptions.cursor_store.close()
        for topic in self.topics:
            for work in self.topics.save_checkpoints(topic):
                work.run()


def _one_topic(head: Head) -> TopicName:
    name = head.name
    if isinstance(name, TopicPattern):
        if {"+", "#"} & set(name.levels):
            raise InvalidRequest("A durable subscription is of one topic, not of a pattern", topic=head.topic)
        return TopicName(name.namespace, name.pattern)
    return name
