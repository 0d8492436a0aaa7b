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
    """The text forms in which a parsed schema can be returned. Only Protobuf has the last two."""

    CANONICAL = "canonical"
    FORMER = "former"
    """The canonical form of earlier releases, whose fingerprints may be stored: for Avro, with the names that stand on
    types without a name. For all other languages it is the canonical form."""
    TEXT = "text"
    """A .proto text."""
    SERIALIZED = "serialized"
    """The base64 of a FileDescriptorProto."""


class ParseSchema(msgspec.Struct, frozen=True, tag="examine", array_like=True):
    """A step that parses a schema. The outcome is the schema in `form`; `InvalidSchema` is thrown if it is not a
    schema."""

    definition: Definition
    form: SchemaForm = SchemaForm.CANONICAL


@dataclass(frozen=True, slots=True)
class SchemaPair:
    reader: Definition
    writer: Definition


class CheckCompatibility(msgspec.Struct, frozen=True, tag="compare", array_like=True):
    """A step that compares schemas. The outcome is a list of problems for each pair, in the order of `pairs`."""

    pairs: tuple[SchemaPair, ...]
    lenient: bool = False


@dataclass(frozen=True, slots=True)
class CommitToCatalog:
    """A step that changes the catalog; the outcome is the return value of `call`."""

    call: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class AtLowPriority:
    """A step of a read-only procedure: steps of procedures that change the registry go before it."""

    step: ParseSchema | CheckCompatibility


ProcedureStep = ParseSchema | CheckCompatibility | CommitToCatalog | AtLowPriority
Result = TypeVar("Result")
Procedure = Generator[ProcedureStep, Any, Result]


class SchemaEngine(Protocol):
    """The parser and comparer of schemas that runs the steps. `SchemaLanguages` is the real one."""

    def parse(self, definition: Definition, form: SchemaForm = SchemaForm.CANONICAL) -> str: ...

    def check_compatibility(self, pairs: tuple[SchemaPair, ...], *, lenient: bool) -> list[list[Problem]]: ...


def run_procedure(procedure: Procedure[Result], engine: SchemaEngine) -> Result:
    """Run a whole procedure on the spot."""
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
    """Return a read-only procedure with its parsing and comparing steps at low priority."""
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
    """Send the outcome of the last step into a procedure, or throw it in if it is an error; return the next step or the
    end."""
    try:
        return procedure.throw(outcome) if isinstance(outcome, PenstockError) else procedure.send(outcome)
    except StopIteration as end:
        return end
