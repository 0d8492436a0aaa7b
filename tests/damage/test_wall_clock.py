"""A broker on a machine whose clock is set years ahead, and back: message times stay true, and nobody is cut off."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from tests.cli.kit import child_environment

import penstock
from penstock.core.names import TopicName
from penstock.storage.inspect.data_reader import DataReader
from penstock.testing import RunningBroker

YEAR = 365 * 86_400
MINUTE_MS = 60_000

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="a clock is set as only Linux lets it be"),
    pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler"),
]


@pytest.fixture
def wall(tmp_path: Path) -> Path:
    """Holds how many seconds the clock is ahead."""
    file = tmp_path / "ahead"
    file.write_text("0")
    return file


@pytest.fixture
def broker(wall: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> RunningBroker:
    library = tmp_path / "wall.so"
    source = Path(__file__).with_name("wall.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", library, source, "-ldl"], check=True, timeout=120)
    environment = child_environment(tmp_path_factory) | {"WALL_FILE": str(wall), "LD_PRELOAD": str(library)}
    return RunningBroker("--http-port", "0", data=tmp_path / "data", environment=environment)


def post(broker: RunningBroker) -> Any:
    with urlopen(Request(f"{broker.http_url}/api/events?topic=t.x&type=t", b"x"), timeout=60) as answer:
        return json.loads(answer.read())


def test_a_clock_that_was_ahead_makes_no_message_time_untrue(broker: RunningBroker, wall: Path) -> None:
    with broker:
        for years in (0, 10, 0, 300, 0):
            wall.write_text(str(years * YEAR))
            until = time.monotonic() + 2
            while time.monotonic() < until:  # whatever is done once a second is done
                post(broker)
                with penstock.connect(broker.url) as client:
                    client.publish("t.x", b"x")
        broker.stop()
        wall.write_text(str(10 * YEAR))
        broker.start()
        post(broker)
        wall.write_text("0")
        post(broker)
        assert broker.log.count("the machine's clock jumped") == 3
        assert "Traceback" not in broker.log
    reader = DataReader(broker.data).topic(TopicName.parse("t.x")).partition(0)
    times = [record.publish_time_ms for record in reader.read(0)]
    assert len(times) > 10
    assert abs(times[-1] - time.time_ns() // 10**6) < 10 * MINUTE_MS
    assert times[-1] - times[0] < 10 * MINUTE_MS
