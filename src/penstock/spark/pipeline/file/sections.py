"""A table of a TOML file, read key by key. A wrong value is noted with its place and the allowed values.

No wrong value raises: the default stands for it, so that all problems of a file are reported at once.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any, TypeVar

from penstock.core.errors import PenstockError
from penstock.core.units import parse_duration_ms
from penstock.spark.pipeline.file.environment import Environment, Unset

_Word = TypeVar("_Word", bound=StrEnum)
_Value = TypeVar("_Value")


def advice(given: str, known: Iterable[str]) -> str:
    """Return advice for an unknown name: a similar known name, or a list of all known names."""
    names = sorted(known)
    close = difflib.get_close_matches(given, names, n=1)
    return f"did you mean {close[0]}?" if close else f"known are {', '.join(names) or 'none'}"


class Section:
    """A table of the file. `where` names it in problems; `finish` notes the keys that were never read."""

    def __init__(self, where: str, given: Mapping[str, Any], problems: list[str], environment: Environment) -> None:
        self.where = where
        self.problems = problems
        self._given = given
        self._environment = environment
        self._keys_read: dict[str, None] = {}
        self._problems_before = len(problems)

    @property
    def is_wrong(self) -> bool:
        """True if a problem was noted since this table was begun."""
        return len(self.problems) > self._problems_before

    @property
    def keys(self) -> list[str]:
        return list(self._given)

    def note(self, key: str, problem: str) -> None:
        self.problems.append(f"{self.where} {key}: {problem}" if key else f"{self.where}: {problem}")

    def has(self, key: str) -> bool:
        self._keys_read[key] = None
        return key in self._given

    def finish(self) -> None:
        """Note unknown keys; call it when every possible key was read."""
        for key in self._given:
            if key not in self._keys_read:
                self.note(key, f"not a key here; {advice(key, self._keys_read)}")

    # ---- values

    def text(self, key: str, default: str | None = None) -> str | None:
        return self._read(key, default, self._text)

    def needed(self, key: str, why: str = "") -> str:
        """Return the text of a required key. If it is missing or wrong, note a problem, with the reason `why`, and
        return ""."""
        if not self.has(key):
            self.note(key, f"missing{f': {why}' if why else ''}")
        return self._read(key, "", self._text) or ""

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts; a single text counts as a list of one. Empty if the key is missing or wrong."""
        return self._read(key, (), self._texts)

    def flag(self, key: str, default: bool) -> bool:
        return self._read(key, default, _flag)

    def number(self, key: str, default: int, *, least: int, most: int) -> int:
        return self._read(key, default, lambda value: _number(value, least, most))

    def span_ms(self, key: str, default: int) -> int:
        return self._read(key, default, self._span_ms)

    def some_span_ms(self, key: str) -> int | None:
        """Return a duration above 0 in milliseconds; None if the key is missing or wrong."""
        return self._read(key, None, self._some_span_ms)

    def word(self, key: str, kind: type[_Word], default: _Word, allowed: Iterable[_Word] | None = None) -> _Word:
        """Return a word of the enumeration `kind`, or only of those in `allowed`; the default if the key is missing or
        wrong."""
        words = [each.value for each in (kind if allowed is None else allowed)]
        return self._read(key, default, lambda value: kind(_one_of(self._text(value), words)))

    def options(self, key: str) -> dict[str, str]:
        """Return a table of options as texts for Spark; empty if the key is missing or wrong.

        Booleans become `true` and `false`; numbers, tables and lists become JSON.
        """
        return self._read(key, {}, self._options)

    def section(self, key: str) -> Section | None:
        """Return the table under a key; None if there is none."""
        given = self._read(key, None, _table)
        return None if given is None else Section(f"{self.where} {key}", given, self.problems, self._environment)

    def sections(self, key: str) -> dict[str, Section]:
        """Return the tables `[key.name]` by their names. A problem is noted for a value that is no table."""
        found, empty = {}, dict[str, Any]()
        for name, given in self._read(key, empty, _table).items():
            if isinstance(given, dict):
                found[name] = Section(f"[{key}.{name}]", given, self.problems, self._environment)
            else:
                self.note(
                    f"{key}.{name}", f"a table is wanted, not {as_written(given)}: write [{key}.{name}] above its keys"
                )
        return found

    # ---- parsing of values

    def _read(self, key: str, default: _Value, parse: Callable[[Any], _Value]) -> _Value:
        if not self.has(key):
            return default
        try:
            return parse(self._given[key])
        except PenstockError as error:
            self.note(key, error.message)
        except ValueError as error:
            self.note(key, str(error))
        return default

    def _text(self, value: Any) -> str:
        if not isinstance(value, str) or not value.strip():
            raise ValueError(f"a text is wanted, not {as_written(value)}")
        return self._environment.fill(value)

    def _texts(self, value: Any) -> tuple[str, ...]:
        given = value if isinstance(value, list) else [value]
        if not given:
            raise ValueError("an empty list: name at least one")
        return tuple(self._text(each) for each in given)

    def _span_ms(self, value: Any) -> int:
        return parse_duration_ms(self._text(value))

    def _some_span_ms(self, value: Any) -> int | None:
        span = self._span_ms(value)
        if not span:
            raise ValueError(f"a span of time above 0 is wanted, not {as_written(value)}")
        return span

    def _options(self, value: Any) -> dict[str, str]:
        return {name: self._option(name, each) for name, each in _table(value).items()}

    def _option(self, name: str, value: Any) -> str:
        try:
            return self._environment.fill(value) if isinstance(value, str) else json.dumps(self._filled(value))
        except (TypeError, Unset) as error:
            raise ValueError(f"{name}: {error}") from None

    def _filled(self, value: Any) -> Any:
        """Return the value with the environment's values in all texts, however deeply nested."""
        if isinstance(value, dict):
            return {name: self._filled(each) for name, each in value.items()}
        if isinstance(value, list):
            return [self._filled(each) for each in value]
        return self._environment.fill(value) if isinstance(value, str) else value


def as_written(value: Any) -> str:
    """Return a value about as it stands in the file, at most 60 characters."""
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"true or false is wanted, not {as_written(value)}")
    return value


def _number(value: Any, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"a whole number from {least:,} to {most:,} is wanted, not {as_written(value)}")
    return value


def _table(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"a table is wanted, not {as_written(value)}")
    return value


def _one_of(given: str, words: list[str]) -> str:
    if given not in words:
        allowed = f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else words[0]
        raise ValueError(f"{as_written(given)} is not allowed here: {allowed}")
    return given
