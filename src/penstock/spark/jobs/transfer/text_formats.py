"""Messages as lines of text, JSON objects or CSV, with every field. Use it through `file_formats`.

A payload or key that is text is written as text, any other in base64; a field shows which of the two it is. Ids are
written in their text form, times in ISO 8601.
"""

from __future__ import annotations

import base64
import binascii
import csv
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.errors import InvalidRequest, PenstockError
from penstock.core.ids import parse_id
from penstock.spark.scan.columns import COLUMNS

ROWS: Final = 5_000
"""Most rows of one batch that is read from a file."""
_LINE_BYTES_MAX: Final = 256 << 20
"""Most characters of one CSV field: enough for the largest payload in base64."""
_NUMBERS: Final = ("partition", "offset", "producer_id", "request_id", "schema_id", "schema_version")
_TEXTS: Final = ("topic", "type", "producer_name")
_BYTES: Final = ("key", "value")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f]")
_TIME: Final = "%Y-%m-%dT%H:%M:%SZ"

Row = dict[str, Any]
"""A message: a value for each column of the log, None for a missing one."""


def check_fields(names: Iterable[str], allowed: Iterable[str] = COLUMNS.names) -> None:
    """Raise `InvalidRequest` if one of the names is not in `allowed`, the fields of a message."""
    for name in names:
        if name not in allowed:
            raise InvalidRequest(
                f"no field {name!r}: a message has {', '.join(allowed)}. (`penstock produce` publishes lines that are"
                " payloads themselves.)",
                field=name,
            )


def _at_line(error: InvalidRequest, path: Path, line: int) -> InvalidRequest:
    """Return the error with the file and line."""
    return InvalidRequest(f"{path}, line {line}: {error.message}", line=line, **error.details)


# columns and rows


def _rows(batch: pa.RecordBatch) -> Iterator[Row]:
    columns = [_TO_TEXT.get(name, pa.Array.to_pylist)(batch.column(name)) for name in COLUMNS.names]
    for values in zip(*columns, strict=True):
        yield dict(zip(COLUMNS.names, values, strict=True))


def _times(column: pa.Array) -> list[str]:
    texts: list[str] = pc.strftime(column.cast(pa.timestamp("ms", "UTC")), format=_TIME).to_pylist()
    return texts


def _ids(column: pa.Array) -> list[str]:
    digits = (value.hex() for value in column.to_pylist())
    return [f"{id_[:8]}-{id_[8:12]}-{id_[12:16]}-{id_[16:20]}-{id_[20:]}" for id_ in digits]


def _maps(column: pa.Array) -> list[dict[str, str]]:
    if not len(column.keys):
        return [{}] * len(column)
    return [dict(pairs or ()) for pairs in column.to_pylist()]


_TO_TEXT: Final = {"timestamp": _times, "id": _ids, "attributes": _maps}


def _batches(rows: Iterable[Row], columns: Iterable[str]) -> Iterator[pa.RecordBatch]:
    names, gathered = list(columns), list[Row]()
    for row in rows:
        gathered.append(row)
        if len(gathered) >= ROWS:
            yield _batch(gathered, names)
            gathered = []
    if gathered:
        yield _batch(gathered, names)


def _batch(rows: list[Row], columns: list[str]) -> pa.RecordBatch:
    """Return a batch with those of `columns` for which some row has a value, and always `value`. A field that no row
    has is left out, not filled with nulls."""
    values = {name: [row.get(name) for row in rows] for name in columns}
    present = {
        name: column for name, column in values.items() if name == "value" or any(one is not None for one in column)
    }
    arrays = [pa.array(column, COLUMNS.field(name).type) for name, column in present.items()]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([COLUMNS.field(name) for name in present]))


# values as text


def _text(data: bytes) -> str | None:
    """Return the bytes as text; None if only base64 can represent them exactly."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _from_base64(text: Any, name: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise InvalidRequest(f"{name} is not base64", field=name) from None


def _parse_row(row: Row, columns: Iterable[str]) -> Row:
    """Return the row with its id and time parsed, if they are among `columns`. Raises `InvalidRequest` for a field of a
    wrong type, and for a missing payload."""
    try:
        if row.get("id") is not None and "id" in columns:
            row["id"] = parse_id(row["id"])
        if row.get("timestamp") is not None and "timestamp" in columns:
            row["timestamp"] = _parse_time(row["timestamp"])
    except (PenstockError, TypeError, ValueError) as error:
        raise InvalidRequest(f"{error}") from None
    for name in _NUMBERS:
        if type(row.get(name, 0)) is not int and row[name] is not None:
            raise InvalidRequest(f"{name} is no whole number: {row[name]!r}", field=name)
    for name in _TEXTS:
        if not isinstance(row.get(name, ""), str | None):
            raise InvalidRequest(f"{name} is no text: {row[name]!r}", field=name)
    if row.get("value") is None:
        raise InvalidRequest("the payload is missing: value, or value_base64", field="value")
    return row


def _parse_time(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return aware.astimezone(UTC)


def _attributes(given: Any) -> list[tuple[str, str]] | None:
    if given is None:
        return None
    if not isinstance(given, Mapping) or not all(isinstance(text, str) for pair in given.items() for text in pair):
        raise InvalidRequest("attributes is an object of texts", field="attributes")
    return list(given.items())


# JSON lines


class JsonWriter:
    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")

    def write(self, batch: pa.RecordBatch) -> None:
        lines = [msgspec.json.encode(_as_json(row)) for row in _rows(batch)]
        self._file.write(b"\n".join([*lines, b""]))

    def close(self) -> None:
        self._file.close()


def _as_json(row: Row) -> Row:
    """Return the row as a JSON object: without missing fields, and with bytes as text or, under `NAME_base64`, in
    base64."""
    fields: Row = {}
    for name, value in row.items():
        if value is None or value == {}:
            continue
        if name not in _BYTES:
            fields[name] = value
        elif (text := _text(value)) is not None:
            fields[name] = text
        else:
            fields[f"{name}_base64"] = base64.b64encode(value).decode()
    return fields


_JSON_FIELDS: Final = frozenset((*COLUMNS.names, "key_base64", "value_base64"))


def read_json(path: Path, columns: Iterable[str]) -> Iterator[pa.RecordBatch]:
    with path.open("rb") as file:
        yield from _batches(_json_rows(file, path, columns), columns)


def _json_rows(lines: Iterable[bytes], path: Path, columns: Iterable[str]) -> Iterator[Row]:
    for number, line in enumerate(lines, 1):
        if line.isspace():
            continue
        try:
            yield _from_json(line, columns)
        except InvalidRequest as error:
            raise _at_line(error, path, number) from None


def _from_json(line: bytes, columns: Iterable[str]) -> Row:
    try:
        row = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequest(f"no JSON object: {error}") from None
    if not isinstance(row, dict):
        raise InvalidRequest(f"no JSON object, but {type(row).__name__}")
    if not row.keys() <= _JSON_FIELDS:
        check_fields(row, (*COLUMNS.names, "key_base64", "value_base64"))
    for name in _BYTES:
        row[name] = _json_bytes(row, name)
    row["attributes"] = _attributes(row.get("attributes"))
    return _parse_row(row, columns)


def _json_bytes(row: Row, name: str) -> bytes | None:
    coded, text = row.get(f"{name}_base64"), row.get(name)
    if coded is not None:
        return _from_base64(coded, f"{name}_base64")
    if text is not None and not isinstance(text, str):
        raise InvalidRequest(f"{name} is text, not {type(text).__name__}: write JSON as a text", field=name)
    return None if text is None else text.encode()


# CSV

_ENCODED: Final = ("key_encoding", "value_encoding")
_CSV_FIELDS: Final = tuple(
    name for column in COLUMNS.names for name in ((f"{column}_encoding", column) if column in _BYTES else (column,))
)
"""Columns of the CSV. The column before `key` or `value` has its encoding: `text`, `base64`, or empty for no key."""


class CsvWriter:
    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8", newline="")
        self._writer = csv.DictWriter(self._file, _CSV_FIELDS)
        self._writer.writeheader()

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.writerows(_as_csv(row) for row in _rows(batch))

    def close(self) -> None:
        self._file.close()


def _as_csv(row: Row) -> Row:
    row["attributes"] = msgspec.json.encode(row["attributes"]).decode() if row["attributes"] else ""
    for name in _BYTES:
        row[f"{name}_encoding"], row[name] = _csv_bytes(row[name])
    return row


def _csv_bytes(data: bytes | None) -> tuple[str, str]:
    """Return the encoding (`text`, `base64`, or empty for None) and the bytes in it.

    Base64 is for bytes that are not UTF-8, and for text with control characters other than tab and line feed,
    because tools differ in reading those from CSV.
    """
    if data is None:
        return "", ""
    text = _text(data)
    return ("text", text) if text is not None and not _CONTROL.search(text) else ("base64", _base64(data))


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def read_csv(path: Path, columns: Iterable[str]) -> Iterator[pa.RecordBatch]:
    csv.field_size_limit(min(_LINE_BYTES_MAX, sys.maxsize))
    with path.open(encoding="utf-8", newline="") as file:
        yield from _batches(_csv_rows(csv.DictReader(file, strict=True), path, columns), columns)


def _csv_rows(reader: csv.DictReader[str], path: Path, columns: Iterable[str]) -> Iterator[Row]:
    try:
        check_fields(reader.fieldnames or (), _CSV_FIELDS)
        for fields in reader:
            yield _from_csv(fields, columns)
    except InvalidRequest as error:
        raise _at_line(error, path, reader.line_num) from None
    except (csv.Error, UnicodeDecodeError) as error:
        raise InvalidRequest(f"{path}, after line {reader.line_num}: {error}") from None


def _from_csv(fields: Mapping[str, Any], columns: Iterable[str]) -> Row:
    if None in fields or None in fields.values():
        raise InvalidRequest("another number of fields than the first line names")
    row: Row = {name: text or None for name, text in fields.items() if name not in _ENCODED}
    for name in _BYTES:
        row[name] = _bytes_from_csv(fields, name)
    for name in _NUMBERS:
        row[name] = _number(row.get(name), name)
    try:
        row["attributes"] = _attributes(msgspec.json.decode(row.get("attributes") or "null"))
    except msgspec.DecodeError:
        raise InvalidRequest("attributes is an object of texts in JSON", field="attributes") from None
    return _parse_row(row, columns)


def _number(text: str | None, name: str) -> int | None:
    if text is None:
        return None
    if not text.removeprefix("-").isdecimal() or not text.isascii():
        raise InvalidRequest(f"{name} is no whole number: {text!r}", field=name)
    return int(text)


def _bytes_from_csv(fields: Mapping[str, str], name: str) -> bytes | None:
    """Return the bytes of the field `key` or `value`; None for no key. If the file has no column for its encoding, the
    field is text, and an empty key means no key. Raises `InvalidRequest` for an unknown encoding."""
    text = fields.get(name, "")
    coding = fields.get(f"{name}_encoding", "text" if text or name == "value" else "")
    if coding == "base64":
        return _from_base64(text, name)
    if coding not in ("", "text"):
        raise InvalidRequest(f"{name}_encoding is {coding!r}: expected text or base64", field=name)
    return text.encode() if coding else None
