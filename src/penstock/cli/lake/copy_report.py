"""Options and output for commands that publish many messages: the selection, the target, the progress, the report."""

from __future__ import annotations

import json as jsons
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli import options as opt
from penstock.cli.exit_codes import EXIT_FINDINGS
from penstock.cli.output import console, many, print_json
from penstock.core.errors import InvalidRequest, PenstockError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.jobs.transfer.replay import PublishReport
    from penstock.spark.jobs.transfer.selection import Selection
    from penstock.spark.sink.options import SinkOptions

Run = Annotated[
    str | None,
    typer.Option(help="The name of this run: started again under it, nothing is published twice. Default: a new one."),
]
SKIP_LOST: Final = "--skip-lost"
SkipLost = Annotated[
    bool, typer.Option(SKIP_LOST, help="Leave out what cannot be read and count it, instead of ending there.")
]
ReportMessages = Callable[[int, int | None], None]
"""A function that shows progress. It gets the number of finished messages, and the total, or None if that is not
known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishTarget:
    """The options for where messages are published: a broker, or a data directory that no broker uses."""

    broker: Annotated[
        str | None,
        typer.Option(
            "--broker", "-b", envvar="PENSTOCK_URL", help="Publish through this broker: HOST:PORT, or tls://host:port."
        ),
    ] = None
    into: Annotated[
        Path | None,
        typer.Option("--into", help="Instead: into this data directory, which no broker owns."),
    ] = None
    partitions: Annotated[
        int | None, typer.Option(min=1, help="Create what is not there: the topic, with so many partitions.")
    ] = None
    rate: Annotated[float | None, typer.Option(min=0.001, help="At most so many messages a second.")] = None
    tls_ca: Annotated[Path | None, typer.Option(help="Trust brokers whose certificate this signed (PEM).")] = None
    tls_cert: Annotated[Path | None, typer.Option(help="Our own certificate, where the broker asks for one (PEM).")] = (
        None
    )
    tls_key: Annotated[Path | None, typer.Option(help="Its private key (PEM).")] = None

    def options(self, topic: str | None, run: str | None) -> SinkOptions:
        """Return the options of the sink for a topic and the name of a run. Raises `InvalidRequest` if options
        contradict each other."""
        from penstock.client.wire.address import parse_url
        from penstock.spark.sink.options import SinkOptions

        if self.into is not None and self.rate is not None:
            raise InvalidRequest("--rate is for a broker, which others use too: --into writes at once")
        values = {
            "topic": topic,
            "run": run,
            "createPartitions": self.partitions,
            "rowsPerSecond": None if self.rate is None else f"{self.rate:f}",
            "tlsCa": self.tls_ca,
            "tlsCert": self.tls_cert,
            "tlsKey": self.tls_key,
        }
        values |= {"path": self.into} if self.into is not None else {"broker": str(parse_url(self.broker))}
        return SinkOptions.parse({name: str(value) for name, value in values.items() if value is not None})


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSelection:
    """The options that select messages of a topic."""

    from_: opt.From = "earliest"
    to: opt.To = None
    partition: Annotated[int | None, typer.Option(min=0, help="One partition. Default: all.")] = None
    only_type: Annotated[
        list[str] | None, typer.Option(help="Only types that match this glob, such as 'order.*'; may be repeated.")
    ] = None
    former_type: opt.FormerType = None
    only_key: Annotated[
        list[str] | None,
        typer.Option(
            "--only-key", "--key", help="Only keys that match this glob, such as 'customer-*'; may be repeated."
        ),
    ] = None

    def selection(self, where: str | None = None) -> Selection:
        from penstock.spark.jobs.transfer.selection import Selection

        return Selection(
            start=self.from_,
            stop=self.to,
            partition=self.partition,
            types=tuple(self.only_type or ()),
            keys=tuple(self.only_key or ()),
            where=where,
        )


def print_report(report: PublishReport, *, json: bool) -> None:
    """Print the report. Exits with the exit code for findings if messages were left out."""
    if json:
        print_json({**asdict(report), "seconds": round(report.seconds, 3)})
    else:
        typer.echo(_report_text(report))
    if report.lost:
        raise typer.Exit(EXIT_FINDINGS)


def _report_text(report: PublishReport) -> str:
    rate = f", {report.published / report.seconds:,.0f} a second" if report.published and report.seconds > 0 else ""
    known = f"; {report.known:,} were there already" if report.known else ""
    lost = lost_text(report.lost)
    return f"{many(report.published, 'message')} published into {report.target}{rate}{known}{lost} (run {report.run})"


def lost_text(lost: int) -> str:
    return f"; {lost:,} could not be read and are missing" if lost else ""


@contextmanager
def run_name_on_failure(run: str, *, generated: bool, json: bool) -> Iterator[None]:
    """If the context fails, add to the error how to resume the run; if it is interrupted, print it. A generated name of
    a run is printed at the start, since a process that is killed prints nothing at its end."""
    if generated:
        text = jsons.dumps({"run": run}) if json else f"penstock: run {run}; if it breaks off, --run {run} goes on"
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
    try:
        yield
    except PenstockError as error:
        hint = f"what is published stays; --run {run} goes on behind it"
        raise type(error)(f"{error.message}. ({hint})", **(error.details | {"run": run})) from None
    except (KeyboardInterrupt, SystemExit):
        sys.stderr.write(f"penstock: interrupted; --run {run} goes on behind what is published\n")
        raise


@contextmanager
def message_progress(what: str) -> Iterator[ReportMessages]:
    """Yield a function that shows the number of messages and the rate on standard error. It shows nothing if standard
    error is no terminal."""
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f} messages"),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
    )
    hidden = not sys.stderr.isatty()
    with Progress(*columns, console=console(stderr=True), transient=True, disable=hidden) as bar:
        task = bar.add_task(what, total=None, rate="")

        def report(done: int, total: int | None = None) -> None:
            speed = bar.tasks[task].speed
            bar.update(task, description=what, completed=done, total=total, rate=f"{speed:,.0f}/s" if speed else "")

        yield report


@contextmanager
def spark_job(spark: opt.SparkOptions, name: str) -> Iterator[tuple[SparkSession, Callable[[int], None]]]:
    """Start a Spark session, and yield it together with a function that shows the number of finished messages."""
    with message_progress("starting Spark") as report:
        session = spark.session(name)
        try:
            yield session, lambda done: report(done, None)
        finally:
            session.stop()
