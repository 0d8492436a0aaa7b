"""The cost of schemas: publishing to topics that enforce a policy, compared with one without; the registry, compared
with a bare HTTP server; and cached schemas, compared with requested ones."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any, Final

import uvloop

from penstock.aio import connect
from penstock.bench import Figure
from penstock.bench.stream import best_in_turns
from penstock.client.serde.registry_client import RegistryClient
from penstock.core.errors import Timeout
from penstock.record.kernels import kernel_cache
from penstock.record.message import SchemaRef
from penstock.testing import RunningBroker

ORDER: Final = {
    "type": "object",
    "properties": {
        "order": {"type": "string", "minLength": 1},
        "customer": {"type": "integer", "minimum": 0},
        "amount": {"type": "number", "minimum": 0},
        "currency": {"enum": ["EUR", "USD", "JPY"]},
        "express": {"type": "boolean"},
        "note": {"type": ["string", "null"]},
    },
    "required": ["order", "customer", "amount", "currency"],
}
_TOPICS: Final[dict[str, dict[str, Any]]] = {
    "no policy": {},
    "enforced": {"schema_policy": "enforce", "schema_payloads": False},
    "enforced with payloads": {"schema_policy": "enforce", "schema_payloads": True},
}
_PAYLOAD_BYTES: Final = 200
_CHUNK_MESSAGES: Final = 10_000


def measure(folder: Path, *, messages: int = 1_000_000, requests: int = 20_000, rounds: int = 3) -> Iterator[Figure]:
    """Yield all figures. The broker keeps its files in `folder`."""
    kernel_cache.load_all()
    with RunningBroker("--ws-port", "off", "--http-port", "0", "--log-level", "error", data=folder / "data") as broker:
        schema = uvloop.run(_prepare(broker.url))
        yield from _enforcing(broker.url, schema, messages, rounds)
        yield from _looking_up(broker, schema.id, requests, rounds)
        yield from _remembering(broker.url, schema.id, requests, rounds)


# ---- policies


async def _prepare(url: str) -> SchemaRef:
    async with connect(url) as client:
        for name, settings in _TOPICS.items():
            subjects = {"schema_subjects": ["bench"]} if settings else {}
            await client.ask("system.topic.create", {"topic": _topic(name), **settings, **subjects})
        wanted = {"subject": "bench", "type": "JSON", "schema": json.dumps(ORDER)}
        found = await client.ask("system.schema.register", wanted)
        return SchemaRef(found["id"], found["version"])


def _topic(name: str) -> str:
    return f"bench.{name.replace(' ', '')}"


def payload(number: int) -> bytes:
    order = {"order": f"o-{number}", "customer": number, "amount": number / 4, "currency": "EUR", "express": True}
    plain = json.dumps(order | {"note": ""})
    return json.dumps(order | {"note": "x" * (_PAYLOAD_BYTES - len(plain))}).encode()


def _enforcing(url: str, schema: SchemaRef, count: int, rounds: int) -> Iterator[Figure]:
    payloads = [payload(number) for number in range(count)]
    sides = {name: partial(_publish_rate, url, _topic(name), payloads, schema) for name in _TOPICS}
    best = best_in_turns(sides, rounds)
    free = best["no policy"]
    for name in list(_TOPICS)[1:]:
        yield Figure(
            name=f"durable publish, 200 B JSON in blocks, {name}",
            value=best[name],
            unit="messages/s",
            reference="no policy",
            reference_value=free,
            ratio=best[name] / free,
        )


def _publish_rate(url: str, topic: str, payloads: list[bytes], schema: SchemaRef) -> float:
    async def run() -> float:
        async with connect(url) as client, client.producer(topic) as producer:
            began = time.perf_counter()
            for start in range(0, len(payloads), _CHUNK_MESSAGES):
                await producer.send_many(payloads[start : start + _CHUNK_MESSAGES], schema=schema)
            await producer.flush()
            return len(payloads) / (time.perf_counter() - began)

    return uvloop.run(run())


# ---- the client's cache


def _remembering(url: str, schema_id: int, requests: int, rounds: int) -> Iterator[Figure]:
    sides = {
        "known": partial(_cached_rate, url, schema_id, requests),
        "asked": partial(_uncached_rate, url, schema_id, requests),
    }
    best = best_in_turns(sides, rounds)
    yield Figure(
        name="schema by id, from the client's cache",
        value=best["known"],
        unit="lookups/s",
        reference="asked of the broker each time",
        reference_value=best["asked"],
        ratio=best["known"] / best["asked"],
    )


def _cached_rate(url: str, schema_id: int, lookups: int) -> float:
    """Return the lookups per second by one registry client. Only the first of them asks the broker."""

    async def run() -> float:
        async with connect(url) as client:
            schemas = RegistryClient(client.ask)
            began = time.perf_counter()
            for _ in range(lookups):
                await schemas.definition(schema_id)
            return lookups / (time.perf_counter() - began)

    return uvloop.run(run())


def _uncached_rate(url: str, schema_id: int, lookups: int) -> float:
    """Return the lookups per second if each one asks the broker, since it uses a new registry client."""

    async def run() -> float:
        async with connect(url) as client:
            began = time.perf_counter()
            for _ in range(lookups):
                await RegistryClient(client.ask).definition(schema_id)
            return lookups / (time.perf_counter() - began)

    return uvloop.run(run())


# ---- HTTP


def _looking_up(broker: RunningBroker, schema_id: int, requests: int, rounds: int) -> Iterator[Figure]:
    path = f"/schemas/ids/{schema_id}"
    port = int(broker.http_url.rpartition(":")[2])
    with bare_server(asyncio.run(_get(port, path))) as bare:
        sides = {
            "Penstock": partial(_request_rate, port, path, requests),
            "bare": partial(_request_rate, bare, path, requests),
        }
        best = best_in_turns(sides, rounds)
    yield Figure(
        name="registry, GET by id",
        value=best["Penstock"],
        unit="requests/s",
        reference="a bare Starlette handler",
        reference_value=best["bare"],
        ratio=best["Penstock"] / best["bare"],
    )


@contextmanager
def bare_server(body: bytes) -> Iterator[int]:
    """Run a minimal Starlette server that answers with `body`, in another process; yield its port."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = int(listener.getsockname()[1])
    process = Popen([sys.executable, "-c", _BARE, str(port), body.hex()], stdin=PIPE)  # noqa: S603 - our own program
    try:
        _wait_for(port)
        yield port
    finally:
        process.terminate()
        process.communicate()


_BARE: Final = """
import sys
import uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route
body = bytes.fromhex(sys.argv[2])
async def found(request):
    return Response(body, media_type="application/vnd.schemaregistry.v1+json")
app = Starlette(routes=[Route("/schemas/ids/{id:int}", found)])
uvicorn.run(app, port=int(sys.argv[1]), loop="uvloop", http="h11", log_level="error", access_log=False)
"""


def _wait_for(port: int) -> None:
    until = time.monotonic() + 30
    while time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise Timeout("the bare HTTP server did not start")


async def _get(port: int, path: str) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(_request(path))
    body = await _answer(reader)
    writer.close()
    await writer.wait_closed()
    return body


def _request_rate(port: int, path: str, requests: int) -> float:
    """Return the answers per second over eight connections. Each sends its next request when the last one is
    answered."""
    connections = 8

    async def ask() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(requests // connections):
            writer.write(_request(path))
            await _answer(reader)
        writer.close()
        await writer.wait_closed()

    async def run() -> float:
        began = time.perf_counter()
        await asyncio.gather(*(ask() for _ in range(connections)))
        return requests / (time.perf_counter() - began)

    return uvloop.run(run())


def _request(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n".encode()


async def _answer(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    size = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    return await reader.readexactly(int(size.partition(b":")[2]))
