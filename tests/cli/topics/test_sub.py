"""`penstock sub`, with a real broker."""

from __future__ import annotations

import pytest
from tests.cli.kit import Run, Start, ended, said
from tests.server.kit import eventually

import penstock

pytestmark = pytest.mark.usefixtures("at_keeper")


def lag(here: Run, topic: str, name: str) -> int:
    (facts,) = here("sub", "describe", topic, name, "--json").rows
    return int(facts["lag"])


def test_a_subscription_is_created_before_anybody_consumes(here: Run) -> None:
    assert here("sub", "create", "sub.new", "s").out == "created subscription s of sub.new\n"
    here("produce", "sub.new", given=b"1\n2\n")
    assert lag(here, "sub.new", "s") == 2
    (row,) = here("sub", "create", "sub.new", "t", "--json").rows
    assert row == {"topic": "sub.new", "subscription": "t", "created": True}
    assert lag(here, "sub.new", "t") == 0
    assert here("consume", "sub.new", "-s", "s", "-n", "2", "--payload").raw == b"1\n2\n"
    here("sub", "create", "sub.new", "s").refused("has a subscription s already")


def test_every_option_of_a_subscription_is_kept(here: Run) -> None:
    here("produce", "sub.options", given=b"1\n2\n3\n")
    waits = ["--ack-timeout", "5s", "--backoff", "10ms", "--backoff-max", "2m"]
    ends = ["--redeliveries", "0", "--exhausted", "drop"]
    globs = ["--only-type", "order.*", "--only-key", "c*"]
    made = here("sub", "create", "sub.options", "s", "--from", "1", "--type", "key_shared", *waits, *ends, *globs)
    assert made.code == 0, made.err
    (facts,) = here("sub", "describe", "sub.options", "s", "--json").rows
    assert facts["options"] == {
        "ack_timeout_ms": 5000,
        "backoff_ms": 10,
        "backoff_ms_max": 120_000,
        "redeliveries": 0,
        "exhausted": "drop",
        "filter": {"type": ["order.*"], "key": ["c*"]},
    }
    assert facts["type"] == "key_shared"
    shown = here("sub", "describe", "sub.options", "s").out
    for words in ("only type       order.*", "exhausted       drop", "key_shared", "no consumer is connected"):
        assert words in shown


@pytest.mark.parametrize("option", ["--type", "--sub-type"])
def test_type_is_the_type_of_the_subscription_and_filters_nothing(here: Run, option: str) -> None:
    topic = f"sub.typed{len(option)}"
    assert here("sub", "create", topic, "s", option, "shared").code == 0
    here("produce", topic, "--type", "order.created", given=b"1\n2\n")
    (facts,) = here("sub", "describe", topic, "s", "--json").rows
    assert (facts["type"], facts["options"]["filter"]) == ("shared", {"type": [], "key": []})
    assert here("consume", topic, "-s", "s", "-n", "2", "--payload").raw == b"1\n2\n"


def test_a_filter_that_settled_everything_is_said_in_the_list(here: Run) -> None:
    here("produce", "sub.filtered", "--type", "order.created", given=b"1\n2\n")
    here("sub", "create", "sub.filtered", "s", "--from", "earliest", "--only-type", "shared")
    assert here("consume", "sub.filtered", "-s", "s", "--payload").raw == b""
    (row,) = here("sub", "ls", "sub.filtered", "--json").rows
    assert row["state"][-1] == "its filter (types shared) has let none of 2 messages through, and settled them all"
    assert "has let none of 2 messages through" in here("sub", "describe", "sub.filtered", "s").out


def test_the_subscriptions_of_the_broker_itself_are_listed_only_when_asked_for(here: Run, at_keeper: str) -> None:
    with penstock.connect(at_keeper) as client:
        options = {"redeliveries": 0, "start": "earliest"}
        with client.consumer("sub.dead", "s", **options) as consumer, client.producer("sub.dead") as producer:
            producer.send(b"bad")
            message = consumer.receive(timeout=20)
            assert message is not None
            consumer.nack(message)
            consumer.flush()
            eventually(lambda: here("dlq", "show", "sub.dead", "--json").raw, "a dead letter")
            client.ask("system.deadletter.drop", {"topic": "sub.dead", "type": "none of them"})
    dead = "/default-dlq/sub.dead"
    assert here("sub", "ls", dead, "--json").rows == []
    (row,) = here("sub", "ls", dead, "--all", "--json").rows
    assert (row["subscription"], row["internal"], row["lag"]) == ("redrive", True, 1)
    assert dead not in here("top", "--once").out.partition("subscriptions by lag")[2]


def test_describing_says_why_it_does_not_move(here: Run, start: Start, at_keeper: str) -> None:
    here("sub", "create", "sub.why", "s", "--redeliveries", "0", "--exhausted", "block")
    assert "no consumer is connected" in here("sub", "describe", "sub.why", "s").out
    with start("consume", "sub.why", "-s", "s", "--follow") as process:
        said(process.stderr, "consuming")
        shown = here("sub", "describe", "sub.why", "s").out
        assert "caught up" in shown
        assert "consumers" in shown
        ended(process)
    here("produce", "sub.why", given=b"poison\nfine\n")
    with penstock.connect(at_keeper) as client, client.consumer("sub.why", "s") as consumer:
        message = consumer.receive(timeout=20)
        assert message is not None
        consumer.nack(message, reason="cannot be read")
        shown = here("sub", "describe", "sub.why", "s").out
        assert "blocked on poison offset 0 of partition 0" in shown
        assert "(cannot be read): skip it" in shown
    assert here("sub", "skip", "sub.why", "s", "0").out == "s of sub.why: offset 0 skipped\n"
    assert lag(here, "sub.why", "s") == 1
    assert "acked above" in here("sub", "describe", "sub.why", "s").out


def test_all_subscriptions_are_listed_or_those_of_a_topic(here: Run) -> None:
    assert here("topic", "create", "sub.empty").code == 0
    assert here("sub", "ls", "sub.empty").out.startswith("no subscriptions yet")
    assert here("sub", "ls", "sub.empty", "--json").rows == []
    for name in ("b", "a"):
        here("sub", "create", "sub.listed", name)
    here("produce", "sub.listed", given=b"1\n")
    rows = here("sub", "ls", "sub.listed", "--json").rows
    assert [(row["subscription"], row["lag"], row["consumers"]) for row in rows] == [("a", 1, 0), ("b", 1, 0)]
    assert rows[0]["lag_seconds"] >= 0
    assert "no consumer is connected" in here("sub", "ls", "sub.listed").out
    assert {"a", "b"} <= {row["subscription"] for row in here("sub", "ls", "--json").rows}
    here("sub", "ls", "sub.nowhere").refused("there is no topic")


def test_seeking_goes_back_and_forward(here: Run) -> None:
    here("sub", "create", "sub.seek", "s")
    here("produce", "sub.seek", given=b"".join(b"%d\n" % number for number in range(10)))
    (answer,) = here("sub", "seek", "sub.seek", "s", "7", "--json").rows
    assert answer == {"subscription": "s", "positions": {"0": 7}}
    assert lag(here, "sub.seek", "s") == 3
    assert here("sub", "seek", "sub.seek", "s", "earliest").out == "s of sub.seek: partition 0 goes on at offset 0\n"
    assert lag(here, "sub.seek", "s") == 10
    here("sub", "seek", "sub.seek", "s", "2200-01-01", "--partition", "0")
    assert lag(here, "sub.seek", "s") == 0
    here("sub", "seek", "sub.seek", "s", "11").refused("OFFSET_OUT_OF_RANGE")
    here("sub", "seek", "sub.seek", "s", "soon").refused("no place in a log")
    here("sub", "seek", "sub.seek", "s", "0", "--partition", "1").refused("partitions 0 to 0, not 1")


def test_an_offset_belongs_to_a_partition(here: Run) -> None:
    here("topic", "create", "sub.parts", "--partitions", "2")
    here("sub", "create", "sub.parts", "s")
    here("produce", "sub.parts", "--batch", "1", given=b"1\n2\n3\n4\n")
    here("sub", "seek", "sub.parts", "s", "1").refused("2 partitions", "name the partition")
    assert here("sub", "seek", "sub.parts", "s", "1", "--partition", "1").code == 0
    assert here("sub", "skip", "sub.parts", "s", "1", "--partition", "1").code == 0
    (facts,) = here("sub", "describe", "sub.parts", "s", "--json").rows
    assert [lane["floor"] for lane in facts["partitions"]] == [0, 2]
    here("sub", "skip", "sub.parts", "s", "1", "--partition", "2").refused("partition 2")
    here("sub", "skip", "sub.parts", "s", "2", "--partition", "1").refused("no offset 2 yet")


def test_paused_means_that_nothing_is_delivered(here: Run) -> None:
    here("sub", "create", "sub.paused", "s")
    assert here("sub", "pause", "sub.paused", "s").out == "s of sub.paused: paused\n"
    assert "paused: resume it" in here("sub", "describe", "sub.paused", "s").out
    (row,) = here("sub", "resume", "sub.paused", "s", "--json").rows
    assert row == {"topic": "sub.paused", "subscription": "s", "done": "resumed"}
    assert "paused" not in here("sub", "describe", "sub.paused", "s").out.replace("sub.paused", "")


def test_deleting_asks(here: Run) -> None:
    here("sub", "create", "sub.gone", "s")
    here("produce", "sub.gone", given=b"1\n")
    asked = here("sub", "delete", "sub.gone", "s", given=b"no\n")
    assert (asked.code, asked.out) == (2, "")
    assert "s of /default/sub.gone has 1 message to go and 0 consumers. Delete" in asked.err
    assert here("sub", "delete", "sub.gone", "s", given=b"y\n").out == "s of sub.gone: deleted\n"
    here("sub", "delete", "sub.gone", "s", "--yes").refused("has no subscription s")
    here("sub", "create", "sub.gone", "s")
    assert here("sub", "delete", "sub.gone", "s", "-y", "--json").rows[0]["done"] == "deleted"


@pytest.mark.parametrize("command", ["describe", "pause", "resume", "delete", "seek", "skip"])
def test_what_is_not_there_is_said(here: Run, command: str) -> None:
    rest = {"seek": ["latest"], "skip": ["0"]}.get(command, [])
    here("topic", "create", "sub.there")
    here("sub", command, "sub.there", "nobody", *rest).refused("has no subscription nobody")
    here("sub", command, "sub.missing", "s", *rest).refused("there is no topic")
    here("sub", command, "a b", "s", *rest).refused("topic")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--type", "some"], "--only-type some"),
        (["--sub-type", "some"], "exclusive, failover, shared, key_shared"),
        (["--from", "soon"], "no place in a log"),
        (["--from", "5"], "OFFSET_OUT_OF_RANGE"),
        (["--ack-timeout", "x"], "span of time"),
        (["--ack-timeout", "0s"], "ack_timeout_ms"),
        (["--backoff", "2m", "--backoff-max", "1m"], "backoff_ms"),
        (["--backoff-max", "2d"], "backoff_ms_max"),
        (["--redeliveries", "1001"], "redeliveries"),
        (["--exhausted", "explode"], "dead_letter, block, drop"),
        (["--only-type", "t" * 256], "types"),
        (["--only-key", ""], "keys"),
    ],
)
def test_an_option_that_cannot_be_is_refused(here: Run, options: list[str], words: str) -> None:
    here("sub", "create", "sub.bad", "s", *options).refused(words)
    here("topic", "create", "sub.bad")
    assert here("sub", "ls", "sub.bad", "--json").rows == []


@pytest.mark.parametrize("name", ["", "a b", "-x", "é", "n" * 129])
def test_a_name_that_is_none_is_refused(here: Run, name: str) -> None:
    done = here("sub", "create", "sub.named", "--", name)
    assert done.code == 2
    assert here("sub", "skip", "sub.named", "s", "--", "-1").code == 2
