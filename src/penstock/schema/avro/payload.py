"""Validation of payloads: one value of a schema in Avro's binary encoding, and the path to the fault.

Logical types give values a meaning; their encoding is that of the underlying types, and that is checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.schema.avro import payload_steps
from penstock.schema.avro.model import Array, Enum, Fixed, Link, Map, Primitive, Record, Schema, Type, Union, pointer
from penstock.schema.avro.payload_steps import InvalidValue, ValueStep, Walk
from penstock.schema.language import PayloadFault
from penstock.schema.problems import fragment

_PRIMITIVES: Final[Mapping[str, ValueStep | None]] = {
    "null": None,
    "boolean": payload_steps.boolean,
    "int": payload_steps.integer(32),
    "long": payload_steps.integer(64),
    "float": payload_steps.fixed_size(4),
    "double": payload_steps.fixed_size(8),
    "bytes": payload_steps.binary,
    "string": payload_steps.string,
}
"""The step of each primitive type; None for one that takes no bytes."""


class BinaryValidator:
    """A validator of payloads that are one encoded value and nothing else: no container file, no header of the
    single-object encoding. See `Validator`."""

    def __init__(self, schema: Schema) -> None:
        self._step = _StepBuilder(schema).of(schema.root)

    def accepts_lines(self, lines: memoryview, count: int) -> bool:  # noqa: ARG002
        """Return False: a newline may be part of any value."""
        return False

    def fault(self, payload: bytes) -> PayloadFault | None:
        walk = Walk(payload)
        try:
            end = 0 if self._step is None else self._step(walk, 0, 0)
        except InvalidValue as invalid:
            return PayloadFault(pointer(reversed(invalid.trail)), invalid.message)
        left = walk.size - end
        return PayloadFault("", f"the value ends {left} bytes before the payload does") if left else None


class _StepBuilder:
    """A builder of the steps for a schema's types. A type whose values take no bytes, such as null or an empty record,
    has None instead of a step, so that the time for a payload depends on its bytes alone."""

    def __init__(self, schema: Schema) -> None:
        self._fields: dict[str, list[tuple[str, ValueStep]]] = {
            name: [] for name, type_ in schema.types.items() if isinstance(type_, Record)
        }
        self._named: dict[str, ValueStep | None] = {
            name: payload_steps.record(each) for name, each in self._fields.items()
        }
        # A type comes after all it contains, except itself: a record within itself takes bytes, or has no values.
        for type_ in schema.types.values():
            self._named[type_.name] = self._defined(type_)

    def of(self, type_: Type) -> ValueStep | None:
        match type_:
            case Primitive(kind=kind):
                return _PRIMITIVES[kind]
            case Array(items=items):
                return payload_steps.array(self.of(items))
            case Map(values=values):
                return payload_steps.map_(self.of(values))
            case Union(branches=branches):
                return payload_steps.union([self.of(branch) for branch in branches])
            case Link() | Record() | Enum() | Fixed():
                return self._named[type_.name]

    def _defined(self, type_: Record | Enum | Fixed) -> ValueStep | None:
        match type_:
            case Enum(symbols=symbols):
                return payload_steps.enum(len(symbols))
            case Fixed(size=size):
                return payload_steps.fixed_size(size) if size else None
            case Record(name=name, fields=fields):
                steps = [(fragment(field.name), self.of(field.type)) for field in fields]
                self._fields[name] += [(name, step) for name, step in steps if step is not None]
                return self._named[name] if self._fields[name] else None
