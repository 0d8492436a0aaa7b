from __future__ import annotations

from tests.spark.pipeline.kit import HEAD, problems, read

from penstock.spark.pipeline.file.model import FromTopics, Pipeline
from penstock.spark.pipeline.file.subscription_names import sources_of

NAMED = '[sources.orders]\ntopic = "orders"\noptions = { subscription = "shop" }\n'
OTHER = '[sources.carts]\ntopic = "carts"\noptions = { subscription = "carts" }\n'
STEP = '[steps.large]\nsql = "select * from orders"\n'


def sink(name: str, source: str = "orders") -> str:
    return f'[sinks.{name}]\nfrom = "{source}"\nconsole = true\n'


def names(pipeline: Pipeline) -> dict[str, list[str]]:
    """Under which names each sink's query reports, source by source."""
    found: dict[str, list[str]] = {}
    for each in pipeline.sinks:
        sources = sources_of(each, pipeline.sources, pipeline.steps, pipeline.sinks)
        options = [dict(source.of.options) for source in sources if isinstance(source.of, FromTopics)]
        found[each.name] = [given["subscription"] for given in options]
    return found


def test_a_sink_alone_reports_as_its_source_says() -> None:
    assert names(read(HEAD, NAMED, OTHER, sink("one"), sink("two", "carts"))) == {
        "one": ["shop", "carts"],
        "two": ["shop", "carts"],
    }


def test_sinks_that_share_a_source_report_under_names_of_their_own() -> None:
    assert names(read(HEAD, NAMED, OTHER, STEP, sink("one"), sink("two", "large"), sink("three", "carts"))) == {
        "one": ["shop-one", "carts"],
        "two": ["shop-two", "carts"],
        "three": ["shop", "carts"],
    }


def test_a_name_that_becomes_too_long_is_a_problem() -> None:
    long = NAMED.replace("shop", "s" * 122)
    read(HEAD, long, sink("one"))
    found = problems(HEAD, long, sink("one"), sink("another"))
    assert len(found) == 1
    assert "[sources.orders] options: as it is read by several sinks: " in found[0]
