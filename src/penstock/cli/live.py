"""Commands that talk to a broker: publish, subscribe, request, respond, ping, services."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from penstock.cli import options as opt
from penstock.cli.feed import Room, groups, whole
from penstock.cli.output import many, on_one_line, print_json, table, text_or_none
from penstock.core.errors import InvalidRequest, PenstockError
from penstock.core.limits import BLOCK_BYTES_CEILING
from penstock.core.units import parse_duration_ms

if TYPE_CHECKING:
    from penstock.client.blocking import Client
    from penstock.client.core import Message

Url = Annotated[
    str | None, typer.Option("--url", "-u", envvar="PENSTOCK_URL", help="tcp://host:port or tls://host:port.")
]
TlsCa = Annotated[Path | None, typer.Option(help="Trust brokers whose certificate this signed (PEM).")]
TlsCert = Annotated[Path | None, typer.Option(help="Our own certificate, where the broker asks for one (PEM).")]
TlsKey = Annotated[Path | None, typer.Option(help="Its private key (PEM).")]
Payload = Annotated[str | None, typer.Argument(help="The message; '-' or nothing: standard input.")]
Version = Annotated[str, typer.Option("--version", help="Version of the message's format.")]

_LINES_AT_ONCE = 1000
_ROOM = Room(block_bytes=BLOCK_BYTES_CEILING, record_bytes=0, payload_bytes=BLOCK_BYTES_CEILING)
"""The broker says what is too large for it; this bounds what is read before it is asked."""


def _connect(url: str | None, ca: Path | None, cert: Path | None, key: Path | None, **others: Any) -> Client:
    from penstock.client.blocking import connect

    return connect(url, tls_ca=ca, tls_cert=cert, tls_key=key, **others)


def _stdin() -> BinaryIO:
    if sys.stdin is None:
        raise InvalidRequest("there is no standard input: give the payload as an argument")
    return sys.stdin.buffer


def _payload(given: str | None) -> bytes:
    """The argument, or all of standard input."""
    if given is None or given == "-":
        if sys.stdin is not None and sys.stdin.isatty():
            sys.stderr.write("the payload, and Ctrl-D at its end:\n")
        return next(whole(_stdin(), _ROOM))[0]
    return os.fsencode(given)


def publish(
    topic: Annotated[str, typer.Argument(help="orders.created, or /namespace/orders.created")],
    payload: Payload = None,
    lines: Annotated[bool, typer.Option("--lines", help="Each line of standard input is a message.")] = False,
    version: Version = "1.0.0",
    url: Url = None,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    json: opt.Json = False,
) -> None:
    """Publish a message to whoever is subscribed now.

    Done when the broker has passed it on; an error if nobody would have received it. With --lines the first such error
    ends it, and says how many lines were published before.

    Examples:

    `penstock publish orders.created '{"id": 7}'`

    `tail -f events.jsonl | penstock publish orders.created --lines`
    """
    if lines and payload is not None:
        raise InvalidRequest("--lines reads the messages from standard input: leave out the payload")
    with _connect(url, tls_ca, tls_cert, tls_key, reconnect=False) as client:
        if lines:
            count = _publish_lines(client, topic, version)
        else:
            client.publish(topic, _payload(payload), version=version)
            count = 1
    if json:
        print_json({"topic": topic, "published": count})
    else:
        typer.echo(f"{many(count, 'message')} published to {topic}")


def _publish_lines(client: Client, topic: str, version: str) -> int:
    """How many. An error says how many before it were published."""
    count = 0
    try:
        for part in groups(_stdin(), _ROOM, count_max=_LINES_AT_ONCE):
            count += client.publish_many(topic, part, version=version)
    except PenstockError as error:
        done = count + int(str(error.details.pop("confirmed", 0)))
        raise type(error)(f"{error.message}; {many(done, 'line')} before it published", published=done) from None
    return count


def subscribe(
    patterns: Annotated[list[str], typer.Argument(help="Topics, or patterns: + one level, # the rest.")],
    limit: opt.Limit = None,
    payload: Annotated[bool, typer.Option("--payload", help="Only the payloads, one a line.")] = False,
    url: Url = None,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
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
    with _connect(url, tls_ca, tls_cert, tls_key) as client:
        for pattern in patterns:
            client.subscribe(pattern, arrived.put)
        sys.stderr.write(f"subscribed to {', '.join(patterns)}\n")
        shown = 0
        while limit is None or shown < limit:
            _print(arrived.get(), payload=payload, json=json)
            shown += 1


def _print(message: Message, *, payload: bool, json: bool) -> None:
    if json:
        print_json(_described(message))
    elif payload:
        sys.stdout.buffer.write(message.payload + b"\n")
    else:
        text = text_or_none(message.payload)
        shown = f"({len(message.payload)} bytes)" if text is None else on_one_line(text)
        sys.stdout.write(f"{message.topic} {shown}\n")
    sys.stdout.flush()


def _described(message: Message) -> dict[str, object]:
    return {"topic": message.topic, "version": message.version, "id": message.id, **_body(message.payload)}


def _body(payload: bytes) -> dict[str, str]:
    """As text where it is text."""
    text = text_or_none(payload)
    return {"payload": text} if text is not None else {"payload_base64": b64encode(payload).decode()}


def request(
    topic: Annotated[str, typer.Argument(help="What to ask.")],
    payload: Payload = None,
    timeout: Annotated[str, typer.Option("--timeout", "-t", help="How long to wait, such as 500ms or 30s.")] = "5s",
    version: Version = "1.0.0",
    url: Url = None,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    json: opt.Json = False,
) -> None:
    """Ask a service, and print its answer.

    Examples:

    `penstock request prices.quote '{"item": 7}' --timeout 2s`

    `penstock request system.topic.list '{}'`
    """
    seconds = parse_duration_ms(timeout) / 1000
    with _connect(url, tls_ca, tls_cert, tls_key, reconnect=False) as client:
        answer = client.request(topic, _payload(payload), version=version, timeout=seconds)
    if json:
        print_json({"topic": topic, **_body(answer)})
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(answer)
    if text_or_none(answer) is not None and not answer.endswith(b"\n"):
        sys.stdout.buffer.write(b"\n")


def respond(
    pattern: Annotated[str, typer.Argument(help="The topic to serve, or a pattern.")],
    command: Annotated[
        str | None,
        typer.Option("--exec", "-x", help="Shell command run for each request: payload in, answer out."),
    ] = None,
    priority: Annotated[int, typer.Option(help="The highest is asked first.")] = 0,
    name: Annotated[str | None, typer.Option(help="Register as a service of this name.")] = None,
    limit: opt.Limit = None,
    url: Url = None,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
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
    """False after the last line of standard input."""

    def handle(message: Message) -> bytes:
        more = True
        try:
            if command is not None:
                return _from_command(command, message)
            with lock:
                answer = _from_line(message, lines)
            more = answer is not None
            return _checked(answer)
        finally:
            answered.put(more)

    with _connect(url, tls_ca, tls_cert, tls_key, name=name) as client:
        client.respond(pattern, handle, priority=priority)
        sys.stderr.write(f"serving {pattern}\n")
        count = 0
        while (limit is None or count < limit) and answered.get():
            count += 1


def _from_command(command: str, message: Message) -> bytes:
    environment = os.environ | {"PENSTOCK_TOPIC": message.topic}
    ran = subprocess.run(command, shell=True, input=message.payload, capture_output=True, env=environment)  # noqa: S602
    if ran.returncode != 0:
        said = ran.stderr.decode(errors="replace").strip()[-200:]
        raise PenstockError(f"the command ended with {ran.returncode}{f': {said}' if said else ''}")
    return ran.stdout


def _from_line(message: Message, lines: Iterator[bytes]) -> bytes | None:
    """The request is printed, and the next line answers it; None when there are no more."""
    _print(message, payload=False, json=False)
    return next(lines, None)


def _lines_of(file: int) -> Iterator[bytes]:
    """Without Python's own buffer: a thread that waits in it holds a lock that the end of the program needs."""
    rest = b""
    while data := os.read(file, 65_536):
        *whole_lines, rest = (rest + data).split(b"\n")
        yield from (line.rstrip(b"\r") for line in whole_lines)
    if rest:
        yield rest


def _checked(answer: bytes | None) -> bytes:
    if answer is None:
        raise PenstockError("this service has no more answers")
    return answer


def ping(
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="How often.")] = 4,
    url: Url = None,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    json: opt.Json = False,
) -> None:
    """See whether the broker is there, and how far away.

    Example: `penstock ping --count 1 --url tcp://127.0.0.1:7450`
    """
    with _connect(url, tls_ca, tls_cert, tls_key, reconnect=False) as client:
        for number in range(count):
            if number:
                time.sleep(0.2)
            seconds = client.ping()
            if json:
                print_json({"milliseconds": round(seconds * 1000, 3)})
            else:
                typer.echo(f"answer in {seconds * 1000:.2f} ms")


def services(
    everything: Annotated[bool, typer.Option("--all", help="Also connections that registered no name.")] = False,
    url: Url = None,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    json: opt.Json = False,
) -> None:
    """Who is connected, and what they serve and listen to.

    Example: `penstock services --json`
    """
    with _connect(url, tls_ca, tls_cert, tls_key, reconnect=False) as client:
        found = _ask(client, "system.service.list")["services"]
        topics = _ask(client, "system.topic.list")["topics"]
    rows = [_service(each, topics) for each in found if each["name"] or everything]
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


def _ask(client: Client, topic: str) -> Any:
    import json

    return json.loads(client.request(topic, b"{}"))


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
