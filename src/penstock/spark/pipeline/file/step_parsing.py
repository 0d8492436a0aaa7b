"""`[steps.NAME]`: a query over the names of sources and other steps, or a function of DataFrames. Pure."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from penstock.spark.pipeline.file.locations import located
from penstock.spark.pipeline.file.model import Function, Sql, Step
from penstock.spark.pipeline.file.relations import relations
from penstock.spark.pipeline.file.sections import Section, as_written
from penstock.spark.pipeline.file.source_parsing import one_kind, parse_watermark

_FUNCTION: Final = re.compile(r"(?P<place>[^:]+):(?P<name>[A-Za-z_][A-Za-z0-9_]*)")
_MODULE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")


def parse_step(name: str, section: Section, directory: Path) -> Step | None:
    """Return the step. If not exactly one key says its kind, or its value is wrong, note a problem and return None.

    Names of inputs that do not exist are noticed later, when all names are known.
    """
    kind = one_kind(section, ("sql", "python"))
    if kind is None:
        return None
    made = _sql(section) if kind == "sql" else _python(section, directory)
    watermark = parse_watermark(section)
    section.finish()
    return None if made is None else Step(name=name, by=made[0], inputs=made[1], watermark=watermark)


def _sql(section: Section) -> tuple[Sql, tuple[str, ...]] | None:
    text = section.needed("sql").strip().rstrip(";").rstrip()
    if section.has("inputs"):
        section.note("inputs", "is for python alone: a query names what it reads")
    found = relations(text)
    if text and not found:
        section.note("sql", f"reads no source and no step: {as_written(text)}")
        return None
    return Sql(text), found


def _python(section: Section, directory: Path) -> tuple[Function, tuple[str, ...]] | None:
    inputs = tuple(name.lower() for name in section.texts("inputs"))
    if not section.has("inputs"):
        section.note("inputs", 'missing: what the function is given, in its order, such as inputs = ["orders"]')
    given = section.needed("python")
    written = _FUNCTION.fullmatch(given)
    if written is None or not (written["place"].endswith(".py") or _MODULE.fullmatch(written["place"])):
        section.note("python", f'"module:function" or "file.py:function" is wanted, not {as_written(given)}')
        return None
    place = written["place"]
    if place.endswith(".py"):
        place = located(directory, place)
    return Function(place, written["name"]), inputs
