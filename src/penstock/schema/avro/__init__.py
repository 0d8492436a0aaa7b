"""Avro: schemas of the Avro specification 1.12, their compatibility, and payloads in its binary encoding.

Input is not trusted: any text or payload ends in an answer, and in bounded time.
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
class AvroSchema:
    """A parsed Avro schema. See `ParsedSchema`."""

    schema: Schema

    def canonical(self) -> str:
        return canonical(self.schema)

    def legacy_canonical(self) -> str:
        """Return the canonical form of earlier releases. It also has `name` and `namespace` where they mean nothing: on
        primitive types, arrays, maps and uses of other types."""
        return canonical(self.schema, needless_names=True)

    def compatibility_problems(self, writer: AvroSchema, *, lenient: bool = False) -> list[Problem]:  # noqa: ARG002
        """Return the reasons why a reader with this schema cannot read data written with `writer`; empty if it can.
        `lenient` has no effect: Avro's specification leaves no choice."""
        return problems(self.schema, writer.schema)

    def validator(self) -> Validator:
        return BinaryValidator(self.schema)


def parse(text: str, references: Mapping[str, str]) -> AvroSchema:
    """Parse a schema. Raises `InvalidSchema`.

    `references` maps names to the texts of other schemas. The text may use every named type that those texts define,
    whatever the reference is called.
    """
    return AvroSchema(parsing.parse(text, references))
