"""The check of docstrings: each names its subject and its effect.

    python -m tools.prose [FOLDER]

A docstring that begins with a pronoun (What, Those, It, Of, Whoever ...) is understood by those alone who know the code
already. Such docstrings are refused, and so are modules, public classes and public functions of the public API without
one.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
SOURCES: Final = ROOT / "src"
PUBLIC: Final = ("__init__.py", "aio.py", "errors.py", "client/aio.py", "client/sync.py", "testing/broker.py")
"""Modules of the package `penstock` whose public classes, functions and methods have docstrings."""
_RIDDLES: Final = (
    *("Asked", "Given", "Told", "Said", "Its", "It", "Of", "None", "Nobody", "Nothing", "Others", "Somebody"),
    *("Someone", "Something", "That", "Their", "These", "They", "Those", "What", "Whatever", "Where", "Wherever"),
    *("Whether", "Which", "Whichever", "Who", "Whoever", "Whose", "How"),
)
_RIDDLE: Final = re.compile(rf"({'|'.join(_RIDDLES)}|One (?:by|for|in|of|that|which|who|with))\b")

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class Docstring(NamedTuple):
    """A docstring, with the line on which it stands."""

    line: int
    text: str


def docstrings(tree: ast.Module) -> Iterator[Docstring]:
    """All docstrings of a module, those of attributes included: a text on the lines after an assignment."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        before: ast.AST | None = node if isinstance(node, Documented) else None
        for statement in body:
            documents = isinstance(before, Documented | ast.Assign | ast.AnnAssign)
            if documents and isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                text = statement.value.value
                if isinstance(text, str):
                    yield Docstring(statement.lineno, text)
            before = statement if isinstance(statement, ast.Assign | ast.AnnAssign) else None


def undocumented(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Public classes, and public functions of modules and of public classes, without a docstring."""
    waiting: list[ast.Module | ast.ClassDef] = [tree]
    while waiting:
        for node in waiting.pop().body:
            if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) or node.name.startswith("_"):
                continue
            if isinstance(node, ast.ClassDef):
                waiting.append(node)
            if ast.get_docstring(node) is None and not _is_overload(node):
                yield node.lineno, node.name


def _is_overload(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(ast.unparse(decorator).rpartition(".")[2] in ("overload", "setter") for decorator in node.decorator_list)


def problems_of(file: Path, sources: Path) -> Iterator[str]:
    """Problems of one module, each with its place."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for docstring in docstrings(tree):
        match = _RIDDLE.match(docstring.text)
        if match:
            yield f"{file}:{docstring.line}: begins with {match.group(1)!r}: name the subject and the effect"
    if ast.get_docstring(tree) is None:
        yield f"{file}:1: a module without a docstring"
    if str(file.relative_to(sources / "penstock")).startswith(PUBLIC):
        for line, name in undocumented(tree):
            yield f"{file}:{line}: {name}: part of the public API without a docstring"


def main() -> int:
    sources = Path(sys.argv[1]) if len(sys.argv) > 1 else SOURCES
    files = sorted((sources / "penstock").rglob("*.py"))
    problems = [problem for file in files for problem in problems_of(file, sources)]
    for problem in problems:
        sys.stdout.write(f"{problem}\n")
    sys.stdout.write(f"prose: {len(problems)} problems in {len(files)} modules\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
