"""Builders of `Problem`s, with paths and the conflicting parts of both schemas."""

from __future__ import annotations

from typing import Any

from penstock.schema.jsonschema.model.text import quoted
from penstock.schema.jsonschema.model.tree import SchemaNode
from penstock.schema.jsonschema.writer.writer_facts import WriterFacts
from penstock.schema.problems import Problem


def problem(
    kind: str, reader: SchemaNode, keyword: str, writer: WriterFacts, message: str, *tokens: str | int, fix: str = ""
) -> Problem:
    """Return a problem at `keyword` of the reader's schema, or at the position below it that `tokens` lead to. Both
    schemas are quoted where they have the keyword."""
    return Problem(
        kind=kind,
        path=reader.path_of(keyword, *tokens),
        message=message,
        reader=_piece(reader, keyword),
        writer=_writers_piece(writer, keyword),
        fix=fix,
    )


def too_deep(reader: SchemaNode) -> Problem:
    return Problem(
        kind="UNDECIDED",
        path=reader.path,
        message="the schemas are nested too deep to be compared to their ends",
        fix="nest them less, or give the parts schemas of their own",
    )


def circular(reader: SchemaNode) -> Problem:
    return Problem(
        kind="UNDECIDED",
        path=reader.path,
        message="it cannot be shown that the reader takes it, except by assuming so",
        fix="say it without not, if and oneOf",
    )


def steps_exhausted() -> Problem:
    return Problem(
        kind="UNDECIDED",
        path="",
        message="comparing the schemas takes too many steps",
        fix="use fewer choices within choices",
    )


def _piece(node: SchemaNode, keyword: str) -> str:
    piece: Any = node.raw
    if isinstance(piece, dict):
        piece = piece.get(node.original_keywords.get(keyword, keyword), piece)
    return quoted(piece)


def _writers_piece(writer: WriterFacts, keyword: str) -> str:
    for node in writer.conforms:
        if keyword in node.keywords:
            return _piece(node, keyword)
    return ""
