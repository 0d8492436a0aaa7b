"""Problems, with their places and the pieces of both schemas that are at odds."""

from __future__ import annotations

from typing import Any

from penstock.schema.jsonschema.model.text import quoted
from penstock.schema.jsonschema.model.tree import Node
from penstock.schema.jsonschema.writer.writer_facts import Written
from penstock.schema.problems import Problem


def problem(
    kind: str, reader: Node, keyword: str, written: Written, message: str, *tokens: str | int, fix: str = ""
) -> Problem:
    """At one of the reader's keywords, or below it."""
    return Problem(
        kind=kind,
        path=reader.path_of(keyword, *tokens),
        message=message,
        reader=_piece(reader, keyword),
        writer=_writers_piece(written, keyword),
        fix=fix,
    )


def too_deep(reader: Node) -> Problem:
    return Problem(
        kind="UNDECIDED",
        path=reader.path,
        message="the schemas are nested too deep to be compared to their ends",
        fix="nest them less, or give the parts schemas of their own",
    )


def circular(reader: Node) -> Problem:
    return Problem(
        kind="UNDECIDED",
        path=reader.path,
        message="it cannot be shown that the reader takes it, except by assuming so",
        fix="say it without not, if and oneOf",
    )


def exhausted() -> Problem:
    return Problem(
        kind="UNDECIDED",
        path="",
        message="comparing the schemas takes too many steps",
        fix="use fewer choices within choices",
    )


def _piece(node: Node, keyword: str) -> str:
    said: Any = node.raw
    if isinstance(said, dict):
        said = said.get(node.places.get(keyword, keyword), said)
    return quoted(said)


def _writers_piece(written: Written, keyword: str) -> str:
    for node in written.conforms:
        if keyword in node.keywords:
            return _piece(node, keyword)
    return ""
