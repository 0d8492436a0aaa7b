"""The command tree, and what all commands share: how errors are shown, exit codes, and Ctrl-C."""

from __future__ import annotations

import logging
import sys
from traceback import walk_tb
from typing import Annotated

import typer

from penstock import __version__
from penstock.cli.access import bindings, keys
from penstock.cli.exit_codes import EXIT_COULD_NOT, EXIT_INTERRUPTED, EXIT_OK
from penstock.cli.files import backup, log, segment
from penstock.cli.lake import archive, audit, compact, lake, pipeline, replay, stats, transfer
from penstock.cli.output import discard_output, fail
from penstock.cli.registry import schema
from penstock.cli.service import bench, connection, demo, doctor, live, serve, top, warm
from penstock.cli.topics import browse, dlq, produce_consume, sub, topic, topic_schema
from penstock.core.errors import PenstockError
from penstock.storage.base.disk import storage_error

_EXTRA_PACKAGES = {
    "server": ("penstock.broker", "penstock.demo", "penstock.server", "penstock.storage"),
    "spark": ("penstock.spark", "penstock.cli.lake"),
}
"""Packages of Penstock that need an extra to be imported, by the extra's name."""

app = typer.Typer(
    name="penstock",
    help="A message broker whose log is the data pipeline's table.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("serve")(serve.serve)
app.command("publish")(live.publish)
app.command("subscribe")(live.subscribe)
app.command("request")(live.request)
app.command("respond")(live.respond)
app.command("ping")(live.ping)
app.command("services")(live.services)
app.add_typer(connection.app, name="connection")
app.command("top")(top.top)
topic.app.command("browse")(browse.browse)
topic.app.command("get")(browse.get)
topic.app.add_typer(topic_schema.app, name="schema")
app.add_typer(topic.app, name="topic")
app.command("produce")(produce_consume.produce)
app.command("consume")(produce_consume.consume)
app.add_typer(sub.app, name="sub")
app.add_typer(dlq.app, name="dlq")
app.add_typer(schema.app, name="schema")
app.add_typer(log.app, name="log")
app.add_typer(segment.app, name="segment")
app.add_typer(keys.app, name="key")
app.add_typer(bindings.app, name="access")
app.add_typer(backup.app, name="backup")
app.command("restore")(backup.restore)
app.command("archive")(archive.archive)
app.add_typer(lake.app, name="lake")
app.command("audit")(audit.audit)
app.command("stats")(stats.stats)
app.command("replay")(replay.replay)
app.command("compact")(compact.compact)
app.command("export")(transfer.export)
app.command("import")(transfer.import_)
app.add_typer(pipeline.app, name="pipeline")
app.add_typer(bench.app, name="bench")
app.command("doctor")(doctor.doctor)
app.command("warm")(warm.warm)
app.command("demo")(demo.demo)


def _print_version(is_set: bool) -> None:
    if is_set:
        typer.echo(f"penstock {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    logging.basicConfig(level=logging.WARNING, format="penstock: %(levelname)s: %(message)s", stream=sys.stderr)


def run(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 1 findings, 2 it could not do its work, 3 messages are missing,
    130 interrupted."""
    arguments = sys.argv[1:] if arguments is None else arguments
    code = _run(arguments, json="--json" in arguments)
    try:
        sys.stdout.flush()
    except OSError as error:
        return _output_failed(error, code)
    return code


def _run(arguments: list[str], *, json: bool) -> int:
    try:
        code = app(arguments, prog_name="penstock", standalone_mode=False)
    except SystemExit as exit_:
        return _exit_code(exit_)
    except typer.Exit as exit_:
        return exit_.exit_code
    except (typer.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    except PenstockError as error:
        return fail(error, json=json)
    except ModuleNotFoundError as error:
        return _missing_package(error)
    except OSError as error:
        return fail(storage_error(error, str(error.filename or "reading or writing failed")), json=json)
    except Exception as error:
        return _usage_error(error)
    return code if isinstance(code, int) else EXIT_OK


def _exit_code(exit_: SystemExit) -> int:
    """Return the exit code of a command that has exited. If the reader of our output has gone, as `head` does, Typer
    exits with 1; that is no failure, so it is 0 then."""
    if isinstance(exit_.__context__, BrokenPipeError):
        discard_output()
        return EXIT_OK
    return exit_.code if isinstance(exit_.code, int) else EXIT_COULD_NOT


def _output_failed(error: OSError, code: int) -> int:
    """Handle an error at the end of the output, and return the exit code: `code` if the reader has gone; otherwise
    report the error."""
    discard_output()
    if isinstance(error, BrokenPipeError):
        return code
    return fail(storage_error(error, "the output could not be written"))


def _missing_package(error: ModuleNotFoundError) -> int:
    """Report a package that is not installed, with the command that installs the extra for it; return the exit code.
    Raises the error again if the missing package is Penstock's own."""
    from penstock.doctor import EXTRAS, extra_of

    package = (error.name or "").partition(".")[0]
    if package in ("", "penstock"):
        raise error
    rooms = [str(frame.f_globals.get("__name__", "")) for frame, _ in walk_tb(error.__traceback__)]
    entered = [extra for extra in EXTRAS if any(room.startswith(_EXTRA_PACKAGES.get(extra.name, ())) for room in rooms)]
    # The heaviest of them: it needs this package, too; a lighter one would fail at its next package.
    extra = max((extra_of(package), *entered), key=EXTRAS.index)
    sys.stderr.write(f"penstock: this needs the package {package!r}: {extra.command}\n")
    return EXIT_COULD_NOT


def _usage_error(error: Exception) -> int:
    """Show one of Typer's errors about the command line and return the exit code; raise any other exception again."""
    show = getattr(error, "show", None)
    if show is None:
        raise error
    show()
    return EXIT_COULD_NOT
