"""The write-ahead log: torn is not corrupt, told apart for every frame, with SQLite itself as the writer."""

from __future__ import annotations

import random
import sqlite3

import pytest

from penstock.storage.catalog.sqlite import commits_beyond_damage

PAGE = 4096
FRAME = 24 + PAGE
COMMITS = 6


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Six transactions, each of several frames."""
    path = tmp_path_factory.mktemp("wal") / "some.db"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE t (x)")
    for _ in range(COMMITS - 1):
        connection.execute("INSERT INTO t VALUES (randomblob(9000))")
    written = path.with_name("some.db-wal").read_bytes()
    connection.close()
    return written


def beyond(log: bytes) -> int:
    return commits_beyond_damage(log, page_bytes=PAGE)


def flipped(log: bytes, place: int) -> bytes:
    return log[:place] + bytes([log[place] ^ 0x10]) + log[place + 1 :]


def commit_frames(log: bytes) -> list[int]:
    return [start for start in range(32, len(log), FRAME) if any(log[start + 4 : start + 8])]


def test_a_whole_log_has_lost_nothing(log: bytes) -> None:
    assert len(commit_frames(log)) == COMMITS
    assert beyond(log) == 0


@pytest.mark.parametrize("size", [0, 1, 31, 32, 55, 56, 32 + FRAME - 1])
def test_a_log_without_a_whole_frame_has_lost_nothing(log: bytes, size: int) -> None:
    assert beyond(log[:size]) == 0


def test_a_log_cut_anywhere_is_torn(log: bytes) -> None:
    chance = random.Random(1)
    for _ in range(30):
        assert beyond(log[: chance.randrange(len(log))]) == 0


def test_frames_of_the_last_transaction_that_came_out_of_order_are_torn(log: bytes) -> None:
    first = commit_frames(log)[-2] + FRAME
    assert beyond(log[:first] + bytes(FRAME) + log[first + FRAME :]) == 1


def test_what_the_log_held_before_it_was_begun_anew_does_not_count(log: bytes) -> None:
    older = b"".join(
        log[start : start + 8] + b"saltsalt" + log[start + 16 : start + FRAME] for start in range(32, len(log), FRAME)
    )
    assert beyond(log + older) == 0


def test_every_transaction_behind_a_flipped_bit_is_counted(log: bytes) -> None:
    ends = commit_frames(log)
    for start in range(32, len(log), FRAME):
        expected = sum(end >= start for end in ends)
        for place in (start, start + 16, start + 23, start + 24, start + FRAME - 1):
            assert beyond(flipped(log, place)) == expected
        # In the salts a flip hides the frame itself.
        assert beyond(flipped(log, start + 9)) == expected - (start in ends)


@pytest.mark.parametrize("place", range(32))
def test_all_transactions_are_counted_behind_a_flipped_bit_of_the_header(log: bytes, place: int) -> None:
    assert beyond(flipped(log, place)) == COMMITS
