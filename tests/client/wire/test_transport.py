"""Errors of connections that cannot be opened."""

from __future__ import annotations

import asyncio
import socket

import pytest

import penstock.aio
from penstock.core.errors import ServiceUnavailable


def test_a_host_whose_name_nobody_knows_is_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_asked: object, **_options: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    async def story() -> None:
        with pytest.raises(ServiceUnavailable) as caught:
            await penstock.aio.connect("tcp://nosuch.host:7450")
        assert caught.value.message == (
            "no broker at tcp://nosuch.host:7450: the name nosuch.host cannot be resolved (Name or service not known)"
        )

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    asyncio.run(asyncio.wait_for(story(), 20))
