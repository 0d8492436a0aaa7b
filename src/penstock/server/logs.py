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
    """The module `time` as `logging` sees it. Python's own raises for a clock beyond the year 2262, and a line that
    cannot be written for it would end the connection, or the process, that it is about."""

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def time(self) -> float:
        return SystemClock().now_ns() / 1e9


class _TapHandler(logging.Handler):
    """Hands every line to those who follow the log over the wire."""

    def __init__(self, tap: Tap) -> None:
        super().__init__()
        self._tap = tap

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._tap(_NAMES.get(record.levelno, "info"), record.getMessage(), extra_fields(record))
        except Exception:
            self.handleError(record)


def extra_fields(record: logging.LogRecord) -> dict[str, Any]:
    """What was said beside the message."""
    return {name: value for name, value in vars(record).items() if name not in _PLAIN}


def configure(level: str, form: str, *, stream: TextIO | None = None) -> None:
    """All logs of the process go to standard error, one line each."""
    stream = stream or sys.stderr
    setattr(logging, "time", _SafeTime())  # noqa: B010 - not for the type checker: it is no door of the module
    before: list[Any] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    render: list[Any] = [_escaped, structlog.dev.ConsoleRenderer(colors=stream.isatty())]
    if form == "json":  # which escapes all of that itself
        render = [structlog.processors.JSONRenderer(default=str)]
    last: list[Any] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta, structlog.processors.format_exc_info]
    handler = logging.StreamHandler(stream)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=before, processors=[*last, *render]))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(LEVELS[level])


def _escaped(_logger: Any, _method: str, extra_fields: dict[str, Any]) -> dict[str, Any]:
    """What comes from outside is followed in somebody's terminal: it must not move the cursor, nor make a line.

    Tracebacks keep their lines: those are ours.
    """
    return {
        name: _printable(value, breaks=name == _TRACEBACK) if isinstance(value, str) else value
        for name, value in extra_fields.items()
    }


def _printable(text: str, *, breaks: bool) -> str:
    """Text in which what does not print is written as Python would."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or (breaks and each in "\n\t") else each.encode("unicode_escape").decode()
        for each in text
    )


def add_tap(tap: Tap) -> Callable[[], None]:
    """Also give every line to this; how to stop doing so."""
    handler = _TapHandler(tap)
    root = logging.getLogger("penstock")
    root.addHandler(handler)
    return lambda: root.removeHandler(handler)
