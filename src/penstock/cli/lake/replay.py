"""`penstock replay`: publish messages of a log, or of its archive, once more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

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
from penstock.cli.lake.warehouse import LogOptions, TableAccess
from penstock.core.names import TopicName

if TYPE_CHECKING:
    from penstock.spark.jobs.transfer.selection import Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveSource(TableAccess):
    """The options for an archive that is read in place of the log."""

    archive: Annotated[
        str | None,
        typer.Option(
            metavar="WAREHOUSE", help="Read the archive there instead: a directory, or s3://..., gs://, az://."
        ),
    ] = None

    def origin(self, log: LogOptions) -> Origin:
        """Return the source of the messages: the archive if there is one, else the log. Raises `InvalidRequest` if the
        log does not exist, or the archive's options are not valid."""
        from penstock.spark.jobs.transfer.selection import ArchiveOrigin, LogOrigin

        if self.archive is None:
            location = log.location()
            location.open()  # a missing log is reported before Spark is started
            return LogOrigin(location)
        self.check(self.archive)
        return ArchiveOrigin(
            warehouse=self.archive,
            table_format=self.format,
            storage_options=self.storage_options,
            catalog=self.catalog_options or {},
        )


Topics = Annotated[list[str], typer.Argument(metavar="TOPIC...", help="The topics to read.")]


@opt.bundled
def replay(
    topics: Topics,
    log: LogOptions,
    archive: ArchiveSource,
    which: MessageSelection,
    target: PublishTarget,
    spark: opt.SparkOptions,
    to_topic: Annotated[str, typer.Option("--to-topic", "-t", help="The topic to publish into.")],
    where: Annotated[str | None, typer.Option(help="A condition in Spark's SQL, on the columns of the log.")] = None,
    unmarked: Annotated[
        bool, typer.Option("--unmarked", help="Do not add the attributes that say where a message was.")
    ] = False,
    skip_lost: SkipLost = False,
    run: Run = None,
    json: opt.Json = False,
) -> None:
    """Publish messages of a log, or of its archive, again: into a topic, each once however often it is started.

    Messages keep key, payload, type, attributes and schema, and the order of their partition; with --rate they come in
    the order of time. The attributes x-replay-run and x-replayed-topic, -partition, -offset and -time say where they
    were. A run that ended half-way goes on where it was when it is started again under its name and with the same
    options. Exit code 1 if something was left out with --skip-lost.

    Examples:

    `penstock replay orders --to-topic orders.again --from 2026-01-31T12:00:00Z --to 2026-01-31T13:00:00Z`

    `penstock replay orders -t repaired --only-type 'order.*' --where "schema_version < 3" --rate 500 --run repair-7`

    `penstock replay orders -t orders --archive warehouse --broker 127.0.0.1:7450 --only-key customer-17`

    `penstock replay orders -t orders --into other-data --partitions 4 --json`
    """
    from penstock.spark.jobs.transfer.replay import new_run
    from penstock.spark.jobs.transfer.replay import replay as job

    name = run or new_run()
    selection, names = which.selection(where), [TopicName.parse(topic) for topic in topics]
    options, origin = target.options(to_topic, name), archive.origin(log)
    naming = run_name_on_failure(name, generated=run is None, json=json)
    with naming, naming_loss_option(SKIP_LOST), spark_job(spark, "penstock replay") as (session, progress):
        report = job(
            session,
            origin,
            names,
            options,
            selection=selection,
            run=name,
            mark=not unmarked,
            skip_lost=skip_lost,
            progress=progress,
        )
    print_report(report, json=json)
