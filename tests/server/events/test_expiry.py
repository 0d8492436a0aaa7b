from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.cli.kit import child_environment
from tests.server.events.sse import Reader
from tests.server.security.token_kit import Files, hs256

from penstock.testing import RunningBroker


@pytest.mark.slow
def test_an_idle_stream_of_either_kind_ends_when_the_token_of_its_reader_does(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    files = Files.make(tmp_path)
    environment = child_environment(tmp_path_factory)
    with RunningBroker("--http-port", "0", *files.flags, environment=environment) as running:
        token = hs256(penstock=["consumer"], exp=int(time.time()) + 8)
        port = int(running.ready["http_port"])
        with ExitStack() as opened:
            readers = [
                opened.enter_context(
                    Reader(port, "/api/events?topic=orders", Authorization=f"Bearer {token}", Accept=accept)
                )
                for accept in ("text/event-stream", "application/x-ndjson")
            ]
            assert [reader.status for reader in readers] == [200, 200]
            for reader in readers:
                assert b"UNAUTHORIZED" in b"".join(reader.bodies())
