"""The index: updates applied one by one or many at once, and an id that comes back."""

from __future__ import annotations

from penstock.core.schemas import Reference, Schema, SchemaKind
from penstock.schema.registry.index import RegistryIndex
from penstock.schema.registry.models import LookupFilter
from penstock.storage.catalog.schema_rows import RegistryUpdate, StoredSchema, Subject, SubjectVersion, VersionMetadata


def stored(schema_id: int, text: str, *refers: tuple[str, int]) -> StoredSchema:
    references = tuple(Reference(name=subject, subject=subject, version=version) for subject, version in refers)
    schema = Schema(kind=SchemaKind.JSON, text=text, references=references)
    return StoredSchema(schema_id=schema_id, schema=schema, fingerprint=text, created_by="", created_ms=0)


def version(subject: str, number: int, schema_id: int, *, deleted: bool = False) -> SubjectVersion:
    return SubjectVersion(
        subject=subject, version=number, schema_id=schema_id, metadata=VersionMetadata(), created_ms=0, deleted=deleted
    )


def update(
    revision: int, *versions: SubjectVersion, schemas: tuple[StoredSchema, ...], also: str = ""
) -> RegistryUpdate:
    """Return an update of whole subjects: those of the versions, and those named in `also` that have none left."""
    names = sorted({each.subject for each in versions} | set(also))
    subjects = tuple(Subject(name=name, revision=revision) for name in names)
    return RegistryUpdate(revision=revision, subjects=subjects, versions=versions, schemas=schemas, whole=True)


def test_a_schema_that_goes_from_one_subject_to_another_stays() -> None:
    index = RegistryIndex()
    index.apply(update(1, version("a", 1, 5), schemas=(stored(5, "x"),)))
    index.apply(update(3, version("b", 1, 5), schemas=(stored(5, "x"),), also="a"))
    assert index.holders(5) == (("b", 1),)
    assert index.schema(5).fingerprint == "x"
    assert index.text_bytes == 1
    assert index.subjects(lookup=LookupFilter.INCLUDE_DELETED) == ("b",)


def test_an_id_that_comes_back_with_another_schema_is_that_one() -> None:
    index = RegistryIndex()
    index.apply(update(1, version("a", 1, 5), schemas=(stored(5, "x", ("base", 1)),)))
    index.apply(update(3, version("a", 1, 5), schemas=(stored(5, "longer", ("other", 1)),)))
    assert index.schema(5).fingerprint == "longer"
    assert (index.id_of("x"), index.id_of("longer")) == (None, 5)
    assert index.text_bytes == 6
    assert (index.referrers("base", 1), index.referrers("other", 1)) == ((), (5,))


def test_what_nobody_has_any_more_leaves_nothing_behind() -> None:
    index = RegistryIndex()
    index.apply(update(1, version("a", 1, 5), version("a", 2, 6), schemas=(stored(5, "x", ("a", 2)), stored(6, "y"))))
    index.apply(update(2, schemas=(), also="a"))
    assert index.text_bytes == 0
    assert not index.has_id(5)
    assert (index._holders, index._referrers, index._ids, index._schemas) == ({}, {}, {}, {})
    assert index.known_subjects() == ("a",)


def test_a_referrer_counts_by_its_own_standing() -> None:
    index = RegistryIndex()
    versions = version("a", 1, 5), version("b", 1, 6, deleted=True), version("c", 1, 7)
    schemas = stored(5, "x"), stored(6, "y", ("a", 1)), stored(7, "z", ("a", 1))
    index.apply(update(1, *versions, schemas=schemas))
    found = [index.referrers("a", 1, lookup) for lookup in LookupFilter]
    assert found == [(7,), (6, 7), (6,)]


def test_versions_are_in_order_whatever_order_they_came_in() -> None:
    index = RegistryIndex()
    index.apply(update(1, *(version("a", number, 5) for number in (11, 2, 3, 1)), schemas=(stored(5, "x"),)))
    assert [each.version for each in index.versions("a")] == [1, 2, 3, 11]
    assert index.version("a", 11).version == index.version("a", None).version == 11
    assert index.find("a", 4) is None
    assert index.find("a", 12) is None
