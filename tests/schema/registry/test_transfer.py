"""Export and import of a registry: everything arrives, importing twice is harmless, and conflicts are named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.schema.registry_kit import Trial, trial, words

from penstock.core.schemas import Compatibility
from penstock.schema.registry.models import LookupFilter
from penstock.schema.registry.transfer import ImportResult
from penstock.storage.catalog.schema_rows import VersionMetadata


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Trial]:
    (tmp_path / "here").mkdir()
    with trial(tmp_path / "here") as made:
        yield made


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Trial]:
    (tmp_path / "there").mkdir()
    with trial(tmp_path / "there") as made:
        yield made


@pytest.fixture
def filled(here: Trial) -> Trial:
    """Fill a registry so that the referenced subject comes last in the order of names."""
    here.register("z.base", "b")
    here.register("a.top", "t", base=("z.base", 1))
    about = VersionMetadata(description="d", tags=("x", "y"), created_by="me")
    here.run(here.registry.register("a.top", words("t?"), metadata=about))
    here.register("copy", "b")
    here.run(here.registry.deprecate("a.top", 1, "old"))
    here.run(here.registry.delete_version("a.top", 2))
    here.run(here.registry.set_compatibility("a.top", "FULL", lenient=True))
    here.run(here.registry.set_compatibility("later", "NONE"))
    here.run(here.registry.set_mode("copy", "READONLY"))
    here.run(here.registry.set_compatibility(None, "FORWARD"))
    return here


def taken(t: Trial, records: list[dict[str, Any]]) -> ImportResult:
    return t.run(t.registry.import_(records))


def content(t: Trial) -> object:
    return t.registry.schemas(lookup=LookupFilter.INCLUDE_DELETED), t.registry.export()


def test_an_export_is_plain_and_in_the_order_of_need(filled: Trial) -> None:
    records = filled.registry.export()
    assert json.loads(json.dumps(records)) == records
    assert [(each["subject"], each.get("version")) for each in records] == [
        ("z.base", 1),
        ("a.top", 1),
        ("a.top", 2),
        ("copy", 1),
        ("", None),
        ("a.top", None),
        ("copy", None),
        ("later", None),
    ]
    assert records[1] == {
        "subject": "a.top",
        "version": 1,
        "id": 2,
        "schemaType": "AVRO",
        "schema": "t",
        "references": [{"name": "base", "subject": "z.base", "version": 1}],
        "deleted": False,
        "deprecated": "old",
        "description": "",
        "tags": [],
        "createdBy": "",
        "createdMs": records[1]["createdMs"],
    }
    assert records[4] == {"subject": "", "compatibility": "FORWARD", "lenient": None, "mode": None}


def test_what_was_exported_is_the_same_elsewhere_and_goes_on_from_there(filled: Trial, there: Trial) -> None:
    records = json.loads(json.dumps(filled.registry.export()))
    assert taken(there, records) == ImportResult(imported=8, known=0, refused=())
    assert content(there) == content(filled)
    assert there.registry.version("a.top", 2, LookupFilter.INCLUDE_DELETED).metadata.tags == ("x", "y")
    assert there.registry.compatibility().compatibility is Compatibility.FORWARD
    made = there.register("new", "n")
    assert (made.schema_id, made.version) == (4, 1)


def test_twice_is_once(filled: Trial, there: Trial) -> None:
    records = filled.registry.export()
    taken(there, records)
    revision = there.registry.revision
    assert taken(there, records) == ImportResult(imported=0, known=8, refused=())
    assert taken(filled, records) == ImportResult(imported=0, known=8, refused=())
    assert there.registry.revision == revision


def test_a_part_brings_what_it_refers_to(filled: Trial, there: Trial) -> None:
    records = filled.registry.export("a.")
    assert [(each["subject"], each.get("version")) for each in records] == [
        ("z.base", 1),
        ("a.top", 1),
        ("a.top", 2),
        ("a.top", None),
    ]
    assert taken(there, records).refused == ()
    assert there.registry.definition(2) == filled.registry.definition(2)


def test_conflicts_are_named_and_the_others_are_taken(filled: Trial, there: Trial) -> None:
    there.register("z.base", "something else")
    answer = taken(there, filled.registry.export())
    assert (answer.imported, answer.known) == (5, 0)
    assert [(each.index, each.subject, each.version) for each in answer.refused] == [
        (0, "z.base", 1),
        (1, "a.top", 1),
        (3, "copy", 1),
    ]
    assert [each.message for each in answer.refused] == [
        "Version 1 of subject 'z.base' is there already, with schema id 1",
        "it refers to version 1 of 'z.base', which was not taken in",
        "Overwrite new schema with id 1 is not permitted. It is another schema: version 1 of 'z.base'",
    ]
    assert there.registry.versions("a.top", LookupFilter.INCLUDE_DELETED) == (2,)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"schema": "no!"}, "no word"),
        ({"schema": "\ud800"}, "lone surrogate"),
        ({"subject": "\ud800"}, "is not valid"),
        ({"id": 0}, "A schema id is a number from 1"),
        ({"id": True}, "no record of an export"),
        ({"version": 0}, "A version is a number from 1"),
        ({"version": "1"}, "no record of an export"),
        ({"schemaType": "XML"}, "no record of an export"),
        ({"colour": "red"}, "no record of an export"),
        ({"createdMs": -1}, "no record of an export"),
        ({"tags": ["x"] * 65}, "tags"),
        ({"deprecated": "x" * 5000}, "deprecated"),
        ({"references": [{"name": "r", "subject": "nobody", "version": 1}]}, "is not there"),
    ],
)
def test_a_record_that_is_none_is_refused_with_its_place(there: Trial, change: dict[str, Any], sentence: str) -> None:
    good = {"subject": "a", "version": 1, "id": 1, "schemaType": "AVRO", "schema": "x"}
    answer = taken(there, [{**good, **change}, {**good, "subject": "b"}])
    assert answer.imported == 1
    (refusal,) = answer.refused
    assert refusal.index == 0
    assert sentence in refusal.message
    refusal.subject.encode()
    assert there.registry.subjects(lookup=LookupFilter.INCLUDE_DELETED) == ("b",)


def test_settings_that_are_none_are_refused(there: Trial) -> None:
    wrong: list[dict[str, Any]] = [
        {"subject": "a", "mode": "FAST"},
        {"subject": "a\n", "mode": "IMPORT"},
        {"compatibility": 1},
    ]
    answer = taken(there, [*wrong, {"mode": "IMPORT"}])
    assert (answer.imported, [refusal.index for refusal in answer.refused]) == (1, [0, 1, 2])


def test_what_is_read_only_takes_nothing_in(filled: Trial, there: Trial) -> None:
    there.run(there.registry.set_mode("a.top", "READONLY"))
    answer = taken(there, filled.registry.export())
    assert [(refusal.subject, refusal.message) for refusal in answer.refused] == [
        ("a.top", "Subject a.top is in read-only mode"),
        ("a.top", "Subject a.top is in read-only mode"),
        ("a.top", "it has other settings here, and they are left alone"),
    ]


def test_settings_that_are_there_are_left_alone_and_named(filled: Trial, there: Trial) -> None:
    records = filled.registry.export()
    assert not taken(there, records).refused
    subject = next(each["subject"] for each in records if "version" not in each and each["subject"])
    there.run(there.registry.set_compatibility(subject, "NONE"))
    (refusal,) = taken(there, records).refused
    assert (refusal.subject, refusal.message) == (subject, "it has other settings here, and they are left alone")
    assert there.registry.compatibility(subject).compatibility == "NONE"


def test_what_was_deleted_stays_deleted_and_may_refer_to_what_is(here: Trial, there: Trial) -> None:
    here.register("base", "b")
    here.register("top", "t", base=("base", 1))
    for subject in ("top", "base"):
        here.run(here.registry.delete_subject(subject))
    assert taken(there, here.registry.export()).imported == 2
    assert there.registry.subjects() == ()
    assert content(there) == content(here)
