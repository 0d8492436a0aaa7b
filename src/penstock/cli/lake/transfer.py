"""`penstock export | import`: copy topics to files of other formats or to another data directory, and back."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import options as opt
from penstock.cli.exit_codes import EXIT_FINDINGS
from penstock.cli.lake.copy_report import (
    SKIP_LOST,
    MessageSelection,
    PublishTarget,
    Run,
    SkipLost,
    lost_text,
    message_progress,
    print_report,
    run_name_on_failure,
)
from penstock.cli.lake.jobs import naming_loss_option, parse_topics
from penstock.cli.lake.warehouse import LogOptions
from penstock.cli.output import bytes_text, many, print_json
from penstock.core.errors import InvalidRequest
from penstock.core.names import TopicName

if TYPE_CHECKING:
    from penstock.spark.files.location import Location
    from penstock.spark.jobs.transfer.transfer import ExportReport

FormatOption = Annotated[
    str | None,
    typer.Option("--format", "-f", help="parquet, jsonl, csv or directory. Default: as the name of the file says."),
]


@opt.bundled
def export(
    log: LogOptions,
    which: MessageSelection,
    output: Annotated[Path, typer.Argument(help="The file, or the data directory.")],
    topics: Annotated[list[str] | None, typer.Argument(help="Topics. Default: all.")] = None,
    format_: FormatOption = None,
    skip_lost: SkipLost = False,
    run: Run = None,
    json: opt.Json = False,
) -> None:
    """Write messages with all their fields into a file: Parquet, JSON lines or CSV; or copy topics into a directory.

    In JSON and CSV a payload or key that is text stands as it is, any other in base64, and it says which. A file is
    there once it is complete. Exit code 1 if something was left out with --skip-lost.

    Examples:

    `penstock export orders.parquet orders`

    `penstock export january.jsonl orders payments --from 2026-01-01T00:00:00Z --to 2026-02-01T00:00:00Z`

    `penstock export orders.csv orders --only-type 'order.*' --only-key 'customer-17' --json`

    `penstock export copy-of-data --format directory`
    """
    from penstock.spark.jobs.transfer.file_formats import FileFormat, format_of
    from penstock.spark.jobs.transfer.transfer import copy
    from penstock.spark.jobs.transfer.transfer import export as job

    location, selection, kind = log.location(), which.selection(), format_of(output, format_)
    names = _topic_names(location, topics)
    if kind is FileFormat.DIRECTORY:
        from penstock.spark.jobs.transfer.replay import new_run

        name = run or new_run()
        naming, options = (
            run_name_on_failure(name, generated=run is None, json=json),
            PublishTarget(into=output).options(None, name),
        )
        with naming, naming_loss_option(SKIP_LOST), message_progress("copying") as progress:
            report = copy(
                location, names, options, selection=selection, run=name, skip_lost=skip_lost, progress=progress
            )
        print_report(report, json=json)
        return
    if run is not None:
        raise InvalidRequest("--run is for a copy into a directory: a file is written anew each time")
    with naming_loss_option(SKIP_LOST), message_progress("exporting") as progress:
        exported = job(location, names, output, kind, selection=selection, skip_lost=skip_lost, progress=progress)
    _print_exported(exported, json=json)


def _topic_names(location: Location, topics: list[str] | None) -> list[TopicName]:
    names = list(parse_topics(topics)) or [topic.name for topic in location.open().topics()]
    if not names:
        raise InvalidRequest(f"{location} has no topics")
    return names


def _print_exported(exported: ExportReport, *, json: bool) -> None:
    if json:
        print_json({**asdict(exported), "seconds": round(exported.seconds, 3)})
    else:
        size, lost = bytes_text(exported.bytes), lost_text(exported.lost)
        typer.echo(f"{many(exported.rows, 'message')} exported to {exported.path} ({exported.format}, {size}){lost}")
    if exported.lost:
        raise typer.Exit(EXIT_FINDINGS)


@opt.bundled
def import_(
    target: PublishTarget,
    source: Annotated[Path, typer.Argument(help="What `export` wrote, or any such file; or a data directory.")],
    topic: Annotated[str | None, typer.Argument(help="Into this topic. Default: those that the file names.")] = None,
    format_: FormatOption = None,
    keep_partitions: Annotated[
        bool, typer.Option("--keep-partitions", help="With --into: each message to the partition that the file names.")
    ] = False,
    skip_lost: Annotated[
        bool, typer.Option(SKIP_LOST, help="Of a data directory: leave out what cannot be read, and count it.")
    ] = False,
    run: Run = None,
    json: opt.Json = False,
) -> None:
    """Publish the messages of a file, or of another data directory, through a broker or into a data directory.

    A file needs a payload for every message (value, or value_base64) and may have all else that `export` writes. Ids,
    offsets and times are given anew; the file keeps those it has. Under the name of its run an import that ended
    half-way goes on where it was. Exit code 1 if something of a data directory was left out with --skip-lost.

    Examples:

    `penstock import orders.parquet`

    `penstock import customers.csv customers --partitions 4`

    `penstock import january.jsonl --into other-data --run january --json`

    `penstock import old-data --broker 10.0.0.7:7450`
    """
    from penstock.spark.files.location import Location
    from penstock.spark.jobs.transfer.file_formats import FileFormat, check_file, format_of
    from penstock.spark.jobs.transfer.replay import new_run
    from penstock.spark.jobs.transfer.transfer import copy, import_file

    name, kind = run or new_run(), format_of(source, format_)
    if target.into is not None and kind is not FileFormat.DIRECTORY:
        target = replace(
            target, partitions=target.partitions or 1
        )  # topics of a directory keep their number of partitions
    options = target.options(topic, name)
    if kind is not FileFormat.DIRECTORY:
        check_file(source)  # a missing file is reported before the run begins
    naming = run_name_on_failure(name, generated=run is None, json=json)
    with naming, naming_loss_option(SKIP_LOST), message_progress("importing") as progress:
        if kind is FileFormat.DIRECTORY:
            location = Location.parse(path=str(source))
            topics = _topic_names(location, None)
            report = copy(location, topics, options, run=name, skip_lost=skip_lost, progress=progress)
        else:
            report = import_file(source, kind, options, run=name, keep_partitions=keep_partitions, progress=progress)
    print_report(report, json=json)
