"""`penstock schema diff`: show two versions of a subject side by side, and whether each can read messages of the
other."""

from __future__ import annotations

import difflib
import json as jsonlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, repeat, zip_longest
from typing import Annotated, Any, Final, NamedTuple

import typer

from penstock.cli import options as opt
from penstock.cli.output import on_one_line, print_json
from penstock.cli.registry.registry_calls import AskRegistry, Subject, registry_client
from penstock.cli.registry.verdict import HEAD, SchemaPair, line, print_comparison, print_lines
from penstock.cli.schema_source import parse_version
from penstock.core.schemas import SchemaKind

_CONTEXT_LINES: Final = 3
"""The number of equal lines shown before and after each difference, as in other tools."""
_STYLES: Final = {"<": ("red", ""), ">": ("", "green"), "|": ("red", "green"), " ": ("", "")}
_UNIFIED_STYLES: Final = {"-": "red", "+": "green", "@": "cyan"}


@opt.bundled
def diff(
    broker: opt.BrokerOptions,
    subject: Subject,
    first: Annotated[str, typer.Argument(help="A version, or latest.", metavar="V1")],
    second: Annotated[str, typer.Argument(help="Another.", metavar="V2")],
    unified: Annotated[bool, typer.Option("--unified", "-U", help="One below the other, as patches are.")] = False,
    json: opt.Json = False,
) -> None:
    """Show two versions side by side where they differ, and whether each can read what the other wrote.

    JSON is laid out anew in both: spaces and line ends make no difference.

    Examples:

    `penstock schema diff orders-value 1 2`

    `penstock schema diff orders-value 1 latest --unified`
    """
    numbers = [parse_version(name, text) for name, text in (("V1", first), ("V2", second))]
    with registry_client(broker) as ask:
        left, right = (ComparedVersion.of(ask("get", subject=subject, version=version)) for version in numbers)
        lenient = ask("config", subject=subject)["lenient"]
        comparisons = [_compare(ask, *pair, lenient=lenient) for pair in ((right, left), (left, right))]
    if json:
        print_json(_as_json(subject, left, right) | {"readings": comparisons})
    else:
        _print(left, right, comparisons, below=unified)


@dataclass(frozen=True, slots=True)
class ComparedVersion:
    """A version of a subject that is compared with another."""

    number: int
    id: int
    kind: str
    lines: list[str]

    @classmethod
    def of(cls, facts: dict[str, Any]) -> ComparedVersion:
        return cls(facts["version"], facts["id"], facts["type"], schema_lines(facts["schema"], facts["type"]))

    def __str__(self) -> str:
        return f"version {self.number} ({self.kind}, id {self.id})"


def _compare(ask: AskRegistry, reader: ComparedVersion, writer: ComparedVersion, *, lenient: bool) -> dict[str, Any]:
    answer = ask("compare", reader={"id": reader.id}, writer={"id": writer.id}, lenient=lenient)
    return {"reader": reader.number, "writer": writer.number} | answer


def _as_json(subject: str, left: ComparedVersion, right: ComparedVersion) -> dict[str, Any]:
    same = left.id == right.id
    return {"subject": subject, "versions": [left.number, right.number], "same": same, "diff": unified(left, right)}


def _print(left: ComparedVersion, right: ComparedVersion, comparisons: list[dict[str, Any]], *, below: bool) -> None:
    if left.lines == right.lines:
        typer.echo(f"{left} and {right} are the same")
        return
    if below:
        _print_unified(left, right)
    else:
        _print_side_by_side(left, right)
    sys.stdout.write("\n")
    for comparison in comparisons:
        print_comparison(
            SchemaPair(f"version {comparison['reader']}", f"version {comparison['writer']}"), comparison["problems"]
        )


# lines


def schema_lines(text: str, kind: str) -> list[str]:
    """Return the lines of a schema. JSON is indented anew, so that differences in white space do not count."""
    if kind in (SchemaKind.AVRO, SchemaKind.JSON):
        text = _indented(text)
    return [on_one_line(row.expandtabs(4)) for row in text.splitlines()]


def _indented(text: str) -> str:
    try:
        return jsonlib.dumps(jsonlib.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


class DiffRow(NamedTuple):
    """A row of the comparison: a line of each schema, and a mark: `<` only left, `>` only right, `|` different, or a
    space if both are the same."""

    left: str
    mark: str
    right: str


def side_by_side(left: list[str], right: list[str]) -> Iterator[DiffRow]:
    """Yield rows that differ, with equal rows around them; a row of dots stands for equal rows that are left out."""
    groups = difflib.SequenceMatcher(None, left, right).get_grouped_opcodes(_CONTEXT_LINES)
    for number, group in enumerate(groups):
        if number:
            yield DiffRow("...", " ", "...")
        for _, start, end, other_start, other_end in group:
            yield from _pair_lines(left[start:end], right[other_start:other_end])


def _pair_lines(left: list[str], right: list[str]) -> Iterator[DiffRow]:
    for one, other in zip_longest(left, right):
        if one is None or other is None:
            yield DiffRow(one or "", ">" if one is None else "<", other or "")
        else:
            yield DiffRow(one, " " if one == other else "|", other)


def unified(left: ComparedVersion, right: ComparedVersion) -> list[str]:
    return list(difflib.unified_diff(left.lines, right.lines, str(left), str(right), n=_CONTEXT_LINES, lineterm=""))


def _print_side_by_side(left: ComparedVersion, right: ComparedVersion) -> None:
    """Print two columns that together are as wide as the terminal; longer lines are folded."""
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False, header_style=HEAD, expand=sys.stdout.isatty())
    for title in (str(left), "", str(right)):
        drawn.add_column(title, overflow="fold", ratio=1 if title else None)
    for row in side_by_side(left.lines, right.lines):
        one, other = _STYLES[row.mark]
        drawn.add_row(Text(row.left, one), row.mark, Text(row.right, other))
    print_lines([drawn])


def _print_unified(left: ComparedVersion, right: ComparedVersion) -> None:
    styles = chain((HEAD, HEAD), repeat(None))
    lines = zip(unified(left, right), styles, strict=False)
    print_lines([line(each, style or _UNIFIED_STYLES.get(each[:1], "")) for each, style in lines])
