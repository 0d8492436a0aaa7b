"""The story: step after step, and at the end the account.

Whatever happens, nothing is left behind that was not asked for: no broker, no JVM, no directory.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np

from penstock.client.sync import Client, connect
from penstock.core.errors import PenstockError
from penstock.demo.base.interrupts import final_interrupt
from penstock.demo.base.ledger import Ledger
from penstock.demo.base.orders import generate
from penstock.demo.base.screen import Screen
from penstock.demo.broker.lifetimes import RESULTS, broker_lifetime, demo_directory, quiet_logs
from penstock.demo.broker.process import BrokerProcess
from penstock.demo.lake import revenue
from penstock.demo.lake.lakehouse import ArchiveSummary, AuditSummary, Lakehouse
from penstock.demo.lake.revenue import Revenue
from penstock.demo.look_around import commands
from penstock.demo.report import plot
from penstock.demo.report.account import AccountRow, Counts, rows
from penstock.demo.report.counting import Observations, count
from penstock.demo.traffic import billing, schemas
from penstock.demo.traffic.http_publisher import HttpPublisher
from penstock.demo.traffic.schemas import SchemaVersions
from penstock.demo.traffic.tcp_publisher import TcpPublisher
from penstock.demo.traffic.traffic import KillReport, Publisher, Traffic
from penstock.demo.traffic.websocket_publisher import WebSocketPublisher
from penstock.record.kernels.kernel_cache import prepare

EVENTS: Final = 200_000
EVENTS_SMALL: Final = 4_000
_NEEDED: Final = ("deltalake", "matplotlib", "picows", "pyspark")
_REASONS_SHOWN: Final = 4
_ROW: Final = re.compile(r"^message \d+ of the block: ")
"""The beginning of a refusal's text with the row in its block. It is removed, so that equal reasons are counted
together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """Options of a run."""

    events: int = EVENTS
    folder: Path | None = None
    """The directory; None for a temporary one."""
    keep: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoResult:
    """The result of a run. `holds` is False if a number of the account is not what it must be."""

    counts: Counts
    seconds: float
    folder: Path
    revenue: Revenue
    broker: dict[str, Any]
    """The broker's addresses, if it was left running."""
    look_around: list[tuple[str, str]]

    @property
    def rows(self) -> list[AccountRow]:
        return list(rows(self.counts))

    @property
    def holds(self) -> bool:
        return all(row.holds for row in self.rows)

    def as_dict(self) -> dict[str, Any]:
        return {
            "holds": self.holds,
            "seconds": round(self.seconds, 1),
            "counts": self.counts.as_dict(),
            "rows": [each.as_dict() for each in self.rows],
            "directory": str(self.folder),
            "results": [str(self.folder / name) for name in RESULTS],
            "broker": self.broker,
            "look_around": [command for _, command in self.look_around],
        }


def run(options: DemoOptions, screen: Screen) -> DemoResult:
    """Run the demo. Raises `InvalidRequest` for a directory that is not new or empty, and the error that made a step
    fail."""
    _check_installed()
    prepare(say=screen.say)
    with final_interrupt(), quiet_logs(), demo_directory(options.folder, keep=options.keep) as place:
        return _Story(options, place, screen).run()


def _check_installed() -> None:
    """Raise `ModuleNotFoundError` now, for a package that would be missing a minute later."""
    for name in _NEEDED:
        if find_spec(name) is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


class _Story:
    """A run, in one directory."""

    def __init__(self, options: DemoOptions, place: Path, screen: Screen) -> None:
        self._options = options
        self._folder = place
        self._screen = screen
        self._broker = BrokerProcess(place)
        self._lakehouse = Lakehouse(self._broker.data, place)
        self._orders = generate(options.events)
        self._ledger = Ledger(options.events, half_way=self._broker.send_kill)

    def run(self) -> DemoResult:
        began = time.monotonic()
        with self._lakehouse, broker_lifetime(self._broker, keep=self._options.keep):
            try:
                return self._run_steps(began)
            except PenstockError:
                self._broker.check_soon()  # a dead broker is the reason, and the error its effect
                raise

    def _run_steps(self, began: float) -> DemoResult:
        traffic, killed, redriven = self._traffic()
        seen = Observations(
            by_transport=traffic.answered(),
            killed=killed,
            billed=traffic.billing.billed(),
            redriven=redriven,
            archived=self._archive(),
            audited=self._audit(),
            revenue=self._revenue(),
        )
        self._broker.check()
        return DemoResult(
            counts=count(self._orders, self._ledger, seen, self._broker.data),
            seconds=time.monotonic() - began,
            folder=self._folder,
            revenue=seen.revenue,
            broker=self._broker.as_dict() if self._options.keep else {},
            look_around=commands(self._broker, self._folder, self._options.events) if self._options.keep else [],
        )

    def _traffic(self) -> tuple[Traffic, KillReport, int]:
        with self._start() as client:
            versions = self._register(client)
            with Traffic(self._broker, self._orders, self._ledger) as traffic:
                killed = self._publish(traffic, versions, client)
                redriven = self._redrive(traffic, client)
        return traffic, killed, redriven

    def _start(self) -> Client:
        """Start the broker; return a connection to it, to be used with `with`."""
        with self._screen.step("start the broker, and Spark beside it") as step:
            self._broker.start()
            ports = self._broker.ports
            step.outcome = f"TCP {ports.tcp}, WebSocket {ports.ws}, HTTP {ports.http}"
            return connect(self._broker.url, name="demo")

    def _register(self, client: Client) -> SchemaVersions:
        with self._screen.step("register the schema of orders") as step:
            versions = schemas.create(client)
            step.outcome = "versions 1 and 2 go together, a third is refused"
            step.note(f"refused: {versions.refusal}")
        return versions

    def _publish(self, traffic: Traffic, versions: SchemaVersions, client: Client) -> KillReport:
        with self._screen.step(f"publish {len(self._orders):,} events, and kill the broker half way") as step:
            killed = traffic.publish(self._publishers(versions), step)
            traffic.drain(client, step)
            stored, refused = len(self._ledger.acknowledged()), len(self._ledger.refused)
            step.outcome = f"{stored:,} stored, {refused:,} refused, {traffic.billing.billed_count:,} billed"
            step.note(
                f"SIGKILL after {killed.acknowledged:,} acknowledged; back after {killed.seconds:.1f} s with"
                f" {killed.found:,} on disk: {killed.missing:,} missing"
            )
            for reason in self._reasons():
                step.note(reason)
        return killed

    def _publishers(self, versions: SchemaVersions) -> list[Publisher]:
        """Return the publishers: the app names the second version already, the web page still the first.

        Over HTTP no schema is named, and the topic's latest applies.
        """
        given = self._orders, self._ledger
        return [
            TcpPublisher(self._broker.url, *given, versions.second),
            WebSocketPublisher(self._broker.ws_url, *given, versions.first),
            HttpPublisher(self._broker.host, self._broker.ports.http, *given),
        ]

    def _reasons(self) -> list[str]:
        """Return the reasons of refusals: each once, with its count."""
        reasons = Counter(_ROW.sub("", each) for each in self._ledger.refused.values())
        return [f"refused {many:,}: {reason}" for reason, many in reasons.most_common(_REASONS_SHOWN)]

    def _redrive(self, traffic: Traffic, client: Client) -> int:
        with self._screen.step("mend billing, and send its dead letters back") as step:
            dead, reason = billing.dead_letters(client)
            traffic.billing.add_missing_price()
            redriven = billing.redrive(client)
            traffic.drain(client, step)
            step.outcome = f"{dead:,} dead letters, {redriven:,} redriven and billed"
            step.note(f"each had been tried {billing.ATTEMPTS} times: {reason}")
        return redriven

    def _archive(self) -> ArchiveSummary:
        with self._screen.step("archive the log into a Delta table, with Spark") as step:
            archived = self._lakehouse.archive()
            size = archived.bytes / (1 << 20)
            step.outcome = f"{archived.orders:,} rows and {archived.dead_letters:,} dead letters, {size:.1f} MiB"
        return archived

    def _audit(self) -> AuditSummary:
        with self._screen.step("audit every checksum, and the log against the lake") as step:
            audited = self._lakehouse.audit(step.bar("  checked"))
            step.outcome = f"{audited.compared:,} messages compared, {audited.findings:,} findings"
            if audited.first:
                step.note(audited.first)
        return audited

    def _revenue(self) -> Revenue:
        with self._screen.step("sum the revenue of every hour, a pipeline in SQL, and draw it") as step:
            found = revenue.run_pipeline(self._lakehouse, self._folder / "revenue.toml")
            plot.draw(found, len(self._orders), self._folder / "revenue.png")
            step.outcome = f"{np.count_nonzero(found.cents)} hours, €{found.cents.sum() / 100:,.2f}"
        return found
