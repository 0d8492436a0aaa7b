"""The parsing of subjects, versions, schemas and metadata."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.schema.registry_kit import words

from penstock.core.schemas import SCHEMA_BYTES_MAX, SUBJECT_CHARS_MAX, Reference, Schema, SchemaKind
from penstock.schema.errors import InvalidSchema, InvalidVersion, RegistryError
from penstock.schema.registry.models import (
    check_metadata,
    check_schema,
    fingerprint_of,
    parse_subject,
    parse_version,
    subject_prefix,
)
from penstock.storage.catalog.schema_rows import VersionMetadata


@pytest.mark.parametrize("subject", ["a", "a/b %2F c", ":", "::", "größe", "\U0001f701", "x" * SUBJECT_CHARS_MAX])
def test_a_subject_may_have_any_name_that_can_be_written(subject: str) -> None:
    assert parse_subject(subject) == parse_subject(f":.:{subject}") == subject


@pytest.mark.parametrize("subject", ["", "x" * (SUBJECT_CHARS_MAX + 1), "a\nb", "\0", "\x7f", "\x85", "\ud800", ":.:"])
def test_a_name_that_no_subject_has_is_refused_in_words_that_can_be_sent(subject: str) -> None:
    with pytest.raises(RegistryError, match="is not valid") as refused:
        parse_subject(subject)
    assert refused.value.message.encode().isascii() or "\N{REPLACEMENT CHARACTER}" in refused.value.message
    assert refused.value.message.replace("\N{REPLACEMENT CHARACTER}", "").isprintable()


@pytest.mark.parametrize("subject", [":.other:orders", ":.a:", ":.\n:x"])
def test_there_is_no_context_but_the_default_one(subject: str) -> None:
    with pytest.raises(RegistryError, match="There is no context"):
        parse_subject(subject)


@pytest.mark.parametrize("subject", [":.::.:orders", ":.::.other:orders"])
def test_a_name_that_is_kept_means_itself(subject: str) -> None:
    with pytest.raises(RegistryError, match="one context is enough"):
        parse_subject(subject)


def test_what_stands_before_a_prefix_is_left_away() -> None:
    assert [subject_prefix(text) for text in ("", "a", ":*:", ":*:a", ":.:a", ":a")] == ["", "a", "", "a", "a", ":a"]


@pytest.mark.parametrize(
    "version", [0, -2, 2**31, "0", "01", "+1", "1.0", "", " 1", "1\n", "١", "Latest", "9" * 99, True]
)
def test_what_is_no_version_is_refused(version: int | str) -> None:
    with pytest.raises(InvalidVersion, match=r"is not a valid version id\. Allowed values are between"):
        parse_version(version)


@pytest.mark.parametrize(
    ("version", "number"),
    [(1, 1), ("1", 1), (2**31 - 1, 2**31 - 1), ("2147483647", 2**31 - 1), ("latest", None), (-1, None), ("-1", None)],
)
def test_a_version_is_a_number_or_the_latest(version: int | str, number: int | None) -> None:
    assert parse_version(version) == number


@pytest.mark.parametrize("text", ["\ud800", "a\0b", "x" * (SCHEMA_BYTES_MAX + 1), "é" * (SCHEMA_BYTES_MAX // 2 + 1)])
def test_a_text_that_cannot_be_kept_is_no_schema(text: str) -> None:
    with pytest.raises(InvalidSchema, match="Invalid schema"):
        check_schema(words(text))


@pytest.mark.parametrize("name", ["", "\n", "\udfff", "x" * 513])
def test_a_reference_has_a_name(name: str) -> None:
    references = (Reference(name=name, subject="s", version=1),)
    with pytest.raises(InvalidSchema, match="nothing can be referred to as"):
        check_schema(Schema(kind=SchemaKind.JSON, text="", references=references))


@pytest.mark.parametrize(
    ("metadata", "field"),
    [
        (VersionMetadata(description="x" * 4097), "description"),
        (VersionMetadata(description="\0"), "description"),
        (VersionMetadata(created_by="x" * 141), "created_by"),
        (VersionMetadata(tags=("x",) * 65), "tags"),
        (VersionMetadata(tags=("x" * 129,)), "tags"),
        (VersionMetadata(tags=("\udc00",)), "tags"),
    ],
)
def test_words_that_cannot_be_kept_are_refused_by_name(metadata: VersionMetadata, field: str) -> None:
    with pytest.raises(RegistryError, match=field) as refused:
        check_metadata(metadata)
    assert refused.value.details == {"field": field}


def test_as_many_words_as_can_be_kept_are_taken() -> None:
    check_metadata(VersionMetadata(description="x" * 4096, tags=("x" * 128,) * 64, created_by="é" * 140))


texts = st.text(st.characters(codec="utf-8"), max_size=3)
references = st.builds(Reference, name=texts, subject=texts, version=st.integers(1, 3))
schemas = st.builds(
    Schema, kind=st.sampled_from(SchemaKind), text=texts, references=st.lists(references, max_size=2).map(tuple)
)


@given(schemas, texts, schemas, texts)
def test_schemas_are_the_same_if_kind_meaning_and_references_are(one: Schema, a: str, other: Schema, b: str) -> None:
    def identity(schema: Schema, canonical: str) -> tuple[object, ...]:
        named = sorted((each.name, each.subject, each.version) for each in schema.references)
        return schema.kind, canonical, named

    find_by_fingerprint = identity(one, a) == identity(other, b)
    assert (fingerprint_of(one, a) == fingerprint_of(other, b)) is find_by_fingerprint
