"""The text format of metrics is what Prometheus reads."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from penstock.server.operations.metrics import MetricFamily, MetricKind, Sample, number, render
from penstock.storage.base.metrics import Histogram


def read(family: MetricFamily, samples: Iterable[Sample]) -> list[tuple[str, dict[str, str], float]]:
    (found,) = text_string_to_metric_families(render([(family, samples)]).decode())
    return [(sample.name, sample.labels, sample.value) for sample in found.samples]


def test_a_counter_is_read_as_it_was() -> None:
    family = MetricFamily("penstock_things_total", MetricKind.COUNTER, "Things.\nMany of them.", ("topic",))
    assert read(family, [(("/default/orders",), 12)]) == [("penstock_things_total", {"topic": "/default/orders"}, 12.0)]


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])), st.integers(0, 2**53))
def test_whatever_is_in_a_label_comes_back_as_it_was(text: str, value: int) -> None:
    family = MetricFamily("penstock_things", MetricKind.GAUGE, "Things.", ("topic",))
    text = text.replace("\r", "")  # that reader takes it for the end of a line
    assert read(family, [((text,), value)]) == [("penstock_things", {"topic": text}, float(value))]


@given(st.floats(allow_nan=False, allow_infinity=False, width=64))
def test_a_number_is_written_exactly(value: float) -> None:
    assert float(number(value)) == value


def test_a_histogram_has_buckets_that_grow_a_sum_and_a_count() -> None:
    histogram = Histogram((0.5, 1.0))
    for value in (0.25, 0.5, 0.75, 7.0):
        histogram.add(value)
    family = MetricFamily("penstock_sync_seconds", MetricKind.HISTOGRAM, "Syncs.")
    assert read(family, [((), histogram.snapshot())]) == [
        ("penstock_sync_seconds_bucket", {"le": "0.5"}, 2.0),
        ("penstock_sync_seconds_bucket", {"le": "1"}, 3.0),
        ("penstock_sync_seconds_bucket", {"le": "+Inf"}, 4.0),
        ("penstock_sync_seconds_sum", {}, 8.5),
        ("penstock_sync_seconds_count", {}, 4.0),
    ]


def test_a_family_without_samples_is_named_all_the_same() -> None:
    family = MetricFamily("penstock_things", MetricKind.GAUGE, "Things.")
    assert render([(family, [])]) == b"# HELP penstock_things Things.\n# TYPE penstock_things gauge\n"


def test_a_label_too_many_is_a_mistake_of_ours() -> None:
    with pytest.raises(ValueError, match="longer"):
        render([(MetricFamily("a", MetricKind.GAUGE, "A."), [(("b",), 1)])])
