"""Parties of both kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.wire.kit import Party

from penstock.testing import RunningBroker

Connect = Callable[[], Party]


@pytest.fixture(params=["tcp", "ws"])
def connect(request: pytest.FixtureRequest, broker: RunningBroker) -> Iterator[Connect]:
    opened: list[Party] = []

    def make() -> Party:
        opened.append(Party(broker, request.param))
        return opened[-1]

    yield make
    for party in opened:
        party.close()
