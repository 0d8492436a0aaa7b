"""The cost of monitoring: publishing at full speed, alone and while `/metrics` or the admin API is requested.

The broker has many topics and subscriptions, since these make the answers long. The requests come from a process of
their own, which runs on the client's core.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import uvloop

from penstock.aio import connect
from penstock.bench import Figure
from penstock.bench.scraper import EVERY_SECONDS, get
from penstock.bench.stream import best_in_turns, create_topics, publish_rate
from penstock.bench.wire import pinned_to
from penstock.core.errors import InvalidRequest
from penstock.record.kernels import kernel_cache
from penstock.testing import RunningBroker

_CORES: Final = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
_TOPIC: Final = "bench.watched"
_BYTES: Final = 100
_METRICS: Final = ("/metrics",)
_ADMIN: Final = ("/v1/topics", "/v1/subscriptions", "/v1/connections", "/readyz")
_PAUSE_MS: Final = 10.0
"""The longest pause of the broker's event loop that a scrape may cause, in milliseconds."""


def measure(folder: Path, *, messages: int = 3_000_000, rounds: int = 5, topics: int = 1000) -> Iterator[Figure]:
    """Yield all figures. Each round publishes `messages` messages, alone and with requests in turns."""
    kernel_cache.load_all()
    create_topics(folder / "data", topics)
    with ExitStack() as stack:
        with pinned_to(_CORES[1:]):
            broker = stack.enter_context(_broker(folder / "data"))
        stack.enter_context(pinned_to(_CORES[:1]))
        publish = partial(publish_rate, broker.url, _TOPIC, _BYTES, messages)
        publish()
        yield from _watched("publish while /metrics is scraped", broker, publish, _METRICS, rounds)
        yield from _watched("publish while the admin API is asked", broker, publish, _ADMIN, rounds)
        yield _scrape(broker, topics, rounds)
        yield _pause(broker, rounds)


def _broker(data: Path) -> RunningBroker:
    return RunningBroker("--ws-port", "off", "--http-port", "0", "--log-level", "error", data=data)


def _watched(
    what: str, broker: RunningBroker, publish: partial[float], paths: Sequence[str], rounds: int
) -> Iterator[Figure]:
    def watched() -> float:
        with watching([f"{broker.http_url}{path}" for path in paths]):
            return publish()

    best = best_in_turns({"alone": publish, "watched": watched}, rounds)
    yield Figure(
        name=f"{what} every second",
        value=best["watched"],
        unit="messages/s",
        reference="alone",
        reference_value=best["alone"],
        ratio=best["watched"] / best["alone"],
    )


def _scrape(broker: RunningBroker, topics: int, rounds: int) -> Figure:
    took = []
    for _ in range(rounds):
        time.sleep(EVERY_SECONDS)  # until the last answer is too old to be served again
        began = time.perf_counter()
        get(f"{broker.http_url}/metrics")
        took.append(time.perf_counter() - began)
    return _within(f"scrape of {topics:,} topics and subscriptions", min(took) * 1000, 1000.0)


def _pause(broker: RunningBroker, rounds: int) -> Figure:
    """Measure the longest round trip to the broker, alone and during scrapes. The shortest result of all rounds counts:
    on a busy machine every request may have to wait."""
    url = f"{broker.http_url}/metrics"
    alone = min(uvloop.run(_longest_ms(broker.url)) for _ in range(rounds))
    scraped = min(_scraped_ms(broker.url, url) for _ in range(rounds))
    return _within("longest round trip while scraped", scraped, alone + _PAUSE_MS)


def _scraped_ms(url: str, scraped: str) -> float:
    with watching([scraped]):
        return uvloop.run(_longest_ms(url))


async def _longest_ms(url: str) -> float:
    async with connect(url) as client:
        until, longest = time.perf_counter() + 2 * EVERY_SECONDS, 0.0
        while (now := time.perf_counter()) < until:
            await client.ping()
            longest = max(longest, time.perf_counter() - now)
        return longest * 1000


def _within(name: str, ms: float, most: float) -> Figure:
    return Figure(
        name=name, value=ms, unit="ms", reference=f"{most:g} ms allowed", reference_value=most, ratio=most / ms
    )


# the scraping process


@contextmanager
def watching(urls: Sequence[str]) -> Iterator[None]:
    """Request all of `urls` once a second, from another process, while the context lasts. The first round is done when
    it begins. Raises `InvalidRequest` if that round fails."""
    command = [sys.executable, "-P", str(Path(__file__).with_name("scraper.py")), *urls]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:  # noqa: S603 - our own program
        try:
            if process.stdout is None or not process.stdout.readline():
                raise InvalidRequest(f"{urls[0]} cannot be asked")
            yield
        finally:
            process.kill()
