"""Commands for live messaging with a broker: publish, subscribe, request, respond, ping, services."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from penstock.cli import options as opt
from penstock.cli.line_reader import MessageLimits, line_groups, whole_input
from penstock.cli.output import many, on_one_line, print_json, table, text_or_none, write_bytes
from penstock.cli.policy_advice import is_nameless, nameless_advice, with_advice
from penstock.core.errors import InvalidRequest, PenstockError, SchemaRejected
from penstock.core.limits import BLOCK_BYTES_CEILING
from penstock.core.units import parse_duration_ms

if TYPE_CHECKING:
    from penstock.client.sync import Client
    from penstock.client.wire.protocol import Message

Payload = Annotated[str | None, typer.Argument(help="The message; '-' or nothing: standard input.")]
Version = Annotated[str, typer.Option("--version", help="Version of the message's format.")]

_LINES_AT_ONCE = 1000
_UNANSWERED_MAX = 512
"""The most messages that the client sends before the first of them is confirmed. When that one is refused, the others
may have been published."""
_INPUT_LIMITS = MessageLimits(block_bytes=BLOCK_BYTES_CEILING, record_bytes=0, payload_bytes=BLOCK_BYTES_CEILING)
"""The largest input that is read before the broker is asked. The broker has smaller limits of its own."""


def _stdin() -> BinaryIO:
    if sys.stdin is None:
        raise InvalidRequest("there is no standard input: give the payload as an argument")
    return sys.stdin.buffer


def _payload(argument: str | None) -> bytes:
    """Return the argument as bytes; without an argument, all of standard input."""
    if argument is None or argument == "-":
        if sys.stdin is not None and sys.stdin.isatty():
            sys.stderr.write("the payload, and Ctrl-D at its end:\n")
        return next(whole_input(_stdin(), _INPUT_LIMITS))[0]
    return os.fsencode(argument)


@opt.bundled
def publish(
    broker: opt.BrokerOptions,
    topic: opt.Topic,
    payload: Payload = None,
    lines: Annotated[bool, typer.Option("--lines", help="Each line of standard input is a message.")] = False,
    version: Version = "1.0.0",
    json: opt.Json = False,
) -> None:
    """Publish a message: into the log if its topic is kept, and to whoever is subscribed now.

    Done when it is on disk; for a live topic, when the broker has passed it on, and an error if nobody would have
    received it. With --lines the first error ends it, and says how many lines were published before; some of those
    behind it may be on their way then.

    Examples:

    `penstock publish orders.created '{"id": 7}'`

    `tail -f events.jsonl | penstock publish orders.created --lines`
    """
    if lines and payload is not None:
        raise InvalidRequest("--lines reads the messages from standard input: leave out the payload")
    with broker.connect() as client:
        if lines:
            count = _publish_lines(client, topic, version)
        else:
            count = _publish_one(client, topic, _payload(payload), version)
    if json:
        print_json({"topic": topic, "published": count})
    else:
        typer.echo(f"{many(count, 'message')} published to {topic}")


def _publish_one(client: Client, topic: str, payload: bytes, version: str) -> int:
    try:
        client.publish(topic, payload, version=version)
    except SchemaRejected as error:
        raise with_advice(client, topic, error, payload) from None
    return 1


def _publish_lines(client: Client, topic: str, version: str) -> int:
    """Publish each line of standard input as a message; return their number. An error says how many were published
    before it."""
    count = 0
    try:
        for part in line_groups(_stdin(), _INPUT_LIMITS, count_max=_LINES_AT_ONCE):
            count += _publish_part(client, topic, part, version, count)
    except PenstockError as error:
        done = count + int(str(error.details.pop("confirmed", 0)))
        unsure = f"; lines up to {error.details['last_line']:,} may be, too" if "last_line" in error.details else ""
        text = f"{error.message}; {many(done, 'line')} before it published{unsure}"
        raise type(error)(text, **error.details, published=done) from None
    return count


def _publish_part(client: Client, topic: str, part: list[bytes], version: str, before: int) -> int:
    """Publish some lines; return the number published so far. The error for a refused line has its number, and the
    number of the last line after it that may have been published."""
    try:
        return client.publish_many(topic, part, version=version)
    except SchemaRejected as error:
        index = int(str(error.details["confirmed"]))
        advice = f"; {nameless_advice(topic)}" if is_nameless(error.message) else ""
        line, last = before + index + 1, before + min(len(part), index + _UNANSWERED_MAX)
        facts = {"line": line} | ({"last_line": last} if last > line else {})
        raise SchemaRejected(f"line {line:,}: {error.message}{advice}", **error.details, **facts) from None


@opt.bundled
def subscribe(
    broker: opt.BrokerOptions,
    patterns: Annotated[list[str], typer.Argument(help="Topics, or patterns: + one level, # the rest.")],
    limit: opt.Limit = None,
    payload: opt.PayloadAlone = False,
    raw: opt.Raw = False,
    json: opt.Json = False,
) -> None:
    """Print messages as they are published, until Ctrl-C.

    Lost connections are made again; what was published in between is not seen.

    Examples:

    `penstock subscribe 'orders.#'`

    `penstock subscribe orders.created payments.+ --json --limit 10`
    """
    import queue

    arrived: queue.Queue[Message] = queue.Queue(_LINES_AT_ONCE)
    with broker.connect(reconnect=True) as client:
        for pattern in patterns:
            client.subscribe(pattern, arrived.put)
        sys.stderr.write(f"subscribed to {', '.join(patterns)}\n")
        shown = 0
        while limit is None or shown < limit:
            _print(arrived.get(), payload=payload, json=json, raw=raw)
            shown += 1


def _print(message: Message, *, payload: bool, json: bool, raw: bool = False) -> None:
    if json:
        print_json(_as_json(message))
    elif payload:
        write_bytes(message.payload + b"\n", raw=raw)
    else:
        text = text_or_none(message.payload)
        shown = f"({len(message.payload)} bytes)" if text is None else on_one_line(text)
        sys.stdout.write(f"{message.topic} {shown}\n")
    sys.stdout.flush()


def _as_json(message: Message) -> dict[str, object]:
    return {"topic": message.topic, "version": message.version, "id": message.id, **_body(message.payload)}


def _body(payload: bytes) -> dict[str, str]:
    """Return a payload as a field for JSON: as text if it is UTF-8, else in base64."""
    text = text_or_none(payload)
    return {"payload": text} if text is not None else {"payload_base64": b64encode(payload).decode()}


@opt.bundled
def request(
    broker: opt.BrokerOptions,
    topic: Annotated[str, typer.Argument(help="What to ask.")],
    payload: Payload = None,
    timeout: Annotated[str, typer.Option("--timeout", "-t", help="How long to wait, such as 500ms or 30s.")] = "5s",
    version: Version = "1.0.0",
    raw: opt.Raw = False,
    json: opt.Json = False,
) -> None:
    """Ask a service, and print its answer.

    Examples:

    `penstock request prices.quote '{"item": 7}' --timeout 2s`

    `penstock request system.topic.list '{}'`
    """
    seconds = parse_duration_ms(timeout) / 1000
    with broker.connect() as client:
        answer = client.request(topic, _payload(payload), version=version, timeout=seconds)
    if json:
        print_json({"topic": topic, **_body(answer)})
        return
    ended = text_or_none(answer) is None or answer.endswith(b"\n")
    write_bytes(answer if ended else answer + b"\n", raw=raw)


@opt.bundled
def respond(
    broker: opt.BrokerOptions,
    pattern: Annotated[str, typer.Argument(help="The topic to serve, or a pattern.")],
    command: Annotated[
        str | None,
        typer.Option("--exec", "-x", help="Shell command run for each request: payload in, answer out."),
    ] = None,
    priority: Annotated[int, typer.Option(help="The highest is asked first.")] = 0,
    name: Annotated[str | None, typer.Option(help="Register as a service of this name.")] = None,
    limit: opt.Limit = None,
) -> None:
    """Serve a topic until Ctrl-C: by a shell command for each request, or with one line of standard input each.

    The command finds the topic in PENSTOCK_TOPIC.

    Examples:

    `penstock respond text.upper --exec 'tr a-z A-Z'`

    `penstock respond prices.quote < answers.txt`
    """
    import queue
    import threading

    lock = threading.Lock()
    lines = _lines_of(0)
    answered: queue.SimpleQueue[bool] = queue.SimpleQueue()
    """A queue with an item for each answered request; False if there was no line of standard input left for it."""

    def handle(message: Message) -> bytes:
        more = True
        try:
            if command is not None:
                return _command_answer(command, message)
            with lock:
                answer = _line_answer(message, lines)
            more = answer is not None
            return _require_answer(answer)
        finally:
            answered.put(more)

    with broker.connect(reconnect=True, name=name) as client:
        client.respond(pattern, handle, priority=priority)
        sys.stderr.write(f"serving {pattern}\n")
        count = 0
        while (limit is None or count < limit) and answered.get():
            count += 1


def _command_answer(command: str, message: Message) -> bytes:
    environment = os.environ | {"PENSTOCK_TOPIC": message.topic}
    ran = subprocess.run(command, shell=True, input=message.payload, capture_output=True, env=environment)  # noqa: S602
    if ran.returncode != 0:
        said = ran.stderr.decode(errors="replace").strip()[-200:]
        raise PenstockError(f"the command ended with {ran.returncode}{f': {said}' if said else ''}")
    return ran.stdout


def _line_answer(message: Message, lines: Iterator[bytes]) -> bytes | None:
    """Print the request, and return the next line of standard input as the answer; None if there are no more lines."""
    _print(message, payload=False, json=False)
    return next(lines, None)


def _lines_of(file: int) -> Iterator[bytes]:
    """Yield lines from a file descriptor without Python's buffered reader. A thread that waits in a buffered reader
    holds a lock that the interpreter needs at exit."""
    rest = b""
    while data := os.read(file, 65_536):
        *whole_lines, rest = (rest + data).split(b"\n")
        yield from (line.rstrip(b"\r") for line in whole_lines)
    if rest:
        yield rest


def _require_answer(answer: bytes | None) -> bytes:
    if answer is None:
        raise PenstockError("this service has no more answers")
    return answer


@opt.bundled
def ping(
    broker: opt.BrokerOptions,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="How often.")] = 4,
    json: opt.Json = False,
) -> None:
    """See whether the broker is there, and how far away.

    Example: `penstock ping --count 1 --url tcp://127.0.0.1:7450`
    """
    with broker.connect() as client:
        for number in range(count):
            if number:
                time.sleep(0.2)
            seconds = client.ping()
            if json:
                print_json({"milliseconds": round(seconds * 1000, 3)})
            else:
                typer.echo(f"answer in {seconds * 1000:.2f} ms")


@opt.bundled
def services(
    broker: opt.BrokerOptions,
    everything: Annotated[bool, typer.Option("--all", help="Also connections that registered no name.")] = False,
    json: opt.Json = False,
) -> None:
    """List connected services, and the topics that they serve and listen to.

    Example: `penstock services --json`
    """
    with broker.connect() as client:
        entries = client.ask("system.service.list")["services"]
        topics = client.ask("system.topic.list")["topics"]
    rows = [_service(service, topics) for service in entries if service["name"] or everything]
    if json:
        for row in rows:
            print_json(row)
    elif not rows:
        typer.echo("no services are registered: a client registers with a name")
    else:
        columns = ("name", "description", "serves", "listens to", "connected", "id")
        table(
            "services",
            columns,
            [
                (r["name"], r["description"], " ".join(r["serves"]), " ".join(r["listens"]), r["connected_at"], r["id"])
                for r in rows
            ],
        )


def _service(service: dict[str, Any], topics: list[dict[str, Any]]) -> dict[str, Any]:
    def of(action: str) -> list[str]:
        return [
            topic["topic"]
            for topic in topics
            if topic["action"] == action and any(each["serviceId"] == service["id"] for each in topic["subscribers"])
        ]

    return {
        "id": service["id"],
        "name": service["name"],
        "description": service["description"],
        "connected_at": service["connectedAt"],
        "last_heard_at": service["lastHeartbeat"],
        "serves": of("request"),
        "listens": of("publish"),
    }
