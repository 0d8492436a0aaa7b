"""Why Spark refused or failed, in a sentence: without plans, stack traces and what only its authors can use. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from penstock.core import errors
from penstock.core.errors import PenstockError, StorageFailed

_CHARS_MAX: Final = 2000
_NOISE: Final = re.compile(r"^\s*('|~|\+-|:\s*\+-|==|at |JVM stacktrace|\t|Driver stacktrace)")
_PENSTOCK: Final = re.compile(r"^(?:\S*: )?penstock\.[\w.]+\.(\w+): (.+)$", re.MULTILINE)
_RAISED: Final = re.compile(r"^[A-Za-z_][\w.]*(: .+)?$")
_SQLSTATE: Final = re.compile(r"\s*SQLSTATE: \w+")
_EMPTY: Final = re.compile(r"(Exception thrown in awaitResult|Job aborted due to stage failure)?:?\s*")


@dataclass(frozen=True, slots=True)
class Failure:
    """`error_name` is the name of the error of ours that it was, if it was one."""

    reason: str
    error_name: str | None = None

    def error(self, what: str) -> PenstockError:
        """The error of that name, said of `what`; the plain one if it is none of ours."""
        named = getattr(errors, self.error_name or "", PenstockError)
        error_type = named if isinstance(named, type) and issubclass(named, PenstockError) else PenstockError
        return error_type(f"{what}: {self.reason}")


def failure_of(error: BaseException) -> Failure:
    """What was said by whoever knew best: Penstock, a function of the user's, Spark itself; wherever in the chain of
    causes it stands."""
    texts = list(_texts(error))
    for text in texts:
        named = _PENSTOCK.findall(text)
        if named:
            return Failure(named[-1][1][:_CHARS_MAX], named[-1][0])
    for text in texts:
        raised = _raised_in_python(text)
        if raised:
            return Failure(raised[:_CHARS_MAX])
    return Failure(_by_spark(texts)[:_CHARS_MAX] or type(error).__name__)


def reason(error: BaseException) -> str:
    return failure_of(error).reason


def to_penstock_error(error: BaseException) -> PenstockError:
    """The error that it was, if it was ours and Spark only the messenger; else `StorageFailed` with what Spark says."""
    if isinstance(error, PenstockError):
        return error
    failure = failure_of(error)
    if failure.error_name is None:
        return StorageFailed(f"Spark failed: {failure.reason}")
    # A name that the module of errors does not have is a kind of damage: DataLoss.
    error_type = getattr(errors, failure.error_name, StorageFailed)
    is_ours = isinstance(error_type, type) and issubclass(error_type, PenstockError)
    return (error_type if is_ours else StorageFailed)(failure.reason)


@contextmanager
def penstock_errors() -> Iterator[None]:
    """What a worker raises in here, as it was, and not as Spark tells of it."""
    try:
        yield
    except Exception as error:
        raise to_penstock_error(error) from error


def _texts(error: BaseException | None) -> Iterator[str]:
    """Of it and of its causes, as PySpark has them."""
    while error is not None:
        yield str(error)
        error = vars(error).get("_cause")


def _raised_in_python(text: str) -> str:
    """The last line of the last traceback: what a function of the user's raised in a worker."""
    _, marker, behind = text.rpartition("Traceback (most recent call last):\n")
    if not marker:
        return ""
    lines = [line for line in behind.splitlines() if line.strip() and not line.startswith(" ")]
    return lines[0].strip() if lines and _RAISED.match(lines[0]) else ""


def _by_spark(texts: list[str]) -> str:
    """The first that says something, and what was behind it, if that is something else."""
    said = [told for told in map(_sentence, texts) if not _EMPTY.fullmatch(told)]
    if not said:
        return ""
    first, last = said[0], said[-1]
    return first if last in first else f"{first} ({last})"


def _sentence(text: str) -> str:
    lines: list[str] = []
    for line in text.splitlines():
        if any(lines) and _NOISE.match(line):
            break
        lines.append(line.strip())
    told = " ".join(line for line in lines if line)
    return _SQLSTATE.sub("", told).replace(".;", ".").rstrip("; ").strip()
