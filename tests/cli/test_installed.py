"""Each extra alone in a clean environment, from the wheel: its features work, and missing packages are named."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest
from tests.cli.kit import Outcome, said
from tests.examples.kit import copied
from tests.server.kit import eventually

from penstock.doctor import EXTRAS
from penstock.testing import RunningBroker

ROOT: Final = Path(__file__).parents[2]
SECONDS: Final = 300
UV: Final = Path(sys.executable).with_name("uv")

pytestmark = [
    pytest.mark.slow,
    # Kernels and modules are compiled once for all of them, since each environment has the place of the one before.
    pytest.mark.xdist_group("installed"),
    pytest.mark.skipif(not UV.exists(), reason="no uv beside this Python"),
]


class Installed:
    """An environment with Penstock and some of its extras, without this checkout."""

    def __init__(self, place: Path, url: str) -> None:
        self.bin = place / "env" / "bin"
        self._home = place
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PENSTOCK", "PYTHON"))}
        self.environment = kept | {
            "PENSTOCK_URL": url,
            "PENSTOCK_KERNEL_CACHE": str(place / "kernels"),
            "PYTHONPYCACHEPREFIX": str(place / "bytecode"),
            "PATH": f"{self.bin}:{kept['PATH']}",
        }

    def start(self, *command: str, cwd: Path | None = None) -> subprocess.Popen[bytes]:
        pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        program = [str(self.bin / command[0]), *command[1:]]
        return subprocess.Popen(program, env=self.environment, cwd=cwd or self._home, **pipes)

    def __call__(self, *command: str, given: str = "", cwd: Path | None = None) -> Outcome:
        with self.start(*command, cwd=cwd) as process:
            out, err = process.communicate(given.encode(), timeout=SECONDS)
        return Outcome(process.returncode, out, err.decode())

    def penstock(self, *arguments: str, given: str = "", cwd: Path | None = None) -> str:
        done = self("penstock", *arguments, given=given, cwd=cwd)
        assert done.code == 0, done.err
        return done.out

    def python(self, program: str, *, cwd: Path | None = None) -> str:
        done = self("python", "-c", program, cwd=cwd)
        assert done.code == 0, done.err
        return done.out


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("wheel")
    _uv("build", "--quiet", "--wheel", "--out-dir", str(place), str(ROOT))
    (found,) = place.glob("*.whl")
    return found


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("installed")


def install(wheel: Path, place: Path, keeper: RunningBroker, *extras: str) -> Installed:
    """Install the locked versions, which are in the cache since this checkout was set up."""
    python = place / "env" / "bin" / "python"
    _uv("venv", "--quiet", "--clear", "--python", sys.executable, str(place / "env"))
    wanted = f"penstock[{','.join(extras)}] @ {wheel.as_uri()}" if extras else f"penstock @ {wheel.as_uri()}"
    lock = str(ROOT / "requirements.lock")
    packages = ("pip", "install", "--quiet", "--python", str(python), "--constraint", lock, wanted)
    try:
        _uv(*packages, "--offline")
    except subprocess.CalledProcessError:
        _uv(*packages)
    return Installed(place, keeper.url)


def _uv(*arguments: str) -> None:
    environment = {"UV_LINK_MODE": "hardlink"} | dict(os.environ)
    subprocess.run([UV, *arguments], check=True, timeout=SECONDS, env=environment, capture_output=True)


def examined(env: Installed) -> dict[str, tuple[str, str]]:
    """Return the findings of the doctor, and check that it and `--help` succeed."""
    assert "Usage: penstock" in env.penstock("--help")
    rows = [json.loads(line) for line in env.penstock("doctor", "--json").splitlines()]
    assert not [row for row in rows if row["state"] == "missing"]
    return {row["what"]: (row["state"], row["text"]) for row in rows}


def extras_there(found: dict[str, tuple[str, str]]) -> set[str]:
    return {extra.name for extra in EXTRAS if found[f"[{extra.name}]"][0] == "ok"}


def test_alone_it_is_a_client_of_live_topics(wheel: Path, place: Path, keeper: RunningBroker) -> None:
    env = install(wheel, place, keeper)
    found = examined(env)
    assert extras_there(found) == set()
    state, text = found["[server]"]
    assert (state, text.endswith("pip install 'penstock[server]'")) == ("note", True)
    with env.start("penstock", "subscribe", "installed.news", "--limit", "1") as listener:
        said(listener.stderr, "subscribed to")
        env.penstock("publish", "installed.news", "hello")
        assert listener.communicate(timeout=SECONDS)[0] == b"installed.news hello\n"
    with env.start("penstock", "respond", "installed.price", "--exec", "cat") as service:
        said(service.stderr, "serving")
        assert env.penstock("request", "installed.price", "12.50") == "12.50\n"
        service.send_signal(signal.SIGINT)
        service.communicate(timeout=SECONDS)
    for command, extra in (("produce", "stream"), ("consume", "stream"), ("archive", "spark")):
        refused = env("penstock", command, "installed.orders")
        assert (refused.code, refused.err.splitlines()[-1].endswith(f"'penstock[{extra}]'")) == (2, True), refused.err
    assert env("penstock", "serve").err.endswith("pip install 'penstock[server]'\n")


def test_with_stream_it_produces_and_consumes(wheel: Path, place: Path, keeper: RunningBroker) -> None:
    env = install(wheel, place, keeper, "stream")
    assert extras_there(examined(env)) == {"stream"}
    env.penstock("produce", "installed.streamed", given='{"order": 1}\n{"order": 2}\n')
    assert env.penstock("consume", "installed.streamed", "--payload") == '{"order": 1}\n{"order": 2}\n'
    durable = ("--subscription", "billing", "--from", "earliest", "--format", "%o %s")
    assert env.penstock("consume", "installed.streamed", *durable) == '0 {"order": 1}\n1 {"order": 2}\n'


TYPED: Final = """
from dataclasses import dataclass
import penstock

@dataclass
class Order:
    id: int

with penstock.connect() as client:
    with client.producer("installed.typed", schema=Order) as producer:
        producer.send(Order(7))
    with client.consumer("installed.typed", "billing", schema=Order, start="earliest") as consumer:
        message = consumer.receive(timeout=60)
        consumer.ack(message)
        print(message.value)
"""


CODED: Final = """
from penstock.client.serde.codecs import codec_of
from penstock.core.schemas import Definition, SchemaKind

for kind, text in (
    (SchemaKind.AVRO, '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'),
    (SchemaKind.JSON, '{"properties": {"id": {"type": "integer"}}}'),
    (SchemaKind.PROTOBUF, 'syntax = "proto3"; message Order { int32 id = 1; }'),
):
    codec = codec_of(Definition(kind, text))
    payload = codec.encode({"id": 7})
    print(payload, codec.decode(payload))
"""


def test_with_schema_values_are_typed(wheel: Path, place: Path, keeper: RunningBroker) -> None:
    env = install(wheel, place, keeper, "schema")
    assert extras_there(examined(env)) == {"schema"}
    assert env.python(CODED).splitlines() == [
        "b'\\x0e' {'id': 7}",
        "b'{\"id\":7}' {'id': 7}",
        "b'\\x08\\x07' {'id': 7}",
    ]
    env = install(wheel, place, keeper, "schema", "stream")
    assert extras_there(examined(env)) == {"schema", "stream"}
    assert env.python(TYPED) == "Order(id=7)\n"


def test_with_server_it_serves(wheel: Path, place: Path, keeper: RunningBroker) -> None:
    env = install(wheel, place, keeper, "server")
    assert extras_there(examined(env)) == {"schema", "server", "stream"}
    ready = place / "ready.json"
    ports = ("--tcp-port", "0", "--ws-port", "0", "--http-port", "0")
    with env.start("penstock", "serve", *ports, "--data", "served", "--ready-file", str(ready)) as broker:
        eventually(ready.exists, "the broker", SECONDS)
        env.environment["PENSTOCK_URL"] = f"tcp://127.0.0.1:{json.loads(ready.read_text())['tcp_port']}"
        env.penstock("produce", "orders", given="one\n")
        assert env.penstock("consume", "orders", "--payload") == "one\n"
        broker.send_signal(signal.SIGTERM)
        broker.communicate(timeout=SECONDS)
    assert broker.returncode == 0
    assert env.penstock("log", "read", "orders", "--payload", "--data", "served") == "one\n"


READ: Final = """
import penstock.spark

spark = penstock.spark.session(quick=True)
print([row.text for row in spark.sql("select 1 as text").collect()])
rows = spark.read.format("penstock").options(path="penstock-data", subscribe="sales").load()
print([row.text for row in rows.selectExpr("cast(value as string) as text").collect()])
spark.stop()
"""


def test_with_spark_a_topic_is_a_frame(wheel: Path, place: Path, keeper: RunningBroker, tmp_path: Path) -> None:
    env = install(wheel, place, keeper, "spark")
    found = examined(env)
    assert (extras_there(found), found["java"][0]) == ({"schema", "server", "spark", "stream"}, "ok")
    env.penstock("log", "create", "sales", cwd=tmp_path)
    env.penstock("log", "append", "sales", given="tea\n", cwd=tmp_path)
    assert env.python(READ, cwd=tmp_path) == "[1]\n['tea']\n"


def test_with_pipelines_a_declarative_pipeline_reads_a_topic(
    wheel: Path, place: Path, keeper: RunningBroker, tmp_path: Path
) -> None:
    env = install(wheel, place, keeper, "pipelines")
    assert extras_there(examined(env)) == {extra.name for extra in EXTRAS}
    example = copied("declarative", tmp_path)
    spec = (example / "spark-pipeline.yml.in").read_text()
    (example / "spark-pipeline.yml").write_text(spec.replace("HERE", str(example)))
    python = {"PYSPARK_PYTHON": str(env.bin / "python"), "SPARK_LOCAL_IP": "127.0.0.1"}
    env.environment |= python | {"SPARK_CONF_DIR": str(example / "conf")}
    assert env("python", "generate.py", "--orders", "20", cwd=example).code == 0
    ran = env("spark-pipelines", "run", cwd=example)
    assert ran.code == 0, ran.err
    assert env.python(COUNTED, cwd=example) == "20\n"


COUNTED: Final = """
from pyarrow import dataset

print(dataset.dataset("warehouse/orders", format="parquet").count_rows())
"""


def test_the_extras_of_the_doctor_are_those_of_the_package() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {extra.name for extra in EXTRAS} == set(declared) - {"dev"}
