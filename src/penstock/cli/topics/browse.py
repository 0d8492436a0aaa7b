"""`penstock topic browse` and `penstock topic get`: show messages of a durable topic, filtered by the broker."""

from __future__ import annotations

import sys
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from penstock.cli import options as opt
from penstock.cli.message_format import print_record
from penstock.cli.output import many, print_json, write_bytes

if TYPE_CHECKING:
    from penstock.client.sync import Client

_PAGE: Final = 1_000
"""The most messages in one answer."""
_SCAN: Final = 100_000
"""The most messages that the broker looks at for one answer. It is the broker's limit, so that few requests are
needed."""
_PREVIEW: Final = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowseFilter:
    """The options that filter messages. A message must match each one that is given."""

    only_type: opt.OnlyType = None
    former_type: opt.FormerType = None
    type_regex: Annotated[str | None, typer.Option(help="Only types in which this is found (RE2).")] = None
    only_key: opt.OnlyKey = None
    attr: opt.Attr = None
    contains: Annotated[str | None, typer.Option(help="Only payloads with this text in them.")] = None

    def fields(self) -> dict[str, Any]:
        plain = {
            "type": self.only_type,
            "type_regex": self.type_regex,
            "key": self.only_key,
            "contains": self.contains,
        }
        attributes = opt.parse_attributes(self.attr)
        filters = {name: value for name, value in plain.items() if value is not None}
        return filters | ({"attributes": attributes} if attributes else {})


@dataclass(slots=True)
class BrowseProgress:
    """Counts of the messages that were scanned and that matched so far."""

    scanned: int = 0
    matched: int = 0

    def __str__(self) -> str:
        return f"{many(self.matched, 'message')} shown of {self.scanned:,} looked at"


@opt.bundled
def browse(
    broker: opt.BrokerOptions,
    filters: BrowseFilter,
    topic: opt.Topic,
    from_: opt.OptionalFrom = None,
    to: opt.To = None,
    last: Annotated[
        int | None, typer.Option(min=1, help="So many before the end of each partition, in the place of --from.")
    ] = None,
    partition: opt.Partition = None,
    limit: opt.Limit = None,
    json: opt.Json = False,
) -> None:
    """Browse the messages of a topic; the broker filters them, and sends only those that match.

    Examples:

    `penstock topic browse orders.created --last 10`

    `penstock topic browse orders.created --only-type 'order.*' --attr region=eu --contains 4711 --limit 5 --json`
    """
    places = {"from": from_, "until": to, "last": last, "partition": partition}
    fields = {"topic": topic} | {name: value for name, value in places.items() if value is not None} | filters.fields()
    progress = BrowseProgress()
    try:
        with broker.connect() as client:
            for entry in _entries(client, fields, limit, progress):
                _print(entry, json=json)
    except (KeyboardInterrupt, SystemExit):
        sys.stderr.write(f"penstock: interrupted: {progress}\n")
        raise
    if not json:
        sys.stderr.write(f"penstock: {progress}\n")


def _entries(
    client: Client, fields: dict[str, Any], limit: int | None, progress: BrowseProgress
) -> Iterator[dict[str, Any]]:
    """Yield matching messages, fetched page by page. Messages lost to retention or damage are reported on standard
    error."""
    resume: dict[str, str] = {}
    while limit is None or progress.matched < limit:
        room = _PAGE if limit is None else min(_PAGE, limit - progress.matched)
        bounds = {"limit": room, "scan": _SCAN, "preview_bytes": _PREVIEW}
        answer = client.ask("system.message.browse", fields | bounds | resume)
        progress.scanned += answer["scanned"]
        progress.matched += answer["matched"]
        _tell_gaps(answer)
        yield from answer["messages"]
        if answer["end"]:
            return
        resume = {"resume": answer["resume"]}


def _tell_gaps(answer: dict[str, Any]) -> None:
    for gap in answer.get("lost", []):
        sys.stderr.write(f"penstock: {_gap(gap)} were dropped by retention before they were looked at\n")
    for gap in answer.get("damaged", []):
        sys.stderr.write(f"penstock: {_gap(gap)} are damaged: {gap['reason']}\n")


def _gap(gap: dict[str, Any]) -> str:
    return f"offsets {gap['start']} to {gap['stop'] - 1} of partition {gap['partition']}"


@opt.bundled
def get(
    broker: opt.BrokerOptions,
    topic: opt.Topic,
    message: Annotated[str, typer.Argument(help="Its offset, or its id.")],
    partition: opt.Partition = None,
    payload: Annotated[bool, typer.Option("--payload", help="The payload alone, as it was published.")] = False,
    raw: opt.Raw = False,
    json: opt.Json = False,
) -> None:
    """Fetch one message of a topic.

    Examples:

    `penstock topic get orders.created 4711`

    `penstock topic get orders.created 1f0c2a4e-7b1d-6c00-9a3f-0123456789ab --payload`
    """
    is_offset = message.isascii() and message.isdecimal()
    asked: dict[str, Any] = {"topic": topic} | ({"offset": int(message)} if is_offset else {"id": message})
    asked |= {} if partition is None else {"partition": partition}
    with broker.connect() as client:
        if payload:
            _write_payload(client, asked, raw=raw)
            return
        entry = client.ask("system.message.get", asked)
    _print(entry, json=json)


def _write_payload(client: Client, asked: dict[str, Any], *, raw: bool) -> None:
    written, size = 0, 1
    while written < size:
        answer = client.ask("system.message.get", asked | {"payload_from": written})
        piece = b64decode(answer["payload_base64"])
        write_bytes(piece, raw=raw)
        written, size = written + len(piece), answer["payload_bytes"]
    sys.stdout.flush()


def _print(entry: dict[str, Any], *, json: bool) -> None:
    if json:
        print_json(entry)
        return
    from penstock.client.consume.message_preview import record_of

    print_record(record_of(entry), partition=entry["partition"])
    if entry.get("payload_cut"):
        shown = f"--partition {entry['partition']} {entry['offset']}"
        sys.stdout.write(f"    ... of {entry['payload_bytes']:,} bytes: `penstock topic get TOPIC {shown} --payload`\n")
