"""The selection of a job: every selection has its own digest, and impossible ones are refused."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import InvalidRequest
from penstock.core.names import TopicName
from penstock.spark.jobs.transfer.selection import Selection, log_condition, regex_of
from penstock.spark.scan.where import parse_where

ORDERS = TopicName.parse("orders")


def test_every_part_of_a_selection_tells_it_from_others() -> None:
    selections = [
        Selection(),
        Selection(start="5"),
        Selection(stop="5"),
        Selection(partition=0),
        Selection(types=("a",)),
        Selection(keys=("a",)),
        Selection(where="true"),
    ]
    assert len({each.digest(ORDERS) for each in selections}) == len(selections)
    assert Selection().digest(ORDERS) == Selection(start="earliest").digest(TopicName.parse("/default/Orders"))
    assert Selection().digest(ORDERS) != Selection().digest(TopicName.parse("other"))


@pytest.mark.parametrize(
    ("given_places", "said"),
    [
        ({"start": "latest"}, "from 'latest' there is nothing to read"),
        ({"start": "9", "stop": "3"}, "nothing lies between 9 and 3"),
        ({"start": "yesterday"}, "'yesterday' is no place in a log"),
    ],
)
def test_places_that_cannot_be_are_refused(given_places: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(said)):
        Selection(**given_places)  # type: ignore[arg-type]


@given(st.text("ab.*?+(-é", max_size=6), st.text("ab.+(-é", max_size=6))
def test_a_glob_means_what_it_means_elsewhere(glob: str, text: str) -> None:
    python = re.sub(r"\\x\{([0-9a-f]+)\}", lambda found: re.escape(chr(int(found[1], 16))), regex_of(glob))
    assert bool(re.fullmatch(python, text, re.DOTALL)) == fnmatchcase(text, glob)


FAILPOINTS = [("5", "90"), ("2026-01-31T12:00:00.123Z", "2026-02-01"), ("1f0c2a4e-7b1d-6c00-9a3f-0123456789ab", None)]


@pytest.mark.parametrize(("start", "stop"), FAILPOINTS)
@given(types=st.lists(st.text("ab'*. ", min_size=1, max_size=4), max_size=3))
def test_the_log_is_searched_by_what_it_can_be(start: str, stop: str | None, types: list[str]) -> None:
    selection = Selection(start=start, stop=stop, partition=3, types=tuple(types))
    filters = parse_where(log_condition(selection))
    assert 3 in filters.partition
    assert 4 not in filters.partition
    if types and "*" not in "".join(types):
        assert filters.type.among == frozenset(types)
    bounded = [each for each in (filters.offset, filters.timestamp, filters.id) if each.start is not None]
    assert len(bounded) == 1
    assert (bounded[0].stop is None) == (stop is None)


def test_a_selection_of_everything_searches_for_nothing() -> None:
    assert log_condition(Selection(keys=("a",), where="true", types=("a*",))) == ""
