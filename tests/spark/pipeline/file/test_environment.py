"""Variables of the environment in a pipeline's texts."""

from __future__ import annotations

import pytest

from penstock.spark.pipeline.file.environment import Environment, Secrets, Unset


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("plain", "plain"),
        ("${KEY}", "s3cret"),
        ("a ${KEY} and ${KEY}", "a s3cret and s3cret"),
        ("${NONE:-else}", "else"),
        ("${NONE:-}", ""),
        ("${KEY:-else}", "s3cret"),
        ("$${KEY}", "${KEY}"),
        ("$KEY $ {KEY} $5", "$KEY $ {KEY} $5"),
    ],
)
def test_a_variable_is_filled_in(text: str, filled: str) -> None:
    assert Environment({"KEY": "s3cret"}).fill(text) == filled


@pytest.mark.parametrize(
    ("text", "words"),
    [("${NONE}", "variable NONE is not set"), ("${}", "names no variable"), ("${a b}", r"\$\{NAME\}")],
)
def test_one_that_is_not_set_is_named(text: str, words: str) -> None:
    with pytest.raises(Unset, match=words):
        Environment({}).fill(text)


def test_what_was_taken_is_hidden_and_the_rest_is_not() -> None:
    environment = Environment({"KEY": "s3cret", "LONG": "s3cret-too", "SHORT": "abc", "OTHER": "unused"})
    environment.fill("${KEY} ${LONG} ${SHORT}")
    shown = environment.secrets.hide("s3cret, s3cret-too, abc and unused")
    assert shown == "${KEY}, ${LONG}, abc and unused"


def test_nothing_is_hidden_where_nothing_was_taken() -> None:
    assert Secrets().hide("all of it") == "all of it"
