"""What the READMEs of the examples tell to type is there to be typed."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from tests.examples.kit import EXAMPLES, commands

from penstock.spark.pipeline.file.parsing import load

NAMES = sorted(path.parent.name for path in EXAMPLES.glob("*/README.md"))


def test_every_example_is_told_of() -> None:
    told = re.findall(r"\]\((\w+)/README\.md\)", (EXAMPLES / "README.md").read_text())
    assert sorted(told) == NAMES == ["declarative", "enrichment", "revenue", "sessions"]


@pytest.mark.parametrize("name", NAMES)
def test_the_files_that_are_named_are_there(name: str) -> None:
    folder = EXAMPLES / name
    said = (folder / "README.md").read_text()
    linked = re.findall(r"\]\(([\w./]+)\)", said)
    run = re.findall(r"(?:python|penstock pipeline \w+) ([\w.]+\.(?:py|toml))", commands(folder / "README.md"))
    assert run
    for file in {*linked, *run}:
        assert (folder / file).exists(), file


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*/*.toml")), ids=lambda path: path.name)
def test_a_pipeline_of_the_examples_is_understood(file: Path) -> None:
    assert tomllib.loads(file.read_text())
    assert load(file, {}).warnings == ()
