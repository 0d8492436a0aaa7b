"""A client that disconnects ends its call: in the HTTP API, in the hub, and in the scan itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.access.audit import AuditTrail
from penstock.broker.access.policy import ANONYMOUS, NO_ORIGIN, AccessPolicy
from penstock.broker.topics.schema_rejections import NotFound
from penstock.core.errors import ServiceUnavailable
from penstock.server.admin.bodies import RetentionBody, SettingsBody
from penstock.server.api.broker_calls import ask, ask_until_disconnect, list_page, sent_fields
from penstock.server.api.errors import HttpError
from penstock.server.api.request import ApiRequest, RequestServices


def in_a_loop(story: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(story)
    def test(**fixtures: Any) -> None:
        asyncio.run(story(**fixtures))

    return test


class Slow:
    """A backend whose answer comes when the test lets it, and which records whether it is still awaited."""

    def __init__(self) -> None:
        self.registry: Any = None
        self.access = AccessPolicy()
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def run(self, procedure: Any) -> Any: ...

    async def ask(self, _topic: str, _fields: dict[str, Any], _principal: Any) -> Any:
        return await self.answer


def call(backend: Any, arrives: asyncio.Queue[Any]) -> ApiRequest:
    return ApiRequest(
        backend=backend,
        services=RequestServices(),
        principal=ANONYMOUS,
        origin=NO_ORIGIN,
        path_params={},
        query={},
        body=None,
        scope={"type": "http"},
        receive=arrives.get,
        trail=AuditTrail(backend.access, ANONYMOUS, NO_ORIGIN),
    )


@in_a_loop
async def test_a_client_that_hangs_up_ends_the_work() -> None:
    backend, arrives = Slow(), asyncio.Queue[Any]()
    arrives.put_nowait({"type": "http.request", "body": b"", "more_body": False})
    arrives.put_nowait({"type": "http.disconnect"})
    with pytest.raises(ServiceUnavailable, match="hung up"):
        await ask_until_disconnect(call(backend, arrives), "system.message.browse", {})
    await asyncio.sleep(0)
    assert backend.answer.cancelled()


@in_a_loop
async def test_a_client_that_stays_gets_the_answer() -> None:
    backend, arrives = Slow(), asyncio.Queue[Any]()
    backend.answer.set_result({"a": 1})
    assert await ask_until_disconnect(call(backend, arrives), "system.message.browse", {}) == {"a": 1}


@in_a_loop
async def test_what_is_refused_is_raised_and_what_is_not_there_is_a_404() -> None:
    for error, raised in ((NotFound("no"), HttpError), (ServiceUnavailable("busy"), ServiceUnavailable)):
        backend, arrives = Slow(), asyncio.Queue[Any]()
        backend.answer.set_exception(error)
        with pytest.raises(raised):
            await ask_until_disconnect(call(backend, arrives), "x", {})
        with pytest.raises(raised):
            await ask(call(backend, arrives), "x", {})


@in_a_loop
async def test_a_scan_ends_when_the_one_who_asked_the_hub_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cancel the caller between two steps of a real scan over a real log: it goes no further."""
    from random import Random

    from penstock.broker.broker import Broker
    from penstock.broker.reads import scan
    from penstock.core.clock import SystemClock
    from penstock.core.limits import Limits, WireLimits
    from penstock.core.names import TopicName
    from penstock.record.block import Draft
    from penstock.server.hub import Hub
    from penstock.server.main import now_ms
    from penstock.storage.store import Store

    steps, step = count(), scan.Scan.step
    monkeypatch.setattr(scan, "_STEP_MESSAGES", 1)
    monkeypatch.setattr(scan.Scan, "step", lambda scan: (next(steps), step(scan))[1])
    with Store.open(tmp_path, create=True, limits=Limits(disk_reserve_bytes=1)) as store:
        store.create_topic(TopicName.parse("a"))
        store.append(TopicName.parse("a"), Draft.of_payloads([b"x"] * 20_000))
        hub = Hub(Broker(WireLimits(), SystemClock(), Random(1), now_ms=now_ms(), store=store), WireLimits(), now_ms)
        durable = hub.broker.durable
        assert durable is not None
        fields = {"topic": "a", "scan": 100_000, "contains": "nothing"}
        asking = asyncio.create_task(hub.ask("system.message.browse", fields, ANONYMOUS))
        while not durable.scans.open:
            await asyncio.sleep(0)
        asking.cancel()
        while durable.scans.open:
            await asyncio.sleep(0)
        assert asking.cancelled()
        assert next(steps) < 20_000
        await hub.drain(0)


def test_what_was_left_out_is_left_out_and_null_is_not() -> None:
    assert sent_fields(SettingsBody(rate_max=None, retention=RetentionBody(count=3))) == {
        "rate_max": None,
        "retention": {"count": 3},
    }
    assert sent_fields({"a": None, "b": 0}) == {"b": 0}


def test_a_list_that_goes_on_says_where() -> None:
    entries = [{"topic": "/a/b", "subscription": "s"}]
    assert list_page({"x": entries}, "x", "topic") == {"x": entries}
    more = {"x": entries, "truncated": True, "total": 2}
    assert list_page(more, "x", "topic", "subscription") == {"x": entries, "next": "/a/b s"}
