"""Publishing to durable topics: each message is stored in one partition, once, and answered when it is on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from penstock.broker.base.effects import Append, AppendAtomically, Effect, RunInThread, Send
from penstock.broker.base.replies import publish
from penstock.broker.context import BrokerContext, Reply
from penstock.broker.live.connections import Client
from penstock.broker.live.rate_limits import RateLimiter
from penstock.broker.live.routing import Routes
from penstock.broker.topics.idempotence import ProducerWindow, entries_of
from penstock.broker.topics.message_text import parse_message
from penstock.broker.topics.schema_policy import SchemaPolicyEnforcer
from penstock.broker.topics.schema_rejections import block_rejection, rejection, rejection_rows, rows_by_fault
from penstock.broker.topics.topics import Topics, TopicState
from penstock.core.errors import (
    InvalidRequest,
    NotOwner,
    OffsetOutOfRange,
    PenstockError,
    ServiceUnavailable,
)
from penstock.core.ids import format_id
from penstock.core.limits import QUOTED_CHARS_MAX
from penstock.protocol.batch_reader import PublishBatch, publish_frames
from penstock.protocol.frames import Frame
from penstock.record import layout as at
from penstock.record.block import Block, Draft, parse_block, read_draft
from penstock.record.message import Message
from penstock.schema.language import PayloadFault
from penstock.storage.log.append_result import AppendResult
from penstock.storage.log.log import Log
from penstock.storage.producer_windows import WINDOW

_PARKED_MAX = 64
"""The most blocks of one producer that wait because they may repeat a pending one: more than a client has in flight."""
_REFUSED_MS = 5_000
"""The time after a refused block in which later blocks of its producer are refused too: longer than a client waits
before it sends the block again."""

_VERSION = "1.0.0"
"""The version in the frames in which stored messages are sent to live subscribers. Messages are stored without one."""


@dataclass(slots=True)
class PartitionSlice:
    """The rows of a block that are stored in one partition, and the outcome of that."""

    partition: int
    rows: Any
    block: Block
    outcome: AppendResult | PenstockError | None = None


@dataclass(slots=True)
class Submission:
    """A block that is about to be stored, and what has become of its rows."""

    topic: TopicState
    count: int
    requests: Any
    """The number that the producer gave to each row."""

    window: ProducerWindow | None
    reply: Reply
    duplicates: list[tuple[int, int, int]]
    """Rows that had been stored before: row, partition and offset of each."""

    refused: dict[int, PayloadFault] = field(default_factory=dict)
    """The rows that the schema policy refuses, and why."""

    new_rows: Any = None
    """The rows that had not been stored before."""

    parts: list[PartitionSlice] = field(default_factory=list)
    open: int = 0
    error: PenstockError | None = None
    """The error for which nothing of the block was stored; None if there was none."""

    whole: bool = False
    """True if nothing is to be stored when any row is refused."""

    format_result: Callable[[Submission], Any] | None = None
    """The function that makes the answer; None for `answer`."""

    unbounded: bool = False
    """True if the topic's limits of size do not apply to the block."""

    def result(self) -> Any:
        return self.answer() if self.format_result is None else self.format_result(self)

    def answer(self) -> dict[str, Any]:
        """Return the answer: the position of the first message, as `publish` has it, then where all others are, and
        which were duplicates or refused."""
        stored = [part for part in self.parts if isinstance(part.outcome, AppendResult)]
        parts = [[p.partition, p.outcome.offset, len(p.rows), format_id(p.outcome.id)] for p in stored]  # type: ignore[union-attr]
        leading = min(stored, key=lambda part: int(part.rows[0]), default=None)
        first: dict[str, Any]
        if self.duplicates and (leading is None or self.duplicates[0][0] < int(leading.rows[0])):
            _, partition, offset = self.duplicates[0]
            first = {"partition": partition, "offset": offset, "duplicate": True}
        else:
            assert leading is not None and isinstance(leading.outcome, AppendResult)  # noqa: S101, PT018 - or it would be refused
            appended = leading.outcome
            first = {"partition": leading.partition, "offset": int(appended.offset), "id": format_id(appended.id)}
            first["duplicate"] = False
        whole = first | {"count": self.count, "parts": parts, "duplicates": self.duplicates}
        return whole | {"refused": rejection_rows(self.refused)} if self.refused else whole

    def failure(self) -> PenstockError | None:
        """Return the error to answer with: nothing was stored, or a part could not be. None if the answer is a
        result."""
        if self.error is not None:
            return self.error
        failed = [part.outcome for part in self.parts if isinstance(part.outcome, PenstockError)]
        if failed:
            return failed[0]
        if self.whole and self.refused:
            return block_rejection(self.refused)
        return None if self.parts or self.duplicates else block_rejection(self.refused)


class TopicPublisher:
    def __init__(
        self,
        topics: Topics,
        context: BrokerContext,
        routes: Routes,
        rate_limiter: RateLimiter,
        schema_enforcer: SchemaPolicyEnforcer,
    ) -> None:
        self._topics = topics
        self._schema_enforcer = schema_enforcer
        self._context = context
        self._routes = routes
        self._rate_limiter = rate_limiter
        self._grown: dict[tuple[TopicState, int], list[AppendResult]] = {}
        self.pending = 0
        """The number of blocks that are on their way into a log."""

    def _count_pending(self, topic: TopicState) -> None:
        self.pending += 1
        topic.pending += 1

    def _uncount_pending(self, topic: TopicState) -> None:
        self.pending -= 1
        topic.pending -= 1

    def take_stored(self) -> dict[tuple[TopicState, int], list[AppendResult]]:
        """Return the blocks stored since the last call, by topic and partition."""
        grown, self._grown = self._grown, {}
        return grown

    def _note_stored(
        self, topic: TopicState, partition: int, appended: AppendResult, *, numbered: bool = False
    ) -> None:
        topic.on_stored(partition, appended, numbered=numbered)
        self._grown.setdefault((topic, partition), []).append(appended)

    # publish

    def publish(self, client: Client, topic: TopicState, batch: PublishBatch) -> list[Effect]:
        """Store `publish` messages of one topic, in order. Each is answered, if it has a request id, once it is on
        disk, and then sent to live subscribers."""
        draft = batch.draft(client.name.encode(), self._schema_enforcer.default_schema(topic))
        if not self._schema_enforcer.has_policy(topic):
            return self._append_batch(client, topic, batch, draft)
        block = parse_block(draft.data, verify=False)
        return self._schema_enforcer.enforce(
            topic,
            block,
            client.id,
            partial(self._publish_allowed, client, topic, batch),
            partial(self._not_published, client, batch),
        )

    def _publish_allowed(
        self, client: Client, topic: TopicState, batch: PublishBatch, block: Block, refused: Mapping[int, PayloadFault]
    ) -> list[Effect]:
        if not refused:
            return self._append_batch(client, topic, batch, Draft.of_block(block))
        allowed = np.ones(len(block), np.bool_)
        allowed[list(refused)] = False
        effects: list[Effect] = []
        for fault, rows in rows_by_fault(refused).items():
            chosen = np.zeros(len(block), np.bool_)
            chosen[rows] = True
            effects += self._not_published(client, batch.selected(chosen), rejection(fault))
        if allowed.any():
            draft = Draft.of_block(block.gather(allowed))
            effects += self._append_batch(client, topic, batch.selected(allowed), draft)
        return effects

    def _append_batch(self, client: Client, topic: TopicState, batch: PublishBatch, draft: Draft) -> list[Effect]:
        partition = topic.next_partition()
        self._count_pending(topic)
        done = partial(self._published, client, topic, partition, batch)
        return [Append(topic.logs[partition], draft, done, client.id)]

    def _not_published(self, client: Client, batch: PublishBatch, error: PenstockError) -> list[Effect]:
        self._context.metrics.add("router.publish.error", len(batch))
        failure = self._context.failure(client, error, len(batch))
        return [Send(client.id, batch.answer_frames(self._context.new_id(), failure))]

    def _published(
        self,
        client: Client,
        topic: TopicState,
        partition: int,
        batch: PublishBatch,
        outcome: AppendResult | PenstockError,
    ) -> list[Effect]:
        self._uncount_pending(topic)
        if isinstance(outcome, PenstockError):
            return self._not_published(client, batch, outcome)
        self._note_stored(topic, partition, outcome)
        subscribers = self._routes.subscribers(topic.name)
        frames = batch.delivery_frames(self._context.new_id()) if subscribers else b""
        effects: list[Effect] = [Send(subscriber, frames) for subscriber in subscribers]
        self._context.metrics.add("live.delivered", outcome.records * len(subscribers))
        receipts = batch.receipt_frames(
            partition=partition,
            first_offset=int(outcome.offset),
            first_ticks=outcome.first_ticks,
            id_low=outcome.id_low,
        )
        if receipts:
            effects.append(Send(client.id, receipts))
        return effects

    def publish_one(self, client: Client, topic: TopicState, frame: Frame) -> list[Effect]:
        """Store one `publish` message that is not part of a batch. It is answered and sent to live subscribers once it
        is on disk."""
        schema = self._schema_enforcer.default_schema(topic)
        draft = Draft.of([Message(payload=frame.payload, producer_name=client.name, schema=schema)])
        if not self._schema_enforcer.has_policy(topic):
            return self._append_one(client, topic, frame, draft)
        reply = self._context.reply(client, frame.header)
        block = parse_block(draft.data, verify=False)
        allowed = partial(self._publish_one_allowed, client, topic, frame)
        return self._schema_enforcer.enforce(topic, block, client.id, allowed, reply)

    def _publish_one_allowed(
        self, client: Client, topic: TopicState, frame: Frame, block: Block, refused: Mapping[int, PayloadFault]
    ) -> list[Effect]:
        if refused:
            return self._context.reply(client, frame.header)(rejection(refused[0]))
        return self._append_one(client, topic, frame, Draft.of_block(block))

    def _append_one(self, client: Client, topic: TopicState, frame: Frame, draft: Draft) -> list[Effect]:
        partition = topic.next_partition()
        self._count_pending(topic)
        done = partial(self._published_one, client, topic, partition, frame)
        return [Append(topic.logs[partition], draft, done, client.id)]

    def _published_one(
        self, client: Client, topic: TopicState, partition: int, frame: Frame, outcome: AppendResult | PenstockError
    ) -> list[Effect]:
        self._uncount_pending(topic)
        reply = self._context.reply(client, frame.header)
        if isinstance(outcome, PenstockError):
            return reply(outcome)
        self._note_stored(topic, partition, outcome)
        head = frame.header.head
        delivered = publish(head.topic, head.version, self._context.new_id(), frame.payload)
        effects: list[Effect] = [Send(subscriber, delivered) for subscriber in self._routes.subscribers(topic.name)]
        self._context.metrics.add("live.delivered", len(effects))
        position = {
            "partition": partition,
            "offset": int(outcome.offset),
            "id": format_id(outcome.id),
            "duplicate": False,
        }
        return [*effects, *reply(position)]

    # append and message

    def append(self, client: Client, topic: TopicState, payload: bytes, reply: Reply) -> list[Effect]:
        """Store a block of records. Raises the error of an invalid block, of which nothing is stored. The reply comes
        once it is on disk."""
        return self.store(topic, parse_block(payload), _with_duplicate_id(topic, reply), client=client.id)

    def message(self, client: Client, topic: TopicState, payload: bytes, reply: Reply) -> list[Effect]:
        """Store one message, which is sent as a line of JSON with its metadata, then the payload. The reply comes once
        it is on disk."""
        message = parse_message(payload, producer_name="")
        draft = Draft.of([message])  # raises the fault of a field: until then fields are unvalidated
        name = _producer_name(client, topic, message)
        if name != message.producer_name:
            draft = Draft.of([replace(message, producer_name=name)])
        block = parse_block(draft.data, verify=False)
        return self.store(topic, block, _with_duplicate_id(topic, reply), client=client.id)

    def store(
        self,
        topic: TopicState,
        block: Block,
        reply: Reply,
        *,
        client: str = "",
        owned: bool = False,
        trusted: bool | None = None,
        whole: bool = False,
        format_result: Callable[[Submission], Any] | None = None,
        unbounded: bool = False,
    ) -> list[Effect]:
        """Validate and store a block. The reply comes once all is on disk, with the result of `format_result`, by
        default `Submission.answer`, or with the error. Raises an error that is known at once.

        `client` must have registered the block's producer, unless the block is `owned`: then its producer is the
        broker's own. A `trusted` block is not checked for rate, order or schema policy; the default is the value of
        `owned`. With `unbounded`, the topic's limits of size do not apply. With `whole`, nothing is stored if any
        message is refused.
        """
        trusted = owned if trusted is None else trusted
        producer_id = _producer_of(block)
        requests = block.columns[:, at.REQUEST_ID]
        numbered = producer_id > 0 and bool(requests.any())
        if numbered:
            _check_request_ids(requests)
        if producer_id and not owned and (topic.producers is None or not topic.producers.owns(producer_id, client)):
            raise NotOwner(
                f"producer {producer_id} of {topic.name} is not this connection's: it was never registered here, or"
                " another connection has registered it since",
                producer_id=producer_id,
            )
        window = topic.producers.window(producer_id) if numbered and topic.producers is not None else None
        if not trusted:
            self._check_rate_and_order(topic, window, int(requests[0]), len(block))
        submission = Submission(
            topic,
            len(block),
            requests,
            window,
            reply,
            [],
            whole=whole,
            format_result=format_result,
            unbounded=unbounded,
        )
        return self._sort_out_duplicates(submission, block, client, validate=not trusted)

    def store_plain(self, topic: TopicState, partition: int, draft: Draft, reply: Reply) -> list[Effect]:
        """Store messages that have no numbers, in a topic without a schema policy, without further checks.

        The reply gets `AppendResult` once they are on disk, or the error. Raises `QuotaExceeded` if the rate is
        exceeded.
        """
        if not self._rate_limiter.allow(None, topic.name, self._context.now_ms, draft.count):
            raise self._rate_limiter.exceeded(topic.name)
        self._count_pending(topic)
        return [Append(topic.logs[partition], draft, partial(self._stored_plain, topic, partition, draft, reply))]

    def _stored_plain(
        self, topic: TopicState, partition: int, draft: Draft, reply: Reply, outcome: AppendResult | PenstockError
    ) -> list[Effect]:
        self._uncount_pending(topic)
        effects = reply(outcome)
        if isinstance(outcome, AppendResult):
            self._note_stored(topic, partition, outcome)
            effects += self._deliver_live(topic, outcome.records, lambda: read_draft(draft))
        return effects

    def takes_anything(self, topic: TopicState) -> bool:
        """Return whether the topic accepts any block at once: it has neither a schema policy nor a default schema, and
        no block of it waits."""
        return not self._schema_enforcer.has_policy(topic)

    def _deliver_live(self, topic: TopicState, count: int, block: Callable[[], Block]) -> list[Effect]:
        """Send stored messages to the live subscribers of the topic."""
        subscribers = self._routes.subscribers(topic.name)
        if not subscribers:
            return []
        frames = publish_frames(block(), _display_name(topic), _VERSION, self._context.new_id())
        self._context.metrics.add("live.delivered", count * len(subscribers))
        return [Send(subscriber, frames) for subscriber in subscribers]

    def _check_rate_and_order(self, topic: TopicState, window: ProducerWindow | None, first: int, count: int) -> None:
        """Raise `QuotaExceeded` if the topic's rate is exceeded, and `ServiceUnavailable` if an earlier block was
        refused and must be sent again first."""
        now_ms = self._context.now_ms
        if window is not None and self._overtakes(window, first):
            raise ServiceUnavailable(f"message {window.refused} was refused and comes first; send it again")
        if not self._rate_limiter.allow(None, topic.name, now_ms, count):
            self._remember_refusal(window, first)
            raise self._rate_limiter.exceeded(topic.name)
        if window is not None:
            window.refused = 0

    def _remember_refusal(self, window: ProducerWindow | None, first: int) -> None:
        """Remember that a block was refused. Later blocks of its producer are refused until it is sent again, or some
        seconds have passed."""
        if window is not None and not window.unordered and not self._overtakes(window, first):
            window.refused, window.refused_ms = first, self._context.now_ms + _REFUSED_MS

    def _overtakes(self, window: ProducerWindow, first: int) -> bool:
        """Return whether an earlier block of the producer was refused, and must be stored before this one."""
        return 0 < window.refused < first and self._context.now_ms < window.refused_ms

    def _sort_out_duplicates(
        self, submission: Submission, block: Block, client: str, *, validate: bool
    ) -> list[Effect]:
        """Find the rows that had been stored before, and store the others. If all had been, reply at once. If the block
        may repeat a pending one, it is parked until that is known."""
        window, submission.new_rows = submission.window, np.arange(len(block))
        if window is not None:
            first, last = int(submission.requests[0]), int(submission.requests[-1])
            if window.must_wait(first, last):
                if len(window.parked) >= _PARKED_MAX and client:
                    raise ServiceUnavailable("too much was sent again before it was known what became of it; try again")
                window.parked.append(partial(self._sort_out_duplicates, submission, block, client, validate=validate))
                return []
            if first <= window.highest:
                submission.new_rows = self._split_duplicates(submission, window)
            window.submitted = max(window.submitted, last)
        if not len(submission.new_rows):
            return submission.reply(submission.result())
        self._count_pending(submission.topic)
        if window is not None:
            window.begin(int(submission.requests[0]), int(submission.requests[-1]))
        submit, not_submitted = partial(self._submit, submission, client), partial(self._not_submitted, submission)
        return self._schema_enforcer.enforce(submission.topic, block, client, submit, not_submitted, validate=validate)

    def _not_submitted(self, submission: Submission, error: PenstockError) -> list[Effect]:
        submission.error, submission.parts = error, []
        return self._finish(submission)

    def _submit(
        self, submission: Submission, client: str, block: Block, refused: Mapping[int, PayloadFault]
    ) -> list[Effect]:
        """Return the effects that append the rows that are not refused. Raises an error if nothing of the block can be
        stored."""
        window, logs, rows = submission.window, submission.topic.logs, submission.new_rows
        if window is not None and self._overtakes(window, int(submission.requests[0])):
            raise ServiceUnavailable(f"message {window.refused} was refused and comes first; send it again")
        if refused:
            submission.refused = {row: refused[row] for row in rows.tolist() if row in refused}
            rows = rows[~np.isin(rows, list(submission.refused))]
            if submission.whole and submission.refused:
                rows = rows[:0]
        if not len(rows):
            return self._finish(submission)
        if len(logs) > 1 and not submission.unbounded:
            Draft.of_block(block).check_sizes(logs[0].limits)  # of the whole block, also where its slices would fit
        submission.parts = list(_partition_slices(submission.topic, block, rows))
        submission.open = len(submission.parts)
        drafts = [Draft.of_block(part.block, unbounded=submission.unbounded) for part in submission.parts]
        appends = [
            Append(logs[part.partition], draft, partial(self._stored, submission, part), client)
            for part, draft in zip(submission.parts, drafts, strict=True)
        ]
        return [*appends] if len(appends) == 1 else [AppendAtomically(tuple(appends))]

    def _split_duplicates(self, submission: Submission, window: ProducerWindow) -> Any:
        """Return the rows that are not known, and note the positions of the others as duplicates."""
        new_rows = []
        for row, request_id in enumerate(submission.requests.tolist()):
            position = window.find(request_id)
            if position is None:
                new_rows.append(row)
            else:
                submission.duplicates.append((row, *position))
        return np.array(new_rows, dtype=np.int64)

    def _stored(
        self, submission: Submission, part: PartitionSlice, outcome: AppendResult | PenstockError
    ) -> list[Effect]:
        part.outcome = outcome
        submission.open -= 1
        effects: list[Effect] = []
        if isinstance(outcome, AppendResult):
            topic = submission.topic
            self._note_stored(topic, part.partition, outcome, numbered=submission.window is not None)
            effects = self._deliver_live(topic, outcome.records, lambda: part.block)
        return [*self._finish(submission), *effects] if not submission.open else effects

    def _finish(self, submission: Submission) -> list[Effect]:
        self._uncount_pending(submission.topic)
        window, error = submission.window, submission.failure()
        if window is not None:
            self._add_to_window(submission, window)
        effects = submission.reply(submission.result() if error is None else error)
        if window is not None:
            if error is not None and error.retriable:
                self._remember_refusal(window, int(submission.requests[0]))
            waiting, window.parked = window.parked, type(window.parked)()
            effects += [effect for again in waiting for effect in again()]
            if submission.topic.checkpoint_due():
                effects += self._topics.save_checkpoints(submission.topic)
        return effects

    def _add_to_window(self, submission: Submission, window: ProducerWindow) -> None:
        """Add the stored messages to the window of their producer: from now on they are recognised if they are sent
        again."""
        window.end(int(submission.requests[0]))
        stored = [part for part in submission.parts if isinstance(part.outcome, AppendResult)]
        if not stored:
            return
        rows = np.concatenate([part.rows for part in stored])
        order = np.argsort(rows, kind="stable")
        partitions = np.concatenate([np.full(len(part.rows), part.partition) for part in stored])
        offsets = np.concatenate([part.outcome.offset + np.arange(len(part.rows)) for part in stored])  # type: ignore[union-attr]
        for entry in entries_of(submission.requests[rows[order]], partitions[order], offsets[order]):
            window.add(entry)
        for part in stored:
            submission.topic.mark_in_window(part.partition, int(part.outcome.offset))  # type: ignore[union-attr]


def _producer_name(client: Client, topic: TopicState, message: Message) -> str:
    """Return the producer name to store with a message. Raises `InvalidRequest` if the message names another than its
    producer id is registered with."""
    registered = "" if topic.producers is None else topic.producers.name(message.producer_id, client.id)
    if registered and message.producer_name not in ("", registered):
        raise InvalidRequest(
            f"producer {message.producer_id} is registered here as {registered!r}, not as"
            f" {message.producer_name[:QUOTED_CHARS_MAX]!r}: leave producer_name out, or register that one",
            field="producer_name",
        )
    return message.producer_name or registered or client.name


def _with_duplicate_id(topic: TopicState, reply: Reply) -> Reply:
    """Wrap a reply: if the first message is a duplicate, its message id is read from the log before the reply is
    called."""

    def with_id(outcome: dict[str, Any] | PenstockError) -> list[Effect]:
        if isinstance(outcome, PenstockError) or not outcome["duplicate"]:
            return reply(outcome)
        log = topic.logs[outcome["partition"]]
        return [RunInThread(lambda: outcome | {"id": _id_at(log, outcome["offset"])}, reply, read_only=True)]

    return with_id


def _id_at(log: Log, offset: int) -> str | None:
    """Return the id of the message at an offset; None if retention has deleted it. Reads the log, in another thread."""
    try:
        block = log.read(offset, bytes_max=1).block
    except OffsetOutOfRange:
        return None
    return format_id(block.id(0)) if len(block) and int(block.offsets.start) == offset else None


def _display_name(topic: TopicState) -> str:
    name = topic.name
    return name.topic if name.namespace == "default" else str(name)


def _producer_of(block: Block) -> int:
    """Return the producer id that all messages of a block have; 0 for none. Raises `InvalidRequest` if they differ."""
    producers = block.columns[:, at.PRODUCER_ID]
    if not (producers == producers[0]).all():
        raise InvalidRequest("a block has messages of one producer")
    return int(producers[0])


def _check_request_ids(requests: Any) -> None:
    if len(requests) > WINDOW:
        raise InvalidRequest(
            f"a block of a numbered producer has at most {WINDOW} messages, not {len(requests)}: no more are recognised"
            " when they are sent again",
            window=WINDOW,
        )
    if not requests[0]:
        raise InvalidRequest("some messages of the block have a request_id, and the first has none", record=0)
    wrong = np.flatnonzero(np.diff(requests) <= 0)
    if wrong.size:
        row = int(wrong[0]) + 1
        raise InvalidRequest(
            f"message {row} of the block has request_id {int(requests[row])} after {int(requests[row - 1])}: a producer"
            " numbers its messages upwards",
            record=row,
        )


def _partition_slices(topic: TopicState, block: Block, rows: Any) -> Iterator[PartitionSlice]:
    """Split the rows by partition. The hash of a key decides its partition; all rows without a key go to the next
    partition in turn."""
    if len(topic.logs) == 1:
        yield PartitionSlice(0, rows, block if len(rows) == len(block) else block.gather(rows))
        return
    keyed = (block.columns[rows, at.FLAGS] & at.FLAG_KEY) != 0
    hashes = block.key_hashes().astype(np.uint64)[rows]
    partitions = (hashes % np.uint64(len(topic.logs))).astype(np.int64)
    if not keyed.all():
        partitions[~keyed] = topic.next_partition()
    for partition in np.unique(partitions).tolist():
        partition_rows = rows[partitions == partition]
        yield PartitionSlice(partition, partition_rows, block.gather(partition_rows))
