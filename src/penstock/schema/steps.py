"""How the registry does what takes more than a look: as generators that yield what is to be done elsewhere.

A procedure yields a `Step` and is sent its outcome, or has its error thrown in; what it returns is the answer. Who
drives it decides where steps run: the broker has schemas examined in its worker and commits made in the catalog's
thread, a test does it all on the spot with `carry_out`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, TypeVar

import msgspec

from penstock.core.errors import PenstockError
from penstock.core.schemas import Definition
from penstock.schema.problems import Problem


class Form(StrEnum):
    """The ways to write a schema down again. Only Protobuf has the last two."""

    CANONICAL = "canonical"
    FORMER = "former"
    """What the canonical form was in releases whose fingerprints may be stored: Avro's had the names of types that have
    none. Of all others it is the canonical form."""
    TEXT = "text"
    """A .proto text."""
    SERIALIZED = "serialized"
    """The base64 of a FileDescriptorProto."""


class Examine(msgspec.Struct, frozen=True, tag="examine", array_like=True):
    """Is it a schema? The outcome is the schema in that form; `InvalidSchema` is thrown if it is none."""

    definition: Definition
    form: Form = Form.CANONICAL


@dataclass(frozen=True, slots=True)
class Pair:
    reader: Definition
    writer: Definition


class Compare(msgspec.Struct, frozen=True, tag="compare", array_like=True):
    """The outcome is a list of problems for each of the pairs, in their order."""

    pairs: tuple[Pair, ...]
    lenient: bool = False


@dataclass(frozen=True, slots=True)
class Commit:
    """Change the catalog; the outcome is what `call` returns."""

    call: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Aside:
    """A step of a procedure that only asks: those of procedures that change something go before it."""

    step: Examine | Compare


Step = Examine | Compare | Commit | Aside
Result = TypeVar("Result")
Procedure = Generator[Step, Any, Result]


class Examining(Protocol):
    """Who understands schemas. See `Examiner`."""

    def examine(self, definition: Definition, form: Form = Form.CANONICAL) -> str: ...

    def compare(self, pairs: tuple[Pair, ...], *, lenient: bool) -> list[list[Problem]]: ...


def carry_out(procedure: Procedure[Result], examiner: Examining) -> Result:
    """All of a procedure, here and now."""
    step = advance(procedure, None)
    while not isinstance(step, StopIteration):
        try:
            outcome = do(step, examiner)
        except PenstockError as error:
            step = advance(procedure, error)
        else:
            step = advance(procedure, outcome)
    result: Result = step.value
    return result


def do(step: Step, examiner: Examining) -> Any:
    match step:
        case Examine(definition, form):
            return examiner.examine(definition, form)
        case Compare(pairs, lenient):
            return examiner.compare(pairs, lenient=lenient)
        case Commit(call):
            return call()
        case Aside(asked):
            return do(asked, examiner)


def only_asking(procedure: Procedure[Result]) -> Procedure[Result]:
    """The same, for one that changes nothing."""
    step = advance(procedure, None)
    while not isinstance(step, StopIteration):
        try:
            outcome = yield Aside(step) if isinstance(step, Examine | Compare) else step
        except PenstockError as error:
            outcome = error
        step = advance(procedure, outcome)
    result: Result = step.value
    return result


def advance(procedure: Procedure[Result], outcome: Any) -> Step | StopIteration:
    """Send it the outcome of its last step, or throw that in if it is an error: its next step, or its end."""
    try:
        return procedure.throw(outcome) if isinstance(outcome, PenstockError) else procedure.send(outcome)
    except StopIteration as end:
        return end
