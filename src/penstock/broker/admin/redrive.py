"""Redrive runs: dead letters are sent back or dropped, batch by batch. Each batch is acked before the next begins.

A run takes a bounded number of letters and scans a bounded number of messages. If it stops early, the work of all
finished batches is durable; letters that are sent again in a later run are recognised as duplicates. It takes outcomes
and returns effects, like all of the broker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from penstock.broker.admin.messages import row_of_hit
from penstock.broker.base.effects import Effect, RunInThread
from penstock.broker.base.request_fields import Fields
from penstock.broker.context import Reply
from penstock.broker.live.connections import Client
from penstock.broker.reads.message_filter import MessageFilter
from penstock.broker.reads.scan import Positions, Scan, ScanHit, TakeResult, resume_token
from penstock.broker.subscriptions import events
from penstock.broker.topics.schema_rejections import fault_text
from penstock.broker.topics.topics import TopicState
from penstock.core.dead_letter_attributes import (
    FOREIGN_LETTER,
    REDRIVE_SUBSCRIPTION,
    REDRIVEN_TOO_OFTEN,
    redrive_producer_name,
    redrive_verdict,
    redriven_attributes,
)
from penstock.core.errors import Code, PenstockError, StorageFailed, TopicNotSupported
from penstock.core.limits import MIB
from penstock.core.offset_set import OffsetSet, offset_spans
from penstock.record.block import Draft, parse_block
from penstock.record.message import Message
from penstock.record.rows import RecordRow, attributes_of
from penstock.schema.language import PayloadFault

if TYPE_CHECKING:
    from penstock.broker.durable import DurableBroker

_BATCH_LETTERS: Final = 256
"""The most letters in one batch: few enough for the producer window to recognise all of them if they are sent again."""
_BATCH_BYTES: Final = 1 * MIB
_REFUSALS_MAX: Final = 10
"""The most refused letters that an answer lists with their reasons. Further ones are only counted."""
_LETTER_ERRORS: Final = frozenset(
    {Code.SCHEMA_REJECTED, Code.PAYLOAD_TOO_LARGE, Code.INVALID_REQUEST, Code.MALFORMED_MESSAGE}
)
"""Codes of errors that may be caused by a single letter. The other letters of the batch can still be sent."""

Continuation = Callable[[PenstockError | None], list[Effect]]
"""The next step of a run. It is called with None, or with the error that ended the step before."""


@dataclass(slots=True)
class RedriveProgress:
    """Counts of what became of the letters so far."""

    done: int = 0
    repeated: int = 0
    """The number of letters sent now that had been stored by an earlier redrive, which stopped before it acked them."""

    too_often: int = 0
    strangers: int = 0
    refused: int = 0
    refusals: list[Fields] = field(default_factory=list)

    def refuse(self, partition: int, offset: int, code: str, message: str) -> None:
        self.refused += 1
        if len(self.refusals) < _REFUSALS_MAX:
            self.refusals.append({"partition": partition, "offset": offset, "code": code, "message": message})


class LetterAction(Protocol):
    """An action of a run on letters: redrive or drop them. `apply` calls `RedriveRun.mark_done` for the letters that
    need no further work."""

    def accepts(self, row: RecordRow, progress: RedriveProgress) -> bool: ...

    def apply(self, partition: int, rows: list[RecordRow], run: RedriveRun, then: Continuation) -> list[Effect]: ...

    def summary(self, progress: RedriveProgress) -> Fields: ...


@dataclass(slots=True)
class _LetterBatch:
    """The letters of one batch, by partition."""

    accepts: Callable[[ScanHit, RecordRow], bool]
    rows: dict[int, list[RecordRow]] = field(default_factory=dict)
    bytes: int = 0

    def take(self, hit: ScanHit) -> TakeResult:
        row = row_of_hit(hit)
        if self.bytes and self.bytes + len(row[5]) > _BATCH_BYTES:
            return TakeResult.FULL
        if not self.accepts(hit, row):
            return TakeResult.NO
        self.bytes += len(row[5]) + 1
        self.rows.setdefault(hit.partition, []).append(row)
        return TakeResult.YES


@dataclass(slots=True, kw_only=True)
class RedriveRun:
    """One call of redrive or drop: takes at most `limit` letters, and scans at most `scanned_max` messages for them."""

    durable: DurableBroker
    client: Client
    letters: TopicState
    action: LetterAction
    message_filter: MessageFilter
    matches: Callable[[Mapping[str, str]], bool]
    left: dict[int, OffsetSet]
    positions: Positions
    """The next offset of each partition: every letter before it was handled, or does not match."""

    stops: Positions
    limit: int
    scanned_max: int
    reply: Reply
    progress: RedriveProgress = field(default_factory=RedriveProgress)
    scanned: int = 0
    matched: int = 0
    lost: list[Fields] = field(default_factory=list)
    damaged: list[Fields] = field(default_factory=list)

    def next_batch(self) -> list[Effect]:
        """Scan for the next batch and handle it. If a limit or the end is reached, reply with the summary."""
        if self.matched >= self.limit or self.scanned >= self.scanned_max or self.at_end:
            return self.reply(self.summary())
        batch = _LetterBatch(self._accepts)
        room = min(_BATCH_LETTERS, self.limit - self.matched)
        scan = Scan(
            self.letters,
            dict(self.positions),
            self.stops,
            self.message_filter,
            batch.take,
            self.scanned_max - self.scanned,
            room,
        )
        try:
            return self.durable.scans.run(self.client, lambda: scan, self.stop, partial(self._scanned, batch))
        except PenstockError as error:
            return self.stop(error)

    @property
    def at_end(self) -> bool:
        return all(self.positions[partition] >= self.stops[partition] for partition in self.positions)

    def _accepts(self, hit: ScanHit, row: RecordRow) -> bool:
        is_left = row[1] in self.left[hit.partition] and self.matches(attributes_of(row))
        return is_left and self.action.accepts(row, self.progress)

    def _scanned(self, batch: _LetterBatch, scan: Scan) -> list[Effect]:
        return self._apply_all(scan, list(batch.rows.items()), None)

    def _apply_all(
        self, scan: Scan, groups: list[tuple[int, list[RecordRow]]], error: PenstockError | None
    ) -> list[Effect]:
        """Apply the action to the first of `groups`, then continue with the others. After the last, count the batch and
        begin the next. Stops the run if there is an `error`."""
        if error is not None:
            return self.stop(error)
        if groups:
            (partition, rows), *rest = groups
            return self.action.apply(
                partition, self.still_left(partition, rows), self, partial(self._apply_all, scan, rest)
            )
        self.positions = scan.positions
        self.scanned += scan.scanned
        self.matched += scan.matched
        self.lost += scan.lost
        self.damaged += scan.damaged
        return self.next_batch()

    def still_left(self, partition: int, rows: list[RecordRow]) -> list[RecordRow]:
        """Return the rows without those that were acked since the scan, because another client dropped or redrove
        them."""
        runner = self.letters.subscriptions.get(REDRIVE_SUBSCRIPTION)
        if runner is None:
            return rows
        cursor = runner.machine.cursors[partition]
        return [row for row in rows if row[1] >= cursor.floor and row[1] not in cursor.acked]

    def mark_done(self, partition: int, rows: list[RecordRow], then: Continuation) -> list[Effect]:
        """Ack letters in the redrive subscription. Calls `then` once the ack is durable, or with the error."""
        runner = self.letters.subscriptions.get(REDRIVE_SUBSCRIPTION)
        if runner is None:
            gone = TopicNotSupported(
                f"subscription {REDRIVE_SUBSCRIPTION} of {self.letters.name} was deleted meanwhile"
            )
            return then(gone)
        effects = runner.handle(events.LogGrown(partition, int(self.letters.logs[partition].next_offset)))
        for start, stop in offset_spans(row[1] for row in rows):
            effects += runner.handle(events.Skip(partition, start, stop))

        def acked(outcome: object) -> list[Effect]:
            if isinstance(outcome, PenstockError):
                return then(outcome)
            self.progress.done += len(rows)
            return then(None)

        return [*effects, *self.durable.subscriptions.cursor_store.when_durable(acked, None)]

    def stop(self, error: Any) -> list[Effect]:
        """Stop the run because of an error. If some letters are done, the reply is the summary, with the error in it;
        if none is, the error."""
        if not isinstance(error, PenstockError):
            error = StorageFailed("the dead letters cannot be read")
        if not self.progress.done:
            return self.reply(error)
        return self.reply(self.summary() | {"stopped": {"code": error.code.value, "message": error.message}})

    def summary(self) -> Fields:
        summary: Fields = {"dead_letters": str(self.letters.name), "scanned": self.scanned, "matched": self.matched}
        summary |= self.action.summary(self.progress)
        summary |= {"end": self.at_end, "resume": resume_token(self.letters, self.positions)}
        summary |= {"until": resume_token(self.letters, self.stops)}
        lists = {"refusals": self.progress.refusals, "lost": self.lost, "damaged": self.damaged}
        return summary | {name: entries for name, entries in lists.items() if entries}


@dataclass(slots=True)
class DropLetters:
    """The drop action: acks letters and does nothing else. They stay in the log until retention deletes them."""

    def accepts(self, row: RecordRow, progress: RedriveProgress) -> bool:  # noqa: ARG002 - every letter is dropped
        return True

    def apply(self, partition: int, rows: list[RecordRow], run: RedriveRun, then: Continuation) -> list[Effect]:
        return run.mark_done(partition, rows, then)

    def summary(self, progress: RedriveProgress) -> Fields:
        return {"dropped": progress.done}


@dataclass(slots=True, kw_only=True)
class RedriveLetters:
    """The redrive action: stores each letter, once, in the topic that it came from, and acks it."""

    original: TopicState
    redrives_max: int
    _numbers: dict[int, int] = field(default_factory=dict)
    """The producer id under which the letters of a partition are sent back, by partition."""

    def accepts(self, row: RecordRow, progress: RedriveProgress) -> bool:
        verdict = redrive_verdict(attributes_of(row), self.original.name, self.redrives_max)
        progress.strangers += verdict == FOREIGN_LETTER
        progress.too_often += verdict == REDRIVEN_TOO_OFTEN
        return verdict not in (FOREIGN_LETTER, REDRIVEN_TOO_OFTEN)

    def summary(self, progress: RedriveProgress) -> Fields:
        names = ("repeated", "too_often", "strangers", "refused")
        return {"redriven": progress.done} | {name: getattr(progress, name) for name in names}

    def apply(self, partition: int, rows: list[RecordRow], run: RedriveRun, then: Continuation) -> list[Effect]:
        if partition in self._numbers:
            return self._with_producers(partition, rows, run, then)
        letters, catalog = run.letters.catalog_topic, run.durable.topics.store.catalog
        name = redrive_producer_name(letters.name, partition, letters.partitions, letters.created_ms)

        def numbered(outcome: int | PenstockError) -> list[Effect]:
            if isinstance(outcome, PenstockError):
                return then(outcome)
            self._numbers[partition] = outcome
            return self._with_producers(partition, rows, run, then)

        return [RunInThread(lambda: catalog.producer_id(self.original.catalog_topic, name), numbered)]

    def _with_producers(
        self, partition: int, rows: list[RecordRow], run: RedriveRun, then: Continuation
    ) -> list[Effect]:
        def known(outcome: object) -> list[Effect]:
            if isinstance(outcome, PenstockError):
                return then(outcome)
            return self._store(partition, rows, run, then)

        return run.durable.topics.with_producers(self.original, known)

    def _store(self, partition: int, rows: list[RecordRow], run: RedriveRun, then: Continuation) -> list[Effect]:
        rows = run.still_left(partition, rows)  # others may have handled some while this waited
        if not rows:
            return then(None)
        stored = partial(self._stored, partition, rows, run, then)
        if run.durable.topics.get(self.original.name) is not self.original:
            return then(TopicNotSupported(f"{self.original.name} was deleted meanwhile"))
        try:
            draft = Draft.of(_message(row, self._numbers[partition]) for row in rows)
            block = parse_block(draft.data, verify=False)
            return run.durable.publisher.store(self.original, block, stored, owned=True, trusted=False)
        except PenstockError as error:
            return stored(error)

    def _stored(
        self, partition: int, rows: list[RecordRow], run: RedriveRun, then: Continuation, outcome: Any
    ) -> list[Effect]:
        if isinstance(outcome, PenstockError):
            return self._not_stored(partition, rows, run, then, outcome)
        refused = self._refuse(partition, rows, run, outcome.get("refused", []))
        run.progress.repeated += len(outcome["duplicates"])
        kept = [row for number, row in enumerate(rows) if number not in refused]
        return run.mark_done(partition, kept, then)

    def _refuse(self, partition: int, rows: list[RecordRow], run: RedriveRun, refused: Any) -> set[int]:
        """Count the letters that the schema policy refuses, and return their row numbers. They are not acked."""
        for number, *reason in refused:
            run.progress.refuse(partition, rows[number][1], Code.SCHEMA_REJECTED.value, _reason(*reason))
        return {number for number, *_ in refused}

    def _not_stored(
        self, partition: int, rows: list[RecordRow], run: RedriveRun, then: Continuation, error: PenstockError
    ) -> list[Effect]:
        """Handle the error of a failed append. If one letter may have caused it, the letters are stored one by one and
        the faulty ones counted as refused; other errors stop the run."""
        if error.code not in _LETTER_ERRORS:
            return then(error)
        if "refused" in error.details:  # every letter was rejected, each for its own reason
            self._refuse(partition, rows, run, error.details["refused"])
            return then(None)
        if len(rows) == 1:
            run.progress.refuse(partition, rows[0][1], error.code.value, error.message)
            return then(None)
        return self._store_one_by_one(partition, rows, run, then, None)

    def _store_one_by_one(
        self, partition: int, rows: list[RecordRow], run: RedriveRun, then: Continuation, error: PenstockError | None
    ) -> list[Effect]:
        if error is not None or not rows:
            return then(error)
        return self._store(partition, rows[:1], run, partial(self._store_one_by_one, partition, rows[1:], run, then))


def _reason(message: str = "its schema policy refuses it", path: str = "") -> str:
    return fault_text(PayloadFault(path, message))


def _message(row: RecordRow, producer_id: int) -> Message:
    _, offset, _, type_, key, payload, producer, _, _, schema, attributes = row
    return Message(
        payload=payload,
        type=type_,
        key=key,
        attributes=redriven_attributes(attributes or {}),
        producer_name=producer,
        producer_id=producer_id,
        request_id=offset + 1,
        schema=schema,
    )
