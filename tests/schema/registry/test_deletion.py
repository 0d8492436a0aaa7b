"""Deletion of versions and subjects, and undeletion."""

from __future__ import annotations

import pytest
from tests.schema.registry_kit import Trial, free

from penstock.core.schemas import (
    Compatibility,
)
from penstock.schema.errors import (
    CompatibilityNotConfigured,
    InvalidVersion,
    OperationNotPermitted,
    ReferenceExists,
    SchemaNotFound,
    SubjectNotFound,
    SubjectNotSoftDeleted,
    SubjectSoftDeleted,
    VersionNotFound,
    VersionNotSoftDeleted,
    VersionSoftDeleted,
)
from penstock.schema.registry.models import LookupFilter


def test_what_was_deleted_and_is_registered_again_is_a_new_version_with_the_old_id(t: Trial) -> None:
    first = t.register("orders", "a")
    t.run(t.registry.delete_version("orders", 1))
    again = t.register("orders", "a")
    assert (again.version, again.schema_id) == (2, first.schema_id)


def test_a_version_goes_softly_first_and_then_for_good(t: Trial) -> None:
    t.register("orders", "a")
    t.register("orders", "a?")
    with pytest.raises(VersionNotSoftDeleted, match=r"^Subject 'orders' Version 1 was not deleted first before being"):
        t.run(t.registry.delete_version("orders", 1, permanent=True))
    assert t.run(t.registry.delete_version("orders", 1)) == 1
    assert t.registry.schema(1).schema.text == "a"
    assert t.registry.versions_of_schema(1) == ()
    assert t.registry.versions_of_schema(1, LookupFilter.INCLUDE_DELETED) == (("orders", 1),)
    with pytest.raises(VersionSoftDeleted, match=r"^Subject 'orders' Version 1 was soft deleted\.Set permanent=true"):
        t.run(t.registry.delete_version("orders", 1))
    assert t.run(t.registry.delete_version("orders", 1, permanent=True)) == 1
    with pytest.raises(SchemaNotFound):
        t.registry.schema(1)
    for permanent in (False, True):
        with pytest.raises(VersionNotFound, match=r"^Version 1 not found\.$"):
            t.run(t.registry.delete_version("orders", 1, permanent=permanent))


def test_the_latest_that_is_deleted_is_the_latest_that_is_not_deleted_yet(t: Trial) -> None:
    for text in ("a", "a?", "a? b?"):
        t.register("orders", text)
    assert [t.run(t.registry.delete_version("orders", "latest")) for _ in range(3)] == [3, 2, 1]
    with pytest.raises(SubjectNotFound):
        t.run(t.registry.delete_version("orders", "latest"))


def test_a_subject_goes_softly_first_and_then_for_good(t: Trial) -> None:
    t.register("orders", "a")
    t.register("orders", "a?")
    t.run(t.registry.delete_version("orders", 1))
    with pytest.raises(SubjectNotSoftDeleted, match=r"^Subject 'orders' was not deleted first before being perman"):
        t.run(t.registry.delete_subject("orders", permanent=True))
    assert t.run(t.registry.delete_subject("orders")) == (2,)
    with pytest.raises(SubjectSoftDeleted, match=r"^Subject 'orders' was soft deleted\.Set permanent=true to delete"):
        t.run(t.registry.delete_subject("orders"))
    assert t.run(t.registry.delete_subject("orders", permanent=True)) == (1, 2)
    for permanent in (False, True):
        with pytest.raises(SubjectNotFound):
            t.run(t.registry.delete_subject("orders", permanent=permanent))
    again = t.register("orders", "a")
    assert (again.version, again.schema_id) == (3, 3)


def test_settings_outlive_a_soft_deletion_and_no_other(t: Trial) -> None:
    t.register("orders", "a")
    free(t, "orders")
    t.run(t.registry.delete_subject("orders"))
    assert t.registry.compatibility("orders").compatibility is Compatibility.NONE
    t.run(t.registry.delete_subject("orders", permanent=True))
    with pytest.raises(CompatibilityNotConfigured):
        t.registry.compatibility("orders")


def test_what_others_refer_to_stays_until_they_are_deleted(t: Trial) -> None:
    t.register("base", "b")
    t.register("top", "t", base=("base", 1))
    sentence = (
        r"^One or more references exist to the schema \{magic=1,keytype=SCHEMA,subject=base,version=1\}\."
        r" Version 1 of subject 'top' \(schema id 2\) refers to it\.$"
    )
    for procedure in (t.registry.delete_version("base", 1), t.registry.delete_subject("base")):
        with pytest.raises(ReferenceExists, match=sentence) as refused:
            t.run(procedure)
        assert refused.value.details == {"referrer": 2}
    t.run(t.registry.delete_subject("top"))
    assert t.registry.referenced_by("base", 1) == ()
    assert t.registry.referenced_by("base", 1, LookupFilter.INCLUDE_DELETED) == (2,)
    t.run(t.registry.delete_subject("base"))
    assert t.registry.definition(2).references == (("base", "b"),)
    with pytest.raises(ReferenceExists, match="One or more references exist"):
        t.run(t.registry.delete_subject("base", permanent=True))
    t.run(t.registry.delete_subject("top", permanent=True))
    t.run(t.registry.delete_subject("base", permanent=True))


def test_a_subject_whose_versions_refer_to_each_other_goes_as_a_whole(t: Trial) -> None:
    t.register("orders", "a")
    t.register("orders", "a", before=("orders", 1))
    with pytest.raises(ReferenceExists):
        t.run(t.registry.delete_version("orders", 1))
    assert t.run(t.registry.delete_subject("orders")) == (1, 2)
    assert t.run(t.registry.undelete("orders")) == (1, 2)
    t.run(t.registry.delete_subject("orders"))
    assert t.run(t.registry.delete_subject("orders", permanent=True)) == (1, 2)


def test_a_referrer_that_another_subject_has_too_still_refers(t: Trial) -> None:
    t.register("base", "b")
    for subject in ("one", "other"):
        t.register(subject, "t", base=("base", 1))
    t.run(t.registry.delete_subject("one"))
    with pytest.raises(ReferenceExists, match="subject 'other'"):
        t.run(t.registry.delete_subject("base"))


def test_what_messages_use_does_not_go_for_good_unless_another_has_it(t: Trial) -> None:
    for subject in ("orders", "copies"):
        t.register(subject, "a")
        t.run(t.registry.delete_subject(subject))
    t.catalog.schemas.note_use(1, "topic 17")
    t.run(t.registry.delete_subject("copies", permanent=True))
    for procedure in (
        t.registry.delete_subject("orders", permanent=True),
        t.registry.delete_version("orders", 1, permanent=True),
    ):
        with pytest.raises(ReferenceExists, match="messages with schema id 1 are kept in topic 17") as refused:
            t.run(procedure)
        assert refused.value.details == {"places": ["topic 17"]}
    t.catalog.schemas.forget_use(1, "topic 17")
    t.run(t.registry.delete_subject("orders", permanent=True))


def test_what_was_deleted_softly_comes_back_as_it_was(t: Trial) -> None:
    made = [t.register("orders", text) for text in ("a", "a?", "a? b?")]
    t.run(t.registry.delete_subject("orders"))
    assert t.run(t.registry.undelete("orders", 2)) == (2,)
    assert t.run(t.registry.undelete("orders", "2")) == ()
    assert t.registry.version("orders", 2) == made[1]
    assert t.run(t.registry.undelete("orders")) == (1, 3)
    assert t.run(t.registry.undelete("orders")) == ()
    assert [t.registry.version("orders", version) for version in (1, 2, 3)] == made


def test_what_is_not_there_does_not_come_back(t: Trial) -> None:
    t.register("orders", "a")
    with pytest.raises(SubjectNotFound):
        t.run(t.registry.undelete("x"))
    with pytest.raises(VersionNotFound):
        t.run(t.registry.undelete("orders", 2))
    with pytest.raises(InvalidVersion, match="has no latest version"):
        t.registry.undelete("orders", "latest")


def test_nothing_comes_back_without_what_it_refers_to(t: Trial) -> None:
    t.register("base", "b")
    t.register("top", "t", base=("base", 1))
    for subject in ("top", "base"):
        t.run(t.registry.delete_subject(subject))
    with pytest.raises(OperationNotPermitted, match="refers to version 1 of 'base', which is deleted: undelete that"):
        t.run(t.registry.undelete("top"))
    t.run(t.registry.undelete("base"))
    assert t.run(t.registry.undelete("top")) == (1,)
