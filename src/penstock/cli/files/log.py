"""`penstock log`: create, append to, import into, read and describe topics of a data directory, without a broker."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from penstock.cli import line_reader
from penstock.cli import options as opt
from penstock.cli.exit_codes import EXIT_FINDINGS, EXIT_OK
from penstock.cli.message_format import as_json, print_record
from penstock.cli.output import bytes_text, many, print_json, table, time_text, write_bytes
from penstock.core.errors import InvalidRequest, OffsetOutOfRange, PenstockError
from penstock.core.names import TopicName
from penstock.core.positions import Position, parse_positions
from penstock.core.units import parse_duration_ms, parse_size

if TYPE_CHECKING:
    from penstock.record.message import Record
    from penstock.storage.inspect.data_reader import LogReader, TopicReader
    from penstock.storage.log.log import Log
    from penstock.storage.store import Store

app = typer.Typer(
    help="Logs on this machine, without a broker: create, append, import, read, info.", no_args_is_help=True
)

_FOLLOW_SECONDS = 0.1


@app.command()
def create(
    topic: opt.Topic,
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
    from penstock.storage.catalog.topics import Retention, TopicSettings, check_partitions
    from penstock.storage.store import Store

    check_partitions(name, partitions)
    retention = Retention(
        age_ms=None if retention_age is None else parse_duration_ms(retention_age),
        bytes=None if retention_bytes is None else parse_size(retention_bytes),
        count=retention_count,
    )
    segment_bytes_max = None if segment_bytes is None else parse_size(segment_bytes)
    settings = TopicSettings(retention=retention, segment_bytes_max=segment_bytes_max)
    with Store.open(data, create=True) as store:
        topic_record = store.create_topic(name, partitions=partitions, settings=settings)
    if json:
        print_json({"topic": str(topic_record.name), "partitions": topic_record.partitions, "data": str(data)})
    else:
        typer.echo(f"created {topic_record.name} with {many(topic_record.partitions, 'partition')} in {data}")


@app.command()
def append(
    topic: Annotated[str, typer.Argument(help="The topic.")],
    file: Annotated[Path | None, typer.Argument(help="Messages, one a line. Default: standard input.")] = None,
    data: opt.Data = opt.DEFAULT_DATA,
    partition: Annotated[int, typer.Option(min=0)] = 0,
    type_: Annotated[str, typer.Option("--type", help="The type of every message.")] = "",
    key: Annotated[str | None, typer.Option(help="The key of every message.")] = None,
    attr: opt.Attr = None,
    whole: Annotated[bool, typer.Option("--whole", help="The whole input is one message, any bytes.")] = False,
    batch: Annotated[int, typer.Option(min=1, help="Messages a block: each block is one sync at most.")] = 1000,
    json: opt.Json = False,
) -> None:
    """Append messages; each is on disk when the command says so.

    Examples:

    `echo hello | penstock log append orders.created --type greeting`

    `penstock log append orders.created events.jsonl --batch 5000`
    """
    name = TopicName.parse(topic)
    attributes = opt.parse_attributes(attr)
    from penstock.record.block import Draft
    from penstock.record.message import Message, draft_bytes
    from penstock.storage.store import Store

    def message(payload: bytes) -> Message:
        return Message(
            payload=payload, type=type_, key=None if key is None else os.fsencode(key), attributes=attributes
        )

    record_bytes = len(draft_bytes(message(b"")))
    with _source(file) as source, Store.open(data) as store:
        log = store.log(name, partition)
        limits = line_reader.MessageLimits(
            block_bytes=log.limits.block_bytes_max,
            record_bytes=record_bytes,
            payload_bytes=log.limits.payload_bytes_max,
        )
        summary = AppendSummary(str(name), partition, log.next_offset)
        with _summary_on_failure(store, log, summary):
            for group in (
                line_reader.whole_input(source, limits)
                if whole
                else line_reader.line_groups(source, limits, count_max=batch)
            ):
                store.append(name, Draft.of(map(message, group)), partition=partition)
    if json:
        print_json(summary.as_dict(log.next_offset))
    else:
        typer.echo(summary.text(log.next_offset))


@app.command("import")
def import_(
    topic: Annotated[str, typer.Argument(help="The topic.")],
    files: Annotated[list[Path], typer.Argument(help="Segments of elsewhere, in the order of their ids.")],
    raw: Annotated[
        bool, typer.Option("--raw", help="They are in the bare record format: messages are any bytes.")
    ] = False,
    data: opt.Data = opt.DEFAULT_DATA,
    partition: Annotated[int, typer.Option(min=0)] = 0,
    hash_key: opt.HashKey = None,
    restamp: Annotated[
        bool, typer.Option("--restamp", help="Give new ids; the old ones become the attribute x-original-id.")
    ] = False,
    json: opt.Json = False,
) -> None:
    """Bring raw segments into a topic: id, type and message of each record, in their order.

    Ids are kept, and so must go on behind those of the log. Records that do not verify are named and left out; the
    exit code is then 1.

    Example: `penstock log import orders.created old.seg --raw --hash-key 70d7...b2a3`
    """
    name = TopicName.parse(topic)
    if not raw:
        raise InvalidRequest("only raw segments are imported here, with --raw; for all else there is `penstock import`")
    from penstock.record.hashing import parse_hash_key
    from penstock.storage.base.disk import OsDisk, opened
    from penstock.storage.raw_import import RawImport
    from penstock.storage.store import Store

    key = None if hash_key is None else parse_hash_key(hash_key)
    _check_files(files)
    bad = False
    with Store.open(data) as store:
        log = store.log(name, partition)
        summary = AppendSummary(str(name), partition, log.next_offset)
        work = RawImport(store.writer, log, key=key, restamp=restamp)
        with _summary_on_failure(store, log, summary):
            for path in files:
                with opened(OsDisk(), path) as file:
                    for finding in work.take(file):
                        bad = True
                        sys.stderr.write(f"penstock: {path}: {finding}\n")
    if json:
        print_json(summary.as_dict(log.next_offset))
    else:
        typer.echo(summary.text(log.next_offset))
    if bad:
        raise typer.Exit(EXIT_FINDINGS)


def _check_files(files: list[Path]) -> None:
    """Open every file once, so that one that cannot be read fails the command before anything is stored."""
    for file in files:
        with _source(file) as source:
            source.read(1)


@contextmanager
def _summary_on_failure(store: Store, log: Log, summary: AppendSummary) -> Iterator[None]:
    """If the context fails, add the number of messages stored to the error; if it is interrupted, print that number."""
    try:
        yield
    except PenstockError as error:
        store.close()
        raise summary.with_summary(error, log.next_offset) from error
    except (KeyboardInterrupt, SystemExit):
        store.close()
        sys.stderr.write(f"penstock: interrupted: {summary.text(log.next_offset)}\n")
        raise


@dataclass(frozen=True, slots=True)
class AppendSummary:
    """The messages that one command has appended. They are all records by which the log has grown, since no other
    process may write to it meanwhile."""

    topic: str
    partition: int
    first: int

    def as_dict(self, stop: int) -> dict[str, object]:
        ends = {"first_offset": self.first, "last_offset": stop - 1} if stop > self.first else {}
        return {
            "topic": self.topic,
            "partition": self.partition,
            "count": stop - self.first,
            "first_offset": None,
            "last_offset": None,
        } | ends

    def text(self, stop: int) -> str:
        count = stop - self.first
        if not count:
            return f"nothing appended to {self.topic}"
        offsets = f"offset {self.first}" if count == 1 else f"offsets {self.first} to {stop - 1}"
        return f"{many(count, 'message')} appended to {self.topic}: {offsets}"

    def with_summary(self, error: PenstockError, stop: int) -> PenstockError:
        """Return the error with the number of messages that were stored before it."""
        return type(error)(f"{error.message}; before that: {self.text(stop)}", **(error.details | self.as_dict(stop)))


def _source(file: Path | None) -> AbstractContextManager[BinaryIO]:
    if file is None or str(file) == "-":
        if sys.stdin is None:
            raise InvalidRequest("there is no standard input: name a file with the messages")
        return nullcontext(sys.stdin.buffer)
    try:
        return file.open("rb")
    except OSError as error:
        raise InvalidRequest(f"{file} cannot be read: {error.strerror}") from None


@app.command()
def read(
    topic: Annotated[str, typer.Argument(help="The topic.")],
    data: opt.Data = opt.DEFAULT_DATA,
    partition: Annotated[
        int | None, typer.Option(min=0, help="One partition. Default: all, one after another.")
    ] = None,
    from_: opt.From = "earliest",
    to: opt.To = None,
    only_type: opt.OnlyType = None,
    _former_type: opt.FormerType = None,
    limit: opt.Limit = None,
    follow: opt.Follow = False,
    payload: opt.PayloadAlone = False,
    raw: opt.Raw = False,
    json: opt.Json = False,
) -> None:
    """Read messages, verified; also while another process writes them.

    Damaged messages are stepped over and named on standard error; the exit code is then 1.

    Examples:

    `penstock log read orders.created --from 2026-01-31T12:00:00Z --only-type 'order.*'`

    `penstock log read orders.created --from latest --follow --json`
    """
    start, stop = parse_positions(from_, to)
    from penstock.storage.inspect.data_reader import DataReader

    topic_reader = DataReader(data).topic(TopicName.parse(topic))
    if follow and partition is None and topic_reader.partitions > 1:
        raise InvalidRequest(
            f"--follow reads one partition: choose it with --partition 0 to {topic_reader.partitions - 1}"
        )
    numbers = range(topic_reader.partitions) if partition is None else [partition]
    shown, damaged = 0, False
    for number, reader in _partition_readers(topic_reader, numbers, start):
        for record, damages in reader.follow(start, stop, wait=_pause if follow else None):
            for damage in damages:
                damaged = True
                sys.stderr.write(f"penstock: {topic_reader.name}[{number}]: skipped {damage}\n")
            if record is None or (only_type is not None and not fnmatchcase(record.message.type, only_type)):
                continue
            _print(record, number if topic_reader.partitions > 1 else None, payload=payload, raw=raw, json=json)
            shown += 1
            if shown == limit:
                raise typer.Exit(EXIT_FINDINGS if damaged else EXIT_OK)
    if damaged:
        raise typer.Exit(EXIT_FINDINGS)


def _partition_readers(
    topic_reader: TopicReader, numbers: Sequence[int], start: Position
) -> list[tuple[int, LogReader]]:
    """Return a reader for each partition, positioned at `start`. Raises for an offset that a partition does not have,
    before anything is printed."""
    readers = [(number, topic_reader.partition(number)) for number in numbers]
    for number, reader in readers:
        try:
            reader.offset_of(start)
        except OffsetOutOfRange as error:
            raise OffsetOutOfRange(f"{topic_reader.name}[{number}]: {error.message}", **error.details) from None
    return readers


def _pause() -> None:
    sys.stdout.flush()
    time.sleep(_FOLLOW_SECONDS)


def _print(record: Record, partition: int | None, *, payload: bool, raw: bool, json: bool) -> None:
    if json:
        print_json(({} if partition is None else {"partition": partition}) | as_json(record))
    elif payload:
        write_bytes(record.message.payload + b"\n", raw=raw)
    else:
        print_record(record, partition=partition)


@app.command()
def info(
    topic: Annotated[str | None, typer.Argument(help="One topic. Default: all.")] = None,
    data: opt.Data = opt.DEFAULT_DATA,
    json: opt.Json = False,
) -> None:
    """Show what a data directory holds: partitions, offsets, sizes, times.

    Example: `penstock log info orders.created --json`
    """
    from penstock.storage.inspect.data_reader import DataReader

    reader = DataReader(data)
    topics = [reader.topic(TopicName.parse(topic))] if topic else reader.topics()
    rows = [row for topic_reader in topics for row in _facts(topic_reader)]
    if json:
        for row in rows:
            print_json(row)
        return
    if not rows:
        typer.echo(f"no topics in {data} yet: penstock log create TOPIC")
        return
    columns = ("topic", "partition", "messages", "first", "next", "size", "segments", "oldest", "newest")
    table(f"{data}", columns, [_row(facts) for facts in rows])


def _facts(topic_reader: TopicReader) -> Iterator[dict[str, object]]:
    for number in range(topic_reader.partitions):
        facts = topic_reader.partition(number).facts()
        yield {"topic": str(topic_reader.name), "partition": number, **facts}


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
