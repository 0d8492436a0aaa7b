"""The registry's decisions, one by one, in a schema language that is simple enough to see through."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.schema.registry_kit import Trial, Words, trial, words

from penstock.core.schemas import (
    SCHEMA_BYTES_MAX,
    SCHEMA_REFERENCES_MAX,
    Compatibility,
    Definition,
    Reference,
    Schema,
    SchemaKind,
    SubjectMode,
)
from penstock.schema.errors import (
    CompatibilityNotConfigured,
    IncompatibleSchema,
    InvalidCompatibility,
    InvalidMode,
    InvalidSchema,
    InvalidVersion,
    ModeNotConfigured,
    OperationNotPermitted,
    ReferenceExists,
    RegistryError,
    SchemaNotFound,
    SubjectNotFound,
    SubjectNotSoftDeleted,
    SubjectSoftDeleted,
    VersionNotFound,
    VersionNotSoftDeleted,
    VersionSoftDeleted,
)
from penstock.schema.languages import SchemaLanguages
from penstock.schema.problems import Problem
from penstock.schema.registry import index, references, state
from penstock.schema.registry.models import CompatibilityConfig, LookupFilter, RegisteredVersion, VersionStatus
from penstock.schema.steps import SchemaPair, run_procedure
from penstock.storage.catalog.schema_rows import SubjectChanged, VersionMetadata

STRING = Schema(kind=SchemaKind.STRING, text="")


@pytest.fixture
def t(tmp_path: Path) -> Iterator[Trial]:
    with trial(tmp_path) as made:
        yield made


def free(t: Trial, subject: str | None = None) -> None:
    """Switch off compatibility checks."""
    t.run(t.registry.set_compatibility(subject, "NONE"))


# Registration


def test_a_schema_that_was_registered_is_found_by_its_id_and_by_its_version(t: Trial) -> None:
    about = VersionMetadata(description="what is ordered", tags=("shop",), created_by="till")
    made = t.run(t.registry.register("orders", words(" a  b\n"), metadata=about))
    assert (made.subject, made.version, made.schema_id, made.metadata) == ("orders", 1, 1, about)
    assert made.schema.text == " a  b\n"
    assert t.registry.version("orders", 1) == t.registry.version("orders", "latest") == made
    assert t.registry.schema(1).schema == made.schema
    assert t.registry.definition(1) == Definition(SchemaKind.AVRO, " a  b\n")
    assert t.registry.versions_of_schema(1) == (("orders", 1),)
    assert t.reload().version("orders", 1) == made


def test_registering_again_returns_what_is_there_however_it_is_written(t: Trial) -> None:
    first = t.register("orders", "a b")
    t.register("orders", "a")
    revision = t.registry.revision
    assert t.register("orders", "b a a") == first
    assert t.registry.revision == revision
    assert t.registry.versions("orders") == (1, 2)


def test_the_same_schema_under_another_subject_has_the_same_id(t: Trial) -> None:
    first, other = t.register("orders", "a"), t.register("payments", "a")
    assert (other.schema_id, other.version) == (first.schema_id, 1)
    assert t.registry.versions_of_schema(first.schema_id) == (("orders", 1), ("payments", 1))


def test_the_same_text_in_another_language_is_another_schema(t: Trial) -> None:
    free(t)
    texts = [Schema(kind=kind, text="a") for kind in (SchemaKind.AVRO, SchemaKind.JSON)]
    ids = [t.run(t.registry.register("orders", schema)).schema_id for schema in texts]
    assert ids == [1, 2]


def test_what_is_no_schema_is_refused_and_no_number_is_spent(t: Trial) -> None:
    with pytest.raises(InvalidSchema, match="no word"):
        t.register("orders", "a!")
    assert t.registry.subjects(lookup=LookupFilter.INCLUDE_DELETED) == ()
    assert t.register("orders", "a").schema_id == 1


def test_what_cannot_be_kept_is_refused_before_anybody_looks_at_it(t: Trial) -> None:
    with pytest.raises(InvalidSchema, match="Invalid schema"):
        t.register("orders", "x" * (SCHEMA_BYTES_MAX + 1))
    assert t.engine.parsed == []


def test_the_largest_schema_is_taken(t: Trial) -> None:
    assert t.register("orders", "x" * SCHEMA_BYTES_MAX).version == 1


def test_words_that_cannot_be_kept_are_refused(t: Trial) -> None:
    with pytest.raises(RegistryError, match="description"):
        t.registry.register("orders", words("a"), metadata=VersionMetadata(description="\0"))


# Subjects


def test_a_name_that_no_subject_has_is_refused_everywhere(t: Trial) -> None:
    calls: list[Callable[[], object]] = [
        lambda: t.registry.register("\n", words("a")),
        lambda: t.registry.versions("\n"),
        lambda: t.registry.delete_subject("\n"),
        lambda: t.registry.set_mode("\n", "READONLY"),
    ]
    for call in calls:
        with pytest.raises(RegistryError, match="subject") as refused:
            call()
        assert refused.value.status == 422


def test_there_is_one_context_and_it_goes_without_saying(t: Trial) -> None:
    t.register(":.:orders", "a")
    assert t.registry.subjects() == ("orders",)
    assert t.registry.version(":.:orders", 1) == t.registry.version("orders", 1)
    with pytest.raises(RegistryError, match=r"There is no context '\.other'"):
        t.registry.versions(":.other:orders")


def test_subjects_are_listed_by_prefix_and_by_what_became_of_them(t: Trial) -> None:
    for subject in ("b", "a2", "a1", "gone"):
        t.register(subject, "a")
    t.register("a1", "a?")
    t.run(t.registry.delete_version("a1", 1))
    t.run(t.registry.delete_subject("gone"))
    assert t.registry.subjects() == ("a1", "a2", "b")
    for prefix in ("a", ":*:a", ":.:a"):
        assert t.registry.subjects(prefix) == ("a1", "a2")
    assert t.registry.subjects(lookup=LookupFilter.INCLUDE_DELETED) == ("a1", "a2", "b", "gone")
    assert t.registry.subjects(lookup=LookupFilter.DELETED_ONLY) == ("gone",)


def test_versions_are_listed_by_what_became_of_them(t: Trial) -> None:
    for text in ("a", "a?", "a? b?"):
        t.register("orders", text)
    t.run(t.registry.delete_version("orders", 2))
    assert t.registry.versions("orders") == (1, 3)
    assert t.registry.versions("orders", LookupFilter.INCLUDE_DELETED) == (1, 2, 3)
    assert t.registry.versions("orders", LookupFilter.DELETED_ONLY) == (2,)
    assert t.registry.version("orders", 2, LookupFilter.INCLUDE_DELETED).deleted
    with pytest.raises(VersionNotFound, match=r"^Version 2 not found\.$"):
        t.registry.version("orders", 2)


def test_all_schemas_are_listed_or_the_latest_of_each_subject(t: Trial) -> None:
    for subject, text in (("b", "a"), ("b", "a?"), ("a", "x")):
        t.register(subject, text)
    t.run(t.registry.delete_version("b", 2))

    def listed(*arguments: object, **more: bool) -> list[tuple[str, int]]:
        return [(each.subject, each.version) for each in t.registry.schemas(*arguments, **more)]  # type: ignore[arg-type]

    assert listed() == [("a", 1), ("b", 1)]
    assert listed("b", LookupFilter.INCLUDE_DELETED) == [("b", 1), ("b", 2)]
    assert listed("", LookupFilter.INCLUDE_DELETED, latest_only=True) == [("a", 1), ("b", 2)]


def test_the_latest_is_named_in_several_ways(t: Trial) -> None:
    t.register("orders", "a")
    assert {t.registry.version("orders", version).version for version in (1, "1", "latest", -1, "-1")} == {1}
    with pytest.raises(InvalidVersion, match="is not a valid version id"):
        t.registry.version("orders", "first")


def test_what_is_not_there_is_said_in_the_words_that_clients_know(t: Trial) -> None:
    t.register("orders", "a")
    for error, sentence, call in (
        (SubjectNotFound, r"^Subject 'x' not found\.$", lambda: t.registry.versions("x")),
        (SubjectNotFound, r"^Subject 'x' not found\.$", lambda: t.registry.version("x", 1)),
        (VersionNotFound, r"^Version 9 not found\.$", lambda: t.registry.version("orders", 9)),
        (SchemaNotFound, r"^Schema 9 not found$", lambda: t.registry.schema(9)),
        (SchemaNotFound, r"^Schema 9 not found$", lambda: t.registry.definition(9)),
        (SchemaNotFound, r"^Schema 9 not found$", lambda: t.registry.versions_of_schema(9)),
    ):
        with pytest.raises(error, match=sentence):
            call()


# References


def test_a_schema_is_defined_with_all_that_it_refers_to_in_the_order_of_need(t: Trial) -> None:
    t.register("base", "b")
    t.register("middle", "m", base=("base", 1))
    made = t.register("top", "t", middle=("middle", 1), base=("base", 1))
    expected = Definition(SchemaKind.AVRO, "t", (("base", "b"), ("middle", "m")))
    assert t.registry.definition(made.schema_id) == t.engine.parsed[-1] == expected
    assert t.registry.referenced_by("base", 1) == (2, 3)
    assert t.registry.referenced_by("middle", "latest") == (3,)
    assert t.registry.referenced_by("top", 1) == ()


def test_a_reference_to_the_latest_is_kept_as_one_to_the_version_that_it_was(t: Trial) -> None:
    t.register("base", "b")
    made = t.register("top", "t", base=(":.:base", -1))
    assert made.schema.references == (Reference(name="base", subject="base", version=1),)
    t.register("base", "b?")
    assert t.register("top", "t", base=("base", 1)) == made
    assert t.register("top", "t", base=("base", -1)).version == 2


def test_schemas_that_refer_to_different_versions_are_different_schemas(t: Trial) -> None:
    t.register("base", "b")
    t.register("base", "b?")
    first, second = (t.register("top", "t", base=("base", version)) for version in (1, 2))
    assert first.schema_id != second.schema_id


@pytest.mark.parametrize("place", [("nobody", 1), ("base", 2), ("base", 0), ("gone", 1), ("", 1), ("\ud800", 1)])
def test_what_is_referred_to_must_be_there(t: Trial, place: tuple[str, int]) -> None:
    t.register("base", "b")
    t.register("gone", "g")
    t.run(t.registry.delete_subject("gone"))
    with pytest.raises(InvalidSchema, match=r"what it refers to as 'r', version .* of subject .*, is not there") as no:
        t.register("top", "t", r=place)
    no.value.message.encode()


def test_one_name_does_not_stand_for_two_schemas(t: Trial) -> None:
    t.register("base", "b")
    t.register("base", "b?")
    t.register("middle", "m", base=("base", 1))
    with pytest.raises(InvalidSchema, match="'base' stands for two different schemas"):
        t.register("top", "t", middle=("middle", 1), base=("base", 2))


def test_references_are_limited_with_all_that_they_bring(t: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(references, "SCHEMA_REFERENCES_MAX", 4)
    t.register("chain", "c1")
    for number in range(1, 4):
        t.register("chain", f"c{number}?", **{f"r{number}": ("chain", number)})
    t.register("top", "t", last=("chain", 4))
    with pytest.raises(InvalidSchema, match="more than 4 references"):
        t.register("higher", "h", top=("top", 1))


def test_the_same_text_referring_to_itself_again_and_again_is_limited_too(
    t: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every level has the same name and text, but another version."""
    monkeypatch.setattr(references, "SCHEMA_REFERENCES_MAX", 4)
    t.register("chain", "c")
    for number in range(1, 5):
        t.register("chain", "c", find_by_fingerprint=("chain", number))
    with pytest.raises(InvalidSchema, match="more than 4 references"):
        t.register("chain", "c", find_by_fingerprint=("chain", 5))


def test_too_many_references_are_refused_before_they_are_looked_up(t: Trial) -> None:
    many = {f"r{number}": ("nobody", 1) for number in range(SCHEMA_REFERENCES_MAX + 1)}
    with pytest.raises(InvalidSchema, match="more than 128 references"):
        t.register("top", "t", **many)


def test_a_schema_refers_to_its_own_kind_only(t: Trial) -> None:
    t.register("base", "b")
    of_json = replace(words("t", r=("base", 1)), kind=SchemaKind.JSON)
    sentence = "what it refers to as 'r' is AVRO, and a schema of type JSON refers to its own kind only"
    examined = len(t.engine.parsed)
    for call in (t.registry.register("top", of_json), t.registry.check("top", of_json)):
        with pytest.raises(InvalidSchema, match=sentence) as refused:
            t.run(call)
        assert refused.value.details == {"reference": "r"}
    assert len(t.engine.parsed) == examined, "nobody was asked to understand it"


@pytest.mark.parametrize("kind", [SchemaKind.STRING, SchemaKind.NUMBER, SchemaKind.BYTES])
def test_what_has_no_text_refers_to_nothing(t: Trial, kind: SchemaKind) -> None:
    t.run(t.registry.register("base", Schema(kind=kind, text="")))
    with pytest.raises(InvalidSchema, match=f"a schema of type {kind} refers to nothing"):
        t.run(t.registry.register("top", replace(words("", r=("base", 1)), kind=kind)))


def test_the_bytes_of_a_schema_are_limited_with_those_of_all_that_it_refers_to(
    t: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(references, "SCHEMA_CLOSURE_BYTES_MAX", 6)
    t.register("base", "b\N{LATIN SMALL LETTER E WITH ACUTE}")
    t.register("middle", "m", base=("base", 1))
    t.register("top", "tt", middle=("middle", 1), base=("base", 1))
    with pytest.raises(InvalidSchema, match="with all that it refers to it has 7 bytes, more than 6") as refused:
        t.register("other", "ttt", middle=("middle", 1))
    assert refused.value.details == {"size": 7, "limit": 6}


def test_a_name_that_cannot_be_kept_is_refused(t: Trial) -> None:
    t.register("base", "b")
    named = (Reference(name="\ud800", subject="base", version=1),)
    with pytest.raises(InvalidSchema, match="nothing can be referred to as"):
        t.run(t.registry.register("top", replace(words("t"), references=named)))


# Compatibility


def test_by_default_a_new_version_reads_what_the_last_one_wrote(t: Trial) -> None:
    t.register("orders", "a b")
    t.register("orders", "a")
    with pytest.raises(IncompatibleSchema) as refused:
        t.register("orders", "a b c")
    assert refused.value.number == 409
    assert refused.value.message == (
        'Schema being registered is incompatible with an earlier schema for subject "orders", details: '
        "version 2, BACKWARD at /b: nobody wrote b (make it b?); version 2, BACKWARD at /c: nobody wrote c (make it c?)"
    )
    assert refused.value.details["compatibility"] == "BACKWARD"
    problems = refused.value.details["problems"]
    assert isinstance(problems, list)
    assert problems[0] == {
        "kind": "WORD_MISSING",
        "path": "/b",
        "message": "nobody wrote b",
        "fix": "make it b?",
        "version": 2,
        "direction": "BACKWARD",
    }
    assert t.registry.versions("orders") == (1, 2)


def test_the_sentence_tells_the_first_problems_and_the_details_all(t: Trial) -> None:
    t.register("orders", "a")
    with pytest.raises(IncompatibleSchema, match=r"at /d: .*; and 4 more$") as refused:
        t.register("orders", "a b c d e f g h")
    assert len(refused.value.details["problems"]) == 7  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("mode", "taken"),
    [
        ("NONE", True),
        ("BACKWARD", True),
        ("BACKWARD_TRANSITIVE", False),
        ("FORWARD", False),
        ("FORWARD_TRANSITIVE", False),
        ("FULL", False),
    ],
)
def test_the_mode_decides_which_versions_count_and_in_which_direction(t: Trial, mode: str, taken: bool) -> None:
    for text in ("a? b? c", "a? b? c d"):
        free(t, "orders")
        t.register("orders", text)
    t.run(t.registry.set_compatibility("orders", mode))
    if taken:
        assert t.register("orders", "d").version == 3
    else:
        with pytest.raises(IncompatibleSchema):
            t.register("orders", "d")


def test_lenience_is_a_setting_like_the_mode(t: Trial) -> None:
    t.register("orders", "a")
    with pytest.raises(IncompatibleSchema):
        t.register("orders", "a b~")
    t.run(t.registry.set_compatibility(None, lenient=True))
    assert t.register("orders", "a b~").version == 2
    t.run(t.registry.set_compatibility("orders", lenient=False))
    with pytest.raises(IncompatibleSchema):
        t.register("orders", "a b c~")


def test_deleted_versions_do_not_count(t: Trial) -> None:
    t.register("orders", "a")
    t.run(t.registry.delete_version("orders", 1))
    assert t.register("orders", "b").version == 2
    t.run(t.registry.delete_subject("orders"))
    assert t.register("orders", "c").version == 3


def test_a_schema_that_is_several_versions_is_compared_once(t: Trial) -> None:
    t.run(t.registry.set_compatibility("orders", "BACKWARD_TRANSITIVE"))
    t.register("orders", "a")
    t.run(t.registry.delete_version("orders", 1))
    t.register("orders", "a")
    t.run(t.registry.undelete("orders", 1))
    t.register("orders", "a?")
    assert t.engine.compared == [("a?", "a")]


# Compatibility checks before registration


def test_what_would_keep_a_schema_from_being_registered_is_told(t: Trial) -> None:
    t.register("orders", "a b")
    t.register("orders", "a")
    problems = t.run(t.registry.check("orders", words("a b")))
    assert [(each.path, each.version, each.direction) for each in problems] == [("/b", 2, "BACKWARD")]
    assert t.run(t.registry.check("orders", words("a"))) == []
    assert t.registry.versions("orders") == (1, 2)


def test_one_version_may_be_asked_about_alone(t: Trial) -> None:
    t.register("orders", "a b")
    t.register("orders", "a")
    assert t.run(t.registry.check("orders", words("b"), 1)) == []
    for latest in ("latest", -1, 2):
        assert len(t.run(t.registry.check("orders", words("b"), latest))) == 1
    t.run(t.registry.set_compatibility("orders", "FORWARD"))
    assert [each.path for each in t.run(t.registry.check("orders", words("b"), 1))] == ["/a"]
    free(t, "orders")
    assert t.run(t.registry.check("orders", words("b"), 1)) == []


def test_where_nothing_is_nothing_is_asked_but_for_a_version_that_is_not_there(t: Trial) -> None:
    assert t.run(t.registry.check("orders", words("a"))) == []
    assert t.run(t.registry.check("orders", words("a"), "latest")) == []
    with pytest.raises(VersionNotFound, match=r"^Version 1 not found\.$"):
        t.run(t.registry.check("orders", words("a"), 1))


def test_what_is_no_schema_is_not_compatible_with_anything(t: Trial) -> None:
    with pytest.raises(InvalidSchema):
        t.run(t.registry.check("orders", words("a!")))


def test_two_schemas_may_be_compared_without_a_subject(t: Trial) -> None:
    (problem,) = t.run(t.registry.check_pair(words("a b"), words("a")))
    assert problem.as_dict() == {
        "kind": "WORD_MISSING",
        "path": "/b",
        "message": "nobody wrote b",
        "fix": "make it b?",
    }
    assert t.run(t.registry.check_pair(words("a b~"), words("a"), lenient=True)) == []


# Lookup


def test_a_schema_is_found_however_it_is_written(t: Trial) -> None:
    made = t.register("orders", "a b")
    t.register("orders", "a")
    assert t.run(t.registry.look_up("orders", words("b a"))) == made


def test_what_is_not_found_is_a_subject_or_a_schema(t: Trial) -> None:
    t.register("orders", "a")
    with pytest.raises(SubjectNotFound, match=r"^Subject 'x' not found\.$"):
        t.run(t.registry.look_up("x", words("a")))
    with pytest.raises(SchemaNotFound, match=r"^Schema not found$"):
        t.run(t.registry.look_up("orders", words("b")))
    with pytest.raises(InvalidSchema):
        t.run(t.registry.look_up("orders", words("a!")))


def test_what_was_deleted_is_found_if_that_is_wanted_and_what_was_not_rather(t: Trial) -> None:
    t.register("base", "b")
    t.register("orders", "a", base=("base", 1))
    for subject in ("orders", "base"):
        t.run(t.registry.delete_subject(subject))
    schema = words("a", base=("base", 1))
    with pytest.raises(SubjectNotFound):
        t.run(t.registry.look_up("orders", schema))
    assert t.run(t.registry.look_up("orders", schema, deleted=True)).version == 1
    t.run(t.registry.undelete("base"))
    t.run(t.registry.register("orders", schema))
    t.run(t.registry.undelete("orders"))
    t.run(t.registry.delete_version("orders", 2))
    assert t.run(t.registry.look_up("orders", schema, deleted=True)).version == 1


# Deletion


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


# Settings


def test_a_subject_has_the_compatibility_of_all_until_it_has_its_own(t: Trial) -> None:
    backward = CompatibilityConfig(compatibility=Compatibility.BACKWARD, lenient=False)
    assert t.registry.compatibility() == backward
    with pytest.raises(CompatibilityNotConfigured, match=r"^Subject 'orders' does not have subject-level compatib"):
        t.registry.compatibility("orders")
    assert t.registry.compatibility("orders", default_to_global=True) == backward
    full = t.run(t.registry.set_compatibility(None, "full"))
    assert full == CompatibilityConfig(compatibility=Compatibility.FULL, lenient=False)
    assert t.registry.compatibility("orders", default_to_global=True) == full
    own = t.run(t.registry.set_compatibility("orders", "FORWARD", lenient=True))
    assert (
        own
        == t.registry.compatibility("orders")
        == CompatibilityConfig(compatibility=Compatibility.FORWARD, lenient=True)
    )
    assert t.run(t.registry.set_compatibility("orders", lenient=False)).compatibility is Compatibility.FORWARD
    assert t.registry.compatibility() == full
    assert t.reload().compatibility("orders") == t.registry.compatibility("orders")


def test_clearing_returns_what_it_was(t: Trial) -> None:
    t.run(t.registry.set_compatibility(None, "NONE"))
    t.run(t.registry.set_compatibility("orders", "FULL"))
    assert t.run(t.registry.clear_compatibility("orders")).compatibility is Compatibility.FULL
    with pytest.raises(SubjectNotFound, match=r"^Subject 'orders' not found\.$"):
        t.run(t.registry.clear_compatibility("orders"))
    assert t.run(t.registry.clear_compatibility(None)).compatibility is Compatibility.NONE
    assert t.run(t.registry.clear_compatibility(None)).compatibility is Compatibility.BACKWARD


def test_a_mode_is_a_setting_too(t: Trial) -> None:
    assert t.registry.mode() is SubjectMode.READWRITE
    with pytest.raises(ModeNotConfigured, match=r"^Subject 'orders' does not have subject-level mode configured$"):
        t.registry.mode("orders")
    assert t.run(t.registry.set_mode(None, "readonly")) is SubjectMode.READONLY
    assert t.registry.mode("orders", default_to_global=True) is SubjectMode.READONLY
    assert t.run(t.registry.set_mode("orders", "READWRITE")) is SubjectMode.READWRITE
    assert t.registry.mode("orders") is SubjectMode.READWRITE
    assert t.run(t.registry.clear_mode("orders")) is SubjectMode.READWRITE
    with pytest.raises(SubjectNotFound):
        t.run(t.registry.clear_mode("orders"))
    assert t.run(t.registry.clear_mode(None)) is SubjectMode.READONLY
    assert t.registry.mode() is SubjectMode.READWRITE


def test_words_that_are_no_setting_are_refused(t: Trial) -> None:
    with pytest.raises(InvalidCompatibility, match="Valid values are none, backward, backward_transitive, forward"):
        t.registry.set_compatibility(None, "SIDEWAYS")
    with pytest.raises(InvalidMode, match="Valid values are READWRITE, READONLY, READONLY_OVERRIDE, IMPORT"):
        t.registry.set_mode(None, "WRITEONLY")


# Modes


@pytest.mark.parametrize(
    ("general", "own"), [("READONLY", None), ("READWRITE", "READONLY"), ("READONLY_OVERRIDE", "READWRITE")]
)
def test_a_subject_that_is_read_only_is_only_read(t: Trial, general: str, own: str | None) -> None:
    made = t.register("orders", "a")
    t.register("orders", "a?")
    t.run(t.registry.delete_version("orders", 2))
    if own is not None:
        t.run(t.registry.set_mode("orders", own))
    t.run(t.registry.set_mode(None, general))
    for procedure in (
        t.registry.register("orders", words("a b?")),
        t.registry.delete_version("orders", 1),
        t.registry.delete_version("orders", 2, permanent=True),
        t.registry.delete_subject("orders"),
        t.registry.undelete("orders"),
        t.registry.set_compatibility("orders", "NONE"),
        t.registry.deprecate("orders", 1, "old"),
        t.registry.describe("orders", 1, description="d"),
    ):
        with pytest.raises(OperationNotPermitted, match=r"^Subject orders is in read-only mode$"):
            t.run(procedure)
    assert t.register("orders", "a") == made
    assert t.run(t.registry.look_up("orders", words("a"))) == made
    t.run(t.registry.set_mode(None, "READWRITE"))
    t.run(t.registry.set_mode("orders", "READWRITE"))
    assert t.run(t.registry.undelete("orders")) == (2,)


def test_a_subject_of_its_own_mode_does_not_mind_the_mode_of_all(t: Trial) -> None:
    t.run(t.registry.set_mode("orders", "READWRITE"))
    t.run(t.registry.set_mode(None, "READONLY"))
    assert t.register("orders", "a").version == 1


def test_only_what_is_empty_is_set_to_import_unless_by_force(t: Trial) -> None:
    t.register("orders", "a")
    for subject in ("orders", None):
        with pytest.raises(OperationNotPermitted, match=r"^Cannot import since found existing subjects$"):
            t.run(t.registry.set_mode(subject, "IMPORT"))
    assert t.run(t.registry.set_mode("payments", "IMPORT")) is SubjectMode.IMPORT
    t.run(t.registry.set_mode("orders", "IMPORT", force=True))
    assert t.run(t.registry.set_mode("orders", "IMPORT")) is SubjectMode.IMPORT
    t.run(t.registry.delete_subject("orders"))
    assert t.run(t.registry.set_mode(None, "IMPORT")) is SubjectMode.IMPORT


def test_imported_schemas_keep_their_numbers_and_are_compared_with_nothing(t: Trial) -> None:
    t.run(t.registry.set_mode("orders", "IMPORT"))
    made = t.run(t.registry.register("orders", words("a"), schema_id=70, version=5))
    assert (made.schema_id, made.version) == (70, 5)
    assert t.run(t.registry.register("orders", words("b"), schema_id=60, version=3)).version == 3
    assert t.run(t.registry.register("orders", words("c"), schema_id=80)).version == 6
    assert t.engine.compared == []
    assert t.registry.versions("orders") == (3, 5, 6)
    assert t.run(t.registry.register("orders", words("a"), schema_id=70, version=5)) == made
    assert t.run(t.registry.register("orders", words("a"), schema_id=70)) == made
    assert t.run(t.registry.register("orders", words("a"))) == made
    assert t.run(t.registry.register("orders", words("a"), schema_id=70, version=9)).version == 9
    t.run(t.registry.set_mode("orders", "READWRITE"))
    assert t.register("orders", "c?").schema_id == 81


def test_numbers_are_given_from_outside_in_import_mode_alone_and_an_id_always(t: Trial) -> None:
    with pytest.raises(OperationNotPermitted, match=r"^Subject orders is not in import mode$"):
        t.run(t.registry.register("orders", words("a"), schema_id=7))
    with pytest.raises(InvalidSchema, match="version 2 is not one more than the last version"):
        t.run(t.registry.register("orders", words("a"), version=2))
    assert t.run(t.registry.register("orders", words("a"), version=1)).version == 1
    t.run(t.registry.set_mode("orders", "IMPORT", force=True))
    with pytest.raises(OperationNotPermitted, match=r"^Subject orders is not in read-write mode$"):
        t.register("orders", "b")


@pytest.mark.parametrize(
    ("text", "numbers", "sentence"),
    [
        ("b", {"schema_id": 7}, "^Overwrite new schema with id 7 is not permitted. It is another schema: version 1 of"),
        ("a", {"schema_id": 8}, "^Schema already registered with id 7 instead of input id 8$"),
        ("b", {"schema_id": 8, "version": 1}, "^Version 1 of subject 'orders' is there already, with schema id 7$"),
        ("b", {"schema_id": 8, "version": 2}, "^Version 2 of subject 'orders' is there already, with schema id 9$"),
        ("b", {"schema_id": 0}, "from 1 to 2147483647, not 0$"),
        ("b", {"schema_id": 2**31}, "from 1 to 2147483647"),
        ("b", {"schema_id": 8, "version": 2**31}, "from 1 to 2147483647"),
    ],
)
def test_numbers_that_are_another_s_are_refused_with_the_reason(
    t: Trial, text: str, numbers: dict[str, int], sentence: str
) -> None:
    t.run(t.registry.set_mode(None, "IMPORT"))
    t.run(t.registry.register("orders", words("a"), schema_id=7, version=1))
    t.run(t.registry.register("orders", words("x"), schema_id=9, version=2))
    t.run(t.registry.delete_version("orders", 2))
    with pytest.raises(OperationNotPermitted, match=sentence):
        t.run(
            t.registry.register("orders", words(text), schema_id=numbers["schema_id"], version=numbers.get("version"))
        )


# Metadata of a version


def test_a_version_is_deprecated_with_a_message_and_no_longer_so(t: Trial) -> None:
    t.register("orders", "a")
    assert t.run(t.registry.deprecate("orders", "latest", "use version 2")).deprecated == "use version 2"
    assert t.reload().version("orders", 1).deprecated == "use version 2"
    assert t.run(t.registry.deprecate("orders", 1, None)).deprecated is None
    with pytest.raises(VersionNotFound):
        t.run(t.registry.deprecate("orders", 2, "x"))
    with pytest.raises(RegistryError, match="deprecated"):
        t.registry.deprecate("orders", 1, "x" * 5000)


def test_a_description_changes_and_what_is_not_given_stays(t: Trial) -> None:
    about = VersionMetadata(description="d", tags=("t",), created_by="me")
    t.run(t.registry.register("orders", words("a"), metadata=about))
    t.run(t.registry.delete_version("orders", 1))
    changed = t.run(t.registry.describe("orders", 1, description="e"))
    assert changed.metadata == VersionMetadata(description="e", tags=("t",), created_by="me")
    assert t.run(t.registry.describe("orders", 1, tags=["x", "y"])).metadata.tags == ("x", "y")
    revision = t.registry.revision
    t.run(t.registry.describe("orders", 1, tags=["x", "y"], description="e"))
    assert t.registry.revision == revision
    with pytest.raises(RegistryError, match="tags"):
        t.run(t.registry.describe("orders", 1, tags=["x"] * 99))


# Queries of topics


def test_what_messages_may_name_is_told_with_how_it_stands(t: Trial) -> None:
    for text in ("a", "a?", "a? b?"):
        t.register("orders", text)
    t.register("foreign", "f")
    t.run(t.registry.deprecate("orders", 2, "old"))
    t.run(t.registry.delete_version("orders", 3))
    assert t.registry.accepted_versions(["orders", "nobody"]) == {
        (1, 1): VersionStatus(subject="orders", deprecated=None, deleted=False),
        (2, 2): VersionStatus(subject="orders", deprecated="old", deleted=False),
        (3, 3): VersionStatus(subject="orders", deprecated=None, deleted=True),
    }


def test_of_two_subjects_with_one_schema_the_better_standing_counts(t: Trial) -> None:
    for subject in ("a", "b", "c"):
        t.register(subject, "x")
    t.run(t.registry.deprecate("b", 1, "old"))
    t.run(t.registry.delete_version("c", 1))
    for subjects in (["a", "b", "c"], ["c", "b", "a"]):
        assert t.registry.accepted_versions(subjects) == {
            (1, 1): VersionStatus(subject="a", deprecated=None, deleted=False)
        }
    assert t.registry.accepted_versions(["c", "b"])[1, 1].subject == "b"


def test_the_revision_rises_with_every_change_and_with_nothing_else(t: Trial) -> None:
    t.register("orders", "a")
    t.register("orders", "a?")
    last = t.registry.revision
    for procedure in (
        t.registry.deprecate("orders", 1, "old"),
        t.registry.describe("orders", 1, description="d"),
        t.registry.set_compatibility("orders", "NONE"),
        t.registry.set_mode(None, "READWRITE"),
        t.registry.delete_version("orders", 1),
        t.registry.undelete("orders", 1),
        t.registry.delete_subject("orders"),
        t.registry.delete_subject("orders", permanent=True),
    ):
        t.run(procedure)
        assert t.registry.revision == last + 1
        last += 1
    t.registry.subjects()
    t.run(t.registry.check("orders", words("a")))
    t.run(t.registry.set_mode(None, "READWRITE"))
    assert t.registry.revision == last


# Others are faster


def test_what_another_process_has_changed_is_taken_into_account(t: Trial) -> None:
    other = Trial(t.catalog)
    other.register("orders", "a b")
    other.register("orders", "a")
    assert t.registry.subjects() == ()
    with pytest.raises(IncompatibleSchema):
        t.register("orders", "a b c")
    assert t.registry.versions("orders") == (1, 2)
    assert t.register("orders", "b a") == other.registry.version("orders", 1)
    other.run(other.registry.set_mode(None, "READONLY"))
    with pytest.raises(OperationNotPermitted):
        t.register("payments", "x")


def test_decisions_on_others_subjects_do_not_disturb_one_another(t: Trial) -> None:
    other = Trial(t.catalog)
    assert [each.register(subject, "a").schema_id for each, subject in ((t, "a"), (other, "b"), (t, "c"))] == [1, 1, 1]
    assert len(t.engine.parsed) == 2
    assert t.registry.subjects() == ("a", "b", "c")
    other.run(other.registry.refresh())
    assert other.registry.subjects() == ("a", "b", "c")


def test_who_refers_to_what_another_has_just_deleted_is_told_so(t: Trial) -> None:
    t.register("base", "b")
    other = Trial(t.catalog)
    other.run(other.registry.delete_subject("base"))
    with pytest.raises(InvalidSchema, match="is not there"):
        t.register("top", "t", base=("base", 1))


def test_who_deletes_what_another_has_just_referred_to_is_told_so(t: Trial) -> None:
    t.register("base", "b")
    other = Trial(t.catalog)
    other.register("top", "t", base=("base", 1))
    with pytest.raises(ReferenceExists, match="Version 1 of subject 'top'"):
        t.run(t.registry.delete_subject("base"))


def test_who_imports_an_id_that_another_has_just_taken_is_told_so(t: Trial) -> None:
    t.run(t.registry.set_mode("orders", "IMPORT"))
    other = Trial(t.catalog)
    other.register("payments", "p")
    with pytest.raises(OperationNotPermitted, match="Overwrite new schema with id 1"):
        t.run(t.registry.register("orders", words("a"), schema_id=1))


def test_whoever_is_always_too_late_is_told_to_try_again(t: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "ATTEMPTS_MAX", 3)
    rival = Trial(t.catalog)
    turns: list[RegisteredVersion] = []

    class Interrupted(Words):
        """A schema engine: while it compares, another process registers something else."""

        def check_compatibility(self, pairs: tuple[SchemaPair, ...], *, lenient: bool) -> list[list[Problem]]:
            turns.append(rival.register("orders", f"a b{len(turns)}?"))
            return super().check_compatibility(pairs, lenient=lenient)

    t.register("orders", "a")
    with pytest.raises(SubjectChanged, match="try again") as refused:
        run_procedure(t.registry.register("orders", words("a c?")), Interrupted())
    assert refused.value.retriable
    assert [made.version for made in turns] == [2, 3, 4]


# Limits


def test_a_registry_is_full_at_some_point_and_says_so(t: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "SUBJECTS_MAX", 2)
    monkeypatch.setattr(index, "VERSIONS_MAX", 2)
    t.register("a", "x")
    t.register("b", "x")
    for procedure in (t.registry.register("c", words("x")), t.registry.set_mode("c", "READONLY")):
        with pytest.raises(OperationNotPermitted, match="knows 2 subjects"):
            t.run(procedure)
    t.register("a", "y?")
    with pytest.raises(OperationNotPermitted, match="Subject 'a' has 2 versions"):
        t.register("a", "z?")


def test_all_texts_together_are_limited(t: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "TEXTS_BYTES_MAX", 5)
    t.register("a", "éé")
    with pytest.raises(OperationNotPermitted, match="All schemas together have 4 bytes, and can have 5"):
        t.register("b", "xx")
    assert t.register("b", "éé").schema_id == 1
    t.run(t.registry.delete_subject("a"))
    t.run(t.registry.delete_subject("a", permanent=True))
    t.run(t.registry.delete_subject("b"))
    t.run(t.registry.delete_subject("b", permanent=True))
    assert t.register("c", "xx").schema_id == 2


# Real languages


def test_schemas_without_text_go_through_the_registry(t: Trial) -> None:
    engine = SchemaLanguages()
    made = run_procedure(t.registry.register("names", STRING), engine)
    assert run_procedure(t.registry.register("names", replace(STRING, text='"string"')), engine) == made
    number = Schema(kind=SchemaKind.NUMBER, text="")
    assert run_procedure(t.registry.check("names", number), engine)[0].kind == "KIND_CHANGED"
    with pytest.raises(IncompatibleSchema, match="written as STRING cannot be read as NUMBER"):
        run_procedure(t.registry.register("names", number), engine)
    anything = Schema(kind=SchemaKind.BYTES, text="")
    assert run_procedure(t.registry.register("names", anything), engine).version == 2


CUSTOMER = '{"type": "record", "name": "shop.Customer", "fields": [{"name": "id", "type": "long"}]}'
ORDER = """
{"type": "record", "name": "Order", "namespace": "shop", "fields": [
  {"name": "customer", "type": "Customer"}%s
]}
"""


def avro(text: str, **references: tuple[str, int]) -> Schema:
    return words(text, **{name.replace("_", "."): place for name, place in references.items()})


def test_avro_goes_through_the_registry_with_references_and_all(t: Trial) -> None:
    engine = SchemaLanguages()

    def register(subject: str, schema: Schema) -> RegisteredVersion:
        return run_procedure(t.registry.register(subject, schema), engine)

    register("customers", avro(CUSTOMER))
    first = register("orders", avro(ORDER % "", shop_Customer=("customers", 1)))
    assert first.schema.text == ORDER % ""
    assert register("orders", avro(" ".join((ORDER % "").split()), shop_Customer=("customers", -1))) == first
    missing = avro(ORDER % ', {"name": "total", "type": "double"}', shop_Customer=("customers", 1))
    with pytest.raises(IncompatibleSchema, match="total") as refused:
        register("orders", missing)
    assert refused.value.details["compatibility"] == "BACKWARD"
    mended = avro(ORDER % ', {"name": "total", "type": "double", "default": 0}', shop_Customer=("customers", 1))
    assert register("orders", mended).version == 2
    with pytest.raises(InvalidSchema):
        register("orders", avro(ORDER % ""))
    with pytest.raises(ReferenceExists):
        run_procedure(t.registry.delete_subject("customers"), engine)
    assert run_procedure(t.registry.look_up("orders", mended), engine).schema_id == 3
    assert [each.direction for each in run_procedure(t.registry.check("orders", missing, 1), engine)] == ["BACKWARD"]
