"""Data directories, lake tables and checkpoints of earlier releases: the code of today opens them and goes on."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable
from tests.golden.make_data_directory import HERE, MESSAGES, ORDERS, PAYMENTS, POISON, command, produce, replace_in_json

import penstock
from penstock import errors
from penstock.testing import RunningBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RELEASES = sorted(file.name for file in Path(__file__).parent.glob("data-*.tar.xz"))
NEW = 5


@pytest.fixture(params=RELEASES)
def there(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of one release: `data`, `lake` and `checkpoint`, as `make_data_directory` packed them."""
    with tarfile.open(Path(__file__).with_name(request.param)) as packed:
        packed.extractall(tmp_path, filter="data")
    replace_in_json(tmp_path / "lake", HERE, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rest_of_billing(client: Any, count: int) -> set[int]:
    """The numbers of the orders that the subscription still has, each acknowledged."""
    numbers: set[int] = set()
    with client.consumer(ORDERS, "billing", type="shared") as consumer:
        while len(numbers) < count:
            message = consumer.receive(timeout=30)
            numbers.add(message.json()["order"])
            consumer.ack(message)
        consumer.flush()
        with pytest.raises(TimeoutError):
            consumer.receive(timeout=0.2)
    return numbers


def add_orders(broker: RunningBroker) -> None:
    """Publish new orders, under the producer's name of the earlier release."""
    with penstock.connect(broker.url) as client:
        produce(client, MESSAGES, NEW)


def test_two_releases_are_kept() -> None:
    assert RELEASES == ["data-0.1.0.tar.xz", "data-0.1.1.tar.xz"]


def test_a_broker_goes_on_with_cursors_producers_schemas_and_dead_letters(there: Path) -> None:
    with RunningBroker(data=there / "data") as broker, penstock.connect(broker.url) as connected:
        client: Any = connected
        with client.producer(ORDERS, name="till") as producer:
            producer.send(json.dumps({"order": MESSAGES}))
        with pytest.raises(errors.SchemaRejected):
            client.publish(PAYMENTS, '{"cents": "many"}')
        assert client.publish(PAYMENTS, '{"cents": 250}').offset == 1
        odd = {number for number in range(MESSAGES) if number % 2 and number != POISON}
        assert rest_of_billing(client, len(odd) + 1) == {*odd, MESSAGES}
        with client.consumer(f"/default-dlq/{ORDERS}", start="earliest") as letters:
            letter: Any = letters.receive(timeout=30)
        assert letter.json() == {"order": POISON}
        assert letter.attributes["x-failure-reason"] == "no price"


def test_an_archive_goes_on_where_it_was(there: Path) -> None:
    with RunningBroker(data=there / "data") as broker:
        add_orders(broker)
    command("archive", ORDERS, "--data", "data", "--warehouse", "lake", "--once", "--engine", "local")
    rows = DeltaTable(str(there / "lake/default/shop_orders")).to_pyarrow_table().to_pydict()
    assert len(rows["_offset"]) == MESSAGES + NEW
    assert len(set(zip(rows["_partition"], rows["_offset"], strict=True))) == MESSAGES + NEW


def test_a_streaming_query_goes_on_from_its_checkpoint(there: Path, spark: SparkSession) -> None:
    with RunningBroker(data=there / "data") as broker:
        add_orders(broker)
    options = {"path": str(there / "data"), "subscribe": ORDERS, "startingOffsets": "earliest"}
    read: list[Any] = []
    query = (
        spark.readStream.format("penstock")
        .options(**options)
        .load()
        .writeStream.foreachBatch(lambda frame, _: read.extend(frame.collect()))
        .option("checkpointLocation", str(there / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert sorted(json.loads(row.value)["order"] for row in read) == list(range(MESSAGES, MESSAGES + NEW))
