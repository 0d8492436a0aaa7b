"""Output of commands: tables for people, JSON for scripts, errors on standard error."""

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
"""The width where neither a terminal nor COLUMNS gives one: a table takes what it needs, and no path is folded."""


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
    """Redirect standard output to nowhere after its reader has gone, so that flushing at exit does not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a table as wide as the terminal allows: numbers to the right, words to the left."""
    screen = console()
    print_captured(screen, draw_table(title, columns_of(columns, rows, cell), screen.width))


def print_captured(screen: Console, shown: RenderableType) -> None:
    """Print without trailing blanks, and not by rich, which exits if the reader has gone."""
    with screen.capture() as captured:
        screen.print(shown)
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def cell(value: Any) -> str:
    """Format a value for people, on one line."""
    if value is None:
        return "-"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.2f}"
    return on_one_line(str(value))  # names come from outside, and this may be a terminal


def print_facts(facts: Iterable[tuple[str, Any]]) -> None:
    """Print a name and a value on each line, values aligned."""
    shown = [(name, cell(value)) for name, value in facts]
    width = max(len(name) for name, _ in shown)
    for name, text in shown:
        sys.stdout.write(f"{name:<{width}}  {text}\n")


def confirm(question: str, *, yes: bool) -> None:
    """Ask for confirmation, unless `yes`. Raises `InvalidRequest` if the answer is no."""
    if yes:
        return
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    answer = sys.stdin.readline() if sys.stdin is not None else ""
    if answer.strip().lower() not in ("y", "yes"):
        sys.stderr.write("" if answer.endswith("\n") else "\n")
        raise InvalidRequest("not confirmed: nothing was changed; --yes does it without asking")


def print_json(value: Any) -> None:
    """Print JSON on one line. On a terminal, control characters that JSON leaves as they are are escaped too."""
    text = _json_text(value)
    sys.stdout.write(f"{_in_json(text) if sys.stdout.isatty() else text}\n")


def _in_json(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else jsonlib.dumps(character)[1:-1] for character in text)


def write_bytes(data: bytes, *, raw: bool = False) -> None:
    """Write bytes of a message as they are. On a terminal control characters are escaped, unless `raw`."""
    if raw or not sys.stdout.isatty():
        sys.stdout.buffer.write(data)
    else:
        sys.stdout.write(on_lines(data.decode(errors="backslashreplace")))


def _json_text(value: Any) -> str:
    """Return JSON on one line; non-ASCII characters are escaped unless the output is UTF-8."""
    utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    return jsonlib.dumps(value, ensure_ascii=not utf8, default=str)


def progress(*, shown: bool = True) -> Progress:
    """Create a progress bar on standard error; it is hidden where that is not a terminal."""
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
    """Format a time; a number that is no possible time is returned as milliseconds."""
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
    """Format a duration in the largest unit that divides it, as it would be given in an option."""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        if ms % size == 0:
            return f"{ms // size}{unit}"
    return f"{ms}ms"


def many(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def text_or_none(data: bytes) -> str | None:
    """Decode bytes that a person can read; None for any other."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return text if all(character.isprintable() or character in "\t\n\r" for character in text) else None


def on_lines(text: str) -> str:
    """Escape text as `on_one_line` does, but keep its line ends."""
    return "\n".join(on_one_line(line.expandtabs()) for line in text.split("\n"))


def on_one_line(text: str) -> str:
    """Escape control characters and line ends, so that text from a message is safe on a terminal."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )
