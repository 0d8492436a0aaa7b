"""`penstock compact`: write the latest message of every key to a topic or a table."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock.cli import options as opt
from penstock.cli.lake.copy_report import (
    SKIP_LOST,
    MessageSelection,
    PublishTarget,
    Run,
    SkipLost,
    print_report,
    run_name_on_failure,
    spark_job,
)
from penstock.cli.lake.jobs import naming_loss_option
from penstock.cli.lake.replay import ArchiveSource, Topics
from penstock.cli.lake.warehouse import LogOptions, pairs
from penstock.core.errors import InvalidRequest
from penstock.core.names import TopicName


@opt.bundled
def compact(
    topics: Topics,
    log: LogOptions,
    archive: ArchiveSource,
    which: MessageSelection,
    target: PublishTarget,
    spark: opt.SparkOptions,
    to_topic: Annotated[str | None, typer.Option("--to-topic", "-t", help="The topic to publish into.")] = None,
    to_table: Annotated[str | None, typer.Option("--to-table", help="Instead: a table of --warehouse.")] = None,
    warehouse: Annotated[
        str, typer.Option("--warehouse", "-w", envvar="PENSTOCK_WAREHOUSE", help="Of the table.")
    ] = "penstock-lake",
    table_format: Annotated[str, typer.Option(help="Of the table: delta, iceberg or parquet.")] = "delta",
    keep_tombstones: Annotated[
        bool, typer.Option("--keep-tombstones", help="Keep an empty payload that is the latest of its key.")
    ] = False,
    drop_keyless: Annotated[bool, typer.Option("--drop-keyless", help="Leave out messages without a key.")] = False,
    skip_lost: SkipLost = False,
    run: Run = None,
    json: opt.Json = False,
) -> None:
    """Publish the latest message of every key into a new topic, or write it into a table of the lake.

    An empty payload is a tombstone: the key is gone, and nothing of it is left. Messages without a key are kept. All
    messages keep key, payload, type, attributes and schema. Exit code 1 if something was left out with --skip-lost.

    Examples:

    `penstock compact customers --to-topic customers.latest --partitions 1`

    `penstock compact customers --to-table customers_latest --warehouse lake --to 2026-02-01T00:00:00Z`

    `penstock compact customers -t customers.latest --keep-tombstones --drop-keyless --run weekly-6 --json`
    """
    from penstock.spark.jobs.transfer.compact import Keyless, Tombstones
    from penstock.spark.jobs.transfer.compact import compact as job
    from penstock.spark.jobs.transfer.replay import new_run

    if (to_topic is None) == (to_table is None):
        raise InvalidRequest("into what? Give one of --to-topic and --to-table")
    name = run or new_run()
    selection, names = which.selection(), [TopicName.parse(topic) for topic in topics]
    destination: Any = (
        target.options(to_topic, name) if to_table is None else _table(table_format, warehouse, to_table, archive)
    )
    origin = archive.origin(log)
    naming = run_name_on_failure(name, generated=run is None, json=json)
    with naming, naming_loss_option(SKIP_LOST), spark_job(spark, "penstock compact") as (session, progress):
        report = job(
            session,
            origin,
            names,
            destination,
            selection=selection,
            tombstones=Tombstones.KEEP if keep_tombstones else Tombstones.DROP,
            keyless=Keyless.DROP if drop_keyless else Keyless.KEEP,
            run=name,
            skip_lost=skip_lost,
            progress=progress,
        )
    print_report(report, json=json)


def _table(table_format: str, warehouse: str, name: str, archive: ArchiveSource) -> Any:
    from penstock.spark.lake.tables.table_factory import open_table

    named = {} if archive.catalog is None else {"name": archive.catalog}
    return open_table(
        table_format,
        warehouse,
        name,
        storage_options=pairs("--storage-option", archive.storage_option),
        catalog=(named | pairs("--catalog-option", archive.catalog_option)) or None,
    )
