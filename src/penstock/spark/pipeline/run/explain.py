"""An explanation of a pipeline for people: its steps and their inputs, and the plan of every query."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.spark.pipeline.file.model import (
    Destination,
    FromFormat,
    FromTable,
    FromTopics,
    Mode,
    Pipeline,
    Sink,
    Source,
    Sql,
    Step,
    TableAt,
    ToConsole,
    ToFiles,
    ToTable,
    ToTopic,
    Watermark,
)
from penstock.spark.pipeline.run.frames import Frames

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def graph_lines(pipeline: Pipeline) -> Iterator[str]:
    """Yield a line for the pipeline and for each part: its kind, and its inputs. Pure."""
    yield f"pipeline {pipeline.name} ({pipeline.mode.value})"
    for source in pipeline.sources:
        yield f"  source {source.name} <- {_source(source)}{_watermark(source.watermark)}"
    for step in pipeline.steps:
        yield f"  step   {step.name} <- {_step(step)}{_watermark(step.watermark)}"
    for sink in pipeline.sinks:
        yield f"  sink   {sink.name} <- {sink.source} -> {_to(sink.to)}{_rhythm(pipeline, sink)}"


def _source(source: Source) -> str:
    how = "stream" if source.streaming else "as it is"
    match source.of:
        case FromTopics(what=what):
            return f"{how}: {'topics' if ', ' in what else 'topic'} {what}"
        case FromTable(table=table):
            return f"{how}: {_table(table)}"
        case FromFormat(format=form, path=path):
            return f"{how}: {form}{f' {path}' if path else ''}"


def _step(step: Step) -> str:
    return f"{', '.join(step.inputs)} by {'SQL' if isinstance(step.by, Sql) else step.by}"


def _to(to: Destination) -> str:
    match to:
        case ToTopic(topic=topic):
            return f"topic {topic}"
        case ToTable(table=table):
            return _table(table)
        case ToFiles(path=path, format=form):
            return f"{form.value} {path}"
        case ToConsole():
            return "console"


def _table(table: TableAt) -> str:
    return f"{table.kind.value} table {table.name} in {table.warehouse}"


def _watermark(watermark: Watermark | None) -> str:
    return "" if watermark is None else f" (late after {watermark.delay_ms} ms of {watermark.column})"


def _rhythm(pipeline: Pipeline, sink: Sink) -> str:
    if pipeline.mode is Mode.BATCH:
        return ""
    return f" ({sink.output.value}, every {sink.trigger_ms} ms, checkpoint {sink.checkpoint})"


def plan(frame: DataFrame, *, extended: bool = False) -> str:
    """Return the plan as Spark explains it."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        # A query's own text does not tell Spark that its tables are streams; a selection of its columns does.
        frame.select("*").explain(mode="extended" if extended else "simple")
    return said.getvalue().strip()


def plans(pipeline: Pipeline, frames: Frames, *, extended: bool = False) -> dict[str, str]:
    """Return the plan of every query by name, with the environment's values hidden."""
    return {
        pipeline.query_name(sink): pipeline.secrets.hide(plan(frames.by_name[sink.source], extended=extended))
        for sink in pipeline.sinks
        if sink.source in frames.by_name
    }
