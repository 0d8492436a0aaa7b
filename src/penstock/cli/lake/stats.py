"""`penstock stats`: messages and bytes of a log, by topic, type, producer, schema, hour."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock.cli import options as opt
from penstock.cli.exit_codes import EXIT_FINDINGS
from penstock.cli.lake.jobs import Topics, parse_topics, run_job
from penstock.cli.lake.warehouse import LogOptions
from penstock.cli.output import bytes_text, many, print_json, table


@opt.bundled
def stats(
    log: LogOptions,
    spark: opt.SparkOptions,
    topics: Topics = None,
    by: Annotated[
        str, typer.Option(help="What to group by: topic, partition, type, producer, schema, hour, day; with commas.")
    ] = "topic",
    json: opt.Json = False,
) -> None:
    """Count messages and bytes, with sizes, times and rates, by topic or other fields.

    Sizes are of payloads; the median is within one percent. Messages that are damaged are left out and counted on
    standard error; the exit code is then 1.

    Examples:

    `penstock stats --by type`

    `penstock stats orders.created --by producer,hour --json | jq -c 'select(.messages > 1000)'`
    """
    from penstock.spark.jobs.stats.stats import parse_by
    from penstock.spark.jobs.stats.stats import stats as run

    chosen, location, names = parse_by(by), log.location(), parse_topics(topics)
    location.open()  # a missing log is reported before Spark is started
    result = run_job(
        spark, "penstock stats", lambda session, stage: run(session, location, names, by=chosen, stage=stage)
    )
    rows = result.as_dicts()
    if json:
        for row in rows:
            print_json(row)
    else:
        numbers = ("messages", "size", "smallest", "median", "largest", "first", "last", "messages/s", "bytes/s")
        table("stats", (*chosen, *numbers), [_row(row, chosen) for row in rows])
        typer.echo(many(result.count, "message"))
    if result.lost:
        typer.echo(f"penstock: {many(result.lost, 'message')} could not be read: penstock audit", err=True)
        raise typer.Exit(EXIT_FINDINGS)


def _row(row: dict[str, Any], by: tuple[str, ...]) -> list[Any]:
    return [
        *(row[name] for name in by),
        row["messages"],
        bytes_text(row["bytes"]),
        row["size_min"],
        row["size_median"],
        row["size_max"],
        row["first_time"],
        row["last_time"],
        row["messages_per_second"],
        None if row["bytes_per_second"] is None else bytes_text(row["bytes_per_second"]),
    ]
