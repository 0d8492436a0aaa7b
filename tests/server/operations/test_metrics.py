"""Metrics: names follow the conventions, are documented word for word, and no label is unbounded."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from penstock.server.operations.metrics import FAMILIES, MetricKind
from penstock.server.operations.snapshot import SUBSCRIPTIONS_MAX, TOPICS_MAX

PAGE: Final = (Path(__file__).parents[3] / "docs" / "operations.md").read_text()
LISTED: Final = [family for family, _ in FAMILIES]


def test_names_follow_the_conventions() -> None:
    for family in LISTED:
        assert re.fullmatch(r"(penstock|process)_[a-z_]+", family.name)
        assert family.name.endswith("_total") == (family.kind is MetricKind.COUNTER)
        assert not re.search(r"_(ms|millis|kb|mb|percent|count|sum|bucket)(_|$)", family.name)
        assert family.about.endswith(".")


def test_labels_are_of_sets_that_are_bounded() -> None:
    assert {label for family in LISTED for label in family.labels} == {
        "version",
        "check",
        "topic",
        "subscription",
        "method",
        "route",
        "code",
    }


def test_every_measurement_is_documented_word_for_word_and_nothing_else_is() -> None:
    told = re.findall(r"^\| `((?:penstock|process)_[a-z_]+)(?:\{([a-z, ]*)\})?` \| (.*) \|$", PAGE, flags=re.MULTILINE)
    histogram = " (histogram)"
    expected = [
        (each.name, ", ".join(each.labels), each.about + (histogram if each.kind is MetricKind.HISTOGRAM else ""))
        for each in LISTED
    ]
    assert told == expected


def test_the_bounds_of_the_page_are_the_bounds() -> None:
    assert f"at most {TOPICS_MAX} topics and {SUBSCRIPTIONS_MAX} subscriptions" in PAGE
