"""The output of commands: tables for people, JSON for scripts, and errors on standard error."""

from __future__ import annotations

import json as jsonlib
import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from penstock.cli.exit_codes import EXIT_COULD_NOT
from penstock.cli.tables import columns_of, draw_table
from penstock.core.clock import iso_time
from penstock.core.errors import InvalidRequest, PenstockError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.progress import Progress


_WIDE = 500
"""The width of tables if neither a terminal nor COLUMNS sets one. It is so large that no path is folded."""


def console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    has_width = stream.isatty() or os.environ.get("COLUMNS", "").isdecimal()
    return Console(stderr=stderr, highlight=False, soft_wrap=True, width=None if has_width else _WIDE)


def fail(error: PenstockError, *, json: bool = False) -> int:
    """Print an error on standard error, as a sentence or as JSON, and return the exit code."""
    text = _json_text({"error": error.as_dict()}) if json else f"penstock: {error.code.value}: {error.message}"
    sys.stderr.write(f"{on_lines(text) if sys.stderr.isatty() else text}\n")
    return EXIT_COULD_NOT


def discard_output() -> None:
    """Redirect standard output to the null device, so that flushing at exit does not fail because the reader has
    gone."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a table no wider than the terminal. Numbers are aligned to the right, other text to the left."""
    screen = console()
    print_captured(screen, draw_table(title, columns_of(columns, rows, cell), screen.width))


def print_captured(screen: Console, shown: RenderableType) -> None:
    """Print what rich has drawn, without trailing blanks. Rich itself does not write, since it exits if the reader has
    gone."""
    with screen.capture() as captured:
        screen.print(shown)
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def cell(value: Any) -> str:
    """Format a value for a cell of a table, on one line."""
    if value is None:
        return "-"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.2f}"
    return on_one_line(str(value))  # names come from outside, and this may be a terminal


def print_facts(facts: Iterable[tuple[str, Any]]) -> None:
    """Print each name with its value on a line of its own, with the values aligned."""
    shown = [(name, cell(value)) for name, value in facts]
    width = max(len(name) for name, _ in shown)
    for name, text in shown:
        sys.stdout.write(f"{name:<{width}}  {text}\n")


def confirm(question: str, *, yes: bool) -> None:
    """Ask a question on the terminal, unless `yes` is set. Raises `InvalidRequest` if the answer is no."""
    if yes:
        return
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    answer = sys.stdin.readline() if sys.stdin is not None else ""
    if answer.strip().lower() not in ("y", "yes"):
        sys.stderr.write("" if answer.endswith("\n") else "\n")
        raise InvalidRequest("not confirmed: nothing was changed; --yes does it without asking")


def print_json(value: Any) -> None:
    """Print a value as JSON on one line. On a terminal, control characters that JSON does not escape are escaped
    too."""
    text = _json_text(value)
    sys.stdout.write(f"{_in_json(text) if sys.stdout.isatty() else text}\n")


def _in_json(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else jsonlib.dumps(character)[1:-1] for character in text)


def write_bytes(data: bytes, *, raw: bool = False) -> None:
    """Write the bytes of a message unchanged. On a terminal, control characters are escaped, unless `raw` is set."""
    if raw or not sys.stdout.isatty():
        sys.stdout.buffer.write(data)
    else:
        sys.stdout.write(on_lines(data.decode(errors="backslashreplace")))


def _json_text(value: Any) -> str:
    """Return JSON on one line. Characters outside ASCII are escaped unless the output is UTF-8."""
    utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    return jsonlib.dumps(value, ensure_ascii=not utf8, default=str)


def progress(*, shown: bool = True) -> Progress:
    """Create a progress bar on standard error. It is hidden if standard error is no terminal, or without `shown`."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=console(stderr=True),
        transient=True,
        disable=not (shown and sys.stderr.isatty()),
    )


def time_text(unix_ms: int) -> str:
    """Format a time in milliseconds since 1970. A number that is no valid time is shown as a number."""
    try:
        return iso_time(unix_ms)
    except (OverflowError, ValueError, OSError):
        return f"{unix_ms} ms"


def bytes_text(size: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def duration_text(ms: int) -> str:
    """Format a duration in the largest unit that divides it, in the form in which options take it, such as `90s`."""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        if ms % size == 0:
            return f"{ms // size}{unit}"
    return f"{ms}ms"


def many(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def text_or_none(data: bytes) -> str | None:
    """Decode bytes if they are text that a person can read; else return None."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return text if all(character.isprintable() or character in "\t\n\r" for character in text) else None


def on_lines(text: str) -> str:
    """Escape control characters in a text, but keep its line ends."""
    return "\n".join(on_one_line(line.expandtabs()) for line in text.split("\n"))


def on_one_line(text: str) -> str:
    """Escape control characters and line ends, so that a text from a message cannot control the terminal."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )
