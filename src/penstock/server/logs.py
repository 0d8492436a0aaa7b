"""Logs: one structured line an event, for people or as JSON for machines. Never a payload, never a secret."""

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
    """A stand-in for the module `time` in `logging`. Python's own raises for a clock beyond the year 2262, and the
    failed log line would end the connection, or the process, that it is about."""

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def time(self) -> float:
        return SystemClock().now_ns() / 1e9


class _TapHandler(logging.Handler):
    """A log handler that hands every line to subscribers of the broker's log."""

    def __init__(self, tap: Tap) -> None:
        super().__init__()
        self._tap = tap

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._tap(_NAMES.get(record.levelno, "info"), record.getMessage(), extra_fields(record))
        except Exception:
            self.handleError(record)


def extra_fields(record: logging.LogRecord) -> dict[str, Any]:
    """Return the fields that were logged beside the message."""
    return {name: value for name, value in vars(record).items() if name not in _PLAIN}


def configure(level: str, form: str, *, stream: TextIO | None = None) -> None:
    """Send all logs of the process to standard error, one line each."""
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
    """Escape text from outside: in an operator's terminal it must neither move the cursor nor begin a line.

    Tracebacks keep their lines: they are our own.
    """
    return {
        name: _printable(value, breaks=name == _TRACEBACK) if isinstance(value, str) else value
        for name, value in extra_fields.items()
    }


def _printable(text: str, *, breaks: bool) -> str:
    """Return the text with unprintable characters written as in Python."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or (breaks and char in "\n\t") else char.encode("unicode_escape").decode()
        for char in text
    )


def add_tap(tap: Tap) -> Callable[[], None]:
    """Pass every line to `tap` as well. Returns the function that ends this."""
    handler = _TapHandler(tap)
    root = logging.getLogger("penstock")
    root.addHandler(handler)
    return lambda: root.removeHandler(handler)
