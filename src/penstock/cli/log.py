"""`penstock log`: create, append to, read and look at the logs of a data directory, without a broker."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from penstock.cli import options as opt
from penstock.cli.output import bytes_text, print_json, table, time_text
from penstock.cli.show import as_json, print_record
from penstock.core.errors import InvalidRequest
from penstock.core.limits import MIB
from penstock.core.names import TopicName
from penstock.core.places import parse_place
from penstock.core.units import parse_duration_ms, parse_size

if TYPE_CHECKING:
    from penstock.record.message import Record
    from penstock.storage.readers import TopicReader

app = typer.Typer(help="Logs on this machine, without a broker: create, append, read, info.", no_args_is_help=True)

_FOLLOW_SECONDS = 0.1


@app.command()
def create(
    topic: Annotated[str, typer.Argument(help="orders.created, or /namespace/orders.created")],
    data: opt.Data = opt.DEFAULT_DATA,
    partitions: Annotated[int, typer.Option(help="Fixed for the life of the topic.")] = 1,
    retention_age: Annotated[str | None, typer.Option(help="Keep at least this long, such as 7d.")] = None,
    retention_bytes: Annotated[str | None, typer.Option(help="Keep at least this much, such as 10GiB.")] = None,
    retention_count: Annotated[int | None, typer.Option(help="Keep at least so many messages.", min=1)] = None,
    segment_bytes: Annotated[str | None, typer.Option(help="Size of a segment file, such as 64MiB.")] = None,
    json: opt.Json = False,
) -> None:
    """Create a topic, and the data directory if it is not there yet.

    Example: `penstock log create orders.created --partitions 4 --retention-age 7d`
    """
    name = TopicName.parse(topic)
    from penstock.storage.store import Store
    from penstock.storage.topics import Retention, TopicSettings

    retention = Retention(
        age_ms=parse_duration_ms(retention_age) if retention_age else None,
        bytes=parse_size(retention_bytes) if retention_bytes else None,
        count=retention_count,
    )
    settings = TopicSettings(
        retention=retention, segment_bytes_max=parse_size(segment_bytes) if segment_bytes else None
    )
    with Store.open(data, create=True) as store:
        made = store.create_topic(name, partitions=partitions, settings=settings)
    if json:
        print_json({"topic": str(made.name), "partitions": made.partitions, "data": str(data)})
    else:
        typer.echo(f"created {made.name} with {made.partitions} partition{'s'[: made.partitions > 1]} in {data}")


@app.command()
def append(
    topic: Annotated[str, typer.Argument(help="The topic.")],
    file: Annotated[Path | None, typer.Argument(help="Messages, one a line. Default: standard input.")] = None,
    data: opt.Data = opt.DEFAULT_DATA,
    partition: Annotated[int, typer.Option(min=0)] = 0,
    type_: Annotated[str, typer.Option("--type", help="The type of every message.")] = "",
    key: Annotated[str | None, typer.Option(help="The key of every message.")] = None,
    attr: Annotated[list[str] | None, typer.Option(help="name=value, may be repeated.")] = None,
    whole: Annotated[bool, typer.Option("--whole", help="The whole input is one message, any bytes.")] = False,
    batch: Annotated[int, typer.Option(min=1, help="Messages a block: each block is one sync at most.")] = 1000,
    json: opt.Json = False,
) -> None:
    """Append messages; each is on disk when this says so.

    Examples:

    `echo hello | penstock log append orders.created --type greeting`

    `penstock log append orders.created events.jsonl --batch 5000`
    """
    name = TopicName.parse(topic)
    attributes = _attributes(attr or [])
    from penstock.record.block import Draft
    from penstock.record.message import Message
    from penstock.storage.store import Store

    def message(payload: bytes) -> Message:
        return Message(payload=payload, type=type_, key=None if key is None else key.encode(), attributes=attributes)

    source = sys.stdin.buffer if file is None or str(file) == "-" else _open(file)
    count, first, last = 0, None, None
    with Store.open(data) as store:
        for group in _batches(source, whole=whole, batch=batch):
            done = store.append(name, Draft.of(message(payload) for payload in group), partition=partition)
            count += len(group)
            first = done.offsets.start if first is None else first
            last = done.offsets.stop - 1
    if json:
        print_json(
            {"topic": str(name), "partition": partition, "count": count, "first_offset": first, "last_offset": last}
        )
    elif count:
        typer.echo(f"{count} message{'s'[: count > 1]} appended to {name}: offsets {first} to {last}")
    else:
        typer.echo("nothing to append")


def _attributes(pairs: list[str]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise InvalidRequest(f"--attr {pair!r}: expected name=value", given=pair)
        found[name] = value
    return found


def _open(file: Path) -> BinaryIO:
    try:
        return file.open("rb")
    except OSError as error:
        raise InvalidRequest(f"{file} cannot be read: {error.strerror}") from None


def _batches(source: BinaryIO, *, whole: bool, batch: int) -> Iterator[list[bytes]]:
    if whole:
        yield [source.read()]
        return
    group: list[bytes] = []
    size = 0
    for line in source:
        group.append(line.rstrip(b"\r\n"))
        size += len(line)
        if len(group) == batch or size > MIB:
            yield group
            group, size = [], 0
    if group:
        yield group


@app.command()
def read(
    topic: Annotated[str, typer.Argument(help="The topic.")],
    data: opt.Data = opt.DEFAULT_DATA,
    partition: Annotated[
        int | None, typer.Option(min=0, help="One partition. Default: all, one after another.")
    ] = None,
    from_: opt.From = "earliest",
    to: opt.To = None,
    type_: opt.TypeGlob = None,
    limit: opt.Limit = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more; end with Ctrl-C.")] = False,
    payload: Annotated[bool, typer.Option("--payload", help="Only the payloads, one a line.")] = False,
    json: opt.Json = False,
) -> None:
    """Read messages, verified; also while another process writes them.

    Damaged messages are stepped over and named on standard error; the exit code is then 1.

    Examples:

    `penstock log read orders.created --from 2026-01-31T12:00:00Z --type 'order.*'`

    `penstock log read orders.created --from latest --follow --json`
    """
    start, stop = parse_place(from_), parse_place(to) if to else None
    from penstock.storage.readers import DataReader

    found = DataReader(data).topic(TopicName.parse(topic))
    if follow and partition is None and found.partitions > 1:
        raise InvalidRequest("--follow reads one partition: choose it with --partition")
    shown = 0
    partitions = range(found.partitions) if partition is None else [partition]
    damaged = False
    for number in partitions:
        reader = found.partition(number)
        for record, damages in reader.follow(start, stop, wait=_pause if follow else None):
            for damage in damages:
                damaged = True
                sys.stderr.write(f"penstock: {found.name}[{number}]: skipped {damage}\n")
            if record is None or (type_ is not None and not fnmatchcase(record.message.type, type_)):
                continue
            _print(record, payload=payload, json=json)
            shown += 1
            if shown == limit:
                raise typer.Exit(opt.EXIT_FINDINGS if damaged else opt.EXIT_OK)
    if damaged:
        raise typer.Exit(opt.EXIT_FINDINGS)


def _pause() -> None:
    sys.stdout.flush()
    time.sleep(_FOLLOW_SECONDS)


def _print(record: Record, *, payload: bool, json: bool) -> None:
    if json:
        print_json(as_json(record))
    elif payload:
        sys.stdout.flush()
        sys.stdout.buffer.write(record.message.payload + b"\n")
    else:
        print_record(record)


@app.command()
def info(
    topic: Annotated[str | None, typer.Argument(help="One topic. Default: all.")] = None,
    data: opt.Data = opt.DEFAULT_DATA,
    json: opt.Json = False,
) -> None:
    """What is in a data directory: partitions, offsets, sizes, times.

    Example: `penstock log info orders.created --json`
    """
    from penstock.storage.readers import DataReader

    reader = DataReader(data)
    topics = [reader.topic(TopicName.parse(topic))] if topic else reader.topics()
    rows = [row for found in topics for row in _facts(found)]
    if json:
        for row in rows:
            print_json(row)
        return
    columns = ("topic", "partition", "messages", "first", "next", "size", "segments", "oldest", "newest")
    table(f"{data}", columns, [_row(facts) for facts in rows])


def _facts(found: TopicReader) -> Iterator[dict[str, object]]:
    for number in range(found.partitions):
        facts = found.partition(number).facts()
        yield {"topic": str(found.name), "partition": number, **facts}


def _row(facts: dict[str, object]) -> list[object]:
    oldest, newest, size = facts["oldest_ms"], facts["newest_ms"], facts["bytes"]
    return [
        facts["topic"],
        facts["partition"],
        facts["messages"],
        facts["first_offset"],
        facts["next_offset"],
        bytes_text(size) if isinstance(size, int) else size,
        facts["segments"],
        time_text(oldest) if isinstance(oldest, int) else None,
        time_text(newest) if isinstance(newest, int) else None,
    ]
