"""`penstock audit`: check every message of a log, and compare the log with its archive."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import options as opt
from penstock.cli.exit_codes import EXIT_FINDINGS
from penstock.cli.lake.jobs import Topics, parse_topics, run_job, write_file
from penstock.cli.lake.warehouse import LogOptions, TableAccess
from penstock.cli.output import bytes_text, many, print_json, table
from penstock.core.errors import InvalidRequest

if TYPE_CHECKING:
    from penstock.spark.jobs.audit.archive_side import Warehouse
    from penstock.spark.jobs.audit.run import Audit

_FINDINGS_SHOWN = 50
"""The most findings shown on a terminal; the HTML page and the JSON have more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedArchive(TableAccess):
    """The options for the archive with which the log is compared. Without --against there is none."""

    against: Annotated[
        str | None,
        typer.Option(
            metavar="WAREHOUSE", help="Compare with the archive there: a directory, or s3://..., gs://, az://."
        ),
    ] = None

    def warehouse(self) -> Warehouse | None:
        """Return the warehouse of that archive; None without --against. Raises `InvalidRequest` if other options of an
        archive are set without --against."""
        if self.against is None:
            if self.storage_option or self.catalog or self.catalog_option:
                raise InvalidRequest("--storage-option and --catalog are of an archive: name it with --against")
            return None
        from penstock.spark.jobs.audit.archive_side import Warehouse

        self.check(self.against)
        storage, catalog = self.storage_options, self.catalog_options or {}
        return Warehouse(self.against, self.format, tuple(storage.items()), tuple(catalog.items()))


@opt.bundled
def audit(
    log: LogOptions,
    archive: ComparedArchive,
    spark: opt.SparkOptions,
    topics: Topics = None,
    schemas: Annotated[bool, typer.Option("--schemas", help="Hold every payload against the schema it names.")] = False,
    registry: Annotated[
        str | None, typer.Option(help="Where schemas are: a URL, or an export. Default: with the data.")
    ] = None,
    duplicates: Annotated[
        bool, typer.Option("--duplicates", help="Look for repeated requests across partitions, too: a shuffle.")
    ] = False,
    html: Annotated[Path | None, typer.Option(help="Write the report as a page, too.")] = None,
    json: opt.Json = False,
) -> None:
    """Check every checksum, the order of ids, the density of offsets, duplicates; and that the archive equals the log.

    The log may be in use: what is written while the audit runs is not looked at. The archive is compared up to where it
    has come; the rest is reported as not yet archived. Exit code 0: clean; 1: findings; 2: could not.

    Examples:

    `penstock audit --data penstock-data`

    `penstock audit orders.created --against warehouse --html audit.html`

    `penstock audit --schemas --duplicates --json | jq .findings`
    """
    from penstock.spark.jobs.audit.report.fields import as_dict
    from penstock.spark.jobs.audit.run import AuditRequest
    from penstock.spark.jobs.audit.run import audit as run

    location = log.location()
    request = AuditRequest(
        topics=parse_topics(topics),
        against=archive.warehouse(),
        schemas=schemas,
        registry=registry,
        duplicates=duplicates,
    )
    location.open()  # a missing log is reported before Spark is started
    _check_target(html)
    result = run_job(spark, "penstock audit", lambda session, stage: run(session, location, request, stage=stage))
    report = as_dict(result)
    if html is not None:
        from penstock.spark.jobs.audit.report.page import page

        write_file(html, page(report))
    if json:
        print_json(report)
    else:
        _print(result, report, html)
    if not result.is_clean:
        raise typer.Exit(EXIT_FINDINGS)


def _check_target(html: Path | None) -> None:
    """Check before the audit, which may take an hour, that the HTML page can be written to this path."""
    if html is not None and not html.absolute().parent.is_dir():
        raise InvalidRequest(f"--html {html}: there is no directory {html.absolute().parent}")


def _print(result: Audit, report: dict[str, Any], html: Path | None) -> None:
    if result.found.listed:
        rows = [_row(each) for each in report["findings"]["told"][:_FINDINGS_SHOWN]]
        table("findings", ("kind", "topic", "partition", "offset", "messages", "what"), rows)
        more = result.found.count - len(rows)
        if more > 0:
            typer.echo(f"... and {more:,} more: --html or --json has them")
    table("topics", ("topic", "messages", "size", "first", "last"), [_topic(each) for each in report["topics"]])
    if result.request.against is not None:
        _print_archive(report)
    for note in result.notes:
        typer.echo(note)
    summary = report["summary"]
    verdict = "clean" if result.is_clean else many(result.found.count, "finding")
    speed = bytes_text(summary["bytes"] / max(result.seconds, 1e-9))
    typer.echo(f"{many(summary['messages'], 'message')}, {bytes_text(summary['bytes'])}: {verdict} ({speed}/s)")
    if html is not None:
        typer.echo(f"report: {html}")


def _row(finding: dict[str, Any]) -> list[Any]:
    return [finding[name] for name in ("kind", "topic", "partition", "offset", "count", "what")]


def _topic(topic: dict[str, Any]) -> list[Any]:
    return [topic["topic"], topic["messages"], bytes_text(topic["bytes"]), topic["first_time"], topic["last_time"]]


def _print_archive(report: dict[str, Any]) -> None:
    rows = [
        [topic["topic"], partition["partition"], archive["table"], archive["messages"], _equal(archive), archive["lag"]]
        for topic in report["topics"]
        for partition in topic["partitions"]
        if (archive := partition["archive"])
    ]
    table("archive", ("topic", "partition", "table", "compared", "equal", "lag"), rows)


def _equal(archive: dict[str, Any]) -> str:
    if not archive["equal"]:
        return "no"
    return "yes" if archive["payloads"] else "yes, without payloads"
