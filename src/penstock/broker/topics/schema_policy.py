"""The schema policy of topics: which schemas messages may name, and what happens to messages that do not conform."""

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
from penstock.broker.topics.schema_mismatches import MismatchLog
from penstock.broker.topics.schema_rejections import fault_text
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


def with_schemas_named(block: Block, default: SchemaRef | None) -> Block:
    """Return the block with a schema in every message that had none: the one that its attributes name, or else the
    default."""
    block = _by_attributes(block)
    if default is None:
        return block
    nameless = (block.columns[:, at.FLAGS] & at.FLAG_SCHEMA) == 0
    return block.with_schema(nameless, default) if nameless.any() else block


def _by_attributes(block: Block) -> Block:
    """Return the block with the schemas that attributes name. An attribute that is not a number is ignored: the
    application uses it for something else."""
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
    """Parse a whole number from 1 to `most`. Returns 0 for any other text."""
    if not (text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX):
        return 0
    return int(text) if int(text) <= most else 0


_LOG: Final = logging.getLogger(__name__)
WARNING: Final = "x-schema-warning"
"""The attribute that the broker adds to a message that does not conform, if the policy is `warn`."""
_WARNING_CHARS_MAX: Final = 256

Continuation = Callable[[Block, Mapping[int, PayloadFault]], list[Effect]]
"""A function that continues with a block: it gets the block, and the faults of the rows that must not be stored."""


class TopicSchemaRule(NamedTuple):
    """The schemas that a topic allows, and its default schema, at one revision of the registry."""

    settings: TopicSettings
    revision: int
    subjects: tuple[str, ...]
    allowed: Mapping[tuple[int, int], VersionStatus]
    default: SchemaRef | None

    @property
    def policy(self) -> SchemaPolicy:
        return self.settings.schema_policy or SchemaPolicy.NONE


@dataclass(slots=True, eq=False)
class PendingBlock:
    """A block that is being validated, or waits for one that came before it."""

    rule: TopicSchemaRule
    block: Block
    client: str
    proceed: Continuation
    failed: Callable[[PenstockError], list[Effect]]
    validate: bool
    faults: dict[int, PayloadFault] = field(default_factory=dict)
    steps_left: int = 0
    error: PenstockError | None = None


class SchemaPolicyEnforcer:
    def __init__(self, registry: Registry, catalog: SchemaCatalog, context: BrokerContext) -> None:
        self._registry = registry
        self._catalog = catalog
        self._context = context
        self._rules: dict[TopicState, TopicSchemaRule] = {}
        self._waiting: dict[TopicState, deque[PendingBlock]] = {}
        self._uses_recorded: set[tuple[int, int]] = set()
        """Pairs of topic uid and schema id whose use is recorded in the catalog, or about to be. Only those seen since
        the start."""

        self.mismatch_log = MismatchLog()

    @property
    def idle(self) -> bool:
        return not self._waiting

    def is_quiet(self, topic: TopicState) -> bool:
        """Return whether no block of the topic is being validated or stored."""
        return topic not in self._waiting and not topic.pending

    def take_uses(self, schema_id: int) -> set[int]:
        """Return the uids of topics for which the use of this schema has been recorded since the last call, and forget
        them, so that the next use is recorded again."""
        topic_uids = {uid for uid, used in self._uses_recorded if used == schema_id}
        self._uses_recorded = {use for use in self._uses_recorded if use[1] != schema_id}
        return topic_uids

    def forget(self, topic: TopicState) -> None:
        """Forget a deleted topic. Its pending blocks go on, and the log refuses them."""
        self._rules.pop(topic, None)
        self.mismatch_log.flush(topic)
        self._uses_recorded = {use for use in self._uses_recorded if use[0] != topic.uid}

    def has_policy(self, topic: TopicState) -> bool:
        """Return whether `enforce` must be called for blocks of this topic: it has a policy or a default schema, or a
        block waits. Otherwise blocks can be stored at once."""
        rule = self._rule_of(topic)
        return rule.policy is not SchemaPolicy.NONE or rule.default is not None or topic in self._waiting

    def default_schema(self, topic: TopicState) -> SchemaRef | None:
        """Return the schema for messages that name none; None if the topic has no default."""
        return self._rule_of(topic).default

    def enforce(
        self,
        topic: TopicState,
        block: Block,
        client: str,
        proceed: Continuation,
        failed: Callable[[PenstockError], list[Effect]],
        *,
        validate: bool = True,
    ) -> list[Effect]:
        """Validate a block, then call `proceed` with it and the faults of refused rows. If it cannot be validated, call
        `failed` with the error. Blocks of a topic proceed in the order in which they came.

        Without `validate` the payloads are not checked. The block still waits for those before it, and until the use of
        its schemas is recorded.
        """
        rule = self._rule_of(topic)
        pending = PendingBlock(rule, block, client, proceed, failed, validate and rule.policy is not SchemaPolicy.NONE)
        try:
            if validate:
                pending.block = with_schemas_named(block, rule.default)
            steps = [*self._validations(topic, pending), *self._use_notes(topic, pending)]
        except PenstockError as error:
            return failed(error)
        if not steps and topic not in self._waiting:
            return self._finish(topic, pending)
        self._waiting.setdefault(topic, deque()).append(pending)
        return [AdjustBacklog(client, pending.block.data.size), *steps]

    def _rule_of(self, topic: TopicState) -> TopicSchemaRule:
        settings, known = topic.settings, self._rules.get(topic)
        if known is not None and known.settings is settings and known.revision == self._registry.revision:
            return known
        subjects = settings.schema_subjects or (default_subject(topic.name),)
        allowed = (
            {} if settings.schema_policy in (None, SchemaPolicy.NONE) else self._registry.accepted_versions(subjects)
        )
        default = self._default_schema_of(subjects[0], settings.schema_default)
        rule = self._rules[topic] = TopicSchemaRule(settings, self._registry.revision, subjects, allowed, default)
        return rule

    def _default_schema_of(self, subject: str, version: int | str | None) -> SchemaRef | None:
        if version is None:
            return None
        statuses = self._registry.accepted_versions((subject,)).items()
        versions = {named[1]: SchemaRef(*named) for named, status in statuses if not status.deleted}
        return versions.get(max(versions, default=0) if version == LATEST else int(version))

    # schemas named by messages

    def _naming_faults(
        self, topic: TopicState, rule: TopicSchemaRule, block: Block
    ) -> Iterator[tuple[int, PayloadFault]]:
        for schema, rows in _rows_by_schema(block):
            fault = self._naming_fault(topic, rule, schema)
            if fault is not None:
                yield from dict.fromkeys(rows.tolist(), fault).items()

    def _naming_fault(self, topic: TopicState, rule: TopicSchemaRule, schema: SchemaRef) -> PayloadFault | None:
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

    def _not_allowed(self, topic: TopicState, rule: TopicSchemaRule, schema: SchemaRef) -> str:
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

    # validation of payloads

    def _validations(self, topic: TopicState, pending: PendingBlock) -> Iterator[Effect]:
        """Check the schemas that the messages name, and note the faults. Yields the effects that validate the
        payloads."""
        if not pending.validate:
            return
        pending.block = _without_warnings(pending.block)
        pending.faults = dict(self._naming_faults(topic, pending.rule, pending.block))
        if not pending.rule.settings.schema_payloads:
            return
        for schema, rows in _rows_by_schema(pending.block):
            if int(rows[0]) in pending.faults:
                continue
            definition = self._registry.definition(schema.id)
            if definition.kind is not SchemaKind.BYTES:
                pending.steps_left += 1
                whole = len(rows) == len(pending.block)
                block = pending.block if whole else pending.block.gather(rows)
                yield ValidatePayloads(definition, schema.id, block, partial(self._validated, topic, pending, rows))

    def _validated(
        self, topic: TopicState, pending: PendingBlock, rows: Any, outcome: dict[int, PayloadFault] | PenstockError
    ) -> list[Effect]:
        unseen = isinstance(outcome, InvalidSchema) or pending.rule.policy is SchemaPolicy.WARN
        if isinstance(outcome, PenstockError) and unseen:
            pending.faults |= dict.fromkeys(rows.tolist(), PayloadFault("", f"it was not looked at: {outcome.message}"))
        elif isinstance(outcome, PenstockError):
            pending.error = pending.error or outcome
        else:
            pending.faults |= {int(rows[row]): fault for row, fault in outcome.items()}
        return self._step_done(topic, pending)

    # recording of uses

    def _use_notes(self, topic: TopicState, pending: PendingBlock) -> Iterator[Effect]:
        """Yield the effects that record which schemas the topic uses for the first time. A schema in use cannot be
        deleted, so this must be durable before the first message is."""
        ids = pending.block.columns[:, at.SCHEMA_ID]
        if not ids.any():
            return
        uid = topic.uid
        first = int(ids[0])
        for schema_id in [first] if (ids == first).all() else np.unique(ids).tolist():
            if (uid, schema_id) not in self._uses_recorded and self._is_registered(schema_id):
                pending.steps_left += 1
                self._uses_recorded.add((uid, schema_id))
                note = partial(self._catalog.note_use, schema_id, topic_place(uid))
                yield RunInThread(note, partial(self._use_recorded, topic, pending, (uid, schema_id)))

    def _is_registered(self, schema_id: int) -> bool:
        """Return whether a schema is registered. The use of others need not be recorded, as they cannot be deleted."""
        try:
            self._registry.schema(schema_id)
        except SchemaNotFound:
            return False
        return True

    def _use_recorded(
        self, topic: TopicState, pending: PendingBlock, use: tuple[int, int], outcome: object
    ) -> list[Effect]:
        if isinstance(outcome, PenstockError):
            self._uses_recorded.discard(use)
            for waiting in self._waiting[topic]:  # blocks behind it rely on the same record
                if (waiting.block.columns[:, at.SCHEMA_ID] == use[1]).any():
                    waiting.error = waiting.error or outcome
        elif not outcome:  # the schema was deleted meanwhile
            self._uses_recorded.discard(use)
            pending.faults |= (
                dict(self._naming_faults(topic, self._rule_of(topic), pending.block)) if pending.validate else {}
            )
        return self._step_done(topic, pending)

    # order of blocks

    def _step_done(self, topic: TopicState, pending: PendingBlock) -> list[Effect]:
        """Note that one step of a block is done. Finish the blocks at the head of the queue that have no step left."""
        pending.steps_left -= 1
        waiting, effects = self._waiting[topic], list[Effect]()
        while waiting and not waiting[0].steps_left:
            first = waiting.popleft()
            effects += [AdjustBacklog(first.client, -first.block.data.size), *self._finish(topic, first)]
        if not waiting:
            del self._waiting[topic]
        return effects

    def _finish(self, topic: TopicState, pending: PendingBlock) -> list[Effect]:
        """Call `proceed` or `failed` of a block. Never raises, so that the blocks behind it are finished too."""
        try:
            if pending.error is not None:
                raise pending.error
            return self._apply_policy(topic, pending)
        except PenstockError as error:
            return pending.failed(error)
        except Exception as error:
            _LOG.exception("unhandled error in the schema policy", extra={"topic": str(topic.name)})
            return pending.failed(PenstockError(f"The broker failed: {type(error).__name__}"))

    def _apply_policy(self, topic: TopicState, pending: PendingBlock) -> list[Effect]:
        faults = pending.faults
        if faults and pending.rule.policy is SchemaPolicy.ENFORCE:
            self._context.metrics.add("schema.refused", len(faults))
            return pending.proceed(pending.block, faults)
        if faults:
            self._warn(topic, faults)
            return pending.proceed(_with_warnings(pending.block, faults), {})
        return pending.proceed(pending.block, {})

    def _warn(self, topic: TopicState, faults: Mapping[int, PayloadFault]) -> None:
        self._context.metrics.add("schema.warned", len(faults))
        self.mismatch_log.add(topic, len(faults), fault_text(faults[min(faults)]), self._context.now_ms)


def _rows_by_schema(block: Block) -> Iterator[tuple[SchemaRef, Any]]:
    """Yield each schema that the messages name, with the rows that name it. Messages without a schema come under an id
    of 0."""
    ids, versions = block.columns[:, at.SCHEMA_ID], block.columns[:, at.SCHEMA_VERSION]
    if (ids == ids[0]).all() and (versions == versions[0]).all():
        yield SchemaRef(int(ids[0]), int(versions[0])), np.arange(len(block))
        return
    pairs, inverse = np.unique(np.stack((ids, versions), axis=1), axis=0, return_inverse=True)
    for number, (schema_id, version) in enumerate(pairs.tolist()):
        yield SchemaRef(schema_id, version), np.flatnonzero(inverse.reshape(-1) == number)


def _without_warnings(block: Block) -> Block:
    """Return the block without the warning attributes that the sender set: only the broker may set them."""
    if not block.columns[:, at.ATTRIBUTES].any() or WARNING.encode() not in block.raw.tobytes():
        return block
    edited = {}
    for row in range(len(block)):
        message = block.record(row).message
        if WARNING in message.attributes:
            kept = {name: value for name, value in message.attributes.items() if name != WARNING}
            edited[row] = [Draft.of([replace(message, attributes=kept)]).data]
    return _edited(block, edited)


def _with_warnings(block: Block, faults: Mapping[int, PayloadFault]) -> Block:
    """Return the block with a warning attribute in each faulty message that has room for it."""
    columns = block.columns
    name = WARNING.encode()
    edited = {}
    for row in sorted(faults):
        warning = fault_text(faults[row])[:_WARNING_CHARS_MAX].encode()
        start, payload, end = (int(columns[row, field]) for field in (at.START, at.PAYLOAD, at.END))
        many = int(columns[row, at.ATTRIBUTES])
        if many < ATTRIBUTES_MAX and payload - start + len(name) + len(warning) < ATTRIBUTE_BYTES_MAX:
            added = len(name).to_bytes(2) + name + len(warning).to_bytes(4) + warning
            edited[row] = _with_attribute(block, start, payload, end, int(columns[row, at.TYPE_BYTES]), added)
    return _edited(block, edited)


def _with_attribute(block: Block, start: int, payload: int, end: int, type_bytes: int, added: bytes) -> list[Any]:
    """Return the bytes of a record with one more attribute, in pieces. Its checksum is wrong until the record is
    stamped."""
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
    """Return the block with some records replaced. `edited` has the new bytes of each, in pieces, by row."""
    pieces, done = [], 0
    for row, record in edited.items():
        pieces += [block.select(done, row).raw, *record]
        done = row + 1
    pieces.append(block.select(done, len(block)).raw)
    return parse_block(b"".join(pieces), verify=False)
