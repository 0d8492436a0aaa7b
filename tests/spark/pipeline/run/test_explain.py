"""The graph of a pipeline, for a person."""

from __future__ import annotations

from tests.spark.pipeline.kit import HEAD, ORDERS, read

from penstock.spark.pipeline.run.explain import graph_lines

RHYTHM = "(append, every 1000 ms, checkpoint /pipelines/checkpoints/shop"


def test_every_part_has_a_line_with_what_it_reads() -> None:
    made = read(
        HEAD,
        f'{ORDERS}watermark = {{ column = "at", delay = "1h" }}',
        '[sources.rates]\nfile = "rates.csv"\n[sources.people]\ntable = "people"\n[sources.all]\npattern = "a.*"',
        '[steps.a]\nsql = "select * from orders, rates"\n[steps.b]\npython = "s.py:f"\ninputs = ["a", "people"]',
        '[sinks.t]\nfrom = "b"\ntable = "t"\n[sinks.o]\nfrom = "a"\ntopic = "out"\n[sinks.f]\nfrom = "all"\nfile = "f"',
        '[sinks.c]\nfrom = "a"\nconsole = true\noutput = "update"\ntrigger = "5s"',
    )
    assert list(graph_lines(made)) == [
        "pipeline shop (stream)",
        "  source orders <- stream: topic /default/orders (late after 3600000 ms of at)",
        "  source rates <- as it is: csv /pipelines/rates.csv",
        "  source people <- as it is: delta table people in /pipelines/lake",
        "  source all <- stream: topic a.*",
        "  step   a <- orders, rates by SQL",
        "  step   b <- a, people by /pipelines/s.py:f",
        f"  sink   t <- b -> delta table t in /pipelines/lake {RHYTHM}/t)",
        f"  sink   o <- a -> topic /default/out {RHYTHM}/o)",
        f"  sink   f <- all -> parquet /pipelines/f {RHYTHM}/f)",
        "  sink   c <- a -> console (update, every 5000 ms, checkpoint /pipelines/checkpoints/shop/c)",
    ]


def test_a_batch_has_no_rhythm() -> None:
    made = read(f'{HEAD}mode = "batch"\n', ORDERS, '[sinks.c]\nfrom = "orders"\nconsole = true')
    assert list(graph_lines(made))[-1] == "  sink   c <- orders -> console"
