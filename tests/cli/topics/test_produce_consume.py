"""`penstock produce` and `penstock consume`, with a real broker."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from tests.cli.kit import Run, Start, ended, said

import penstock
from penstock.testing import RunningBroker

pytestmark = pytest.mark.usefixtures("at_keeper")

FORMAT = "%p|%o|%t|%k|%s|%h|%n|%%"


def lines(count: int) -> bytes:
    return b"".join(b'{"n": %d, "who": "c%d"}\n' % (number, number % 5) for number in range(count))


# produce


def test_lines_are_stored_and_it_says_where(here: Run) -> None:
    done = here("produce", "stream.lines", given=b"one\r\n\ntwo")
    assert (done.out, done.err) == ("3 messages stored in /default/stream.lines: offsets 0 to 2\n", "")
    assert here("produce", "Stream.Lines", given=b"x\n").out.endswith("/default/stream.lines: offset 3\n")
    assert here("produce", "stream.lines", given=b"").out == "nothing stored in /default/stream.lines\n"
    (facts,) = here("produce", "stream.lines", "--json", given=b"x\ny\n").rows
    place = {"partition": 0, "count": 2, "first_offset": 4, "last_offset": 5}
    assert facts == {"topic": "/default/stream.lines", "stored": 2, "partitions": [place]}
    assert here("consume", "stream.lines", "--payload").raw == b"one\n\ntwo\nx\nx\ny\n"


def test_every_option_of_a_message_is_kept(here: Run) -> None:
    options = ["--key", "k 1", "--type", "order.created", "--attr", "a=1", "--attr", "b=x=y", "--name", "cli"]
    here("produce", "stream.options", *options, given=b"p")
    shown = here("consume", "stream.options", "--format", FORMAT)
    assert shown.out == '0|0|order.created|k 1|p|{"a": "1", "b": "x=y"}|cli|%\n'
    (row,) = here("consume", "stream.options", "--json").rows
    assert (row["partition"], row["key"], row["producer_name"], row["request_id"]) == (0, "k 1", "cli", 1)
    plain = here("consume", "stream.options").out
    assert "order.created  key=k 1" in plain
    assert "    a: 1\n" in plain


def test_files_are_read_one_after_another_and_whole_ones_are_one_message_each(here: Run, home: Path) -> None:
    (home / "a").write_bytes(b"1\n2\n")
    (home / "b").write_bytes(b"\x00\xff\n3")
    assert here("produce", "stream.files", "a", "-", "b", given=b"x").out.startswith("5 messages")
    assert here("consume", "stream.files", "--payload").raw == b"1\n2\nx\n\x00\xff\n3\n"
    assert here("produce", "stream.whole", "a", "b", "--whole").out.startswith("2 messages")
    assert [
        row.get("payload", row.get("payload_base64")) for row in here("consume", "stream.whole", "--json").rows
    ] == [
        "1\n2\n",
        "AP8KMw==",
    ]
    assert here("produce", "stream.whole", "--whole", given=b"").out.endswith("offset 2\n")


def test_a_field_of_each_message_is_its_key_and_the_key_chooses_the_partition(here: Run) -> None:
    here("topic", "create", "stream.keyed", "--partitions", "4")
    (facts,) = here("produce", "stream.keyed", "--key-field", "who", "--json", given=lines(20)).rows
    assert (facts["stored"], sum(each["count"] for each in facts["partitions"])) == (20, 20)
    rows = here("consume", "stream.keyed", "--json").rows
    assert len(rows) == 20
    places = {row["key"]: row["partition"] for row in rows}
    assert all(
        row["partition"] == places[row["key"]] and json.loads(row["payload"])["who"] == row["key"] for row in rows
    )
    here("produce", "stream.numbers", "--key-field", "n", given=b'{"n": 7}\n{"n": 1.5}\n')
    assert here("consume", "stream.numbers", "--format", "%k").out == "7\n1.5\n"


@pytest.mark.parametrize("line", [b"nonsense", b"[1]", b"{}", b'{"who": null}', b'{"who": true}', b'{"who": {}}'])
def test_a_line_without_its_key_ends_it_and_what_was_before_is_stored(here: Run, line: bytes) -> None:
    topic = f"stream.nokey{line.hex()}"
    failed = here("produce", topic, "--key-field", "who", given=lines(3) + line + b"\n" + lines(3))
    failed.refused("line 4: ", f"before that: 3 messages stored in /default/{topic}: offsets 0 to 2")
    assert len(here("consume", topic, "--json").rows) == 3


def test_a_line_that_is_too_large_is_named_and_what_was_before_is_stored(here: Run, home: Path) -> None:
    here("topic", "create", "stream.small", "--payload-bytes", "10")
    (home / "file").write_bytes(b"short\n" * 3 + b"x" * 11 + b"\nshort\n")
    failed = here("produce", "stream.small", "file", "--json")
    assert failed.code == 2
    assert failed.error["message"].startswith(
        "file: line 4 is too large: a message has at most 10 bytes; before that: 3"
    )
    assert failed.error["details"]["stored"] == 3
    here("produce", "stream.small", "--whole", given=b"x" * 11).refused("PAYLOAD_TOO_LARGE", "nothing stored")
    here("produce", "stream.small", "--whole", given=b"x" * 5_000_000).refused("PAYLOAD_TOO_LARGE")
    assert len(here("consume", "stream.small", "--json").rows) == 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["stream.bad", "nowhere.txt"], ["nowhere.txt cannot be read", "no such file"]),
        (["stream.bad", "."], [". cannot be read", "directory"]),
        (["stream.bad", "--key", "k", "--key-field", "f"], ["give one of them"]),
        (["stream.bad", "--attr", "x"], ["expected name=value"]),
        (["stream.bad", "--attr", "x=1", "--attr", "x=2"], ["given twice"]),
        (["stream.+"], ["level '+'"]),
        (["system.x"], ["/default/system.x cannot be created: system topics are the broker's own\n"]),
        (["stream.bad", "--type", "t" * 256], ["type", "255"]),
        (["stream.bad", "--name", "n" * 256], ["producer name", "255"]),
        (["stream.bad", "--name", ""], ["nothing stored"]),
        (["stream.bad", "--key", "k" * 65_536], ["key", "65535"]),
        (["stream.bad", "--attr", "n" * 256 + "=v"], ["attribute name"]),
        (["stream.bad", "--type", "\udcff"], ["type is not valid Unicode"]),
        (["stream.bad", "--attr", "a=\udcff"], ["not valid Unicode"]),
    ],
)
def test_what_cannot_be_produced_is_refused_with_a_sentence(here: Run, arguments: list[str], words: list[str]) -> None:
    done = here("produce", *arguments, given=b"" if "" in arguments else b"x\n")
    if "" in arguments:
        assert words[0] in done.out  # no name is a name of its own
    else:
        done.refused(*words)


@pytest.mark.parametrize(
    "options", [["--rate", "0"], ["--rate", "fast"], ["--batch", "0"], ["--batch", "100001"], ["--batch", "x"]]
)
def test_numbers_out_of_range_are_a_wrong_command_line(here: Run, options: list[str]) -> None:
    done = here("produce", "stream.bad", *options, given=b"x\n")
    assert (done.code, done.out) == (2, "")
    assert options[0] in done.err


def test_a_live_topic_is_for_publish(here: Run) -> None:
    here("topic", "create", "stream.live", "--dispatch", "live")
    here("produce", "stream.live", given=b"x\n").refused("TOPIC_NOT_SUPPORTED", "live topic")
    here("consume", "stream.live").refused("TOPIC_NOT_SUPPORTED", "live topic")
    here("consume", "stream.live", "-s", "s").refused("TOPIC_NOT_SUPPORTED", "live topic")


def test_a_rate_is_kept(here: Run) -> None:
    began = time.monotonic()
    here("produce", "stream.rate", "--rate", "100", given=lines(50))
    assert time.monotonic() - began > 0.3
    assert here("consume", "stream.rate", "--payload").raw == lines(50)


def test_small_blocks_are_the_same_messages(here: Run) -> None:
    assert here("produce", "stream.batch", "--batch", "7", given=lines(100)).out.endswith("offsets 0 to 99\n")
    assert here("consume", "stream.batch", "--payload").raw == lines(100)


CENTS = b'{"type": "object", "required": ["cents"], "properties": {"cents": {"type": "integer", "minimum": 0}}}'
PAYMENTS = b'{"cents": 1}\n{"cents": "x"}\n{"cents": 3}\n{"cents": -1}\n'


def insisting(here: Run, topic: str, schema: bytes = CENTS) -> None:
    """Create a topic that enforces its schema."""
    here("topic", "create", topic)
    assert here("schema", "register", f"{topic}-value", "-", given=schema).code == 0
    wishes = ["--policy", "enforce", "--payloads", "--default", "latest"]
    assert here("topic", "schema", "set", topic, *wishes).code == 0


def test_what_a_topic_refuses_is_named_by_its_line_and_the_rest_of_the_block_is_stored(here: Run, home: Path) -> None:
    insisting(here, "stream.cents")
    here("produce", "stream.cents", given=PAYMENTS).refused(
        'SCHEMA_REJECTED: 2 messages refused: line 2: at /cents: the value is not of type "integer"; line 4: at /cents',
        "; 2 messages stored in /default/stream.cents: offsets 0 to 1; nothing after line 4 was sent",
    )
    (home / "file").write_bytes(PAYMENTS)
    failed = here("produce", "stream.cents", "file", "--batch", "3", "--json")
    assert failed.code == 2
    facts = failed.error["details"]
    assert (facts["stored"], facts["partitions"][0]["first_offset"], facts["last_line"]) == (2, 2, 3)
    (refused,) = facts["refused"]
    assert (refused["file"], refused["line"], refused["path"]) == ("file", 2, "/cents")
    here("produce", "stream.cents", given=b"{}\n" * 9).refused("line 5: ", "; and 4 more; nothing stored in")
    here("produce", "stream.cents", "--whole", given=b"{}").refused("1 message refused: the message: ")
    assert here("consume", "stream.cents", "--format", "%s").out == '{"cents": 1}\n{"cents": 3}\n' * 2
    shown = here("consume", "stream.cents", "--format", "%S", "-n", "1").out
    (row,) = here("consume", "stream.cents", "--json", "-n", "1").rows
    assert shown == f"{row['schema_id']}/{row['schema_version']}\n"


def test_lines_that_are_published_name_the_one_that_is_refused_and_how_far_the_rest_may_be(here: Run) -> None:
    insisting(here, "stream.published")
    failed = here("publish", "stream.published", "--lines", "--json", given=PAYMENTS[:-13] * 600)
    facts = json.loads(failed.err.splitlines()[-1])["error"]["details"]
    assert (facts["published"], facts["line"], facts["last_line"]) == (1, 2, 513)
    failed = here("publish", "stream.published", "--lines", given=PAYMENTS[:28])
    failed.refused("line 2: at /cents", "; 1 line before it published\n")


def test_a_refusal_says_what_can_be_done_if_that_is_to_be_seen(here: Run) -> None:
    insisting(
        here, "stream.avro", b'{"type": "record", "name": "A", "fields": [{"name": "currency", "type": "string"}]}'
    )
    hint = "the schema is AVRO, and this looks like JSON"
    here("publish", "stream.avro", '{"currency": "EUR"}').refused("/currency", hint)
    here("produce", "stream.avro", given=b'{"currency": "EUR"}\n').refused("/currency", hint)
    here("topic", "schema", "set", "stream.avro", "--default", "none")
    hint = "penstock topic schema set stream.avro --default latest"
    here("publish", "stream.avro", "x").refused("names no schema", hint)
    here("publish", "stream.avro", "--lines", given=b"x\n").refused("line 1: ", "names no schema", hint)


def test_ctrl_c_says_what_is_stored(start: Start, here: Run) -> None:
    with start("produce", "stream.interrupted") as process:
        assert process.stdin is not None
        process.stdin.write(lines(10))
        process.stdin.flush()
        while not _stored(here, "stream.interrupted", 10):
            assert process.poll() is None
        code, out, err = ended(process)
    assert (code, out) == (130, b"")
    assert err.decode() == "penstock: interrupted: 10 messages stored in /default/stream.interrupted: offsets 0 to 9\n"


def _stored(here: Run, topic: str, count: int) -> bool:
    rows = [row for row in here("topic", "ls", "--json").rows if row["topic"] == f"/default/{topic}"]
    return bool(rows) and rows[0]["messages"] == count


# consume


@pytest.fixture(scope="session")
def filled(keeper: RunningBroker) -> str:
    """A topic with a hundred messages of two types."""
    with penstock.connect(keeper.url) as client, client.producer("stream.filled", name="filler") as producer:
        for number in range(100):
            producer.send(str(number), key=f"k{number % 10}", type="even" if number % 2 == 0 else "odd")
    return "stream.filled"


def payloads(done: Any) -> list[int]:
    assert done.code == 0, done.err
    return [int(line) for line in done.raw.splitlines()]


def test_a_part_of_a_topic_can_be_read(here: Run, filled: str) -> None:
    assert payloads(here("consume", filled, "--payload")) == list(range(100))
    assert payloads(here("consume", filled, "--payload", "--from", "90")) == list(range(90, 100))
    assert payloads(here("consume", filled, "--payload", "--to", "5")) == list(range(5))
    assert payloads(here("consume", filled, "--payload", "--from", "10", "--to", "12")) == [10, 11]
    assert payloads(here("consume", filled, "--payload", "--from", "10", "--to", "10")) == []
    assert payloads(here("consume", filled, "--payload", "--from", "latest")) == []
    assert payloads(here("consume", filled, "--payload", "--to", "earliest")) == []
    assert payloads(here("consume", filled, "--payload", "--to", "999")) == list(range(100))
    assert payloads(here("consume", filled, "--payload", "-n", "3")) == [0, 1, 2]
    assert payloads(here("consume", filled, "--payload", "--partition", "0", "-n", "1")) == [0]
    assert payloads(here("consume", filled, "--payload", "--follow", "-n", "2")) == [0, 1]
    assert payloads(here("consume", filled, "--payload", "--follow", "--to", "3")) == [0, 1, 2]


def test_times_and_ids_are_places(here: Run, filled: str) -> None:
    rows = here("consume", filled, "--json").rows
    assert payloads(here("consume", filled, "--payload", "--from", rows[60]["id"])) == list(range(60, 100))
    assert payloads(here("consume", filled, "--payload", "--to", rows[60]["id"])) == list(range(60))
    assert payloads(here("consume", filled, "--payload", "--to", "2001-01-01")) == []
    assert payloads(here("consume", filled, "--payload", "--from", rows[0]["publish_time"])) == list(range(100))
    assert payloads(here("consume", filled, "--payload", "--from", "2200-01-01")) == []
    assert payloads(here("consume", filled, "--payload", "--to", "2200-01-01")) == list(range(100))


def test_filters_are_globs_and_the_end_is_found_also_if_nothing_matches(here: Run, filled: str) -> None:
    assert payloads(here("consume", filled, "--payload", "--only-type", "ev*")) == list(range(0, 100, 2))
    assert payloads(here("consume", filled, "--payload", "--only-key", "k[34]")) == [
        number for number in range(100) if number % 10 in (3, 4)
    ]
    assert payloads(here("consume", filled, "--payload", "--only-type", "none", "--only-key", "k*")) == []


def test_partitions_are_read_together_or_one_alone(here: Run) -> None:
    here("topic", "create", "stream.parts", "--partitions", "3")
    here("produce", "stream.parts", "--key-field", "who", given=lines(30))
    rows = here("consume", "stream.parts", "--json").rows
    for number in range(3):
        mine = [row for row in rows if row["partition"] == number]
        assert [row["offset"] for row in mine] == list(range(len(mine)))
        alone = here("consume", "stream.parts", "--partition", str(number), "--from", "1", "--json").rows
        assert alone == mine[1:]
    assert len(rows) == 30
    assert "\n1:0  " in f"\n{here('consume', 'stream.parts', '--partition', '1').out}"
    here("consume", "stream.parts", "--from", "1").refused("3 partitions", "name the partition")
    here("consume", "stream.parts", "--to", "1").refused("3 partitions", "name the partition")
    here("consume", "stream.parts", "--partition", "3").refused("partitions 0 to 2, not 3")


@pytest.mark.parametrize(
    ("template", "printed"),
    [
        ("%s", "0\n"),
        (r"%o\t%k\n", "0\tk0\n"),
        (r"\\%s", "\\0\n"),
        ("100%%", "100%\n"),
        ("", "\n"),
        ("%t%n", "evenfiller\n"),
    ],
)
def test_a_format_is_a_line_a_message(here: Run, filled: str, template: str, printed: str) -> None:
    assert here("consume", filled, "-n", "1", "--format", template).out == printed


def test_what_is_no_text_stays_recognisable_in_a_format(here: Run) -> None:
    here("produce", "stream.binary", "--key", os.fsdecode(b"\xfe"), given=b"a\xff\n")
    assert here("consume", "stream.binary", "--format", "%k %s").out == "\\xfe a\\xff\n"
    (row,) = here("consume", "stream.binary", "--json").rows
    assert (row["key_base64"], row["payload_base64"]) == ("/g==", "Yf8=")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--format", "%z"], ["%z is not known", "%o offset"]),
        (["--format", "100%"], ["'100%'", "is not known"]),
        (["--format", "\\x"], ["\\x is not known"]),
        (["--format", "%s", "--json"], ["how messages are printed"]),
        (["--payload", "--json"], ["how messages are printed"]),
        (["--from", "soon"], ["no place in a log"]),
        (["--from", "7", "--to", "3"], ["the start comes after the stop"]),
        (["--to", "never"], ["no place in a log"]),
        (["--from", "101"], ["OFFSET_OUT_OF_RANGE", "101"]),
        (["--partition", "1"], ["partitions 0 to 0, not 1"]),
        (["--type", "shared"], ["--subscription", "--only-type shared"]),
        (["--sub-type", "shared"], ["--subscription"]),
        (["--type", "order.*"], ["--only-type 'order.*'"]),
        (["-s", "x", "--to", "7"], ["without a subscription"]),
        (["-s", "x", "--partition", "0"], ["without a subscription"]),
        (["-s", "x", "--type", "mine"], ["exclusive, failover, shared, key_shared"]),
        (["-s", "a b"], ["subscription"]),
        (["-s", ""], ["subscription"]),
        (["-s", "x", "--from", "soon"], ["no place in a log"]),
        (["-s", "x", "--from", "101"], ["OFFSET_OUT_OF_RANGE"]),
        (["--only-type", "t" * 256], ["types"]),
        (["--only-type", ""], ["types"]),
        (["--key", "k" * 256], ["keys"]),
    ],
)
def test_what_cannot_be_consumed_is_refused_before_anything_is_read(
    here: Run, filled: str, arguments: list[str], words: list[str]
) -> None:
    done = here("consume", filled, *arguments)
    if "--json" in arguments:
        assert (done.code, done.out, words[0] in done.error["message"]) == (2, "", True)
    else:
        done.refused(*words)
    assert here("sub", "ls", filled, "--json").rows == []


def test_a_topic_that_is_not_there_is_not_created_by_reading_it(here: Run) -> None:
    here("consume", "stream.filed").refused("there is no topic", "did you mean")
    here("consume", "stream.filed", "--follow").refused("there is no topic")
    here("topic", "describe", "stream.filed").refused("there is no topic")


def test_a_time_may_be_said_as_how_long_ago_it_was(here: Run) -> None:
    here("produce", "stream.ago", given=b"1\n2\n")
    assert here("consume", "stream.ago", "--from", "-1h", "--payload").raw == b"1\n2\n"
    assert here("consume", "stream.ago", "--from", "-1h", "--to", "-30m", "--payload").raw == b""
    here("sub", "create", "stream.ago", "s")
    assert here("sub", "seek", "stream.ago", "s", "-2h").out == "s of stream.ago: partition 0 goes on at offset 0\n"
    assert here("topic", "browse", "stream.ago", "--from", "-99999999d", "--json").code == 0
    here("consume", "stream.ago", "--from", "-1x").refused("'1x' is not a span of time")
    here("consume", "stream.ago", "--from", "1h ago").refused("no place in a log")
    assert here("sub", "seek", "stream.ago", "s", "0", "--nonsense").code == 2


def test_what_was_printed_is_acknowledged_and_the_rest_comes_next_time(here: Run) -> None:
    here("produce", "stream.sub", given=b"".join(b"%d\n" % number for number in range(20)))
    first = here("consume", "stream.sub", "-s", "s", "--from", "earliest", "-n", "7", "--payload")
    assert payloads(first) == list(range(7))
    assert first.err == "consuming stream.sub as s\n"
    assert payloads(here("consume", "stream.sub", "-s", "s", "-n", "13", "--payload", "--follow")) == list(range(7, 20))
    (facts,) = here("sub", "describe", "stream.sub", "s", "--json").rows
    assert (facts["lag"], facts["type"]) == (0, "exclusive")


def test_a_subscription_ends_where_the_topic_ends_unless_it_is_to_follow(here: Run) -> None:
    here("topic", "create", "stream.end", "--partitions", "3")
    here("produce", "stream.end", "--key-field", "n", given=lines(2500))
    everything = here("consume", "stream.end", "-s", "s", "--from", "earliest", "--format", "%k")
    assert sorted(payloads(everything)) == list(range(2500))
    assert payloads(here("consume", "stream.end", "-s", "s", "--payload")) == []
    here("produce", "stream.end", given=b"7\n8\n")
    assert payloads(here("consume", "stream.end", "-s", "s", "--payload", "-n", "5")) == [7, 8]
    (facts,) = here("sub", "describe", "stream.end", "s", "--json").rows
    assert (facts["lag"], facts["consumers"]) == (0, [])


def test_a_subscription_ends_also_if_nothing_matches(here: Run) -> None:
    here("produce", "stream.nothing", given=lines(100))
    done = here("consume", "stream.nothing", "-s", "s", "--from", "earliest", "--only-type", "none", "--payload")
    assert payloads(done) == []


def test_whoever_names_a_place_for_a_subscription_that_has_one_is_told_how_to_move_it(here: Run) -> None:
    here("produce", "stream.place", given=b"1\n2\n")
    new = here("consume", "stream.place", "-s", "s", "--payload")
    assert payloads(new) == []
    assert "s is new, and begins where the topic ends: --follow waits" in new.err
    known = here("consume", "stream.place", "-s", "s", "--from", "earliest", "--payload")
    assert payloads(known) == []
    told = "goes on where it was, not from earliest: penstock sub seek stream.place s earliest moves it\n"
    assert known.err.endswith(told)
    here("sub", "seek", "stream.place", "s", "earliest")
    moved = here("consume", "stream.place", "-s", "s", "--payload")
    assert (payloads(moved), moved.err) == ([1, 2], "consuming stream.place as s\n")


def test_a_subscription_follows_until_ctrl_c_and_keeps_its_place(start: Start, here: Run) -> None:
    with start("consume", "stream.follow", "-s", "s", "--payload", "--type", "shared", "-f") as process:
        said(process.stderr, "consuming")
        here("produce", "stream.follow", given=b"1\n2\n")
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == [b"1\n", b"2\n"]
        while here("sub", "describe", "stream.follow", "s", "--json").rows[0]["lag"]:
            assert process.poll() is None
        code, out, err = ended(process)
    assert (code, out, err) == (130, b"", b"")


def test_a_reader_follows_until_it_is_told_to_stop(start: Start, here: Run) -> None:
    here("produce", "stream.tail", given=b"1\n")
    with start("consume", "stream.tail", "--follow", "--format", "%o %s") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"0 1\n"
        here("produce", "stream.tail", given=b"2\n")
        assert process.stdout.readline() == b"1 2\n"
        code, out, err = ended(process, signal.SIGTERM)
    assert (code, out, err) == (143, b"", b"")


def test_what_nobody_took_is_not_acknowledged(start: Start, here: Run) -> None:
    here("produce", "stream.head", given=b"x" * 1000 + b"\n" + lines(20_000))
    with start("consume", "stream.head", "-s", "s", "--from", "earliest", "--payload") as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.wait(60) == 0
    (facts,) = here("sub", "describe", "stream.head", "s", "--json").rows
    assert facts["lag"] > 0
    assert facts["consumers"] == []


def test_an_exclusive_subscription_has_one_consumer(start: Start, here: Run) -> None:
    with start("consume", "stream.alone", "-s", "s", "--follow") as process:
        said(process.stderr, "consuming")
        here("consume", "stream.alone", "-s", "s").refused("NOT_OWNER", "exclusive")
        here("consume", "stream.alone", "-s", "s", "--type", "shared").refused("type exclusive, not shared")
        assert ended(process)[0] == 130


def test_no_broker_is_said(here: Run) -> None:
    for command in (["produce", "t"], ["consume", "t"], ["topic", "ls"], ["sub", "ls"], ["dlq", "ls"]):
        here(*command, "--url", "tcp://127.0.0.1:1", given=b"x").refused("SERVICE_UNAVAILABLE", "127.0.0.1:1")
        here(*command, "--tls-ca", "nowhere.pem", given=b"x").refused("tls://")
