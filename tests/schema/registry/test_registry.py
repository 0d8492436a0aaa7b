"""The registry's decisions, one by one, in a schema language that is simple enough to see through."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.schema.registry_kit import Trial, free, words

from penstock.core.schemas import (
    SCHEMA_BYTES_MAX,
    Definition,
    Schema,
    SchemaKind,
)
from penstock.schema.errors import (
    IncompatibleSchema,
    InvalidSchema,
    InvalidVersion,
    OperationNotPermitted,
    ReferenceExists,
    RegistryError,
    SchemaNotFound,
    SubjectNotFound,
    VersionNotFound,
)
from penstock.schema.languages import SchemaLanguages
from penstock.schema.registry import index
from penstock.schema.registry.models import LookupFilter, RegisteredVersion, VersionStatus
from penstock.schema.steps import run_procedure
from penstock.storage.catalog.schema_rows import VersionMetadata

STRING = Schema(kind=SchemaKind.STRING, text="")


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
