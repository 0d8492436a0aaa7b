"""Checks before a run: whether a DataFrame's columns and output mode fit its sink."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from penstock.core.errors import InvalidRequest
from penstock.spark.pipeline.file.model import (
    Encode,
    Mode,
    Output,
    Pipeline,
    Sink,
    ToConsole,
    ToFiles,
    ToTable,
    ToTopic,
)
from penstock.spark.pipeline.file.sections import advice
from penstock.spark.pipeline.run.encoding import messages
from penstock.spark.pipeline.run.frames import Frames
from penstock.spark.runtime.failures import reason

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CHECKER: Final = "org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker"
_OUTPUT_MODES: Final = "org.apache.spark.sql.catalyst.streaming.InternalOutputModes"


def problems(spark: SparkSession, pipeline: Pipeline) -> list[str]:
    """Return all problems that can be found without data, of every source and step, unused ones included."""
    frames = Frames(spark).build(pipeline, unused=True)
    found = [*frames.problems, *sink_problems(pipeline, frames)]
    return [pipeline.secrets.hide(each) for each in found]


def sink_problems(pipeline: Pipeline, frames: Frames) -> Iterator[str]:
    """Yield the problems of each sink. A sink whose DataFrame could not be made is left out, since that is reported
    already."""
    for sink in pipeline.sinks:
        if sink.source in frames.by_name:
            for problem in _of_sink(pipeline, sink, frames.by_name[sink.source]):
                yield f"[sinks.{sink.name}]: {problem}"


def _of_sink(pipeline: Pipeline, sink: Sink, frame: DataFrame) -> Iterator[str]:
    if pipeline.mode is Mode.STREAM and not frame.isStreaming:
        yield f"{sink.source} gave a DataFrame that is no stream: a Python step has to make it of its inputs"
        return
    try:
        _check_columns(sink, frame)
    except InvalidRequest as error:
        yield error.message
    if pipeline.mode is Mode.STREAM:
        yield from _output_problem(sink, frame)


def _check_columns(sink: Sink, frame: DataFrame) -> None:
    match sink.to:
        case ToTopic():
            from penstock.spark.sink.columns import check_kinds
            from penstock.spark.sink.options import SinkOptions

            try:
                check_kinds(dict(messages(frame, sink.to).dtypes), SinkOptions.parse(dict(sink.to.options)))
            except InvalidRequest as error:
                advised = '; or have encode = "json" make the payload of them' if sink.to.encode is Encode.NONE else ""
                raise InvalidRequest(f"{error.message}{advised}") from None
        case ToTable(partition_by=column):
            _check_partitions([column] if column else [], frame)
        case ToFiles(partition_by=columns):
            _check_partitions(columns, frame)
        case ToConsole():
            pass
    _check_names(frame)


def _check_partitions(names: list[str] | tuple[str, ...], frame: DataFrame) -> None:
    for name in names:
        if name not in frame.columns:
            raise InvalidRequest(f"partition_by: there is no column {name!r}; {advice(name, frame.columns)}")


def _check_names(frame: DataFrame) -> None:
    """Raise `InvalidRequest` for two columns of one name, which a join may make: no sink can tell them apart."""
    names = [name.lower() for name in frame.columns]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidRequest(
            f"two columns are called {twice[0]!r}: select the columns by name, with `as` for one of them"
        )


def _output_problem(sink: Sink, frame: DataFrame) -> Iterator[str]:
    """Yield the reason why Spark refuses the output mode of this query, if it does.

    Internal classes of Spark are called, since its public way is to start the query.
    """
    from pyspark.errors import PySparkException

    jvm = frame.sparkSession._jvm  # noqa: SLF001
    assert jvm is not None  # noqa: S101 - a session of this process has one
    plan = frame._jdf.queryExecution().analyzed()  # noqa: SLF001
    mode = getattr(getattr(jvm, _OUTPUT_MODES), f"{sink.output.value.capitalize()}$")
    try:
        getattr(jvm, _CHECKER).checkForStreaming(plan, getattr(mode, "MODULE$"))
    except PySparkException as error:
        allowed = "append" if sink.output is not Output.APPEND else "update, or a watermark in an earlier step"
        yield f'output = "{sink.output.value}" cannot be had of {sink.source}: {reason(error)} (try {allowed})'
