"""The commands that talk to a broker, with a real one."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

import pytest
from tests.cli.kit import Run, Start, ended, said
from tests.server.kit import eventually

import penstock
from penstock.testing import RunningBroker

ID = "[0-9a-f-]{36}"
PATIENT = ("--timeout", "60s")
"""Options for processes that start a program to answer."""


@pytest.fixture(autouse=True)
def url(broker: RunningBroker, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> str:
    """Set the broker of every command."""
    monkeypatch.setenv("PENSTOCK_URL", broker.url)
    monkeypatch.setitem(environment, "PENSTOCK_URL", broker.url)
    return broker.url


Listen = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def listen(start: Start) -> Listen:
    """Start `penstock subscribe`, and wait until it has subscribed."""

    def call(*arguments: str) -> subprocess.Popen[bytes]:
        process = start("subscribe", *arguments)
        said(process.stderr, "subscribed to")
        return process

    return call


def test_what_is_published_is_printed(here: Run, listen: Listen) -> None:
    with listen("cli.#", "--limit", "4") as process:
        assert here("publish", "cli.one", "hello").out == "1 message published to cli.one\n"
        assert here("publish", "cli.two", given=b"two\nlines").code == 0
        done = here("publish", "cli.lines", "--lines", "--json", given=b"a\nb\r\n")
        assert done.rows == [{"topic": "cli.lines", "published": 2}]
        out, _ = process.communicate(timeout=60)
    assert out.decode().splitlines() == ["cli.one hello", r"cli.two two\nlines", "cli.lines a", "cli.lines b"]
    assert process.returncode == 0


def test_json_and_payload_have_every_byte(here: Run, listen: Listen) -> None:
    with listen("cli.bytes", "--json", "-n", "2") as described, listen("cli.bytes", "--payload", "-n", "2") as plain:
        here("publish", "cli.bytes", "-", given=b"\xff\x00")
        here("publish", "Cli.Bytes", "é", "--version", "2.0.1")
        rows = [json.loads(line) for line in described.communicate(timeout=60)[0].splitlines()]
        assert plain.communicate(timeout=60)[0] == b"\xff\x00\n\xc3\xa9\n"
    assert rows[0]["payload_base64"] == "/wA="
    assert (rows[1]["topic"], rows[1]["payload"], rows[1]["version"]) == ("Cli.Bytes", "é", "2.0.1")


def test_an_error_among_lines_says_how_many_were_published_before_it(here: Run, listen: Listen) -> None:
    with listen("cli.some", "--limit", "1500"):
        failed = here("publish", "cli.some", "--lines", given=b"x\n" * 1500 + b"y" * 1_100_000 + b"\n")
        failed.refused("PAYLOAD_TOO_LARGE", "1,500 lines before it published")


def test_an_answer_that_is_no_text_is_printed_as_it_is(here: Run, start: Start) -> None:
    with start("respond", "cli.raw", "-x", "cat", "--limit", "2") as process:
        said(process.stderr, "serving")
        assert here("request", "cli.raw", *PATIENT, given=b"\xff\x00").raw == b"\xff\x00"
        assert here("request", "cli.raw", *PATIENT, given=b"text").raw == b"text\n"
        assert process.wait(60) == 0


def test_nobody_to_publish_to_is_an_error(here: Run) -> None:
    here("publish", "cli.nobody", "x").refused("NO_ROUTE_FOUND", "cli.nobody")
    assert here("publish", "cli.nobody", "x", "--json").error["code"] == "NO_ROUTE_FOUND"
    here("publish", "cli.+", "x").refused("TOPIC_NOT_SUPPORTED")
    here("publish", "cli.nobody", "x", "--lines").refused("leave out the payload")


def test_no_broker_says_where_it_was_looked_for(here: Run) -> None:
    here("ping", "--url", "tcp://127.0.0.1:1").refused("SERVICE_UNAVAILABLE", "tcp://127.0.0.1:1")
    here("ping", "--url", "http://127.0.0.1:1").refused("expected tcp://host:port")


def test_ctrl_c_ends_a_subscriber_without_a_traceback(listen: Listen) -> None:
    code, _, err = ended(listen("cli.quiet"))
    assert (code, err) == (130, b"")


def test_a_command_answers_requests(here: Run, start: Start) -> None:
    with start("respond", "cli.upper", "--exec", "tr a-z A-Z; printf $PENSTOCK_TOPIC", "--name", "upper") as process:
        said(process.stderr, "serving")
        assert here("request", "cli.upper", "hello ", *PATIENT).out == "HELLO cli.upper\n"
        assert here("request", "cli.upper", "--json", *PATIENT, given=b"x").rows == [
            {"topic": "cli.upper", "payload": "Xcli.upper"}
        ]
        (row,) = [row for row in here("services", "--json").rows if row["name"] == "upper"]
        assert (row["serves"], row["listens"]) == (["cli.upper"], [])
        assert "cli.upper" in here("services").out
        assert len(here("services", "--all", "--json").rows) >= 2
        assert ended(process)[0] == 130


def test_a_command_that_fails_is_an_error_to_the_requester(here: Run, start: Start) -> None:
    with start("respond", "cli.fails", "-x", "echo no such thing >&2; exit 3", "--limit", "1") as process:
        said(process.stderr, "serving")
        here("request", "cli.fails", "x", *PATIENT).refused("ended with 3", "no such thing")
        assert process.wait(60) == 0


def test_lines_answer_requests_until_there_are_no_more(here: Run, start: Start) -> None:
    with start("respond", "cli.lines") as process:
        said(process.stderr, "serving")
        assert process.stdin is not None
        process.stdin.write(b"first\nsecond\n")
        process.stdin.close()
        process.stdin = None
        assert [here("request", "cli.lines", word, *PATIENT).out for word in ("a", "b")] == ["first\n", "second\n"]
        here("request", "cli.lines", "c", *PATIENT).refused("no more answers")
        out, _ = process.communicate(timeout=60)
    assert out.decode().splitlines() == ["cli.lines a", "cli.lines b", "cli.lines c"]


def test_a_request_waits_no_longer_than_it_says(here: Run, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.client.aio._REQUEST_GRACE_SECONDS", 60.0)  # the broker says so, however slowly
    with penstock.connect(url) as client:
        import threading

        over = threading.Event()
        with client.respond("cli.slow", lambda _: str(over.wait(30))):
            here("request", "cli.slow", "x", "--timeout", "50ms").refused("TIMEOUT", "timed out")
            here("request", "cli.slow", "x", "--timeout", "soon").refused("a span of time")
            over.set()


def test_ping_prints_how_long_it_took(here: Run) -> None:
    assert here("ping", "-n", "2").out.count("answer in") == 2
    assert here("ping", "-n", "1", "--json").rows[0]["milliseconds"] > 0


def test_system_topics_can_be_asked(here: Run) -> None:
    def listed() -> list[object]:
        found: list[object] = json.loads(here("request", "system.topic.list", "{}").out)["topics"]
        return found

    eventually(lambda: listed() == [], "nobody subscribes any more")
