"""`penstock backup` and `penstock restore`: copy a data directory while its broker runs, and restore it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperGroup

from penstock import __version__
from penstock.cli import options as opt
from penstock.cli.exit_codes import EXIT_FINDINGS
from penstock.cli.output import bytes_text, many, print_facts, print_json, progress, table, time_text

if TYPE_CHECKING:
    from penstock.storage.backup.backup import Backup
    from penstock.storage.backup.manifest import Manifest

_CREATE: Final = "create"
_FINDINGS_SHOWN: Final = 20
"""The most findings shown on a terminal; `--json` prints all."""


class _Group(TyperGroup):
    """A group in which `penstock backup DEST` is short for `penstock backup create DEST`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        helped = {"-h", "--help"} & set(args[:1])
        if args and args[0] not in self.commands and not helped:
            args = [_CREATE, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_Group,
    help="Back up a data directory while its broker runs: create, verify.",
    no_args_is_help=True,
)

Destination = Annotated[Path, typer.Argument(help="The backup's directory; what it has already is not copied again.")]
Replace = Annotated[
    bool,
    typer.Option(
        "--replace", help="Give up what the backup has of another data directory, or has kept of what this one lost."
    ),
]
Quick = Annotated[bool, typer.Option("--quick", help="Tell what is there already by its size, without reading it.")]
Source = Annotated[Path, typer.Argument(help="The backup's directory.")]


@app.command(_CREATE)
def create(
    destination: Destination,
    data: opt.Data = opt.DEFAULT_DATA,
    replace: Replace = False,
    quick: Quick = False,
    json: opt.Json = False,
) -> None:
    """Copy a data directory into a backup, or bring a backup up to date; its broker may run or not.

    Every record is verified on the copy, and what is there already by its hash. Interrupted at any moment, the backup
    is the one before. The word `create` may be left out. Exit code 1 if the original is damaged, which is copied as it
    is, or has lost messages, of which the backup keeps its copy; they are named.

    Examples:

    `penstock backup create /mnt/backup --data /var/lib/penstock`

    `penstock backup create backups/monday --json`

    `penstock backup create /mnt/backup --replace`
    """
    from penstock.storage.backup.backup import back_up

    with _progress_bars() as stage:
        backup = back_up(data, destination, replace=replace, quick=quick, release=__version__, stage=stage)
    if json:
        for what in backup.findings:
            print_json({"finding": what})
        print_json({"backup": _facts(backup.manifest) | _work_facts(backup) | {"path": str(destination)}})
    else:
        _print_findings(list(backup.findings))
        print_facts([("backup", str(destination)), *_summary(backup.manifest)])
        typer.echo(f"{bytes_text(backup.copied_bytes)} copied, {bytes_text(backup.kept_bytes)} there already")
    if backup.findings:
        raise typer.Exit(EXIT_FINDINGS)


@app.command()
def verify(source: Source, json: opt.Json = False) -> None:
    """Check a backup byte by byte: the hash of every file, the checksum of every record. Nothing is changed.

    Exit code 0: whole; 1: findings, each with the file it is in; 2: could not run, or there is no whole backup.

    Example: `penstock backup verify /mnt/backup --json`
    """
    from penstock.storage.backup.restore import check_backup

    with _progress_bars() as stage:
        check = check_backup(source, stage=stage)
    if json:
        for problem in check.problems:
            print_json({"finding": {"file": problem.file, "where": problem.where, "what": problem.what}})
        print_json({"summary": _facts(check.manifest) | {"findings": len(check.problems)}})
    else:
        rows = [(problem.file, problem.where, problem.what) for problem in check.problems]
        if rows:
            table("findings", ("file", "of", "what"), rows)
        print_facts(_summary(check.manifest))
        typer.echo(many(len(rows), "finding") if rows else "whole")
    if check.problems:
        raise typer.Exit(EXIT_FINDINGS)


def restore(
    source: Source,
    directory: Annotated[Path, typer.Argument(help="The data directory to make: empty, or not there yet.")],
    json: opt.Json = False,
) -> None:
    """Make a data directory from a backup, verified: the same ids, offsets and bytes up to the moment of the backup.

    Subscriptions go on where they were. Nothing is left if anything does not verify.

    Examples:

    `penstock restore /mnt/backup /var/lib/penstock`

    `penstock restore /mnt/backup restored --json`
    """
    from penstock.storage.backup.restore import restore as run

    with _progress_bars() as stage:
        manifest = run(source, directory, stage=stage)
    if json:
        print_json({"restored": _facts(manifest) | {"data": str(directory)}})
    else:
        print_facts([("restored", str(directory)), *_summary(manifest)])
        typer.echo(f"start it with: penstock serve --data {directory}")


@contextmanager
def _progress_bars() -> Iterator[Callable[[str, int], Callable[[int], None]]]:
    """Yield a function that adds a progress bar for a stage (its name, its size in bytes) and returns the function that
    advances it."""
    with progress() as bar:

        def stage(what: str, size: int) -> Callable[[int], None]:
            task = bar.add_task(what, total=size)
            return lambda count: bar.advance(task, count)

        yield stage


def _facts(manifest: Manifest) -> dict[str, Any]:
    return {
        "created_ms": manifest.created_ms,
        "source": manifest.source,
        "topics": len({log.topic for log in manifest.logs}),
        "partitions": len(manifest.logs),
        "segments": sum(len(log.segments) for log in manifest.logs),
        "messages": manifest.messages,
        "bytes": manifest.size,
        "damaged": manifest.damaged,
    }


def _work_facts(backup: Backup) -> dict[str, Any]:
    return {"copied_bytes": backup.copied_bytes, "kept_bytes": backup.kept_bytes, "findings": len(backup.findings)}


def _summary(manifest: Manifest) -> list[tuple[str, Any]]:
    facts = _facts(manifest)
    held = f"{many(facts['topics'], 'topic')}, {many(facts['partitions'], 'partition')}"
    damaged = [("damaged", f"{many(facts['damaged'], 'message')}, as in the original")] if facts["damaged"] else []
    return [
        ("as of", time_text(manifest.created_ms)),
        ("holds", f"{held}, {many(facts['messages'], 'message')}, {bytes_text(facts['bytes'])}"),
        *damaged,
    ]


def _print_findings(findings: list[str]) -> None:
    for what in findings[:_FINDINGS_SHOWN]:
        typer.echo(f"penstock: damaged in the original: {what}", err=True)
    if len(findings) > _FINDINGS_SHOWN:
        typer.echo(f"penstock: and {len(findings) - _FINDINGS_SHOWN:,} more: --json has them", err=True)
