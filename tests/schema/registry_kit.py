"""A registry for tests, and a schema language simple enough to see through.

A schema is a set of words. A reader needs every word it has in the writer, except those with a question mark; with
`lenient` also except those with a tilde. A word with an exclamation mark is invalid.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TypeVar

from penstock.core.clock import SystemClock
from penstock.core.schemas import Definition, Reference, Schema, SchemaKind
from penstock.schema.errors import InvalidSchema
from penstock.schema.problems import Problem
from penstock.schema.registry.models import RegisteredVersion
from penstock.schema.registry.registry import Registry
from penstock.schema.steps import Procedure, SchemaForm, SchemaPair, run_procedure
from penstock.storage.catalog.catalog import Catalog

T = TypeVar("T")


class Words:
    """A schema engine for sets of words, which records its calls."""

    def __init__(self) -> None:
        self.parsed: list[Definition] = []
        self.compared: list[tuple[str, str]] = []

    def parse(self, definition: Definition, form: SchemaForm = SchemaForm.CANONICAL) -> str:
        self.parsed.append(definition)
        if "!" in definition.text:
            raise InvalidSchema("Invalid schema: that is no word", path="/")
        return " ".join(sorted(set(definition.text.split())))

    def check_compatibility(self, pairs: tuple[SchemaPair, ...], *, lenient: bool) -> list[list[Problem]]:
        self.compared += [(pair.reader.text, pair.writer.text) for pair in pairs]
        return [_missing(pair, optional="?~" if lenient else "?") for pair in pairs]


def _missing(pair: SchemaPair, optional: str) -> list[Problem]:
    written = {word.rstrip("?~") for word in pair.writer.text.split()}
    needed = [word for word in pair.reader.text.split() if not word.endswith(tuple(optional))]
    missing = [word for word in needed if word.rstrip("~") not in written]
    return [
        Problem(kind="WORD_MISSING", path=f"/{word}", message=f"nobody wrote {word}", fix=f"make it {word}?")
        for word in missing
    ]


def words(text: str, **references: tuple[str, int]) -> Schema:
    """`words("a b", other=("subject", 1))` refers to version 1 of the subject as `other`."""
    named = (Reference(name=name, subject=subject, version=version) for name, (subject, version) in references.items())
    return Schema(kind=SchemaKind.AVRO, text=text, references=tuple(named))


class Trial:
    """A registry with its catalog and schema engine."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.registry = Registry(catalog.schemas)
        self.engine = Words()

    def run(self, procedure: Procedure[T]) -> T:
        return run_procedure(procedure, self.engine)

    def register(self, subject: str, text: str, **references: tuple[str, int]) -> RegisteredVersion:
        return self.run(self.registry.register(subject, words(text, **references)))

    def reload(self) -> Registry:
        """Return the registry as another process would load it."""
        return Registry(self.catalog.schemas)


def free(t: Trial, subject: str | None = None) -> None:
    """Switch off compatibility checks."""
    t.run(t.registry.set_compatibility(subject, "NONE"))


@cache
def new_catalog() -> bytes:
    """Return an empty catalog, made once: the tests are about the registry, not the creation of files."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "catalog.db"
        Catalog.open(path, clock=SystemClock()).close()
        return path.read_bytes()


@contextmanager
def trial(directory: Path) -> Iterator[Trial]:
    path = directory / "catalog.db"
    path.write_bytes(new_catalog())
    with Catalog.open(path, clock=SystemClock()) as catalog:
        yield Trial(catalog)
