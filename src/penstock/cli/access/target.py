"""The target of commands about keys and roles: a broker over the network, or a data directory, whether a broker uses it
or not."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli import options as opt

DataDirectory = Annotated[
    Path | None,
    typer.Option(
        "--data",
        "-d",
        help="A data directory on this machine, with or without a broker running there. Default: ask the broker.",
        readable=False,
    ),
]


def ask_access(broker: opt.BrokerOptions, data: Path | None, topic: str, fields: dict[str, Any]) -> dict[str, Any]:
    if data is None:
        with broker.connect() as client:
            answer: dict[str, Any] = client.ask(topic, fields)
        return answer
    from penstock.server.security.offline_keys import ask as ask_directory

    return ask_directory(data, topic, fields)
