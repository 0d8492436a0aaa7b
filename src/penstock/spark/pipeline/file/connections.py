"""Connections between the parts of a pipeline: names that exist, steps in order, a stream for each query. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError

from penstock.spark.pipeline.file import step_graph
from penstock.spark.pipeline.file.model import FromTopics, Mode, Sink, Source, Step, ToTopic
from penstock.spark.pipeline.file.sections import advice, as_written
from penstock.spark.pipeline.file.subscription_names import wrong_names


@dataclass(frozen=True, slots=True)
class Parts:
    sources: tuple[Source, ...]
    steps: tuple[Step, ...]
    sinks: tuple[Sink, ...]

    @property
    def readable(self) -> list[Source | Step]:
        return [*self.sources, *self.steps]

    @property
    def names(self) -> list[str]:
        """Names of everything that can be read."""
        return [each.name for each in self.readable]


def connected(parts: Parts, mode: Mode, problems: list[str]) -> Parts:
    """Check the parts against each other, and return them with each step behind its inputs. Problems are appended to
    `problems`; with a cycle the steps stay as they are."""
    sinks = tuple(replace(sink, source=sink.source.lower()) for sink in parts.sinks)
    parts = replace(parts, sinks=sinks)
    problems += [*_duplicates(parts), *_missing_inputs(parts)]
    try:
        parts = replace(parts, steps=step_graph.ordered(parts.steps))
    except CycleError as error:
        problems.append(f"[steps]: {step_graph.cycle_text(error)}: a step cannot wait for itself")
    if not problems and mode is Mode.STREAM:
        problems += [*_sinks_without_stream(parts), *wrong_names(parts.sources, parts.steps, parts.sinks)]
    return parts


def _duplicates(parts: Parts) -> Iterator[str]:
    """Yield a problem for each name that is used twice, in any case: SQL ignores case, and a step would hide a
    source."""
    for what, names in (("sources or steps", parts.names), ("sinks", [sink.name for sink in parts.sinks])):
        for name in _repeated(names):
            count = f"{as_written(name)} names {names.count(name)} {what}"
            yield f"{count}: each needs a name of its own, whatever its case"


def _repeated(names: Sequence[str]) -> Iterator[str]:
    return (name for name in dict.fromkeys(names) if names.count(name) > 1)


def _missing_inputs(parts: Parts) -> Iterator[str]:
    known = set(parts.names)
    if not parts.sinks:
        yield "[sinks.NAME]: there is none, so nothing would be done: add one"
    for step in parts.steps:
        for name in step.inputs:
            if name not in known:
                yield f"[steps.{step.name}]: reads {name}, which is no source and no step; {advice(name, known)}"
    for sink in parts.sinks:
        if sink.source not in known:
            said = f"{as_written(sink.source)} is no source and no step"
            yield f"[sinks.{sink.name}] from: {said}; {advice(sink.source, known)}"


def _sinks_without_stream(parts: Parts) -> Iterator[str]:
    """Yield a problem for each sink that reads no stream, so that there is no query to run."""
    streams = step_graph.streaming(parts.sources, parts.steps)
    for sink in parts.sinks:
        if sink.source not in streams:
            yield (
                f"[sinks.{sink.name}] from: {sink.source} reads no stream, so there is no query to run;"
                ' read = "stream" at its source makes it one, mode = "batch" in [pipeline] does without'
            )


# ---- warnings


def warnings(parts: Parts, *, refreshed: bool = False) -> Iterator[str]:
    """Yield sentences about connected parts that are allowed, and perhaps not intended."""
    if refreshed and all(source.streaming for source in parts.sources):
        yield "[pipeline] refresh does nothing: all sources are streams"
    used = step_graph.used(parts.steps, parts.sinks)
    kinds = dict.fromkeys((source.name for source in parts.sources), "sources")
    for name in parts.names:
        if name not in used:
            yield f"[{kinds.get(name, 'steps')}.{name}] is used by no sink: it is not run"
    yield from _idle_watermarks(parts)
    yield from _loops(parts)


def _idle_watermarks(parts: Parts) -> Iterator[str]:
    streams = step_graph.streaming(parts.sources, parts.steps)
    for each in parts.readable:
        if each.watermark is not None and each.name not in streams:
            yield f"{each.name} is no stream: its watermark does nothing"


def _loops(parts: Parts) -> Iterator[str]:
    """Yield a warning for each sink that writes to a topic which a source reads: its rows come back, again and
    again."""
    reads = {(topic, source.name) for source in parts.sources for topic in _topics(source)}
    for sink in parts.sinks:
        for topic, source in sorted(reads):
            if isinstance(sink.to, ToTopic) and sink.to.topic == topic:
                yield f"[sinks.{sink.name}] writes to {topic}, which [sources.{source}] reads: its rows come back"


def _topics(source: Source) -> list[str]:
    return source.of.what.split(", ") if isinstance(source.of, FromTopics) and source.streaming else []
