"""A full disk: the broker tells its clients less than its log."""

from __future__ import annotations

import pytest
from tests.cli.kit import child_environment
from tests.server.http_kit import Client
from tests.server.kit import ID, TcpClient

from penstock.testing import RunningBroker


def test_clients_are_not_told_where_the_data_lies_and_the_log_is(tmp_path_factory: pytest.TempPathFactory) -> None:
    environment = child_environment(tmp_path_factory) | {"PENSTOCK_STORAGE_DISK_RESERVE_BYTES": str(10**14)}
    with (
        RunningBroker("--http-port", "0", environment=environment) as running,
        Client(int(running.ready["http_port"])) as http,
        TcpClient(running.ready["tcp_port"]) as tcp,
    ):
        refused = http.ask("POST", "/api/events?topic=orders&type=t", b"x")
        assert refused.json["error"]["code"] == "DISK_FULL"
        said = tcp.ask(f"publish:orders:1.0.0:{ID}", b"x")
        assert said.error == "DISK_FULL"
        root = str(running.data)
        for told in (refused.body.decode(), said.payload.decode()):
            assert root not in told
            assert "topics/default/orders" in told, "where in the data directory is known"
        assert root in running.log
        assert f"{root}/topics/default/orders" in running.log
