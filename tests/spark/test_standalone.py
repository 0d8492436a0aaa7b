"""A cluster whose machines share nothing of loopback: batch, stream, sink, archive, audit and pipeline over its master,
with a worker that is killed on the way; the lake equals the log. Executors need nothing but options."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import obstore
import pytest
from deltalake import DeltaTable
from moto.server import ThreadedMotoServer
from tests.cli.kit import child_environment
from tests.server.tls_kit import Authority
from tests.spark.cluster_kit import Cluster, cluster
from tests.spark.sink.kit import values

from penstock.core.limits import Limits
from penstock.core.names import TopicName
from penstock.core.positions import Earliest
from penstock.record.block import Draft
from penstock.record.message import Message
from penstock.server.security.offline_keys import ask
from penstock.spark.files.objects import open_store
from penstock.spark.lake import open_table
from penstock.storage.inspect.data_reader import DataReader
from penstock.storage.store import Store
from penstock.testing import RunningBroker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

ORDERS = TopicName.parse("shop.orders")
MESSAGES, PARTITIONS = 20_000, 3
LAKE = "s3://log/lake"
SECRET = "a-secret-that-nobody-may-read"
SMALL = Limits(
    payload_bytes_max=4096, block_bytes_max=64 << 10, segment_bytes_first=128 << 10, segment_bytes_max=512 << 10
)


def fill(root: Path) -> Path:
    with Store.open(root, create=True, limits=SMALL) as store:
        store.create_topic(ORDERS, partitions=PARTITIONS)
        store.create_topic(TopicName.parse("copied"))
        for number in range(0, MESSAGES, 200):
            some = [Message(payload=b"%08d" % each * 10, type=f"t{each % 4}") for each in range(number, number + 200)]
            store.append(ORDERS, Draft.of(some), partition=number // 200 % PARTITIONS)
    return root


def plain(root: Path) -> list[list[Any]]:
    """Return what the driver's summary should be, computed by one process, record by record."""
    count: Counter[str] = Counter()
    size: Counter[str] = Counter()
    offsets: Counter[str] = Counter()
    for log in map(DataReader(root).topic(ORDERS).partition, range(PARTITIONS)):
        for record, _ in log.follow(Earliest()):
            assert record is not None
            kind = record.message.type
            count[kind] += 1
            size[kind] += len(record.message.payload)
            offsets[kind] += int(record.offset)
    return [[kind, count[kind], size[kind], offsets[kind]] for kind in sorted(count)]


def in_log(root: Path) -> list[bytes]:
    """Return the ids of all messages, read by one process."""
    logs = map(DataReader(root).topic(ORDERS).partition, range(PARTITIONS))
    return [record.id for log in logs for record, _ in log.follow(Earliest()) if record is not None]


def in_lake(options: dict[str, str]) -> list[bytes]:
    """Return the ids of all rows, read by Delta's own library."""
    table = DeltaTable(f"{LAKE}/default/shop_orders", storage_options=options)
    found: list[bytes] = table.to_pyarrow_dataset().to_table(columns=["_id"]).column(0).to_pylist()
    return found


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Cluster]:
    folder = tmp_path / "cluster"
    folder.mkdir()
    with cluster(folder) as running:
        yield running


@pytest.fixture
def s3(machines: Cluster) -> Iterator[dict[str, str]]:
    """Yield the options of an S3 server that the machines reach over plain HTTP. The bucket is `log`."""
    server = ThreadedMotoServer(ip_address=machines.network.address(0), port=0, verbose=False)
    logging.getLogger("werkzeug").setLevel(logging.WARNING)  # it tells of every request
    server.start()
    host, port = server.get_host_and_port()
    options = {
        "aws_endpoint": f"http://{host}:{port}",
        "aws_allow_http": "true",
        "aws_region": "us-east-1",
        "aws_access_key_id": "somebody",
        "aws_secret_access_key": SECRET,
    }
    with urllib.request.urlopen(urllib.request.Request(f"{options['aws_endpoint']}/log", method="PUT")):
        pass
    yield options
    server.stop()


def upload(root: Path, options: dict[str, str]) -> str:
    store = open_store("s3://log/data", options)
    for file in (root / "store.json", *(root / "topics").rglob("*")):
        if file.is_file():
            obstore.put(store, str(file.relative_to(root)), file.read_bytes())
    return "s3://log/data"


def lines(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("{"):
            yield json.loads(line)


def pairs(option: str, options: dict[str, str]) -> list[str]:
    return [word for name, value in options.items() for word in (option, f"{name}={value}")]


def test_a_cluster_of_machines_reads_writes_and_archives_with_what_options_say(
    machines: Cluster, s3: dict[str, str], tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    data, here = fill(tmp_path / "data"), machines.network.address(0)
    in_store = upload(data, s3)
    expected = plain(data)
    token = tmp_path / "root.key"
    token.write_text(ask(data, "system.key.create", {"name": "root", "bindings": ["admin"]})["key"])
    authority = Authority.make(tmp_path, "authority")
    pair = authority.issue("broker", here)
    flags = [
        "--host",
        here,
        "--tls-cert",
        str(pair.cert),
        "--tls-key",
        str(pair.key),
        "--auth",
        "on",
        "--http-port",
        "0",
    ]
    environment = child_environment(tmp_path_factory)
    with RunningBroker(*flags, data=data, environment=environment) as broker:
        files = {"tls_ca": str(authority.pair.cert), "token_file": str(token)}
        url = f"https://{here}:{broker.ready['http_port']}"
        subscribed = {"subscribe": str(ORDERS), "minPartitions": "6"}
        config = {
            "spark.driver.host": here,
            "spark.driver.bindAddress": here,
            "spark.executor.memory": "640m",
            "spark.sql.shuffle.partitions": "4",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": (tmp_path / "events").as_uri(),
        }
        (tmp_path / "events").mkdir()
        pipeline = tmp_path / "pipeline.toml"
        pipeline.write_text(
            f"""
            [pipeline]
            mode = "batch"
            url = "{url}"
            storage = {{ tls_ca = "{files["tls_ca"]}", token_file = "{token}" }}
            warehouse = "{tmp_path / "tables"}"

            [sources.orders]
            topic = "{ORDERS}"

            [steps.types]
            sql = "select type, count(*) as messages from orders group by type"

            [sinks.types]
            from = "types"
            table = "types"
            """
        )
        conf = pairs("--conf", config)
        on = ["--master", machines.url, *conf]
        log = ["--data", in_store, *pairs("--data-option", s3)]
        stored = pairs("--storage-option", s3)
        archive = machines.documented_archive(
            {
                "s3://bucket/data": in_store,
                "s3://bucket/lake": LAKE,
                "eu-west-1": s3["aws_region"],
                "/var/lib/archive": str(tmp_path / "checkpoints/archive"),
            }
        )
        plan = {
            "master": machines.url,
            "config": config,
            "folder": str(tmp_path),
            "sources": {
                "path": {"path": str(data), **subscribed},
                "url": {"url": url, **subscribed, **{f"storage.{name}": value for name, value in files.items()}},
                "s3": {"path": in_store, **subscribed, **{f"storage.{name}": value for name, value in s3.items()}},
            },
            "sink": {
                "broker": f"tls://{here}:{broker.tcp_port}",
                "topic": "copied",
                "tlsCa": files["tls_ca"],
                "tokenFile": str(token),
            },
            "commands": [
                [*archive, str(ORDERS), *pairs("--data-option", s3), *stored, "--batch", "256KiB", "--json", *conf],
                ["audit", str(ORDERS), *log, "--against", LAKE, *stored, "--json", *on],
                ["pipeline", "run", str(pipeline), "--once", *on],
            ],
        }
        found, err = drive(plan, machines, tmp_path, here)
        assert [each["code"] for each in found if "code" in each] == [0, 0, 0], (found, err)
        copied = values(data, "copied")
    batches = [each for each in found if "batch" in each and "seconds" in each]
    assert len(batches) > 3
    assert len(machines.workers) == 1  # the other one was killed after the first batch
    assert {each["batch"]: each["rows"] for each in found if isinstance(each.get("batch"), str)} == dict.fromkeys(
        ("path", "url", "s3"), expected
    )
    assert [each["stream"] for each in found if "stream" in each] == [expected]
    assert sorted(map(int, copied)) == list(range(1000))
    (archived,) = [each for each in found if "tables" in each]
    assert (archived["engine"], archived["rows"]) == ("spark", MESSAGES)
    assert sorted(in_lake(s3)) == sorted(in_log(data))
    (audited,) = [each for each in found if "findings" in each]
    assert audited["findings"]["by_kind"] == {}
    assert audited["summary"]["messages"] == MESSAGES
    table = open_table("delta", str(tmp_path / "tables"), "types")
    types = {row["type"]: row["messages"] for batch in table.read(["type", "messages"]) for row in batch.to_pylist()}
    assert types == {kind: count for kind, count, *_ in expected}
    assert leaked(tmp_path, err, SECRET) == []
    assert leaked(tmp_path, err, token.read_text()) == [str(token)]


def drive(plan: dict[str, Any], machines: Cluster, folder: Path, here: str) -> tuple[list[dict[str, Any]], str]:
    """Run the driver, and cut the power of one worker when the archive has done its first batch."""
    given = folder / "plan.json"
    given.write_text(json.dumps(plan))
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "PENSTOCK_TOKEN"))}
    command = [sys.executable, "-m", "tests.spark.cluster_driver", str(given)]
    said = folder / "driver.log"
    found: list[dict[str, Any]] = []
    with (
        said.open("wb") as err,
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=err,
            text=True,
            env=environment | {"SPARK_LOCAL_IP": here},
            cwd=Path(__file__).parents[2],
            start_new_session=True,
        ) as driver,
    ):
        try:
            for each in lines(driver):
                found.append(each)
                if "seconds" in each and "batch" in each and len(machines.workers) == 2:
                    machines.daemons.pop().kill()
        finally:
            driver.kill()
    given.unlink()
    return found, said.read_text(errors="replace")


def leaked(folder: Path, err: str, secret: str) -> list[str]:
    """Return files that contain a secret: checkpoints, event logs, logs of the workers and their executors."""
    told = [str(file) for file in folder.rglob("*") if file.is_file() and secret.encode() in file.read_bytes()]
    return told + (["the driver"] if secret in err else [])
