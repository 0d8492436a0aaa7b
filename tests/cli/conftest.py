"""Fixtures that run commands: in this process for breadth, as a process of its own where that matters."""

from __future__ import annotations

import functools
import io
import logging
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import typer.main
from tests.cli.kit import Fill, Outcome, Run, Start, child_environment

from penstock.cli.app import run
from penstock.core.names import TopicName
from penstock.record.block import Draft
from penstock.record.message import Message
from penstock.storage.store import Store
from penstock.testing import RunningBroker

DEADLINE_SECONDS = 120
command_tree = functools.cache(typer.main.get_command)
"""The command tree, cached: Typer builds all ninety commands for each run, which takes a tenth of a second."""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give every test a directory of its own, where `penstock-data` is the default data directory."""
    place = tmp_path / "home"
    place.mkdir()
    monkeypatch.chdir(place)
    monkeypatch.delenv("PENSTOCK_DATA", raising=False)
    return place


@pytest.fixture
def here(capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in this process; its logging configuration ends with the test, like the stream it writes to."""
    monkeypatch.setattr(logging.getLogger(), "handlers", logging.getLogger().handlers.copy())
    monkeypatch.setattr(logging.getLogger(), "level", logging.getLogger().level)
    monkeypatch.setattr(typer.main, "get_command", command_tree)

    def call(*arguments: str | Path, given: bytes = b"", **_: Any) -> Outcome:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
        capsysbinary.readouterr()
        code = run([str(argument) for argument in arguments])
        out, err = capsysbinary.readouterr()
        return Outcome(code, out, err.decode())

    return call


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return child_environment(tmp_path_factory)


@pytest.fixture
def start(environment: dict[str, str]) -> Start:
    """Start a command as a process of its own."""

    def call(*arguments: str | Path, **options: Any) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "penstock", *map(str, arguments)]
        pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        return subprocess.Popen(command, **{"env": environment, **pipes, **options})

    return call


@pytest.fixture
def apart(start: Start) -> Run:
    """Run a command in a process of its own."""

    def call(*arguments: str | Path, given: bytes = b"", **options: Any) -> Outcome:
        with start(*arguments, **options) as process:
            out, err = process.communicate(given, timeout=DEADLINE_SECONDS)
        return Outcome(process.returncode, out or b"", err.decode())

    return call


@pytest.fixture
def at_keeper(keeper: RunningBroker, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> str:
    """Let commands talk to the broker that stores what is published."""
    monkeypatch.setenv("PENSTOCK_URL", keeper.url)
    monkeypatch.setitem(environment, "PENSTOCK_URL", keeper.url)
    return keeper.url


@pytest.fixture
def fill(home: Path) -> Fill:
    """Create a data directory with a topic and these messages in it."""

    def call(messages: Sequence[Message | bytes] = (), *, topic: str = "orders", partitions: int = 1) -> Path:
        made = [each if isinstance(each, Message) else Message(payload=each, type="t") for each in messages]
        with Store.open(home / "penstock-data", create=True) as store:
            name = TopicName.parse(topic)
            store.create_topic(name, partitions=partitions)
            if made:
                store.append(name, Draft.of(made))
        return home / "penstock-data"

    return call


@pytest.fixture
def segment(fill: Fill) -> Path:
    """Return the one segment of a topic with ten messages."""
    (found,) = fill([b"message %d" % number for number in range(10)]).rglob("*.seg")
    return found
