"""Messages in files: every field of any content survives the round trip; an error names its line."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.core.errors import InvalidRequest
from penstock.spark.jobs.transfer.file_formats import FileFormat, format_of, read, writer_of
from penstock.spark.scan.columns import COLUMNS

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
PAYLOAD = st.binary(max_size=20) | TEXT.map(str.encode) | st.sampled_from([b"", b"a,b", b'"', b"x\r\ny", b"\r", b"\0"])
NUMBER = st.integers(0, 2**63 - 1)
ROW = st.fixed_dictionaries(
    {
        "key": st.none() | PAYLOAD,
        "value": PAYLOAD,
        "topic": st.sampled_from(["/default/a", "/shop/b.c"]),
        "partition": st.integers(0, 1023),
        "offset": NUMBER,
        "timestamp": st.integers(0, 4_000_000_000_000).map(lambda ms: datetime.fromtimestamp(ms // 1000, UTC)),
        "id": st.integers(0, 2**60 - 1).map(lambda n: bytes.fromhex(f"1f0c2a4e7b1d6c009{n:015x}")),
        "type": TEXT,
        "producer_name": TEXT,
        "producer_id": NUMBER,
        "request_id": NUMBER,
        "attributes": st.dictionaries(TEXT.filter(bool), TEXT, max_size=3).map(lambda found: list(found.items())),
        "schema_id": st.none() | NUMBER,
        "schema_version": st.none() | st.integers(0, 2**31 - 1),
    }
)
FILES = [FileFormat.PARQUET, FileFormat.JSONL, FileFormat.CSV]


def written(kind: FileFormat, path: Path, rows: list[dict[str, Any]]) -> Path:
    writer = writer_of(kind, path)
    writer.write(pa.RecordBatch.from_pylist(rows, COLUMNS))
    writer.close()
    return path


def rows_of(kind: FileFormat, path: Path) -> list[dict[str, Any]]:
    """Return every column as the log would take it: an absent field is None, and None is not empty."""
    found = []
    for batch in read(kind, path):
        for row in batch.to_pylist():
            whole = {name: row.get(name) for name in COLUMNS.names}
            whole |= {name: whole[name] or "" for name in ("type", "producer_name")}
            found.append(whole | {"attributes": whole["attributes"] or []})
    return found


@pytest.mark.parametrize("kind", FILES)
@given(rows=st.lists(ROW, min_size=1, max_size=8))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_field_of_every_message_comes_back(tmp_path: Path, kind: FileFormat, rows: list[dict[str, Any]]) -> None:
    assert rows_of(kind, written(kind, tmp_path / "file", rows)) == rows


def test_text_stays_text_for_people(tmp_path: Path) -> None:
    row = {
        "value": b'{"n": 1}',
        "key": b"\xff",
        "topic": "/default/a",
        "partition": 0,
        "offset": 7,
        "timestamp": datetime(2026, 1, 31, 12, tzinfo=UTC),
        "id": bytes.fromhex("1f0c2a4e7b1d6c009a3f0123456789ab"),
        "type": "t",
        "attributes": [],
    }
    assert written(FileFormat.JSONL, tmp_path / "a.jsonl", [row]).read_text() == (
        '{"key_base64":"/w==","value":"{\\"n\\": 1}","topic":"/default/a","partition":0,"offset":7,'
        '"timestamp":"2026-01-31T12:00:00.000Z","id":"1f0c2a4e-7b1d-6c00-9a3f-0123456789ab","type":"t"}\n'
    )
    header, line = written(FileFormat.CSV, tmp_path / "a.csv", [row]).read_text().splitlines()
    assert header.startswith("key_encoding,key,value_encoding,value,topic,partition,offset,timestamp,id,type")
    assert line.startswith('base64,/w==,text,"{""n"": 1}",/default/a,0,7,2026-01-31T12:00:00.000Z,1f0c2a4e-')


def test_little_is_enough_of_a_file_that_somebody_else_wrote(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"value": "one"}\n\n{"value": "two", "key": "k"}\n')
    (tmp_path / "a.csv").write_text("key,value\n,one\nk,two\n")
    for kind, name in ((FileFormat.JSONL, "a.jsonl"), (FileFormat.CSV, "a.csv")):
        found = [(row["key"], row["value"], row["topic"]) for row in rows_of(kind, tmp_path / name)]
        assert found == [(None, b"one", None), (b"k", b"two", None)]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.jsonl", '{"value": "a"}\nnothing', "line 2: no JSON object"),
        ("a.jsonl", '{"value": "a", "colour": 1}', "line 1: no field 'colour'"),
        ("a.jsonl", '{"key": "a"}', "line 1: the payload is missing"),
        ("a.jsonl", '{"value": {"a": 1}}', "value is text, not dict: write JSON as a text"),
        ("a.jsonl", '{"value_base64": "??"}', "value_base64 is not base64"),
        ("a.jsonl", '{"value": "a", "schema_id": "7"}', "schema_id is no whole number: '7'"),
        ("a.jsonl", '{"value": "a", "timestamp": "soon"}', "line 1: Invalid isoformat string: 'soon'"),
        ("a.jsonl", '{"value": "a", "attributes": {"a": 1}}', "attributes is an object of texts"),
        ("a.jsonl", '{"value": "a", "topic": 3}', "topic is no text: 3"),
        ("a.csv", "value,colour\na,b\n", "line 1: no field 'colour'"),
        ("a.csv", "key,value\na\n", "line 2: another number of fields"),
        ("a.csv", "value_encoding,value\nhex,00\n", "value_encoding is 'hex': expected text or base64"),
        ("a.csv", "value,partition\na,x\n", "partition is no whole number: 'x'"),
        ("a.csv", 'value,attributes\na,"{"\n', "attributes is an object of texts in JSON"),
        ("a.parquet", "no such thing", "cannot be read as Parquet"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path: Path, name: str, text: str, said: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InvalidRequest) as caught:
        list(read(format_of(tmp_path / name, None), tmp_path / name))
    assert said in caught.value.message


def test_a_file_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    for name in ("a.jsonl", "a.csv"):
        (tmp_path / name).write_bytes(b'value\n{"value": "\xff"}\n')
        with pytest.raises(InvalidRequest):
            list(read(format_of(tmp_path / name, None), tmp_path / name))


def test_the_name_or_the_option_tells_the_format(tmp_path: Path) -> None:
    assert format_of(Path("a.PARQUET"), None) is FileFormat.PARQUET
    assert format_of(Path("a.txt"), "csv") is FileFormat.CSV
    assert format_of(tmp_path, None) is FileFormat.DIRECTORY
    with pytest.raises(InvalidRequest, match=r"'a\.txt' does not tell its format"):
        format_of(Path("a.txt"), None)
    with pytest.raises(InvalidRequest, match="format 'xml': expected parquet, jsonl, csv, directory"):
        format_of(Path("a.csv"), "xml")
    with pytest.raises(InvalidRequest, match="is no file"):
        read(FileFormat.CSV, tmp_path / "missing.csv")
