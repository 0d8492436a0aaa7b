"""What commands print: tables for people, JSON for scripts, errors on standard error."""

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
"""Columns where neither a terminal nor COLUMNS says how many: a table takes what it needs, and no path is folded."""


def console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    given = stream.isatty() or os.environ.get("COLUMNS", "").isdecimal()
    return Console(stderr=stderr, highlight=False, soft_wrap=True, width=None if given else _WIDE)


def fail(error: PenstockError, *, json: bool = False) -> int:
    """Say why on standard error: a sentence, or the same facts as JSON."""
    text = _json_text({"error": error.as_dict()}) if json else f"penstock: {error.code.value}: {error.message}"
    sys.stderr.write(f"{on_lines(text) if sys.stderr.isatty() else text}\n")
    return EXIT_COULD_NOT


def discard_output() -> None:
    """Nobody takes what is printed: let the rest go nowhere, so that nothing fails once more at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Numbers to the right, words to the left; as wide as the terminal lets it be."""
    screen = console()
    print_captured(screen, draw_table(title, columns_of(columns, rows, cell), screen.width))


def print_captured(screen: Console, shown: RenderableType) -> None:
    """Not by rich, which leaves the program if nobody takes it. No blanks where lines end."""
    with screen.capture() as captured:
        screen.print(shown)
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def cell(value: Any) -> str:
    """A value as people read it, on one line."""
    if value is None:
        return "-"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.2f}"
    return on_one_line(str(value))  # names come from outside, and this is a terminal


def print_facts(facts: Iterable[tuple[str, Any]]) -> None:
    """A name and a value a line, the values below each other."""
    shown = [(name, cell(value)) for name, value in facts]
    width = max(len(name) for name, _ in shown)
    for name, text in shown:
        sys.stdout.write(f"{name:<{width}}  {text}\n")


def confirm(question: str, *, yes: bool) -> None:
    """Ask, unless that was answered before. Raises `InvalidRequest` if the answer is no."""
    if yes:
        return
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    answer = sys.stdin.readline() if sys.stdin is not None else ""
    if answer.strip().lower() not in ("y", "yes"):
        sys.stderr.write("" if answer.endswith("\n") else "\n")
        raise InvalidRequest("not confirmed: nothing was changed; --yes does it without asking")


def print_json(value: Any) -> None:
    """One line. On a terminal, what JSON would leave as it is and a terminal would obey is escaped too."""
    text = _json_text(value)
    sys.stdout.write(f"{_in_json(text) if sys.stdout.isatty() else text}\n")


def _in_json(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else jsonlib.dumps(each)[1:-1] for each in text)


def write_bytes(data: bytes, *, raw: bool = False) -> None:
    """Bytes of a message as they are. On a terminal what does not print is escaped, unless it is wanted `raw`."""
    if raw or not sys.stdout.isatty():
        sys.stdout.buffer.write(data)
    else:
        sys.stdout.write(on_lines(data.decode(errors="backslashreplace")))


def _json_text(value: Any) -> str:
    """One line; characters as they are only where the reader expects UTF-8."""
    utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    return jsonlib.dumps(value, ensure_ascii=not utf8, default=str)


def progress(*, shown: bool = True) -> Progress:
    """A bar on standard error; nothing where that is not a terminal."""
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
    """As it is written everywhere; a number where it is no time that can be."""
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
    """In the largest unit that leaves no rest, as it would be given."""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        if ms % size == 0:
            return f"{ms // size}{unit}"
    return f"{ms}ms"


def many(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def text_or_none(data: bytes) -> str | None:
    """The bytes as text if a person can read them; None otherwise."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return text if all(character.isprintable() or character in "\t\n\r" for character in text) else None


def on_lines(text: str) -> str:
    """The same, with its own line ends."""
    return "\n".join(on_one_line(line.expandtabs()) for line in text.split("\n"))


def on_one_line(text: str) -> str:
    """Text from a message, safe on a terminal: what does not print, and every line end, is escaped."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
