"""`penstock lake`: show and maintain the tables of a warehouse. No command starts Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from penstock.cli import options as opt
from penstock.cli.lake.warehouse import LakeOptions
from penstock.cli.output import bytes_text, confirm, many, print_facts, print_json, progress, table, time_text
from penstock.core.errors import InvalidRequest
from penstock.core.units import parse_duration_ms, parse_size

if TYPE_CHECKING:
    from penstock.spark.lake import LakeTable

app = typer.Typer(help="The tables of a warehouse: what they hold, and their upkeep.", no_args_is_help=True)

Tables = Annotated[list[str] | None, typer.Argument(help="NAME or NAMESPACE.NAME. Default: all.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")]

_HOUR_MS: Final = 3_600_000
_AGE_MS_MIN: Final = _HOUR_MS
"""The smallest age that may be given, one hour. A file may be in use by a query or a commit that has begun; few take
longer."""


@app.command()
@opt.bundled
def show(
    where: LakeOptions,
    name: Annotated[str | None, typer.Argument(help="One table, with its columns and positions. Default: all.")] = None,
    json: opt.Json = False,
) -> None:
    """Show tables: rows, files, who archives them, and up to which offset of each partition.

    Examples:

    `penstock lake show --warehouse lake`

    `penstock lake show orders --json`
    """
    tables = where.tables([name] if name else None)
    facts = [_facts(lake_table) for lake_table in tables]
    if json:
        for table_facts in facts:
            print_json(table_facts)
    elif name:
        _show_one(facts[0])
    elif not facts:
        typer.echo(f"no tables in {where.warehouse} yet: penstock archive makes them")
    else:
        shown = ("table", "format", "rows", "files")
        rows = [
            [
                *(table_facts[name] for name in shown),
                bytes_text(table_facts["bytes"]),
                table_facts["version"],
                table_facts["owner"],
            ]
            for table_facts in facts
        ]
        table(where.warehouse, ("table", "format", "rows", "files", "size", "version", "archived by"), rows)


def _facts(lake_table: LakeTable) -> dict[str, Any]:
    files = lake_table.live()
    history = lake_table.commit_history(1)
    return {
        "table": lake_table.name,
        "format": lake_table.table_format,
        "location": lake_table.folder.uri,
        "version": lake_table.version(),
        "owner": lake_table.owner(),
        "rows": sum(item.rows for item in files),
        "files": len(files),
        "bytes": sum(item.size for item in files),
        "partitioned_by": lake_table.partition_by(),
        "columns": {item.name: str(item.type) for item in lake_table.schema()},
        "positions": [
            {"topic": topic, "partition": partition, "first_offset": span.first, "next_offset": span.next}
            for (topic, partition), span in sorted(lake_table.spans().items())
        ],
        "last_commit_ms": history[-1][0] if history else None,
        "last_batch": history[-1][1].batch_id if history else None,
    }


def _show_one(facts: dict[str, Any]) -> None:
    last = facts["last_commit_ms"]
    shown = {key: value for key, value in facts.items() if not isinstance(value, dict | list)}
    shown |= {"bytes": bytes_text(facts["bytes"]), "last_commit_ms": None if last is None else time_text(last)}
    print_facts((key.replace("_ms", "").replace("_", " "), value) for key, value in shown.items())
    table("columns", ("column", "type"), facts["columns"].items())
    if facts["positions"]:
        rows = [list(each.values()) for each in facts["positions"]]
        table("archived offsets", ("topic", "partition", "first", "next"), rows)


@app.command()
@opt.bundled
def compact(
    where: LakeOptions,
    names: Tables = None,
    target: Annotated[str, typer.Option(help="The size of file to aim at.")] = "128MiB",
    dry_run: DryRun = False,
    json: opt.Json = False,
) -> None:
    """Rewrite small files of tables into few large ones; what is archived, and how far, stays the same.

    An archive may run meanwhile. The files that were replaced are deleted by `penstock lake vacuum`, later.

    Examples:

    `penstock lake compact --warehouse lake`

    `penstock lake compact orders --target 256MiB --dry-run`
    """
    target_bytes = parse_size(target)
    if not target_bytes:
        raise InvalidRequest(f"--target {target}: expected a size such as 128MiB", given=target)
    for lake_table in where.tables(names):
        _compact(lake_table, target_bytes, dry_run=dry_run, json=json)


def _compact(lake_table: LakeTable, target_bytes: int, *, dry_run: bool, json: bool) -> None:
    from dataclasses import asdict

    from penstock.spark.lake.tables import compaction

    planned = compaction.plan_compaction(lake_table, target_bytes=target_bytes)
    done = planned
    if not dry_run:
        with progress(shown=not json) as bar:
            task = bar.add_task(lake_table.name, total=planned.bytes_before)
            done = compaction.compact(
                lake_table, target_bytes=target_bytes, on_group=lambda size: bar.update(task, advance=size)
            )
    if json:
        print_json({"table": lake_table.name, "dry_run": dry_run, **asdict(done)})
    elif dry_run or not done.files_before:
        would = "would be rewritten" if done.files_before else "to rewrite"
        typer.echo(
            f"{lake_table.name}: {many(done.files_before, 'small file')} {would}, {bytes_text(done.bytes_before)}"
        )
    else:
        before = f"{many(done.files_before, 'file')}, {bytes_text(done.bytes_before)}"
        after = f"{many(done.files_after, 'file')}, {bytes_text(done.bytes_after)}"
        typer.echo(f"{lake_table.name}: {before}, became {after} with the same {many(done.rows, 'row')}")


@app.command()
@opt.bundled
def vacuum(
    where: LakeOptions,
    names: Tables = None,
    older_than: Annotated[str, typer.Option(help="Only files older than this: 7d, 12h.")] = "7d",
    dry_run: DryRun = False,
    yes: opt.Yes = False,
    json: opt.Json = False,
) -> None:
    """Delete files that belong to no version of a table in use: replaced by compaction, or never committed.

    Queries that began before are given the time of --older-than, an hour at least. Expired versions cannot be read
    any more afterwards.

    Examples:

    `penstock lake vacuum --warehouse lake --dry-run`

    `penstock lake vacuum orders --older-than 2d --yes`
    """
    hours = _hours(older_than)
    tables = where.tables(names)
    if not dry_run:
        confirm(f"delete unused files of {many(len(tables), 'table')} in {where.warehouse}?", yes=yes)
    for lake_table in tables:
        unused = lake_table.vacuum(hours=hours, dry_run=dry_run)
        if json:
            print_json({"table": lake_table.name, "dry_run": dry_run, "count": len(unused), "files": unused})
        else:
            typer.echo(f"{lake_table.name}: {many(len(unused), 'file')} {'would be deleted' if dry_run else 'deleted'}")


@app.command()
@opt.bundled
def expire(
    where: LakeOptions,
    names: Tables = None,
    older_than: Annotated[str, typer.Option(help="Versions older than this: 7d, 12h.")] = "7d",
    yes: opt.Yes = False,
    json: opt.Json = False,
) -> None:
    """Forget old versions of tables; the last one stays, and so does which batches and offsets are archived.

    Their files are deleted by `penstock lake vacuum`.

    Examples:

    `penstock lake expire --warehouse lake --older-than 30d --yes`
    """
    hours = _hours(older_than)
    tables = where.tables(names)
    confirm(f"forget versions of {many(len(tables), 'table')} that are older than {older_than}?", yes=yes)
    for lake_table in tables:
        count = lake_table.expire(hours=hours)
        if json:
            print_json({"table": lake_table.name, "expired": count})
        else:
            typer.echo(f"{lake_table.name}: {many(count, 'version')} forgotten")


def _hours(text: str) -> float:
    age_ms = parse_duration_ms(text)
    if age_ms < _AGE_MS_MIN:
        raise InvalidRequest(
            f"--older-than {text}: at least 1h, so that files which a running query or commit uses stay", given=text
        )
    return age_ms / _HOUR_MS
