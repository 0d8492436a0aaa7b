"""Segments of other programs in the bare record format, under a key of their own: verified, dumped, imported."""

from __future__ import annotations

import struct
import uuid
from pathlib import Path

import pytest
from tests.cli.kit import Fill, Run
from tests.record.reference import highwayhash64

from penstock.core.names import TopicName
from penstock.core.positions import Earliest
from penstock.record.message import Record
from penstock.storage.inspect.data_reader import DataReader

KEY = "70d7994cf728e46e23b7df19e0980a34c22ed448393da3581dcec378c67db2a3"
WORDS = struct.unpack("<4Q", bytes.fromhex(KEY))
YEAR_2023 = 1_700_000_000
COUNT = 6


def foreign_id(number: int) -> bytes:
    """Build a UUIDv6 by hand: 60 bits of time since 1582, version, clock sequence, node."""
    ticks = (YEAR_2023 + number) * 10_000_000 + 0x01B21DD213814000
    high = (ticks >> 12) << 16 | 6 << 12 | ticks & 0xFFF
    return struct.pack(">QHHI", high, 0x8000 | number % 0x4000, 0xBEEF, 4242)


def foreign(number: int, *, kind: bytes = b"order.made", body: bytes | None = None) -> bytes:
    message = b"message %d \xff\x00" % number * (number + 1) if body is None else body
    data = foreign_id(number) + bytes([len(kind)]) + kind + struct.pack(">I", len(message)) + message
    return data + struct.pack(">Q", highwayhash64(data, WORDS))


@pytest.fixture
def old(home: Path) -> Path:
    """Write a segment with unused space behind its records, as old ones have."""
    path = home / "old.seg"
    path.write_bytes(b"".join(map(foreign, range(COUNT))) + bytes(4096))
    return path


@pytest.fixture
def damaged(old: Path) -> Path:
    data = bytearray(old.read_bytes())
    data[data.index(b"message 2 ")] ^= 1
    old.write_bytes(data)
    return old


def records(topic: str = "orders") -> list[Record]:
    reader = DataReader(Path("penstock-data")).topic(TopicName.parse(topic)).partition(0)
    return [record for record, _ in reader.follow(Earliest()) if record is not None]


def test_the_ids_of_this_test_are_what_the_standard_says() -> None:
    assert uuid.UUID(bytes=foreign_id(3)).version == 6
    assert uuid.UUID(bytes=foreign_id(3)).variant == uuid.RFC_4122


# looking


def test_a_key_of_somebody_elses_verifies_what_ours_does_not(here: Run, old: Path) -> None:
    assert here("segment", "verify", old, "--raw").code == 1
    assert here("segment", "verify", old, "--raw", "--hash-key", KEY).code == 0
    dumped = here("segment", "dump", old, "--raw", "--hash-key", KEY, "--json")
    assert (dumped.code, len(dumped.rows)) == (0, COUNT)


def test_a_damaged_record_is_found_at_its_position_and_those_behind_it_too(here: Run, damaged: Path) -> None:
    found = here("segment", "verify", damaged, "--raw", "--hash-key", KEY.upper(), "--json")
    assert found.code == 1
    position = sum(len(foreign(number)) for number in range(2))
    text = found.out + found.err
    assert str(position) in text
    assert "the checksum does not match" in text
    dumped = here("segment", "dump", damaged, "--raw", "--hash-key", KEY, "--json")
    assert dumped.code == 1
    assert [row["number"] for row in dumped.rows] == [0, 1, 3, 4, 5]


@pytest.mark.parametrize("key", ["", "70d7", KEY[:-1] + "g", KEY + "00", "0x" + KEY[2:]])
@pytest.mark.parametrize("command", [("segment", "verify"), ("segment", "dump"), ("log", "import", "orders")])
def test_what_is_no_key_is_refused(here: Run, old: Path, command: tuple[str, ...], key: str) -> None:
    here(*command, old, "--raw", "--hash-key", key).refused("64 hexadecimal digits")


@pytest.mark.parametrize("command", ["verify", "dump"])
def test_our_own_segments_have_one_key(here: Run, segment: Path, command: str) -> None:
    here("segment", command, segment, "--hash-key", KEY).refused("--raw")


# bringing them in


def test_ids_types_and_messages_are_kept_in_their_order(here: Run, fill: Fill, old: Path) -> None:
    fill()
    done = here("log", "import", "orders", old, "--raw", "--hash-key", KEY)
    assert (done.code, done.out) == (0, "6 messages appended to /default/orders: offsets 0 to 5\n")
    found = records()
    assert [record.id for record in found] == [foreign_id(number) for number in range(COUNT)]
    assert [record.publish_time_ms for record in found] == [(YEAR_2023 + number) * 1000 for number in range(COUNT)]
    assert {record.message.type for record in found} == {"order.made"}
    assert found[2].message.payload == b"message 2 \xff\x00" * 3
    assert not found[2].message.attributes
    assert here("segment", "verify", "penstock-data").code == 0
    assert here("log", "append", "orders", given=b"new\n").code == 0
    assert records()[-1].id > foreign_id(COUNT)


def test_what_is_damaged_is_named_and_left_out(here: Run, fill: Fill, damaged: Path) -> None:
    fill()
    done = here("log", "import", "orders", damaged, "--raw", "--hash-key", KEY)
    assert done.code == 1
    assert "old.seg: position" in done.err
    assert "5 messages appended" in done.out
    assert [record.id for record in records()] == [foreign_id(number) for number in (0, 1, 3, 4, 5)]


def test_ids_that_do_not_go_on_behind_those_of_the_log_are_refused_or_given_anew(
    here: Run, fill: Fill, old: Path
) -> None:
    fill([b"published here"])
    here("log", "import", "orders", old, "--raw", "--hash-key", KEY).refused("is not greater than", "--restamp")
    assert len(records()) == 1
    assert here("log", "import", "orders", old, "--raw", "--hash-key", KEY, "--restamp").code == 0
    found = records()[1:]
    assert [record.message.attributes for record in found] == [
        {"x-original-id": str(uuid.UUID(bytes=foreign_id(number)))} for number in range(COUNT)
    ]
    assert found[0].message.payload == b"message 0 \xff\x00"
    assert found[0].id > records()[0].id
    assert here("segment", "verify", "penstock-data").code == 0


def test_the_same_segment_is_not_imported_twice(here: Run, fill: Fill, old: Path) -> None:
    fill()
    assert here("log", "import", "orders", old, "--raw", "--hash-key", KEY).code == 0
    here("log", "import", "orders", old, "--raw", "--hash-key", KEY).refused("is not greater than")
    assert len(records()) == COUNT


def test_several_segments_go_on_behind_each_other(here: Run, fill: Fill, home: Path) -> None:
    fill()
    for name, numbers in (("a", range(3)), ("b", range(3, 9))):
        (home / name).write_bytes(b"".join(map(foreign, numbers)))
    here("log", "import", "orders", "b", "a", "--raw", "--hash-key", KEY).refused("6 messages appended")
    fill(topic="others")
    assert here("log", "import", "others", "a", "b", "--raw", "--hash-key", KEY).code == 0
    assert [record.id for record in records("others")] == [foreign_id(number) for number in range(9)]


def test_what_cannot_be_a_message_here_is_named_and_left_out(here: Run, fill: Fill, home: Path) -> None:
    fill()
    future = foreign(0)
    (home / "odd").write_bytes(foreign(1) + foreign(2, kind=b"\xff") + foreign(3, body=bytes(2 << 20)) + foreign(4))
    done = here("log", "import", "orders", "odd", "--raw", "--hash-key", KEY)
    assert done.code == 1
    assert "record 1: its type is not UTF-8" in done.err
    assert "record 2: message 0 of the block: a payload has at most" in done.err
    assert [record.id for record in records()] == [foreign_id(1), foreign_id(4)]
    assert future[:16] < records()[0].id


def test_ids_of_the_future_are_refused(here: Run, fill: Fill, home: Path) -> None:
    fill()
    (home / "late").write_bytes(foreign(100 * 365 * 86_400, body=b"late"))
    here("log", "import", "orders", "late", "--raw", "--hash-key", KEY).refused("of the future", "--restamp")


def test_without_raw_or_a_file_nothing_is_imported(here: Run, fill: Fill, old: Path) -> None:
    fill()
    here("log", "import", "orders", old).refused("--raw")
    here("log", "import", "orders", old, "missing", "--raw", "--hash-key", KEY).refused("missing cannot be read")
    assert records() == []
