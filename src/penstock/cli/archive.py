"""`penstock archive`: topics into tables of a lakehouse, exactly once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from penstock.cli import options as opt
from penstock.cli.jobs import naming_loss_option
from penstock.cli.output import bytes_text, many, print_json, table, time_text
from penstock.cli.stopping import Stopping, stopping
from penstock.cli.warehouse import Log, Warehouse, directory
from penstock.core.clock import SystemClock, now_ms
from penstock.core.errors import InvalidRequest
from penstock.core.places import parse_places
from penstock.core.units import parse_duration_ms, parse_size

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.lake.archive import ArchiveReport
    from penstock.spark.lake.batching import BatchReport


ALLOW_LOSS: Final = "--allow-loss"


@dataclass(frozen=True, slots=True, kw_only=True)
class What:
    """What becomes of payloads, and of what is missing."""

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


@opt.bundled
def archive(
    log: Log,
    to: Warehouse,
    what: What,
    spark: opt.Spark,
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
    range, before what the tables have. Only one archive at a time extends a table.

    Examples:

    `penstock archive --once`

    `penstock archive orders payments --warehouse lake --format iceberg --every 1m`

    `penstock archive orders --from 2026-01-01T00:00:00Z --to 2026-02-01T00:00:00Z`

    `penstock archive --url http://127.0.0.1:7452 --warehouse s3://bucket/lake --checkpoint /var/lib/archive`
    """
    is_backfill = from_ is not None or to_place is not None
    if is_backfill and (once or take_over or subscription):
        raise InvalidRequest("--once, --take-over and --subscription are not for a backfill (--from, --to)")
    options = _options(log, to, what, name=name, checkpoint=checkpoint)
    every_ms, batch_bytes = parse_duration_ms(every), parse_size(batch)
    told = _Told(json=json)
    with naming_loss_option(ALLOW_LOSS), _session(spark) as session, stopping() as asked:
        if is_backfill:
            report = _backfill(session, options, topics or [], from_, to_place, batch_bytes, told)
        else:
            report = _archive(
                session,
                options,
                topics or [],
                asked,
                told,
                once=once,
                take_over=take_over,
                every_seconds=every_ms / 1000,
                batch_bytes=batch_bytes,
                subscription=subscription,
                broker=broker,
            )
    told.report(report)
    raise typer.Exit(_exit_code(report, asked))


def _options(log: Log, to: Warehouse, what: What, *, name: str, checkpoint: Path | None) -> dict[str, Any]:
    """What both an archive and a backfill take."""
    from penstock.spark.lake.archive import checkpoint_of

    given = directory(checkpoint)
    location = log.location()
    checkpoint_of(to.warehouse, name, given)
    location.open()  # what is not there is said before Spark is started
    return {
        "location": location,
        "name": name,
        "checkpoint": given,
        "warehouse": to.warehouse,
        "kind": to.format,
        "storage_options": to.storage_options,
        "catalog": to.catalog_options,
        "one_table": what.one_table,
        "registry": what.registry,
        "decode": not what.no_decode,
        "keep_values": not what.drop_values,
        "fail_on_data_loss": not what.allow_loss,
    }


@contextmanager
def _session(spark: opt.Spark) -> Iterator[SparkSession]:
    if sys.stderr.isatty():
        sys.stderr.write("penstock: starting Spark ...\n")
    session = spark.session("penstock archive")
    try:
        yield session
    finally:
        session.stop()


def _archive(
    session: SparkSession, options: dict[str, Any], topics: list[str], asked: Stopping, told: _Told, **more: Any
) -> ArchiveReport:
    from penstock.spark.lake.archive import archive as run

    location = options.pop("location")
    return run(session, location, topics, told=told, stop=asked.asked, **options, **more)


def _backfill(
    session: SparkSession,
    options: dict[str, Any],
    topics: list[str],
    from_: str | None,
    to_place: str | None,
    batch_bytes: int,
    told: _Told,
) -> ArchiveReport:
    from penstock.spark.lake.archive import goal_of
    from penstock.spark.lake.backfill import backfill, backfill_checkpoint
    from penstock.spark.lake.checkpoint import Checkpoint

    start, stop = parse_places(from_ or "earliest", to_place)
    location, name, given = (options.pop(each) for each in ("location", "name", "checkpoint"))
    goal = goal_of(location, **options)
    with Checkpoint(backfill_checkpoint(goal.warehouse, name, given)) as held:
        return backfill(
            session, location, topics, goal, held, start=start, stop=stop, batch_bytes=batch_bytes, told=told
        )


def _exit_code(report: ArchiveReport, asked: Stopping) -> int:
    if report.lost:
        return opt.EXIT_FINDINGS
    return asked.exit_code


class _Told:
    """Tells of an archive: lines on standard error for people, objects on standard output for scripts."""

    def __init__(self, *, json: bool) -> None:
        self._json = json

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
        lost = f", {many(report.lost, 'message')} lost" if report.lost else ""
        rate = _rate(report.rows, report.seconds)
        typer.echo(
            f"{many(report.rows, 'row')} in {report.batches:,} {'batch' if report.batches == 1 else 'batches'},"
            f" {report.seconds:.1f} s ({rate:,} rows/s){lost}"
        )


def _rate(rows: int, seconds: float) -> int:
    return round(rows / seconds) if seconds else 0
