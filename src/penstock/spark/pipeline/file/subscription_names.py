"""Subscription names under which the broker shows the progress of queries. Pure.

The broker keeps one position for a name, and it only moves forward. If several queries reported under one name, the
position would be that of the quickest, and retention would drop messages that the others have not read. So sinks that
read the same source report under different names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from penstock.core.errors import InvalidRequest
from penstock.spark.pipeline.file import step_graph
from penstock.spark.pipeline.file.model import FromTopics, Sink, Source, Step
from penstock.storage.catalog.topics import check_subscription_name

OPTION = "subscription"


def sources_of(sink: Sink, sources: Sequence[Source], steps: Sequence[Step], sinks: Sequence[Sink]) -> list[Source]:
    """Return all sources as the query of this sink reads them.

    If other sinks also read a source, its subscription `NAME` becomes `NAME-SINK` with the name of this sink.
    """
    readers = Counter(name for each in sinks for name in step_graph.used(steps, [each]))
    wanted = step_graph.used(steps, [sink])
    return [_renamed(each, sink) if each.name in wanted and readers[each.name] > 1 else each for each in sources]


def _renamed(source: Source, sink: Sink) -> Source:
    if not isinstance(source.of, FromTopics) or not source.streaming:
        return source
    options = tuple(
        (name, f"{value}-{sink.name}" if name.lower() == OPTION else value) for name, value in source.of.options
    )
    return replace(source, of=replace(source.of, options=options))


def wrong_names(sources: Sequence[Source], steps: Sequence[Step], sinks: Sequence[Sink]) -> Iterator[str]:
    """Yield a problem for each subscription whose name, with the sink's name added, is not allowed: it may be too
    long."""
    for sink in sinks:
        for source in sources_of(sink, sources, steps, sinks):
            for name in _subscriptions(source):
                try:
                    check_subscription_name(name)
                except InvalidRequest as error:
                    yield f"[sources.{source.name}] options: as it is read by several sinks: {error.message}"


def _subscriptions(source: Source) -> list[str]:
    if not isinstance(source.of, FromTopics):
        return []
    return [value for name, value in source.of.options if name.lower() == OPTION]
