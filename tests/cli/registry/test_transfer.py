"""`penstock schema export | import`, with a real broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.kit import Run

from penstock.cli.registry import transfer
from penstock.cli.registry.transfer import ImportLine

pytestmark = pytest.mark.usefixtures("at_keeper")


def record(subject: str, version: int, schema_id: int) -> dict[str, Any]:
    """Build a record as an export has it."""
    text = json.dumps({"type": "record", "name": "A", "doc": f"{subject} {version}", "fields": []})
    return {"subject": subject, "version": version, "id": schema_id, "schemaType": "AVRO", "schema": text}


def lines(*records: Any) -> bytes:
    return b"".join(json.dumps(each).encode() + b"\n" for each in records)


def test_what_is_exported_is_taken_in_elsewhere_with_its_ids(here: Run) -> None:
    elsewhere = lines(
        record("moved.a", 3, 900_003), record("moved.a", 5, 900_005), {"subject": "moved.a", "mode": "READONLY"}
    )
    Path("schemas.jsonl").write_bytes(elsewhere)
    assert here("schema", "import", "schemas.jsonl").out == "3 records imported, 0 known already\n"
    assert here("schema", "import", "-", "--json", given=elsewhere).rows == [{"imported": 0, "known": 3, "refused": 0}]
    rows = here("schema", "versions", "moved.a", "--json").rows
    assert [(row["version"], row["id"]) for row in rows] == [(3, 900_003), (5, 900_005)]
    exported = here("schema", "export", "moved.a", "--output", "again.jsonl")
    assert (exported.out, exported.err) == ("", "3 records exported\n")
    assert here("schema", "export", "moved.a").raw == Path("again.jsonl").read_bytes()
    found = [json.loads(line) for line in Path("again.jsonl").read_bytes().splitlines()]
    assert [(each["subject"], each.get("version"), each.get("id")) for each in found] == [
        ("moved.a", 3, 900_003),
        ("moved.a", 5, 900_005),
        ("moved.a", None, None),
    ]
    assert here("schema", "import", "again.jsonl").out == "0 records imported, 3 known already\n"


def test_what_cannot_be_taken_in_is_named_by_its_line_and_the_rest_is(here: Run) -> None:
    first, other = record("moved.b", 1, 900_101), record("moved.b", 1, 900_102)
    shown = here("schema", "import", "-", given=lines(first) + b"\n" + lines(other, record("moved.b", 2, 900_103)))
    assert (shown.code, shown.out) == (1, "2 records imported, 0 known already, 1 refused\n")
    assert shown.err.startswith("penstock: line 3: moved.b: version 1: Version 1 of subject 'moved.b' is there already")
    error = here("schema", "import", "-", "--json", given=lines(other)).error
    assert error["details"] == {"line": 1, "subject": "moved.b", "version": 1}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (b"hello\n", "line 2 is no JSON object: this is no export of schemas"),
        (b"[]\n", "line 2 is no JSON object"),
        (b"\xff\n", "line 2 is no JSON object"),
        (b"[" * 100_000 + b"\n", "line 2 is no JSON object"),
        (b"x" * 9_000_000, "line 2 has more than 8,388,608 bytes"),
    ],
)
def test_what_is_no_export_is_refused_where_it_is_none(here: Run, given: bytes, words: str) -> None:
    shown = here("schema", "import", "-", given=lines(record("moved.c", 1, 900_201)) + given)
    shown.refused(words, "before that: 0 records imported, 0 known already")


def test_files_that_cannot_be_read_or_written_are_named(here: Run) -> None:
    here("schema", "import", "nowhere.jsonl").refused("nowhere.jsonl cannot be read: there is no such file")
    here("schema", "export", "--output", "nowhere/schemas.jsonl").refused("nowhere")


def test_a_file_stays_as_it_was_if_the_export_fails(here: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    file = Path("schemas.jsonl")
    file.write_text("before")

    def torn(*_: object) -> Any:
        yield {"subject": "moved.d"}
        raise OSError(28, "No space left on device", "schemas.jsonl")

    monkeypatch.setattr(transfer, "_export_pages", torn)
    here("schema", "export", "--output", file).refused("schemas.jsonl")
    assert [each.name for each in file.absolute().parent.iterdir()] == ["schemas.jsonl"]
    assert file.read_text() == "before"


def test_an_export_is_asked_for_page_by_page() -> None:
    asked = []

    def ask(what: str, /, **fields: Any) -> dict[str, Any]:
        asked.append((what, fields["after"]))
        return {"records": [{}, {}], "truncated": True} if fields["after"] < 4 else {"records": [{}]}

    assert len(list(transfer._export_pages(ask, "a"))) == 5
    assert asked == [("export", 0), ("export", 2), ("export", 4)]


def test_an_import_is_sent_in_groups_that_fit_into_a_request() -> None:
    sizes = [100_000, 100_000, 100_000, 600_000, 1]
    groups = list(transfer._batches(ImportLine(number, size, {}) for number, size in enumerate(sizes)))
    assert [[line.size for line in group] for group in groups] == [[100_000] * 2, [100_000], [600_000], [1]]
    many = list(transfer._batches(ImportLine(number, 1, {}) for number in range(450)))
    assert [len(group) for group in many] == [200, 200, 50]
