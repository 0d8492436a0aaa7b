"""`penstock segment`: look into segment files, without touching them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import options as opt
from penstock.cli.output import bytes_text, console, print_json, progress, table, time_text
from penstock.cli.show import as_json, print_record
from penstock.core.errors import InvalidRequest
from penstock.core.names import TopicName
from penstock.core.places import AtId, AtOffset, AtTime, Earliest, Place, parse_place

if TYPE_CHECKING:
    from penstock.record.message import Record
    from penstock.storage.verify import Problem, Report

app = typer.Typer(help="Segment files: list, dump, verify. Nothing is changed.", no_args_is_help=True)

Targets = Annotated[
    list[str],
    typer.Argument(help="Segment files, directories (searched), or topics of the --data directory."),
]
Raw = Annotated[bool, typer.Option("--raw", help="Messages are any bytes, not Penstock envelopes.")]


def _paths(targets: list[str], data: Path) -> list[Path]:
    """Files as they are, directories searched, topics looked up."""
    from penstock.storage.readers import DataReader
    from penstock.storage.verify import segment_paths

    found: list[Path] = []
    for target in targets:
        path = Path(target)
        if path.is_dir():
            found += segment_paths(path)
        elif path.exists():
            found.append(path)
        elif data.is_dir():
            for folder in DataReader(data).topic(TopicName.parse(target)).paths:
                found += segment_paths(folder)
        else:
            raise InvalidRequest(
                f"{target}: no such file or directory, and {data} is no data directory to look it up in"
            )
    if not found:
        raise InvalidRequest(f"no segments in {', '.join(targets)}")
    return found


@app.command("ls")
def list_(targets: Targets, data: opt.Data = opt.DEFAULT_DATA, json: opt.Json = False) -> None:
    """List segments: first offset, records, size, state, times.

    Example: `penstock segment ls penstock-data`
    """
    from penstock.storage.disk import OsDisk
    from penstock.storage.readers import segment_facts

    rows = [segment_facts(OsDisk(), path) for path in _paths(targets, data)]
    if json:
        for row in rows:
            print_json(row)
        return
    columns = ("segment", "first offset", "records", "used", "file", "state", "first", "last")
    table("segments", columns, [_row(facts) for facts in rows])


def _row(facts: dict[str, Any]) -> list[Any]:
    times = [time_text(facts[name]) if facts[name] is not None else None for name in ("first_ms", "last_ms")]
    sizes = [bytes_text(facts["bytes"]), bytes_text(facts["file_bytes"])]
    return [facts["path"], facts["base"], facts["records"], *sizes, facts["state"], *times]


@app.command()
def dump(
    targets: Targets,
    data: opt.Data = opt.DEFAULT_DATA,
    from_: opt.From = "earliest",
    to: opt.To = None,
    type_: opt.TypeGlob = None,
    limit: opt.Limit = None,
    raw: Raw = False,
    json: opt.Json = False,
) -> None:
    """Show the records of segments: id, time, offset, type, key, schema, attributes, payload.

    Exit code 1 if something in them could not be read; it is named on standard error.

    Example: `penstock segment dump 00000000000000000000.seg --type 'order.*' --limit 10`
    """
    start, stop = parse_place(from_), parse_place(to) if to else None
    shown, bad = 0, 0
    errors = console(stderr=True)
    for path in _paths(targets, data):
        for item in _records(path, raw=raw):
            if isinstance(item, str):
                bad += 1
                errors.print(f"{path}: {item}", markup=False)
                continue
            if _before(item, start) or (type_ is not None and not fnmatchcase(item.message.type, type_)):
                continue
            if stop is not None and not _before(item, stop):
                break
            if json:
                print_json(_raw_json(item) if raw else as_json(item))
            else:
                print_record(item)
            shown += 1
            if shown == limit:
                raise typer.Exit(opt.EXIT_FINDINGS if bad else opt.EXIT_OK)
    if bad:
        raise typer.Exit(opt.EXIT_FINDINGS)


def _raw_json(record: Record) -> dict[str, Any]:
    kept = ("id", "publish_time", "type", "payload", "payload_base64")
    return {name: value for name, value in as_json(record).items() if name in kept}


def _records(path: Path, *, raw: bool) -> Iterator[Record | str]:
    """Good records, and in between a sentence for each thing that is not one."""
    from penstock.storage.disk import OsDisk
    from penstock.storage.readers import file_records

    return file_records(OsDisk(), path, raw=raw)


def _before(record: Record, place: Place) -> bool:
    """Whether a record lies before a place."""
    match place:
        case AtOffset(offset):
            return record.offset < offset
        case AtTime(unix_ms):
            return record.publish_time_ms < unix_ms
        case AtId(value):
            return record.id < value
        case Earliest():
            return False
        case _:
            return True


@app.command()
def verify(
    targets: Targets,
    data: opt.Data = opt.DEFAULT_DATA,
    raw: Raw = False,
    jobs: Annotated[int | None, typer.Option("--jobs", "-j", min=1, help="Default: one a core.")] = None,
    json: opt.Json = False,
) -> None:
    """Check every checksum, the order of ids, the density of offsets, each index against its segment.

    Exit code 0: clean; 1: findings; 2: could not run.

    Example: `penstock segment verify penstock-data --json`
    """
    paths = _paths(targets, data)
    reports = list(_verified(paths, raw=raw, jobs=jobs or os.cpu_count() or 1))
    from penstock.storage.verify import verify_sequence

    problems = [problem for report in reports for problem in report.problems]
    problems += verify_sequence(reports)
    if json:
        _print_json(reports, problems)
    else:
        _print_table(reports, problems)
    if problems:
        raise typer.Exit(opt.EXIT_FINDINGS)


def _verified(paths: list[Path], *, raw: bool, jobs: int) -> Iterator[Report]:
    """The kernels release the GIL, so threads are enough."""
    from penstock.storage.disk import OsDisk
    from penstock.storage.verify import verify_segment

    total = sum(path.stat().st_size for path in paths)
    with progress() as bar, ThreadPoolExecutor(jobs) as pool:
        task = bar.add_task("verifying", total=total)

        def advance(count: int) -> None:
            bar.advance(task, count)

        started = [pool.submit(verify_segment, OsDisk(), path, raw=raw, progress=advance) for path in paths]
        try:
            for _ in as_completed(started):
                pass
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        yield from (each.result() for each in started)


def _print_json(reports: list[Report], problems: list[Problem]) -> None:
    for problem in problems:
        where = {"segment": str(problem.path), "offset": problem.offset, "position": problem.position}
        print_json({"finding": where | {"what": problem.what}})
    summary = {
        "segments": len(reports),
        "records": sum(report.records for report in reports),
        "bytes": sum(report.size for report in reports),
        "torn_bytes": sum(report.torn_bytes for report in reports),
        "findings": len(problems),
    }
    print_json({"summary": summary})


def _print_table(reports: list[Report], problems: list[Problem]) -> None:
    if problems:
        rows = [(str(problem.path), problem.offset, problem.position, problem.what) for problem in problems]
        table("findings", ("segment", "offset", "position", "what"), rows)
    records, size = sum(report.records for report in reports), sum(report.size for report in reports)
    for report in reports:
        if report.torn_bytes and not any(problem.path == report.path for problem in report.problems):
            typer.echo(f"{report.path}: {report.torn_bytes} bytes of an unfinished write, cut at the next opening")
    verdict = _many(len(problems), "finding") if problems else "clean"
    typer.echo(f"{_many(len(reports), 'segment')}, {_many(records, 'record')}, {bytes_text(size)}: {verdict}")


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"
