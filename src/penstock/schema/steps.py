"""Registry procedures: generators that yield the steps which have to run elsewhere.

A procedure yields a `ProcedureStep` and is sent the outcome of the step, or has the error of the step thrown in; its
return value is the answer. The driver decides where steps run: the broker parses schemas in its worker process and
commits in the catalog's thread, a test does everything on the spot with `run_procedure`.
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


class SchemaForm(StrEnum):
    """The ways to write a schema down again. Only Protobuf has the last two."""

    CANONICAL = "canonical"
    FORMER = "former"
    """What the canonical form was in releases whose fingerprints may be stored: Avro's had the names of types that have
    none. Of all others it is the canonical form."""
    TEXT = "text"
    """A .proto text."""
    SERIALIZED = "serialized"
    """The base64 of a FileDescriptorProto."""


class ParseSchema(msgspec.Struct, frozen=True, tag="examine", array_like=True):
    """Is it a schema? The outcome is the schema in that form; `InvalidSchema` is thrown if it is none."""

    definition: Definition
    form: SchemaForm = SchemaForm.CANONICAL


@dataclass(frozen=True, slots=True)
class SchemaPair:
    reader: Definition
    writer: Definition


class CheckCompatibility(msgspec.Struct, frozen=True, tag="compare", array_like=True):
    """The outcome is a list of problems for each of the pairs, in their order."""

    pairs: tuple[SchemaPair, ...]
    lenient: bool = False


@dataclass(frozen=True, slots=True)
class CommitToCatalog:
    """Change the catalog; the outcome is what `call` returns."""

    call: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class AtLowPriority:
    """A step of a procedure that only asks: those of procedures that change something go before it."""

    step: ParseSchema | CheckCompatibility


ProcedureStep = ParseSchema | CheckCompatibility | CommitToCatalog | AtLowPriority
Result = TypeVar("Result")
Procedure = Generator[ProcedureStep, Any, Result]


class SchemaEngine(Protocol):
    """Who understands schemas. See `SchemaLanguages`."""

    def parse(self, definition: Definition, form: SchemaForm = SchemaForm.CANONICAL) -> str: ...

    def check_compatibility(self, pairs: tuple[SchemaPair, ...], *, lenient: bool) -> list[list[Problem]]: ...


def run_procedure(procedure: Procedure[Result], engine: SchemaEngine) -> Result:
    """All of a procedure, here and now."""
    step = advance(procedure, None)
    while not isinstance(step, StopIteration):
        try:
            outcome = run_step(step, engine)
        except PenstockError as error:
            step = advance(procedure, error)
        else:
            step = advance(procedure, outcome)
    result: Result = step.value
    return result


def run_step(step: ProcedureStep, engine: SchemaEngine) -> Any:
    match step:
        case ParseSchema(definition, form):
            return engine.parse(definition, form)
        case CheckCompatibility(pairs, lenient):
            return engine.check_compatibility(pairs, lenient=lenient)
        case CommitToCatalog(call):
            return call()
        case AtLowPriority(asked):
            return run_step(asked, engine)


def at_low_priority(procedure: Procedure[Result]) -> Procedure[Result]:
    """The same, for one that changes nothing."""
    step = advance(procedure, None)
    while not isinstance(step, StopIteration):
        try:
            outcome = yield AtLowPriority(step) if isinstance(step, ParseSchema | CheckCompatibility) else step
        except PenstockError as error:
            outcome = error
        step = advance(procedure, outcome)
    result: Result = step.value
    return result


def advance(procedure: Procedure[Result], outcome: Any) -> ProcedureStep | StopIteration:
    """Send it the outcome of its last step, or throw that in if it is an error: its next step, or its end."""
    try:
        return procedure.throw(outcome) if isinstance(outcome, PenstockError) else procedure.send(outcome)
    except StopIteration as end:
        return end
