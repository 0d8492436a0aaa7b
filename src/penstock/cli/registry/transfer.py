"""`penstock schema export | import`: write a registry as JSON lines, and read it into another with the same ids and
versions."""

from __future__ import annotations

import json as jsonlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final, NamedTuple

import typer

from penstock.cli import options as opt
from penstock.cli.exit_codes import EXIT_FINDINGS
from penstock.cli.output import fail, many, on_one_line, print_json, progress
from penstock.cli.registry.registry_calls import AskRegistry, registry_client
from penstock.cli.schema_source import open_input
from penstock.core.errors import InvalidRequest, PayloadTooLarge, PenstockError
from penstock.core.limits import KIB, MIB

_LINE_BYTES_MAX: Final = 8 * MIB
"""The longest line that is read: enough for the largest schema with every character escaped, and a description."""
_TOGETHER_BYTES: Final = 256 * KIB
"""The most bytes of records in one request. A larger record is sent alone."""
_TOGETHER_MAX: Final = 200


@opt.bundled
def export(
    broker: opt.BrokerOptions,
    prefix: Annotated[str, typer.Argument(help="Only subjects that begin so, and what they refer to.")] = "",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A file. Default: standard output.")] = None,
) -> None:
    """Write schemas with their ids, versions and settings as lines of JSON, for `import` elsewhere.

    Examples:

    `penstock schema export`

    `penstock schema export orders --output orders.jsonl`
    """
    count = 0
    with registry_client(broker) as ask, _open_output(output) as target:
        for record in _export_pages(ask, prefix):
            target.write(jsonlib.dumps(record, ensure_ascii=False).encode() + b"\n")
            count += 1
    sys.stderr.write(f"{many(count, 'record')} exported\n")


def _export_pages(ask: AskRegistry, prefix: str) -> Iterator[dict[str, Any]]:
    """Yield all records, fetched page by page: each answer has as many as fit."""
    count, more = 0, True
    while more:
        page = ask("export", prefix=prefix, after=count)
        yield from page["records"]
        count, more = count + len(page["records"]), page.get("truncated", False)
        if more and not page["records"]:
            raise PayloadTooLarge(f"record {count + 1} does not fit into a message; export over HTTP")


@contextmanager
def _open_output(output: Path | None) -> Iterator[BinaryIO]:
    """Open standard output, or a temporary file that replaces `output` only when the context ends without an error."""
    if output is None:
        sys.stdout.flush()
        yield sys.stdout.buffer
        return
    part = output.with_name(f"{output.name}.part")
    try:
        with part.open("wb") as target:
            yield target
        part.replace(output)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


# import


class ImportLine(NamedTuple):
    number: int
    size: int
    record: dict[str, Any]


@dataclass(slots=True)
class ImportSummary:
    """Counts of what an import has done so far."""

    imported: int = 0
    known: int = 0
    refused: int = 0

    def __str__(self) -> str:
        words = [f"{many(self.imported, 'record')} imported", f"{self.known:,} known already"]
        return ", ".join([*words, f"{self.refused:,} refused"] if self.refused else words)


@opt.bundled
def import_(
    broker: opt.BrokerOptions,
    file: Annotated[Path, typer.Argument(help="What `export` wrote; '-': standard input.")],
    json: opt.Json = False,
) -> None:
    """Take in what was exported elsewhere, with the same ids and versions; doing it twice does nothing.

    What cannot be, because an id or a version is something else here, is named on standard error, and the exit
    code is 1.

    Examples:

    `penstock schema import schemas.jsonl`

    `penstock schema export --url tcp://old:7450 | penstock schema import -`
    """
    summary = ImportSummary()
    with open_input(file) as source, registry_client(broker) as ask, progress() as bar, _summary_on_failure(summary):
        task = bar.add_task("importing", total=file.stat().st_size if file.is_file() else None)
        for group in _batches(_lines(source)):
            _import_batch(ask, group, summary, json=json)
            bar.advance(task, sum(line.size for line in group))
    if json:
        print_json(asdict(summary))
    else:
        typer.echo(str(summary))
    if summary.refused:
        raise typer.Exit(EXIT_FINDINGS)


def _import_batch(ask: AskRegistry, group: list[ImportLine], summary: ImportSummary, *, json: bool) -> None:
    answer = ask("import", records=[line.record for line in group])
    summary.imported += answer["imported"]
    summary.known += answer["known"]
    for refusal in answer.get("refused", ()):
        summary.refused += 1
        _print_refusal(group[refusal["index"]].number, refusal, json=json)


def _print_refusal(number: int, refusal: dict[str, Any], *, json: bool) -> None:
    """Print the line number, the version and the reason of a record that the registry refused."""
    subject, version, why = refusal["subject"], refusal["version"], refusal["message"]
    if json:
        fail(InvalidRequest(f"line {number}: {why}", line=number, subject=subject, version=version), json=True)
        return
    what = ": ".join(filter(None, (subject, version and f"version {version}", why)))
    sys.stderr.write(f"penstock: line {number}: {on_one_line(what)}\n")


@contextmanager
def _summary_on_failure(summary: ImportSummary) -> Iterator[None]:
    """If the context fails, add the number of imported records to the error; if it is interrupted, print that number.
    Imported records stay."""
    try:
        yield
    except PenstockError as error:
        raise type(error)(f"{error.message}; before that: {summary}", **error.details) from None
    except (KeyboardInterrupt, SystemExit):
        sys.stderr.write(f"penstock: interrupted: {summary}\n")
        raise


def _lines(source: BinaryIO) -> Iterator[ImportLine]:
    number = 0
    while data := source.readline(_LINE_BYTES_MAX + 1):
        number += 1
        if len(data) > _LINE_BYTES_MAX:
            raise InvalidRequest(f"line {number} has more than {_LINE_BYTES_MAX:,} bytes: this is no export of schemas")
        if data.strip():
            yield ImportLine(number, len(data), _record(number, data))


def _record(number: int, data: bytes) -> dict[str, Any]:
    try:
        record = jsonlib.loads(data)
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict):
        raise InvalidRequest(f"line {number} is no JSON object: this is no export of schemas")
    return record


def _batches(lines: Iterator[ImportLine]) -> Iterator[list[ImportLine]]:
    """Group lines so that each group is one request."""
    group: list[ImportLine] = []
    for line in lines:
        full = len(group) == _TOGETHER_MAX or sum(item.size for item in group) + line.size > _TOGETHER_BYTES
        if group and full:
            yield group
            group = []
        group.append(line)
    if group:
        yield group
