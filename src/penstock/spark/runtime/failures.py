"""The reason of a Spark failure in one sentence, without plans, stack traces and other internals. Works on exceptions
and their texts alone."""

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
    """A failure of Spark: its reason as text, and in `error_name` the name of the Penstock error that caused it, None
    if another error did."""

    reason: str
    error_name: str | None = None

    def error(self, what: str) -> PenstockError:
        """Return an error of the class `error_name` with the message `WHAT: REASON`. If the failure was not caused by a
        Penstock error, return a plain `PenstockError`."""
        named = getattr(errors, self.error_name or "", PenstockError)
        error_type = named if isinstance(named, type) and issubclass(named, PenstockError) else PenstockError
        return error_type(f"{what}: {self.reason}")


def failure_of(error: BaseException) -> Failure:
    """Return the most exact message in the chain of causes. A Penstock error comes first, then an error that a user's
    function raised, then Spark's own message."""
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
    """Return the Penstock error that caused a failure of Spark, with its class and message. If no Penstock error caused
    it, return `StorageFailed` with Spark's message. A Penstock error is returned unchanged."""
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
    """Turn every exception that leaves the block into a Penstock error, as `to_penstock_error` does. So an error raised
    in a worker is raised here with its own class."""
    try:
        yield
    except Exception as error:
        raise to_penstock_error(error) from error


def _texts(error: BaseException | None) -> Iterator[str]:
    """Yield the message of an error, then those of its causes, which PySpark keeps in `_cause`."""
    while error is not None:
        yield str(error)
        error = vars(error).get("_cause")


def _raised_in_python(text: str) -> str:
    """Return the line that names the exception in the last Python traceback of a text, such as `ValueError: bad`.
    Return an empty text if there is none."""
    _, marker, behind = text.rpartition("Traceback (most recent call last):\n")
    if not marker:
        return ""
    lines = [line for line in behind.splitlines() if line.strip() and not line.startswith(" ")]
    return lines[0].strip() if lines and _RAISED.match(lines[0]) else ""


def _by_spark(texts: list[str]) -> str:
    """Return Spark's own message: the first that is not empty, followed by the innermost one unless the first contains
    it. Return an empty text if all are empty."""
    sentences = [sentence for sentence in map(_sentence, texts) if not _EMPTY.fullmatch(sentence)]
    if not sentences:
        return ""
    first, last = sentences[0], sentences[-1]
    return first if last in first else f"{first} ({last})"


def _sentence(text: str) -> str:
    lines: list[str] = []
    for line in text.splitlines():
        if any(lines) and _NOISE.match(line):
            break
        lines.append(line.strip())
    sentence = " ".join(line for line in lines if line)
    return _SQLSTATE.sub("", sentence).replace(".;", ".").rstrip("; ").strip()
