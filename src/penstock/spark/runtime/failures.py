"""The reason of a Spark failure, in a sentence: without plans, stack traces and other internals. Pure."""

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
    """A failure; `error_name` is the class of the Penstock error behind it, if there is one."""

    reason: str
    error_name: str | None = None

    def error(self, what: str) -> PenstockError:
        """Return the error of that class, about `what`; a plain one if it is no Penstock error."""
        named = getattr(errors, self.error_name or "", PenstockError)
        error_type = named if isinstance(named, type) and issubclass(named, PenstockError) else PenstockError
        return error_type(f"{what}: {self.reason}")


def failure_of(error: BaseException) -> Failure:
    """Return the most exact message in the chain of causes: of Penstock, of a user's function, of Spark itself."""
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
    """Return the Penstock error that Spark passed on; else `StorageFailed` with Spark's message."""
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
    """Raise errors of workers within the block as the Penstock errors that they were."""
    try:
        yield
    except Exception as error:
        raise to_penstock_error(error) from error


def _texts(error: BaseException | None) -> Iterator[str]:
    """Yield the messages of an error and of its causes, as PySpark keeps them."""
    while error is not None:
        yield str(error)
        error = vars(error).get("_cause")


def _raised_in_python(text: str) -> str:
    """Return the last line of the last traceback: what a user's function raised in a worker."""
    _, marker, behind = text.rpartition("Traceback (most recent call last):\n")
    if not marker:
        return ""
    lines = [line for line in behind.splitlines() if line.strip() and not line.startswith(" ")]
    return lines[0].strip() if lines and _RAISED.match(lines[0]) else ""


def _by_spark(texts: list[str]) -> str:
    """Return the first message that is not empty, and the innermost one, if it says more."""
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
