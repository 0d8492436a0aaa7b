"""Schemas without text: a string, a number, bytes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from penstock.core.schemas import SchemaKind
from penstock.schema.errors import InvalidSchema
from penstock.schema.language import ParsedSchema, PayloadFault, Validator
from penstock.schema.problems import Problem

_NUMBER: Final = re.compile(rb"\s*-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?\s*")


@dataclass(frozen=True, slots=True)
class PlainSchema:
    """A string, number or bytes schema. The class is its own language, parsed schema and validator."""

    kind: SchemaKind

    def parse(self, text: str, references: Mapping[str, str]) -> ParsedSchema:
        """Return this schema itself. Raises `InvalidSchema` for a text other than the empty one or the kind's own name,
        and for references."""
        if text.strip().strip('"').upper() not in ("", self.kind):
            raise InvalidSchema(f"a schema of type {self.kind} has no text: its name says all")
        if references:
            raise InvalidSchema(f"a schema of type {self.kind} refers to nothing")
        return self

    def canonical(self) -> str:
        return self.kind.value

    def compatibility_problems(self, writer: PlainSchema, *, lenient: bool = False) -> list[Problem]:  # noqa: ARG002
        return []

    def validator(self) -> Validator:
        return self

    def accepts_lines(self, lines: memoryview, count: int) -> bool:  # noqa: ARG002
        if self.kind is SchemaKind.STRING:
            return _is_utf8(lines)
        return self.kind is SchemaKind.BYTES

    def fault(self, payload: bytes) -> PayloadFault | None:
        if self.kind is SchemaKind.STRING and not _is_utf8(memoryview(payload)):
            return PayloadFault("", "it is not text in UTF-8")
        if self.kind is SchemaKind.NUMBER and _NUMBER.fullmatch(payload) is None:
            return PayloadFault("", "it is not one number, as JSON writes them")
        return None


def _is_utf8(data: memoryview) -> bool:
    try:
        str(data, "utf-8")
    except UnicodeDecodeError:
        return False
    return True
