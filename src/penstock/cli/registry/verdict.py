"""The output of compatibility checks: problems, their paths in the schemas, and how to fix them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from penstock.cli.output import console, many, on_one_line

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

_THE_NEW: Final = "the new schema"
HEAD: Final = "bold"
_FAULT: Final = "bold red"
_QUIET: Final = "dim"


class SchemaPair(NamedTuple):
    """The reader and the writer of a comparison, by the names with which they are shown."""

    reader: str
    writer: str

    def __str__(self) -> str:
        return f"{self.reader} cannot read what {self.writer} {'writes' if self.writer == _THE_NEW else 'wrote'}"


def pair_of_problem(problem: dict[str, Any]) -> SchemaPair:
    """Return the reader and the writer that a problem of a new schema concerns."""
    earlier = f"version {problem.get('version')}"
    return SchemaPair(earlier, _THE_NEW) if problem.get("direction") == "FORWARD" else SchemaPair(_THE_NEW, earlier)


def print_verdict(subject: str, facts: dict[str, Any], *, stderr: bool = False) -> None:
    """Print whether a new schema can be the next version of the subject, and each problem if it cannot."""
    problems, mode = facts["problems"], facts["compatibility"]
    if facts["compatible"]:
        print_lines([line(f"{subject}: compatible ({_compatibility_text(facts)})")])
        return
    lines = [line(f"{subject}: not compatible ({mode}), {many(len(problems), 'problem')}", _FAULT)]
    for between, group in groupby(problems, key=pair_of_problem):
        lines += [line(""), line(f"{between}:", HEAD), *_problem_lines(between, group)]
    print_lines(lines, stderr=stderr)


def _compatibility_text(facts: dict[str, Any]) -> str:
    if facts.get("new_subject"):
        return "no versions yet: there is nothing to compare with"
    mode = facts["compatibility"]
    return "NONE: nothing is checked" if mode == "NONE" else str(mode)


def print_comparison(between: SchemaPair, problems: Sequence[dict[str, Any]]) -> None:
    """Print whether the reader of the pair can read what the writer wrote, and each problem if it cannot."""
    if problems:
        print_lines([line(f"{between}:", _FAULT), *_problem_lines(between, problems)])
    else:
        print_lines([line(f"{between.reader} can read what {between.writer} wrote", HEAD)])


def _problem_lines(between: SchemaPair, problems: Iterable[dict[str, Any]]) -> Iterator[Text]:
    for problem in problems:
        yield line(f"  {problem.get('path') or '/'}: {problem['message']}")
        facts = _facts(between, problem)
        width = max((len(name) for name, _ in facts), default=0)
        yield from (line(f"    {name:<{width}}  {value}") for name, value in facts)
        yield line(f"    {problem['kind']}", _QUIET)


def _facts(between: SchemaPair, problem: dict[str, Any]) -> list[tuple[str, str]]:
    """Return lines that describe a problem: what the reader and the writer have at its path, and the fix."""
    haves = [problem.get("reader"), problem.get("writer")]
    facts = [(f"{who} has", has or "nothing there") for who, has in zip(between, haves, strict=True) if any(haves)]
    return [*facts, ("to mend it", problem["fix"])] if problem.get("fix") else facts


# on the terminal


def line(text: str, style: str = "") -> Text:
    """Build a line from untrusted text: control characters are escaped, and rich's markup is not interpreted."""
    from rich.text import Text

    return Text(on_one_line(text), style)


def print_lines(lines: Sequence[RenderableType], *, stderr: bool = False) -> None:
    screen = console(stderr=stderr)
    with screen.capture() as captured:
        for each in lines:
            screen.print(each)
    # Not by rich, which exits if the reader has gone, and pads columns with spaces.
    (sys.stderr if stderr else sys.stdout).writelines(f"{each.rstrip()}\n" for each in captured.get().splitlines())
