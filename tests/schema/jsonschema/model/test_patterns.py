"""Patterns that match every text, compared with engines that search."""

from __future__ import annotations

import re
from random import Random

import pytest
import re2
from tests.schema.jsonschema.kit import understood

from penstock.schema.jsonschema.model.patterns import matches_everything

_ATOMS = ["a", "b", ".", "[ab]", "[^a]", "^", "$", r"\b", r"\B", r"\$", r"\^", "(?:a|)", "(?:^|b)", "(?:a|$)"]
_COUNTS = ["", "", "*", "?", "+", "{0,2}", "{2}"]


def generated(random: Random, depth: int = 2) -> str:
    pieces = []
    for _ in range(random.randrange(4)):
        atom = f"(?:{generated(random, depth - 1)})" if depth and random.random() < 0.3 else random.choice(_ATOMS)
        anchor = atom in ("^", "$", r"\b", r"\B")
        pieces.append(atom if anchor else atom + random.choice(_COUNTS))
    made = "".join(pieces)
    return f"{made}|{generated(random, depth - 1)}" if depth and random.random() < 0.2 else made


def texts(random: Random) -> list[str]:
    return ["", "a", "b", "ab", "x", "x y", "é", *("".join(random.choices("ab x", k=4)) for _ in range(20))]


def test_what_is_said_to_match_everything_does_and_unanchored_ones_are_found() -> None:
    random, document, said = Random(10), understood({}).documents[0], 0
    for _ in range(3_000):
        pattern = generated(random)
        everything = matches_everything(document, pattern)
        said += everything
        for engine in (re, re2):
            if everything:
                assert all(engine.search(pattern, text) for text in texts(random)), pattern
        if not re.search(r"\^|\$|\\[bB]", pattern):
            assert everything == bool(re.search(pattern, "")), pattern
    assert said > 500


@pytest.mark.parametrize("pattern", ["", "a*", "^a*", "a*$", ".*", "^", "$", "(a|b*)?", "x{0,3}", "[^a]*"])
def test_these_match_everything(pattern: str) -> None:
    assert matches_everything(understood({}).documents[0], pattern)


@pytest.mark.parametrize("pattern", ["a", "^$", "^a*$", "a+", r"\B", r"a*\b", "(^a*$)|b", "[a]", r"\A\z"])
def test_these_do_not(pattern: str) -> None:
    assert not matches_everything(understood({}).documents[0], pattern)
