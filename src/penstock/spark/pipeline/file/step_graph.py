"""The graph of a pipeline's steps: their order, cycles, unused parts, and which are streams. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter

from penstock.spark.pipeline.file.model import Sink, Source, Step


def ordered(steps: Iterable[Step]) -> tuple[Step, ...]:
    """Return the steps, each behind its inputs. Raises `CycleError`."""
    by_name = {step.name: step for step in steps}
    inputs = {name: [each for each in step.inputs if each in by_name] for name, step in by_name.items()}
    return tuple(by_name[name] for name in TopologicalSorter(inputs).static_order())


def cycle_text(error: CycleError) -> str:
    """Return a cycle in words: `a reads b, which reads a`, or `a reads itself`."""
    names = list(reversed(error.args[1]))
    if len(names) == 2:
        return f"{names[0]} reads itself"
    return f"{names[0]} reads {', which reads '.join(names[1:])}"


def used(steps: Iterable[Step], sinks: Iterable[Sink]) -> set[str]:
    """Return the names of everything that a sink needs, directly or through others."""
    inputs = {step.name: step.inputs for step in steps}
    found: set[str] = set()
    waiting = [sink.source for sink in sinks]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += inputs.get(name, ())
    return found


def streaming(sources: Iterable[Source], steps: Iterable[Step]) -> set[str]:
    """Return the names of the sources and steps that are streams. `steps` must come in order, each behind its
    inputs."""
    found = {source.name for source in sources if source.streaming}
    for step in steps:
        if found.intersection(step.inputs):
            found.add(step.name)
    return found
