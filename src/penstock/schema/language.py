"""The seam between the registry and the languages schemas are written in: what a language has to offer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from penstock.schema.problems import Problem


class PayloadFault(NamedTuple):
    """Why a payload does not conform to a schema."""

    path: str
    """Where in the payload, as a JSON pointer; empty for all of it."""
    message: str


class Validator(Protocol):
    """Says whether payloads conform to one schema. Made once, asked often."""

    def accepts_lines(self, lines: memoryview, count: int) -> bool:
        """A quick yes: every one of these `count` payloads, each with a newline behind it and none within, conforms.

        False says nothing: then each is asked about by itself.
        """
        ...

    def fault(self, payload: bytes) -> PayloadFault | None:
        """What is wrong with one payload; None if it conforms."""
        ...


class ParsedSchema(Protocol):
    """One schema, understood, together with all that it refers to."""

    def canonical(self) -> str:
        """The normalised form: schemas that mean the same (spaces, order of keys, ways to write a name, comments) have
        the same. What readers or writers could notice, defaults and documentation included, stays in it."""
        ...

    def compatibility_problems(self, writer: Any, *, lenient: bool = False) -> list[Problem]:
        """Why a reader with this schema could not read what was written with `writer`, a schema of the same language;
        empty if it can. At most `PROBLEMS_MAX`."""
        ...

    def validator(self) -> Validator: ...


class Language(Protocol):
    """A module that reads schemas: `avro`, `jsonschema`, `protobuf`, `plain`."""

    def parse(self, text: str, references: Mapping[str, str]) -> ParsedSchema:
        """`references`: the texts of all other schemas it needs, by the names they have in it, those that others need
        first. Raises `InvalidSchema` for anything that is not a schema, whatever it is; opens no file and no socket."""
        ...
