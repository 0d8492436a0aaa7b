"""`penstock produce` and `penstock consume`: write messages to durable topics, and print messages of them."""

from __future__ import annotations

import json as jsonlib
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from penstock.cli import line_reader
from penstock.cli import options as opt
from penstock.cli.exit_codes import EXIT_MISSING
from penstock.cli.message_format import as_json, compile_template, print_record, record_of
from penstock.cli.output import on_one_line, print_json, progress, write_bytes
from penstock.cli.policy_advice import with_advice
from penstock.cli.topics.produce_report import MessageGroup, ProduceSummary, summary_on_failure
from penstock.core.errors import InvalidRequest, PenstockError, SchemaRejected
from penstock.core.limits import MIB
from penstock.core.names import TopicName
from penstock.core.positions import parse_position, parse_positions

if TYPE_CHECKING:
    from penstock.client.consume.reader import TopicReader
    from penstock.client.sync import Batch, Client, Consumer, Producer, StreamMessage

_BATCH_BYTES: Final = 2 * MIB
"""The producer's block size in bytes. It is larger than a group of lines, so that each group becomes one block."""
_RECORD_BYTES: Final = 100
"""The approximate size of a record in bytes, without payload, key, type and attributes."""

_WINDOW: Final = 1000
"""The most messages in flight if the number of messages to print is limited."""

ShowMessage = Callable[["StreamMessage", int], None]
"""A function that prints a message. Its second argument is the number of partitions of the topic."""


# produce


@opt.bundled
def produce(
    broker: opt.BrokerOptions,
    topic: opt.Topic,
    files: Annotated[
        list[Path] | None, typer.Argument(help="Messages, one a line; '-' or nothing: standard input.")
    ] = None,
    whole: Annotated[
        bool, typer.Option("--whole", help="Each file, or all of standard input, is one message.")
    ] = False,
    key: Annotated[str | None, typer.Option(help="The key of every message.")] = None,
    key_field: Annotated[str | None, typer.Option(help="Each message is JSON: this field is its key.")] = None,
    type_: Annotated[str, typer.Option("--type", help="The type of every message.")] = "",
    attr: opt.Attr = None,
    name: Annotated[str | None, typer.Option(help="The producer's: the last to come under it may write.")] = None,
    rate: Annotated[int | None, typer.Option(min=1, help="At most so many messages a second.")] = None,
    batch: Annotated[int, typer.Option(min=1, max=100_000, help="At most so many messages a block.")] = 4096,
    json: opt.Json = False,
) -> None:
    """Store messages in a topic; each is on disk when the command says so, and stored once whatever breaks.

    Examples:

    `penstock produce orders.created events.jsonl --type order.created --key-field customer`

    `tail -f events.jsonl | penstock produce orders.created --attr source=web`

    `penstock produce images picture.png --whole --key 7`
    """
    if key is not None and key_field is not None:
        raise InvalidRequest("--key is the key of every message, --key-field that of each: give one of them")
    summary = ProduceSummary(str(TopicName.parse(topic)))
    attributes = opt.parse_attributes(attr)
    sources = _sources(files or [Path("-")])
    fixed = None if key is None else os.fsencode(key)
    with broker.connect(reconnect=True) as client:
        room = _limits(client, topic, len(fixed or b"") + len(os.fsencode(type_)) + len(jsonlib.dumps(attributes)))
        most = batch if rate is None else max(1, min(batch, rate // 10))
        options = {"name": name, "type": type_, "batch_messages": batch, "batch_bytes": _BATCH_BYTES}
        with (
            client.producer(topic, **options) as producer,
            summary_on_failure(summary),
            _advice_on_rejection(client, topic, summary),
        ):
            for group in _paced(_groups(sources, room, count_max=most, whole=whole), rate):
                keys, problem = _keys(group, fixed, key_field)
                _send(producer, summary, group, keys, attributes)
                if problem is not None:
                    raise problem
    if json:
        print_json(summary.as_dict())
    else:
        typer.echo(summary.text())


def _send(
    producer: Producer[Any],
    summary: ProduceSummary,
    group: MessageGroup,
    keys: Sequence[bytes | None],
    attributes: dict[str, str],
) -> None:
    """Send the first messages of a group, as many as there are keys, and wait until they are on disk."""
    payloads = group.payloads[: len(keys)]
    if payloads:
        sent = producer.send_many(payloads, keys=keys, attributes=attributes)
        summary.take(sent, MessageGroup(payloads, group.source, group.first))


@contextmanager
def _advice_on_rejection(client: Client, topic: str, summary: ProduceSummary) -> Iterator[None]:
    """If the context raises `SchemaRejected`, raise it with advice about the first message that was refused."""
    try:
        yield
    except SchemaRejected as error:
        if not summary.refused:
            raise
        first = summary.refused[0]
        raise with_advice(client, topic, error, first.group.payloads[first.index]) from None


def _sources(files: list[Path]) -> list[Path]:
    """Check that all files can be read, before anything is stored, and return them. Raises `InvalidRequest`."""
    for file in files:
        if str(file) == "-":
            if sys.stdin is None:
                raise InvalidRequest("there is no standard input: name a file with the messages")
        elif not file.exists():
            raise InvalidRequest(f"{file} cannot be read: there is no such file")
        elif file.is_dir() or not os.access(file, os.R_OK):
            raise InvalidRequest(f"{file} cannot be read: {'a directory' if file.is_dir() else 'permission denied'}")
    return files


def _limits(client: Client, topic: str, extra: int) -> line_reader.MessageLimits:
    """Ask the broker for the limits of this topic's messages, and return them. `extra` is the size of type, key and
    attributes."""
    takes = client.ask("system.producer.register", {"topic": topic})
    block_bytes = takes["block_bytes_max"] * 15 // 16  # the rest is for keys
    return line_reader.MessageLimits(
        block_bytes=block_bytes, record_bytes=_RECORD_BYTES + extra, payload_bytes=takes["payload_bytes_max"]
    )


def _groups(
    files: list[Path], room: line_reader.MessageLimits, *, count_max: int, whole: bool
) -> Iterator[MessageGroup]:
    interactive = any(str(file) == "-" for file in files) and sys.stdin.isatty()
    if interactive:
        sys.stderr.write(f"{'the message' if whole else 'messages, one a line'}, and Ctrl-D at the end:\n")
    with progress(shown=not interactive) as bar:
        task = bar.add_task("producing", total=_total(files))
        for file in files:
            with _opened(file) as source, _named(file):
                number = 1
                for payloads in (
                    line_reader.whole_input(source, room)
                    if whole
                    else line_reader.line_groups(source, room, count_max=count_max)
                ):
                    yield MessageGroup(payloads, str(file), 0 if whole else number)
                    number += len(payloads)
                    bar.advance(task, sum(map(len, payloads)) + len(payloads))


def _total(files: list[Path]) -> int | None:
    """Return the total size of the files in bytes; None if it is not known, as for standard input."""
    return sum(file.stat().st_size for file in files) if all(file.is_file() for file in files) else None


def _opened(file: Path) -> Any:
    return nullcontext(sys.stdin.buffer) if str(file) == "-" else file.open("rb")


@contextmanager
def _named(file: Path) -> Iterator[None]:
    """Put the file's name in front of errors that are raised in the context."""
    try:
        yield
    except PenstockError as error:
        if str(file) == "-":
            raise
        raise type(error)(f"{file}: {error.message}", **error.details) from None


def _paced(groups: Iterator[MessageGroup], rate: int | None) -> Iterator[MessageGroup]:
    """Yield the groups, with a pause after each so that there are at most `rate` messages per second; without pauses
    for None."""
    began, count = time.monotonic(), 0
    for group in groups:
        yield group
        count += len(group.payloads)
        if rate is not None:
            time.sleep(max(0.0, began + count / rate - time.monotonic()))


def _keys(
    group: MessageGroup, fixed: bytes | None, key_field: str | None
) -> tuple[Sequence[bytes | None], InvalidRequest | None]:
    """Return the keys of the messages, and None. If a message lacks its key field, return the keys of those before it,
    and the error."""
    if key_field is None:
        return [fixed] * len(group.payloads), None
    keys: list[bytes | None] = []
    for index, payload in enumerate(group.payloads):
        try:
            keys.append(_key_of(payload, key_field))
        except InvalidRequest as error:
            return keys, InvalidRequest(f"{group.place(index)}: {error.message}", field=key_field)
    return keys, None


def _key_of(payload: bytes, key_field: str) -> bytes:
    try:
        message = jsonlib.loads(payload)
    except (ValueError, RecursionError):
        raise InvalidRequest("this is no JSON, and --key-field needs it") from None
    value = message.get(key_field) if isinstance(message, dict) else None
    if isinstance(value, str):
        return value.encode(errors="surrogatepass")
    if isinstance(value, int | float) and not isinstance(value, bool):
        return jsonlib.dumps(value).encode()
    raise InvalidRequest(f"there is no text and no number in the field {key_field!r}")


# consume


@opt.bundled
def consume(
    broker: opt.BrokerOptions,
    topic: opt.Topic,
    from_: opt.OptionalFrom = None,
    to: opt.To = None,
    subscription: Annotated[
        str | None, typer.Option("--subscription", "-s", help="Durable: the broker keeps how far it came.")
    ] = None,
    type_: opt.SubscriptionType = None,
    sub_type: opt.SubType = None,
    only_type: opt.OnlyType = None,
    only_key: opt.OnlyKey = None,
    partition: opt.Partition = None,
    limit: opt.Limit = None,
    follow: opt.Follow = False,
    format_: Annotated[
        str | None, typer.Option("--format", help="Such as '%o %t %k %s'; a line each. See above.")
    ] = None,
    payload: opt.PayloadAlone = False,
    raw: opt.Raw = False,
    json: opt.Json = False,
) -> None:
    r"""Print messages of a topic.

    From the earliest to where the topic ends now; with --follow, what comes then, too. With a subscription, from where
    it is (a new one begins at the latest, or --from): what has been printed is acknowledged.

    Messages that are damaged, or that retention drops meanwhile, are named on standard error; the exit code is then 3.

    In --format: %o offset, %p partition, %t type, %T publish time, %k key, %s payload as text, %i id, %h attributes as
    JSON, %S schema id and version, %n producer name, %% a percent sign, \\n and \\t.

    Examples:

    `penstock consume orders.created --from 2026-01-31T12:00:00Z --only-type 'order.*' --json`

    `penstock consume orders.created --from -1h --follow --format '%T %k %s'`

    `penstock consume orders.created --subscription billing --type shared --follow`
    """
    show = _message_printer(format_, payload=payload, raw=raw, json=json)
    options = ConsumeRequest(topic, from_, opt.globs(only_type), opt.globs(only_key), limit)
    kind = opt.subscription_type(type_, sub_type)
    if subscription is not None:
        if to is not None or partition is not None:
            raise InvalidRequest("--to and --partition are for reading without a subscription")
        options.consume(broker, subscription, kind, show, follow=follow)
    elif kind is not None:
        raise InvalidRequest(
            f"--type {kind} is the type of a subscription: name it with --subscription; --only-type {kind} reads only"
            " messages of that type"
        )
    else:
        options.read(broker, to, partition, show, follow=follow)


@dataclass(frozen=True, slots=True)
class ConsumeRequest:
    """The options that are the same for reading a topic and for consuming with a subscription."""

    topic: str
    start: str | None
    types: list[str]
    keys: list[str]
    limit: int | None

    def read(
        self, broker: opt.BrokerOptions, to: str | None, partition: int | None, show: ShowMessage, *, follow: bool
    ) -> None:
        from penstock.client.consume.reader import TopicReader

        start = self.start or "earliest"
        _, stop = parse_positions(start, to)
        bounds: dict[str, Any] = {"start": start, "stop": stop, "partition": partition, "follow": follow}
        with (
            broker.connect() as client,
            TopicReader(client, self.topic, **bounds, types=self.types, keys=self.keys) as reading,
        ):
            _read(reading, show, self.limit)
            missing = bool(reading.gaps)
        _exit_if_missing(missing=missing)

    def consume(
        self, broker: opt.BrokerOptions, subscription: str, kind: str | None, show: ShowMessage, *, follow: bool
    ) -> None:
        from penstock.client.consume.consume_to_end import CatchUpConsumer

        start = self.start or "latest"
        parse_position(start)
        window = (
            {} if self.limit is None else {"window": min(self.limit, _WINDOW)}
        )  # the rest stays for other consumers
        filters = {"filter_types": self.types, "filter_keys": self.keys}
        with (
            broker.connect(reconnect=True) as client,
            client.consumer(self.topic, subscription, type=kind, start=start, **filters, **window) as consumer,
        ):
            sys.stderr.write(f"consuming {self.topic} as {subscription}\n")
            if consumer.created:
                self._print_new(subscription, follow=follow)
            else:
                self._print_known(subscription)
            endless = iter(consumer.receive_batch, None)
            batches = endless if follow else CatchUpConsumer(client, consumer, self.topic, on_wait=_print_wait)
            _consume(consumer, batches, show, self.limit)
            missing = bool(consumer.lost)
        _exit_if_missing(missing=missing)

    def _print_new(self, subscription: str, *, follow: bool) -> None:
        if self.start is None and not follow:
            sys.stderr.write(
                f"penstock: {subscription} is new, and begins where the topic ends: --follow waits for what comes;"
                f" penstock sub seek {self.topic} {subscription} earliest has it begin with what is there\n"
            )

    def _print_known(self, subscription: str) -> None:
        if self.start is not None:
            sys.stderr.write(
                f"penstock: warning: {subscription} is there already, and goes on where it was, not from {self.start}:"
                f" penstock sub seek {self.topic} {subscription} {self.start} moves it\n"
            )


def _read(reading: TopicReader, show: ShowMessage, limit: int | None) -> None:
    for messages in reading:
        shown = messages[:limit]
        _show_batch(shown, reading.partitions, show)
        limit = _remaining(limit, len(shown))
        if limit == 0:
            return


def _exit_if_missing(*, missing: bool) -> None:
    """Exit with the exit code for missing messages if `missing` is set. Each gap has been reported before."""
    if missing:
        raise typer.Exit(EXIT_MISSING)


def _print_wait(reason: str) -> None:
    sys.stderr.write(f"penstock: waiting: {on_one_line(reason)}\n")


def _consume(consumer: Consumer, batches: Iterable[Batch], show: ShowMessage, limit: int | None) -> None:
    """Print messages, and acknowledge each batch after it is written. Stops after `limit` messages."""
    for batch in batches:
        shown = batch.messages[:limit]
        _show_batch(shown, consumer.partitions, show)
        for item in [batch] if len(shown) == len(batch) else shown:
            consumer.ack(item)
        limit = _remaining(limit, len(shown))
        if limit == 0:
            break
    consumer.flush()


def _show_batch(messages: list[StreamMessage], partitions: int, show: ShowMessage) -> None:
    for message in messages:
        show(message, partitions)
    sys.stdout.flush()


def _remaining(limit: int | None, count: int) -> int | None:
    return None if limit is None else limit - count


def _message_printer(template: str | None, *, payload: bool, raw: bool, json: bool) -> ShowMessage:
    """Return the function that prints messages in the chosen format."""
    if sum((template is not None, payload, json)) > 1:
        raise InvalidRequest("--format, --payload and --json each say how messages are printed: give one of them")
    if template is not None:
        printed = compile_template(template, terminal=sys.stdout.isatty() and not raw)
        return lambda message, _partitions: _write(printed(message))
    if json:
        return lambda message, _partitions: print_json({"partition": message.partition} | as_json(record_of(message)))
    return partial(_show_payload, raw=raw) if payload else _show


def _write(text: str) -> None:
    sys.stdout.write(text)


def _show_payload(message: StreamMessage, _partitions: int, *, raw: bool) -> None:
    write_bytes(message.payload + b"\n", raw=raw)


def _show(message: StreamMessage, partitions: int) -> None:
    print_record(record_of(message), partition=message.partition if partitions > 1 else None)
