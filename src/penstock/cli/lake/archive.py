"""`penstock archive`: archive topics into tables of a lakehouse, each message exactly once."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from penstock.cli import options as opt
from penstock.cli.exit_codes import EXIT_FINDINGS
from penstock.cli.lake.jobs import naming_loss_option
from penstock.cli.lake.warehouse import LogOptions, WarehouseOptions, directory
from penstock.cli.output import bytes_text, many, on_one_line, print_json, table, time_text
from penstock.cli.signals import StopRequest, stop_on_signals
from penstock.core.clock import SystemClock, now_ms
from penstock.core.errors import InvalidRequest
from penstock.core.positions import parse_positions
from penstock.core.units import parse_duration_ms, parse_size

if TYPE_CHECKING:
    from penstock.core.positions import Position
    from penstock.spark.files.location import Location
    from penstock.spark.lake.archive.batch_commit import BatchReport, Destination, TableReport
    from penstock.spark.lake.archive.engines import Backlog, Engine
    from penstock.spark.lake.archive.run import ArchiveReport


ALLOW_LOSS: Final = "--allow-loss"


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadOptions:
    """The options for how payloads are decoded, and for missing messages."""

    one_table: Annotated[bool, typer.Option("--one-table", help="All topics into one table, payloads as they are.")] = (
        False
    )
    registry: Annotated[
        str | None, typer.Option(help="Where schemas are: a URL, or an export. Default: with the data.")
    ] = None
    no_decode: Annotated[bool, typer.Option("--no-decode", help="Leave payloads as they are, schema or not.")] = False
    drop_values: Annotated[
        bool,
        typer.Option("--drop-values", help="Keep of decoded payloads the columns alone: what no schema names is lost."),
    ] = False
    allow_loss: Annotated[
        bool, typer.Option(ALLOW_LOSS, help="Count messages that are lost or damaged, instead of ending there.")
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """The options for the engine that does the work: this process, or Spark."""

    engine: Annotated[
        str, typer.Option(help="local: this process; spark: its workers; auto: Spark where there is more to do.")
    ] = "auto"
    local_max: Annotated[
        str, typer.Option(envvar="PENSTOCK_LOCAL_MAX", help="Up to so much new log, auto is local.")
    ] = "64MiB"  # done in the time that Spark takes to start, and a few seconds

    def check(self) -> None:
        """Check the options. Raises `InvalidRequest` for an unknown engine or an invalid size."""
        from penstock.spark.lake.archive.engines import check_engine

        check_engine(self.engine)
        parse_size(self.local_max)

    def is_small(self, backlog: Backlog | None) -> bool:
        """Return True if the backlog is small enough for this process. None stands for an archive that runs without
        end: that is never small."""
        return backlog is not None and backlog.bytes <= parse_size(self.local_max)

    def engine_for(self, backlog: Backlog | None) -> str:
        from penstock.spark.lake.archive.engines import AUTO, LOCAL, SPARK

        if self.engine != AUTO:
            return self.engine
        return LOCAL if self.is_small(backlog) else SPARK


@opt.bundled
def archive(
    log: LogOptions,
    to: WarehouseOptions,
    payloads: PayloadOptions,
    engines: EngineOptions,
    spark: opt.SparkOptions,
    topics: Annotated[list[str] | None, typer.Argument(help="The topics. Default: all, new ones too.")] = None,
    once: Annotated[bool, typer.Option("--once", help="End when all that is there now is archived.")] = False,
    from_: Annotated[
        str | None, typer.Option("--from", help="Backfill: from an offset, a time, an id, or earliest.")
    ] = None,
    to_place: Annotated[str | None, typer.Option("--to", help="Backfill: up to there. Default: the end.")] = None,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Go on, where the tables end, with what another archive did.")
    ] = False,
    every: Annotated[str, typer.Option(help="Time between batches, such as 10s or 5m.")] = "10s",
    batch: Annotated[str, typer.Option(help="At most so much log in a batch.")] = "1GiB",
    name: Annotated[str, typer.Option(help="Of this archive: several may write to one warehouse.")] = "archive",
    checkpoint: Annotated[Path | None, typer.Option(help="Its directory. Default: in a local warehouse.")] = None,
    subscription: Annotated[
        str | None, typer.Option(help="Show the progress at a broker as this subscription; retention can wait for it.")
    ] = None,
    broker: Annotated[str | None, typer.Option(help="That broker: HOST:PORT, or tcp://..., tls://...")] = None,
    json: opt.Json = False,
) -> None:
    """Archive topics into Delta, Iceberg or Parquet tables, each message exactly once.

    Runs until Ctrl-C or SIGTERM, or with --once until all is archived, and goes on where it was whatever ended it.
    Every topic has a table NAMESPACE.TOPIC, partitioned by `_day`: system columns, and those of the topic's schemas.
    Payloads that do not decode go to NAMESPACE.TOPIC__bad with the reason. With --from or --to it is a backfill of that
    range, before what the tables have. Only one archive at a time extends a table. With --once and for a backfill,
    Spark is started only where there is much to do (--engine, --local-max).

    Examples:

    `penstock archive --once`

    `penstock archive orders payments --warehouse lake --format iceberg --every 1m`

    `penstock archive orders --from 2026-01-01T00:00:00Z --to 2026-02-01T00:00:00Z`

    `penstock archive --url http://127.0.0.1:7452 --warehouse s3://bucket/lake --checkpoint /var/lib/archive`
    """
    is_backfill = from_ is not None or to_place is not None
    if is_backfill and (once or take_over or subscription):
        raise InvalidRequest("--once, --take-over and --subscription are not for a backfill (--from, --to)")
    engines.check()
    every_ms, batch_bytes, checkpoint_dir = parse_duration_ms(every), parse_size(batch), directory(checkpoint)
    on_batch = _Printer(json=json)
    if is_backfill:
        places = parse_positions(from_ or "earliest", to_place)
        prepared_archive = _backfill(
            log, to, payloads, topics or [], places, name, checkpoint_dir, batch_bytes, on_batch
        )
    else:
        kept = _checkpoint(to, name, checkpoint_dir)
        more: dict[str, Any] = {"once": once, "take_over": take_over, "subscription": subscription, "broker": broker}
        more |= {"every_seconds": every_ms / 1000, "batch_bytes": batch_bytes}
        prepared_archive = _archive(log, to, payloads, topics or [], kept, on_batch, **more)
    with (
        naming_loss_option(ALLOW_LOSS),
        prepared_archive as run,
        _engine(engines, spark, run.backlog, on_batch) as used,
        stop_on_signals() as stop,
    ):
        report = run.run(used, stop.requested)
    on_batch.report(report)
    raise typer.Exit(_exit_code(report, stop))


@dataclass(frozen=True, slots=True)
class _PreparedArchive:
    """An archive or a backfill whose options are checked and which has not started."""

    backlog: Backlog | None
    run: Callable[[Engine, threading.Event], ArchiveReport]


@contextmanager
def _archive(
    log: LogOptions,
    to: WarehouseOptions,
    payloads: PayloadOptions,
    topics: list[str],
    checkpoint: Path,
    on_batch: _Printer,
    **more: Any,
) -> Iterator[_PreparedArchive]:
    from penstock.spark.lake.archive.run import ArchiveRequest, open_archive

    location = log.location()
    destination = _destination(location, to, payloads)
    request = ArchiveRequest(
        location=location, topics=tuple(topics), destination=destination, checkpoint=checkpoint, **more
    )
    with open_archive(request, on_batch) as archive:
        yield _PreparedArchive(archive.backlog(), archive.run)


@contextmanager
def _backfill(
    log: LogOptions,
    to: WarehouseOptions,
    payloads: PayloadOptions,
    topics: list[str],
    places: tuple[Position, Position | None],
    name: str,
    checkpoint: str | None,
    batch_bytes: int,
    on_batch: _Printer,
) -> Iterator[_PreparedArchive]:
    from penstock.spark.lake.archive.backfill import backfill_checkpoint, open_backfill

    location = log.location()
    destination = _destination(location, to, payloads)
    kept = backfill_checkpoint(to.warehouse, name, checkpoint)
    with open_backfill(location, topics, destination, kept, *places) as filling:
        yield _PreparedArchive(filling.backlog(), partial(filling.run, batch_bytes=batch_bytes, on_batch=on_batch))


def _checkpoint(to: WarehouseOptions, name: str, checkpoint_dir: str | None) -> Path:
    from penstock.spark.lake.archive.run import checkpoint_of

    return checkpoint_of(to.warehouse, name, checkpoint_dir)


def _destination(location: Location, to: WarehouseOptions, payloads: PayloadOptions) -> Destination:
    from penstock.spark.lake.archive.run import destination_of

    return destination_of(
        location,
        warehouse=to.warehouse,
        table_format=to.format,
        storage_options=to.storage_options,
        catalog=to.catalog_options,
        one_table=payloads.one_table,
        registry=payloads.registry,
        decode=not payloads.no_decode,
        keep_values=not payloads.drop_values,
        fail_on_data_loss=not payloads.allow_loss,
    )


@contextmanager
def _engine(
    engines: EngineOptions, spark: opt.SparkOptions, backlog: Backlog | None, on_batch: _Printer
) -> Iterator[Engine]:
    """Choose the engine, print its name, and yield it. Spark, if chosen, is stopped when the context ends."""
    from penstock.spark.lake.archive.engines import LOCAL, LOCAL_ENGINE, SparkEngine

    name = engines.engine_for(backlog)
    on_batch.engine(name, backlog)
    if name == LOCAL:
        yield LOCAL_ENGINE
        return
    if sys.stderr.isatty():
        sys.stderr.write("penstock: starting Spark ...\n")
    session = spark.session("penstock archive", quick=engines.is_small(backlog))
    try:
        yield SparkEngine(session)
    finally:
        session.stop()


def _exit_code(report: ArchiveReport, stop: StopRequest) -> int:
    if report.lost:
        return EXIT_FINDINGS
    return stop.exit_code


class _Printer:
    """The printer of an archive's progress: text on standard error, or JSON on standard output with `--json`."""

    def __init__(self, *, json: bool) -> None:
        self._json = json

    def engine(self, name: str, backlog: Backlog | None) -> None:
        if self._json:
            return
        if backlog is None:
            amount = "until it is stopped"
        elif not backlog.messages:
            amount = "nothing new"
        else:
            amount = f"{many(backlog.messages, 'new message')}, {bytes_text(backlog.bytes)}"
        sys.stderr.write(f"engine: {name}, {amount}\n")

    def __call__(self, batch: BatchReport) -> None:
        if self._json:
            print_json({"batch": batch.batch_id, "rows": batch.rows, "seconds": round(batch.seconds, 3)})
            return
        rate = f", {batch.rows / batch.seconds:,.0f} rows/s" if batch.seconds and batch.rows else ""
        tables = many(len(batch.tables), "table")
        again = " (its files were there)" if batch.repeated else ""
        now = time_text(now_ms(SystemClock()))
        sys.stderr.write(
            f"{now} batch {batch.batch_id}: {many(batch.rows, 'row')} in {tables}, {batch.seconds:.1f} s{rate}{again}\n"
        )

    def report(self, report: ArchiveReport) -> None:
        if self._json:
            print_json(report.as_dict())
            return
        rows = [
            [name, each.rows, each.bad, each.files, bytes_text(each.bytes), _rate(each.rows, report.seconds)]
            for name, each in sorted(report.tables.items())
        ]
        if rows:
            table("archived", ("table", "rows", "bad", "files", "size", "rows/s"), rows)
        for name, each in sorted(report.tables.items()):
            self._bad(name, each)
        lost = f", {many(report.lost, 'message')} lost" if report.lost else ""
        rate = _rate(report.rows, report.seconds)
        typer.echo(
            f"{many(report.rows, 'row')} in {report.batches:,} {'batch' if report.batches == 1 else 'batches'},"
            f" {report.seconds:.1f} s ({rate:,} rows/s){lost}"
        )

    def _bad(self, name: str, report: TableReport) -> None:
        """Print the offsets of records whose payload could not be decoded, and the reasons."""
        if not report.bad:
            return
        from penstock.spark.lake.tables.names import bad_table_of

        places = "; ".join(_offsets(place, *edges) for place, edges in sorted(report.why.places.items()))
        typer.echo(f"{many(report.bad, 'bad record')} of {name} in {bad_table_of(name)}: {places}")
        for reason, count in report.why.top():
            typer.echo(f"{count:>9,}  {on_one_line(reason)}")


def _offsets(place: str, first: int, last: int) -> str:
    return f"{place} offset {first}" if first == last else f"{place} offsets {first} to {last}"


def _rate(rows: int, seconds: float) -> int:
    return round(rows / seconds) if seconds else 0
