"""Schemas in the catalog: what is durable, what is given once, and what no transaction breaks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Table

from penstock.core.errors import InvalidRequest, ServiceUnavailable, StorageFailed
from penstock.core.names import TopicName
from penstock.core.schemas import Compatibility, Reference, Schema, SchemaKind, SubjectMode
from penstock.storage.catalog.catalog import Catalog
from penstock.storage.catalog.schema_rows import (
    GLOBAL_SUBJECT,
    NewVersion,
    RegistryUpdate,
    SchemaInUse,
    Subject,
    SubjectChanged,
    SubjectSettings,
    SubjectVersion,
    VersionMetadata,
)
from penstock.storage.catalog.schemas import SchemaCatalog, archive_place, topic_place
from penstock.storage.catalog.tables import SCHEMA_SUBJECTS, SCHEMA_VERSIONS, SCHEMAS, write_row
from penstock.testing import ManualClock

ID_MAX = 2**31 - 1


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "catalog.db"


@pytest.fixture
def catalog(path: Path) -> Iterator[Catalog]:
    with Catalog.open(path, clock=ManualClock()) as catalog:
        yield catalog


@pytest.fixture
def schemas(catalog: Catalog) -> SchemaCatalog:
    return catalog.schemas


def new(subject: str, text: str, **more: object) -> NewVersion:
    """References: `uses=("other", 1)`."""
    uses = more.pop("uses", None)
    references = (Reference(name="used", subject=uses[0], version=uses[1]),) if isinstance(uses, tuple) else ()
    schema = Schema(kind=SchemaKind.AVRO, text=text, references=references)
    return NewVersion(subject=subject, schema=schema, fingerprint=text.strip(), **more)  # type: ignore[arg-type]


def add(schemas: SchemaCatalog, subject: str, text: str, **more: object) -> SubjectVersion:
    (made,) = schemas.add_version(new(subject, text, **more), expected={}).versions
    return made


def delete(schemas: SchemaCatalog, version: SubjectVersion) -> None:
    schemas.replace_versions([replace(version, deleted=True)], expected={})


def sorted_content(update: RegistryUpdate) -> tuple[object, ...]:
    by_version = sorted(update.versions, key=lambda each: (each.subject, each.version))
    by_id = sorted(update.schemas, key=lambda each: each.schema_id)
    return update.revision, sorted(update.subjects, key=lambda each: each.name), by_version, by_id


# Registering


def test_a_schema_is_what_it_was_registered_as_to_the_letter_also_after_opening_again(path: Path) -> None:
    text = '  {"type" :\t"string"}\r\n\u00e9e\u0301\U0001f701'
    about = VersionMetadata(description="d", tags=("a", "", "é"), created_by="me")
    with Catalog.open(path, clock=ManualClock(5)) as catalog:
        base = add(catalog.schemas, "base", "b")
        update = catalog.schemas.add_version(new("orders", text, uses=("base", 1), metadata=about), expected={})
    (version,), (stored,) = update.versions, update.schemas
    assert (version.subject, version.version, version.schema_id, version.metadata) == ("orders", 1, 2, about)
    assert (stored.schema.text, stored.schema.kind) == (text, SchemaKind.AVRO)
    assert stored.schema.references == (Reference(name="used", subject="base", version=1),)
    assert (stored.created_by, stored.created_ms, version.created_ms) == ("me", 5, 5)
    with Catalog.open(path, clock=ManualClock()) as catalog:
        loaded = catalog.schemas.load()
    assert loaded.whole
    assert loaded.revision == update.revision == 2
    assert set(loaded.versions) == {base, version}
    assert stored in loaded.schemas
    assert {(subject.name, subject.revision, subject.last_version) for subject in loaded.subjects} == {
        ("base", 1, 1),
        ("orders", 2, 1),
    }


def test_an_empty_catalog_has_nothing(schemas: SchemaCatalog) -> None:
    assert schemas.load() == RegistryUpdate(revision=0, subjects=(), whole=True)


def test_ids_and_versions_count_from_one(schemas: SchemaCatalog) -> None:
    made = [add(schemas, subject, text) for subject, text in (("a", "1"), ("a", "2"), ("b", "3"), ("a", "4"))]
    assert [(each.version, each.schema_id) for each in made] == [(1, 1), (2, 2), (1, 3), (3, 4)]


def test_the_same_schema_has_one_id_and_the_text_that_came_first(schemas: SchemaCatalog) -> None:
    first = add(schemas, "a", "same")
    update = schemas.add_version(new("b", " same "), expected={})
    assert update.versions[0].schema_id == first.schema_id
    assert update.schemas[0].schema.text == "same"
    assert add(schemas, "b", "another").schema_id == first.schema_id + 1


def test_references_keep_their_order(schemas: SchemaCatalog) -> None:
    names = [f"r{number}" for number in (3, 1, 11, 2)]
    for name in names:
        add(schemas, name, name)
    references = tuple(Reference(name=name, subject=name, version=1) for name in names)
    schema = Schema(kind=SchemaKind.JSON, text="t", references=references)
    schemas.add_version(NewVersion(subject="all", schema=schema, fingerprint="t"), expected={})
    found = {each.fingerprint: each.schema for each in schemas.load().schemas}
    assert found["t"].references == references


def test_numbers_that_were_given_from_outside_are_kept_and_the_next_follow_the_highest(schemas: SchemaCatalog) -> None:
    given = add(schemas, "a", "x", schema_id=40, version=7, deleted=True, deprecated="old", created_ms=3)
    assert (given.schema_id, given.version, given.deleted, given.deprecated, given.created_ms) == (
        40,
        7,
        True,
        "old",
        3,
    )
    assert add(schemas, "a", "w", schema_id=4, version=2).version == 2
    after = add(schemas, "a", "y")
    assert (after.schema_id, after.version) == (41, 8)


@pytest.mark.parametrize("numbers", [{"schema_id": 0}, {"schema_id": ID_MAX + 1}, {"version": 0}, {"version": 2**31}])
def test_numbers_that_clients_cannot_hold_are_refused(schemas: SchemaCatalog, numbers: dict[str, int]) -> None:
    with pytest.raises(InvalidRequest, match="go from 1 to"):
        add(schemas, "a", "x", **numbers)
    assert schemas.load().revision == 0


def test_after_the_last_number_there_is_none(schemas: SchemaCatalog) -> None:
    add(schemas, "a", "x", schema_id=ID_MAX, version=2**31 - 1)
    for subject in ("a", "b"):
        with pytest.raises(InvalidRequest, match="go from 1 to"):
            add(schemas, subject, "y")


@pytest.mark.parametrize(
    "wrong",
    [
        {"version": 1},
        {"schema_id": 9, "text": "x"},
        {"schema_id": 1},
        {"uses": ("nobody", 1)},
        {"uses": ("gone", 1)},
        {"uses": ("a", 2)},
    ],
)
def test_what_is_another_s_or_refers_to_nothing_changes_nothing(
    schemas: SchemaCatalog, wrong: dict[str, object]
) -> None:
    add(schemas, "a", "x")
    delete(schemas, add(schemas, "gone", "g"))
    before = sorted_content(schemas.load())
    with pytest.raises(SubjectChanged) as refused:
        add(schemas, "a", str(wrong.pop("text", "y")), **wrong)
    assert refused.value.details == {"revision": 3}
    assert sorted_content(schemas.load()) == before


def test_what_is_deleted_may_refer_to_what_is_deleted(schemas: SchemaCatalog) -> None:
    delete(schemas, add(schemas, "gone", "g"))
    assert add(schemas, "a", "x", uses=("gone", 1), deleted=True).deleted


# Others were faster


def test_a_decision_that_rests_on_what_has_changed_is_refused_and_nothing_is_written(schemas: SchemaCatalog) -> None:
    version = add(schemas, "a", "x")
    stale = {"a": 0, GLOBAL_SUBJECT: 0}
    calls: list[Callable[[], RegistryUpdate]] = [
        lambda: schemas.add_version(new("a", "y"), expected=stale),
        lambda: schemas.replace_versions([replace(version, deleted=True)], expected=stale),
        lambda: schemas.remove_versions("a", [1], expected=stale),
        lambda: schemas.put_settings("a", SubjectSettings(), expected=stale),
        lambda: schemas.put_settings(GLOBAL_SUBJECT, SubjectSettings(), expected=stale),
    ]
    for call in calls:
        with pytest.raises(
            SubjectChanged, match=r"subject 'a' was changed by somebody else meanwhile; try again"
        ) as refused:
            call()
        assert isinstance(refused.value, ServiceUnavailable)
        assert refused.value.details == {"revision": 1}
    assert schemas.load().revision == 1


def test_every_change_to_a_subject_makes_decisions_of_before_stale_and_those_on_others_not(
    schemas: SchemaCatalog,
) -> None:
    version = add(schemas, "a", "x")
    schemas.add_version(new("b", "y"), expected={"b": 0, GLOBAL_SUBJECT: 0})
    update = schemas.replace_versions([replace(version, deprecated="d")], expected={"a": 1})
    assert update.subjects == (Subject(name="a", revision=3, last_version=1),)
    schemas.put_settings(GLOBAL_SUBJECT, SubjectSettings(mode=SubjectMode.READONLY), expected={GLOBAL_SUBJECT: 0})
    with pytest.raises(SubjectChanged):
        schemas.add_version(new("b", "z"), expected={"b": 2, GLOBAL_SUBJECT: 0})
    schemas.add_version(new("b", "z"), expected={"b": 2, GLOBAL_SUBJECT: 4})


# What has changed since


def test_what_has_changed_since_a_revision_is_told_by_whole_subjects(schemas: SchemaCatalog) -> None:
    first = add(schemas, "a", "x")
    add(schemas, "b", "y")
    last = add(schemas, "a", "z")
    since = schemas.load(2)
    assert since.revision == 3
    assert [subject.name for subject in since.subjects] == ["a"]
    assert set(since.versions) == {first, last}
    assert {stored.fingerprint for stored in since.schemas} == {"x", "z"}
    assert schemas.load(3) == RegistryUpdate(revision=3, subjects=(), whole=True)


# Deleting


def test_a_version_is_replaced_as_a_whole(schemas: SchemaCatalog) -> None:
    version = add(schemas, "a", "x")
    changed = replace(version, deleted=True, deprecated="no", metadata=VersionMetadata(description="d", tags=("t",)))
    schemas.replace_versions([changed], expected={})
    assert schemas.load().versions == (changed,)


def test_what_a_living_schema_refers_to_is_not_deleted_and_what_a_deleted_one_refers_to_is(
    schemas: SchemaCatalog,
) -> None:
    base = add(schemas, "base", "b")
    referrer = add(schemas, "a", "x", uses=("base", 1))
    with pytest.raises(SubjectChanged, match="another schema refers to version 1 of 'base'"):
        delete(schemas, base)
    delete(schemas, referrer)
    delete(schemas, base)
    with pytest.raises(SubjectChanged, match="version 1 of 'base' is no longer there"):
        schemas.replace_versions([referrer], expected={})
    schemas.replace_versions([base], expected={})
    schemas.replace_versions([referrer], expected={})


def test_versions_that_refer_to_each_other_go_and_come_together(schemas: SchemaCatalog) -> None:
    first = add(schemas, "a", "x")
    second = add(schemas, "a", "y", uses=("a", 1))
    gone = [replace(first, deleted=True), replace(second, deleted=True)]
    schemas.replace_versions(gone, expected={})
    schemas.replace_versions([first, second], expected={})
    schemas.replace_versions(gone, expected={})
    schemas.remove_versions("a", [1, 2], expected={})
    assert schemas.load().schemas == ()


def test_a_version_that_was_removed_is_gone_and_its_numbers_are_not_given_again(schemas: SchemaCatalog) -> None:
    add(schemas, "a", "x")
    gone = add(schemas, "a", "y")
    update = schemas.remove_versions("a", [2], expected={})
    assert update.whole
    assert [version.version for version in update.versions] == [1]
    assert {stored.fingerprint for stored in schemas.load().schemas} == {"x"}
    again = add(schemas, "a", "y")
    assert (again.version, again.schema_id) == (3, gone.schema_id + 1)


def test_a_subject_of_which_nothing_is_left_has_no_settings_but_remembers_its_numbers(schemas: SchemaCatalog) -> None:
    add(schemas, "a", "x")
    schemas.put_settings("a", SubjectSettings(compatibility=Compatibility.FULL), expected={})
    update = schemas.remove_versions("a", [1], expected={})
    assert update.subjects == (Subject(name="a", revision=3, last_version=1),)
    assert add(schemas, "a", "x").version == 2


def test_a_schema_stays_while_any_subject_has_it(schemas: SchemaCatalog) -> None:
    add(schemas, "a", "x")
    add(schemas, "b", "x")
    schemas.remove_versions("a", [1], expected={})
    assert [stored.schema_id for stored in schemas.load().schemas] == [1]
    assert add(schemas, "c", "x").schema_id == 1


def test_what_any_schema_refers_to_is_not_removed(schemas: SchemaCatalog) -> None:
    add(schemas, "base", "b")
    referrer = add(schemas, "a", "x", uses=("base", 1))
    delete(schemas, referrer)
    with pytest.raises(SubjectChanged, match="another schema refers to version 1 of 'base'"):
        schemas.remove_versions("base", [1], expected={})
    schemas.remove_versions("a", [1], expected={})
    schemas.remove_versions("base", [1], expected={})


# Settings


def test_settings_are_kept_as_they_are_also_those_that_are_not_set(path: Path) -> None:
    every = [
        SubjectSettings(),
        SubjectSettings(lenient=False),
        SubjectSettings(compatibility=Compatibility.FULL_TRANSITIVE, lenient=True, mode=SubjectMode.IMPORT),
    ]
    with Catalog.open(path, clock=ManualClock()) as catalog:
        for number, settings in enumerate(every):
            catalog.schemas.put_settings(str(number) if number else GLOBAL_SUBJECT, settings, expected={})
    with Catalog.open(path, clock=ManualClock()) as catalog:
        found = {subject.name: subject.settings for subject in catalog.schemas.load().subjects}
    assert found == {GLOBAL_SUBJECT: every[0], "1": every[1], "2": every[2]}


# Uses


def test_a_schema_that_messages_have_is_not_removed_until_they_are_gone(schemas: SchemaCatalog) -> None:
    add(schemas, "a", "x")
    for place in ("topic 17", "archive lake", "topic 17"):
        assert schemas.note_use(1, place)
    assert schemas.uses(1) == ("archive lake", "topic 17")
    with pytest.raises(SchemaInUse, match="messages with schema id 1 are kept in archive lake, topic 17") as refused:
        schemas.remove_versions("a", [1], expected={})
    assert refused.value.details == {"places": ["archive lake", "topic 17"]}
    assert schemas.load().revision == 1
    schemas.forget_use(1, "topic 17")
    assert schemas.uses(1) == ("archive lake",)
    schemas.forget_use(1, "archive lake")
    schemas.remove_versions("a", [1], expected={})


def test_what_a_topic_has_its_archive_has_too_also_when_the_topic_is_without(schemas: SchemaCatalog) -> None:
    for text in "xyz":
        add(schemas, "a", text)
    schemas.note_use(1, "topic 17")
    schemas.note_use(3, "topic 18")
    place = archive_place("lake", TopicName.parse("orders"))
    for _ in range(2):
        schemas.copy_uses("topic 17", place)
    schemas.note_use(2, "topic 17")
    schemas.copy_uses("topic 17", place)
    schemas.forget_use(1, "topic 17")
    assert [schemas.uses(each) for each in (1, 2, 3)] == [(place,), (place, "topic 17"), ("topic 18",)]


def test_what_archives_have_need_not_keep_a_schema_and_topics_always_do(schemas: SchemaCatalog) -> None:
    add(schemas, "a", "x")
    schemas.note_use(1, "topic 17")
    schemas.copy_uses("topic 17", "archive lake of /default/orders")
    with pytest.raises(SchemaInUse, match="topic 17"):
        schemas.remove_versions("a", [1], expected={}, archived=True)
    schemas.forget_use(1, "topic 17")
    with pytest.raises(SchemaInUse, match="kept in archive lake of /default/orders"):
        schemas.remove_versions("a", [1], expected={})
    schemas.remove_versions("a", [1], expected={}, archived=True)
    assert schemas.uses(1) == ()


def test_messages_do_not_keep_a_version_whose_schema_another_has(schemas: SchemaCatalog) -> None:
    add(schemas, "a", "x")
    add(schemas, "b", "x")
    schemas.note_use(1, "topic 17")
    schemas.remove_versions("a", [1], expected={})
    with pytest.raises(SchemaInUse):
        schemas.remove_versions("b", [1], expected={})


def test_a_use_of_what_is_not_there_is_not_noted(schemas: SchemaCatalog) -> None:
    assert not schemas.note_use(1, "topic 17")
    assert schemas.uses(1) == ()


def test_a_topic_that_was_deleted_uses_no_schema_any_more(catalog: Catalog) -> None:
    topic = catalog.create_topic(TopicName.parse("orders"))
    add(catalog.schemas, "a", "x")
    catalog.schemas.note_use(1, topic_place(topic.topic_uid))
    catalog.schemas.note_use(1, "archive lake")
    catalog.delete_topic(topic.name)
    assert catalog.schemas.uses(1) == ("archive lake",)


# What cannot be believed


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [(SCHEMAS, "kind", "XML"), (SCHEMA_SUBJECTS, "mode", "SLOW"), (SCHEMA_VERSIONS, "tags", "{")],
)
def test_words_of_another_release_are_not_guessed_at(catalog: Catalog, table: Table, column: str, value: str) -> None:
    add(catalog.schemas, "a", "x")
    with catalog._file.writing() as connection:
        row = dict(connection.execute(table.select()).mappings().one())
        del row["seal"]
        write_row(connection, table, {**row, column: value})
    with pytest.raises(StorageFailed, match="cannot be read"):
        catalog.schemas.load()
