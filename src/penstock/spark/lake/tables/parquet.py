"""Plain Parquet tables, the simple format: numbered manifests in `_manifests` decide which files belong to the table.

`_manifests/00000000000000000007.json` is created whole or not at all, and never replaced: a writer that comes second
with a number reads again. Each manifest has the files that it adds and removes and the table's whole state; every so
often one lists all files, so that older manifests need not be read and may expire.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar, Final

import pyarrow as pa

from penstock.core.errors import ServiceUnavailable, StorageFailed
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

FORMAT: Final = 1
MANIFESTS: Final = "_manifests/"
FULL_EVERY: Final = 50
"""Manifests whose number is a multiple of this list all files of the table; others list only their changes. So opening
a table reads at most that many manifests, and most commits write small ones."""

_MANIFEST_NAME: Final = re.compile(r"_manifests/([0-9]{20})\.json")


@dataclass(frozen=True, slots=True)
class _Manifest:
    """The state of the table after a manifest."""

    number: int
    schema: pa.Schema
    partition_by: str | None
    owner: str | None = None
    batches: Mapping[str, int] = field(default_factory=dict)
    spans: Mapping[TopicPartition, OffsetSpan] = field(default_factory=dict)
    files: Mapping[str, DataFile] = field(default_factory=dict)


class ParquetLakeTable(LakeTable):
    table_format: ClassVar[str] = "parquet"
    keeps_partition: ClassVar[bool] = False

    def exists(self) -> bool:
        return bool(self._manifest_numbers())

    def create(self, schema: pa.Schema, partition_by: str | None = None, *, owner: str | None = None) -> None:
        if not self.exists():
            self._write(_Manifest(0, schema, partition_by, owner), {"operation": "create"}, {}, full=True)

    def schema(self) -> pa.Schema:
        return self._manifest().schema

    def partition_by(self) -> str | None:
        return self._manifest().partition_by

    def evolve(self, schema: pa.Schema) -> None:
        while not (manifest := self._manifest()).schema.equals(schema):
            if self._write(replace(manifest, number=manifest.number + 1, schema=schema), {"operation": "evolve"}, {}):
                return

    def table_state(self, query_id: str, sources: Sequence[TopicPartition] | None = None) -> TableState:
        return _table_state(self._manifest(), query_id, sources)

    def claim(self, query_id: str, *, seen: str | None) -> None:
        while (manifest := self._manifest()).owner != query_id:
            if manifest.owner != seen:
                raise wrong_owner(self.name, manifest.owner, query_id)
            if self._write(replace(manifest, number=manifest.number + 1, owner=query_id), {"operation": "claim"}, {}):
                return

    def live(self) -> list[DataFile]:
        return list(self._manifest().files.values())

    def replace(self, removed: Sequence[DataFile], added: Sequence[DataFile]) -> None:
        manifest = self._manifest()
        if any(file.path not in manifest.files for file in removed):
            raise CommitConflict
        gone = {file.path for file in removed}
        files = {path: file for path, file in manifest.files.items() if path not in gone} | _by_path(added)
        after = replace(manifest, number=manifest.number + 1, files=files)
        body = {"operation": "optimize", "remove": sorted(gone)}
        if not self._write(after, body, _by_path(added)):
            raise CommitConflict

    def commit_history(self, limit: int | None = None) -> list[tuple[int, CommitMarker]]:
        history: list[tuple[int, CommitMarker]] = []
        for number in reversed(self._manifest_numbers()):
            if limit is not None and len(history) >= limit:
                break
            with contextlib.suppress(FileNotFoundError):  # expired since it was listed
                body = self._read_body(number)
                if "marker" in body:
                    history.append((int(body["time_ms"]), marker_from_json(body["marker"])))
        return history[::-1]

    def vacuum(self, *, hours: float, dry_run: bool = False) -> list[str]:
        before_ms = _now_ms() - hours * 3_600_000
        # Listed first: files committed after the listing are not in it, and the state is read behind it.
        old = [file for file in self.folder.list() if file.modified_ms < before_ms]
        in_use = set(self._manifest().files) | self._recently_removed(before_ms)
        unused = sorted(file.path for file in old if file.path.endswith(".parquet") and file.path not in in_use)
        if not dry_run:
            self.folder.delete(unused)
        return unused

    def _recently_removed(self, before_ms: float) -> set[str]:
        """Return the paths of files that were removed from the table at or after `before_ms` (Unix ms): a reader that
        began before may still use them."""
        bodies = map(self._read_body, self._manifest_numbers())
        return {path for body in bodies if body["time_ms"] >= before_ms for path in body.get("remove", ())}

    def expire(self, *, hours: float) -> int:
        before_ms = _now_ms() - hours * 3_600_000
        whole = self._last_full_manifest()
        old = [
            number
            for number in self._manifest_numbers()
            if number < whole and self._read_body(number)["time_ms"] < before_ms
        ]
        self.folder.delete([_manifest_path(number) for number in old])
        return len(old)

    def _last_full_manifest(self) -> int:
        """Return the number of a manifest that lists all files, so that older manifests are not needed. If the last
        one does not, write one. Raises `ServiceUnavailable` if other processes always commit first."""
        for _ in range(ATTEMPTS_MAX):
            last = self._manifest_numbers()[-1]
            if "files" in self._read_body(last):
                return last
            manifest = self._manifest()
            number = manifest.number + 1
            written = self._write(replace(manifest, number=number), {"operation": "expire"}, {}, full=True)
            if written and "files" in self._read_body(number):
                return number
        raise ServiceUnavailable(f"table {self.name}: others commit all the time; try again", table=self.name)

    def version(self) -> str:
        return str(self._manifest_numbers()[-1])

    def _try_commit(self, files: Sequence[DataFile], marker: CommitMarker, state: TableState) -> None:
        manifest = self._manifest()
        if _table_state(manifest, marker.query_id, [offsets[:2] for offsets in marker.ranges]) != state:
            raise CommitConflict
        after = replace(
            manifest,
            number=manifest.number + 1,
            batches={**manifest.batches, marker.query_id: marker.batch_id},
            spans={**manifest.spans, **spans_after(state, marker)},
            files={**manifest.files, **_by_path(files)},
        )
        if not self._write(after, {"operation": "append", "marker": marker_to_json(marker)}, _by_path(files)):
            raise CommitConflict

    # manifests

    def _manifest_numbers(self) -> list[int]:
        matches = [_MANIFEST_NAME.fullmatch(file.path) for file in self.folder.list(MANIFESTS)]
        return sorted(int(match[1]) for match in matches if match is not None)

    def _read_body(self, number: int) -> dict[str, Any]:
        body: dict[str, Any] = json.loads(self.folder.read(_manifest_path(number)))
        if body.get("format") != FORMAT:
            raise StorageFailed(
                f"table {self.name}: {_manifest_path(number)} has format {body.get('format')}; this Penstock"
                f" reads {FORMAT}"
            )
        return body

    def _manifest(self) -> _Manifest:
        for _ in range(ATTEMPTS_MAX):
            numbers = self._manifest_numbers()
            if not numbers:
                raise StorageFailed(f"table {self.name} is not there: {self.folder.uri} has no manifests")
            with contextlib.suppress(FileNotFoundError):  # expired since they were listed: a newer one lists all files
                return self._manifest_at(numbers)
        raise StorageFailed(f"table {self.name}: manifests that {self.folder.uri} lists cannot be read")

    def _manifest_at(self, numbers: list[int]) -> _Manifest:
        bodies = []
        for number in reversed(numbers):
            bodies.append(self._read_body(number))
            if "files" in bodies[-1]:
                break
        else:
            raise StorageFailed(
                f"table {self.name}: none of its manifests lists all files, so it is not known which are the table;"
                f" restore {self.folder.full(MANIFESTS)} from a backup",
                table=self.name,
            )
        files = _by_path(file_from_json(file) for file in bodies[-1]["files"])
        for body in reversed(bodies[:-1]):
            files |= _by_path(file_from_json(file) for file in body.get("add", ()))
            files = {path: file for path, file in files.items() if path not in body.get("remove", ())}
        return _manifest_of(numbers[-1], bodies[0], files)

    def _write(
        self, manifest: _Manifest, body: dict[str, Any], added: Mapping[str, DataFile], *, full: bool = False
    ) -> bool:
        """Write a manifest, durable on return. Return False, and write nothing, if one with its number exists.

        `body` has the fields of this change, `added` the files that it adds. With `full` the manifest lists all files.
        """
        whole = full or manifest.number % FULL_EVERY == 0
        body = {
            "format": FORMAT,
            "time_ms": _now_ms(),
            **body,
            "columns": {field.name: str(field.type) for field in manifest.schema},
            "schema": base64.b64encode(manifest.schema.serialize()).decode(),
            "partition_by": manifest.partition_by,
            "owner": manifest.owner,
            "batches": dict(manifest.batches),
            "spans": [[*source, *span] for source, span in sorted(manifest.spans.items())],
            "add": [asdict(file) for file in added.values()],
        } | ({"files": [asdict(file) for file in manifest.files.values()]} if whole else {})
        return self.folder.put_new(_manifest_path(manifest.number), json.dumps(body).encode())


def _manifest_of(number: int, body: Mapping[str, Any], files: Mapping[str, DataFile]) -> _Manifest:
    return _Manifest(
        number,
        pa.ipc.read_schema(pa.py_buffer(base64.b64decode(body["schema"]))),
        body["partition_by"],
        body["owner"],
        body["batches"],
        {(topic, partition): OffsetSpan(first, after) for topic, partition, first, after in body["spans"]},
        files,
    )


def _table_state(manifest: _Manifest, query_id: str, sources: Sequence[TopicPartition] | None) -> TableState:
    spans = {source: span for source, span in manifest.spans.items() if sources is None or source in sources}
    return TableState(manifest.batches.get(query_id), manifest.owner, spans)


def _by_path(files: Any) -> dict[str, DataFile]:
    return {file.path: file for file in files}


def _manifest_path(number: int) -> str:
    return f"{MANIFESTS}{number:020d}.json"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def file_from_json(described: Mapping[str, Any]) -> DataFile:
    return DataFile(**described)
