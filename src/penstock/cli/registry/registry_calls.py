"""Calls of commands to the schema registry. Advice is added to its errors."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, Protocol

import typer

from penstock.cli import options as opt
from penstock.cli.output import on_one_line
from penstock.core.errors import InvalidRequest, PenstockError
from penstock.core.schemas import SCHEMA_VERSION_MAX

if TYPE_CHECKING:
    from penstock.client.sync import Client

Subject = Annotated[str, typer.Argument(help="What the schema describes, such as orders.created-value.")]
Deleted = Annotated[bool, typer.Option("--deleted", help="Those that were deleted, too.")]

_ADVICE: Final[dict[object, str]] = {
    40401: "`penstock schema ls` lists those there are",
    40402: "`penstock schema versions` lists those there are",
    40403: "`penstock schema versions` lists those of a subject",
    40404: "`penstock schema undelete` brings it back, --permanent deletes it for good",
    40405: "delete it without --permanent first",
    40406: "`penstock schema undelete` brings it back, --permanent deletes it for good",
    40407: "delete it without --permanent first",
    42205: "`penstock schema config` shows the mode, and sets it with --mode",
}
"""Advice by the registry's error code."""
_REFER: Final = "register it, and name it with --reference NAME=SUBJECT:VERSION"
_ADVICE_BY_WORDS: Final = (
    (42201, re.compile(r"the reference .* is not registered"), _REFER),
    (42201, re.compile(r"is not defined before it is used, nor by a reference"), _REFER),
    (42201, re.compile(r"is not among the references of this schema"), _REFER),
)
"""Advice for an error code together with words in the message, for codes that have several meanings."""
_REFERRED: Final = re.compile(
    r"One or more references exist to the schema \{magic=1,keytype=SCHEMA,subject=(.*),version=([0-9]+)\}\. ", re.DOTALL
)
"""A sentence of the registry's errors that is meant for programs, and that is replaced by one for people."""

SUBJECT_NOT_FOUND: Final = 40401
_CLOSE: Final = 0.85
"""The similarity, from 0 to 1, from which on a subject's name may be a typo of another."""
_CLOSE_MAX: Final = 3


class AskRegistry(Protocol):
    """A function that sends a request to the registry and returns its answer: `ask("get", id=7)`. Raises the registry's
    error with advice."""

    def __call__(self, what: str, /, **fields: Any) -> dict[str, Any]: ...


@contextmanager
def registry_client(broker: opt.BrokerOptions) -> Iterator[AskRegistry]:
    with broker.connect() as client:
        yield partial(_ask, client)


def _ask(client: Client, what: str, /, **fields: Any) -> dict[str, Any]:
    try:
        return client.ask(f"system.schema.{what}", fields)
    except PenstockError as error:
        raise _with_advice(error) from None


def _with_advice(error: PenstockError) -> PenstockError:
    """Return a copy of the error with a message for people and with advice, if there is some. The details stay the
    same."""
    text = _REFERRED.sub(r"version \2 of '\1' stays: ", error.message)
    advice = _advice(error)
    advised = type(error)(f"{text.rstrip('.')}: {advice}" if advice else text)
    advised.details = error.details
    return advised


def _advice(error: PenstockError) -> str | None:
    number = error.details.get("registry_code")
    by_words = (advice for code, words, advice in _ADVICE_BY_WORDS if code == number and words.search(error.message))
    return _ADVICE.get(number) or next(by_words, None)


# subjects that may be a typo


def has_versions(ask: AskRegistry, subject: str) -> bool:
    """Return True if the subject exists and has versions."""
    try:
        ask(
            "versions", subject=subject, after=SCHEMA_VERSION_MAX
        )  # no version comes after this one: only the error is of interest
    except InvalidRequest as error:
        if error.details.get("registry_code") != SUBJECT_NOT_FOUND:
            raise
        return False
    return True


def similar_subjects(ask: AskRegistry, subject: str) -> list[str]:
    """Return existing subjects whose names are so similar that they may have been meant."""
    names = (name for name in ask("subjects")["subjects"] if name != subject)
    return difflib.get_close_matches(subject, names, _CLOSE_MAX, _CLOSE)


def hint_at_similar(ask: AskRegistry, subject: str) -> None:
    """Print existing subjects that may have been meant in place of the new one, on standard error; nothing if there are
    none."""
    if candidates := similar_subjects(ask, subject):
        names = " or ".join(map(on_one_line, candidates))
        sys.stderr.write(f"penstock: {on_one_line(subject)} is a new subject; was {names} meant?\n")
