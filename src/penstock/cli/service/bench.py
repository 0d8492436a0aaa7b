"""`penstock bench`: measure the speed of Penstock on this machine and this disk."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import options as opt
from penstock.cli.output import console, print_json, table
from penstock.core.errors import InvalidRequest

if TYPE_CHECKING:
    from penstock.bench import Figure

app = typer.Typer(help="Measure this machine: each figure beside what it is compared with.", no_args_is_help=True)

Folder = Annotated[Path | None, typer.Option("--dir", help="The disk to measure. Default: a temporary one.")]


@app.command()
def log(
    folder: Folder = None,
    megabytes: Annotated[int, typer.Option(min=16, max=1024, help="How much data a figure uses.")] = 128,
    json: opt.Json = False,
) -> None:
    """Scan, verify, encode, append durably, recover.

    Example: `penstock bench log --dir /var/lib/penstock --megabytes 256`
    """
    with _scratch(folder) as scratch:
        _show("penstock bench log", _figures(scratch, megabytes), json=json)


@app.command()
def wire(
    messages: Annotated[int, typer.Option(min=1000, help="How many messages a figure uses.")] = 500_000,
    reference: Annotated[
        str | None, typer.Option(help="Command that starts another server of the same protocol, to compare with.")
    ] = None,
    reference_port: Annotated[int, typer.Option(min=1, max=65535, help="The TCP port it then listens on.")] = 8081,
    json: opt.Json = False,
) -> None:
    """Route live messages, ask and answer, parse headers: a broker of its own is started for it.

    Examples:

    `penstock bench wire --messages 200000`

    `penstock bench wire --reference 'node dist/index.js' --reference-port 8081`
    """
    from penstock.bench.wire import ReferenceServer, measure

    other = None if reference is None else ReferenceServer(command=reference, port=reference_port)
    _show("penstock bench wire", measure(messages=messages, founding=other), json=json)


@app.command()
def stream(
    folder: Folder = None,
    messages: Annotated[int, typer.Option(min=1000, help="How many messages a figure uses.")] = 1_000_000,
    json: opt.Json = False,
) -> None:
    """Publish durably, read back, wait for one message, open many topics: a broker of its own is started for it.

    Example: `penstock bench stream --dir /var/lib --messages 200000`
    """
    from penstock.bench.stream import measure

    with _scratch(folder) as scratch:
        _show("penstock bench stream", measure(scratch, messages=messages), json=json)


@app.command()
def schema(
    folder: Folder = None,
    messages: Annotated[int, typer.Option(min=1000, help="How many messages a figure uses.")] = 1_000_000,
    json: opt.Json = False,
) -> None:
    """Publish under a schema policy, and ask the registry: a broker of its own is started for it.

    Example: `penstock bench schema --messages 200000`
    """
    from penstock.bench.schema import measure

    with _scratch(folder) as scratch:
        _show("penstock bench schema", measure(scratch, messages=messages), json=json)


@app.command()
def http(
    folder: Folder = None,
    requests: Annotated[int, typer.Option(min=640, help="How many events are published, one at a time.")] = 20_000,
    json: opt.Json = False,
) -> None:
    """Publish events over HTTP beside a bare handler that only syncs, and stream them to a hundred readers.

    Example: `penstock bench http --requests 10000`
    """
    from penstock.bench.http import measure

    with _scratch(folder) as scratch:
        _show("penstock bench http", measure(scratch, requests=requests, events=requests), json=json)


@app.command()
def operations(
    folder: Folder = None,
    messages: Annotated[int, typer.Option(min=1000, help="How many messages a round publishes.")] = 3_000_000,
    topics: Annotated[int, typer.Option(min=1, help="How many topics and subscriptions there are.")] = 1000,
    json: opt.Json = False,
) -> None:
    """Publish at full speed, alone and while metrics and lists are asked for: a broker of its own is started for it.

    Example: `penstock bench operations --messages 1000000`
    """
    from penstock.bench.operations import measure

    with _scratch(folder) as scratch:
        _show("penstock bench operations", measure(scratch, messages=messages, topics=topics), json=json)


@app.command()
def spark(
    folder: Folder = None,
    messages: Annotated[int, typer.Option(min=10_000, help="How many messages a figure uses.")] = 4_000_000,
    json: opt.Json = False,
) -> None:
    """Read, decode, archive and audit a topic with Spark, beside what Spark does with Parquet files of the same rows.

    Example: `penstock bench spark --messages 1000000`
    """
    from penstock.bench.spark import measure

    with _scratch(folder) as scratch:
        _show("penstock bench spark", measure(scratch, messages=messages), json=json)


@contextmanager
def _scratch(folder: Path | None) -> Iterator[Path]:
    """Create a temporary directory in `folder`, by default in the system's directory for them. It is deleted when the
    context ends. Its disk is the one that is measured."""
    if folder is not None and not folder.is_dir():
        raise InvalidRequest(f"{folder} is not a directory: choose one on the disk to measure")
    with tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=folder) as scratch:
        yield Path(scratch)


def _show(title: str, measured: Iterator[Figure], *, json: bool) -> None:
    """Print the name of each figure when it is measured, and a table of all at the end. With `json`, print each figure
    as a line of JSON when it is measured."""
    figures = []
    for figure in measured:
        figures.append(figure)
        if json:
            print_json({name: getattr(figure, name) for name in figure.__slots__})
        else:
            console(stderr=True).print(f"  {figure.name}", style="dim")
    if not json:
        columns = ("what", "result", "unit", "compared with", "its result", "ratio")
        rows = [(f.name, f.value, f.unit, f.reference, f.reference_value, f.ratio) for f in figures]
        table(title, columns, rows)


def _figures(scratch: Path, megabytes: int) -> Iterator[Figure]:
    from penstock.bench import disk, kernels, start

    yield from kernels.measure(megabytes=megabytes, rounds=3)
    yield from disk.measure(scratch, megabytes=megabytes)
    yield from start.recovery(scratch, megabytes)
