"""`penstock segment`: ls, dump, verify."""

from __future__ import annotations

import base64
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.kit import Fill, Run, Start, contents

from penstock.core.ids import IdGenerator
from penstock.core.names import TopicName
from penstock.record.block import Draft
from penstock.record.hashing import hash64
from penstock.record.message import Message
from penstock.storage.inspect import verify as verification
from penstock.storage.log.segment import index_path
from penstock.storage.store import Store
from penstock.testing import ManualClock

ORDERS = TopicName.parse("orders")


def flip(path: Path, text: bytes) -> None:
    """Damage the first byte of a text in a file."""
    data = bytearray(path.read_bytes())
    data[data.index(text)] ^= 1
    path.write_bytes(data)


def foreign(number: int, message: bytes) -> bytes:
    """A record whose message is no Penstock envelope."""
    id_ = IdGenerator(ManualClock(1_700_000_000_000 + number), node=1).take(1)[0]
    body = id_ + b"\x07foreign" + len(message).to_bytes(4, "big") + message
    return body + hash64(body).to_bytes(8, "big")


@pytest.fixture
def raw_file(home: Path) -> Path:
    path = home / "foreign.bin"
    path.write_bytes(b"".join(foreign(number, b"any bytes %d" % number) for number in range(5)))
    return path


# targets


@pytest.mark.parametrize("command", ["ls", "dump", "verify"])
def test_a_segment_is_found_by_file_directory_and_topic(here: Run, segment: Path, command: str, home: Path) -> None:
    expected = here("segment", command, segment.relative_to(home), "--json")
    assert expected.code == 0
    assert len(expected.rows) == (10 if command == "dump" else 1)
    for target in ("penstock-data", "penstock-data/topics/default", "orders", "/default/orders"):
        assert here("segment", command, target, "--json") == expected


@pytest.mark.parametrize("command", ["ls", "dump", "verify"])
@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("missing.seg", "missing.seg is no file or directory, and no topic"),
        ("no/such/path", "no/such/path is no file or directory, and no topic"),
        ("order", "there are: /default/orders"),
        ("empty", "there are no segments in empty"),
        ("pipe", "pipe is neither a file nor a directory"),
        ("/dev/null", "/dev/null is neither a file nor a directory"),
    ],
)
def test_what_is_no_target_is_refused(
    here: Run, segment: Path, home: Path, command: str, target: str, words: str
) -> None:
    (home / "empty").mkdir()
    os.mkfifo(home / "pipe")
    here("segment", command, target).refused("INVALID_REQUEST", words)


def test_a_topic_without_a_data_directory_is_refused(here: Run) -> None:
    here("segment", "verify", "orders").refused("penstock-data is not a Penstock data directory")


def test_a_data_directory_and_a_topic_without_messages_are_clean(here: Run, fill: Fill) -> None:
    fill()
    for target in ("penstock-data", "orders"):
        done = here("segment", "verify", target)
        assert (done.code, done.out) == (0, "0 segments, 0 records, 0 B: clean\n")


def test_what_is_named_twice_is_read_once(here: Run, segment: Path) -> None:
    assert here("segment", "verify", "penstock-data", "orders", segment, "--json").rows == [
        {"summary": {"segments": 1, "records": 10, "bytes": 10 * 91, "torn_bytes": 0, "findings": 0}}
    ]


@pytest.mark.parametrize(
    "command", [["ls"], ["dump"], ["dump", "--raw"], ["verify"], ["verify", "--raw"], ["verify", "-j1"]]
)
def test_no_command_changes_a_byte_or_a_time(here: Run, segment: Path, command: list[str]) -> None:
    root = segment.parents[3]
    for damaged, text in ((None, b""), (segment, b"message 4"), (index_path(segment), b"PNSTKIDX")):
        if damaged is not None:
            flip(damaged, text)
        before = contents(root)
        here("segment", *command, root)
        assert contents(root) == before


# ls


def test_segments_are_listed_with_what_they_hold(here: Run, segment: Path) -> None:
    (facts,) = here("segment", "ls", "orders", "--json").rows
    assert (facts["base"], facts["records"], facts["bytes"], facts["state"]) == (0, 10, 10 * 91, "closed")
    assert facts["file_bytes"] == segment.stat().st_size
    table = here("segment", "ls", "orders").out
    assert str(segment.relative_to(Path.cwd())) in table
    assert "closed" in table


def test_a_copy_and_a_file_that_is_no_segment_are_listed_as_what_they_are(here: Run, home: Path, segment: Path) -> None:
    shutil.copy(segment, home / "copy.bin")
    (home / "text").write_text("no record at all\n" * 10)
    copy, text = here("segment", "ls", "copy.bin", "text", "--json").rows
    assert (copy["records"], copy["state"]) == (10, "no index")
    assert (text["records"], text["state"]) == (0, "not a segment")


# dump


def dumped(here: Run, *arguments: str | Path) -> list[int]:
    done = here("segment", "dump", *arguments, "--json")
    assert done.code == 0
    return [row["offset"] for row in done.rows]


def test_a_dump_takes_the_same_places_types_and_limits_as_a_read(here: Run, segment: Path) -> None:
    rows = here("segment", "dump", segment, "--json").rows
    assert rows == here("log", "read", "orders", "--json").rows
    ids, time = [row["id"] for row in rows], rows[0]["publish_time"]
    assert dumped(here, segment, "--from", "3", "--to", "5") == [3, 4]
    assert dumped(here, segment, "--from", ids[3], "--to", ids[5]) == [3, 4]
    assert dumped(here, segment, "--from", time) == list(range(10))
    assert dumped(here, segment, "--to", time) == []
    assert dumped(here, segment, "--from", "2030-01-01") == []
    assert dumped(here, segment, "--from", "latest") == []
    assert dumped(here, segment, "--to", "latest", "--limit", "2") == [0, 1]
    assert dumped(here, segment, "--only-type", "t*") == list(range(10))
    assert dumped(here, segment, "--only-type", "x*") == []


def test_a_dump_is_for_people_too(here: Run, segment: Path) -> None:
    shown = here("segment", "dump", segment, "--limit", "1")
    head, payload = shown.out.splitlines()
    assert head.startswith("0  ")
    assert head.endswith("  t")
    assert payload == "    message 0"


@pytest.mark.parametrize(
    ("options", "words"), [(["--from", "x"], "no place"), (["--from", "5", "--to", "2"], "nothing lies")]
)
def test_a_place_that_is_none_is_refused(here: Run, segment: Path, options: list[str], words: str) -> None:
    here("segment", "dump", segment, *options).refused(words)


def test_a_damaged_record_is_named_and_the_others_are_shown(here: Run, segment: Path, home: Path) -> None:
    flip(segment, b"message 4")
    done = here("segment", "dump", segment, "--json")
    assert (done.code, [row["offset"] for row in done.rows]) == (1, [0, 1, 2, 3, 5, 6, 7, 8, 9])
    assert done.err == f"penstock: {segment}: offset 4 (segment 0, bytes 364 to 455): the checksum does not match\n"
    shutil.copy(segment, home / "copy.bin")
    copy = here("segment", "dump", "copy.bin", "--json")
    assert (copy.code, copy.out) == (1, done.out)
    assert copy.err == "penstock: copy.bin: position 364: the checksum does not match\n"


@pytest.mark.parametrize("cut", [1, 90])
def test_a_truncated_file_is_read_as_far_as_it_goes(here: Run, segment: Path, home: Path, cut: int) -> None:
    (home / "cut.bin").write_bytes(segment.read_bytes()[: 3 * 91 + cut])
    done = here("segment", "dump", "cut.bin", "--json")
    assert (done.code, len(done.rows)) == (1, 3)
    assert "position 273: the record reaches past the end of the data" in done.err
    assert here("segment", "verify", "cut.bin").code == 1


@pytest.mark.parametrize("command", ["dump", "verify"])
@pytest.mark.parametrize("raw", [[], ["--raw"]])
def test_a_file_of_something_else_is_found_out(here: Run, home: Path, command: str, raw: list[str]) -> None:
    (home / "text").write_text("no record at all\n" * 10)
    done = here("segment", command, "text", *raw)
    assert done.code == 1
    assert "past the end of the data" in done.out + done.err


@pytest.mark.parametrize("command", ["dump", "verify", "ls"])
def test_an_empty_file_is_empty(here: Run, home: Path, command: str) -> None:
    (home / "empty.bin").touch()
    done = here("segment", command, "empty.bin")
    assert (done.code, done.err) == (0, "")


def test_a_file_of_other_messages_is_dumped_raw(here: Run, raw_file: Path) -> None:
    done = here("segment", "dump", raw_file)
    assert (done.code, done.out) == (1, "")
    assert "not Penstock envelopes: read it raw (--raw)" in done.err
    rows = here("segment", "dump", raw_file, "--raw", "--json", "--from", "1", "--to", "3").rows
    assert [(row["number"], row["type"], row["payload"]) for row in rows] == [
        (1, "foreign", "any bytes 1"),
        (2, "foreign", "any bytes 2"),
    ]
    assert set(rows[0]) == {"number", "id", "publish_time", "type", "payload"}
    assert here("segment", "dump", raw_file, "--raw").out.count("any bytes") == 5


def test_a_penstock_segment_read_raw_shows_its_envelopes(here: Run, segment: Path) -> None:
    (row, *_) = here("segment", "dump", segment, "--raw", "--json").rows
    message = base64.b64decode(row["payload_base64"]) if "payload_base64" in row else row["payload"].encode()
    assert message[0] == 1
    assert message.endswith(b"message 0")


# verify


def test_a_clean_directory_is_said_to_be_clean(here: Run, segment: Path) -> None:
    done = here("segment", "verify", "penstock-data")
    assert (done.code, done.out, done.err) == (0, "1 segment, 10 records, 910 B: clean\n", "")


def test_findings_are_a_table_a_json_and_an_exit_code(here: Run, segment: Path) -> None:
    flip(segment, b"message 4")
    flip(index_path(segment), b"PNSTKIDX")
    done = here("segment", "verify", "orders")
    assert done.code == 1
    for word in ("findings", str(segment.relative_to(Path.cwd())), "364", "the checksum does not match", "2 findings"):
        assert word in done.out
    *findings, last = here("segment", "verify", "orders", "--json").rows
    assert findings[0] == {
        "finding": {
            "segment": str(segment.relative_to(Path.cwd())),
            "offset": 4,
            "position": 364,
            "what": "the checksum does not match",
        }
    }
    assert last == {"summary": {"segments": 1, "records": 9, "bytes": 910, "torn_bytes": 0, "findings": 2}}


def test_a_missing_segment_is_a_finding_for_the_whole_log_and_not_for_its_parts(here: Run, fill: Fill) -> None:
    root = fill()
    with Store.open(root) as store:
        for number in range(3):
            store.append(ORDERS, Draft.of([Message(payload=b"%d" % number)]))
            store.log(ORDERS).roll()
    first, second, third = sorted(root.rglob("*.seg"))
    assert here("segment", "verify", first, third).code == 0
    second.unlink()
    done = here("segment", "verify", "orders", "--json")
    assert done.code == 1
    assert done.rows[0]["finding"]["what"] == "offsets [1, 2) are missing: is a segment file gone?"
    first.unlink()
    assert "offsets [0, 2) are missing" in here("segment", "verify", root).out


def test_a_directory_is_verified_beside_its_owner_and_an_unfinished_write_is_no_finding(
    here: Run, segment: Path
) -> None:
    root = segment.parents[3]
    with Store.open(root) as store:
        store.append(ORDERS, Draft.of([Message(payload=b"x")]))
        size = store.log(ORDERS).view.segments[-1].size
        with segment.open("r+b") as file:
            file.seek(size)
            file.write(b"half a record")
        done = here("segment", "verify", root)
        assert (done.code, done.err) == (0, "")
        assert "13 bytes of an unfinished write, cut at the next opening" in done.out
        assert done.out.endswith("1 segment, 11 records, 992 B: clean\n")
        assert here("segment", "verify", root, "--json").rows[-1]["summary"]["torn_bytes"] == 13


def test_a_raw_file_is_verified_raw(here: Run, raw_file: Path) -> None:
    assert here("segment", "verify", raw_file).code == 1
    done = here("segment", "verify", raw_file, "--raw")
    assert (done.code, done.out) == (0, f"1 segment, 5 records, {raw_file.stat().st_size} B: clean\n")
    flip(raw_file, b"any bytes 3")
    assert here("segment", "verify", raw_file, "--raw").code == 1


def test_verification_that_cannot_run_says_why(here: Run, segment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> Any:
        raise PermissionError(13, "Permission denied", str(segment))

    monkeypatch.setattr(verification, "verify_segment", refuse)
    here("segment", "verify", "orders").refused("STORAGE_FAILED", str(segment), "Permission denied")


def test_a_segment_that_retention_drops_meanwhile_is_left_out(
    here: Run, segment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dropped(*_: object, **__: object) -> Any:
        segment.unlink(missing_ok=True)
        raise FileNotFoundError(2, "No such file", str(segment))

    monkeypatch.setattr(verification, "verify_segment", dropped)
    assert here("segment", "verify", "orders").out == "0 segments, 0 records, 0 B: clean\n"


def test_an_interrupted_verification_stops_all_its_threads(
    here: Run, home: Path, segment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(segment, home / "copy.bin")
    busy, stopped = threading.Event(), threading.Event()

    def endless(_disk: object, path: Path, *, raw: bool, key: bytes | None, progress: Callable[[int], None]) -> Any:
        if path.name == "copy.bin":
            busy.wait(10)
            raise KeyboardInterrupt
        try:
            while True:
                progress(1)
                busy.set()
        finally:
            stopped.set()

    monkeypatch.setattr(verification, "verify_if_there", endless)
    done = here("segment", "verify", "copy.bin", segment, "-j2")
    assert (done.code, done.out) == (130, "")
    assert stopped.is_set()


def test_findings_into_head_are_still_findings(start: Start, segment: Path) -> None:
    flip(segment, b"message 4")
    with start("segment", "verify", "orders", stdin=None) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.wait(60) == 1
        assert process.stderr.read() == b""


# an index that was forged


@pytest.fixture(params=[(24, 2**63 + 5), (24, 2**31), (24, 11), (32, 0), (32, 2**62)], ids="{0[0]}={0[1]}".format)
def forged(segment: Path, request: pytest.FixtureRequest) -> Path:
    """A log whose index says another count or size, under a right checksum."""
    place, value = request.param
    path = index_path(segment)
    index = bytearray(path.read_bytes())
    index[place : place + 8] = value.to_bytes(8, "big")
    index[120:128] = hash64(bytes(index[:120])).to_bytes(8, "big")
    path.write_bytes(index)
    return segment


def test_commands_go_by_the_segment_where_its_index_is_forged(here: Run, forged: Path) -> None:
    read = here("log", "read", "orders", "--json")
    assert (read.code, len(read.rows)) == (0, 10)
    (info,) = here("log", "info", "orders", "--json").rows
    assert (info["messages"], info["next_offset"]) == (10, 10)
    verified = here("segment", "verify", forged)
    assert verified.code == 1
    assert "index" in verified.out + verified.err


def test_a_broker_starts_with_a_forged_index_and_goes_on_behind_the_last_message(here: Run, forged: Path) -> None:
    with Store.open(forged.parents[3]) as store:
        assert int(store.append(ORDERS, Draft.of([Message(payload=b"next")])).offset) == 10
    assert len(here("log", "read", "orders", "--json").rows) == 11
