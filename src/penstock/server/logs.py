"""The logs of the server: one structured line for each event, as text for people or as JSON for machines. They never
contain a payload or a secret."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from typing import Any, Final, TextIO

import structlog

from penstock.core.clock import SystemClock

LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING, "error": logging.ERROR}
FORMATS: Final = ("text", "json")
_PLAIN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_NAMES: Final = {number: name for name, number in LEVELS.items()} | {logging.CRITICAL: "error"}

_TRACEBACK: Final = "exception"

Tap = Callable[[str, str, dict[str, Any]], None]


class _SafeTime:
    """A stand-in for the module `time` in `logging`. Python's own raises if the clock is beyond the year 2262. Then the
    attempt to log would end the connection, or the process, that the line is about."""

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def time(self) -> float:
        return SystemClock().now_ns() / 1e9


class _TapHandler(logging.Handler):
    """A log handler that passes each log line to a tap: a function that gets the level, the text and the fields."""

    def __init__(self, tap: Tap) -> None:
        super().__init__()
        self._tap = tap

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._tap(_NAMES.get(record.levelno, "info"), record.getMessage(), extra_fields(record))
        except Exception:
            self.handleError(record)


def extra_fields(record: logging.LogRecord) -> dict[str, Any]:
    """Return the extra fields that were logged together with the message."""
    return {name: value for name, value in vars(record).items() if name not in _PLAIN}


def configure(level: str, form: str, *, stream: TextIO | None = None) -> None:
    """Send all logs of the process to `stream`, by default standard error, one line for each event. `form` selects text
    or JSON."""
    stream = stream or sys.stderr
    setattr(logging, "time", _SafeTime())  # noqa: B010 - not for the type checker: it is no door of the module
    before: list[Any] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    render: list[Any] = [_escaped, structlog.dev.ConsoleRenderer(colors=stream.isatty())]
    if form == "json":  # JSON escapes all of that itself
        render = [structlog.processors.JSONRenderer(default=str)]
    last: list[Any] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta, structlog.processors.format_exc_info]
    handler = logging.StreamHandler(stream)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=before, processors=[*last, *render]))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(LEVELS[level])


def _escaped(_logger: Any, _method: str, extra_fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a log line with all unprintable characters escaped. Text from clients must not move the
    cursor in an operator's terminal, or look like a further line.

    Tracebacks keep their line breaks, since they are our own text.
    """
    return {
        name: _printable(value, breaks=name == _TRACEBACK) if isinstance(value, str) else value
        for name, value in extra_fields.items()
    }


def _printable(text: str, *, breaks: bool) -> str:
    """Return the text with unprintable characters as escapes, as in Python's `repr`. With `breaks`, line breaks and
    tabs are kept."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or (breaks and char in "\n\t") else char.encode("unicode_escape").decode()
        for char in text
    )


def add_tap(tap: Tap) -> Callable[[], None]:
    """Pass every later log line of Penstock to `tap` as well. Returns the function that ends this."""
    handler = _TapHandler(tap)
    root = logging.getLogger("penstock")
    root.addHandler(handler)
    return lambda: root.removeHandler(handler)
