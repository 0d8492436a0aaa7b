from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.broker.reads.merge import FeedGap, LogSource, MergedSlice, ReadPositions, merge_logs, newest_ticks
from penstock.core.ids import IdGenerator, ticks_of_id
from penstock.core.limits import Limits
from penstock.core.names import TopicName
from penstock.record.block import Draft
from penstock.record.message import Message
from penstock.storage.base.disk import OsDisk
from penstock.storage.log.append_result import Durability
from penstock.storage.log.log import Log
from penstock.testing import ManualClock

PLAN = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4), st.sampled_from(["a", "b", "a.b"])), max_size=25)
"""Blocks to write, one after the other: the log, the number of messages, and their type."""


class Logs:
    """Six logs of two topics, and all messages in the order in which they were written."""

    def __init__(self, root: Path) -> None:
        limits = Limits(disk_reserve_bytes=1, segment_bytes_max=4096, segment_bytes_first=4096, **_SMALL)
        clock = ManualClock()
        ids = IdGenerator(clock, node=1)
        self.sources: list[LogSource] = []
        for topic, number in [(topic, number) for topic in ("one", "two") for number in range(3)]:
            path = root / f"{topic}-part-{number}"
            log = Log.open(OsDisk(), path, ids=ids, clock=clock, limits=limits, durability=Durability.OS)
            self.sources.append(LogSource(log, TopicName("default", topic), number, f"/default/{path.name}"))
        self.written: list[tuple[int, bytes, str]] = []

    def close(self) -> None:
        for source in self.sources:
            source.log.close()

    def write(self, place: int, count: int, kind: str, size: int = 10) -> None:
        messages = [Message(payload=b"%d" % (len(self.written) + row) + b"x" * size, type=kind) for row in range(count)]
        done = self.sources[place].log.append(Draft.of(messages))
        ids = done.ids
        self.written += [(ticks_of_id(ids[row]), messages[row].payload, kind) for row in range(count)]

    def read(self, after: int, until: int, positions: ReadPositions, **options: object) -> MergedSlice:
        return merge_logs(self.sources, positions, after=after, until=until, bytes_max=500, **options)  # type: ignore[arg-type]


_SMALL = {"block_bytes_max": 4096, "payload_bytes_max": 2048}


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[Logs]:
    made = Logs(tmp_path / "data")
    yield made
    made.close()


def everything(logs: Logs, after: int, until: int, *, keep: bool = True, kind: str | None = None) -> list[bytes]:
    """Read everything slice by slice. With `keep`, the reader keeps its positions in the logs; without, only the id."""
    found: list[bytes] = []
    positions: ReadPositions = {}
    accept = None if kind is None else kind.__eq__
    for _ in range(1000):
        piece = logs.read(after, until, positions if keep else {}, accept=accept)
        assert piece.gaps == []
        found += [row[5] for _, row in piece.rows]
        assert piece.after > after or piece.after >= until
        after, positions = piece.after, piece.positions
        if after >= until:
            return found
    raise AssertionError("it never ends")


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plan=PLAN, keep=st.booleans(), data=st.data())
def test_logs_are_merged_in_the_order_of_publishing_from_any_id_up_to_any_id(
    tmp_path_factory: pytest.TempPathFactory, plan: list[tuple[int, int, str]], keep: bool, data: st.DataObject
) -> None:
    logs = Logs(tmp_path_factory.mktemp("logs") / "data")
    try:
        for place, count, kind in plan:
            logs.write(place, count, kind)
        ticks = [-1, *(ticks for ticks, _, _ in logs.written)]
        after = data.draw(st.sampled_from(ticks))
        until = data.draw(st.sampled_from([each for each in ticks if each >= after]))
        chosen = data.draw(st.sampled_from([None, "a", "c"]))
        wanted = [payload for each, payload, has in logs.written if after < each <= until and chosen in (None, has)]
        assert everything(logs, after, until, keep=keep, kind=chosen) == wanted
    finally:
        logs.close()


def test_what_is_stored_behind_the_end_is_not_read_yet(logs: Logs) -> None:
    logs.write(0, 3, "a")
    until = logs.written[-1][0]
    logs.write(0, 3, "a")
    logs.write(1, 3, "a")
    piece = logs.read(-1, until, {})
    assert [row[5] for _, row in piece.rows] == [payload for _, payload, _ in logs.written[:3]]
    assert piece.after == until


def test_more_logs_than_are_read_side_by_side_are_merged_all_the_same(
    logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.broker.reads.merge._MERGED_MAX", 2)
    for number in range(60):
        logs.write(number * 5 % 6, 1 + number % 3, "a")
    wanted = [payload for _, payload, _ in logs.written]
    assert everything(logs, -1, logs.written[-1][0]) == wanted
    assert everything(logs, -1, logs.written[-1][0], keep=False) == wanted


def fill(logs: Logs, place: int) -> None:
    """Write more than one segment."""
    for _ in range(6):
        logs.write(place, 4, "a", size=300)


def test_what_retention_took_under_a_reader_is_told_exactly(logs: Logs) -> None:
    fill(logs, 0)
    until = logs.written[-1][0]
    piece = logs.read(-1, until, {})
    read = len(piece.rows)
    logs.sources[0].log.truncate_before(20)
    piece = logs.read(piece.after, until, piece.positions)
    name = logs.sources[0].topic
    assert piece.gaps == [FeedGap(topic=name, partition=0, start=read, stop=20, reason="retention")]
    assert piece.rows[0][1][1] == 20


def test_whoever_comes_back_to_what_is_gone_is_told_that_something_may_be_missing(logs: Logs) -> None:
    fill(logs, 0)
    until = logs.written[-1][0]
    logs.sources[0].log.truncate_before(20)
    early, there = logs.written[3][0], logs.written[20][0]
    (gap,) = logs.read(early, until, {}, resumed=True).gaps
    assert (gap.start, gap.stop, gap.certain) == (None, 20, False)
    assert logs.read(there, until, {}, resumed=True).gaps == []
    assert logs.read(early, until, {}).gaps == [], "who begins there has read nothing before"


def test_where_nothing_is_left_the_newest_is_certainly_missing(logs: Logs) -> None:
    fill(logs, 0)
    log = logs.sources[0].log
    early, until = logs.written[3][0], logs.written[-1][0]
    log.truncate_before(int(log.next_offset))
    piece = logs.read(early, until, {}, resumed=True)
    assert [(gap.stop, gap.certain) for gap in piece.gaps] == [(24, True)]
    assert (piece.rows, piece.after) == ([], until)
    assert logs.read(until, until, {}, resumed=True).gaps == [], "all of it was read"


def test_where_somebody_was_in_logs_that_are_not_read_any_more_is_forgotten(logs: Logs) -> None:
    for place in range(6):
        logs.write(place, 1, "a")
    until = logs.written[-1][0]
    piece = logs.read(-1, until, {})
    assert len(piece.positions) == 6
    left = logs.sources[:2]
    piece = merge_logs(left, piece.positions, after=piece.after, until=until)
    assert set(piece.positions) == {source.log for source in left}


def test_what_is_damaged_is_stepped_over_and_told(logs: Logs) -> None:
    logs.write(0, 3, "a")
    logs.write(1, 1, "a")
    (segment,) = logs.sources[0].log.path.glob("*.seg")
    whole = bytearray(segment.read_bytes())
    place = whole.index(b"1xxxxxxxxxx")
    whole[place] ^= 1
    segment.write_bytes(whole)
    piece = logs.read(-1, logs.written[-1][0], {})
    assert [row[5][:1] for _, row in piece.rows] in ([b"0"], [b"0", b"3"])
    rest = logs.read(piece.after, logs.written[-1][0], piece.positions)
    assert [(gap.start, gap.stop) for gap in (*piece.gaps, *rest.gaps)] == [(1, 2)]
    assert [row[5][:1] for _, row in (*piece.rows, *rest.rows)] == [b"0", b"2", b"3"]


def test_the_newest_of_logs_that_hold_nothing_is_before_everything(logs: Logs) -> None:
    assert newest_ticks([source.log for source in logs.sources]) == -1
    logs.write(4, 2, "a")
    assert newest_ticks([source.log for source in logs.sources]) == logs.written[-1][0]
