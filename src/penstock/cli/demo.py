"""`penstock demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli import options as opt
from penstock.cli.output import console, print_json, table


def demo(
    messages: Annotated[int, typer.Option(min=1000, help="How many messages to write.")] = 1_000_000,
    small: Annotated[bool, typer.Option("--small", help="50,000 messages, for a quick look.")] = False,
    keep: Annotated[Path | None, typer.Option(help="Leave the data in this new directory.")] = None,
    json: opt.Json = False,
) -> None:
    """Watch the log keep its promises: write, kill the writer, recover, verify.

    Example: `penstock demo --keep /tmp/penstock-demo`
    """
    from penstock.demo.log import run

    say = console(stderr=True)
    result = run(50_000 if small else messages, keep=keep, say=lambda line: say.print(line, markup=False))
    if json:
        print_json(result.facts | {"holds": result.holds})
    else:
        table("what happened", ("step", "result"), result.rows)
        for line in result.next_steps:
            typer.echo(line)
    if not result.holds:
        raise typer.Exit(opt.EXIT_FINDINGS)
