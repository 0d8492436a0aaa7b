"""The interface between the registry and the schema languages: parsing, canonical form, compatibility, validation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from penstock.schema.problems import Problem


class PayloadFault(NamedTuple):
    """The reason why a payload does not conform to a schema."""

    path: str
    """The position in the payload as a JSON pointer; empty for the whole payload."""
    message: str


class Validator(Protocol):
    """A validator of payloads against one schema. Made once, used often."""

    def accepts_lines(self, lines: memoryview, count: int) -> bool:
        """Return True if all `count` payloads in `lines` certainly conform. Each is followed by a newline, and has none
        in it.

        False decides nothing: the caller then validates each payload by itself.
        """
        ...

    def fault(self, payload: bytes) -> PayloadFault | None:
        """Return the fault of one payload; None if it conforms."""
        ...


class ParsedSchema(Protocol):
    """A parsed schema together with all the schemas that it refers to."""

    def canonical(self) -> str:
        """Return the normalised text. It is equal for schemas that mean the same: white space, order of keys, comments
        and spellings of a name make no difference. Everything that readers or writers could notice, defaults and
        documentation included, stays in it."""
        ...

    def compatibility_problems(self, writer: Any, *, lenient: bool = False) -> list[Problem]:
        """Return the reasons why a reader with this schema cannot read data written with `writer`, a schema of the same
        language; empty if it can. At most `PROBLEMS_MAX`. `lenient`: leave out what the language can tolerate."""
        ...

    def validator(self) -> Validator: ...


class Language(Protocol):
    """A module that parses schemas: `avro`, `jsonschema`, `protobuf`, `plain`."""

    def parse(self, text: str, references: Mapping[str, str]) -> ParsedSchema:
        """Parse a schema.

        `references` maps the names used in the text to the texts of all other schemas that it needs, dependencies
        first. Raises `InvalidSchema` for any text that is not a schema; opens no file and no socket.
        """
        ...
