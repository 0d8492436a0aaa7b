"""`penstock topic`, with a real broker."""

from __future__ import annotations

import pytest
from tests.cli.kit import Run

import penstock

pytestmark = pytest.mark.usefixtures("at_keeper")


def test_a_topic_is_created_listed_described_altered_and_deleted(here: Run) -> None:
    options = ["--partitions", "3", "--retention-age", "7d", "--retention-bytes", "10GiB", "--retention-count", "5"]
    more = ["--payload-bytes", "2KiB", "--segment-bytes", "1MiB", "--segment-age", "1h", "--rate", "9"]
    rest = ["--schema-policy", "warn", "--redeliveries", "0", "--exhausted", "drop"]
    (made,) = here("topic", "create", "/topics/all", *options, *more, *rest, "--json").rows
    assert made["settings"] == {
        "retention": {"age_ms": 604_800_000, "bytes": 10 << 30, "count": 5},
        "payload_bytes_max": 2048,
        "segment_bytes_max": 1 << 20,
        "segment_age_ms_max": 3_600_000,
        "rate_max": 9,
        "schema_policy": "warn",
        "redeliveries": 0,
        "exhausted": "drop",
    }
    (row,) = here("topic", "ls", "--namespace", "Topics", "--json").rows
    assert (row["topic"], row["partitions"], row["messages"], row["subscriptions"]) == ("/topics/all", 3, 0, 0)
    (altered,) = here("topic", "alter", "/topics/all", "--retention-age", "none", "--rate", "none", "--json").rows
    assert altered["settings"] == {name: value for name, value in made["settings"].items() if name != "rate_max"} | {
        "retention": {"bytes": 10 << 30, "count": 5}
    }
    shown = here("topic", "describe", "/Topics/All")
    for words in ("/topics/all", "10.0 GiB", "segment age        1h", "partition", "exhausted          drop"):
        assert words in shown.out
    assert here("topic", "delete", "/topics/all").out == "deleted /topics/all\n"
    here("topic", "describe", "/topics/all").refused("TOPIC_NOT_SUPPORTED", "/topics/all")


def test_what_is_not_given_does_not_change(here: Run) -> None:
    here("topic", "create", "topics.kept", "--retention-age", "500ms", "--exhausted", "block")
    shown = here("topic", "alter", "topics.kept", "--redeliveries", "7")
    shown_words = " ".join(shown.out.split())
    assert shown_words == "name /default/topics.kept retention age 500ms redeliveries 7 exhausted block"
    here("topic", "alter", "topics.kept").refused("nothing to change", "--retention-age")
    here("topic", "alter", "topics.kept", "--rate", "-1").refused("--rate: '-1' is not a whole number of at least 0")
    here("topic", "describe", "system.x").refused("/default/system.x is the broker's own, and keeps nothing")


def test_retention_can_be_told_whom_to_wait_for(here: Run, at_keeper: str) -> None:
    made = here("topic", "create", "topics.awaited", "--retention-count", "5", "--keep-for", "archive, audit", "--json")
    assert made.rows[0]["settings"] == {"retention": {"count": 5, "keep_for": ["archive", "audit"]}}
    shown = " ".join(here("topic", "describe", "topics.awaited").out.split())
    assert "keep for archive, audit" in shown
    assert "retention drops nothing until there is a subscription archive and a subscription audit" in shown
    with penstock.connect(at_keeper) as client:
        for name in ("archive", "audit"):
            asked = {"topic": "topics.awaited", "subscription": name, "positions": {"0": 0}}
            client.ask("system.subscription.report", asked)
    assert "drops nothing" not in here("topic", "describe", "topics.awaited").out
    (altered,) = here("topic", "alter", "topics.awaited", "--keep-for", "none", "--json").rows
    assert altered["settings"] == {"retention": {"count": 5}}
    here("topic", "alter", "topics.awaited", "--keep-for", "no name!").refused("a subscription's name has")


def test_deleting_says_what_would_be_lost_and_asks(here: Run, at_keeper: str) -> None:
    with penstock.connect(at_keeper) as client:
        client.publish("topics.full", b"x")
    asked = here("topic", "delete", "topics.full", given=b"\n")
    assert asked.code == 2
    assert "/default/topics.full would be lost with 1 message (" in asked.err
    assert "0 subscriptions. Delete? [y/N]" in asked.err
    assert "not confirmed" in asked.err
    assert here("topic", "delete", "topics.full").code == 2
    assert here("topic", "delete", "topics.full", given=b"yes\n").out == "deleted /default/topics.full\n"
    with penstock.connect(at_keeper) as client:
        client.publish("topics.full", b"x")
    deleted = here("topic", "delete", "topics.full", "--yes", "--json")
    assert deleted.rows == [{"topic": "/default/topics.full", "deleted": True}]
    here("topic", "delete", "topics.full", "-y").refused("there is no topic")


def test_every_page_of_topics_is_listed(at_keeper: str, here: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with penstock.connect(at_keeper) as client:
        names = [f"/paged/t{number:03}" for number in range(7)]
        for name in names:
            client.ask("system.topic.create", {"topic": name, "dispatch": "live"})
        pages: list[dict[str, object]] = []
        ask = client.ask

        def page(topic: str, facts: dict[str, object]) -> dict[str, object]:
            pages.append(dict(facts))
            found = ask(topic, facts)
            return {"topics": found["topics"][:3], "truncated": len(found["topics"]) > 3}

        monkeypatch.setattr(client, "ask", page)
        assert [each["topic"] for each in client.topics("paged")] == names
        assert [each.get("after") for each in pages] == [None, "/paged/t002", "/paged/t005"]
    assert here("topic", "ls", "--namespace", "paged").out.count("live") == 7
    assert here("topic", "ls", "--namespace", "empty").out.startswith("no topics yet")
    assert here("topic", "ls", "--namespace", "empty", "--json").rows == []
    assert "/paged/t006" in here("topic", "ls").out


def test_a_live_topic_is_described_without_partitions(here: Run) -> None:
    here("topic", "create", "topics.live", "--dispatch", "live")
    shown = here("topic", "describe", "topics.live")
    assert (shown.code, "partitions" in shown.out) == (0, False)


def test_a_namespace_has_defaults_for_new_topics(here: Run) -> None:
    assert "the broker's own" in here("topic", "namespace", "spaced").out
    (found,) = here("topic", "namespace", "Spaced", "--retention-age", "2d", "--rate", "5", "--json").rows
    assert found == {"namespace": "spaced", "settings": {"retention": {"age_ms": 172_800_000}, "rate_max": 5}}
    here("topic", "namespace", "spaced", "--retention-count", "9", "--rate", "none")
    (made,) = here("topic", "create", "/spaced/t", "--json").rows
    assert made["settings"] == {"retention": {"age_ms": 172_800_000, "count": 9}}
    shown = " ".join(here("topic", "namespace", "spaced").out.split())
    assert shown == "name spaced retention age 2d retention count 9"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--partitions", "0"], "partitions"),
        (["--partitions", "9999"], "from 1 to 1024"),
        (["--dispatch", "maybe"], "reliable or live"),
        (["--retention-age", "soon"], "--retention-age: 'soon' is not a span of time"),
        (["--retention-age", "0s"], "retention.age_ms"),
        (["--retention-bytes", "-1"], "--retention-bytes: '-1' is not a size"),
        (["--retention-count", "many"], "--retention-count: 'many' is not a whole number"),
        (["--retention-count", "99999999999999999999"], "not a whole number"),
        (["--payload-bytes", "2XB"], "--payload-bytes"),
        (["--payload-bytes", "0"], "payload_bytes_max"),
        (["--segment-bytes", "1"], "segment_bytes_max"),
        (["--segment-age", "1"], "--segment-age"),
        (["--rate", "1.5"], "--rate"),
        (["--rate", "0"], "rate_max"),
        (["--schema-policy", "strict"], "schema_policy"),
        (["--redeliveries", "1001"], "redeliveries"),
        (["--exhausted", "explode"], "exhausted"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_by_name(here: Run, options: list[str], words: str) -> None:
    here("topic", "create", "topics.bad", *options).refused(words)
    here("topic", "describe", "topics.bad").refused("there is no topic")


@pytest.mark.parametrize("name", ["a b", "1a", "/x", "//t", "../etc", "orders.+", "", "é", "\udcff", "a." * 6 + "a"])
def test_a_name_that_is_none_is_refused(here: Run, name: str) -> None:
    for command in ("create", "describe", "delete"):
        here("topic", command, name).refused()
    here("topic", "alter", name, "--rate", "1").refused()


def test_what_is_there_is_not_created_again(here: Run) -> None:
    assert here("topic", "create", "topics.twice").out == "created /default/topics.twice (reliable) with 1 partition\n"
    here("topic", "create", "Topics.Twice").refused("/default/topics.twice", "exists")
    here("topic", "create", "system.mine").refused()
    here("topic", "ls", "--namespace", "a b").refused("namespace 'a b'")
    here("topic", "namespace", "a b").refused("namespace 'a b'")
    assert here("topic", "describe", "topics.none", "--json").error["code"] == "TOPIC_NOT_SUPPORTED"
