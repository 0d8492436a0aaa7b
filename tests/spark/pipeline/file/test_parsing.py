"""A pipeline's file: what it may say, and what is said of a wrong one."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from tests.spark.pipeline.kit import FILE, HEAD, ORDERS, SHOW, problems, read, sink, source, step

from penstock.core.errors import InvalidRequest
from penstock.spark.pipeline.file.model import (
    Encode,
    Format,
    FromFormat,
    FromTable,
    FromTopics,
    Function,
    Mode,
    Output,
    Spark,
    Sql,
    TableAt,
    TableKind,
    ToConsole,
    ToFiles,
    ToTable,
    ToTopic,
    Watermark,
)
from penstock.spark.pipeline.file.parsing import PipelineInvalid, load, parse

# the whole


def test_the_smallest_pipeline_reads_a_topic_and_shows_it() -> None:
    made = read(HEAD, ORDERS, SHOW)
    assert (made.name, made.mode, made.checkpoints) == ("shop", Mode.STREAM, "/pipelines/checkpoints/shop")
    assert [each.name for each in made.sources] == ["orders"]
    assert made.sources[0].streaming
    assert made.sinks[0].to == ToConsole(20)
    assert made.sinks[0].checkpoint == "/pipelines/checkpoints/shop/show"
    assert made.query_name(made.sinks[0]) == "shop.show"
    assert made.warnings == ()


def test_a_pipeline_is_a_value_that_travels() -> None:
    made = read(HEAD, ORDERS, SHOW)
    assert pickle.loads(pickle.dumps(made)) == made


def test_the_parts_may_stand_in_any_order_and_the_steps_come_in_theirs() -> None:
    made = read(
        '[sinks.show]\nfrom = "C"\nconsole = true',
        '[steps.c]\nsql = "select * from B join A"',
        '[steps.b]\nsql = "select * from a"',
        '[steps.a]\nsql = "select * from orders"',
        ORDERS,
        HEAD,
    )
    assert [each.name for each in made.steps] == ["a", "b", "c"]
    assert made.steps[-1].inputs == ("b", "a")


def test_the_session_is_started_with_what_the_file_says() -> None:
    spark = '[spark]\nmaster = "local[2]"\nmemory = "2g"\nconfig = { "spark.sql.shuffle.partitions" = 4 }'
    assert read(HEAD, ORDERS, SHOW, spark).spark == Spark(
        master="local[2]", memory="2g", config=(("spark.sql.shuffle.partitions", "4"),)
    )


def test_a_file_is_read_from_where_it_is(tmp_path: Path) -> None:
    file = tmp_path / "made.toml"
    file.write_text(f"{HEAD}{ORDERS}{SHOW}")
    assert load(file, {}).name == "made"
    assert load(file, {}).checkpoints == f"{tmp_path}/checkpoints/made"


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"cannot be read: .*No such file"):
        load(tmp_path / "none.toml", {})
    (tmp_path / "latin.toml").write_bytes(b"name = '\xe9'")
    with pytest.raises(InvalidRequest, match="cannot be read"):
        load(tmp_path / "latin.toml", {})


def test_what_is_not_toml_is_an_error_with_its_line() -> None:
    with pytest.raises(InvalidRequest, match=r"shop.toml is not TOML: .*line 1"):
        parse("what is this", FILE, {})


# sources


def test_a_topic_is_read_from_its_beginning_where_the_pipelines_data_are() -> None:
    of = source('topic = "shop.orders"').of
    assert of == FromTopics(
        "/default/shop.orders",
        (("path", "/pipelines/data"), ("subscribe", "/default/shop.orders"), ("startingOffsets", "earliest")),
    )


def test_options_of_the_source_are_texts_as_spark_has_them() -> None:
    options = '{ maxOffsetsPerTrigger = 100, failOnDataLoss = false, startingOffsets = { orders = { "0" = 5 } } }'
    of = source(f'topic = ["orders", "/shop/returns"]\ndecode = "registry"\noptions = {options}').of
    assert isinstance(of, FromTopics)
    assert dict(of.options) == {
        "path": "/pipelines/data",
        "subscribe": "/default/orders,/shop/returns",
        "decode": "registry",
        "maxOffsetsPerTrigger": "100",
        "failOnDataLoss": "false",
        "startingOffsets": '{"orders": {"0": 5}}',
    }


def test_a_source_goes_its_own_way_before_the_pipelines() -> None:
    head = '[pipeline]\npath = "s3://other/data"\nregistry = "schemas.json"\nstorage = { region = "r" }\n'
    of = source(
        'pattern = "orders[.].*"\npath = "s3://bucket/data"\noptions = { startingTimestamp = "5" }', head=head
    ).of
    assert isinstance(of, FromTopics)
    assert dict(of.options) == {
        "path": "s3://bucket/data",
        "registry": "/pipelines/schemas.json",
        "storage.region": "r",
        "subscribePattern": "orders[.].*",
        "startingTimestamp": "5",
    }


def test_a_source_may_be_read_as_it_is_once() -> None:
    assert not source('topic = "customers"\nread = "batch"').streaming


def test_a_watermark_has_a_column_and_a_delay() -> None:
    assert source('topic = "a"\nwatermark = { column = "at", delay = "30m" }').watermark == Watermark("at", 1_800_000)


def test_a_table_is_read_as_it_is() -> None:
    made = source('table = "customers"')
    assert made.of == FromTable(TableAt(kind=TableKind.DELTA, warehouse="/pipelines/lake", name="customers"))
    assert not made.streaming


def test_a_table_may_lie_in_another_warehouse_and_be_of_another_kind() -> None:
    text = 'table = "customers"\nkind = "iceberg"\nwarehouse = "s3://lake"\ncatalog = { uri = "http://catalog" }'
    at = TableAt(kind=TableKind.ICEBERG, warehouse="s3://lake", name="customers", catalog=(("uri", "http://catalog"),))
    assert source(text).of == FromTable(at)


@pytest.mark.parametrize(
    ("name", "form"), [("a.csv", "csv"), ("a.json", "json"), ("a.jsonl", "json"), ("a.parquet", "parquet")]
)
def test_the_format_of_a_file_is_told_from_its_name(name: str, form: str) -> None:
    assert source(f'file = "{name}"').of == FromFormat(format=form, path=f"/pipelines/{name}")


def test_files_that_come_to_be_are_a_stream_with_a_schema() -> None:
    made = source('file = "in"\nformat = "csv"\nread = "stream"\nschema = "id long"\noptions = { header = true }')
    assert made.streaming
    assert made.of == FromFormat(format="csv", path="/pipelines/in", schema="id long", options=(("header", "true"),))


def test_any_source_of_spark_goes_by_its_name() -> None:
    made = source('format = "rate"\nread = "stream"\noptions = { rowsPerSecond = 5 }')
    assert made.of == FromFormat(format="rate", options=(("rowsPerSecond", "5"),))


# steps


def test_a_query_names_what_it_reads() -> None:
    made = step('sql = "select * from Orders;"\nwatermark = { column = "at", delay = "0s" }')
    assert (made.by, made.inputs, made.watermark) == (Sql("select * from Orders"), ("orders",), Watermark("at", 0))


@pytest.mark.parametrize(
    ("given", "place"), [("shop.steps:sessions", "shop.steps"), ("steps.py:sessions", "/pipelines/steps.py")]
)
def test_a_function_is_a_modules_or_a_files(given: str, place: str) -> None:
    made = step(f'python = "{given}"\ninputs = ["orders"]')
    assert (made.by, made.inputs) == (Function(place, "sessions"), ("orders",))


# sinks


def test_messages_go_through_the_broker_unless_a_directory_is_named() -> None:
    assert sink('topic = "out"\noutput = "update"\nencode = "json"').to == ToTopic(
        topic="/default/out",
        encode=Encode.JSON,
        options=(("broker", "127.0.0.1:7450"), ("topic", "/default/out")),
    )
    named = sink('topic = "out"\npath = "bulk"').to
    assert isinstance(named, ToTopic)
    assert named.options == (("path", "/pipelines/bulk"), ("topic", "/default/out"))
    alone = sink('topic = "out"', head='[pipeline]\npath = "data"\n').to
    assert isinstance(alone, ToTopic)
    assert alone.options == (("path", "/pipelines/data"), ("topic", "/default/out"))


def test_a_table_and_files_take_rows_that_stay() -> None:
    at = TableAt(kind=TableKind.DELTA, warehouse="/pipelines/lake", name="revenue")
    assert sink('table = "revenue"\npartition_by = "day"').to == ToTable(table=at, partition_by="day")
    assert sink('file = "out.csv"').to == ToFiles(path="/pipelines/out.csv", format=Format.CSV)
    assert sink('file = "out"').to == ToFiles(path="/pipelines/out", format=Format.PARQUET)


def test_the_console_shows_any_result() -> None:
    made = sink('console = true\nrows = 5\noutput = "complete"\ntrigger = "500ms"')
    assert (made.to, made.output, made.trigger_ms) == (ToConsole(5), Output.COMPLETE, 500)


@pytest.mark.parametrize(("warehouse", "kept"), [("lake", {}), ("s3://bucket/lake", {"region": "r"}), ("/lake", {})])
def test_options_of_a_store_are_for_tables_where_the_lake_is_in_one(warehouse: str, kept: dict[str, str]) -> None:
    storage = 'storage = { region = "r", tls_ca = "ca.pem" }\n'
    head = f'[pipeline]\npath = "s3://bucket/data"\nwarehouse = "{warehouse}"\n{storage}'
    to = sink('table = "t"', head=head).to
    assert isinstance(to, ToTable)
    assert dict(to.table.storage) == kept


def test_the_pipeline_says_how_often_unless_the_sink_does() -> None:
    assert sink("console = true").trigger_ms == 1000
    assert sink("console = true", head=f'{HEAD}trigger = "10s"\n').trigger_ms == 10_000


# variables


def test_variables_of_the_environment_are_filled_in_and_hidden() -> None:
    text = (
        '[sources.orders]\ntopic = "${TOPIC}"\npath = "s3://b/${SECRET}"\noptions = { "storage.region" = "${SECRET}" }'
    )
    head = '[pipeline]\ncatalog = { tokens = ["${SECRET}", 5] }\n'
    made = read(head, text, SHOW, variables={"TOPIC": "orders", "SECRET": "open sesame", "OTHER": "x"})
    options = dict(made.sources[0].of.options)  # type: ignore[union-attr]
    assert (options["storage.region"], options["path"]) == ("open sesame", "s3://b/open sesame")
    assert made.secrets.hide("a broker said open sesame") == "a broker said ${SECRET}"
    assert "sesame" not in repr(made.secrets.hide(str(options)))


def test_a_variable_that_is_not_set_is_named_with_its_key() -> None:
    assert problems(HEAD, '[sources.orders]\ntopic = "${TOPIC}"', SHOW) == (
        "[sources.orders] topic: ${TOPIC}: the environment variable TOPIC is not set; ${TOPIC:-text} has a default",
    )


def test_a_problem_does_not_tell_a_secret() -> None:
    (problem,) = problems(HEAD, '[sources.orders]\ntopic = "${TOPIC}"', SHOW, variables={"TOPIC": "open sesame"})
    assert "sesame" not in problem
    assert "${TOPIC}" in problem


# what is wrong


def test_all_problems_are_told_at_once_in_one_sentence_with_the_file() -> None:
    with pytest.raises(PipelineInvalid) as caught:
        read(HEAD, '[sources.orders]\ntopic = "-"\nred = "batch"', '[sinks.show]\nfrom = "orders"\nconsole = 1')
    assert len(caught.value.problems) == 3
    assert caught.value.message.startswith("/pipelines/shop.toml: 3 problems: [sources.orders] topic: ")
    assert caught.value.details["problems"] == list(caught.value.problems)


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ([HEAD, ORDERS, SHOW, "[sorces.x]\n"], "[sorces] is not a part of a pipeline; did you mean sources?"),
        ([HEAD, ORDERS, SHOW, "[zzz]\n"], "known are pipeline, sinks, sources, spark, steps"),
        ([HEAD, ORDERS, SHOW, "steps.x = 5"], "not a key here"),
        ([ORDERS, SHOW, HEAD, 'mod = "batch"'], "[pipeline] mod: not a key here; did you mean mode?"),
        ([ORDERS, SHOW, HEAD, 'mode = "bach"'], '[pipeline] mode: "bach" is not allowed here: stream or batch'),
        ([ORDERS, SHOW, HEAD, 'name = "a b"'], '[pipeline] name: "a b" is not a name'),
        ([ORDERS, SHOW, HEAD, "name = 5"], "[pipeline] name: a text is wanted, not 5"),
        ([ORDERS, SHOW, HEAD, 'trigger = "often"'], "[pipeline] trigger: 'often' is not a span of time such as"),
        ([ORDERS, SHOW, HEAD, 'refresh = "0s"'], '[pipeline] refresh: a span of time above 0 is wanted, not "0s"'),
        ([ORDERS, SHOW, HEAD, 'mode = "batch"\nrefresh = "1s"'], "[pipeline] refresh: a pipeline of mode"),
        ([ORDERS, SHOW, HEAD, 'url = "http://x"'], "path and url are both there"),
        ([ORDERS, SHOW, HEAD, "storage = 5"], "[pipeline] storage: a table is wanted, not 5"),
        ([HEAD, ORDERS, SHOW, "[spark]\nmemery = 1"], "[spark] memery: not a key here; did you mean memory?"),
        ([HEAD, ORDERS, SHOW, "[spark]\nconfig = { a = 1 }"], '[spark] config: "a" is no setting of Spark'),
        ([HEAD, ORDERS, SHOW, '[sources."1"]\ntopic = "a"'], '"1" is not a name: a letter, then letters'),
        ([HEAD, ORDERS, "[sinks]\nshow = 5"], "a table is wanted, not 5: write [sinks.show] above its keys"),
        ([HEAD, ORDERS], "[sinks.NAME]: there is none"),
        ([HEAD, SHOW], '[sinks.show] from: "orders" is no source and no step; known are none'),
        ([HEAD, ORDERS, SHOW.replace("orders", "order")], '"order" is no source and no step; did you mean orders?'),
        ([HEAD, ORDERS, SHOW, '[sources.ORDERS]\ntopic = "b"'], '"orders" names 2 sources or steps'),
        ([HEAD, ORDERS, SHOW, '[steps.orders]\nsql = "select 1 from orders"'], '"orders" names 2 sources or steps'),
        ([HEAD, ORDERS, SHOW, SHOW.replace("show", "SHOW")], '"show" names 2 sinks'),
    ],
)
def test_a_wrong_whole_is_explained(parts: list[str], words: str) -> None:
    assert any(words in problem for problem in problems(*parts)), problems(*parts)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "[sources.one]: exactly one of topic, pattern, table, file, format says what it is; there is none"),
        ('topic = "a"\ntable = "b"', "topic and table are there"),
        ('topic = "no topic"', "[sources.one] topic: "),
        ("topic = []", "[sources.one] topic: an empty list"),
        ("topic = [1]", "[sources.one] topic: a text is wanted, not 1"),
        ('topic = "a"\nread = "often"', '[sources.one] read: "often" is not allowed here: stream or batch'),
        ('topic = "a"\nwatermark = "5m"', "[sources.one] watermark: a table is wanted"),
        ('topic = "a"\nwatermark = { column = "at" }', "[sources.one] watermark delay: missing: how late"),
        ('topic = "a"\nwatermark = { delay = "1h" }', "[sources.one] watermark column: missing"),
        ('topic = "a"\nwatermark = { column = "at", delay = "1 hour" }', "'1 hour' is not a span of time"),
        ('topic = "a"\nwatermark = { column = "at", delay = "1h", x = 1 }', "watermark x: not a key here"),
        ('topic = "a"\npath = "x"\nurl = "http://y"', "path and url are both there"),
        ('topic = "a"\noptions = { since = 2020-01-01 }', "[sources.one] options: since: "),
        ('topic = "a"\nformat = "csv"', "topic and format are there"),
        ('table = "a"\nread = "stream"', "a lake table is read as it is"),
        ('table = "a"\nkind = "hudi"', '"hudi" is not allowed here: delta, iceberg or parquet'),
        ('topic = "a"\noptions = { maxOfsets = 1 }', "[sources.one] options: there is no option 'maxOfsets'"),
        ('topic = "a"\noptions = { verify = 5 }', "option verify is '5': allowed is true or false"),
        ('topic = "a"\noptions = { endingOffsets = "latest" }', "endingOffsets is for a batch"),
        ('pattern = "("', "[sources.one] options: option subscribePattern is '('"),
        ('file = "x"', "[sources.one] format: missing: parquet, json, csv, text, orc"),
        ('file = "x.csv"\nread = "stream"', "[sources.one] schema: missing: files that are read as a stream"),
        ('file = "x.csv"\nformat = "xls"', '"xls" is not allowed here'),
        ('file = "x.csv"\nheader = true', "[sources.one] header: not a key here"),
    ],
)
def test_a_wrong_source_is_explained(text: str, words: str) -> None:
    found = problems(HEAD, ORDERS, f"[sources.one]\n{text}", SHOW)
    assert any(words in problem for problem in found), found


def test_a_topic_or_table_that_lies_nowhere_is_a_problem() -> None:
    found = problems(ORDERS, '[sources.t]\ntable = "t"', SHOW, '[sinks.out]\nfrom = "orders"\ntopic = "out"')
    assert [problem.partition(":")[0] for problem in found] == [
        "[sources.orders] path",
        "[sources.t] warehouse",
        "[sinks.out] broker",
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "[steps.one]: exactly one of sql, python says what it is; there is none"),
        ('sql = "select 1"', '[steps.one] sql: reads no source and no step: "select 1"'),
        ('sql = ""', "[steps.one] sql: a text is wanted"),
        ('sql = "select * from orders"\ninputs = "orders"', "[steps.one] inputs: is for python alone"),
        ('sql = "select * from ordrs"', "reads ordrs, which is no source and no step; did you mean orders?"),
        ('sql = "select * from one"', "[steps]: one reads itself"),
        ('python = "x:y"', "[steps.one] inputs: missing: what the function is given"),
        ('python = "x"\ninputs = "orders"', '"module:function" or "file.py:function" is wanted, not "x"'),
        ('python = "a b:y"\ninputs = "orders"', '"module:function" or "file.py:function" is wanted'),
        ('python = "x:y"\ninputs = "order"', "reads order, which is no source"),
    ],
)
def test_a_wrong_step_is_explained(text: str, words: str) -> None:
    found = problems(HEAD, ORDERS, f"[steps.one]\n{text}", SHOW)
    assert any(words in problem for problem in found), found


def test_a_cycle_is_told_as_it_goes_round() -> None:
    steps = [
        '[steps.a]\nsql = "select * from b"',
        '[steps.b]\nsql = "select * from c, orders"',
        '[steps.c]\nsql = "from a"',
    ]
    (problem,) = problems(HEAD, ORDERS, *steps, SHOW)
    assert problem.startswith("[steps]: ")
    assert "a reads b" in problem
    assert "which reads" in problem


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "[sinks.one]: exactly one of topic, table, file, console says what it is; there is none"),
        ('topic = "a"\nconsole = true', "topic and console are there"),
        ('topic = "a"\noutput = "complete"', '"complete" is not allowed here: append or update'),
        ('table = "a"\noutput = "update"', '"update" is not allowed here: append'),
        ('file = "a"\noutput = "apend"', '"apend" is not allowed here: append'),
        ('topic = "a"\nbroker = "b"\npath = "p"', "broker and path are both there"),
        ('topic = "a"\nencode = "avro"', '"avro" is not allowed here: none or json'),
        ('topic = "a"\noptions = { producers = "x" }', "[sinks.one] options: "),
        ("console = false", "[sinks.one] console: true, or leave the sink out"),
        ("console = true\nrows = 0", "[sinks.one] rows: a whole number from 1 to 1,000 is wanted, not 0"),
        ("console = true\nrow = 5", "[sinks.one] row: not a key here; did you mean rows?"),
        ('console = true\ntrigger = "1 s"', "'1 s' is not a span of time"),
    ],
)
def test_a_wrong_sink_is_explained(text: str, words: str) -> None:
    found = problems(HEAD, ORDERS, f'[sinks.one]\nfrom = "orders"\n{text}')
    assert any(words in problem for problem in found), found


def test_a_sink_says_whose_rows_it_takes() -> None:
    assert problems(HEAD, ORDERS, "[sinks.one]\nconsole = true") == (
        "[sinks.one] from: missing: the step or source whose rows it takes",
    )


# streams and batches


def test_a_query_needs_a_stream() -> None:
    (problem,) = problems(HEAD, '[sources.orders]\ntable = "orders"', SHOW)
    assert problem.startswith("[sinks.show] from: orders reads no stream")
    assert 'mode = "batch"' in problem


def test_a_batch_has_no_streams_and_no_triggers() -> None:
    head = f'{HEAD}mode = "batch"\n'
    made = read(head, ORDERS, SHOW)
    assert not made.sources[0].streaming
    found = problems(head, f'{ORDERS}read = "stream"', f'{SHOW}output = "append"\ntrigger = "1s"')
    assert [problem.partition(":")[0] for problem in found] == [
        "[sources.orders] read",
        "[sinks.show] output",
        "[sinks.show] trigger",
    ]


# what is perhaps not meant


def test_what_nobody_uses_is_a_warning() -> None:
    extra = '[sources.x]\ntopic = "x"\n[steps.y]\nsql = "select * from x"'
    assert read(HEAD, ORDERS, extra, SHOW).warnings == (
        "[sources.x] is used by no sink: it is not run",
        "[steps.y] is used by no sink: it is not run",
    )


def test_a_watermark_on_what_does_not_flow_is_a_warning() -> None:
    table = '[sources.t]\ntable = "t"\nwatermark = { column = "at", delay = "1h" }'
    joined = '[steps.s]\nsql = "select * from orders join t"\n[sinks.show]\nfrom = "s"\nconsole = true'
    assert read(HEAD, ORDERS, table, joined).warnings == ("t is no stream: its watermark does nothing",)


def test_nothing_to_refresh_is_a_warning() -> None:
    assert read(ORDERS, SHOW, HEAD, 'refresh = "1h"').warnings == (
        "[pipeline] refresh does nothing: all sources are streams",
    )
    table = '[sources.t]\ntable = "t"\n[steps.s]\nsql = "select * from orders, t"\n'
    made = read(ORDERS, table, SHOW.replace("orders", "s"), HEAD, 'refresh = "1h"')
    assert (made.warnings, made.refresh_ms) == ((), 3_600_000)


def test_a_topic_that_is_read_and_written_is_a_warning() -> None:
    (warning,) = read(HEAD, ORDERS, '[sinks.back]\nfrom = "orders"\ntopic = "Orders"').warnings
    assert warning == "[sinks.back] writes to /default/orders, which [sources.orders] reads: its rows come back"
