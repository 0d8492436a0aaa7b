"""JSON Schema, drafts 4 to 2020-12: parsed without fetching anything, compared by meaning, validated in linear time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.schema.jsonschema import compatibility
from penstock.schema.jsonschema.model import canonical
from penstock.schema.jsonschema.model.documents import documents_of
from penstock.schema.jsonschema.model.linked import Linked
from penstock.schema.jsonschema.model.tree import Document
from penstock.schema.jsonschema.validation.fast_accept import quick
from penstock.schema.jsonschema.validation.validator import PayloadValidator
from penstock.schema.language import Validator
from penstock.schema.problems import Problem


class JsonSchema:
    """One schema, with all that it refers to."""

    def __init__(self, documents: Sequence[Document]) -> None:
        """Raises `InvalidSchema` for what the validator does not take."""
        self.documents = documents
        self.linked = Linked(documents)
        self._root = documents[0].nodes[""]
        self._exact = self.linked.validator(self._root)

    def canonical(self) -> str:
        return canonical.canonical(self.documents)

    def compatibility_problems(self, writer: JsonSchema, *, lenient: bool = False) -> list[Problem]:
        return compatibility.compatibility_problems(
            self._root, writer._root, self._linked_with(writer), lenient=lenient
        )

    def validator(self) -> Validator:
        return PayloadValidator(self._exact, quick(self._root, self._linked_with(self)))

    def _linked_with(self, other: JsonSchema) -> dict[Document, Linked]:
        return {document: schema.linked for schema in (self, other) for document in schema.documents}


def parse(text: str, references: Mapping[str, str]) -> JsonSchema:
    """Raises `InvalidSchema`, and nothing else, for whatever is not a schema that can be understood completely."""
    return JsonSchema(documents_of(text, references))
