"""Pipelines that run: what goes out is what came in, once, whatever ends them."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.cli.kit import child_environment
from tests.spark.pipeline.kit import STREAM, TYPED, Directory, orders, write_topic

import penstock
from penstock.core.errors import NotOwner
from penstock.core.names import TopicName
from penstock.spark.pipeline.file.model import Pipeline
from penstock.spark.pipeline.file.parsing import PipelineInvalid
from penstock.spark.pipeline.run.progress import BatchReport
from penstock.spark.pipeline.run.queries import ConsoleRows
from penstock.spark.pipeline.run.run import Event, QueryStarted, Result, State, run
from penstock.storage.inspect.data_reader import DataReader
from penstock.testing import RunningBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES = '[sinks.out]\nfrom = "typed"\nfile = "out"\nformat = "json"\n'
Once = Callable[[Pipeline], list[Result]]


@pytest.fixture
def shop(tmp_path: Path) -> Directory:
    """A topic with a hundred orders."""
    made = Directory(tmp_path)
    write_topic(made.data, orders(0, 100))
    return made


class Told:
    """A listener that keeps the events of a run, and calls `then` for each."""

    def __init__(self, then: Callable[[Event], None] = lambda _: None) -> None:
        self.events: list[Event] = []
        self._then = then

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        self._then(event)

    @property
    def batches(self) -> list[BatchReport]:
        return [each for each in self.events if isinstance(each, BatchReport)]

    @property
    def shown(self) -> list[ConsoleRows]:
        return [each for each in self.events if isinstance(each, ConsoleRows)]


def once(spark: SparkSession, pipeline: Pipeline, told: Told | None = None) -> list[Result]:
    return run(spark, pipeline, once=True, say=told or Told(), stop=threading.Event())


# what goes out


def test_a_pipeline_goes_on_where_it_ended(spark: SparkSession, shop: Directory) -> None:
    pipeline = shop.pipeline(STREAM, "options = { maxOffsetsPerTrigger = 40 }", TYPED, FILES)
    told = Told()
    (result,) = once(spark, pipeline, told)
    assert told.events[0] == QueryStarted("shop.out", pipeline.sinks[0].checkpoint)
    assert [(each.rows_in, each.rows_out) for each in told.batches] == [(40, 40), (40, 40), (20, 20)]
    assert told.batches[-1].lag == 0
    assert (result.state, result.batches, result.rows_in, result.rows_out) == (State.DONE, 3, 100, 100)
    write_topic(shop.data, orders(100, 30))
    (result,) = once(spark, pipeline)
    assert (result.rows_in, result.rows_out) == (30, 30)
    assert sorted(row["id"] for row in shop.rows()) == list(range(130))
    (result,) = once(spark, pipeline)
    assert (result.rows_in, result.state) == (0, State.DONE)


def test_several_sinks_are_queries_of_their_own(spark: SparkSession, shop: Directory) -> None:
    large = '[steps.large]\nsql = "select id from typed where cents >= 500"\n[sinks.large]\nfrom = "large"\n'
    pipeline = shop.pipeline(STREAM, TYPED, FILES, f'{large}file = "large"\nformat = "json"')
    assert [each.query for each in once(spark, pipeline)] == ["shop.out", "shop.large"]
    assert len(shop.rows("out")) == 100
    assert sorted(row["id"] for row in shop.rows("large")) == list(range(50, 100))


def test_every_sink_of_a_source_has_a_subscription_of_its_own(
    spark: SparkSession, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    shop = Directory(tmp_path)
    with RunningBroker(data=shop.data, environment=child_environment(tmp_path_factory)) as broker:
        with penstock.connect(broker.url) as client, client.producer("orders") as producer:
            for text in orders(0, 10):
                producer.send(text.encode())
            producer.flush()
        named = f'options = {{ subscription = "shop", broker = "{broker.url}" }}\n'
        second = '[sinks.second]\nfrom = "typed"\nfile = "second"\nformat = "json"\n'
        assert {each.rows_out for each in once(spark, shop.pipeline(STREAM + named, TYPED, FILES, second))} == {10}
        with penstock.connect(broker.url) as client:
            there = client.ask("system.subscription.list", {"topic": "orders"})["subscriptions"]
    assert [each["subscription"] for each in there] == ["shop-out", "shop-second"]


def test_a_file_of_functions_travels_to_the_workers(spark: SparkSession, shop: Directory) -> None:
    (shop.root / "steps.py").write_text(
        "from pyspark.sql import functions as f\n"
        "def helper(number):\n    return number * 2\n"
        "def twice(orders):\n    return orders.withColumn('twice', f.udf(helper, 'long')('id'))\n"
    )
    step = '[steps.twice]\npython = "steps.py:twice"\ninputs = "typed"\n'
    once(spark, shop.pipeline(STREAM, TYPED, step, FILES.replace('"typed"', '"twice"')))
    assert {row["id"]: row["twice"] for row in shop.rows()} == {number: 2 * number for number in range(100)}


def test_rows_become_messages_of_a_topic(spark: SparkSession, shop: Directory) -> None:
    step = "[steps.named]\nsql = \"select cast(id as string) as key, 'order' as type, id, cents from typed\"\n"
    sink = '[sinks.back]\nfrom = "named"\ntopic = "copies"\nencode = "json"\n'
    options = "options = { createPartitions = 1 }\n"
    once(spark, shop.pipeline(STREAM, TYPED, step, sink, options))
    reader = DataReader(shop.data).topic(TopicName.parse("copies")).partition(0)
    found = reader.read(0).block.to_arrow(["key", "type", "value"]).to_pylist()
    assert len(found) == 100
    for row in found:
        value = json.loads(row["value"])
        assert (row["key"].decode(), row["type"], value["cents"]) == (str(value["id"]), "order", 10 * value["id"])


def test_a_table_holds_a_batch_once_even_if_it_is_run_again(spark: SparkSession, shop: Directory) -> None:
    import deltalake

    (shop.root / "steps.py").write_text("def distinct(orders):\n    return orders.dropDuplicates(['id'])\n")
    step = '[steps.distinct]\npython = "steps.py:distinct"\ninputs = "typed"\n'  # it has state, which goes along
    pipeline = shop.pipeline(STREAM, TYPED, step, '[sinks.kept]\nfrom = "distinct"\ntable = "orders"\n')
    (result,) = once(spark, pipeline)
    assert result.failure is None
    table = shop.root / "lake" / "default" / "orders"
    assert deltalake.DeltaTable(table).to_pyarrow_table().num_rows == 100
    for name in ("0", ".0.crc"):  # as if it had been killed between the table's commit and Spark's own
        (Path(pipeline.sinks[0].checkpoint) / "commits" / name).unlink(missing_ok=True)
    write_topic(shop.data, [*orders(100, 10), *orders(0, 10)])
    (result,) = once(spark, pipeline)
    assert result.failure is None
    found = deltalake.DeltaTable(table).to_pyarrow_table().to_pydict()
    assert sorted(found["id"]) == list(range(110))


def test_a_table_and_a_topic_are_read_beside_a_stream(spark: SparkSession, shop: Directory) -> None:
    once(spark, shop.pipeline(STREAM, TYPED, '[sinks.kept]\nfrom = "typed"\ntable = "known"\n', name="first"))
    write_topic(shop.data, ['{"id": 7, "cents": 0}'], topic="special")
    sources = '[sources.known]\ntable = "known"\n[sources.special]\ntopic = "special"\nread = "batch"\n'
    step = """
    [steps.joined]
    sql = '''
        select t.id, k.cents as before, s.value is not null as special from typed t join known k on t.id = k.id
        left join special s on get_json_object(cast(s.value as string), '$.id') = t.id
    '''
    """
    (result,) = once(spark, shop.pipeline(STREAM, TYPED, sources, step, FILES.replace('"typed"', '"joined"')))
    assert result.failure is None
    found = {row["id"]: (row["before"], row["special"]) for row in shop.rows()}
    assert found == {number: (10 * number, number == 7) for number in range(100)}


def test_what_is_no_stream_is_read_anew_when_it_is_time(spark: SparkSession, shop: Directory) -> None:
    write_topic(shop.data, ["one"], topic="names")
    source = '[sources.names]\ntopic = "names"\nread = "batch"\n'
    step = '[steps.joined]\nsql = "select t.id, cast(n.value as string) as name from typed t cross join names n"\n'
    head = STREAM.replace("[sources", 'refresh = "1s"\n[sources')
    pipeline = shop.pipeline(head, TYPED, source, step, FILES.replace('"typed"', '"joined"'))
    stop, before = threading.Event(), list[Event]()

    def go_on(event: Event) -> None:
        first = not any(isinstance(each, BatchReport) for each in before)
        if isinstance(event, BatchReport) and first:
            write_topic(shop.data, ["two"], topic="names")
        elif isinstance(event, BatchReport):
            stop.set()
        elif not first and isinstance(before[-1], BatchReport):
            write_topic(shop.data, orders(100, 1))
        before.append(event)

    (result,) = run(spark, pipeline, once=False, say=go_on, stop=stop)
    assert (result.failure, result.state, result.rows_in) == (None, State.STOPPED, 101)
    assert sorted(row["name"] for row in shop.rows() if row["id"] in (99, 100)) == ["one", "one", "two"]


def test_the_console_shows_a_result_that_is_kept_in_state(spark: SparkSession, shop: Directory) -> None:
    step = '[steps.sums]\nsql = "select id % 3 as rest, count(*) as orders from typed group by id % 3"\n'
    sink = '[sinks.show]\nfrom = "sums"\nconsole = true\nrows = 2\noutput = "complete"\n'
    told = Told()
    source = f"{STREAM}options = {{ maxOffsetsPerTrigger = 60 }}"
    (result,) = once(spark, shop.pipeline(source, TYPED, step, sink), told)
    assert (result.failure, result.batches) == (None, 2)
    assert [(each.columns, len(each.rows), each.more) for each in told.shown] == [(["rest", "orders"], 2, True)] * 2
    assert told.batches[-1].state_rows == 3


def test_bytes_are_shown_as_text_or_in_base64(spark: SparkSession, shop: Directory) -> None:
    head = STREAM.replace("[sources", 'mode = "batch"\n[sources')
    step = "[steps.s]\nsql = \"select value, X'ff' as other from orders where offset = 0\"\n"
    told = Told()
    once(spark, shop.pipeline(head, step, '[sinks.show]\nfrom = "s"\nconsole = true\n'), told)
    assert told.shown[0].rows == [['{"id": 0, "cents": 0}', "/w=="]]


def test_a_batch_is_one_pass_over_what_is_there(spark: SparkSession, shop: Directory) -> None:
    head = STREAM.replace("[sources", 'mode = "batch"\n[sources')
    step = '[steps.sum]\nsql = "select sum(cents) as cents from typed"\n'
    sinks = '[sinks.sum]\nfrom = "sum"\nfile = "sum"\nformat = "json"\n[sinks.show]\nfrom = "typed"\nconsole = true\n'
    pipeline = shop.pipeline(head, TYPED, step, sinks, '[sinks.kept]\nfrom = "typed"\ntable = "orders"\n')
    told = Told()
    results = once(spark, pipeline, told)
    assert [(each.state, each.rows_out) for each in results] == [
        (State.DONE, 1),
        (State.DONE, 100),
        (State.DONE, 100),
    ]
    (written,) = (shop.root / "sum").glob("*.json")
    assert json.loads(written.read_text()) == {"cents": sum(range(0, 1000, 10))}
    assert len(told.shown[0].rows) == 20
    assert not Path(pipeline.checkpoints).exists()


# how it ends


def test_a_query_that_fails_stops_the_others_and_says_why(spark: SparkSession, shop: Directory) -> None:
    (shop.root / "steps.py").write_text(
        "from pyspark.sql import functions as f\n"
        "def fussy(number):\n    if number == 77:\n        raise ValueError('77 is not to be had')\n    return number\n"
        "def checked(orders):\n    return orders.withColumn('id', f.udf(fussy, 'long')('id'))\n"
    )
    step = '[steps.checked]\npython = "steps.py:checked"\ninputs = "typed"\n'
    bad = '[sinks.bad]\nfrom = "checked"\nfile = "bad"\nformat = "json"\n'
    pipeline = shop.pipeline(STREAM, TYPED, step, FILES, bad)
    good, failed = run(spark, pipeline, once=False, say=Told(), stop=threading.Event())
    assert good.state is State.STOPPED
    assert failed.state is State.FAILED
    assert failed.failure is not None
    assert failed.failure.reason == "ValueError: 77 is not to be had"
    assert spark.streams.active == []
    (shop.root / "steps.py").write_text("def checked(orders):\n    return orders\n")
    once(spark, pipeline)
    assert sorted(row["id"] for row in shop.rows("bad")) == list(range(100))
    assert sorted(row["id"] for row in shop.rows("out")) == list(range(100))


def test_a_pipeline_that_is_stopped_ends_its_batch_and_goes_on_later(spark: SparkSession, shop: Directory) -> None:
    stop = threading.Event()
    source = f"{STREAM}options = {{ maxOffsetsPerTrigger = 10 }}"
    sink = FILES + 'trigger = "0s"\n'
    told = Told(lambda event: stop.set() if isinstance(event, BatchReport) else None)
    (result,) = run(spark, shop.pipeline(source, TYPED, sink), once=False, say=told, stop=stop)
    assert (result.state, result.failure) == (State.STOPPED, None)
    assert 0 < result.rows_in <= 100
    assert spark.streams.active == []
    once(spark, shop.pipeline(source, TYPED, sink))
    assert sorted(row["id"] for row in shop.rows()) == list(range(100))


def test_what_is_lost_in_the_log_fails_with_its_numbers(spark: SparkSession, shop: Directory) -> None:
    pipeline = shop.pipeline(STREAM, TYPED, FILES)
    once(spark, pipeline)
    for path in shop.data.rglob("*.seg"):
        path.unlink()
    for path in shop.data.rglob("*.idx"):
        path.unlink()
    (result,) = once(spark, pipeline)
    assert result.state is State.FAILED
    assert result.failure is not None
    assert "/default/orders" in result.failure.reason


# before it begins


def test_nothing_is_started_where_something_is_wrong(spark: SparkSession, shop: Directory) -> None:
    good = FILES
    bad = '[steps.bad]\nsql = "select nothing from typed"\n[sinks.bad]\nfrom = "bad"\nconsole = true\n'
    pipeline = shop.pipeline(STREAM, TYPED, good, bad)
    with pytest.raises(PipelineInvalid, match=r"\[steps.bad\]: .*`nothing` cannot be resolved"):
        once(spark, pipeline)
    assert not Path(pipeline.checkpoints).exists()
    assert not (shop.root / "out").exists()


def test_checkpoints_are_one_process_s(spark: SparkSession, shop: Directory) -> None:
    import fcntl

    pipeline = shop.pipeline(STREAM, TYPED, FILES)
    Path(pipeline.checkpoints).mkdir(parents=True)
    with (Path(pipeline.checkpoints) / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(NotOwner, match="another process runs the pipeline"):
            once(spark, pipeline)
    once(spark, pipeline)
