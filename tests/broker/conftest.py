"""A broker without sockets, and three who talk to it."""

from __future__ import annotations

import pytest
from tests.broker.kit import Peer, World


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def ann(world: World) -> Peer:
    return world.connect()


@pytest.fixture
def bob(world: World) -> Peer:
    return world.connect()


@pytest.fixture
def cat(world: World) -> Peer:
    return world.connect()
