"""An archive through a broker's HTTP, shown at the broker as a subscription; and the program of the page."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.cli.kit import child_environment
from tests.spark.lake.kit import independent
from tests.spark.log_kit import make_data

import penstock
from penstock.core.errors import PenstockError
from penstock.spark.files.location import Location
from penstock.spark.lake import open_table
from penstock.spark.lake.archive.run import archive
from penstock.spark.lake.frames import read_frame
from penstock.testing import RunningBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[4] / "docs" / "lake.md"
DEADLINE_SECONDS = 60.0


@pytest.fixture
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with RunningBroker("--http-port", "0", environment=child_environment(tmp_path_factory)) as running:
        with penstock.connect(running.url) as client:
            client.ask("system.schema.register", {"subject": "orders-value", "type": "BYTES"})
            client.ask("system.topic.create", {"topic": "orders", "schema_default": "latest"})
            with client.producer("orders") as producer:
                for number in range(500):
                    producer.send(b"order %d" % number)
        yield running


def lag(broker: RunningBroker, name: str) -> int | None:
    with penstock.connect(broker.url) as client:
        listed: list[dict[str, Any]] = client.ask("system.subscription.list", {"topic": "orders"})["subscriptions"]
    return next((each["lag"] for each in listed if each["subscription"] == name), None)


def test_a_broker_is_archived_through_its_http_and_shows_how_far(
    spark: SparkSession, broker: RunningBroker, tmp_path: Path
) -> None:
    report = archive(
        spark,
        Location.parse(url=broker.http_url),
        ["orders"],
        warehouse=str(tmp_path),
        once=True,
        subscription="archive",
        broker=broker.url,
    )
    assert report.rows == 500
    values = independent(open_table("delta", str(tmp_path), "orders"), ["_value"]).column(0).to_pylist()
    assert sorted(values) == sorted(b"order %d" % number for number in range(500))
    until = time.monotonic() + DEADLINE_SECONDS
    while lag(broker, "archive") != 0:
        assert time.monotonic() < until
        time.sleep(0.1)
    assert "archive archive of /default/orders" in kept_in(broker)


def kept_in(broker: RunningBroker) -> str:
    """Return where there are messages of a schema, as the broker says before the schema is deleted for good."""
    with penstock.connect(broker.url) as client:
        client.ask("system.schema.delete", {"subject": "orders-value"})
        with pytest.raises(PenstockError) as refused:
            client.ask("system.schema.delete", {"subject": "orders-value", "permanent": True})
    return refused.value.message


def test_the_program_of_the_page_runs(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_data(tmp_path / "penstock-data", messages=50)
    monkeypatch.chdir(tmp_path)
    section = PAGE.read_text().split("## From Python\n")[1]
    (program,) = re.findall(r"^```python\n(.*?)^```", section, flags=re.MULTILINE | re.DOTALL)
    for _ in range(2):
        exec(compile(program, "lake.md", "exec"), {})
    daily = read_frame(spark, open_table("delta", "lake", "daily"))
    assert [row["count"] for row in daily.collect()] == [50]
