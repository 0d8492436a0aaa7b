"""The page on pipelines is true: its files are understood, and its tables have every key and no other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from penstock.spark.pipeline.file.parsing import PipelineInvalid, parse

PAGE: Final = (Path(__file__).parents[3] / "docs" / "pipelines.md").read_text()
BLOCKS: Final = re.findall(r"^```toml\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS)
def test_a_file_of_the_page_is_understood(block: str) -> None:
    assert parse(block, Path("/revenue.toml"), {}).warnings == ()


def documented(part: str) -> set[str]:
    """The keys of the table that begins with this."""
    rows = PAGE.split(f"| `{part}` |")[1].split("\n\n")[0]
    return set(re.findall(r"^\| `(\w+)` \|", rows, flags=re.MULTILINE))


def known(section: str) -> set[str]:
    """The keys that are allowed in a section, by what is said of one that is none."""
    with pytest.raises(PipelineInvalid) as caught:
        parse(f"{section}\nzzzzzz = 1", Path("/revenue.toml"), {})
    (told,) = re.findall(r"zzzzzz: not a key here; known are ([\w, ]+)", " | ".join(caught.value.problems))
    return set(told.split(", "))


@pytest.mark.parametrize(
    ("part", "sections"),
    [
        ("[pipeline]", ["[pipeline]"]),
        ("[spark]", ["[spark]"]),
        (
            "[sources.NAME]",
            [f"[sources.x]\n{kind} = 'x'" for kind in ("topic", "pattern", "table", "file", "format")],
        ),
        ("[steps.NAME]", [f"[steps.x]\n{kind} = 'x'" for kind in ("sql", "python")]),
        ("[sinks.NAME]", [f"[sinks.x]\n{kind} = 'x'" for kind in ("topic", "table", "file", "console")]),
    ],
)
def test_the_keys_of_the_page_are_those_that_are_allowed(part: str, sections: list[str]) -> None:
    assert documented(part) == set.union(*(known(section) for section in sections))
