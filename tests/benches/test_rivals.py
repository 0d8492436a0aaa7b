"""Rivals take messages and have them afterwards; speed is not tested here."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from benches.rivals import JetStream, JetStreamConnection, Redis, RedisConnection, Rival, command

from benches import rivals
from penstock.core.errors import InvalidRequest, ServiceUnavailable


@pytest.mark.parametrize("kind", rivals.RIVALS)
def test_what_was_confirmed_is_there_and_nothing_else(kind: type[Rival], tmp_path: Path) -> None:
    with kind(tmp_path) as rival:
        assert rival.publish(b"x" * 100, 1000) > 0
        assert rival.stored() == 1000
        rival.publish(b"", 7, 3)
        assert rival.stored() == 1007
        rival.clear()
        assert rival.stored() == 0


@pytest.mark.parametrize("kind", rivals.RIVALS)
@pytest.mark.parametrize("connections", [1, 5])
def test_a_count_that_no_window_divides_is_published_in_full(
    kind: type[Rival], connections: int, tmp_path: Path
) -> None:
    with kind(tmp_path, connections=connections) as rival:
        rival.publish(b"x", 1001, 64, batch=7)
        assert rival.stored() == 1001


@pytest.mark.parametrize("kind", rivals.RIVALS)
def test_a_rival_is_measured_and_leaves_nothing_behind(kind: type[Rival], tmp_path: Path) -> None:
    with kind(tmp_path) as rival:
        assert rivals.measure(rival, 100, 0.05) > 0
        assert list(tmp_path.iterdir())
        port = rival.port
    assert not list(tmp_path.iterdir())
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port), timeout=1)


def test_redis_syncs_before_it_confirms(tmp_path: Path) -> None:
    with Redis(tmp_path) as redis, RedisConnection(redis.port) as connection:
        assert connection.ask(b"CONFIG", b"GET", b"appendfsync").endswith(b"\r\nalways")


def test_a_message_that_redis_refuses_is_an_error(tmp_path: Path) -> None:
    with Redis(tmp_path) as redis, RedisConnection(redis.port) as connection:
        connection.ask(b"SET", b"BENCH", b"not a stream")
        with pytest.raises(InvalidRequest, match="WRONGTYPE"):
            redis.publish(b"x", 1)


def test_a_message_that_jetstream_refuses_is_an_error(tmp_path: Path) -> None:
    with JetStream(tmp_path) as jetstream, JetStreamConnection(jetstream.port) as connection:
        connection.ask("STREAM.UPDATE.BENCH", {"name": "BENCH", "subjects": ["bench"], "max_msgs": 3, "discard": "new"})
        with pytest.raises(InvalidRequest, match="maximum messages exceeded"):
            jetstream.publish(b"x", 4)


def test_a_rival_that_is_not_installed_says_so(tmp_path: Path) -> None:
    class Absent(Redis):
        binary = "no-such-server-anywhere"

    assert not Absent.available()
    with pytest.raises(ServiceUnavailable, match="not installed"), Absent(tmp_path):
        pass


def test_a_redis_command_counts_its_words_and_their_bytes() -> None:
    assert command(b"XLEN", b"caf\xc3\xa9") == b"*2\r\n$4\r\nXLEN\r\n$5\r\ncaf\xc3\xa9\r\n"
