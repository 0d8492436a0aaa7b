"""Fixtures: a broker without sockets, with a disk or without, and three clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.kit import Peer, World

Keeping = Callable[..., World]


@pytest.fixture(autouse=True)
def no_defects(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Assert that no error was left unhandled, whatever a client or the disk did."""
    yield
    assert [
        each.getMessage()
        for each in caplog.get_records("call")
        if each.getMessage().startswith(("a defect", "unhandled error"))
    ] == []


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def keeping(tmp_path: Path) -> Iterator[Keeping]:
    """Brokers with durable topics, each with a disk of its own."""
    made: list[World] = []

    def make(**options: Any) -> World:
        made.append(World(root=tmp_path / f"data{len(made)}", **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def kept(keeping: Keeping) -> World:
    """A broker with durable topics."""
    return keeping()


@pytest.fixture
def ann(world: World) -> Peer:
    return world.connect()


@pytest.fixture
def bob(world: World) -> Peer:
    return world.connect()


@pytest.fixture
def cat(world: World) -> Peer:
    return world.connect()
