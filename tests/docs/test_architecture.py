"""The map of the code: every function that a walk names exists, and the layers are those that import-linter keeps."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs" / "architecture.md").read_text()
GLOSSARY: Final = (ROOT / "docs" / "glossary.md").read_text()
NAMED: Final = re.compile(r"`([a-z_]+(?:\.[a-z_]+)*): ([A-Za-z_]\w*)(?:\.(\w+))?`")
HOPS: Final = {"1": 15, "2": 13, "3": 7, "4": 10, "5": 8}
"""Steps of each walk: a walk that grows is a design that grows."""


def named_in(page: str) -> list[tuple[str, str, str]]:
    return [match.groups(default="") for match in NAMED.finditer(page)]  # type: ignore[misc]


def members_of(module: str) -> dict[str, set[str]]:
    """The classes and functions of a module, each with its methods."""
    file = ROOT / "src" / "penstock" / f"{module.replace('.', '/')}.py"
    members: dict[str, set[str]] = {}
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.ClassDef):
            functions = (inner for inner in node.body if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef))
            members[node.name] = {function.name for function in functions}
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            members[node.name] = set()
    return members


@pytest.mark.parametrize(("module", "name", "method"), sorted({*named_in(PAGE), *named_in(GLOSSARY)}))
def test_what_the_map_and_the_glossary_name_exists(module: str, name: str, method: str) -> None:
    members = members_of(module)
    assert name in members
    assert not method or method in members[name]


def test_walks_are_no_longer_than_they_were() -> None:
    walks = re.split(r"^## Walk (\d): .*$", PAGE, flags=re.MULTILINE)[1:]
    steps = {
        number: len(re.findall(r"^\d+\. ", text, flags=re.MULTILINE))
        for number, text in zip(walks[::2], walks[1::2], strict=True)
    }
    assert steps.keys() == HOPS.keys()
    assert all(steps[number] <= most for number, most in HOPS.items()), steps


def layers(contract: str) -> list[set[str]]:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (found,) = (each for each in contracts if each["id"] == contract)
    return [set(layer.split(" | ")) for layer in found["layers"]]


def test_the_picture_of_the_rooms_is_that_of_import_linter() -> None:
    picture = PAGE.split("```text\n")[1].split("```")[0]
    drawn = [set(re.findall(r"[a-z_]+", line[:42])) for line in picture.splitlines() if re.search("[a-z]", line[:42])]
    assert drawn == layers("rooms")


@pytest.mark.parametrize("room", ["server", "client", "broker", "schema", "storage", "spark", "cli"])
def test_the_layers_inside_a_room_are_those_of_import_linter(room: str) -> None:
    (row,) = re.findall(rf"^\| `{room}` \| (.*) \|$", PAGE, flags=re.MULTILINE)
    told = [set(layer.split(", ")) for layer in row.split("; ")]
    kept = layers("spark-rooms" if room == "spark" else f"{room}-rooms")
    order = {name: number for number, layer in enumerate(kept) for name in layer}
    assert all(name in order for layer in told for name in layer), "a layer that is none"
    places = [{order[name] for name in layer} for layer in told]
    assert places == sorted(places, key=min), "out of order"


def test_the_glossary_has_each_word_once_and_in_order() -> None:
    words = re.findall(r"^\*\*(.+?)\*\*", GLOSSARY, flags=re.MULTILINE)
    assert len(words) >= 30
    assert words == sorted(set(words), key=str.lower)
