"""Delta tables by `deltalake`: commit markers are the application transactions of the Delta format.

A commit adds the files and, in the same transaction, one application transaction for the query (its batch), and two for
each partition (the first and the next offset). Two commits that name the same application conflict, and so do a commit
and a change of the table's properties: the second one checks again. The list of partitions and the owner are
properties, since application transactions cannot be listed and hold only a number.
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.schema import Field
from deltalake.transaction import AddAction, CommitProperties, PostCommitHookProperties, RemoveAction, Transaction

from penstock.core.errors import InvalidRequest, ServiceUnavailable
from penstock.spark.lake.tables.columns import canonical
from penstock.spark.lake.tables.file_writer import partition_text
from penstock.spark.lake.tables.table import (
    ATTEMPTS_MAX,
    CommitConflict,
    CommitMarker,
    DataFile,
    LakeTable,
    OffsetSpan,
    TableState,
    TopicPartition,
    marker_from_json,
    marker_to_json,
    spans_after,
    wrong_owner,
)

_OWNER: Final = "penstock.owner"
_SOURCES: Final = "penstock.partitions."
"""Prefix of table properties. After it comes a topic; the value is the number of its partitions that the table
knows."""
_LOCK: Final = "penstock"
"""Name of an application transaction that is part of every commit of a batch: so any two such commits conflict."""
_MARKER: Final = "penstock"
_ONE_TRY: Final = 1
_FIRST_VERSION: Final = 0
_UNMARKED_MAX: Final = 50
"""Number of log entries read in addition to those asked for: some have no marker, and are not batches."""
_READER_FEATURES: Final = frozenset({"timestampNtz", "variantType", "variantType-preview", "vacuumProtocolCheck"})


class DeltaLakeTable(LakeTable):
    table_format: ClassVar[str] = "delta"
    keeps_partition: ClassVar[bool] = False

    _known: DeltaTable | None = None

    def exists(self) -> bool:
        try:
            self._table()
        except TableNotFoundError:
            return False
        return True

    def create(self, schema: pa.Schema, partition_by: str | None = None, *, owner: str | None = None) -> None:
        if self.folder.is_local and unquote(self._uri) != self._uri:
            raise InvalidRequest(
                f"warehouse {self._uri}: the Delta library takes '%' and two digits in a path for one character, and"
                " would write elsewhere; choose another directory, or another format"
            )
        if self.exists():
            return
        self.folder.make()
        is_new = self._try_create(schema, partition_by, {} if owner is None else {_OWNER: owner})
        if is_new:
            self._sync_log(_FIRST_VERSION)

    def _try_create(self, schema: pa.Schema, partition_by: str | None, properties: dict[str, str | None]) -> bool:
        try:
            DeltaTable.create(
                self._uri,
                Schema.from_arrow(schema),
                mode="error",
                partition_by=[] if partition_by is None else [partition_by],
                configuration=properties,
                storage_options=self._options,
                raise_if_key_not_exists=False,
            )
        except (CommitFailedError, DeltaError):
            if not self.exists():
                raise
            return False  # another process created it first
        return True

    def schema(self) -> pa.Schema:
        return canonical(pa.schema(self._table().schema().to_arrow()))

    def partition_by(self) -> str | None:
        return _partition_column(self._table(), self.name)

    def evolve(self, schema: pa.Schema) -> None:
        for _ in range(ATTEMPTS_MAX):
            missing = _missing(self.schema(), schema)
            if not missing:
                return
            with _conflicts(retried=True):
                self._table().alter.add_columns(
                    [Field.from_arrow(field) for field in missing], commit_properties=_properties()
                )
        raise ServiceUnavailable(f"table {self.name}: its columns could not be added", columns=str(missing))

    def table_state(self, query_id: str, sources: Sequence[TopicPartition] | None = None) -> TableState:
        return _table_state(self._table(), query_id, sources)

    def claim(self, query_id: str, *, seen: str | None) -> None:
        while (owner := (table := self._table()).metadata().configuration.get(_OWNER)) != query_id:
            if owner != seen:
                raise wrong_owner(self.name, owner, query_id)
            with _conflicts(retried=True):
                _set_properties(table, {_OWNER: query_id})

    def live(self) -> list[DataFile]:
        table = self._table()
        _check_readable(table, self.name)
        by = _partition_column(table, self.name)
        actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        return [_file_of_action(action, by) for action in actions]

    def replace(self, removed: Sequence[DataFile], added: Sequence[DataFile]) -> None:
        table = self._table()
        live = set(map(unquote, pa.table(table.get_add_actions(flatten=True)).column("path").to_pylist()))
        if any(file.path not in live for file in removed):
            raise CommitConflict
        by, now = _partition_column(table, self.name), _now_ms()
        actions: list[AddAction | RemoveAction] = [_add_action(file, by, changes=False) for file in added]
        actions += [
            RemoveAction(
                file.path,
                data_change=False,
                deletion_timestamp=now,
                size=file.size,
                partition_values=_partition_values(file, by),
            )
            for file in removed
        ]
        self._transact(table, actions, {"penstock.operation": "optimize"}, [])

    def commit_history(self, limit: int | None = None) -> list[tuple[int, CommitMarker]]:
        # Commits without a marker are few: claims, columns, compactions. Each entry of the log is a file to be read.
        entries = self._table().history(None if limit is None else limit + _UNMARKED_MAX)
        marked = [(int(entry["timestamp"]), entry[_MARKER]) for entry in entries if _MARKER in entry][:limit]
        return [(when, marker_from_json(json.loads(text))) for when, text in reversed(marked)]

    def vacuum(self, *, hours: float, dry_run: bool = False) -> list[str]:
        deleted = self._table().vacuum(
            retention_hours=math.ceil(hours),
            dry_run=dry_run,
            enforce_retention_duration=False,  # the caller is responsible for it
            full=True,
        )
        return sorted(deleted)

    def expire(self, *, hours: float) -> int:
        table = self._table()
        before = self._versions()
        retention = f"interval {max(1, int(hours * 3600))} seconds"
        if table.metadata().configuration.get("delta.logRetentionDuration") != retention:
            _set_properties(table, {"delta.logRetentionDuration": retention})
        table = self._table()
        table.create_checkpoint()
        table.cleanup_metadata()
        return max(0, before - self._versions())

    def version(self) -> str:
        return str(self._table().version())

    def _try_commit(self, files: Sequence[DataFile], marker: CommitMarker, state: TableState) -> None:
        spans = spans_after(state, marker)
        self._register_sources(spans)
        table = self._table()
        # Not refreshed from here on: the library checks what others did since the version that this handle has.
        if _table_state(table, marker.query_id, [offsets[:2] for offsets in marker.ranges]) != state:
            raise CommitConflict
        numbers = {_query_transaction_id(marker.query_id): marker.batch_id, _LOCK: table.version() + 1}
        for source, span in spans.items():
            numbers |= {_transaction_id("first", source): span.first, _transaction_id("next", source): span.next}
        self._transact(
            table,
            [_add_action(file, _partition_column(table, self.name)) for file in files],
            {_MARKER: json.dumps(marker_to_json(marker))},
            [Transaction(name, number, _now_ms()) for name, number in numbers.items()],
        )

    # deltalake

    @property
    def _uri(self) -> str:
        return self.folder.uri

    @property
    def _options(self) -> dict[str, str] | None:
        return dict(self.folder.options) or None

    def _table(self) -> DeltaTable:
        """Return the table in its current version. Raises `TableNotFoundError` if there is none."""
        if self._known is None:
            if self.folder.is_local and not (self.folder.local / "_delta_log").is_dir():
                raise TableNotFoundError(f"no Delta table in {self._uri}")
            self._known = DeltaTable(self._uri, storage_options=self._options)
        else:
            self._known.update_incremental()
        return self._known

    def _transact(
        self,
        table: DeltaTable,
        actions: list[AddAction | RemoveAction],
        metadata: dict[str, Any],
        transactions: list[Transaction],
    ) -> None:
        by = table.metadata().partition_columns
        with _conflicts():
            table.create_write_transaction(
                actions, "append", table.schema(), by, commit_properties=_properties(metadata, transactions)
            )
        table.update_incremental()
        self._sync_log(table.version())

    def _register_sources(self, sources: Iterable[TopicPartition]) -> None:
        """Add partitions to the list in the table's properties. This is a commit of its own, before that of the files;
        if the second one fails, the list has a partition without offsets, which does no harm."""
        table = self._table()
        known = dict(_known_partitions(table))
        partitions = dict(known)
        for topic, partition in sources:
            partitions[topic] = max(partitions.get(topic, 0), partition + 1)
        if partitions != known:
            with _conflicts():
                _set_properties(table, {f"{_SOURCES}{topic}": str(count) for topic, count in partitions.items()})

    def _sync_log(self, version: int) -> None:
        self.folder.sync([f"_delta_log/{version:020d}.json", *(["_delta_log"] if version == _FIRST_VERSION else [])])

    def _versions(self) -> int:
        entries = self.folder.list("_delta_log")
        return sum(entry.path.endswith(".json") and Path(entry.path).stem.isdigit() for entry in entries)


@contextlib.contextmanager
def _conflicts(*, retried: bool = False) -> Iterator[None]:
    """Handle a commit that failed because another process committed first: raise `CommitConflict`. With `retried`,
    sleep a moment and raise nothing, since the caller tries again."""
    try:
        yield
    except CommitFailedError:
        if not retried:
            raise CommitConflict from None
        time.sleep(0.05)


def _properties(metadata: dict[str, Any] | None = None, transactions: list[Transaction] | None = None) -> Any:
    return CommitProperties(
        custom_metadata=metadata, max_commit_retries=_ONE_TRY, app_transactions=transactions or None
    )


def _set_properties(table: DeltaTable, properties: dict[str, str]) -> None:
    table.alter.set_table_properties(
        properties, raise_if_not_exists=False, commit_properties=_properties(), post_commithook_properties=_NO_HOOKS
    )


_NO_HOOKS: Final = PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=False)


def _partition_column(table: DeltaTable, name: str) -> str | None:
    columns = table.metadata().partition_columns
    if len(columns) > 1:
        raise InvalidRequest(f"table {name} is partitioned by {len(columns)} columns: one at most is supported")
    return columns[0] if columns else None


def _table_state(table: DeltaTable, query_id: str, sources: Sequence[TopicPartition] | None) -> TableState:
    asked = _sources(table) if sources is None else sources
    spans = {source: span for source in asked if (span := _held_span(table, source)) is not None}
    batch = table.transaction_version(_query_transaction_id(query_id)) if query_id else None
    return TableState(batch, table.metadata().configuration.get(_OWNER), spans)


def _query_transaction_id(query_id: str) -> str:
    return f"penstock/query/{query_id}"


def _transaction_id(what: str, source: TopicPartition) -> str:
    return f"penstock/{what}{source[0]}/{source[1]}"


def _held_span(table: DeltaTable, source: TopicPartition) -> OffsetSpan | None:
    first, after = (table.transaction_version(_transaction_id(what, source)) for what in ("first", "next"))
    return None if first is None or after is None else OffsetSpan(first, after)


def _known_partitions(table: DeltaTable) -> Iterator[tuple[str, int]]:
    for name, value in table.metadata().configuration.items():
        if name.startswith(_SOURCES):
            yield name.removeprefix(_SOURCES), int(value)


def _sources(table: DeltaTable) -> list[TopicPartition]:
    return [(topic, number) for topic, count in _known_partitions(table) for number in range(count)]


def _partition_values(file: DataFile, by: str | None) -> dict[str, str | None]:
    return {} if by is None else {by: file.partition}


def _add_action(file: DataFile, by: str | None, *, changes: bool = True) -> AddAction:
    return AddAction(file.path, file.size, _partition_values(file, by), _now_ms(), changes, file.stats)


def _file_of_action(action: dict[str, Any], by: str | None) -> DataFile:
    low, high = _prefixed(action, "min."), _prefixed(action, "max.")
    rows = action.get("num_records")
    stats = {"numRecords": rows, "minValues": low, "maxValues": high}
    value = None if by is None else partition_text(action.get(f"partition.{by}"))
    # The Delta log has URL-encoded paths; the library encodes the paths it gets, and does not decode those it returns.
    return DataFile(unquote(action["path"]), action["size_bytes"], rows or 0, value, json.dumps(stats, default=str))


def _prefixed(action: dict[str, Any], prefix: str) -> dict[str, Any]:
    """Return the statistics whose names begin with `prefix`, by the rest of the name. Only whole numbers are returned:
    no others are used for skipping files."""
    return {
        name.removeprefix(prefix): value
        for name, value in action.items()
        if name.startswith(prefix) and isinstance(value, int)
    }


def _missing(have: pa.Schema, wanted: pa.Schema) -> list[pa.Field]:
    return [field for field in canonical(wanted) if field.name not in have.names or have.field(field.name) != field]


def _check_readable(table: DeltaTable, name: str) -> None:
    features = set(table.protocol().reader_features or ()) - _READER_FEATURES
    if features:
        raise InvalidRequest(
            f"table {name} uses {', '.join(sorted(features))}, which another program has switched on: its rows cannot"
            " be read file by file. Read it with that program"
        )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
