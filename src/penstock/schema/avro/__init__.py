"""Avro: schemas of the Avro specification 1.12, which of them read which, and payloads in its binary encoding.

Nothing here trusts what it reads: texts and payloads of any kind end in an answer, and in bounded time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.schema.avro import parsing
from penstock.schema.avro.canonical import canonical
from penstock.schema.avro.compatibility import problems
from penstock.schema.avro.model import Schema
from penstock.schema.avro.payload import BinaryValidator
from penstock.schema.language import Validator
from penstock.schema.problems import Problem


@dataclass(frozen=True, slots=True, eq=False)
class Avro:
    """A schema, understood. See `ParsedSchema`."""

    schema: Schema

    def canonical(self) -> str:
        return canonical(self.schema)

    def legacy_canonical(self) -> str:
        """As it was before names without meaning were left out."""
        return canonical(self.schema, needless_names=True)

    def compatibility_problems(self, writer: Avro, *, lenient: bool = False) -> list[Problem]:  # noqa: ARG002
        """The specification leaves nothing to be lenient about."""
        return problems(self.schema, writer.schema)

    def validator(self) -> Validator:
        return BinaryValidator(self.schema)


def parse(text: str, references: Mapping[str, str]) -> Avro:
    """See `Language`. Every named type of a reference's text can be used, whatever name the reference has."""
    return Avro(parsing.parse(text, references))
