"""`penstock doctor`: check this machine for everything that Penstock needs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli import options as opt
from penstock.cli.exit_codes import EXIT_FINDINGS
from penstock.cli.output import print_json, table

if TYPE_CHECKING:
    from penstock.doctor import BrokerPlaces


def doctor(
    config: opt.Config = None,
    data: opt.ServerData = None,
    host: opt.Host = None,
    tcp_port: opt.Port = None,
    ws_port: opt.Port = None,
    http_port: opt.Port = None,
    spark: Annotated[bool, typer.Option("--spark", help="Start Spark for a moment, too.")] = False,
    json: opt.Json = False,
) -> None:
    """Look at Python, the extras, Java, the kernels, the disk and the ports; say what is amiss, and what to do.

    An extra that is not installed is no fault: its line says what it would bring. The directory and the ports are
    those that `penstock serve` would take, from the file, PENSTOCK_... variables and options. Exit code 1 if something
    is missing.

    Examples: `penstock doctor`, `penstock doctor --spark`, `penstock doctor --json | jq -r 'select(.state != "ok")'`
    """
    from penstock.doctor import FindingState, examine

    options = {"data": data, "host": host, "tcp_port": tcp_port, "ws_port": ws_port, "http_port": http_port}
    findings = list(examine(lambda: _places(config, options), start_spark=spark))
    if json:
        for finding in findings:
            print_json({"what": finding.what, "state": finding.state.value, "text": finding.text})
    else:
        table(
            "this machine",
            ("what", "state", "found"),
            [(finding.what, finding.state.value, finding.text) for finding in findings],
        )
    if any(finding.state is FindingState.MISSING for finding in findings):
        raise typer.Exit(EXIT_FINDINGS)


def _places(config: Path | None, options: dict[str, Any]) -> BrokerPlaces:
    """Return the data directory and the ports that `penstock serve` would use. If the extra `server` is not installed,
    return the directory alone."""
    from penstock.doctor import SERVER, BrokerPlaces

    if SERVER.absent():
        return BrokerPlaces(data=options["data"] or Path(os.environ.get("PENSTOCK_DATA") or opt.DEFAULT_DATA))
    from penstock.server import settings

    chosen = settings.load(config, os.environ, options)
    ports = (("tcp", chosen.tcp_port), ("websocket", chosen.ws_port), ("http", chosen.http_port))
    return BrokerPlaces(data=chosen.data, host=chosen.host, ports=ports)
