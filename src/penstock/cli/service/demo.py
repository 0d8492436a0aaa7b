"""`penstock demo`: show the whole system at work."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import options as opt
from penstock.cli.exit_codes import EXIT_FINDINGS
from penstock.cli.output import console, print_json, table

if TYPE_CHECKING:
    from penstock.demo.report.account import AccountRow
    from penstock.demo.story import DemoResult


def demo(
    small: Annotated[bool, typer.Option("--small", help="A few thousand events, for a quick look and for CI.")] = False,
    events: Annotated[
        int | None, typer.Option(min=2000, max=1_000_000, help="How many events. Default: 200,000.")
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the broker running and all files there, and say how to look around.")
    ] = False,
    folder: Annotated[
        Path | None, typer.Option("--dir", metavar="DIR", help="Work in this new directory, not in a temporary one.")
    ] = None,
    json: opt.Json = False,
) -> None:
    """Watch the whole system at work, in about a minute: broker, schemas, a SIGKILL, dead letters, Spark, a plot.

    Events of a shop are published over TCP, WebSocket and HTTP; some are sent twice, some are refused, some fail their
    consumer. The broker is killed in the middle. The log goes into a Delta table, an audit compares the two, a pipeline
    sums the revenue of every hour. At the end every message is accounted for.

    Exit code 0: all sums add up; 1: one does not; 2: a step failed.

    Examples:

    `penstock demo`

    `penstock demo --small --json`

    `penstock demo --keep --dir /tmp/shop`
    """
    from penstock.demo.base.screen import Screen
    from penstock.demo.story import EVENTS, EVENTS_SMALL, DemoOptions, run

    asked = DemoOptions(events=events or (EVENTS_SMALL if small else EVENTS), folder=folder, keep=keep)
    with Screen() as screen:
        result = run(asked, screen)
    if json:
        print_json(result.as_dict())
    else:
        _print(result, kept=keep)
    if not result.holds:
        raise typer.Exit(EXIT_FINDINGS)


def _print(result: DemoResult, *, kept: bool) -> None:
    from penstock.demo.report.chart import lines

    out = console()
    for line in ("revenue per hour", *lines(result.revenue, plain=out.options.ascii_only), ""):
        out.print(line, markup=False, highlight=False, soft_wrap=True)
    table("what happened", ("what", "count", "adds up"), [(each.what, each.count, _sum(each)) for each in result.rows])
    verdict = "every sum adds up" if result.holds else "NOT EVERY SUM ADDS UP"
    typer.echo(f"{verdict}; {result.seconds:.0f} s")
    left = "everything is" if kept else "the plot and the audit are"
    typer.echo(f"{left} in {result.folder}: {', '.join(Path(each).name for each in result.as_dict()['results'])}")
    for what, command in result.look_around:
        typer.echo(f"\n# {what}\n{command}")


def _sum(row: AccountRow) -> str:
    if row.expected is None:
        return ""
    why = row.why or f"{row.expected:,}"
    return f"= {why}" if row.holds else f"IS NOT {why} ({row.expected:,})"
