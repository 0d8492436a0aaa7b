"""References: resolution, order and limits."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.schema.registry_kit import Trial, words

from penstock.core.schemas import (
    SCHEMA_REFERENCES_MAX,
    Definition,
    Reference,
    Schema,
    SchemaKind,
)
from penstock.schema.errors import (
    InvalidSchema,
)
from penstock.schema.registry import references

STRING = Schema(kind=SchemaKind.STRING, text="")


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
    parsed = len(t.engine.parsed)
    for call in (t.registry.register("top", of_json), t.registry.check("top", of_json)):
        with pytest.raises(InvalidSchema, match=sentence) as refused:
            t.run(call)
        assert refused.value.details == {"reference": "r"}
    assert len(t.engine.parsed) == parsed, "nobody was asked to understand it"


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
