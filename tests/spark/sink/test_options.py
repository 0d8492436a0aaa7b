"""Options: what is wrong is named, with what was given and what may be."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.core.errors import InvalidRequest, TopicNotSupported
from penstock.spark.sink.options import RowNumbers, RowOrder, SinkOptions

TARGET = {"broker": "127.0.0.1:7450"}


def test_names_are_taken_in_any_case() -> None:
    options = SinkOptions.parse({"Broker": "127.0.0.1:7450", "TOPIC": "Orders", "rowsPerSecond": "10"})
    assert (options.topic, options.broker, options.rows_per_second) == ("/default/orders", "tcp://127.0.0.1:7450", 10.0)


def test_what_is_not_given_has_its_default() -> None:
    options = SinkOptions.parse(TARGET)
    assert (options.order, options.numbers, options.producer) == (RowOrder.ENGINE, RowNumbers.ROWS, "spark")
    assert options.staging is None
    assert not options.staged


def test_a_data_directory_has_its_staging_beside_it() -> None:
    options = SinkOptions.parse({"path": "/data/penstock"})
    assert (options.path, options.staging) == (Path("/data/penstock"), Path("/data/penstock.staging"))
    assert SinkOptions.parse({"path": "/data/penstock", "staging": "/fast"}).staging == Path("/fast")


def test_sparks_own_options_are_let_through() -> None:
    SinkOptions.parse({**TARGET, "checkpointLocation": "/tmp/here"})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "neither broker nor path"),
        ({"broker": "a:1", "path": "/data"}, "path='/data' and broker='a:1' are given"),
        ({"broker": "nowhere"}, "broker='nowhere'"),
        ({"path": "s3://bucket/data"}, "path='s3://bucket/data'"),
        ({**TARGET, "toppic": "orders"}, "no option toppic: did you mean topic?"),
        ({**TARGET, "order": "random"}, "order='random': expected engine or content"),
        ({**TARGET, "numbers": "none"}, "numbers='none': expected rows or columns"),
        ({**TARGET, "run": "../x"}, "run='../x': 1 to 100 letters"),
        ({**TARGET, "run": "once-daily"}, "run='once-daily': names that begin with 'once-' are those of writes that"),
        ({**TARGET, "producer": ""}, "producer=''"),
        ({**TARGET, "batch": "-1"}, "batch='-1': expected a whole number from 0"),
        ({**TARGET, "rowsPerSecond": "0"}, "rowsPerSecond='0': expected a number above 0"),
        ({**TARGET, "rowsPerSecond": "fast"}, "rowsPerSecond='fast'"),
        ({**TARGET, "timeout": "1e9"}, "timeout='1e9'"),
        ({**TARGET, "createPartitions": "0"}, "createPartitions='0': expected a whole number from 1"),
    ],
)
def test_what_cannot_be_is_refused_by_name(given: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        SinkOptions.parse(given)
    assert said in caught.value.message


def test_a_topic_that_is_none_is_refused() -> None:
    with pytest.raises(TopicNotSupported):
        SinkOptions.parse({**TARGET, "topic": "no topic"})
