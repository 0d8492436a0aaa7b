"""How commands ask the registry, and what they add to what it says: what to do about it."""

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
"""By the number that the registry gives its errors."""
_REFER: Final = "register it, and name it with --reference NAME=SUBJECT:VERSION"
_ADVICE_BY_WORDS: Final = (
    (42201, re.compile(r"the reference .* is not registered"), _REFER),
    (42201, re.compile(r"is not defined before it is used, nor by a reference"), _REFER),
    (42201, re.compile(r"is not among the references of this schema"), _REFER),
)
"""Where the number alone does not tell."""
_REFERRED: Final = re.compile(
    r"One or more references exist to the schema \{magic=1,keytype=SCHEMA,subject=(.*),version=([0-9]+)\}\. ", re.DOTALL
)
"""As other registries write it: for programs, not for people."""

SUBJECT_NOT_FOUND: Final = 40401
_CLOSE: Final = 0.85
"""Names that are so much alike that one may be a slip of the other."""
_CLOSE_MAX: Final = 3


class AskRegistry(Protocol):
    """Ask the registry: `ask("get", id=7)`. Raises what it says, with what can be done about it."""

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
    """With the same details; its words are for people."""
    text = _REFERRED.sub(r"version \2 of '\1' stays: ", error.message)
    advice = _advice(error)
    made = type(error)(f"{text.rstrip('.')}: {advice}" if advice else text)
    made.details = error.details
    return made


def _advice(error: PenstockError) -> str | None:
    number = error.details.get("registry_code")
    by_words = (advice for code, words, advice in _ADVICE_BY_WORDS if code == number and words.search(error.message))
    return _ADVICE.get(number) or next(by_words, None)


# subjects that may be a slip


def has_versions(ask: AskRegistry, subject: str) -> bool:
    """Whether there is anything to compare with."""
    try:
        ask("versions", subject=subject, after=SCHEMA_VERSION_MAX)  # none of them: whether there are is the question
    except InvalidRequest as error:
        if error.details.get("registry_code") != SUBJECT_NOT_FOUND:
            raise
        return False
    return True


def similar_subjects(ask: AskRegistry, subject: str) -> list[str]:
    """Subjects that this one may be meant to be."""
    names = (each for each in ask("subjects")["subjects"] if each != subject)
    return difflib.get_close_matches(subject, names, _CLOSE_MAX, _CLOSE)


def hint_at_similar(ask: AskRegistry, subject: str) -> None:
    """Of a subject without versions, on standard error."""
    if found := similar_subjects(ask, subject):
        names = " or ".join(map(on_one_line, found))
        sys.stderr.write(f"penstock: {on_one_line(subject)} is a new subject; was {names} meant?\n")
