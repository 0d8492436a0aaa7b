"""Orders joined to another topic, through a broker, with schemas: every order once, with its customer of now."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from examples.enrichment.generate import customers, orders, send
from tests.cli.kit import child_environment
from tests.examples.kit import copied

import penstock
from penstock.spark.pipeline.file.parsing import load
from penstock.spark.pipeline.run.checks import problems
from penstock.spark.pipeline.run.run import run
from penstock.testing import RunningBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def consumed(url: str, count: int) -> dict[int, dict[str, Any]]:
    found = {}
    with penstock.connect(url) as client, client.consumer("orders.enriched", "test", start="earliest") as consumer:
        for _ in range(count):
            message = consumer.receive(timeout=20)
            assert message is not None
            assert message.type == "order.enriched"
            value = json.loads(message.payload)
            assert message.key == str(value["order"]).encode()
            assert value["order"] not in found
            found[value["order"]] = value
            consumer.ack(message)
    return found


def test_every_order_is_published_once_with_its_customer(
    spark: SparkSession, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    example = copied("enrichment", tmp_path)
    data = example / "data"
    with RunningBroker(data=data, environment=child_environment(tmp_path_factory)) as broker:
        send(broker.url, 0, 300)
        pipeline = load(example / "enrichment.toml", {"PENSTOCK_URL": broker.url, "PENSTOCK_DATA": str(data)})
        assert problems(spark, pipeline) == []
        for first, count in ((0, 300), (300, 50)):
            if first:
                send(broker.url, first, count)
            (result,) = run(spark, pipeline, once=True, say=lambda _: None, stop=threading.Event())
            assert result.failure is None
            assert (result.rows_in, result.rows_out) == (count, count)
        found = consumed(broker.url, 350)
    now = {customer.customer: customer for customer in customers()}
    for order in orders(0, 350):
        customer = now.get(order.customer)
        wanted = {"order": order.order, "customer": order.customer, "cents": order.cents}
        named = {"name": customer.name, "region": customer.region} if customer else {"region": "unknown"}
        assert found[order.order] == wanted | named
