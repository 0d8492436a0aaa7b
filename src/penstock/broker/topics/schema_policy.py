"""The schema policy of topics: which schemas messages may name, and what happens to payloads that do not conform."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np

from penstock.broker.base.effects import AdjustBacklog, Effect, RunInThread, ValidatePayloads
from penstock.broker.context import BrokerContext
from penstock.broker.topics.schema_mismatches import Mismatches
from penstock.broker.topics.schema_rejections import sentence
from penstock.broker.topics.topics import TopicState
from penstock.core.errors import PenstockError
from penstock.core.limits import ATTRIBUTE_BYTES_MAX, ATTRIBUTES_MAX
from penstock.core.schemas import LATEST, SCHEMA_VERSION_MAX, SchemaKind, default_subject
from penstock.record import layout as at
from penstock.record.block import Block, Draft, parse_block
from penstock.record.message import NUMBER_MAX, Message, SchemaRef
from penstock.schema.errors import InvalidSchema, SchemaNotFound
from penstock.schema.language import PayloadFault
from penstock.schema.registry.models import LookupFilter, VersionStatus
from penstock.schema.registry.registry import Registry
from penstock.storage.catalog.schemas import SchemaCatalog, topic_place
from penstock.storage.catalog.topics import SchemaPolicy, TopicSettings

SCHEMA_ID: Final = "schema_id"
SCHEMA_VERSION: Final = "schema_version"
_DIGITS_MAX: Final = 19


def names_schema(message: Message) -> bool:
    return message.schema is not None or SCHEMA_ID in message.attributes


def stamped(block: Block, default: SchemaRef | None) -> Block:
    """The same, in which those that name no schema bear the one that their attributes name, or else the default."""
    block = _by_attributes(block)
    if default is None:
        return block
    nameless = (block.columns[:, at.FLAGS] & at.FLAG_SCHEMA) == 0
    return block.with_schema(nameless, default) if nameless.any() else block


def _by_attributes(block: Block) -> Block:
    """An attribute of that name that is no number is somebody's own, and names nothing."""
    columns = block.columns
    nameless = ((columns[:, at.FLAGS] & at.FLAG_SCHEMA) == 0) & (columns[:, at.ATTRIBUTES] > 0)
    if not nameless.any():
        return block
    texts = block.attribute(SCHEMA_ID, nameless)
    ids = {row: found for row, text in texts.items() if (found := _number(text, NUMBER_MAX))}
    if not ids:
        return block
    versions = block.attribute(SCHEMA_VERSION, nameless)
    numbers = [_number(versions.get(row, ""), SCHEMA_VERSION_MAX) for row in ids]
    return block.with_schemas(np.array(list(ids)), np.array(list(ids.values())), np.array(numbers))


def _number(text: str, most: int) -> int:
    """0 for anything but a number of at most so much."""
    if not (text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX):
        return 0
    return int(text) if int(text) <= most else 0


_LOG: Final = logging.getLogger(__name__)
WARNING: Final = "x-schema-warning"
"""The attribute of a message that its topic's policy does not allow, and only warns of."""
_WARNING_CHARS_MAX: Final = 256

Passed = Callable[[Block, Mapping[int, PayloadFault]], list[Effect]]
"""Where a block goes on: with the rows of it that are refused, and why."""


class Rule(NamedTuple):
    """What a topic asks of its messages, as of one revision of the registry."""

    settings: TopicSettings
    revision: int
    subjects: tuple[str, ...]
    allowed: Mapping[tuple[int, int], VersionStatus]
    default: SchemaRef | None

    @property
    def policy(self) -> SchemaPolicy:
        return self.settings.schema_policy or SchemaPolicy.NONE


@dataclass(slots=True, eq=False)
class Passage:
    """One block on its way."""

    rule: Rule
    block: Block
    client: str
    passed: Passed
    failed: Callable[[PenstockError], list[Effect]]
    judged: bool
    faults: dict[int, PayloadFault] = field(default_factory=dict)
    open: int = 0
    error: PenstockError | None = None


class Guards:
    def __init__(self, registry: Registry, catalog: SchemaCatalog, context: BrokerContext) -> None:
        self._registry = registry
        self._catalog = catalog
        self._context = context
        self._rules: dict[TopicState, Rule] = {}
        self._waiting: dict[TopicState, deque[Passage]] = {}
        self._used: set[tuple[int, int]] = set()
        """Topic and schema of messages that are stored, or on their way, as far as they were seen since the start."""

        self.mismatches = Mismatches()

    @property
    def idle(self) -> bool:
        return not self._waiting

    def quiet(self, topic: TopicState) -> bool:
        """Whether all that came so far is in the log, or is not going to be."""
        return topic not in self._waiting and not topic.pending

    def take_uses(self, schema_id: int) -> set[int]:
        """The topics that got messages of it since this was last asked; the next one is noted again."""
        found = {uid for uid, used in self._used if used == schema_id}
        self._used = {each for each in self._used if each[1] != schema_id}
        return found

    def forget(self, topic: TopicState) -> None:
        """The topic is deleted. What is still on its way goes on, and is refused there."""
        self._rules.pop(topic, None)
        self.mismatches.settle(topic)
        self._used = {each for each in self._used if each[0] != topic.uid}

    def watches(self, topic: TopicState) -> bool:
        """Whether a block of its may have to wait, or be refused; if not, it need not be admitted."""
        rule = self._rule(topic)
        return rule.policy is not SchemaPolicy.NONE or rule.default is not None or topic in self._waiting

    def default(self, topic: TopicState) -> SchemaRef | None:
        """What a message that cannot name a schema is taken to be written with."""
        return self._rule(topic).default

    def admit(
        self,
        topic: TopicState,
        block: Block,
        client: str,
        passed: Passed,
        failed: Callable[[PenstockError], list[Effect]],
        *,
        judged: bool = True,
    ) -> list[Effect]:
        """Have a block judged, and passed on; what cannot be judged is told to `failed`.

        What is not `judged` only waits for those before it, and until it is noted which schemas it uses.
        """
        rule = self._rule(topic)
        passage = Passage(rule, block, client, passed, failed, judged and rule.policy is not SchemaPolicy.NONE)
        try:
            if judged:
                passage.block = stamped(block, rule.default)
            steps = [*self._inspections(topic, passage), *self._notes(topic, passage)]
        except PenstockError as error:
            return failed(error)
        if not steps and topic not in self._waiting:
            return self._go_on(topic, passage)
        self._waiting.setdefault(topic, deque()).append(passage)
        return [AdjustBacklog(client, passage.block.data.size), *steps]

    def _rule(self, topic: TopicState) -> Rule:
        settings, known = topic.settings, self._rules.get(topic)
        if known is not None and known.settings is settings and known.revision == self._registry.revision:
            return known
        subjects = settings.schema_subjects or (default_subject(topic.name),)
        allowed = (
            {} if settings.schema_policy in (None, SchemaPolicy.NONE) else self._registry.accepted_versions(subjects)
        )
        default = self._default(subjects[0], settings.schema_default)
        rule = self._rules[topic] = Rule(settings, self._registry.revision, subjects, allowed, default)
        return rule

    def _default(self, subject: str, version: int | str | None) -> SchemaRef | None:
        if version is None:
            return None
        statuses = self._registry.accepted_versions((subject,)).items()
        found = {named[1]: SchemaRef(*named) for named, status in statuses if not status.deleted}
        return found.get(max(found, default=0) if version == LATEST else int(version))

    # what is named

    def _misnamed(self, topic: TopicState, rule: Rule, block: Block) -> Iterator[tuple[int, PayloadFault]]:
        for schema, rows in _named(block):
            fault = self._fault(topic, rule, schema)
            if fault is not None:
                yield from dict.fromkeys(rows.tolist(), fault).items()

    def _fault(self, topic: TopicState, rule: Rule, schema: SchemaRef) -> PayloadFault | None:
        status = rule.allowed.get((schema.id, schema.version))
        if status is None:
            return PayloadFault("", self._not_allowed(topic, rule, schema))
        if status.deleted:
            return PayloadFault("", f"version {schema.version} of {status.subject!r} is deleted")
        if status.deprecated is not None and rule.settings.schema_deprecated is False:
            return PayloadFault(
                "", f"version {schema.version} of {status.subject!r} is deprecated: {status.deprecated}"
            )
        return None

    def _not_allowed(self, topic: TopicState, rule: Rule, schema: SchemaRef) -> str:
        wanted = " or ".join(map(repr, rule.subjects))
        if not schema.id:
            return f"the message names no schema, and {topic.name} wants a version of {wanted}"
        here = [version for schema_id, version in rule.allowed if schema_id == schema.id]
        if here and not schema.version:
            return f"the message names schema {schema.id} without its version, {here[0]}"
        if here:
            return f"schema {schema.id} is version {here[0]} of {wanted}, not {schema.version}"
        try:
            (subject, _), *_ = self._registry.versions_of_schema(schema.id, LookupFilter.INCLUDE_DELETED)
        except SchemaNotFound:
            return f"schema {schema.id} is not registered"
        return f"schema {schema.id} is of {subject!r}, and {topic.name} wants a version of {wanted}"

    # what payloads hold

    def _inspections(self, topic: TopicState, passage: Passage) -> Iterator[Effect]:
        """What it names is judged at once, and what it holds is to be looked at."""
        if not passage.judged:
            return
        passage.block = _unmarked(passage.block)
        passage.faults = dict(self._misnamed(topic, passage.rule, passage.block))
        if not passage.rule.settings.schema_payloads:
            return
        for schema, rows in _named(passage.block):
            if int(rows[0]) in passage.faults:
                continue
            definition = self._registry.definition(schema.id)
            if definition.kind is not SchemaKind.BYTES:
                passage.open += 1
                whole = len(rows) == len(passage.block)
                block = passage.block if whole else passage.block.gather(rows)
                yield ValidatePayloads(definition, schema.id, block, partial(self._inspected, topic, passage, rows))

    def _inspected(
        self, topic: TopicState, passage: Passage, rows: Any, outcome: dict[int, PayloadFault] | PenstockError
    ) -> list[Effect]:
        unseen = isinstance(outcome, InvalidSchema) or passage.rule.policy is SchemaPolicy.WARN
        if isinstance(outcome, PenstockError) and unseen:
            passage.faults |= dict.fromkeys(rows.tolist(), PayloadFault("", f"it was not looked at: {outcome.message}"))
        elif isinstance(outcome, PenstockError):
            passage.error = passage.error or outcome
        else:
            passage.faults |= {int(rows[row]): fault for row, fault in outcome.items()}
        return self._closer(topic, passage)

    # what is used

    def _notes(self, topic: TopicState, passage: Passage) -> Iterator[Effect]:
        """A schema of which a topic has messages stays: that is noted before the first of them is stored."""
        ids = passage.block.columns[:, at.SCHEMA_ID]
        if not ids.any():
            return
        uid = topic.uid
        first = int(ids[0])
        for schema_id in [first] if (ids == first).all() else np.unique(ids).tolist():
            if (uid, schema_id) not in self._used and self._knows(schema_id):
                passage.open += 1
                self._used.add((uid, schema_id))
                note = partial(self._catalog.note_use, schema_id, topic_place(uid))
                yield RunInThread(note, partial(self._noted, topic, passage, (uid, schema_id)))

    def _knows(self, schema_id: int) -> bool:
        """What is not registered cannot be deleted."""
        try:
            self._registry.schema(schema_id)
        except SchemaNotFound:
            return False
        return True

    def _noted(self, topic: TopicState, passage: Passage, use: tuple[int, int], outcome: object) -> list[Effect]:
        if isinstance(outcome, PenstockError):
            self._used.discard(use)
            for each in self._waiting[topic]:  # those behind it rely on the same note
                if (each.block.columns[:, at.SCHEMA_ID] == use[1]).any():
                    each.error = each.error or outcome
        elif not outcome:  # it was deleted meanwhile
            self._used.discard(use)
            passage.faults |= dict(self._misnamed(topic, self._rule(topic), passage.block)) if passage.judged else {}
        return self._closer(topic, passage)

    # further

    def _closer(self, topic: TopicState, passage: Passage) -> list[Effect]:
        """Something that a block waited for is done: it and those behind it go on, if nothing else is open."""
        passage.open -= 1
        waiting, effects = self._waiting[topic], list[Effect]()
        while waiting and not waiting[0].open:
            first = waiting.popleft()
            effects += [AdjustBacklog(first.client, -first.block.data.size), *self._go_on(topic, first)]
        if not waiting:
            del self._waiting[topic]
        return effects

    def _go_on(self, topic: TopicState, passage: Passage) -> list[Effect]:
        """Whatever comes of it, those behind it have their turn."""
        try:
            if passage.error is not None:
                raise passage.error
            return self._passed(topic, passage)
        except PenstockError as error:
            return passage.failed(error)
        except Exception as error:
            _LOG.exception("a defect in the broker", extra={"topic": str(topic.name)})
            return passage.failed(PenstockError(f"The broker failed: {type(error).__name__}"))

    def _passed(self, topic: TopicState, passage: Passage) -> list[Effect]:
        faults = passage.faults
        if faults and passage.rule.policy is SchemaPolicy.ENFORCE:
            self._context.metrics.add("schema.refused", len(faults))
            return passage.passed(passage.block, faults)
        if faults:
            self._warn(topic, faults)
            return passage.passed(_marked(passage.block, faults), {})
        return passage.passed(passage.block, {})

    def _warn(self, topic: TopicState, faults: Mapping[int, PayloadFault]) -> None:
        self._context.metrics.add("schema.warned", len(faults))
        self.mismatches.add(topic, len(faults), sentence(faults[min(faults)]), self._context.now_ms)


def _named(block: Block) -> Iterator[tuple[SchemaRef, Any]]:
    """Which schemas the messages name, and which messages name each."""
    ids, versions = block.columns[:, at.SCHEMA_ID], block.columns[:, at.SCHEMA_VERSION]
    if (ids == ids[0]).all() and (versions == versions[0]).all():
        yield SchemaRef(int(ids[0]), int(versions[0])), np.arange(len(block))
        return
    pairs, inverse = np.unique(np.stack((ids, versions), axis=1), axis=0, return_inverse=True)
    for number, (schema_id, version) in enumerate(pairs.tolist()):
        yield SchemaRef(schema_id, version), np.flatnonzero(inverse.reshape(-1) == number)


def _unmarked(block: Block) -> Block:
    """Without warnings that are the sender's own: only the broker warns."""
    if not block.columns[:, at.ATTRIBUTES].any() or WARNING.encode() not in block.raw.tobytes():
        return block
    edited = {}
    for row in range(len(block)):
        message = block.record(row).message
        if WARNING in message.attributes:
            kept = {name: value for name, value in message.attributes.items() if name != WARNING}
            edited[row] = [Draft.of([replace(message, attributes=kept)]).data]
    return _edited(block, edited)


def _marked(block: Block, faults: Mapping[int, PayloadFault]) -> Block:
    """The same, with an attribute on the messages that are not as they should be and have room for it."""
    columns = block.columns
    name = WARNING.encode()
    edited = {}
    for row in sorted(faults):
        warning = sentence(faults[row])[:_WARNING_CHARS_MAX].encode()
        start, payload, end = (int(columns[row, field]) for field in (at.START, at.PAYLOAD, at.END))
        many = int(columns[row, at.ATTRIBUTES])
        if many < ATTRIBUTES_MAX and payload - start + len(name) + len(warning) < ATTRIBUTE_BYTES_MAX:
            added = len(name).to_bytes(2) + name + len(warning).to_bytes(4) + warning
            edited[row] = _with_attribute(block, start, payload, end, int(columns[row, at.TYPE_BYTES]), added)
    return _edited(block, edited)


def _with_attribute(block: Block, start: int, payload: int, end: int, type_bytes: int, added: bytes) -> list[Any]:
    """A record with one attribute more, in pieces; its checksum is wrong until it is stamped."""
    data = block.data.data
    message = start + at.HEAD_BYTES + type_bytes
    name_bytes = int.from_bytes(data[message + at.NAME_LENGTH_AT : message + at.NAME_LENGTH_AT + 2])
    key = message + at.NAME_LENGTH_AT + 2 + name_bytes
    count = key + 2 + int.from_bytes(data[key : key + 2])
    size = int.from_bytes(data[message - at.MESSAGE_LENGTH_BYTES : message]) + len(added)
    many = int.from_bytes(data[count : count + 2]) + 1
    head = (data[start : message - at.MESSAGE_LENGTH_BYTES], size.to_bytes(at.MESSAGE_LENGTH_BYTES))
    return [*head, data[message:count], many.to_bytes(2), data[count + 2 : payload], added, data[payload:end]]


def _edited(block: Block, edited: Mapping[int, list[Any]]) -> Block:
    """With other records, each in pieces, at some rows."""
    pieces, done = [], 0
    for row, record in edited.items():
        pieces += [block.select(done, row).raw, *record]
        done = row + 1
    pieces.append(block.select(done, len(block)).raw)
    return parse_block(b"".join(pieces), verify=False)
