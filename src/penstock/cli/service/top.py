"""`penstock top`: show what a broker is doing, again and again: topics by rate, subscriptions by lag, the disk."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from penstock.cli import options as opt
from penstock.cli.output import bytes_text, cell, console, many, on_one_line, print_captured, print_json
from penstock.cli.tables import columns_of, draw_cut_table
from penstock.core.clock import SystemClock, iso_time, now_ms
from penstock.core.errors import InvalidRequest, PenstockError
from penstock.core.units import parse_duration_ms

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.client.sync import Client

_INTERVAL_SECONDS: Final = 2.0
_INTERVAL_MS_MIN: Final = 200
"""The shortest interval in milliseconds. A shorter one would only load the broker."""
_INTERVAL_MS_MAX: Final = 86_400_000
_TOPICS_MAX: Final = 20_000
"""The most topics that are fetched for one snapshot, which are some megabytes."""
_METRICS_FILTER: Final = r"^(process|router|connection|storage|live|schema)\."
_ROWS: Final = 12
"""The number of rows of each table if the output is no terminal."""


@opt.bundled
def top(
    broker: opt.BrokerOptions,
    interval: Annotated[str | None, typer.Option(help="Between two looks, such as 5s. Default: 2s.")] = None,
    once: Annotated[bool, typer.Option("--once", help="Look once, print, and end.")] = False,
    rows: Annotated[int | None, typer.Option("--rows", "-n", min=1, help="Of each table. Default: what fits.")] = None,
    json: opt.Json = False,
) -> None:
    """Watch a broker: topics by rate, subscriptions by lag, connections, syncs. End with Ctrl-C.

    Where the output is no terminal it is printed once, unless an interval is given.

    Examples:

    `penstock top`

    `penstock top --once --json | jq .subscriptions`

    `penstock top --interval 10s --json`
    """
    seconds = _INTERVAL_SECONDS if interval is None else _seconds(interval)
    once = once or (interval is None and not sys.stdout.isatty())
    watch = BrokerWatch(broker)
    first = watch.snapshot()
    try:
        if once:
            _print(first, rows, json=json)
        elif json or not sys.stdout.isatty():
            _repeat(watch, first, seconds, lambda snapshot: _print(snapshot, rows, json=json))
        else:
            with _screen(rows) as show:
                _repeat(watch, first, seconds, show)
    finally:
        watch.close()


def _seconds(interval: str) -> float:
    found_ms = parse_duration_ms(interval)
    if not _INTERVAL_MS_MIN <= found_ms <= _INTERVAL_MS_MAX:
        raise InvalidRequest(f"--interval is {_INTERVAL_MS_MIN}ms to 1d, not {interval}", field="interval")
    return found_ms / 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSnapshot:
    """The state of a broker at one moment."""

    at_ms: int
    metrics: dict[str, float]
    topics: list[dict[str, Any]]
    subscriptions: list[dict[str, Any]]
    sync_ms: float | None
    """The average time of a sync in milliseconds since the last snapshot; None if there was no sync."""
    trouble: str | None = None
    """The error because of which this snapshot is not up to date; None if it is."""

    def as_dict(self) -> dict[str, Any]:
        return {
            "time": iso_time(self.at_ms),
            "connections": int(self.metrics.get("connection.active", 0)),
            "publish_rate": self.metrics.get("router.publish.rate", 0),
            "message_rate": self.metrics.get("router.message.rate", 0),
            "sync_ms": self.sync_ms,
            "sync_p99_ms": self.metrics.get("storage.sync.seconds.p99", 0) * 1000,
            "memory_bytes": int(self.metrics.get("process.memory.bytes", 0)),
            "cpu": self.metrics.get("process.cpu.percent", 0),
            "topics": self.topics,
            "subscriptions": self.subscriptions,
        }


class BrokerWatch:
    """A source of snapshots of a broker. It connects again if its connection was lost."""

    def __init__(self, broker: opt.BrokerOptions) -> None:
        self._broker = broker
        self._client: Client | None = None
        self._syncs = (0.0, 0.0)

    def snapshot(self) -> BrokerSnapshot:
        """Ask the broker for its state and return it. Raises the error of the broker or of the connection."""
        if self._client is None:
            self._client = self._broker.connect()
        client = self._client
        metrics = client.ask("system.metrics", {"filter": _METRICS_FILTER})["metrics"]
        topics = sorted(_some(client.topics(), _TOPICS_MAX), key=lambda entry: (-entry["rate"], entry["topic"]))
        subscriptions = [
            entry for entry in client.ask("system.subscription.list")["subscriptions"] if not entry["internal"]
        ]
        return BrokerSnapshot(
            at_ms=now_ms(SystemClock()),
            metrics=metrics,
            topics=topics,
            subscriptions=sorted(
                subscriptions, key=lambda entry: (-entry["lag"], -entry["lag_seconds"], entry["topic"])
            ),
            sync_ms=self._sync_ms(metrics),
        )

    def _sync_ms(self, metrics: dict[str, float]) -> float | None:
        before = self._syncs
        self._syncs = (metrics.get("storage.sync.count", 0.0), metrics.get("storage.sync.seconds", 0.0))
        count, seconds = (now - then for now, then in zip(self._syncs, before, strict=True))
        return seconds / count * 1000 if count > 0 else None

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


def _some(items: Iterator[dict[str, Any]], most: int) -> Iterator[dict[str, Any]]:
    for _, item in zip(range(most), items, strict=False):
        yield item


def _repeat(
    watch: BrokerWatch, snapshot: BrokerSnapshot, seconds: float, show: Callable[[BrokerSnapshot], None]
) -> None:
    """Take and show snapshots until interrupted. While the broker does not answer, the last snapshot is shown with the
    error."""
    while True:
        show(snapshot)
        time.sleep(seconds)
        try:
            snapshot = watch.snapshot()
        except PenstockError as error:
            watch.close()
            snapshot = BrokerSnapshot(
                at_ms=snapshot.at_ms,
                metrics=snapshot.metrics,
                topics=snapshot.topics,
                subscriptions=snapshot.subscriptions,
                sync_ms=snapshot.sync_ms,
                trouble=error.message,
            )


def _print(snapshot: BrokerSnapshot, rows: int | None, *, json: bool) -> None:
    if json:
        if snapshot.trouble is None:
            print_json(snapshot.as_dict())
        sys.stdout.flush()
        return
    screen = console()
    print_captured(screen, _render(snapshot, rows or _ROWS, screen.width))


@contextmanager
def _screen(rows: int | None) -> Iterator[Callable[[BrokerSnapshot], None]]:
    """Switch the terminal to a full screen that is restored at the end; yield the function that shows a snapshot.
    `rows` is the number of rows of each table; default: as many as there is room for."""
    from rich.live import Live

    drawn_on = console()
    with Live(console=drawn_on, screen=True, auto_refresh=False) as live:

        def show(snapshot: BrokerSnapshot) -> None:
            most = rows or max(3, (drawn_on.height - 14) // 2)
            live.update(_render(snapshot, most, drawn_on.width), refresh=True)

        yield show


# drawing


def _render(snapshot: BrokerSnapshot, rows: int, width: int) -> RenderableType:
    from rich.console import Group

    return Group(_head(snapshot), _topics(snapshot, rows, width), _subscriptions(snapshot, rows, width))


def _head(snapshot: BrokerSnapshot) -> RenderableType:
    from rich.text import Text

    facts, metrics = snapshot.as_dict(), snapshot.metrics
    sync = "none since the last look" if snapshot.sync_ms is None else f"{snapshot.sync_ms:.2f} ms"
    totals = ("schema.refused.total", "router.message.count.error", "connection.rejected.total")
    refused, errors, rejected = (metrics.get(name, 0) for name in totals)
    traffic = f"{facts['publish_rate']:,.0f} published/s  {facts['message_rate']:,.0f} messages in/s"
    lines = [
        f"penstock  {facts['time']}  up {_uptime(metrics.get('process.uptime', 0))}",
        f"{many(facts['connections'], 'connection')}  {traffic}",
        f"memory {bytes_text(facts['memory_bytes'])}  cpu {facts['cpu']:.0%}",
        f"sync {sync}  (99% within {facts['sync_p99_ms']:.2f} ms)  {_per_group(metrics)}",
        f"errors {errors:,.0f}  refused by schemas {refused:,.0f}  connections rejected {rejected:,.0f}",
    ]
    text = Text("\n".join(lines))
    if snapshot.trouble is not None:
        text.append(f"\nnot reachable, this is from before: {on_one_line(snapshot.trouble)}", style="bold red")
    return text


def _per_group(metrics: dict[str, float]) -> str:
    groups = metrics.get("storage.group.count", 0)
    return f"{metrics.get('storage.group.messages', 0) / groups:,.1f} messages a group" if groups else "no group yet"


def _uptime(seconds: float) -> str:
    hours, rest = divmod(int(seconds), 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}"


_TOPIC_COLUMNS: Final = ("topic", "msg/s", "messages", "size", "subscriptions", "partitions")
_SUBSCRIPTION_COLUMNS: Final = ("subscription", "topic", "lag", "seconds", "state", "in flight", "consumers")
"""The columns of the table of subscriptions. If there is not room for all, columns are dropped from the end, but the
state before numbers."""


def _topics(snapshot: BrokerSnapshot, rows: int, width: int) -> RenderableType:
    sized = [topic | {"size": bytes_text(topic["bytes"])} for topic in snapshot.topics[:rows]]
    names = ("topic", "rate", "messages", "size", "subscriptions", "partitions")
    return _table(
        "topics by rate", _TOPIC_COLUMNS, [_row(topic, names) for topic in sized], len(snapshot.topics), width
    )


def _subscriptions(snapshot: BrokerSnapshot, rows: int, width: int) -> RenderableType:
    entries = [entry | {"state": "; ".join(entry["state"])} for entry in snapshot.subscriptions[:rows]]
    names = ("subscription", "topic", "lag", "lag_seconds", "state", "in_flight", "consumers")
    shown = [_row(entry, names) for entry in entries]
    return _table("subscriptions by lag", _SUBSCRIPTION_COLUMNS, shown, len(snapshot.subscriptions), width)


def _row(facts: dict[str, Any], names: tuple[str, ...]) -> list[Any]:
    return [facts[name] for name in names]


def _table(title: str, headings: tuple[str, ...], shown: list[list[Any]], count: int, width: int) -> RenderableType:
    draw_table = draw_cut_table(title, columns_of(headings, shown, cell), width)
    hints = [f"{len(shown)} of {count:,}"] if count > len(shown) else []
    if len(draw_table.columns) < len(headings):
        hints.append("--json has every column")
    draw_table.caption = "; ".join(hints) or None
    return draw_table
