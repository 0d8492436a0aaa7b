"""The parser of a pipeline's file: TOML in, a `Pipeline` or all problems that need no Spark out. Pure but for the file.

[pipeline]        name, mode, checkpoints, and settings that all sources and sinks have in common
[spark]           settings that the session is started with
[sources.NAME]    topics, tables, files
[steps.NAME]      SQL or Python over sources and steps
[sinks.NAME]      topics, tables, files, the console: one query each
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

from penstock.core.errors import InvalidRequest, VerbatimDetails
from penstock.spark.pipeline.file.connections import Parts, connected, warnings
from penstock.spark.pipeline.file.environment import Environment
from penstock.spark.pipeline.file.locations import located
from penstock.spark.pipeline.file.model import TRIGGER_MS_DEFAULT, Mode, Pipeline, Spark, TableKind
from penstock.spark.pipeline.file.sections import Section, advice, as_written
from penstock.spark.pipeline.file.sink_parsing import parse_sink
from penstock.spark.pipeline.file.source_parsing import Defaults, parse_source
from penstock.spark.pipeline.file.step_parsing import parse_step

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}", re.ASCII)
_PIPELINE_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}", re.ASCII)
_PARTS: Final = ("pipeline", "spark", "sources", "steps", "sinks")
_Parsed = TypeVar("_Parsed")


class PipelineInvalid(InvalidRequest):
    """The problems of a pipeline: one sentence each, in `problems`."""

    def __init__(self, file: str, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        told = "; ".join(self.problems)
        count = f"{len(self.problems)} problems: " if len(self.problems) > 1 else ""
        super().__init__(f"{file}: {count}{told}", file=file, problems=VerbatimDetails(self.problems))


def load(file: Path, variables: Mapping[str, str] = os.environ) -> Pipeline:
    """Load a file. Raises `InvalidRequest` if it cannot be read, `PipelineInvalid` with all its problems."""
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"the pipeline {file} cannot be read: {error}") from None
    return parse(text, file, variables)


def parse(text: str, file: Path, variables: Mapping[str, str]) -> Pipeline:
    """Parse the text of a file, as `load` does."""
    try:
        tables = tomllib.loads(text)
    except ValueError as error:  # also an integer with too many digits
        raise InvalidRequest(f"{file} is not TOML: {error}") from None
    environment, problems = Environment(variables), list[str]()
    made = _parse(tables, file.absolute(), environment, problems)
    if problems:
        raise PipelineInvalid(str(file), [environment.secrets.hide(problem) for problem in problems])
    return replace(made, secrets=environment.secrets)


def _parse(tables: dict[str, Any], file: Path, environment: Environment, problems: list[str]) -> Pipeline:
    whole = Section("the file", tables, problems, environment)
    name, defaults = _defaults(_part(whole, "pipeline"), file)
    spark = _spark(_part(whole, "spark"))
    parts = Parts(
        tuple(_parse_named(whole, "sources", lambda each, section: parse_source(each, section, defaults))),
        tuple(_parse_named(whole, "steps", lambda each, section: parse_step(each, section, file.parent))),
        tuple(_parse_named(whole, "sinks", lambda each, section: parse_sink(each, section, defaults))),
    )
    _finish(whole)
    if not problems:  # connections can only be checked between complete parts
        parts = connected(parts, defaults.mode, problems)
    return Pipeline(
        name=name,
        file=file,
        mode=defaults.mode,
        sources=parts.sources,
        steps=parts.steps,
        sinks=parts.sinks,
        checkpoints=defaults.checkpoints,
        refresh_ms=defaults.refresh_ms,
        spark=spark,
        warnings=() if problems else tuple(warnings(parts, refreshed=defaults.refresh_ms is not None)),
    )


# ---- the parts of the file


def _part(whole: Section, key: str) -> Section:
    """Return the table `[key]` of the file; an empty one if it is missing."""
    found = whole.section(key)
    made = found or Section("", {}, whole.problems, Environment({}))
    made.where = f"[{key}]"
    return made


def _finish(whole: Section) -> None:
    """Note unknown tables. The tables of sources, steps and sinks are checked one by one."""
    for key in whole.keys:
        if key not in _PARTS:
            whole.problems.append(f"[{key}] is not a part of a pipeline; {advice(key, _PARTS)}")


def _parse_named(whole: Section, key: str, parse: Callable[[str, Section], _Parsed | None]) -> Iterator[_Parsed]:
    for name, section in whole.sections(key).items():
        if not _NAME.fullmatch(name):
            section.note("", f"{as_written(name)} is not a name: a letter, then letters, digits and _, at most 64")
        made = parse(name.lower(), section)
        if made is not None:
            yield made


def _defaults(section: Section, file: Path) -> tuple[str, Defaults]:
    name = section.text("name", file.stem) or file.stem
    if not _PIPELINE_NAME.fullmatch(name):
        section.note("name", f"{as_written(name)} is not a name: a letter, then letters, digits, _ and -, at most 64")
    directory = file.parent
    path, warehouse, registry = section.text("path"), section.text("warehouse"), section.text("registry")
    defaults = Defaults(
        directory=directory,
        mode=section.word("mode", Mode, Mode.STREAM),
        path=path and located(directory, path),
        url=section.text("url"),
        broker=section.text("broker"),
        registry=registry and located(directory, registry),
        storage=tuple(section.options("storage").items()),
        warehouse=warehouse and located(directory, warehouse),
        kind=section.word("kind", TableKind, TableKind.DELTA),
        catalog=tuple(section.options("catalog").items()),
        trigger_ms=section.span_ms("trigger", TRIGGER_MS_DEFAULT),
        refresh_ms=section.some_span_ms("refresh"),
        checkpoints=located(directory, section.text("checkpoints") or f"checkpoints/{name}"),
    )
    if defaults.mode is Mode.BATCH and defaults.refresh_ms is not None:
        section.note("refresh", 'a pipeline of mode "batch" runs once: leave it out')
    if defaults.path is not None and defaults.url is not None:
        section.note("path", "path and url are both there: a data directory, or a broker's HTTP address")
    section.finish()
    return name, defaults


def _spark(section: Section) -> Spark:
    config = section.options("config")
    for name in config:
        if not name.startswith("spark."):
            section.note("config", f"{as_written(name)} is no setting of Spark's: their names begin with spark.")
    made = Spark(master=section.text("master"), memory=section.text("memory"), config=tuple(config.items()))
    section.finish()
    return made
