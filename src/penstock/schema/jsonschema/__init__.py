"""JSON Schema, drafts 4 to 2020-12: parsed without fetching, compared by meaning, validated in linear time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.schema.jsonschema import compatibility
from penstock.schema.jsonschema.model import canonical
from penstock.schema.jsonschema.model.documents import documents_of
from penstock.schema.jsonschema.model.exact_validators import ExactValidators
from penstock.schema.jsonschema.model.tree import SchemaDocument
from penstock.schema.jsonschema.validation.fast_accept import fast_accept
from penstock.schema.jsonschema.validation.validator import PayloadValidator
from penstock.schema.language import Validator
from penstock.schema.problems import Problem


class JsonSchema:
    """A parsed schema with all the documents that it refers to."""

    def __init__(self, documents: Sequence[SchemaDocument]) -> None:
        """Raise `InvalidSchema` for a schema that the validator does not take."""
        self.documents = documents
        self.exact_validators = ExactValidators(documents)
        self._root = documents[0].nodes[""]
        self._exact = self.exact_validators.validator(self._root)

    def canonical(self) -> str:
        return canonical.canonical(self.documents)

    def compatibility_problems(self, writer: JsonSchema, *, lenient: bool = False) -> list[Problem]:
        return compatibility.compatibility_problems(
            self._root, writer._root, self._exact_validators_with(writer), lenient=lenient
        )

    def validator(self) -> Validator:
        return PayloadValidator(self._exact, fast_accept(self._root, self._exact_validators_with(self)))

    def _exact_validators_with(self, other: JsonSchema) -> dict[SchemaDocument, ExactValidators]:
        return {document: schema.exact_validators for schema in (self, other) for document in schema.documents}


def parse(text: str, references: Mapping[str, str]) -> JsonSchema:
    """Parse a schema. Raises `InvalidSchema`, and nothing else, for any text that is not a fully supported schema."""
    return JsonSchema(documents_of(text, references))
