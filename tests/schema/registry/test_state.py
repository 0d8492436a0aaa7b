"""Conflicts: other processes change the catalog while a procedure decides."""

from __future__ import annotations

import pytest
from tests.schema.registry_kit import Trial, Words, words

from penstock.schema.errors import (
    IncompatibleSchema,
    InvalidSchema,
    OperationNotPermitted,
    ReferenceExists,
)
from penstock.schema.problems import Problem
from penstock.schema.registry import state
from penstock.schema.registry.models import RegisteredVersion
from penstock.schema.steps import SchemaPair, run_procedure
from penstock.storage.catalog.schema_rows import SubjectChanged


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
