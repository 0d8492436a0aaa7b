"""Compatibility problems: the answer to "can this reader read what that writer wrote?" is a list of them, empty for
yes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

FRAGMENT_CHARS_MAX: Final = 200
"""Characters of a piece of a schema that a problem quotes: enough to recognise it."""

PROBLEMS_MAX: Final = 100
"""Problems reported by one comparison: after fixing a hundred, check again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A reason why a reader cannot read data that a writer wrote."""

    kind: str
    """The kind of problem, in capitals: `READER_FIELD_MISSING_DEFAULT_VALUE`."""
    path: str
    """The position as a JSON pointer into the reader's schema (`/fields/2/type`), or into the writer's where the reader
    has no such position. For Protobuf, names instead of keys: `/Order/items`."""
    message: str
    """A sentence for people: the data that the writer may write, and why the reader cannot take it."""
    reader: str = ""
    """The part of the reader's schema at fault; empty where it has none."""
    writer: str = ""
    fix: str = ""
    """The change that would help, as an instruction: `give field "x" a default`."""
    version: int | None = None
    """The version of the subject that was compared."""
    direction: str = ""
    """`BACKWARD` where the new schema is the reader, `FORWARD` where it is the writer."""

    def sentence(self) -> str:
        """Return version, path, message and fix in one line."""
        against = f"version {self.version}, {self.direction}" if self.version is not None else ""
        context = " at ".join(part for part in (against, self.path) if part)
        fix = f" ({self.fix})" if self.fix else ""
        return f"{context}: {self.message}{fix}" if context else f"{self.message}{fix}"

    def as_dict(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value not in ("", None)}


def fragment(text: str) -> str:
    """Return a piece of a schema, cut off at `FRAGMENT_CHARS_MAX` characters, to be quoted in a message."""
    return text if len(text) <= FRAGMENT_CHARS_MAX else text[: FRAGMENT_CHARS_MAX - 3] + "..."
