"""Progress reports of readers of the log's files: their cursors, beside consumers and retention."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker.conftest import Keeping
from tests.broker.kit import ID2, Peer, World
from tests.broker.subscriptions.test_service import SMALL, cursor, describe, fill
from tests.broker.topics.test_publisher import refused

from penstock.core.errors import DiskFull
from penstock.record.message import Message

pytestmark = pytest.mark.slow  # hundreds of brokers, or a real one, and a disk


def report(peer: Peer, topic: str = "a", name: str = "s", **positions: int) -> Any:
    """Report positions; `p0=7` is the next offset of partition 0."""
    given_ = {number.removeprefix("p"): offset for number, offset in positions.items()}
    return peer.ask("system.subscription.report", {"topic": topic, "subscription": name, "positions": given_})


def test_the_first_report_makes_a_subscription_and_later_ones_move_it(kept: World) -> None:
    ann = fill(kept, 10)
    assert report(ann, p0=4) == {"subscription": "s", "positions": {"0": 4}, "lag": 6}
    assert report(ann, p0=9) == {"subscription": "s", "positions": {"0": 9}, "lag": 1}
    found = describe(ann)
    assert (found["type"], found["lag"], found["partitions"][0]["floor"]) == ("exclusive", 1, 9)
    assert found["state"][0].startswith("read elsewhere, which is reported: last at ")
    ann.append("a", b"more")
    assert describe(ann)["lag"] == 2


def test_what_was_answered_is_on_disk(kept: World) -> None:
    ann = fill(kept, 10)
    report(ann, p0=4)
    assert cursor(kept) == (4, [], {})
    report(ann, p0=7)
    assert cursor(kept) == (7, [], {})
    kept.restart(reopen=True)
    ann = kept.connect()
    assert describe(ann)["lag"] == 3
    assert describe(ann)["state"][0].startswith("read elsewhere, which is reported: last at ")
    assert report(ann, p0=8)["lag"] == 2


def test_a_place_never_goes_back_and_never_past_the_end(kept: World) -> None:
    ann = fill(kept, 10)
    report(ann, p0=6)
    assert report(ann, p0=2)["positions"] == {"0": 6}
    assert report(ann, p0=99)["positions"] == {"0": 10}
    ann.append("a", b"more")
    assert describe(ann)["lag"] == 1


@given(st.lists(st.integers(0, 15), max_size=6))
def test_the_place_is_the_farthest_that_was_reported(places: list[int]) -> None:
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        world = World(root=Path(folder) / "data")
        try:
            ann = fill(world, 12)
            for number, place in enumerate(places, 1):
                assert report(ann, p0=place)["positions"] == {"0": min(12, max(places[:number]))}
                world.check()
        finally:
            world.close()


def test_each_partition_has_a_place_and_those_not_spoken_of_begin_at_the_beginning(kept: World) -> None:
    ann = kept.connect()
    ann.ask("system.topic.create", {"topic": "a", "partitions": 3})
    ann.append("a", *(Message(payload=b"%d" % number, key=b"%d" % number, type="t") for number in range(30)))
    ends = [int(log.next_offset) for log in kept.topic("a").logs]
    assert min(ends) > 2
    assert report(ann, p1=2)["positions"] == {"0": 0, "1": 2, "2": 0}
    assert report(ann, p0=1, p2=ends[2])["positions"] == {"0": 1, "1": 2, "2": ends[2]}


def test_a_consumer_that_is_connected_is_left_alone(kept: World) -> None:
    ann, bob = fill(kept, 5), kept.connect()
    bob.consume("a", subscription="s", since="earliest", consumer="bob")
    assert "consumed by bob" in refused(report(ann, p0=5), "NOT_OWNER")
    assert describe(ann)["lag"] == 5
    bob.call("ack", "a", {"subscription": "s", "offsets": [0, 2]}, request_id=ID2)
    bob.leave()
    assert report(ann, p0=2)["lag"] == 2
    assert cursor(kept) == (3, [], {})


def test_a_consumer_goes_on_where_the_reports_ended(kept: World) -> None:
    ann, bob = fill(kept, 5), kept.connect()
    report(ann, p0=3)
    bob.consume("a", subscription="s", consumer="bob")
    assert bob.payloads() == [b"3", b"4"]


def test_others_are_not_moved(kept: World) -> None:
    ann = fill(kept, 5)
    report(ann, name="one", p0=2)
    report(ann, name="two", p0=4)
    assert (describe(ann, name="one")["lag"], describe(ann, name="two")["lag"]) == (3, 1)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"subscription": "no name!"}, "a subscription's name has"),
        ({"subscription": "reader~1"}, "a subscription's name has"),
        ({"positions": None}, "positions are the next offsets"),
        ({"positions": {}}, "positions are the next offsets"),
        ({"positions": [5]}, "positions are the next offsets"),
        ({"positions": {"1": 5}}, "has partitions 0 to 0, not '1'"),
        ({"positions": {"00": 5}}, "has partitions 0 to 0, not '00'"),
        ({"positions": {"0": -1}}, "-1"),
        ({"positions": {"0": "5"}}, "5"),
        ({"positions": {"0": True}}, "True"),
        ({"extra": 1}, "Unknown option 'extra'"),
        ({"topic": "nowhere"}, "nowhere"),
        ({"topic": "no name!"}, "no name!"),
    ],
)
def test_every_wrong_way_to_report_is_refused_and_changes_nothing(
    kept: World, fields: dict[str, Any], words: str
) -> None:
    ann = fill(kept, 5)
    asked = {"topic": "a", "subscription": "s", "positions": {"0": 1}} | fields
    error = ann.ask("system.subscription.report", asked)["error"]
    assert words in error["message"]
    assert kept.data.catalog.list_subscriptions() == ()


def test_a_live_topic_keeps_no_place(kept: World) -> None:
    ann = kept.connect()
    ann.ask("system.topic.create", {"topic": "a", "dispatch": "live"})
    assert "is a live topic" in refused(report(ann, p0=1), "TOPIC_NOT_SUPPORTED")


def test_a_disk_without_room_is_told_and_the_next_report_works(kept: World) -> None:
    ann = fill(kept, 5)
    kept.hold()
    ann.post(b"request:system.subscription.report:1.0.0:%s\n" % ID2.encode() + POSITIONS)
    kept.do(error=DiskFull("no room"))
    assert refused(ann.answer(ID2), "DISK_FULL")
    kept.release()
    assert report(ann, p0=2)["lag"] == 3


POSITIONS = b'{"topic": "a", "subscription": "s", "positions": {"0": 1}}'


def test_a_topic_that_is_deleted_meanwhile_gets_no_subscription(kept: World) -> None:
    ann = fill(kept, 5)
    kept.hold()
    ann.post(b"request:system.subscription.report:1.0.0:%s\n" % ID2.encode() + POSITIONS)
    uid = kept.topic("a").uid
    ann.post(b'request:system.topic.delete:1.0.0\n{"topic": "a", "confirm": "%d"}' % uid)
    kept.release()
    assert "error" in ann.answer(ID2)


# retention


def later(world: World) -> Peer:
    """Let retention run once more, after silent connections were closed."""
    world.after(61_000)
    return world.connect()


def test_a_topics_retention_waits_for_what_is_reported(keeping: Keeping) -> None:
    kept = keeping(storage=SMALL)
    retention = {"count": 1, "keep_for": ["archive"]}
    ann = kept.connect()
    made = ann.ask("system.topic.create", {"topic": "a", "retention": retention})
    assert made["settings"] == {"retention": retention}
    for _ in range(20):
        ann.append("a", bytes(900))
    ann = later(kept)
    assert kept.log("a").first_offset == 0
    assert ann.ask("system.topic.describe", {"topic": "a"})["retention_awaits"] == ["archive"]
    report(ann, name="archive", p0=9)
    assert "retention_awaits" not in ann.ask("system.topic.describe", {"topic": "a"})
    ann = later(kept)
    assert 0 < kept.log("a").first_offset <= 9
    report(ann, name="archive", p0=20)
    ann = later(kept)
    assert kept.log("a").first_offset > 9
    assert ann.ask("system.topic.alter", {"topic": "a", "retention": {"count": 5}})["settings"] == {
        "retention": {"count": 5}
    }


@pytest.mark.parametrize("keep_for", [["no name!"], "archive", [5], ["s"] * 17, [""]])
def test_what_no_subscription_is_called_cannot_be_waited_for(kept: World, keep_for: object) -> None:
    ann = kept.connect()
    answer = ann.ask("system.topic.create", {"topic": "a", "retention": {"keep_for": keep_for}})
    assert "keep_for" in str(answer["error"])
