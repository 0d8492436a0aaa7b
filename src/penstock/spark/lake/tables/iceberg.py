"""Iceberg tables by `pyiceberg`: commit markers are table properties, set in the same commit that adds the files.

PyIceberg by itself retries a commit that came second, and would so commit a batch twice: its retries are switched off,
and `LakeTable.commit` checks again. Every commit here makes a snapshot, also one without files: a change of properties
alone is not checked against concurrent commits. Snapshots may expire, properties do not.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Final

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.io.pyarrow import parquet_file_to_data_file, schema_to_pyarrow
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import DateType, IntegerType, LongType
from sqlalchemy import URL
from sqlalchemy.exc import DBAPIError, IntegrityError

from penstock.core.errors import InvalidRequest, ServiceUnavailable, StorageFailed
from penstock.spark.lake.tables.columns import canonical
from penstock.spark.lake.tables.file_writer import partition_text
from penstock.spark.lake.tables.folder import Folder
from penstock.spark.lake.tables.names import CATALOG_FILE, parse_table_name
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

CATALOG: Final = "penstock"

_OWNER: Final = "penstock.owner"
_BATCH: Final = "penstock.batch."
_SPAN: Final = "penstock.span."
_MARKER: Final = "penstock.marker"
_SCHEMES: Final = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "azure": "az", "abfss": "abfs"}
_RETRIES: Final = {"commit.retry.num-retries": "0"}
_OPENINGS_MAX: Final = 10
_PAUSE_SECONDS: Final = 0.05
_LOCKED_SECONDS: Final = 30
_TABLE_PROPERTIES: Final = {"format-version": "2", "write.metadata.previous-versions-max": "100", **_RETRIES}

# PyIceberg warns of every column without statistics in every file: payloads have none, on purpose.
logging.getLogger("pyiceberg.io.pyarrow").setLevel(logging.ERROR)


def catalog_of(warehouse: Folder, options: Mapping[str, str] | None = None) -> Catalog:
    """Open the catalog that `options` describe, or without options one in a SQLite file in the warehouse, which is
    created if missing. Raises what `check_catalog` does, and `ServiceUnavailable` if the catalog cannot be opened."""
    chosen = dict(options or {})
    name = chosen.pop("name", CATALOG)
    check_catalog(warehouse, options)
    if not chosen and name == CATALOG:
        warehouse.local.mkdir(parents=True, exist_ok=True)
        chosen = {"type": "sql", "uri": _database_url(warehouse.local / CATALOG_FILE)}
    return _open_catalog(name, {"warehouse": warehouse.url} | chosen)


def check_catalog(warehouse: Folder, options: Mapping[str, str] | None = None) -> None:
    """Raise `InvalidRequest` if the warehouse is in an object store and `options` name no catalog. Nothing is
    opened."""
    is_named = dict(options or {}) not in ({}, {"name": CATALOG})
    if not warehouse.is_local and not is_named:
        raise InvalidRequest(
            f"an Iceberg warehouse in {warehouse.uri} needs a catalog beside it: --catalog NAME of PyIceberg's own"
            " configuration, or --catalog-option uri=https://… for a REST catalog"
        )


def _database_url(file: Path) -> str:
    """Return the database URL of the catalog file. With it a connection waits up to 30 seconds while another process
    writes."""
    return URL.create("sqlite", database=str(file), query={"timeout": str(_LOCKED_SECONDS)}).render_as_string()


def _open_catalog(name: str, properties: Mapping[str, str]) -> Catalog:
    """Open a catalog, with retries. Raises `ServiceUnavailable` if the last one fails too.

    A catalog in a database creates its tables when it is first opened. That fails if another process creates them at
    that moment; on the next try they exist.
    """
    for _ in range(_OPENINGS_MAX):
        try:
            return load_catalog(name, **properties)
        except DBAPIError as error:
            reason = str(error.orig)
            time.sleep(_PAUSE_SECONDS)
    raise ServiceUnavailable(f"the Iceberg catalog {name!r} cannot be opened: {reason}", catalog=name)


class IcebergLakeTable(LakeTable):
    table_format: ClassVar[str] = "iceberg"
    keeps_partition: ClassVar[bool] = True

    def __init__(self, name: str, folder: Folder, catalog: Catalog) -> None:
        super().__init__(name, folder)
        self._catalog = catalog
        self._id = parse_table_name(name)
        self._use_catalog_location()

    def _use_catalog_location(self) -> None:
        """Set the folder to the table's real location: a catalog may have put it elsewhere than requested."""
        with contextlib.suppress(NoSuchTableError):
            self.folder = _folder_at(self._table().location(), self.folder)

    def exists(self) -> bool:
        return bool(self._catalog.table_exists(self._id))

    def create(self, schema: pa.Schema, partition_by: str | None = None, *, owner: str | None = None) -> None:
        if self.exists():
            return
        with contextlib.suppress(IntegrityError):  # another process created it at that moment
            self._catalog.create_namespace_if_not_exists(self._id[0])
        properties = _TABLE_PROPERTIES | ({} if owner is None else {_OWNER: owner})
        with (
            contextlib.suppress(TableAlreadyExistsError, CommitFailedException),
            self._catalog.create_table_transaction(
                self._id, schema=schema, location=self.folder.url, properties=properties
            ) as making,
        ):
            if partition_by is not None:
                with making.update_spec() as spec:
                    spec.add_identity(partition_by)
        self._use_catalog_location()

    def schema(self) -> pa.Schema:
        return canonical(schema_to_pyarrow(self._table().schema(), include_field_ids=False))

    def partition_by(self) -> str | None:
        table = self._table()
        names = [table.schema().find_column_name(field.source_id) for field in table.spec().fields]
        if len(names) > 1 or any(str(field.transform) != "identity" for field in table.spec().fields):
            raise InvalidRequest(
                f"table {self.name} is partitioned by {table.spec()}: at most one column, as it is, is supported"
            )
        return names[0] if names else None

    def evolve(self, schema: pa.Schema) -> None:
        for _ in range(ATTEMPTS_MAX):
            if self.schema().equals(canonical(schema)):
                return
            with _conflicts(retried=True), self._table().update_schema() as update:
                update.union_by_name(schema)
        raise StorageFailed(f"table {self.name}: its columns could not be added")

    def table_state(self, query_id: str, sources: Sequence[TopicPartition] | None = None) -> TableState:
        return _table_state(self._table().properties, query_id, sources)

    def claim(self, query_id: str, *, seen: str | None) -> None:
        while (owner := (table := self._table()).properties.get(_OWNER)) != query_id:
            if owner != seen:
                raise wrong_owner(self.name, owner, query_id)
            with _conflicts(retried=True), table.transaction() as change:
                _snapshot(change, [], {"penstock.operation": "claim"})
                change.set_properties({_OWNER: query_id})

    def live(self) -> list[DataFile]:
        schema, by = self._table().schema(), self.partition_by()
        is_day = by is not None and isinstance(schema.find_type(by), DateType)
        whole = {
            field.field_id: field.name
            for field in schema.fields
            if isinstance(field.field_type, IntegerType | LongType)
        }
        return [_data_file(self.folder, file, whole, is_day=is_day) for file in self._tasks()]

    def _tasks(self) -> list[IcebergFile]:
        tasks = list(self._table().scan().plan_files())
        if any(task.delete_files for task in tasks):
            raise InvalidRequest(
                f"table {self.name} has row deletes, which another program has made: its rows cannot be read file by"
                " file. Read it with that program, or let it rewrite the files"
            )
        return [task.file for task in tasks]

    def replace(self, removed: Sequence[DataFile], added: Sequence[DataFile]) -> None:
        table = self._table()
        live = {_relative(self.folder, task.file.file_path): task.file for task in table.scan().plan_files()}
        gone = [file.path for file in removed]
        if any(path not in live for path in gone):
            raise CommitConflict
        with _conflicts(), table.transaction() as change:
            described = self._as_iceberg_files(table, change, added)
            with change.update_snapshot({"penstock.operation": "optimize"}).overwrite() as rewrite:
                for path in gone:
                    rewrite.delete_data_file(live[path])
                for file in described:
                    rewrite.append_data_file(file)

    def commit_history(self, limit: int | None = None) -> list[tuple[int, CommitMarker]]:
        summaries = [(snapshot.timestamp_ms, _summary(snapshot)) for snapshot in self._table().snapshots()]
        marked = [(when, text[_MARKER]) for when, text in summaries if _MARKER in text]
        chosen = marked if limit is None else marked[max(0, len(marked) - limit) :]
        return [(when, marker_from_json(json.loads(text))) for when, text in chosen]

    def vacuum(self, *, hours: float, dry_run: bool = False) -> list[str]:
        before_ms = time.time() * 1000 - hours * 3_600_000
        # Listed first: what is committed after the listing is not in it.
        old = [file for file in self.folder.list() if file.modified_ms < before_ms]
        in_use = self._files_in_use()
        unused = sorted(file.path for file in old if file.path not in in_use)
        if not dry_run:
            self.folder.delete(unused)
        return unused

    def _files_in_use(self) -> set[str]:
        """Return the paths of all files that the table uses: data and manifests of every snapshot, metadata and
        statistics. Raises `InvalidRequest` if one of them is not below the table's folder."""
        table = self._table()
        paths = {table.metadata_location, *(entry.metadata_file for entry in table.metadata.metadata_log)}
        for snapshot in table.snapshots():
            paths.add(snapshot.manifest_list)
            for manifest in snapshot.manifests(table.io):
                paths.add(manifest.manifest_path)
                entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
                paths |= {entry.data_file.file_path for entry in entries}
        metadata = table.metadata
        paths |= {entry.statistics_path for entry in (*metadata.statistics, *metadata.partition_statistics)}
        return {self._path_in_folder(path) for path in paths} | {"metadata/version-hint.text"}

    def _path_in_folder(self, address: str) -> str:
        """Return the path, relative to the table's folder, of the file at `address`. Raises `InvalidRequest` if the
        address does not begin with the folder's."""
        path = _relative(self.folder, address)
        if path == address:
            raise InvalidRequest(
                f"table {self.name} uses {address}, which is not below {self.folder.uri}: which of the files there are"
                " in use cannot be told for sure. Delete unused ones with the program that wrote them",
                table=self.name,
                address=address,
            )
        return path

    def expire(self, *, hours: float) -> int:
        moment_ms = time.time() * 1000 - hours * 3_600_000
        for _ in range(ATTEMPTS_MAX):
            table = self._table()
            old = _replaced_before(table.snapshots(), moment_ms)
            with _conflicts(retried=True):
                if old:
                    table.maintenance.expire_snapshots().by_ids(old).commit()
                return len(old)
        raise ServiceUnavailable(f"table {self.name}: others commit all the time; try again")

    def version(self) -> str:
        snapshot = self._table().current_snapshot()
        return "-" if snapshot is None else str(snapshot.snapshot_id)

    def _try_commit(self, files: Sequence[DataFile], marker: CommitMarker, state: TableState) -> None:
        table = self._table()
        if _table_state(table.properties, marker.query_id, [offsets[:2] for offsets in marker.ranges]) != state:
            raise CommitConflict
        spans = {_span_key(source): f"{span.first}-{span.next}" for source, span in spans_after(state, marker).items()}
        with _conflicts(), table.transaction() as change:
            summary = {_MARKER: json.dumps(marker_to_json(marker))}
            _snapshot(change, self._as_iceberg_files(table, change, files), summary)
            change.set_properties(_RETRIES | spans | {f"{_BATCH}{marker.query_id}": str(marker.batch_id)})

    # pyiceberg

    def _table(self) -> Table:
        return self._catalog.load_table(self._id)

    def _address(self, file: DataFile) -> str:
        return f"{self.folder.url}/{file.path}"

    def _as_iceberg_files(self, table: Table, change: Transaction, files: Sequence[DataFile]) -> list[IcebergFile]:
        """Return Iceberg's descriptions of files, read from their footers. The files have no Iceberg field ids, so the
        table gets a name mapping, if it has none, by which readers match columns by name."""
        if files and table.name_mapping() is None:
            change.set_properties({"schema.name-mapping.default": table.schema().name_mapping.model_dump_json()})
        return [parquet_file_to_data_file(table.io, change.table_metadata, self._address(file)) for file in files]


def _snapshot(change: Transaction, files: Sequence[IcebergFile], summary: dict[str, str]) -> None:
    with change.update_snapshot(summary).fast_append() as appended:
        for file in files:
            appended.append_data_file(file)


@contextlib.contextmanager
def _conflicts(*, retried: bool = False) -> Iterator[None]:
    """Handle a commit that failed because another process committed first: raise `CommitConflict`. With `retried`,
    sleep a moment and raise nothing, since the caller tries again."""
    try:
        yield
    except CommitFailedException:
        if not retried:
            raise CommitConflict from None
        time.sleep(_PAUSE_SECONDS)


def _table_state(properties: Mapping[str, str], query_id: str, sources: Sequence[TopicPartition] | None) -> TableState:
    batch = properties.get(f"{_BATCH}{query_id}")
    spans = {source: span for source, span in _spans(properties) if sources is None or source in sources}
    return TableState(None if batch is None else int(batch), properties.get(_OWNER), spans)


def _spans(properties: Mapping[str, str]) -> Iterator[tuple[TopicPartition, OffsetSpan]]:
    for name, value in properties.items():
        if name.startswith(_SPAN):
            topic, _, partition = name.removeprefix(_SPAN).rpartition("/")
            first, _, after = value.partition("-")
            yield (topic, int(partition)), OffsetSpan(int(first), int(after))


def _span_key(source: TopicPartition) -> str:
    return f"{_SPAN}{source[0]}/{source[1]}"


def _replaced_before(snapshots: Sequence[Snapshot], moment_ms: float) -> list[int]:
    """Return the ids of the snapshots that another one followed before that time (Unix ms): no reader has begun with
    them since."""
    in_order = sorted(snapshots, key=lambda each: (each.sequence_number or 0, each.timestamp_ms))
    return [before.snapshot_id for before, after in pairwise(in_order) if after.timestamp_ms < moment_ms]


def _summary(snapshot: Any) -> Mapping[str, str]:
    return {} if snapshot.summary is None else snapshot.summary.additional_properties


def _data_file(folder: Folder, file: IcebergFile, whole: Mapping[int, str], *, is_day: bool) -> DataFile:
    value = file.partition[0] if len(file.partition) else None
    stats = {
        "numRecords": file.record_count,
        "minValues": _bounds(file.lower_bounds, whole),
        "maxValues": _bounds(file.upper_bounds, whole),
    }
    path, size = _relative(folder, file.file_path), file.file_size_in_bytes
    partition = _day(value) if is_day else partition_text(value)
    return DataFile(path, size, file.record_count, partition, json.dumps(stats))


def _bounds(found: Mapping[int, bytes] | None, whole: Mapping[int, str]) -> dict[str, int]:
    """Return the bounds of columns of whole numbers, by column name. `found` has Iceberg's bounds, little-endian bytes,
    by field id; `whole` has the names of whole-number columns by field id. Files are skipped by no other columns."""
    named = ((whole[number], value) for number, value in (found or {}).items() if number in whole)
    return {name: int.from_bytes(value, "little", signed=True) for name, value in named}


def _day(value: Any) -> str | None:
    """Return the text of a date partition. A whole number is the days since 1970, as Iceberg keeps dates."""
    if isinstance(value, int):
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=value)).date().isoformat()
    return partition_text(value)


def _relative(folder: Folder, address: str) -> str:
    """Return the path, relative to the folder, of the file at `address`. If the file is not below the folder, return
    `address` unchanged."""
    plain, start = _normalized(address), f"{_normalized(folder.uri)}/"
    return plain.removeprefix(start) if plain.startswith(start) else address


def _normalized(address: str) -> str:
    """Return an address in one spelling, for comparison: `s3a:` becomes `s3:`, for example, and a `file:` URL becomes a
    path."""
    scheme, colon, rest = address.partition(":")
    if not colon or "/" in scheme:
        return address
    return "/" + rest.lstrip("/") if scheme == "file" else f"{_SCHEMES.get(scheme, scheme)}:{rest}"


def _folder_at(location: str, known: Folder) -> Folder:
    """Return the folder at a location that the catalog gives, with the storage options of `known`. A local path in it
    is not URL-encoded."""
    plain = _normalized(location)
    if plain.startswith("/"):
        return Folder(plain.rstrip("/"))
    return Folder.parse(location, dict(known.options))
