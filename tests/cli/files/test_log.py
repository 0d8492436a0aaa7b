"""`penstock log`: create, append, read, info."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest
from tests.cli.kit import Fill, Run, Start, contents

from penstock.core.names import TopicName
from penstock.record.block import Draft
from penstock.record.message import Message, SchemaRef
from penstock.storage.store import Store

ORDERS = TopicName.parse("orders")
TOO_LARGE = b"x" * (1024 * 1024 + 1)


def read(here: Run, *options: str) -> list[str]:
    done = here("log", "read", "orders", "--payload", *options)
    assert (done.code, done.err) == (0, "")
    return done.out.splitlines()


# create


def test_a_topic_is_created_with_its_data_directory(here: Run, home: Path) -> None:
    made = here("log", "create", "Orders.Created", "--partitions", "3")
    assert (made.code, made.err) == (0, "")
    assert made.out == "created /default/orders.created with 3 partitions in penstock-data\n"
    assert (home / "penstock-data").stat().st_mode & 0o777 == 0o700
    (first, *_) = rows = here("log", "info", "--json").rows
    assert len(rows) == 3
    assert (first["topic"], first["messages"], first["oldest_ms"]) == ("/default/orders.created", 0, None)


def test_creation_is_reported_as_json(here: Run) -> None:
    assert here("log", "create", "/shop/orders", "--data", "d", "--json").rows == [
        {"topic": "/shop/orders", "partitions": 1, "data": "d"}
    ]


def test_settings_are_stored_with_the_topic(here: Run, home: Path) -> None:
    options = [
        "--retention-age",
        "7d",
        "--retention-bytes",
        "10GiB",
        "--retention-count",
        "5",
        "--segment-bytes",
        "64KiB",
    ]
    assert here("log", "create", "orders", *options).code == 0
    with Store.open(home / "penstock-data") as store:
        settings = store.catalog.get_topic(ORDERS).settings
    assert (settings.retention.age_ms, settings.retention.bytes, settings.retention.count) == (604_800_000, 10 << 30, 5)
    assert settings.segment_bytes_max == 65_536


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["bad..topic"], "letter followed by letters and digits"),
        ([""], "letter followed by letters and digits"),
        (["../escape"], "letter followed by letters and digits"),
        (["/only-namespace"], "expected /namespace/topic"),
        (["a.b.c.d.e.f"], "at most 5 levels"),
        (["x" * 256], "at most 255 characters"),
        (["orders", "--partitions", "0"], "from 1 to 1024"),
        (["orders", "--partitions", "1025"], "from 1 to 1024"),
        (["orders", "--retention-age", "7y"], "such as 500ms"),
        (["orders", "--retention-age", ""], "such as 500ms"),
        (["orders", "--retention-age", "0d"], "retention.age_ms"),
        (["orders", "--retention-bytes", "-1"], "such as 512"),
        (["orders", "--segment-bytes", "3GiB"], "segment_bytes_max"),
    ],
)
def test_a_topic_that_cannot_be_is_refused_and_nothing_is_made(
    here: Run, home: Path, arguments: list[str], words: str
) -> None:
    here("log", "create", *arguments).refused(words)
    assert list(home.iterdir()) == []


def test_a_topic_is_created_once(here: Run, fill: Fill) -> None:
    fill()
    here("log", "create", "orders").refused("INVALID_REQUEST", "/default/orders exists already")


@pytest.mark.parametrize("kind", ["a file", "a directory with other files", "below a file"])
def test_a_place_that_cannot_be_a_data_directory_is_left_as_it_is(here: Run, home: Path, kind: str) -> None:
    (home / "place").mkdir()
    (home / "place" / "file").write_text("mine")
    target = {"a file": "place/file", "a directory with other files": "place", "below a file": "place/file/data"}[kind]
    before = contents(home)
    here("log", "create", "orders", "--data", target).refused(target)
    assert contents(home) == before


# append


def test_lines_become_messages_and_come_back(here: Run, fill: Fill) -> None:
    fill()
    done = here("log", "append", "orders", given=b"one\ntwo\r\n\nfour")
    assert (done.code, done.out) == (0, "4 messages appended to /default/orders: offsets 0 to 3\n")
    assert read(here) == ["one", "two", "", "four"]
    assert here("log", "append", "orders", given=b"five\n").out == "1 message appended to /default/orders: offset 4\n"


def test_type_key_and_attributes_are_those_of_every_message(here: Run, fill: Fill) -> None:
    fill()
    options = ["--type", "order.created", "--key", "k1", "--attr", "a=1", "--attr", "b=x=y", "--attr", "c="]
    assert here("log", "append", "orders", *options, given=b"one\ntwo\n").code == 0
    for row in here("log", "read", "orders", "--json").rows:
        assert (row["type"], row["key"], row["attributes"]) == ("order.created", "k1", {"a": "1", "b": "x=y", "c": ""})


def test_a_key_is_any_bytes(here: Run, fill: Fill) -> None:
    fill()
    assert here("log", "append", "orders", "--key", os.fsdecode(b"\xff\xfe"), given=b"one\n").code == 0
    assert here("log", "read", "orders", "--json").rows[0]["key_base64"] == "//4="


def test_a_whole_input_is_one_message_of_any_bytes(here: Run, fill: Fill) -> None:
    fill()
    data = bytes(range(256)) * 40 + b"\r\n"
    done = here("log", "append", "orders", "--whole", "--json", given=data)
    assert done.rows == [{"topic": "/default/orders", "partition": 0, "count": 1, "first_offset": 0, "last_offset": 0}]
    assert here("log", "read", "orders", "--payload").raw == data + b"\n"


def test_messages_come_from_a_file_too(here: Run, fill: Fill, home: Path) -> None:
    fill()
    (home / "events").write_bytes(b"".join(b"event %d\n" % number for number in range(5000)))
    assert here("log", "append", "orders", "events", "--batch", "7").code == 0
    assert read(here) == [f"event {number}" for number in range(5000)]
    assert here("log", "append", "orders", "-", given=b"last").code == 0


def test_nothing_to_append_is_no_error(here: Run, fill: Fill) -> None:
    fill()
    done = here("log", "append", "orders")
    assert (done.code, done.out) == (0, "nothing appended to /default/orders\n")
    assert here("log", "append", "orders", "--json").rows[0]["count"] == 0


def test_blocks_are_made_to_fit_the_topics_own_segments(here: Run) -> None:
    here("log", "create", "orders", "--segment-bytes", "4KiB")
    assert here("log", "append", "orders", given=b"".join(b"x" * 3000 + b"\n" for _ in range(20))).code == 0
    assert len(read(here)) == 20
    here("log", "append", "orders", given=b"x" * 4096).refused("line 1 is too large: a message has at most 40")


def test_a_line_that_is_too_large_is_named_with_what_was_stored_before_it(here: Run, fill: Fill) -> None:
    fill([b"there before"])
    given = b"one\ntwo\n" + TOO_LARGE + b"\nfour\n"
    here("log", "append", "orders", given=given).refused(
        "PAYLOAD_TOO_LARGE",
        "line 3 is too large: a message has at most 1048576 bytes",
        "2 messages appended to /default/orders: offsets 1 to 2",
    )
    assert read(here) == ["there before", "one", "two"]
    done = here("log", "append", "orders", "--json", given=given)
    assert (done.code, done.out) == (2, "")
    assert done.error["code"] == "PAYLOAD_TOO_LARGE"
    assert done.error["details"] == {
        "topic": "/default/orders",
        "partition": 0,
        "count": 2,
        "first_offset": 3,
        "last_offset": 4,
    }


def test_a_whole_input_that_is_too_large_is_refused(here: Run, fill: Fill) -> None:
    fill()
    here("log", "append", "orders", "--whole", given=TOO_LARGE).refused("the input is too large", "nothing appended")
    assert read(here) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["order"], "did you mean /default/orders?"),
        (["bad topic"], "letter followed by"),
        (["orders", "--partition", "3"], "partitions 0 to 0, not 3"),
        (["orders", "missing.txt"], "missing.txt cannot be read: No such file"),
        (["orders", "."], "cannot be read: Is a directory"),
        (["orders", "--attr", "novalue"], "expected name=value"),
        (["orders", "--attr", "=value"], "expected name=value"),
        (["orders", "--attr", "a=1", "--attr", "a=2"], "'a' is given twice"),
        (["orders", "--attr", f"{'n' * 256}=1"], "attribute name takes at most 255 bytes"),
        (["orders", "--type", "t" * 256], "type takes at most 255 bytes"),
        (["orders", "--type", os.fsdecode(b"\xff")], "not valid Unicode"),
        (["orders", "--key", "k" * 65_536], "key takes at most 65535 bytes"),
        (["orders", "--data", "nowhere"], "not a Penstock data directory"),
    ],
)
@pytest.mark.parametrize("given", [b"", b"one\n"])
def test_what_cannot_be_appended_is_refused_and_nothing_is_stored(
    here: Run, fill: Fill, arguments: list[str], words: str, given: bytes
) -> None:
    root = fill()
    here("log", "append", *arguments, given=given).refused(words)
    assert not list(root.rglob("*.seg"))


@pytest.mark.parametrize("arguments", [["append", "orders"], ["create", "more"]])
def test_a_directory_that_has_an_owner_is_not_written_to(here: Run, fill: Fill, arguments: list[str]) -> None:
    root = fill([b"a"])
    with Store.open(root):
        here("log", *arguments, given=b"x\n").refused("NOT_OWNER", f"pid {os.getpid()}")
        assert read(here) == ["a"]


@contextmanager
def running(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process that is stopped at the end of the test, whatever the result."""
    with process:
        try:
            yield process
        finally:
            process.kill()


def pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream


def lines_of(root: Path) -> int:
    from penstock.storage.inspect.data_reader import DataReader

    return int(DataReader(root).topic(ORDERS).partition(0).view.next_offset)


def wait_for(count: int, root: Path) -> None:
    """Wait until another process can read so many messages."""
    deadline = threading.Event()
    for _ in range(1200):
        if lines_of(root) >= count:
            return
        deadline.wait(0.05)
    raise AssertionError(f"{lines_of(root)} of {count} messages after 60 s")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_slow_stream_is_stored_as_it_comes_and_an_interrupted_one_says_how_far_it_came(
    start: Start, fill: Fill, number: signal.Signals, code: int
) -> None:
    root = fill()
    with running(start("log", "append", "orders")) as process:
        pipe(process.stdin).write(b"one\ntwo\nunfin")
        pipe(process.stdin).flush()
        wait_for(2, root)
        process.send_signal(number)
        assert process.wait(60) == code
        said = pipe(process.stderr).read().decode()
    assert said == "penstock: interrupted: 2 messages appended to /default/orders: offsets 0 to 1\n"
    with Store.open(root) as store:  # let go, and closed in order
        assert store.log(ORDERS).next_offset == 2


def test_a_missing_standard_input_is_refused(environment: dict[str, str], fill: Fill) -> None:
    fill()
    command = ["sh", "-c", 'exec "$0" "$@" <&-', sys.executable, "-m", "penstock", "log", "append", "orders"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert done.stderr == "penstock: INVALID_REQUEST: there is no standard input: name a file with the messages\n"


# read


@pytest.fixture
def parts(fill: Fill) -> Path:
    """Three messages in partition 0, two in partition 1, none in partition 2."""
    root = fill(partitions=3)
    with Store.open(root) as store:
        for partition, types in enumerate((["order.new", "order.paid", "note"], ["order.new", "ORDER"])):
            messages = [Message(payload=b"%d%d" % (partition, n), type=type_) for n, type_ in enumerate(types)]
            store.append(ORDERS, Draft.of(messages), partition=partition)
    return root


def test_all_partitions_are_read_one_after_another(here: Run, parts: Path) -> None:
    rows = here("log", "read", "orders", "--json").rows
    assert [(row["partition"], row["offset"], row["payload"]) for row in rows] == [
        (0, 0, "00"),
        (0, 1, "01"),
        (0, 2, "02"),
        (1, 0, "10"),
        (1, 1, "11"),
    ]
    shown = here("log", "read", "orders").out
    assert [line.split()[0] for line in shown.splitlines() if not line.startswith(" ")] == [
        "0:0",
        "0:1",
        "0:2",
        "1:0",
        "1:1",
    ]


def test_one_partition_is_read_alone(here: Run, parts: Path) -> None:
    assert read(here, "--partition", "1") == ["10", "11"]
    assert read(here, "--partition", "2") == []
    here("log", "read", "orders", "--partition", "3").refused("has partitions 0 to 2, not 3")


def test_types_are_chosen_by_a_glob_with_regard_to_case(here: Run, parts: Path) -> None:
    assert read(here, "--only-type", "order.*") == ["00", "01", "10"]
    assert read(here, "--only-type", "o?der.[np]*") == ["00", "01", "10"]
    assert read(here, "--only-type", "ORDER") == ["11"]
    assert read(here, "--only-type", "order") == []


def test_the_limit_counts_what_is_shown_over_partitions(here: Run, parts: Path) -> None:
    assert read(here, "--limit", "4") == ["00", "01", "02", "10"]
    assert read(here, "--only-type", "order.*", "-n", "3") == ["00", "01", "10"]


def test_an_offset_that_one_partition_does_not_hold_is_refused_before_anything_is_shown(here: Run, parts: Path) -> None:
    here("log", "read", "orders", "--from", "2").refused("OFFSET_OUT_OF_RANGE", "/default/orders[2]", "[0, 0)")
    assert read(here, "--from", "1", "--partition", "0") == ["01", "02"]


@pytest.fixture
def spread(home: Path) -> Path:
    """Ten messages, ten seconds apart."""
    from penstock.testing import ManualClock

    clock = ManualClock()
    with Store.open(home / "penstock-data", create=True, clock=clock) as store:
        store.create_topic(ORDERS)
        for number in range(10):
            store.append(ORDERS, Draft.of([Message(payload=b"%d" % number)]))
            clock.advance_ms(10_000)
    return home / "penstock-data"


def test_from_and_to_take_offsets_times_and_ids(here: Run, spread: Path) -> None:
    ids = [row["id"] for row in here("log", "read", "orders", "--json").rows]
    starts = ["3", "2023-11-14T22:13:50Z", "2023-11-14T22:13:41Z", "2023-11-14T23:13:50+01:00", ids[3]]
    stops = ["7", "2023-11-14T22:14:30Z", ids[7]]
    for start in starts:
        for stop in stops:
            assert read(here, "--from", start, "--to", stop) == ["3", "4", "5", "6"], (start, stop)
    assert read(here, "--from", "earliest", "--to", "1") == ["0"]
    assert read(here, "--from", "9", "--to", "latest") == ["9"]
    assert read(here, "--from", "latest") == []
    assert read(here, "--from", "2030-01-01") == []
    assert read(here, "--to", "100")[-1] == "9"
    assert read(here, "--to", "earliest") == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--from", "abc"], "no place in a log"),
        (["--from", ""], "no place in a log"),
        (["--to", ""], "no place in a log"),
        (["--from", "-1"], "no place in a log"),
        (["--from", "9" * 5000], "no place in a log"),
        (["--from", str(2**63)], "an offset is a whole number"),
        (["--from", "2026-13-01"], "no place in a log"),
        (["--from", "1f0c2a4e-7b1d-4c00-9a3f-0123456789ab"], "version 6 expected"),
        (["--from", "11"], "it holds [0, 10)"),
        (["--from", "7", "--to", "3"], "nothing lies between 7 and 3"),
    ],
)
def test_a_place_that_is_none_is_refused(here: Run, spread: Path, options: list[str], words: str) -> None:
    here("log", "read", "orders", *options).refused(words)


def test_an_unknown_topic_is_refused_with_those_there_are(here: Run, parts: Path) -> None:
    here("log", "read", "order").refused("there is no topic /default/order", "there are: /default/orders")


def test_an_empty_topic_is_read_and_described(here: Run, fill: Fill) -> None:
    fill()
    assert read(here) == []
    (facts,) = here("log", "info", "orders", "--json").rows
    assert (facts["messages"], facts["segments"], facts["newest_ms"]) == (0, 0, None)
    assert here("log", "info").code == 0


def test_every_field_of_a_message_is_shown(here: Run, fill: Fill) -> None:
    message = Message(
        payload=b'{"order": 1, "lines": [1, 2]}',
        type="order.created",
        key=b"customer-7",
        attributes={"trace": "t-1"},
        producer_name="shop",
        producer_id=5,
        request_id=9,
        schema=SchemaRef(3, 2),
    )
    fill([message])
    shown = here("log", "read", "orders").out
    head, *rest = shown.splitlines()
    for word in ("0  ", "order.created", "key=customer-7", "schema=3/2", "producer=shop#5 request=9"):
        assert word in head
    assert rest == [
        "    trace: t-1",
        "    {",
        '      "order": 1,',
        '      "lines": [',
        "        1,",
        "        2",
        "      ]",
        "    }",
    ]
    (row,) = here("log", "read", "orders", "--json").rows
    assert row["payload"] == '{"order": 1, "lines": [1, 2]}'
    assert (row["schema_id"], row["schema_version"], row["producer_name"], row["producer_id"]) == (3, 2, "shop", 5)
    assert (row["request_id"], row["key"], row["attributes"]) == (9, "customer-7", {"trace": "t-1"})


def test_hostile_messages_cannot_write_to_the_terminal(here: Run, fill: Fill) -> None:
    escape = "\033[2J\r\n\a"
    hostile = Message(payload=escape.encode(), type=escape, key=escape.encode(), attributes={escape: escape})
    fill(
        [
            hostile,
            Message(payload=b"[" * 100_000),
            Message(payload=b'{"a": "\\ud800 \\u009b2J"}'),
            Message(payload=b"x" * 5000),
        ]
    )
    done = here("log", "read", "orders")
    assert done.code == 0
    assert not {"\033", "\r", "\a", "\x9b"} & set(done.out)
    assert "1b 5b 32 4a 0d 0a 07  (7 bytes)" in done.out
    assert "... (5000 bytes)" in done.out
    assert len(here("log", "read", "orders", "--json").rows) == 4


def test_damage_is_stepped_over_named_and_told_by_the_exit_code(here: Run, segment: Path) -> None:
    data = bytearray(segment.read_bytes())
    data[data.index(b"message 4")] ^= 1
    segment.write_bytes(data)
    done = here("log", "read", "orders", "--payload")
    assert (done.code, done.out.split("\n")[:-1]) == (1, [f"message {number}" for number in range(10) if number != 4])
    assert done.err.startswith("penstock: /default/orders[0]: skipped offset 4 (segment 0, bytes ")
    assert done.err.endswith("the checksum does not match\n")
    assert here("log", "read", "orders", "--limit", "2").code == 0
    assert here("log", "read", "orders", "--limit", "5").code == 1


def test_following_several_partitions_is_refused(here: Run, parts: Path) -> None:
    here("log", "read", "orders", "--follow").refused("choose it with --partition 0 to 2")


def test_a_follower_in_another_process_sees_what_is_appended_and_ends_with_ctrl_c(start: Start, fill: Fill) -> None:
    root = fill([b"old"])
    with running(start("log", "read", "orders", "--follow", "--payload")) as process, Store.open(root) as store:
        out = pipe(process.stdout)
        assert out.readline() == b"old\n"
        for number in range(50):
            store.append(ORDERS, Draft.of([Message(payload=b"new %d" % number)]))
        assert [out.readline() for _ in range(50)] == [b"new %d\n" % number for number in range(50)]
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert pipe(process.stderr).read() == b""


def test_a_follower_ends_at_its_limit(here: Run, fill: Fill) -> None:
    fill([b"a", b"b", b"c"])
    assert read(here, "--follow", "--limit", "2") == ["a", "b"]
    assert read(here, "--follow", "--to", "3") == ["a", "b", "c"]
    assert read(here, "--follow", "--to", "latest") == ["a", "b", "c"]


# info


def test_info_counts_what_is_there(here: Run, parts: Path) -> None:
    rows = here("log", "info", "--json").rows
    assert [(row["partition"], row["messages"], row["next_offset"]) for row in rows] == [
        (0, 3, 3),
        (1, 2, 2),
        (2, 0, 0),
    ]
    assert all(row["oldest_ms"] == row["newest_ms"] for row in rows)
    table = here("log", "info", "orders")
    assert table.code == 0
    assert "/default/orders" in table.out


def test_info_of_a_directory_without_topics_says_what_to_do(here: Run, home: Path) -> None:
    Store.open(home / "penstock-data", create=True).close()
    assert here("log", "info").out == "no topics in penstock-data yet: penstock log create TOPIC\n"
    assert here("log", "info", "--json").out == ""


def test_the_environment_names_the_data_directory(here: Run, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setenv("PENSTOCK_DATA", "elsewhere")
    assert here("log", "create", "orders").code == 0
    assert (home / "elsewhere" / "store.json").exists()


@pytest.mark.parametrize("command", [["read", "orders"], ["info"]])
def test_looking_changes_nothing(here: Run, parts: Path, command: list[str]) -> None:
    before = contents(parts)
    assert here("log", *command).code == 0
    assert contents(parts) == before
