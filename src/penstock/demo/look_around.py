"""Commands to look around in a demo that was left running. They can be pasted into a shell as they are."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Final

from penstock.demo.base.orders import PLACED, TOPIC
from penstock.demo.broker.process import BrokerProcess
from penstock.demo.traffic.billing import SUBSCRIPTION
from penstock.demo.traffic.http_publisher import PATH
from penstock.demo.traffic.schemas import SUBJECT

_NAME: Final = "penstock"


def program(executable: str = sys.executable) -> str:
    """Return the shell command for the Penstock that runs now: the bare name, if the shell finds the same program by
    it."""
    ours = Path(executable).with_name(_NAME)
    found = shutil.which(_NAME)
    if found is not None and Path(found).resolve() == ours.resolve():
        return _NAME
    if not ours.exists():
        return f"{shlex.quote(executable)} -m {_NAME}"
    short = os.path.relpath(ours)
    return shlex.quote(short if not short.startswith("..") else str(ours))


def _stop_command(pid: int) -> str:
    """Return the command that stops the broker and waits: it saves its state, and removes its ready file."""
    return f"kill {pid}; while kill -0 {pid} 2>/dev/null; do sleep 0.1; done"


def commands(broker: BrokerProcess, folder: Path, events: int) -> list[tuple[str, str]]:
    """Return pairs of a description and a command."""
    run, url, http = program(), broker.url, broker.http_url
    here = shlex.quote(str(folder))
    order = (
        f'{{"event":{events},"order":{events},"customer":7,"product":"kettle","quantity":1,"cents":4990,'
        '"at":"2026-03-05T08:00:00Z"}'
    )
    return [
        ("the topics", f"{run} topic ls --url {url}"),
        ("three messages", f"{run} consume {TOPIC} --url {url} --from earliest --limit 3"),
        ("how far billing is", f"{run} sub describe {TOPIC} {SUBSCRIPTION} --url {url}"),
        ("another order, with nothing but curl", f"curl -s '{http}{PATH}?topic={TOPIC}&type={PLACED}' -d '{order}'"),
        ("events as they are stored", f"curl -sN '{http}{PATH}?topic={TOPIC}&from=earliest&limit=3'"),
        ("the topic and its settings", f"curl -s {http}/v1/topics/{TOPIC}"),
        ("its schema", f"curl -s {http}/subjects/{SUBJECT}/versions/latest"),
        ("the tables", f"{run} lake show --warehouse {here}/lake"),
        ("every checksum", f"{run} segment verify {here}/data"),
        ("the end of it", f"{_stop_command(broker.pid)}; rm -r {here}"),
    ]
