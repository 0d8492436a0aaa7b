"""System topics about stored messages: browse them, get one, publish one.

Browsing scans in steps, and ends when its caller has disconnected. One call scans a bounded number of messages; its
answer has a token to continue from.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.broker.base import request_fields as read
from penstock.broker.base.effects import Effect, RunInThread
from penstock.broker.base.replies import json_bytes
from penstock.broker.base.request_fields import Fields
from penstock.broker.context import Reply
from penstock.broker.live.connections import Client
from penstock.broker.reads.message_filter import FILTER_FIELDS, parse_filter
from penstock.broker.reads.message_json import PREVIEW_BYTES, PREVIEW_BYTES_MAX, message_json, message_stub
from penstock.broker.reads.scan import (
    SCAN_MESSAGES,
    SCAN_MESSAGES_MAX,
    Positions,
    Scan,
    ScanHit,
    TakeResult,
    check_durable,
    parse_resume_token,
)
from penstock.broker.subscriptions.service import start_offsets
from penstock.broker.topics.message_text import message_of
from penstock.broker.topics.topics import TopicState
from penstock.core.errors import InvalidRequest, OffsetOutOfRange, PenstockError, TopicNotSupported
from penstock.core.ids import parse_id
from penstock.core.offsets import Offset
from penstock.core.positions import AtId, AtOffset, AtTime, Earliest, Position
from penstock.record.block import Draft, parse_block
from penstock.record.rows import RecordRow, record_row
from penstock.storage.log.log import Log

if TYPE_CHECKING:
    from penstock.broker.durable import DurableBroker

PAGE_MESSAGES: Final = 100
PAGE_MESSAGES_MAX: Final = 1_000
"""The most messages in one answer: as many as a person can look through."""
_SUMMARY_BYTES: Final = 32 * 1024
"""Bytes of an answer that are reserved for counters, damage, and the resume token."""
_RANGE_FIELDS: Final = ("partition", "from", "until", "last", "resume", "scan")
_BROWSE_FIELDS: Final = ("topic", *_RANGE_FIELDS, *FILTER_FIELDS, "limit", "preview_bytes")
FETCH_FIELDS: Final = ("topic", "partition", "offset", "id", "payload_from")
_PUBLISH_FIELDS: Final = ("type", "key", "key_base64", "attributes", "schema_id", "schema_version")
_PAYLOAD_FIELDS: Final[dict[str, Callable[[Any], bytes]]] = {
    "payload": lambda text: text.encode(),
    "payload_base64": lambda text: b64decode(text, validate=True),
    "payload_json": msgspec.json.encode,
}
"""The request fields that may contain a payload, each with the function that turns its value into bytes."""


# the range to scan


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanRange:
    """The part of a topic to scan."""

    partition: int | None = None
    start: Position = field(default_factory=Earliest)
    last: int | None = None
    """The number of messages before the end of each partition at which to start, instead of at `start`."""

    until: Position | None = None
    resume: str | None = None
    """The token of an earlier answer, to continue from there. If given, `start` and `last` are ignored."""

    scanned_max: int = SCAN_MESSAGES

    def positions(self, topic: TopicState) -> tuple[Positions, Positions]:
        """Return the offsets to start and to stop at, by partition, as of now. Reads the log, so call it in another
        thread. Raises `OffsetOutOfRange`, or `InvalidRequest` for a wrong token."""
        if self.resume is not None:
            starts = parse_resume_token(topic, self.resume, self.partition)
            for number, offset in starts.items():
                _check_reached(topic, number, offset)
        elif self.last is not None:
            starts = {number: _before_end(log, self.last) for number, log in self._logs(topic).items()}
        else:
            starts = start_offsets(topic, self.start, self.partition)
        return starts, {number: self._stop(log) for number, log in self._logs(topic).items()}

    def _logs(self, topic: TopicState) -> dict[int, Log]:
        return {number: topic.logs[number] for number in _partitions(topic, self.partition)}

    def _stop(self, log: Log) -> int:
        match self.until:
            case None:
                return int(log.next_offset)
            case AtOffset(offset):
                return min(int(offset), int(log.next_offset))
            case position:
                return int(log.offset_of(position))


def parse_scan_range(fields: Fields, topic: TopicState) -> ScanRange:
    """Parse a range. Raises `InvalidRequest` naming the field that is wrong."""
    partition = read.number(fields, "partition") if "partition" in fields else None
    _partitions(topic, partition)
    if "from" in fields and "last" in fields:
        raise InvalidRequest("Give from or last, not both", field="last")
    until = read.position(fields["until"], "until") if "until" in fields else None
    if until is not None and not isinstance(until, AtOffset | AtTime | AtId):
        raise InvalidRequest("Invalid until: expected an offset, a time or a message id", field="until")
    if isinstance(until, AtOffset) and partition is None and len(topic.logs) > 1:
        raise InvalidRequest(
            f"{topic.name} has {len(topic.logs)} partitions: name the one of the offset", field="until"
        )
    return ScanRange(
        partition=partition,
        start=read.position(fields.get("from", "earliest"), "from"),
        last=read.number(fields, "last", at_least=1, at_most=SCAN_MESSAGES_MAX) if "last" in fields else None,
        until=until,
        resume=read.text(fields, "resume") if "resume" in fields else None,
        scanned_max=read.number(fields, "scan", SCAN_MESSAGES, at_least=1, at_most=SCAN_MESSAGES_MAX),
    )


def _partitions(topic: TopicState, partition: int | None) -> list[int]:
    if partition is None:
        return list(range(len(topic.logs)))
    if partition >= len(topic.logs):
        raise InvalidRequest(
            f"{topic.name} has partitions 0 to {len(topic.logs) - 1}, not {partition}", field="partition"
        )
    return [partition]


def _check_reached(topic: TopicState, partition: int, offset: int) -> None:
    end = int(topic.logs[partition].next_offset)
    if offset > end:
        raise OffsetOutOfRange(f"partition {partition} of {topic.name} goes up to {end}, not {offset}", offset=offset)


def _before_end(log: Log, count: int) -> int:
    return max(int(log.first_offset), int(log.next_offset) - count)


def unless_deleted(durable: DurableBroker, topic: TopicState, reply: Reply) -> Reply:
    """Wrap a reply: if the topic is deleted while it is read, an error becomes `TopicNotSupported`, so that it is not
    taken for a failure of the disk."""

    def answer(outcome: Any) -> list[Effect]:
        if isinstance(outcome, PenstockError) and durable.topics.get(topic.name) is not topic:
            outcome = TopicNotSupported(f"{topic.name} was deleted meanwhile", topic=str(topic.name))
        return reply(outcome)

    return answer


# browse


@dataclass(slots=True)
class MessagePage:
    """Encoded messages for one answer, as many as there is room for."""

    limit: int
    preview: int
    room: int
    messages: list[msgspec.Raw] = field(default_factory=list)

    def take(self, hit: ScanHit) -> TakeResult:
        """Add a matching message to the page. Returns `FULL` if there is no room. The first message always fits: if it
        is too large, its stub is added, so that every call makes progress."""
        encoded = json_bytes(self.describe(hit))
        if len(encoded) + 1 > self.room:
            if self.messages:
                return TakeResult.FULL
            encoded = json_bytes(self.least(hit))
        self.room -= len(encoded) + 1
        self.messages.append(msgspec.Raw(encoded))
        return TakeResult.YES

    def describe(self, hit: ScanHit) -> Fields:
        return message_json(hit.partition, row_of_hit(hit), self.preview)

    def least(self, hit: ScanHit) -> Fields:
        """Return the stub of a message: its position and size, without its content."""
        return message_stub(hit.partition, row_of_hit(hit))


def row_of_hit(hit: ScanHit) -> RecordRow:
    return record_row(hit.block.data, hit.block.columns[hit.row].tolist())


def new_page(
    durable: DurableBroker, fields: Fields, page: Callable[[int, int, int], MessagePage] = MessagePage
) -> MessagePage:
    limit = read.number(fields, "limit", PAGE_MESSAGES, at_least=1, at_most=PAGE_MESSAGES_MAX)
    preview = read.number(fields, "preview_bytes", PREVIEW_BYTES, at_most=PREVIEW_BYTES_MAX)
    return page(limit, preview, max(durable.answer_bytes_max - _SUMMARY_BYTES, durable.answer_bytes_max // 2))


def _browse(durable: DurableBroker, client: Client, fields: Fields, reply: Reply) -> list[Effect]:
    read.check_known(fields, _BROWSE_FIELDS)
    topic = durable.topics.find(read.topic_name(fields))
    check_durable(topic)
    where, message_filter, page = parse_scan_range(fields, topic), parse_filter(fields), new_page(durable, fields)

    def begin() -> Scan:
        return Scan(topic, *where.positions(topic), message_filter, page.take, where.scanned_max, page.limit)

    def browsed(scan: Scan) -> list[Effect]:
        return reply({"topic": str(topic.name), "messages": page.messages} | scan.summary())

    return durable.scans.run(client, begin, unless_deleted(durable, topic, reply), browsed)


# get


def _get(durable: DurableBroker, _client: Client, fields: Fields, reply: Reply) -> list[Effect]:
    read.check_known(fields, FETCH_FIELDS)
    topic = durable.topics.find(read.topic_name(fields))
    check_durable(topic)
    return fetch(durable, topic, fields, reply)


def fetch(durable: DurableBroker, topic: TopicState, fields: Fields, reply: Reply) -> list[Effect]:
    """Reply with one message, named by its offset or its id. If it is too large for one answer, its payload is cut;
    `payload_from` in the request asks for a further part. Errors: `InvalidRequest` is raised; a message that is not
    there is the reply's error."""
    if ("offset" in fields) == ("id" in fields):
        raise InvalidRequest("Give offset (and partition), or id", field="offset")
    partition = read.number(fields, "partition") if "partition" in fields else None
    numbers = _partitions(topic, partition)
    start = read.number(fields, "payload_from") if "payload_from" in fields else None
    room, answer = durable.answer_bytes_max, unless_deleted(durable, topic, reply)
    if "id" in fields:
        message_id = parse_id(read.text(fields, "id"))
        return [
            RunInThread(
                lambda: _message_answer(_with_id(topic, numbers, message_id), start, room), answer, read_only=True
            )
        ]
    offset = read.number(fields, "offset")
    if len(numbers) > 1:
        raise InvalidRequest(
            f"{topic.name} has {len(numbers)} partitions: name the one of the offset", field="partition"
        )
    return [RunInThread(lambda: _message_answer(_at(topic, numbers[0], offset), start, room), answer, read_only=True)]


def _at(topic: TopicState, partition: int, offset: int) -> tuple[int, RecordRow]:
    log = topic.logs[partition]
    if not log.first_offset <= offset < log.next_offset:
        some = log.first_offset < log.next_offset
        held = f"offsets {log.first_offset} to {log.next_offset - 1}" if some else "no messages"
        raise OffsetOutOfRange(
            f"partition {partition} of {topic.name} holds {held}, not {offset if some else f'offset {offset}'}",
            offset=offset,
            first_offset=int(log.first_offset),
            next_offset=int(log.next_offset),
        )
    block = log.read(offset, bytes_max=1).block
    if not len(block) or block.offsets.start != offset:
        raise OffsetOutOfRange(f"offset {offset} of partition {partition} is damaged: it was skipped", offset=offset)
    return partition, record_row(block.data, block.columns[0].tolist())


def _with_id(topic: TopicState, partitions: list[int], message_id: bytes) -> tuple[int, RecordRow]:
    for partition in partitions:
        log = topic.logs[partition]
        offset = log.offset_of(AtId(message_id))
        if offset < log.next_offset:
            located = _at(topic, partition, Offset(offset))
            if located[1][0] == message_id:
                return located
    raise TopicNotSupported(f"{topic.name} has no message with that id, or has it no longer", topic=str(topic.name))


def _message_answer(located: tuple[int, RecordRow], start: int | None, room: int) -> Fields:
    partition, row = located
    if start is not None:
        return _payload_part(partition, row, start, room)
    size = len(row[5])
    fields = message_json(partition, row, size, whole=True)
    if len(json_bytes(fields)) > room:
        fields = message_json(partition, row, room // 8, whole=True)
    if len(json_bytes(fields)) > room:
        fields = message_json(partition, row, room // 8)
    if len(json_bytes(fields)) > room:
        fields = message_stub(partition, row)
    return fields


def _payload_part(partition: int, row: RecordRow, start: int, room: int) -> Fields:
    """Return the bytes of the payload from `start` on, in base64, as many as fit into `room` bytes of JSON, and the
    size of the whole payload."""
    payload = row[5]
    piece = payload[start : start + room // 2]
    return {
        "partition": partition,
        "offset": row[1],
        "payload_bytes": len(payload),
        "payload_from": start,
        "payload_base64": b64encode(piece).decode(),
    }


# publish


def _publish(durable: DurableBroker, client: Client, fields: Fields, reply: Reply) -> list[Effect]:
    """Publish one message to an existing durable topic. The reply comes once the message is on disk, with its
    partition, offset and id."""
    read.check_known(fields, ("topic", *_PAYLOAD_FIELDS, *_PUBLISH_FIELDS))
    topic = durable.topics.find(read.topic_name(fields))
    check_durable(topic)
    named: Fields = {name: fields[name] for name in _PUBLISH_FIELDS if name in fields}
    message = message_of(named, _payload(fields), producer_name=client.name)
    block = parse_block(Draft.of([message]).data, verify=False)

    def stored(outcome: Any) -> list[Effect]:
        if isinstance(outcome, PenstockError):
            return reply(outcome)
        return reply({name: outcome[name] for name in ("partition", "offset", "id")} | {"topic": str(topic.name)})

    return durable.publisher.store(topic, block, stored, client=client.id)


def _payload(fields: Fields) -> bytes:
    names = [name for name in _PAYLOAD_FIELDS if name in fields]
    if len(names) != 1:
        raise InvalidRequest(f"Give one of {', '.join(_PAYLOAD_FIELDS)}", field="payload")
    value = fields[names[0]]
    try:
        return _PAYLOAD_FIELDS[names[0]](value)
    except (AttributeError, Base64Error, TypeError, ValueError, OverflowError, RecursionError):
        raise InvalidRequest(f"Invalid {names[0]}: expected text, base64 or JSON", field=names[0]) from None


TOPICS: Final[dict[str, Callable[[DurableBroker, Client, Fields, Reply], list[Effect]]]] = {
    "system.message.browse": _browse,
    "system.message.get": _get,
    "system.message.publish": _publish,
}
