"""Settings: file, environment, flags, in rising order; what is refused, in which words; and the ready file."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.server.kit import DEADLINE_SECONDS, Start, TcpClient, WsClient, eventually

import penstock
from penstock.core.errors import InvalidRequest
from penstock.server.settings import SETTINGS, Settings, load

FREE: dict[str, Any] = {"tls_cert": Path("c"), "tls_key": Path("k"), "tls_ca": Path("a")}


def given(tmp_path: Path, toml: str = "", environment: Mapping[str, str] | None = None, **flags: Any) -> Settings:
    file = tmp_path / "penstock.toml"
    file.write_text(toml)
    return load(file, environment or {}, flags)


def refused(tmp_path: Path, toml: str = "", environment: Mapping[str, str] | None = None, **flags: Any) -> str:
    with pytest.raises(InvalidRequest) as caught:
        given(tmp_path, toml, environment, **flags)
    return caught.value.message


# who wins


def test_flags_win_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    toml = '[server]\ntcp_port = 1\nws_port = 2\ndata = "from-file"\n[log]\nlevel = "warn"\n'
    environment = {"PENSTOCK_WS_PORT": "3", "PENSTOCK_DATA": "from-environment", "PENSTOCK_LIMITS_DRAIN_MS": "5s"}
    found = given(tmp_path, toml, environment, data=Path("from-flag"))
    assert (found.tcp_port, found.ws_port, found.log_level, str(found.data)) == (1, 3, "warn", "from-flag")
    assert found.limits.drain_ms == 5000


def test_a_running_broker_follows_the_same_order(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text(
        '[server]\nws_port = "off"\ntcp_port = 0\n[log]\nlevel = "error"\n[limits]\n'
        'payload_bytes_max = "2KiB"\nsubscriptions_max = 1\n'
    )
    environment = {"PENSTOCK_CONFIG": str(file), "PENSTOCK_LOG_LEVEL": "warn"}
    broker = start("--log-level", "info", environment=environment, limits={"subscriptions_max": 2})
    assert "listening" in broker.log()
    with TcpClient(broker.tcp_port) as client:
        client.subscribe("a.one")
        client.subscribe("a.two")
        assert client.ask("subscribe:a.three:1.0.0:0a1b2c3d-0000-4000-8000-00000000000a").error == "QUOTA_EXCEEDED"
        assert client.ask("publish:a.one:1.0.0", bytes(2049)).error == "PAYLOAD_TOO_LARGE"


def test_every_setting_can_be_given_in_the_file_and_in_the_environment(tmp_path: Path) -> None:
    values = {"port": "7", "allow": "true", "level": "debug", "format": "json", "limits": "123456"}
    values |= {"auto_create": "live", "durability": "os", "http_logs": "false"}
    for setting in SETTINGS:
        kind = next((each for each in values if each in setting.name), "text")
        value = values.get(kind, "127.0.0.1")
        environment = {setting.variable: value}
        if setting.section in ("tls", "auth", "limits", "storage"):
            continue  # these depend on one another; the tests below give them together
        by_variable = given(tmp_path, environment=environment)
        by_file = given(tmp_path, f'[{setting.section}]\n{setting.key} = "{value}"\n')
        assert by_variable == by_file, setting.name


# what is not known


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ("[server]\ntcp_prot = 1\n", "did you mean tcp_port?"),
        ("[sever]\ntcp_port = 1\n", "did you mean server?"),
        ("[limits]\ndrain = 1\n", "drain_ms"),
        ("[log]\nleevl = 'info'\n", "did you mean level?"),
        ("tcp_port = 1\n", "tcp_port"),
        ("[server.deep]\nx = 1\n", "server.deep"),
        ("[[server]]\nx = 1\n", "[server]"),
        ("[tls]\ncertificate = 'x'\n", "known are"),
        ("not toml", "is not TOML"),
        ("[log]\nlevel = 'loud'\n", "debug, info, warn, error"),
        ("[server]\ntcp_port = 65536\n", "0 to 65535"),
        ("[server]\ntcp_port = -1\n", "0 to 65535"),
        ("[server]\ntcp_port = true\n", "0 to 65535"),
        ("[server]\ntcp_port = 1.5\n", "0 to 65535"),
        ("[server]\nhost = 5\n", "expected a text"),
        ("[server]\nws_origins = [1]\n", "list of texts"),
        ("[server]\nallow_plaintext = 'perhaps'\n", "true or false"),
        ("[limits]\npayload_bytes_max = 0\n", "positive"),
        ("[limits]\npayload_bytes_max = -5\n", "positive"),
        ("[limits]\npayload_bytes_max = '1GiB'\n", "at most"),
        ("[limits]\npayload_bytes_max = '9MiB'\n", "output_bytes_max"),
        ("[limits]\nheartbeat_retry_ms = '2h'\n", "heartbeat_deregister_ms"),
        ("[limits]\nrequest_timeout_ms_max = '2h'\n", "at most"),
        ("[limits]\ndrain_ms = 'soon'\n", "drain_ms"),
        ("[limits]\nconnections_max = '5KiB'\n", "whole number"),
    ],
)
def test_what_the_file_must_not_say_is_refused_with_advice(tmp_path: Path, toml: str, words: str) -> None:
    said = refused(tmp_path, toml)
    assert words in said
    assert "penstock.toml" in said or "limits" not in said or "_max" in said or "_ms" in said


def test_a_broker_starts_where_variables_for_other_commands_are_set() -> None:
    """Every variable that any module names is the broker's own, or known to be another's."""
    sources = (path.read_text() for path in Path(penstock.__file__).parent.rglob("*.py"))
    named = {each for text in sources for each in re.findall(r"PENSTOCK_[A-Z_]*[A-Z]\b", text)}
    assert "PENSTOCK_SPARK_LOG" in named
    own = {setting.variable for setting in SETTINGS}
    assert load(None, dict.fromkeys(named - own, "x")) == Settings()


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("PENSTOCK_TCPPORT", "1", "did you mean PENSTOCK_TCP_PORT?"),
        ("PENSTOCK_LIMITS_DRAIN", "1", "did you mean PENSTOCK_LIMITS_DRAIN_MS?"),
        ("PENSTOCK_TCP_PORT", "", "PENSTOCK_TCP_PORT"),
        ("PENSTOCK_TCP_PORT", " 7450", "PENSTOCK_TCP_PORT"),
        ("PENSTOCK_TCP_PORT", "+7450", "PENSTOCK_TCP_PORT"),
        ("PENSTOCK_TCP_PORT", "\N{ARABIC-INDIC DIGIT SEVEN}", "PENSTOCK_TCP_PORT"),
        ("PENSTOCK_HOST", "", "PENSTOCK_HOST"),
        ("PENSTOCK_LIMITS_CONNECTIONS_MAX", "many", "PENSTOCK_LIMITS_CONNECTIONS_MAX"),
        ("PENSTOCK_LIMITS_DRAIN_MS", "1 parsec", "PENSTOCK_LIMITS_DRAIN_MS"),
    ],
)
def test_what_a_variable_must_not_say_is_refused_by_name(tmp_path: Path, variable: str, value: str, words: str) -> None:
    assert words in refused(tmp_path, environment={variable: value})


def test_a_number_too_long_to_be_one_is_refused(tmp_path: Path) -> None:
    assert "DRAIN_MS" in refused(tmp_path, environment={"PENSTOCK_LIMITS_DRAIN_MS": "9" * 5000})


def test_units_may_be_given_where_the_name_ends_in_them(tmp_path: Path) -> None:
    found = given(tmp_path, "[limits]\noutput_bytes_max = '16MiB'\nhandshake_ms = '3s'\n").limits
    assert (found.output_bytes_max, found.handshake_ms) == (16 << 20, 3000)


def test_a_setting_nobody_knows_stops_a_real_broker_with_one_sentence(start: Start) -> None:
    broker = start(environment={"PENSTOCK_LIMITS_DRAIN_SM": "1"}, ready=False)
    assert broker.wait() == 2
    assert broker.log().count("\n") == 1
    assert "did you mean PENSTOCK_LIMITS_DRAIN_MS?" in broker.log()
    assert broker.out() == ""


# who may come in


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org", "127.0.0.1.example.org"])
def test_other_machines_are_not_let_in_without_tls_and_client_certificates(tmp_path: Path, host: str) -> None:
    said = refused(tmp_path, host=host)
    for word in (host, "--tls-cert", "--tls-key", "--tls-ca", "--allow-plaintext", "--allow-anonymous", "--host"):
        assert word in said
    said = refused(tmp_path, host=host, allow_plaintext=True)
    assert "--tls-ca" in said
    assert "--allow-plaintext" not in said
    assert "--tls-cert" in refused(tmp_path, host=host, allow_anonymous=True)
    assert "--allow-anonymous" in refused(tmp_path, host=host, tls_cert=Path("c"), tls_key=Path("k"))
    assert given(tmp_path, host=host, allow_plaintext=True, allow_anonymous=True).host == host
    assert given(tmp_path, host=host, **FREE).host == host
    assert given(tmp_path, host=host, tls_cert=Path("c"), tls_key=Path("k"), allow_anonymous=True).host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "localhost"])
def test_this_machine_is_always_let_in(tmp_path: Path, host: str) -> None:
    assert given(tmp_path, host=host).host == host


def test_a_real_broker_told_once_does_not_start_and_told_twice_does(start: Start) -> None:
    once = start("--host", "0.0.0.0", "--allow-plaintext", ready=False)
    assert once.wait() == 2
    assert "--allow-anonymous" in once.log()
    assert not once.ready_file.exists()
    twice = start("--host", "0.0.0.0", "--allow-plaintext", "--allow-anonymous")
    with TcpClient(twice.tcp_port) as client:
        assert client.answers()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"tls_cert": Path("c")}, "--tls-key"),
        ({"tls_key": Path("k")}, "--tls-cert"),
        ({"tls_ca": Path("a")}, "--tls-cert"),
        ({"tcp_port": "off", "ws_port": "off"}, "nobody could connect"),
        ({"tcp_port": "7000", "ws_port": "7000"}, "choose another"),
    ],
)
def test_settings_that_make_no_sense_together_are_refused(tmp_path: Path, flags: dict[str, Any], words: str) -> None:
    assert words in refused(tmp_path, **flags)


# ports


@pytest.mark.parametrize("which", ["tcp", "ws"])
def test_a_port_in_use_is_named_and_nothing_is_left_behind(start: Start, which: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        broker = start(ready=False, tcp=str(port)) if which == "tcp" else start(ready=False, ws=str(port))
        assert broker.wait() == 2
    assert str(port) in broker.log()
    assert "in use" in broker.log()
    assert "Traceback" not in broker.log()
    assert not broker.ready_file.exists()
    assert "ready" not in broker.out()


def test_the_ready_file_tells_the_ports_and_null_for_what_is_off(start: Start) -> None:
    broker = start(ws="off")
    assert broker.ready == {
        "pid": broker.pid,
        "data": str(broker.data),
        "tcp_port": broker.tcp_port,
        "ws_port": None,
        "http_port": None,
    }
    assert f"tcp://127.0.0.1:{broker.tcp_port}" in broker.out()
    other = start(tcp="off")
    assert other.ready["tcp_port"] is None
    with WsClient(other.ws_port) as client:
        assert client.answers()


def test_a_reader_of_the_ready_file_sees_the_whole_of_it(start: Start) -> None:
    broker = start(ready=False)
    seen: list[bytes] = []
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            try:
                seen.append(broker.ready_file.read_bytes())
            except FileNotFoundError:
                continue
            if len(seen) > 200:
                return

    thread = threading.Thread(target=look)
    thread.start()
    broker.wait_ready()
    eventually(lambda: seen, "somebody has seen it")
    thread.join(DEADLINE_SECONDS)  # it looks a few hundred times
    done.set()
    thread.join()
    assert set(seen) == {broker.ready_file.read_bytes()}
    assert json.loads(seen[0])["pid"] == broker.pid
    assert [each.name for each in broker.folder.iterdir() if "ready" in each.name] == ["ready.json"]


def test_a_ready_file_that_cannot_be_written_stops_the_broker(start: Start, tmp_path: Path) -> None:
    broker = start("--ready-file", tmp_path / "nowhere" / "ready.json", ready=False)
    assert broker.wait() == 2
    assert "ready file" in broker.log()


def test_a_ready_file_of_an_earlier_life_is_not_taken_for_this_one(start: Start, tmp_path: Path) -> None:
    stale = tmp_path / "stale.json"
    stale.write_text('{"pid":1,"data":"/","tcp_port":1,"ws_port":null,"http_port":null}')
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        broker = start("--ready-file", stale, tcp=str(taken.getsockname()[1]), ready=False)
        assert broker.wait() == 2
    assert not stale.exists()


def test_localhost_is_one_port_on_every_address_it_has(start: Start) -> None:
    broker = start("--host", "localhost", ws="off")
    found = socket.getaddrinfo("localhost", broker.tcp_port, type=socket.SOCK_STREAM)
    for address in {str(each[4][0]) for each in found}:
        with TcpClient(broker.tcp_port, host=address) as client:
            assert client.answers()
