"""The disk over remote files: ranges that are fetched, how often, ranges that are cached; and old bytes are never
seen."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.spark.log_kit import ORDERS, SMALL, append, everything, make_data, message, records

from penstock.core.errors import InvalidRequest, OffsetOutOfRange
from penstock.core.positions import AtTime
from penstock.spark.files import remote
from penstock.spark.files.remote import Listing, RangeCache, RemoteDisk, RemoteEntry
from penstock.storage.base.disk import opened, read_all
from penstock.storage.inspect.data_reader import DataReader, LogReader
from penstock.storage.store import Store

HERE = Path()


@dataclass
class LocalPlace:
    """A directory that acts as a remote place and counts its requests."""

    root: Path
    name: str = "far away"
    fetched: list[tuple[str, int, int]] = field(default_factory=list)
    lists: int = 0
    finds: int = 0

    def list(self, path: str) -> Listing:
        self.lists += 1
        folder = self.root / path
        found = sorted(folder.iterdir()) if folder.is_dir() else []
        files = {}
        for each in found:
            with suppress(FileNotFoundError):  # a spare that has become a segment since, or a folder
                files[each.name] = self.find(f"{path}/{each.name}")
        return Listing(files, tuple(each.name for each in found if each.is_dir()))

    def find(self, path: str) -> RemoteEntry:
        self.finds += 1
        found = (self.root / path).stat()
        if (self.root / path).is_dir():
            raise FileNotFoundError(path)
        return RemoteEntry(found.st_size, f"{found.st_mtime_ns}")

    def fetch(self, path: str, start: int, stop: int) -> bytes:
        self.fetched.append((path, start, stop))
        with (self.root / path).open("rb") as file:
            file.seek(start)
            return file.read(stop - start)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_data(tmp_path / "data", dropped=70)


def far(root: Path) -> tuple[LocalPlace, DataReader]:
    place = LocalPlace(root)
    return place, DataReader(HERE, disk=RemoteDisk(place), name=place.name)


# the same as a plain reader


def test_it_reads_what_a_plain_reader_reads(root: Path) -> None:
    _, data = far(root)
    assert everything(data) == everything(DataReader(root))


def test_places_in_the_log_are_found_as_by_a_plain_reader(root: Path) -> None:
    _, data = far(root)
    plain = DataReader(root).topic(ORDERS).partition(0)
    log = data.topic(ORDERS).partition(0)
    for record in records(plain)[::37]:
        place = AtTime(record.publish_time_ms)
        assert log.offset_of(place) == plain.offset_of(place)
    assert log.facts() == plain.facts()
    with pytest.raises(OffsetOutOfRange):
        log.read(3)


def test_a_topic_is_found_with_a_few_questions_however_many_there_are(root: Path) -> None:
    place, data = far(root)
    place.lists = 0
    assert [str(topic.name) for topic in data.topics()] == ["/default/orders", "/shop/parts.sold"]
    assert place.lists == 3


# how much is asked


def test_who_reads_on_and_on_asks_seldom_and_who_searches_fetches_little(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(range(256)) * 40_000)
    place = LocalPlace(tmp_path)
    disk = RemoteDisk(place)
    with opened(disk, Path("large")) as file:
        whole = b"".join(bytes(read_all(file, at, 100_000)) for at in range(0, file.size(), 100_000))
    assert whole == (tmp_path / "large").read_bytes()
    assert len(place.fetched) < 12
    assert max(stop - start for _, start, stop in place.fetched) <= remote.AHEAD_BYTES_MAX
    place.fetched.clear()
    disk = RemoteDisk(place)
    with opened(disk, Path("large")) as file:
        for at in (9_000_000, 100, 5_000_000):
            assert bytes(read_all(file, at, 16)) == whole[at : at + 16]
    assert sum(stop - start for _, start, stop in place.fetched) == 3 * remote.FIRST_BYTES


def test_a_file_that_was_listed_is_not_asked_for_again(root: Path) -> None:
    place, data = far(root)
    log = data.topic(ORDERS).partition(0)
    place.finds = 0
    records(log)
    assert place.finds == 0


@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 700)), max_size=20), st.integers(0, 5000))
def test_any_reads_in_any_order_are_the_file(reads: list[tuple[int, int]], size: int) -> None:
    data = bytes((number * 7) % 251 for number in range(size))

    class Memory:
        name = "memory"

        def list(self, path: str) -> Listing:
            return Listing({}, ())

        def find(self, path: str) -> RemoteEntry:
            return RemoteEntry(size, "")

        def fetch(self, path: str, start: int, stop: int) -> bytes:
            return data[start : min(stop, start + 300)]  # less than was asked for, as a server may

    with opened(RemoteDisk(Memory()), Path("file")) as file:
        for start, length in reads:
            assert bytes(read_all(file, start, length)) == data[start : start + length]


def test_no_more_is_kept_than_may_be() -> None:
    spans = RangeCache(100)
    for number in range(10):
        spans.put(Path("a"), number * 40, bytes([number]) * 40)
    assert spans.get(Path("a"), 0, 10) is None
    assert bytes(spans.get(Path("a"), 365, 400) or b"") == bytes([9]) * 35
    assert bytes(spans.get(Path("a"), 325, 400) or b"") == bytes([8]) * 35
    spans.drop(Path("a"))
    assert spans.get(Path("a"), 365, 400) is None


# a log that grows


def test_what_comes_is_seen_at_the_next_look_and_nothing_old_is_taken_for_it(root: Path) -> None:
    _, data = far(root)
    log = data.topic(ORDERS).partition(0)
    assert len(records(log)) == 230
    with Store.open(root, limits=SMALL) as store:
        for stop in range(301, 360):
            append(store, ORDERS, range(stop - 1, stop))
            assert log.refresh().next_offset == stop
            (record,) = log.read(stop - 1)
            assert record.message == message(stop - 1)
    assert [record.offset for record in records(log)] == list(range(70, 359))


def test_segments_that_are_complete_are_fetched_once(root: Path) -> None:
    place, data = far(root)
    log = data.topic(ORDERS).partition(0)
    records(log)
    newest = log.view.segments[-1].path
    place.fetched.clear()
    log.refresh()
    records(log)
    assert {path for path, _, _ in place.fetched if path.endswith((".seg", ".idx"))} <= {
        str(newest),
        str(newest.with_suffix(".idx")),
    }


def test_a_reader_follows_a_writer_without_a_gap(root: Path) -> None:
    _, data = far(root)
    log = data.topic(ORDERS).partition(0)

    def write() -> None:
        with Store.open(root, limits=SMALL) as store:
            append(store, ORDERS, range(300, 700))

    writer = threading.Thread(target=write)
    writer.start()
    offset, found = 70, []
    while offset < 700:
        log.refresh()
        if offset < log.view.next_offset:
            chunk = log.read(offset)
            assert not chunk.damages
            found += [record.offset for record in chunk]
            offset = int(chunk.next_offset)
        writer.join(0.001)  # it has its turn
    writer.join()
    assert found == list(range(70, 700))


def test_what_retention_removes_meanwhile_is_out_of_range(root: Path) -> None:
    _, data = far(root)
    log = data.topic(ORDERS).partition(0)
    with Store.open(root, limits=SMALL) as store:
        store.truncate_before(ORDERS, 250)
    with pytest.raises(OffsetOutOfRange):
        log.read(70)
    assert [record.offset for record in records(log)] == list(range(250, 300))


def test_a_file_that_is_gone_is_not_found(root: Path) -> None:
    _, data = far(root)
    log = data.topic(ORDERS).partition(0)
    first = log.view.segments[0].path
    (root / first).unlink()
    with pytest.raises(FileNotFoundError), opened(data.disk, first) as file:
        read_all(file, 0, 10)
    with pytest.raises(FileNotFoundError):
        data.disk.open(first)


# it is only read


def test_nothing_is_ever_written(root: Path) -> None:
    disk = RemoteDisk(LocalPlace(root))
    path = Path("store.json")
    for attempt in (
        lambda: disk.open(path, write=True),
        lambda: disk.open(path, create=True),
        lambda: disk.remove(path),
        lambda: disk.remove_tree(path),
        lambda: disk.rename(path, path),
        lambda: disk.make_directory(path),
        lambda: disk.sync_directory(path),
        lambda: disk.free_bytes(path),
        lambda: disk.open(path).write(b"", 0),
        lambda: disk.open(path).truncate(0),
        lambda: disk.open(path).preallocate(0),
        lambda: disk.open(path).sync(),
    ):
        with pytest.raises(InvalidRequest, match="only read here"):
            attempt()
    assert isinstance(LogReader(disk, Path("topics/default/orders")), LogReader)
