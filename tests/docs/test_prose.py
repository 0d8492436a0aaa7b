"""The check of docstrings: it finds what begins with a pronoun, in every place where a docstring may stand."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.prose import problems_of

RIDDLES = '''"""What this is."""

LIMIT = 5
"""Of a connection."""


class Desk:
    """Whoever asks."""

    size: int = 0
    """Those that wait."""

    def settle(self):
        """It is done."""


def told():
    """Told why."""
'''
PLAIN = '''"""The ledger: cursors that have changed."""

LIMIT = 5
"""The most messages of one connection."""


def save():
    """Save cursors, and return when they are on disk. Of many, all are saved."""
    text = "What is no docstring"
    """A note: How it stands here."""
'''


def written(folder: Path, name: str, text: str) -> Path:
    file = folder / "penstock" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def test_every_docstring_that_begins_with_a_pronoun_is_found(tmp_path: Path) -> None:
    problems = list(problems_of(written(tmp_path, "room/desk.py", RIDDLES), tmp_path))
    assert sorted(int(problem.split(":")[1]) for problem in problems) == [1, 4, 8, 11, 14, 18]


def test_plain_sentences_pass(tmp_path: Path) -> None:
    assert list(problems_of(written(tmp_path, "room/ledger.py", PLAIN), tmp_path)) == []


@pytest.mark.parametrize(("name", "found"), [("aio.py", 1), ("room/aio.py", 0)])
def test_the_public_api_has_docstrings(tmp_path: Path, name: str, found: int) -> None:
    text = '"""Public names."""\n\n\ndef connect():\n    pass\n\n\ndef _hidden():\n    pass\n'
    assert len(list(problems_of(written(tmp_path, name, text), tmp_path))) == found


def test_a_module_without_a_docstring_is_found(tmp_path: Path) -> None:
    assert len(list(problems_of(written(tmp_path, "room/bare.py", "LIMIT = 5\n"), tmp_path))) == 1
