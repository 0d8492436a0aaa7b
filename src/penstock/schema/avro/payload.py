"""Whether a payload is one value of a schema in Avro's binary encoding, and where it is not.

Logical types say what values mean; their encoding is that of the types they stand on, and that is what is checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.schema.avro import payload_steps
from penstock.schema.avro.model import Array, Enum, Fixed, Link, Map, Primitive, Record, Schema, Type, Union, pointer
from penstock.schema.avro.payload_steps import Refused, Step, Walk
from penstock.schema.language import PayloadFault
from penstock.schema.problems import fragment

_PRIMITIVES: Final[Mapping[str, Step | None]] = {
    "null": None,
    "boolean": payload_steps.boolean,
    "int": payload_steps.whole(32),
    "long": payload_steps.whole(64),
    "float": payload_steps.taking(4),
    "double": payload_steps.taking(8),
    "bytes": payload_steps.binary,
    "string": payload_steps.string,
}
"""None takes no bytes."""


class BinaryValidator:
    """See `Validator`. A payload is one value and nothing else: no container, no marker before it."""

    def __init__(self, schema: Schema) -> None:
        self._step = _Steps(schema).of(schema.root)

    def accepts_lines(self, lines: memoryview, count: int) -> bool:  # noqa: ARG002
        """Never known: a newline may be part of any value."""
        return False

    def fault(self, payload: bytes) -> PayloadFault | None:
        walk = Walk(payload)
        try:
            end = 0 if self._step is None else self._step(walk, 0, 0)
        except Refused as refused:
            return PayloadFault(pointer(reversed(refused.trail)), refused.message)
        left = walk.size - end
        return PayloadFault("", f"the value ends {left} bytes before the payload does") if left else None


class _Steps:
    """The steps past values of types. What takes no bytes has none, so that time is spent on bytes alone."""

    def __init__(self, schema: Schema) -> None:
        self._fields: dict[str, list[tuple[str, Step]]] = {
            name: [] for name, type_ in schema.types.items() if isinstance(type_, Record)
        }
        self._named: dict[str, Step | None] = {name: payload_steps.record(each) for name, each in self._fields.items()}
        # Each comes after all it contains, but for itself: a record that contains itself takes bytes, or has no values.
        for type_ in schema.types.values():
            self._named[type_.name] = self._defined(type_)

    def of(self, type_: Type) -> Step | None:
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

    def _defined(self, type_: Record | Enum | Fixed) -> Step | None:
        match type_:
            case Enum(symbols=symbols):
                return payload_steps.enum(len(symbols))
            case Fixed(size=size):
                return payload_steps.taking(size) if size else None
            case Record(name=name, fields=fields):
                steps = [(fragment(field.name), self.of(field.type)) for field in fields]
                self._fields[name] += [(name, step) for name, step in steps if step is not None]
                return self._named[name] if self._fields[name] else None
