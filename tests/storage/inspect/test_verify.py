"""Verification: a sound log is clean, and every way to break one is found at the place where it is."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.core.ids import IdGenerator
from penstock.record.block import Draft, stamp
from penstock.record.hashing import hash64
from penstock.record.message import Message
from penstock.storage.base.disk import OsDisk
from penstock.storage.inspect.verify import (
    SegmentProblem,
    segment_paths,
    verify_if_there,
    verify_segment,
    verify_sequence,
)
from penstock.storage.log import index as indexes
from penstock.storage.log.index import ENTRY_BYTES, HEADER_BYTES, IndexFile, IndexHeader, SegmentState, encode_entries
from penstock.storage.log.log import Log
from penstock.storage.log.segment import base_of, hash_file, index_path, segment_name
from penstock.testing import FaultDisk, ManualClock

OpenLog = Callable[[FaultDisk], Log]
MakeDraft = Callable[..., Draft]
FOLDER = Path("/log")
RECORD_BYTES = 82 + 40
"""Bytes of one message of these tests, type and payload included."""


def payload(number: int) -> bytes:
    return b"message %02d" % number + bytes(30)


@pytest.fixture
def disk(open_log: OpenLog, draft: MakeDraft) -> FaultDisk:
    """Offsets 0 to 9 and 10 to 19 in sealed segments, 20 to 24 in one that was closed in order."""
    made = FaultDisk()
    with open_log(made) as log:
        for first in (0, 10):
            log.append(draft(*(payload(number) for number in range(first, first + 10))))
            log.roll()
        log.append(draft(*(payload(number) for number in range(20, 25))))
    return made


def path(base: int) -> Path:
    return FOLDER / segment_name(base)


def segments(disk: FaultDisk) -> list[Path]:
    return [each for each in disk.paths() if base_of(each.name) is not None]


def verify(disk: FaultDisk) -> list[SegmentProblem]:
    reports = [verify_segment(disk, each) for each in segments(disk)]
    return [problem for report in reports for problem in report.problems] + verify_sequence(disk, reports)


def header(disk: FaultDisk, base: int) -> IndexHeader:
    found = IndexFile(disk, index_path(path(base)), base).header()
    assert found is not None
    return found


def put_header(disk: FaultDisk, base: int, **changes: Any) -> None:
    """A header that is sound in itself, and says something else."""
    disk.content(index_path(path(base)))[:HEADER_BYTES] = replace(header(disk, base), **changes).encode()


def start_of(ordinal: int) -> int:
    return ordinal * RECORD_BYTES


def test_a_sound_log_is_clean_and_is_not_changed(disk: FaultDisk) -> None:
    before, calls = {each: bytes(disk.content(each)) for each in disk.paths()}, disk.calls
    assert verify(disk) == []
    reports = [verify_segment(disk, each) for each in segments(disk)]
    assert [(each.base, each.next_offset, each.records, each.state) for each in reports] == [
        (0, 10, 10, "sealed"),
        (10, 20, 10, "sealed"),
        (20, 25, 5, "closed"),
    ]
    assert [each.size for each in reports] == [10 * RECORD_BYTES, 10 * RECORD_BYTES, 5 * RECORD_BYTES]
    assert {each: bytes(disk.content(each)) for each in disk.paths()} == before
    assert disk.calls == calls


def test_progress_counts_the_bytes_that_are_read(disk: FaultDisk) -> None:
    seen: list[int] = []
    verify_segment(disk, path(0), progress=seen.append)
    assert sum(seen) == len(disk.content(path(0)))


def test_a_flipped_bit_of_a_payload_is_found_at_its_offset_and_position(disk: FaultDisk) -> None:
    disk.content(path(20))[start_of(3) - 20] ^= 1
    assert verify(disk) == [
        SegmentProblem(path=path(20), offset=22, position=start_of(2), what="the checksum does not match"),
    ]
    assert verify_segment(disk, path(20)).records == 4


def test_damage_to_a_sealed_segment_also_breaks_its_hash(disk: FaultDisk) -> None:
    disk.content(path(10))[start_of(3) - 20] ^= 1
    damage, digest = verify(disk)
    assert (damage.path, damage.offset, damage.position) == (path(10), 12, start_of(2))
    assert "hash of the whole segment" in digest.what


@pytest.mark.parametrize("base", [10, 20])
def test_every_bit_of_a_record_counts(disk: FaultDisk, base: int) -> None:
    data = disk.content(path(base))
    for bit in range(start_of(1) * 8, start_of(2) * 8):
        data[bit // 8] ^= 1 << bit % 8
        report = verify_segment(disk, path(base))
        assert report.problems, f"bit {bit}"
        assert report.problems[0].offset == base + 1
        assert report.problems[0].position == start_of(1)
        data[bit // 8] ^= 1 << bit % 8


def test_swapped_records_are_found_although_both_are_sound(disk: FaultDisk) -> None:
    data = disk.content(path(20))
    first, second = data[start_of(1) : start_of(2)], data[start_of(2) : start_of(3)]
    data[start_of(1) : start_of(3)] = second + first
    problems = verify(disk)
    assert {problem.offset for problem in problems} >= {21}
    assert not any("checksum" in problem.what for problem in problems)


def test_a_record_that_is_there_twice_is_found(disk: FaultDisk) -> None:
    data = disk.content(path(20))
    data[start_of(2) : start_of(3)] = data[start_of(1) : start_of(2)]
    problems = verify(disk)
    assert [(problem.offset, problem.position) for problem in problems] == [(22, start_of(2))]


def test_several_records_lost_together_are_one_finding_that_says_how_many(disk: FaultDisk) -> None:
    disk.content(path(20))[start_of(1) : start_of(3)] = bytes(2 * RECORD_BYTES)
    (problem,) = verify(disk)
    assert (problem.offset, problem.position) == (21, start_of(1))
    assert problem.what.startswith("2 records lost: ")


@pytest.mark.parametrize("byte", [3, 7])
def test_a_damaged_index_entry_is_found(disk: FaultDisk, byte: int) -> None:
    disk.content(index_path(path(10)))[HEADER_BYTES + 4 * ENTRY_BYTES + byte] ^= 1
    (problem,) = verify(disk)
    assert (problem.offset, problem.position) == (14, start_of(4))
    assert problem.what == "1 index entries do not say where their records end (rebuildable)"


def test_an_index_entry_that_is_sound_and_wrong_is_found(disk: FaultDisk) -> None:
    wrong = encode_entries(np.array([start_of(5) - 1], dtype=np.int64), 14)
    place = HEADER_BYTES + 4 * ENTRY_BYTES
    disk.content(index_path(path(10)))[place : place + ENTRY_BYTES] = wrong
    assert any("index entries" in problem.what for problem in verify(disk))


def test_an_index_cut_short_is_found_where_it_should_be_complete(disk: FaultDisk) -> None:
    del disk.content(index_path(path(10)))[HEADER_BYTES + 7 * ENTRY_BYTES :]
    (problem,) = verify(disk)
    assert (problem.offset, problem.position) == (17, start_of(7))
    assert problem.what.startswith("3 index entries")


def test_an_index_that_lags_behind_a_living_segment_is_no_finding(
    open_log: OpenLog, draft: MakeDraft, disk: FaultDisk
) -> None:
    """The entries of the last append may be missing after a power cut: what they would list is found by reading."""
    open_log(disk).append(draft(payload(25), payload(26)))
    disk.content(index_path(path(20)))[HEADER_BYTES + 6 * ENTRY_BYTES :] = bytes(ENTRY_BYTES)
    assert verify(disk) == []


@pytest.mark.parametrize("state", ["sealed", "closed"])
@pytest.mark.parametrize("name", ["first_id", "last_id", "size", "count"])
def test_a_header_that_says_something_else_is_found(disk: FaultDisk, state: str, name: str) -> None:
    base = 10 if state == "sealed" else 20
    value = getattr(header(disk, base), name)
    put_header(disk, base, **{name: value[:-1] + b"\xff" if isinstance(value, bytes) else value - 1})
    problems = verify(disk)
    assert {problem.path for problem in problems} <= {path(base), path(20)}
    assert any(f"the index says {name}" in problem.what or "neither records" in problem.what for problem in problems)


def test_a_header_that_counts_more_than_its_bytes_hold_is_wrong_and_no_record_is_lost(disk: FaultDisk) -> None:
    put_header(disk, 20, count=6)
    (problem,) = verify(disk)
    assert (problem.offset, problem.what) == (None, "the index says count 6, the segment has 5")
    assert verify_segment(disk, path(20)).records == 5


def test_records_that_a_header_counts_and_the_file_has_lost_are_named(disk: FaultDisk) -> None:
    del disk.content(path(20))[500:]
    problems = verify(disk)
    assert problems[0].offset is not None
    assert verify_segment(disk, path(20)).next_offset == 25


@pytest.mark.parametrize("place", [0, 11, 15, 40, 100, 127])
def test_a_damaged_header_is_found_wherever_it_is_hit(disk: FaultDisk, place: int) -> None:
    disk.content(index_path(path(10)))[place] ^= 4
    (problem,) = verify(disk)
    assert (problem.path, problem.offset, problem.position) == (path(10), None, None)
    assert problem.what == "the index is missing or damaged (rebuildable)"


def test_a_missing_index_is_found(disk: FaultDisk) -> None:
    disk.remove(index_path(path(10)))
    (problem,) = verify(disk)
    assert (problem.path, problem.what) == (path(10), "the index is missing or damaged (rebuildable)")


def test_the_index_of_another_segment_is_no_index_for_this_one(disk: FaultDisk) -> None:
    disk.content(index_path(path(10)))[:] = disk.content(index_path(path(0)))
    (problem,) = verify(disk)
    assert "the index is missing or damaged" in problem.what


def test_a_sealed_hash_that_is_not_the_segments_is_found(disk: FaultDisk) -> None:
    put_header(disk, 10, hash=header(disk, 10).hash ^ 1)
    (problem,) = verify(disk)
    assert (problem.path, problem.offset) == (path(10), None)
    assert problem.what == "the hash of the whole segment is not the one it was sealed with"


def test_a_segment_missing_between_two_is_found(disk: FaultDisk) -> None:
    disk.remove(path(10))
    disk.remove(index_path(path(10)))
    (problem,) = verify(disk)
    assert (problem.path, problem.offset) == (path(20), 10)
    assert problem.what == "offsets [10, 20) are missing: is a segment file gone?"


def test_a_missing_segment_is_found_behind_a_damaged_one_too(disk: FaultDisk) -> None:
    disk.content(path(0))[start_of(3) - 20] ^= 1
    disk.remove(path(10))
    assert any("offsets [10, 20) are missing" in problem.what for problem in verify(disk))


def test_a_segment_that_was_not_asked_for_is_not_missing(disk: FaultDisk) -> None:
    reports = [verify_segment(disk, path(base)) for base in (0, 20)]
    assert verify_sequence(disk, reports) == []


def test_records_cut_off_the_end_of_a_sealed_segment_are_found(disk: FaultDisk) -> None:
    del disk.content(path(10))[start_of(8) + 5 :]
    offsets = {problem.offset for problem in verify(disk)}
    assert 18 in offsets


def test_a_segment_that_begins_inside_the_one_before_it_is_found(disk: FaultDisk) -> None:
    reports = [verify_segment(disk, path(base)) for base in (0, 10)]
    overlapping = replace(reports[1], base=8, path=path(8))
    (problem,) = verify_sequence(disk, [reports[0], overlapping])
    assert (problem.offset, problem.position) == (8, 0)
    assert "an offset that is in 00000000000000000000.seg already" in problem.what


def write_segment(disk: FaultDisk, base: int, *, clock: ManualClock, count: int = 3) -> None:
    """A sealed segment as a log writes it, with ids of the given clock."""
    made = Draft.of(Message(payload=payload(base + number)) for number in range(count))
    data, ids = bytearray(made.data), IdGenerator(clock, node=1).take(count)
    ends = stamp(data, count, ids, base)
    disk.open(path(base), write=True, create=True).write(data, 0)
    sealed = IndexHeader(
        state=SegmentState.SEALED,
        base=base,
        count=count,
        size=len(data),
        first_id=ids[0],
        last_id=ids[count - 1],
        hash=hash_file(disk, path(base), len(data)),
    )
    indexes.rewrite_index(disk, index_path(path(base)), sealed, ends)


def test_ids_that_do_not_rise_from_one_segment_to_the_next_are_found() -> None:
    disk, now_ms = FaultDisk(), 1_700_000_000_000
    disk.make_directory(FOLDER)
    write_segment(disk, 0, clock=ManualClock(now_ms))
    write_segment(disk, 3, clock=ManualClock(now_ms - 1))
    (problem,) = verify(disk)
    assert (problem.path, problem.offset, problem.position) == (path(3), 3, 0)
    assert problem.what == "the first id is not greater than the last one of 00000000000000000000.seg"


def test_segments_of_different_logs_have_nothing_to_do_with_each_other(disk: FaultDisk) -> None:
    report = verify_segment(disk, path(20))
    others = [replace(report, path=Path(f"/{name}") / path(20).name) for name in ("a", "b")]
    assert verify_sequence(disk, [report, *others]) == []


def in_a_data_directory(open_log_at: Callable[[FaultDisk, Path], Log]) -> tuple[FaultDisk, Path]:
    disk, folder = FaultDisk(), Path("/data/topics/default/orders")
    disk.make_directory(folder)
    disk.open(Path("/data/store.json"), write=True, create=True)
    with open_log_at(disk, folder) as log:
        for number in range(4):
            log.append(Draft.of([Message(payload=payload(number))]))
            log.roll()
    return disk, folder


@pytest.fixture
def open_log_at(clock: ManualClock) -> Callable[[FaultDisk, Path], Log]:
    return lambda disk, folder: Log.open(disk, folder, ids=IdGenerator(clock, node=1), clock=clock)


def test_a_first_segment_that_is_gone_is_found_in_a_data_directory(
    open_log_at: Callable[[FaultDisk, Path], Log],
) -> None:
    disk, folder = in_a_data_directory(open_log_at)
    assert verify(disk) == []
    disk.remove(folder / segment_name(0))
    (problem,) = verify(disk)
    assert problem.what == "offsets [0, 1) are missing: is a segment file gone?"


def test_a_log_that_was_truncated_begins_where_it_should(open_log_at: Callable[[FaultDisk, Path], Log]) -> None:
    disk, folder = in_a_data_directory(open_log_at)
    with open_log_at(disk, folder) as log:
        log.truncate_before(2)
    assert [base_of(each.name) for each in segments(disk)] == [2, 3]
    assert verify(disk) == []


def test_copies_of_a_part_of_a_log_are_not_asked_for_the_rest(disk: FaultDisk) -> None:
    disk.remove(path(0))
    assert verify(disk) == []


def test_the_torn_tail_of_a_killed_writer_is_no_finding(disk: FaultDisk, open_log: OpenLog, draft: MakeDraft) -> None:
    open_log(disk).append(draft(payload(25)))  # and then the process is gone
    data = disk.content(path(20))
    data[start_of(6) : start_of(6) + 70] = data[start_of(5) : start_of(5) + 70]
    report = verify_segment(disk, path(20))
    assert (report.problems, report.records) == ((), 6)
    assert 0 < report.torn_bytes <= 70
    assert verify(disk) == []


def test_the_same_bytes_behind_a_segment_that_was_closed_in_order_are(disk: FaultDisk) -> None:
    disk.content(path(20))[start_of(5) : start_of(5) + 70] = b"x" * 70
    (problem,) = verify(disk)
    assert (problem.offset, problem.position) == (None, start_of(5))
    assert problem.what == "70 bytes behind the last record are neither records nor unused space"


def test_an_acknowledged_record_at_the_very_end_is_damaged_and_not_torn(
    disk: FaultDisk, open_log: OpenLog, draft: MakeDraft
) -> None:
    open_log(disk).append(draft(payload(25)))
    disk.content(path(20))[start_of(6) - 20] ^= 1
    (problem,) = verify(disk)
    assert (problem.offset, problem.position) == (25, start_of(5))


class _Overtaken:
    """A disk whose owner goes on writing between a look at the index and a look at the segment."""

    def __init__(self, disk: FaultDisk, meanwhile: Callable[[], object]) -> None:
        self._disk = disk
        self._meanwhile = [meanwhile]

    def open(self, path: Path, **options: Any) -> Any:
        file = self._disk.open(path, **options)
        if base_of(path.name) is None:
            return file
        return _OvertakenFile(file, self._meanwhile)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)


class _OvertakenFile:
    def __init__(self, file: Any, meanwhile: list[Callable[[], object]]) -> None:
        self._file = file
        self._meanwhile = meanwhile

    def read_into(self, buffer: Any, position: int) -> int:
        if self._meanwhile:
            self._meanwhile.pop()()
        return int(self._file.read_into(buffer, position))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def test_a_segment_that_is_opened_and_written_to_meanwhile_is_looked_at_again(
    disk: FaultDisk, open_log: OpenLog, draft: MakeDraft
) -> None:
    overtaken = _Overtaken(disk, lambda: open_log(disk).append(draft(payload(25))))
    report = verify_segment(overtaken, path(20))
    assert (report.problems, report.records, report.state) == ((), 6, "open")


def test_a_segment_that_retention_has_dropped_meanwhile_is_left_out(disk: FaultDisk) -> None:
    assert verify_if_there(disk, path(99)) is None
    assert verify_if_there(disk, path(0)) == verify_segment(disk, path(0))


def test_any_other_missing_file_is_an_error(disk: FaultDisk) -> None:
    class Broken(FaultDisk):
        def open(self, *_: Any, **__: Any) -> Any:
            raise FileNotFoundError

        def exists(self, _path: Path) -> bool:
            return True

    with pytest.raises(FileNotFoundError):
        verify_if_there(Broken(), path(0))


def copied(disk: FaultDisk, name: str, data: bytes) -> Path:
    disk.open(FOLDER / name, write=True, create=True).write(data, 0)
    return FOLDER / name


def test_a_copy_under_another_name_is_verified_by_itself(disk: FaultDisk) -> None:
    report = verify_segment(disk, copied(disk, "copy.bin", bytes(disk.content(path(10)))))
    assert (report.problems, report.records, report.base, report.next_offset) == ((), 10, None, 20)


def test_two_copies_in_one_directory_are_no_sequence(disk: FaultDisk) -> None:
    names = [copied(disk, f"copy-{base}.bin", bytes(disk.content(path(base)))) for base in (20, 0)]
    assert verify_sequence(disk, [verify_segment(disk, each) for each in names]) == []


def test_a_copy_cut_in_the_middle_of_a_record_says_so(disk: FaultDisk) -> None:
    (problem,) = verify_segment(disk, copied(disk, "cut.bin", bytes(disk.content(path(10))[:-1]))).problems
    assert problem.position == start_of(9)
    assert problem.what == f"{RECORD_BYTES - 1} bytes behind the last record are neither records nor unused space"


@pytest.mark.parametrize("data", [b"", bytes(5000)])
def test_an_empty_file_and_unused_space_are_clean(disk: FaultDisk, data: bytes) -> None:
    report = verify_segment(disk, copied(disk, "empty.bin", data))
    assert (report.problems, report.records, report.torn_bytes) == ((), 0, 0)


def test_a_file_that_holds_no_records_is_told_from_one_that_is_torn(disk: FaultDisk) -> None:
    (problem,) = verify_segment(disk, copied(disk, "passwd", b"root:x:0:0:root:/root:/bin/sh\n" * 20)).problems
    assert problem.position == 0
    assert problem.what.startswith("it does not begin with a record: ")


def record(number: int, message: bytes, type_: bytes = b"t") -> bytes:
    """A record whose message is no envelope."""
    id_ = IdGenerator(ManualClock(1_700_000_000_000 + number), node=1).take(1)[0]
    body = id_ + bytes([len(type_)]) + type_ + len(message).to_bytes(4, "big") + message
    return body + hash64(body).to_bytes(8, "big")


FOREIGN = [record(number, b"anything %d" % number) for number in range(5)]


def test_messages_that_are_no_envelopes_ask_for_raw(disk: FaultDisk) -> None:
    foreign = copied(disk, "foreign.bin", b"".join(FOREIGN))
    (problem,) = verify_segment(disk, foreign).problems
    assert "not Penstock envelopes" in problem.what
    report = verify_segment(disk, foreign, raw=True)
    assert (report.problems, report.records, report.state) == ((), 5, "raw")
    assert report.size == sum(map(len, FOREIGN))
    assert (report.first_id, report.last_id) == (FOREIGN[0][:16], FOREIGN[4][:16])


def test_a_raw_file_is_verified_past_a_bad_record_whose_length_can_be_believed(disk: FaultDisk) -> None:
    bad = bytearray(b"".join(FOREIGN))
    position = len(FOREIGN[0])
    bad[position + 25] ^= 1
    report = verify_segment(disk, copied(disk, "foreign.bin", bytes(bad)), raw=True)
    assert [(problem.position, problem.what) for problem in report.problems] == [
        (position, "the checksum does not match")
    ]
    assert report.records == 4


def test_a_raw_file_is_given_up_at_a_length_that_leads_nowhere(disk: FaultDisk) -> None:
    bad = bytearray(b"".join(FOREIGN))
    bad[len(FOREIGN[0]) + 20] ^= 0x20
    report = verify_segment(disk, copied(disk, "foreign.bin", bytes(bad)), raw=True)
    assert (report.records, len(report.problems)) == (1, 1)


def test_raw_records_out_of_order_are_found(disk: FaultDisk) -> None:
    swapped = copied(disk, "foreign.bin", FOREIGN[1] + FOREIGN[0] + FOREIGN[2])
    (problem,) = verify_segment(disk, swapped, raw=True).problems
    assert (problem.position, problem.what) == (len(FOREIGN[1]), "the id is not greater than the one before it")


def test_a_penstock_segment_can_be_read_raw_too(disk: FaultDisk) -> None:
    assert verify_segment(disk, path(0), raw=True).records == 10


def test_segments_are_found_below_a_directory_in_the_order_of_their_logs(tmp_path: Path) -> None:
    for name in ("b/00000000000000000000.seg", "a/00000000000000000010.seg", "a/00000000000000000002.seg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    for name in ("a/spare.seg", "a/00000000000000000002.idx", "a/1.seg", "a/000000000000000000021.seg"):
        (tmp_path / name).touch()
    (tmp_path / "link").symlink_to("b")
    assert [str(each.relative_to(tmp_path)) for each in segment_paths(tmp_path)] == [
        "a/00000000000000000002.seg",
        "a/00000000000000000010.seg",
        "b/00000000000000000000.seg",
        "link/00000000000000000000.seg",
    ]


def test_the_trash_of_a_data_directory_is_left_out_and_a_topic_of_that_name_is_not(tmp_path: Path) -> None:
    (tmp_path / "store.json").touch()
    for name in ("trash/7/0", "topics/default/trash"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / segment_name(0)).touch()
    assert [each.parent for each in segment_paths(tmp_path)] == [tmp_path / "topics/default/trash"]


def test_a_directory_that_cannot_be_read_is_not_clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_path: object) -> Any:
        raise PermissionError(13, "Permission denied", str(tmp_path))

    monkeypatch.setattr("os.scandir", refuse)
    with pytest.raises(PermissionError, match=re.escape(str(tmp_path))):
        segment_paths(tmp_path)


def test_a_real_log_on_a_real_disk_is_clean(tmp_path: Path, clock: ManualClock) -> None:
    disk = OsDisk()
    with Log.open(disk, tmp_path, ids=IdGenerator(clock, node=1), clock=clock) as log:
        for number in range(3):
            log.append(Draft.of([Message(payload=payload(number))]))
            log.roll()
    reports = [verify_segment(disk, each) for each in segment_paths(tmp_path)]
    assert [report.problems for report in reports] == [(), (), ()]
    assert verify_sequence(disk, reports) == []
