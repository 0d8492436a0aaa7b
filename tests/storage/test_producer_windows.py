"""The producers' last requests in a log, against a model that reads one message after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain, groupby
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.core.ids import IdGenerator
from penstock.core.limits import Limits
from penstock.core.offsets import Offset
from penstock.record.block import Draft
from penstock.record.message import Message
from penstock.storage import producer_windows
from penstock.storage.catalog.topics import ProducerCheckpoint, RequestRun
from penstock.storage.log.log import Log
from penstock.storage.producer_windows import derive_checkpoint
from penstock.testing import FaultDisk, ManualClock

OpenLog = Callable[[FaultDisk], Log]
Sent = tuple[int, int]
"""A producer and its request."""


def sent(*messages: Sent) -> Draft:
    return Draft.of([Message(payload=b"", producer_id=producer, request_id=request) for producer, request in messages])


def burst(producer: int, first: int, count: int) -> list[Sent]:
    return [(producer, first + number) for number in range(count)]


def written(checkpoint: ProducerCheckpoint) -> dict[int, list[tuple[int, int]]]:
    """Every request and its offset, by producer."""
    return {
        producer: [(run.request_id + number, run.offset + number) for run in runs for number in range(run.count)]
        for producer, runs in checkpoint.runs.items()
    }


def model(messages: Iterable[Sent], *, window: int) -> dict[int, list[tuple[int, int]]]:
    found: dict[int, list[tuple[int, int]]] = {}
    for offset, (producer, request) in enumerate(messages):
        if producer and request:
            requests = [*found.pop(producer, []), (request, offset)]
            found[producer] = requests[-window:]  # put last: it wrote last
    return found


def fewest_runs(requests: list[tuple[int, int]]) -> int:
    """Requests that go on are as far from their number in the list as the one before."""
    steps = ((request - number, offset - number) for number, (request, offset) in enumerate(requests))
    return len(list(groupby(steps)))


bursts = st.lists(st.builds(burst, st.integers(0, 4), st.integers(0, 12), st.integers(1, 6)), max_size=25)


SMALL = Limits(
    payload_bytes_max=2048, block_bytes_max=4096, segment_bytes_first=4096, segment_bytes_max=4096, disk_reserve_bytes=1
)


@given(bursts, st.data())
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_last_requests_of_every_producer_are_those_a_reader_would_count(
    monkeypatch: pytest.MonkeyPatch, blocks: list[list[Sent]], data: st.DataObject
) -> None:
    window = data.draw(st.integers(1, 8))
    monkeypatch.setattr(producer_windows, "WINDOW", window)
    monkeypatch.setattr(producer_windows, "_ROWS_GATHERED", data.draw(st.sampled_from([0, 3, 1000])))
    log, checkpoint = log_of(blocks, pause=data.draw(st.integers(0, len(blocks))))
    expected = model(chain(*blocks), window=window)
    found = derive_checkpoint(log, checkpoint)
    assert found.next_offset == log.next_offset
    assert written(found) == expected
    assert {key: len(runs) for key, runs in found.runs.items()} == {
        key: fewest_runs(requests) for key, requests in expected.items()
    }
    assert derive_checkpoint(log) == found


@given(bursts, st.data())
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_of_too_many_producers_those_are_known_that_wrote_last(
    monkeypatch: pytest.MonkeyPatch, blocks: list[list[Sent]], data: st.DataObject
) -> None:
    most = data.draw(st.integers(1, 5))
    monkeypatch.setattr(producer_windows, "PRODUCERS_MAX", most)
    log, checkpoint = log_of(blocks, pause=data.draw(st.integers(0, len(blocks))))
    expected = dict(list(model(chain(*blocks), window=1000).items())[-most:])
    found = written(derive_checkpoint(log, checkpoint))
    assert set(found) == set(expected)
    for producer, requests in found.items():
        # One that was forgotten meanwhile is known since it came back.
        assert requests == expected[producer][-len(requests) :]


def log_of(blocks: list[list[Sent]], *, pause: int) -> tuple[Log, ProducerCheckpoint | None]:
    """A log that holds these, and what was derived from it before block `pause`, if there is one."""
    clock = ManualClock()
    log = Log.open(FaultDisk(), Path("/log"), ids=IdGenerator(clock, node=1), clock=clock, limits=SMALL)
    checkpoint = None
    for number, block in enumerate(blocks):
        if number == pause:
            checkpoint = derive_checkpoint(log)
        log.append(sent(*block))
    return log, checkpoint


def test_an_empty_log_has_no_producers(open_log: OpenLog) -> None:
    assert derive_checkpoint(open_log(FaultDisk())) == ProducerCheckpoint(next_offset=Offset(0), runs={})


def test_requests_and_offsets_that_go_on_are_one_run_over_all_blocks(open_log: OpenLog) -> None:
    log = open_log(FaultDisk())
    for number in range(100):
        log.append(sent((7, number + 1)))
    assert dict(derive_checkpoint(log).runs) == {7: (RequestRun(1, 0, 100),)}


def test_requests_may_come_in_any_order(open_log: OpenLog) -> None:
    log = open_log(FaultDisk())
    log.append(sent((7, 3), (7, 1), (7, 2), (8, 3), (7, 3)))
    assert dict(derive_checkpoint(log).runs) == {
        7: (RequestRun(3, 0, 1), RequestRun(1, 1, 2), RequestRun(3, 4, 1)),
        8: (RequestRun(3, 3, 1),),
    }


def test_what_has_no_producer_or_no_request_is_nobodys_and_still_takes_its_offset(open_log: OpenLog) -> None:
    log = open_log(FaultDisk())
    log.append(sent((7, 1), (0, 9), (7, 2), (7, 0), (7, 3)))
    assert dict(derive_checkpoint(log).runs) == {7: (RequestRun(1, 0, 1), RequestRun(2, 2, 1), RequestRun(3, 4, 1))}


def test_a_window_cuts_a_run_in_two_and_keeps_the_newer_part(
    open_log: OpenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_windows, "WINDOW", 5)
    log = open_log(FaultDisk())
    log.append(sent(*burst(7, 1, 8), *burst(8, 1, 2), *burst(7, 9, 3)))
    assert dict(derive_checkpoint(log).runs) == {
        7: (RequestRun(7, 6, 2), RequestRun(9, 10, 3)),
        8: (RequestRun(1, 8, 2),),
    }


def test_of_too_many_runs_the_newest_are_kept(open_log: OpenLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_windows, "RUNS_MAX", 3)
    log = open_log(FaultDisk())
    log.append(sent((1, 1), (2, 1), (1, 2), (2, 2), (3, 1)))
    assert dict(derive_checkpoint(log).runs) == {
        1: (RequestRun(2, 2, 1),),
        2: (RequestRun(2, 3, 1),),
        3: (RequestRun(1, 4, 1),),
    }


def test_only_what_is_after_the_checkpoint_is_read(open_log: OpenLog) -> None:
    log = open_log(FaultDisk())
    log.append(sent((7, 1), (7, 2)))
    known = ProducerCheckpoint(next_offset=Offset(2), runs={9: (RequestRun(5, 1, 1),)})
    log.append(sent((9, 6)))
    assert dict(derive_checkpoint(log, known).runs) == {9: (RequestRun(5, 1, 2),)}


def test_a_checkpoint_of_more_than_the_log_has_is_left_aside(open_log: OpenLog) -> None:
    log = open_log(FaultDisk())
    log.append(sent(*burst(7, 1, 4)))
    log.truncate_before(2)
    wrong = ProducerCheckpoint(next_offset=Offset(7), runs={9: (RequestRun(5, 0, 1),)})
    assert dict(derive_checkpoint(log, wrong).runs) == {7: (RequestRun(3, 2, 2),)}


def test_a_checkpoint_of_what_the_log_has_no_longer_is_as_true_as_before(open_log: OpenLog) -> None:
    log = open_log(FaultDisk())
    log.append(sent(*burst(7, 1, 4)))
    log.truncate_before(2)
    known = ProducerCheckpoint(next_offset=Offset(1), runs={9: (RequestRun(5, 0, 1),)})
    assert dict(derive_checkpoint(log, known).runs) == {9: (RequestRun(5, 0, 1),), 7: (RequestRun(3, 2, 2),)}


@pytest.mark.parametrize("stop", range(7))
def test_no_more_is_read_than_is_asked_for(open_log: OpenLog, stop: int) -> None:
    log = open_log(FaultDisk())
    log.append(sent(*burst(7, 1, 3)))
    log.append(sent(*burst(8, 1, 2)))
    found = derive_checkpoint(log, stop=stop)
    assert found.next_offset == min(stop, 5)
    assert written(found) == model((burst(7, 1, 3) + burst(8, 1, 2))[:stop], window=10_000)


def test_what_was_truncated_is_still_known_from_the_checkpoint(open_log: OpenLog) -> None:
    log = open_log(FaultDisk())
    log.append(sent(*burst(7, 1, 4)))
    known = derive_checkpoint(log)
    log.truncate_before(4)
    log.append(sent((7, 5)))
    assert dict(derive_checkpoint(log, known).runs) == {7: (RequestRun(1, 0, 5),)}


def test_the_largest_numbers_there_are_do_not_run_over(open_log: OpenLog) -> None:
    last = 2**63 - 1
    log = open_log(FaultDisk())
    log.append(sent((last, last - 1), (last, last), (last, 1)))
    assert dict(derive_checkpoint(log).runs) == {last: (RequestRun(last - 1, 0, 2), RequestRun(1, 2, 1))}
