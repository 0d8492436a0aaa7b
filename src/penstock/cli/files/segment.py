"""`penstock segment`: show and check segment files, without changing them."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import options as opt
from penstock.cli.exit_codes import EXIT_FINDINGS, EXIT_OK
from penstock.cli.message_format import as_json, print_record
from penstock.cli.output import bytes_text, many, print_json, progress, table, time_text
from penstock.core.errors import InvalidRequest, PenstockError
from penstock.core.names import TopicName
from penstock.core.positions import Position, parse_positions

if TYPE_CHECKING:
    from penstock.record.message import Record
    from penstock.storage.inspect.missing_logs import RecordedLog
    from penstock.storage.inspect.verify import SegmentProblem, SegmentReport

app = typer.Typer(help="Segment files: list, dump, verify. Nothing is changed.", no_args_is_help=True)

Targets = Annotated[
    list[str],
    typer.Argument(help="Segment files, directories (searched), or topics of the --data directory."),
]
Raw = Annotated[bool, typer.Option("--raw", help="Messages are any bytes, not Penstock envelopes.")]


def _hash_key(raw: bool, text: str | None) -> bytes | None:
    """Parse the hash key; None if there is none. Raises `InvalidRequest` for an invalid key, and for a key without
    --raw, since Penstock's own segments always have Penstock's key."""
    if text is None:
        return None
    if not raw:
        raise InvalidRequest("--hash-key is for files of elsewhere, with --raw: Penstock's own segments have one key")
    from penstock.record.hashing import parse_hash_key

    return parse_hash_key(text)


def _paths(targets: list[str], data: Path) -> list[Path]:
    """Return the segment files of all targets, each once. A target is a file, a directory, which is searched, or a
    topic."""
    paths = [path for target in targets for path in _target_paths(target, data)]
    return list({path.absolute(): path for path in paths}.values())


def _target_paths(target: str, data: Path) -> Sequence[Path]:
    from penstock.storage.base.disk import OsDisk
    from penstock.storage.base.layout import is_data_directory
    from penstock.storage.inspect.data_reader import DataReader
    from penstock.storage.inspect.verify import segment_paths

    path = Path(target)
    if path.is_dir():
        paths = segment_paths(path)
        if not paths and not is_data_directory(OsDisk(), path):
            raise InvalidRequest(f"there are no segments in {target}")
        return paths
    if path.is_file():
        return [path]
    if path.exists():
        raise InvalidRequest(f"{target} is neither a file nor a directory")
    try:
        topic = DataReader(data).topic(TopicName.parse(target))
    except PenstockError as error:
        raise InvalidRequest(f"{target} is no file or directory, and no topic: {error.message}") from None
    return [segment for folder in topic.paths for segment in segment_paths(folder)]


@app.command("ls")
def list_(targets: Targets, data: opt.Data = opt.DEFAULT_DATA, json: opt.Json = False) -> None:
    """List segments: first offset, records, size, state, times.

    Example: `penstock segment ls penstock-data`
    """
    from penstock.storage.base.disk import OsDisk
    from penstock.storage.inspect.data_reader import segment_facts

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
    only_type: opt.OnlyType = None,
    _former_type: opt.FormerType = None,
    limit: opt.Limit = None,
    raw: Raw = False,
    hash_key: opt.HashKey = None,
    json: opt.Json = False,
) -> None:
    """Show the records of segments: id, time, offset, type, key, schema, attributes, payload.

    Exit code 1 if something in them could not be read; it is named on standard error.

    Example: `penstock segment dump 00000000000000000000.seg --only-type 'order.*' --limit 10`
    """
    start, stop = parse_positions(from_, to)
    key = _hash_key(raw, hash_key)
    from penstock.storage.base.disk import OsDisk
    from penstock.storage.inspect.data_reader import file_records

    shown, bad = 0, False
    for path in _paths(targets, data):
        for item in _between(file_records(OsDisk(), path, raw=raw, key=key), start, stop):
            if isinstance(item, str):
                bad = True
                sys.stderr.write(f"penstock: {path}: {item}\n")
                continue
            if only_type is not None and not fnmatchcase(item.message.type, only_type):
                continue
            _print(item, raw=raw, json=json)
            shown += 1
            if shown == limit:
                raise typer.Exit(EXIT_FINDINGS if bad else EXIT_OK)
    if bad:
        raise typer.Exit(EXIT_FINDINGS)


def _between(items: Iterable[Record | str], start: Position, stop: Position | None) -> Iterator[Record | str]:
    from penstock.storage.inspect.data_reader import lies_before

    for item in items:
        if not isinstance(item, str):
            if stop is not None and not lies_before(item, stop):
                return
            if lies_before(item, start):
                continue
        yield item


def _print(record: Record, *, raw: bool, json: bool) -> None:
    if json:
        print_json(_raw_json(record) if raw else as_json(record))
    else:
        print_record(record)


def _raw_json(record: Record) -> dict[str, Any]:
    kept = ("id", "publish_time", "type", "payload", "payload_base64")
    return {"number": record.offset} | {name: value for name, value in as_json(record).items() if name in kept}


@app.command()
def verify(
    targets: Targets,
    data: opt.Data = opt.DEFAULT_DATA,
    raw: Raw = False,
    hash_key: opt.HashKey = None,
    jobs: Annotated[int | None, typer.Option("--jobs", "-j", min=1, help="Default: one a core.")] = None,
    json: opt.Json = False,
) -> None:
    """Check every checksum, the order of ids, the density of offsets, each index against its segment.

    Of a data directory, each log also against the catalog's note of how far it went.

    Exit code 0: clean; 1: findings; 2: could not run.

    Example: `penstock segment verify penstock-data --json`
    """
    from penstock.storage.base.disk import OsDisk
    from penstock.storage.inspect.missing_logs import missing_offsets
    from penstock.storage.inspect.verify import verify_sequence

    noted, unread = _catalog_notes(targets)
    key, jobs = _hash_key(raw, hash_key), jobs or os.cpu_count() or 1
    reports = _verify_all(_paths(targets, data), raw=raw, key=key, jobs=jobs)
    problems = [problem for report in reports for problem in report.problems]
    problems += verify_sequence(OsDisk(), reports)
    problems += [*missing_offsets(OsDisk(), noted, reports), *unread]
    with contextlib.suppress(BrokenPipeError):  # `verify | head` has the same exit code
        (_print_json if json else _print_table)(reports, problems)
    if problems:
        raise typer.Exit(EXIT_FINDINGS)


def _catalog_notes(targets: list[str]) -> tuple[list[RecordedLog], list[SegmentProblem]]:
    """Return what the catalogs of data directories record about the end of each log, and a problem for each catalog
    that cannot be read. Targets that are no data directories have no catalog."""
    from penstock.storage.base.disk import OsDisk
    from penstock.storage.base.layout import CATALOG
    from penstock.storage.inspect.missing_logs import recorded_logs
    from penstock.storage.inspect.verify import SegmentProblem

    logs: list[RecordedLog] = []
    problems = []
    for root in map(Path, targets):
        try:
            logs += recorded_logs(OsDisk(), root)
        except PenstockError as error:
            what = f"how far the logs went is not known: {error.message}"
            problems.append(SegmentProblem(path=root / CATALOG, offset=None, position=None, what=what))
    return logs, problems


def _verify_all(paths: list[Path], *, raw: bool, key: bytes | None, jobs: int) -> list[SegmentReport]:
    """Verify files in parallel threads, which is faster since the kernels release the GIL; return a report for each."""
    from penstock.storage.base.disk import OsDisk
    from penstock.storage.inspect.verify import verify_if_there

    interrupted = threading.Event()
    with progress() as bar, ThreadPoolExecutor(jobs) as pool:
        task = bar.add_task("verifying", total=sum(path.stat().st_size for path in paths if path.exists()))

        def advance(count: int) -> None:
            if interrupted.is_set():
                raise InterruptedError
            bar.advance(task, count)

        started = [pool.submit(verify_if_there, OsDisk(), path, raw=raw, key=key, progress=advance) for path in paths]
        try:
            return [report for job in started if (report := job.result()) is not None]
        except BaseException:
            interrupted.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _print_json(reports: list[SegmentReport], problems: list[SegmentProblem]) -> None:
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


def _print_table(reports: list[SegmentReport], problems: list[SegmentProblem]) -> None:
    if problems:
        rows = [(str(problem.path), problem.offset, problem.position, problem.what) for problem in problems]
        table("findings", ("segment", "offset", "position", "what"), rows)
    records, size = sum(report.records for report in reports), sum(report.size for report in reports)
    for report in reports:
        if report.torn_bytes and not any(problem.path == report.path for problem in report.problems):
            typer.echo(f"{report.path}: {report.torn_bytes} bytes of an unfinished write, cut at the next opening")
    verdict = many(len(problems), "finding") if problems else "clean"
    typer.echo(f"{many(len(reports), 'segment')}, {many(records, 'record')}, {bytes_text(size)}: {verdict}")
