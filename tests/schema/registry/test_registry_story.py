"""Random stories: the registry beside a few dictionaries, two registries on one catalog, steps in any order."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.schema.registry_kit import Trial, Words, trial, words

from penstock.core.errors import PenstockError
from penstock.schema.errors import RegistryError
from penstock.schema.registry.index import RegistryIndex
from penstock.schema.registry.models import LookupFilter
from penstock.schema.registry.registry import Registry
from penstock.schema.steps import CommitToCatalog, Procedure, run_step
from penstock.storage.catalog.schemas import SchemaCatalog

SUBJECTS = ("a", "b", "c")
TEXTS = ("x", "y", "z")
subjects = st.sampled_from(SUBJECTS)
texts = st.sampled_from(TEXTS)
version_keys = st.tuples(subjects, st.integers(1, 4))
VersionKey = tuple[str, int]


def state_of(index: RegistryIndex) -> dict[str, Any]:
    """Return all that the index knows; an index without entries is an empty one."""
    found = dict(vars(index))
    found["_versions"] = {subject: versions for subject, versions in index._versions.items() if versions}
    return found


def fresh(catalog: SchemaCatalog) -> RegistryIndex:
    index = RegistryIndex()
    index.apply(catalog.load())
    return index


@dataclass(frozen=True)
class Entry:
    """A version in the story: its text and perhaps a reference, its id, and whether it is deleted."""

    what: tuple[str, VersionKey | None]
    schema_id: int
    deleted: bool = False


class Story(RuleBasedStateMachine):
    """Two registries in turn; each catches up with the changes of the other first."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        directory = self.stack.enter_context(tempfile.TemporaryDirectory())
        first = self.stack.enter_context(trial(Path(directory)))
        self.trials = [first, Trial(first.catalog)]
        first.run(first.registry.set_compatibility(None, "NONE"))
        self.turn = 0
        self.entries: dict[VersionKey, Entry] = {}
        self.last: dict[str, int] = {}
        self.last_id = 0

    @property
    def t(self) -> Trial:
        return self.trials[self.turn]

    def attempt(self, procedure: Procedure[Any], expected: object) -> None:
        try:
            found = self.t.run(procedure)
        except RegistryError:
            assert expected is Refused
        else:
            assert found == expected

    # what the model knows

    def living(self, subject: str) -> list[int]:
        return sorted(v for (s, v), entry in self.entries.items() if s == subject and not entry.deleted)

    def numbers(self, subject: str) -> list[int]:
        return sorted(v for s, v in self.entries if s == subject)

    def ids(self) -> dict[tuple[str, VersionKey | None], int]:
        return {entry.what: entry.schema_id for entry in self.entries.values()}

    def is_referred(self, place: VersionKey, leaving: set[VersionKey], *, deleted: bool) -> bool:
        return any(
            entry.what[1] == place and where not in leaving and (deleted or not entry.deleted)
            for where, entry in self.entries.items()
        )

    def lives(self, place: VersionKey | None) -> bool:
        return place is None or (place in self.entries and not self.entries[place].deleted)

    # what happens

    @rule(subject=subjects, text=texts, reference=st.none() | version_keys)
    def register(self, subject: str, text: str, reference: VersionKey | None) -> None:
        schema = words(text, **({"".join(map(str, reference)): reference} if reference else {}))
        procedure = self.t.registry.register(subject, schema)
        if not self.lives(reference):
            self.attempt(procedure, Refused)
            return
        what = (text, reference)
        known = [v for v in self.living(subject) if self.entries[subject, v].what == what]
        made = self.t.run(procedure)
        if known:
            assert made.version == known[-1]
            return
        self.last[subject] = self.last.get(subject, 0) + 1
        expected_id = self.ids().get(what, self.last_id + 1)
        assert (made.version, made.schema_id) == (self.last[subject], expected_id)
        self.last_id = max(self.last_id, expected_id)
        self.entries[subject, made.version] = Entry(what, expected_id)

    @rule(place=version_keys, permanent=st.booleans())
    def delete_version(self, place: VersionKey, permanent: bool) -> None:
        procedure = self.t.registry.delete_version(*place, permanent=permanent)
        entry = self.entries.get(place)
        refused = entry is None or entry.deleted is not permanent or self.is_referred(place, {place}, deleted=permanent)
        self.attempt(procedure, Refused if refused else place[1])
        if not refused:
            self.gone([place], permanent=permanent)

    @rule(subject=subjects, permanent=st.booleans())
    def delete_subject(self, subject: str, permanent: bool) -> None:
        procedure = self.t.registry.delete_subject(subject, permanent=permanent)
        living = self.living(subject)
        going = self.numbers(subject) if permanent else living
        leaving = {(subject, version) for version in going}
        refused = (
            not going
            or (permanent and living)
            or any(self.is_referred(place, leaving, deleted=permanent) for place in leaving)
        )
        self.attempt(procedure, Refused if refused else tuple(going))
        if not refused:
            self.gone(sorted(leaving), permanent=permanent)

    def gone(self, places: list[VersionKey], *, permanent: bool) -> None:
        for place in places:
            if permanent:
                del self.entries[place]
            else:
                self.entries[place] = replace(self.entries[place], deleted=True)

    @rule(subject=subjects, version=st.none() | st.integers(1, 4))
    def undelete(self, subject: str, version: int | None) -> None:
        procedure = self.t.registry.undelete(subject, version)
        chosen = self.numbers(subject) if version is None else [version]
        coming = [v for v in chosen if (subject, v) in self.entries and self.entries[subject, v].deleted]
        back = {(subject, v) for v in coming}
        references = [self.entries[place].what[1] for place in back]
        refused = (
            not self.numbers(subject)
            or (version is not None and (subject, version) not in self.entries)
            or not all(self.lives(reference) or reference in back for reference in references)
        )
        self.attempt(procedure, Refused if refused else tuple(coming))
        if not refused:
            for place in back:
                self.entries[place] = replace(self.entries[place], deleted=False)

    @rule(place=version_keys, text=texts, schema_id=st.integers(1, 9), deleted=st.booleans())
    def take_in(self, place: VersionKey, text: str, schema_id: int, deleted: bool) -> None:
        subject, version = place
        record = {"subject": subject, "version": version, "id": schema_id, "schemaType": "AVRO", "schema": text}
        answer = self.t.run(self.t.registry.import_([{**record, "deleted": deleted}]))
        what, entry = (text, None), self.entries.get(place)
        find_by_fingerprint = entry is not None and (entry.what, entry.schema_id) == (what, schema_id)
        other = self.ids().get(what, schema_id) != schema_id or any(
            each.schema_id == schema_id and each.what != what for each in self.entries.values()
        )
        assert (answer.known, answer.imported) == (int(find_by_fingerprint), int(entry is None and not other))
        if answer.imported:
            self.entries[place] = Entry(what, schema_id, deleted)
            self.last[subject] = max(self.last.get(subject, 0), version)
            self.last_id = max(self.last_id, schema_id)

    @rule()
    def change_over(self) -> None:
        self.turn = 1 - self.turn
        self.t.run(self.t.registry.refresh())

    @invariant()
    def who_has_the_turn_knows_what_the_catalog_has(self) -> None:
        registry = self.t.registry
        assert state_of(registry._state.index) == state_of(fresh(self.t.catalog.schemas))
        known = {
            (each.subject, each.version): (each.schema_id, each.deleted, each.schema.text)
            for each in registry.schemas(lookup=LookupFilter.INCLUDE_DELETED)
        }
        assert known == {place: (e.schema_id, e.deleted, e.what[0]) for place, e in self.entries.items()}

    def teardown(self) -> None:
        self.stack.close()


class Refused:
    """A refusal in place of an answer."""


TestStory = Story.TestCase
TestStory.settings = settings(max_examples=10, stateful_step_count=20, deadline=None)


# Steps in any order


class Runner:
    """A procedure whose steps run, and whose outcomes are sent, on demand."""

    def __init__(self, procedure: Procedure[Any]) -> None:
        self.procedure = procedure
        self.answer: Any = None
        self.step: Any = None
        self.outcome: Any = None
        self.done = self.waiting = False
        self._advance(lambda: procedure.send(None))

    def _advance(self, resume: Any) -> None:
        self.waiting = False
        try:
            self.step = resume()
        except StopIteration as end:
            self.done, self.answer = True, end.value
        except RegistryError as error:
            self.done, self.answer = True, error

    def go_on(self, engine: Words) -> None:
        """Run the step; or, if it has run, send its outcome to the procedure."""
        if self.waiting:
            outcome = self.outcome
            if isinstance(outcome, PenstockError):
                self._advance(lambda: self.procedure.throw(outcome))
            else:
                self._advance(lambda: self.procedure.send(outcome))
            return
        try:
            self.outcome = run_step(self.step, engine)
        except PenstockError as error:
            self.outcome = error
        self.waiting = True


def procedures(registry: Registry, wanted: list[tuple[str, str, str]]) -> Iterator[Procedure[Any]]:
    for verb, subject, text in wanted:
        match verb:
            case "register":
                yield registry.register(subject, words(text))
            case "refer":
                yield registry.register(subject, words(text, r=("a", 1)))
            case "delete":
                yield registry.delete_subject(subject)
            case "remove":
                yield registry.delete_subject(subject, permanent=True)
            case "undelete":
                yield registry.undelete(subject)
            case "set":
                yield registry.set_compatibility(subject, "NONE", lenient=text == "x")


verbs = st.sampled_from(["register", "register", "register", "refer", "delete", "remove", "undelete", "set"])


@contextmanager
def tried() -> Iterator[Trial]:
    with tempfile.TemporaryDirectory() as directory, trial(Path(directory)) as made:
        yield made


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(verbs, subjects, texts), min_size=2, max_size=6), st.randoms(use_true_random=False))
def test_procedures_whose_steps_come_in_any_order_leave_the_image_as_the_catalog_is(
    wanted: list[tuple[str, str, str]], chance: Any
) -> None:
    with tried() as t:
        t.run(t.registry.set_compatibility(None, "NONE"))
        t.register("a", "x")
        runners = [Runner(each) for each in procedures(t.registry, wanted)]
        while any(not runner.done for runner in runners):
            chance.choice([runner for runner in runners if not runner.done]).go_on(t.engine)
        assert state_of(t.registry._state.index) == state_of(fresh(t.catalog.schemas))
        check_sound(t.registry)


def check_sound(registry: Registry) -> None:
    """Require that no text has two ids, and that every reference exists."""
    every = registry.schemas(lookup=LookupFilter.INCLUDE_DELETED)
    assert len({each.fingerprint for each in every}) == len({each.schema_id for each in every})
    for each in every:
        for reference in each.schema.references:
            found = registry.version(reference.subject, reference.version, LookupFilter.INCLUDE_DELETED)
            assert each.deleted or not found.deleted


def test_who_registers_the_same_at_the_same_time_gets_the_same() -> None:
    with tried() as t:
        runners = [Runner(t.registry.register("orders", words("a"))) for _ in range(8)]
        while any(not runner.done for runner in runners):
            for runner in (runner for runner in runners if not runner.done):
                runner.go_on(t.engine)
        assert [(runner.answer.version, runner.answer.schema_id) for runner in runners] == [(1, 1)] * 8
        assert t.registry.versions("orders") == (1,)


def test_whoever_was_late_does_not_read_what_the_image_has_already() -> None:
    with tried() as t:
        first, second = (Runner(t.registry.register("orders", words(text))) for text in ("a", "a?"))
        for runner in (first, second):
            while not isinstance(runner.step, CommitToCatalog):
                runner.go_on(t.engine)
        for _ in range(2):
            first.go_on(t.engine)
        second.go_on(t.engine)  # and is refused
        second.go_on(t.engine)  # and decides anew
        assert not isinstance(second.step, CommitToCatalog)
        while not second.done:
            second.go_on(t.engine)
        assert (first.answer.version, second.answer.version) == (1, 2)
