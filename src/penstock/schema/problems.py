"""One question, "can this reader read what that writer wrote?", and its answer: a list of problems, empty for yes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

FRAGMENT_CHARS_MAX: Final = 200
"""Of a piece of a schema quoted in a problem: enough to recognise it."""

PROBLEMS_MAX: Final = 100
"""Of one comparison: who has mended a hundred asks again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One reason why a reader cannot read what a writer wrote."""

    kind: str
    """What sort of problem, in capitals: `READER_FIELD_MISSING_DEFAULT_VALUE`."""
    path: str
    """Where, as a JSON pointer into the reader's schema (`/fields/2/type`), or into the writer's where the reader has
    no such place. For Protobuf, names instead of keys: `/Order/items`."""
    message: str
    """A sentence for a person: what the writer may write, and why the reader cannot take it."""
    reader: str = ""
    """The piece of the reader's schema at fault; empty where it has none."""
    writer: str = ""
    fix: str = ""
    """What would mend it, as an instruction: `give field "x" a default`."""
    version: int | None = None
    """Which version of the subject it was compared with."""
    direction: str = ""
    """`BACKWARD` where the new schema is the reader, `FORWARD` where it is the writer."""

    def sentence(self) -> str:
        """All of it in a line."""
        against = f"version {self.version}, {self.direction}" if self.version is not None else ""
        place = " at ".join(part for part in (against, self.path) if part)
        fix = f" ({self.fix})" if self.fix else ""
        return f"{place}: {self.message}{fix}" if place else f"{self.message}{fix}"

    def as_dict(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value not in ("", None)}


def fragment(text: str) -> str:
    """A piece of a schema, short enough to quote."""
    return text if len(text) <= FRAGMENT_CHARS_MAX else text[: FRAGMENT_CHARS_MAX - 3] + "..."
