"""The command tree, and what every command does alike: errors, exit codes, Ctrl-C."""

from __future__ import annotations

import logging
import os
import sys
from typing import Annotated, Final

import typer

from penstock import __version__
from penstock.cli import bench, demo, log, segment, warm
from penstock.cli.output import fail
from penstock.core.errors import PenstockError

EXIT_OK: Final = 0
EXIT_COULD_NOT: Final = 2
EXIT_INTERRUPTED: Final = 130

app = typer.Typer(
    name="penstock",
    help="A message broker whose log is the data pipeline's table.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(log.app, name="log")
app.add_typer(segment.app, name="segment")
app.add_typer(bench.app, name="bench")
app.command("warm")(warm.warm)
app.command("demo")(demo.demo)


def _print_version(wanted: bool) -> None:
    if wanted:
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
    """Run one command; its exit code. 0 done, 1 findings, 2 could not, 130 interrupted."""
    try:
        code = app(arguments, standalone_mode=False)
    except typer.Exit as done:
        return done.exit_code
    except typer.Abort:
        return EXIT_INTERRUPTED
    except KeyboardInterrupt:
        sys.stderr.write("\n")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has gone, as `head` does. Nothing is left to say it to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK
    except PenstockError as error:
        return fail(error)
    except ModuleNotFoundError as error:
        return _missing(error)
    except Exception as error:
        return _usage(error)
    return code if isinstance(code, int) else EXIT_OK


def _missing(error: ModuleNotFoundError) -> int:
    """Part of Penstock is not installed; which extra would bring it."""
    if (error.name or "").partition(".")[0] == "penstock":
        raise error
    sys.stderr.write(f"penstock: this needs the package {error.name!r}: pip install 'penstock[server]'\n")
    return EXIT_COULD_NOT


def _usage(error: Exception) -> int:
    """Typer's own complaints about the command line; anything else is a defect and keeps its traceback."""
    show = getattr(error, "show", None)
    if show is None:
        raise error
    show()
    return EXIT_COULD_NOT
