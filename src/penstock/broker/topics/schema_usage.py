"""Schema usage: which topics, and archives of topics, have messages of a schema. A schema that is used is not deleted
for good."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from penstock.broker.base import request_fields as read
from penstock.broker.base.effects import Effect, RunInThread
from penstock.broker.base.request_fields import Fields
from penstock.core.errors import PenstockError
from penstock.record import layout as at
from penstock.schema.errors import ReferenceExists
from penstock.schema.registry.models import LookupFilter, parse_version
from penstock.schema.registry.registry import Registry
from penstock.storage.catalog.schemas import TOPIC_PLACE, SchemaCatalog, archive_place, topic_place
from penstock.storage.catalog.subscriptions import check_subscription_name
from penstock.storage.log.log import Log

if TYPE_CHECKING:
    from penstock.broker.durable import DurableBroker

_SCAN_BYTES: Final = 4 * 1024 * 1024
_TOPIC: Final = re.compile(rf"\b{TOPIC_PLACE}[0-9]+\b")

SchemaUse = tuple[int, str]
"""The id of a schema, and the topic or archive that has messages of it."""


def forget_unused(
    durable: DurableBroker, subject: str, version: int | str | None, then: Callable[[object], list[Effect]]
) -> list[Effect]:
    """Scan the topics that had messages of these schemas, forget the uses that have ended, then call `then`. `version`
    None means all versions of the subject.

    Topics with blocks on their way are not scanned. Messages that arrive meanwhile have their use recorded again before
    they are stored.
    """
    ids = _ids_to_delete(durable.registry, subject, version)
    topics = list(durable.topics)
    logs = {topic_place(topic.uid): topic.logs for topic in topics if durable.schema_enforcer.is_quiet(topic)}
    busy = {topic_place(topic.uid) for topic in topics} - logs.keys()
    for schema_id in ids:
        durable.schema_enforcer.take_uses(schema_id)
    catalog = durable.topics.store.catalog.schemas

    def forget(unused: list[SchemaUse] | PenstockError) -> list[Effect]:
        if isinstance(unused, PenstockError):
            return then(unused)
        again = {
            (schema_id, topic_place(uid)) for schema_id in ids for uid in durable.schema_enforcer.take_uses(schema_id)
        }
        return [RunInThread(partial(_forget, catalog, [use for use in unused if use not in again]), then)]

    return (
        [RunInThread(lambda: list(_unused_pairs(catalog, ids, logs, busy)), forget, read_only=True)]
        if ids
        else then(None)
    )


def record_archive_uses(durable: DurableBroker, fields: Fields, then: Callable[[object], list[Effect]]) -> list[Effect]:
    """Record that an archive may have messages of every schema that its topic ever used. Called when the archive
    reports progress.

    Calls `then` once that is durable, or with the error. Raises an error for a topic that does not exist, or an invalid
    subscription name; the archive is known by that name.
    """
    topic, name = durable.topics.find(read.topic_name(fields)), read.text(fields, "subscription")
    check_subscription_name(name)
    catalog, place = durable.topics.store.catalog.schemas, archive_place(name, topic.name)
    return [RunInThread(partial(catalog.copy_uses, topic_place(topic.uid), place), then)]


def with_topic_names(durable: DurableBroker, error: ReferenceExists) -> ReferenceExists:
    """Return the error with the names of topics in place of their uids."""
    names = {topic_place(topic.uid): f"topic {topic.name}" for topic in durable.topics}
    message = _TOPIC.sub(lambda found: names.get(found[0], found[0]), error.message)
    return ReferenceExists(message, **error.details)


def _ids_to_delete(registry: Registry, subject: str, version: int | str | None) -> set[int]:
    """Return the ids of the schemas of these versions. None are returned if a version is not soft-deleted yet: deletion
    for good is then refused anyway."""
    number = None if version is None else parse_version(version)
    versions = [
        registry.version(subject, version, LookupFilter.INCLUDE_DELETED)
        for version in registry.versions(subject, LookupFilter.INCLUDE_DELETED)
    ]
    chosen = [version for version in versions if number in (None, version.version)]
    return {version.schema_id for version in chosen} if all(version.deleted for version in chosen) else set()


def _unused_pairs(
    catalog: SchemaCatalog, ids: set[int], logs: dict[str, tuple[Log, ...]], busy: set[str]
) -> Iterator[SchemaUse]:
    """Yield the recorded uses of these schemas by topics that have no message of them any more. Each log is read once.
    Uses by archives are not checked, nor those by topics in `busy`."""
    to_scan: dict[str, set[int]] = {}
    for schema_id in ids:
        for place in catalog.uses(schema_id):
            if place.startswith(TOPIC_PLACE) and place not in busy:
                to_scan.setdefault(place, set()).add(schema_id)
    for place, candidates in to_scan.items():
        for log in logs.get(place, ()):
            candidates -= _ids_in_log(log, candidates)
        yield from ((schema_id, place) for schema_id in candidates)


def _ids_in_log(log: Log, wanted: Iterable[int]) -> set[int]:
    """Return those of the wanted schema ids that messages in the log have."""
    missing, found = set(wanted), set[int]()
    for columns in _columns(log):
        if not missing:
            break
        seen = missing.intersection(np.unique(columns[:, at.SCHEMA_ID]).tolist())
        missing, found = missing - seen, found | seen
    return found


def _columns(log: Log) -> Iterator[np.ndarray[Any, Any]]:
    offset = int(log.first_offset)
    while offset < int(log.next_offset):
        chunk = log.read(offset, bytes_max=_SCAN_BYTES)
        if len(chunk.block):
            yield chunk.block.columns
        offset = max(int(chunk.next_offset), offset + 1)


def _forget(catalog: SchemaCatalog, uses: list[SchemaUse]) -> None:
    for schema_id, place in uses:
        catalog.forget_use(schema_id, place)
