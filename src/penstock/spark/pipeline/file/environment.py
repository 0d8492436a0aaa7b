"""`${NAME}` in a pipeline's texts: replaced from the environment when the file is read, and hidden in all output.

`${NAME:-text}` has a text for an unset variable; `$${` is a plain `${`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

_REFERENCE: Final = re.compile(r"\$\$\{|\$\{([^}]*)\}")
_WRITTEN: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)
_HIDDEN_CHARS_MIN: Final = 4
"""The length of the shortest value that is hidden. A shorter one occurs in many texts by chance."""


class Unset(ValueError):
    """A variable that is unset and has no default, or an invalid name; the text says which."""


@dataclass(frozen=True, slots=True)
class Secrets:
    """Values that came from the environment, by name. Apply `hide` to everything that is printed."""

    values: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def hide(self, text: str) -> str:
        """Return the text with each value replaced by its reference `${NAME}`, unless it has fewer than four
        characters.

        The longest value is replaced first, since one may contain another.
        """
        for name, value in sorted(self.values, key=lambda pair: -len(pair[1])):
            if len(value) >= _HIDDEN_CHARS_MIN:
                text = text.replace(value, f"${{{name}}}")
        return text


class Environment:
    """A set of environment variables that fills the references in texts, and remembers which variables it used."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables
        self._taken: dict[str, str] = {}

    @property
    def secrets(self) -> Secrets:
        return Secrets(tuple(sorted(self._taken.items())))

    def fill(self, text: str) -> str:
        """Return the text with all references filled in. Raises `Unset`."""
        return _REFERENCE.sub(self._value, text)

    def _value(self, found: re.Match[str]) -> str:
        if found[1] is None:
            return "${"
        written = _WRITTEN.fullmatch(found[1])
        if written is None:
            raise Unset(f"{found[0]} names no variable: write ${{NAME}} or ${{NAME:-text}}, or $${{ for a plain ${{")
        name, default = written.groups()
        if name in self._variables:
            self._taken[name] = self._variables[name]
            return self._variables[name]
        if default is None:
            raise Unset(f"{found[0]}: the environment variable {name} is not set; ${{{name}:-text}} has a default")
        return default
