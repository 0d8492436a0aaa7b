"""`penstock doctor`: what this machine has of what Penstock needs."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli import options as opt
from penstock.cli.output import print_json, table


def doctor(
    data: opt.Data = opt.DEFAULT_DATA,
    spark: Annotated[bool, typer.Option("--spark", help="Start Spark for a moment, too.")] = False,
    json: opt.Json = False,
) -> None:
    """Look at Python, Java, Spark, the kernels, the disk and the ports, and say what is missing and what to do.

    Exit code 1 if something is missing.

    Examples: `penstock doctor`, `penstock doctor --spark`, `penstock doctor --json | jq -r 'select(.state != "ok")'`
    """
    from penstock.doctor import State, examine
    from penstock.server.settings import Settings

    ports = Settings()
    wanted = {"tcp": ports.tcp_port, "websocket": ports.ws_port, "http": ports.http_port}
    found = list(examine(data, wanted, start_spark=spark))
    if json:
        for each in found:
            print_json({"what": each.what, "state": each.state.value, "text": each.text})
    else:
        table("this machine", ("what", "state", "found"), [(each.what, each.state.value, each.text) for each in found])
    if any(each.state is State.MISSING for each in found):
        raise typer.Exit(opt.EXIT_FINDINGS)
