from __future__ import annotations

import time
from typing import Any

import pytest
from tests.broker.conftest import Keeping
from tests.broker.kit import Peer, World

from penstock.broker.base.effects import Effect
from penstock.broker.reads import feed as module
from penstock.broker.reads.feed import (
    EVERYTHING,
    FeedRequest,
    Feeds,
    FeedSelection,
    FeedStart,
    compile_matcher,
    cursor_text,
)
from penstock.broker.reads.merge import MergedSlice
from penstock.broker.topics.topics import AutoCreate
from penstock.core.errors import InvalidRequest, OffsetOutOfRange, PenstockError, TopicNotSupported
from penstock.core.ids import parse_id, ticks_of_id
from penstock.core.names import TopicPattern
from penstock.core.positions import AtId, AtOffset, AtTime, Earliest, Latest, Position, parse_position
from penstock.record.message import Message


def feeds(world: World) -> Feeds:
    assert world.broker.durable is not None
    return world.broker.durable.feeds


class Answers(list[Any]):
    def __call__(self, outcome: Any) -> list[Effect]:
        self.append(outcome)
        return []


def wanted(topics: str = "#", **options: Any) -> FeedRequest:
    return FeedRequest(topics=TopicPattern.parse(topics), **options)


def start(world: World, place: Position, *, resumed: bool = False, topics: str = "#") -> Any:
    answers = Answers()
    world.apply(feeds(world).start(wanted(topics), place, resumed=resumed, reply=answers))
    (found,) = answers
    return found


def read(world: World, asked: FeedRequest, after: int = -1) -> list[bytes]:
    answers = Answers()
    found = feeds(world)
    world.apply(found.fetch(found.select(asked), {}, after=after, resumed=False, written=_same, reply=answers))
    (piece,) = answers
    return [row[5] for _, row in piece.rows]


def _same(piece: MergedSlice) -> MergedSlice:
    return piece


@pytest.fixture
def ann(kept: World) -> Peer:
    return kept.connect()


def test_a_feed_has_every_topic_of_its_pattern_and_no_dead_letters(kept: World, ann: Peer) -> None:
    for topic in ("orders.paid", "orders.sent", "/shop/orders.paid", "/default-dlq/orders.paid"):
        ann.publish(topic, topic.encode())
    assert read(kept, FeedRequest(topics=EVERYTHING)) == [b"orders.paid", b"orders.sent"]
    assert read(kept, wanted("orders.+")) == [b"orders.paid", b"orders.sent"]
    assert read(kept, wanted("/shop/#")) == [b"/shop/orders.paid"]
    assert read(kept, wanted("/default-dlq/#")) == [b"/default-dlq/orders.paid"]


def test_types_are_matched_by_an_expression(kept: World, ann: Peer) -> None:
    ann.append("t", Message(payload=b"1", type="order.created"), Message(payload=b"2", type="reorder"), b"3")
    assert read(kept, wanted(matcher="^order")) == [b"1"]
    assert read(kept, wanted(matcher="order")) == [b"1", b"2"]
    assert read(kept, wanted(matcher="^$")) == [b"3"]


@pytest.mark.parametrize("matcher", ["(", "a" * 257, "(?=a)", r"\1", "((a{100}){100}){100}"])
def test_what_is_no_expression_or_too_large_a_one_is_refused_by_name(matcher: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        compile_matcher(matcher)
    assert raised.value.details["field"] == "typeMatcher"


def test_an_expression_that_others_choke_on_takes_no_time() -> None:
    accept = compile_matcher("(a*)*b|(x+x+)+y")
    assert accept is not None
    began = time.thread_time()
    assert not accept("a" * 10_000)
    assert time.thread_time() - began < 5


def test_a_topic_that_may_come_to_be_is_waited_for_and_one_that_may_not_is_refused(
    kept: World, keeping: Keeping
) -> None:
    assert feeds(kept).select(wanted("later")).sources == ()
    kept.connect().publish("later", b"now")
    assert read(kept, wanted("later")) == [b"now"]
    strict = keeping(auto_create=AutoCreate.OFF)
    with pytest.raises(TopicNotSupported, match="there is no topic /default/later"):
        feeds(strict).select(wanted("later"))
    assert feeds(strict).select(wanted("later.#")).sources == ()


def test_one_partition_alone_is_read_and_one_that_is_not_there_is_refused(kept: World, ann: Peer) -> None:
    ann.ask("system.topic.create", {"topic": "parts", "partitions": 3})
    for number in range(6):
        ann.publish("parts", b"%d" % number)
    apart = [payload for each in range(3) for payload in read(kept, wanted("parts", partition=each))]
    assert sorted(apart) == read(kept, wanted("parts")) == [b"%d" % number for number in range(6)]
    with pytest.raises(InvalidRequest, match="partitions 0 to 2, not 3"):
        feeds(kept).select(wanted("parts", partition=3))


def test_who_begins_somewhere_is_behind_the_message_before_it(kept: World, ann: Peer) -> None:
    ids = [ticks_of_id(parse_id(ann.publish("t", b"x")["id"])) for _ in range(3)]
    assert start(kept, Earliest()) == FeedStart(-1)
    assert start(kept, Latest()) == FeedStart(ids[2])
    assert start(kept, AtId(id_of(kept, 1))) == FeedStart(ids[1] - 1)
    assert start(kept, AtOffset(1), topics="t") == FeedStart(ids[1] - 1)  # type: ignore[arg-type]
    assert start(kept, AtOffset(3), topics="t") == FeedStart(ids[2])  # type: ignore[arg-type]
    assert start(kept, AtTime(0)).after < ids[0]
    for late in ("5236-03-31T21:21:01Z", "9999-12-31T23:59:59Z"):
        assert cursor_text(start(kept, parse_position(late)).after).startswith("ffffffff-ffff-6ff"), "no id is newer"


def id_of(world: World, offset: int) -> bytes:
    return next(iter(world.log("t").read(offset))).id


def test_an_offset_that_is_not_there_is_told(kept: World, ann: Peer) -> None:
    ann.publish("t")
    assert isinstance(start(kept, AtOffset(7), topics="t"), OffsetOutOfRange)  # type: ignore[arg-type]
    ann.publish("u")
    with pytest.raises(InvalidRequest, match="from=OFFSET is a place in one partition"):
        start(kept, AtOffset(0))  # type: ignore[arg-type]


def test_who_comes_back_goes_on_behind_what_was_read(kept: World, ann: Peer) -> None:
    first, second = (ann.publish("t", b"%d" % number)["id"] for number in range(2))
    begin = start(kept, AtId(parse_id(first)), resumed=True)
    assert (begin.resumed, begin.ahead) == (True, False)
    assert read(kept, wanted(), begin.after) == [b"1"]
    assert read(kept, wanted(), start(kept, AtId(parse_id(second)), resumed=True).after) == []


def test_an_id_that_was_never_given_out_begins_at_the_end_and_says_so(kept: World, ann: Peer) -> None:
    ann.publish("t")
    later = parse_id("ffffffff-ffff-6fff-8000-000000000000")
    begin = start(kept, AtId(later), resumed=True)
    assert begin == FeedStart(feeds(kept).frontier, resumed=True, ahead=True)


def test_nothing_is_shown_before_the_disk_has_answered(kept: World, ann: Peer) -> None:
    ann.publish("t", b"first")
    woken = Answers()
    feeds(kept).wait(wanted("t"), woken)
    kept.hold()
    ann.post("publish:t:1.0.0\nsecond")
    frontier = feeds(kept).frontier
    assert read_now(kept) == [b"first"]
    assert woken == []
    kept.release()
    assert feeds(kept).frontier > frontier
    assert read(kept, wanted("t")) == [b"first", b"second"]
    assert woken == [None]


def read_now(world: World) -> list[bytes]:
    """Read while the disk is held back."""
    found = feeds(world)
    answers = Answers()
    (work,) = found.fetch(found.select(wanted("t")), {}, after=-1, resumed=False, written=_same, reply=answers)
    return [row[5] for _, row in work.run().rows]  # type: ignore[union-attr]


def test_what_was_selected_before_a_topic_came_to_be_ends_before_its_first_message(kept: World, ann: Peer) -> None:
    """A later read of these logs alone would step over messages of the new topic."""
    ann.publish("a", b"a0")
    before = feeds(kept).select(wanted())
    ann.publish("b", b"b0")
    ann.publish("a", b"a1")
    piece = fetched(kept, before)
    assert [row[5] for _, row in piece.rows] == [b"a0"]
    after = fetched(kept, feeds(kept).select(wanted()), piece.after)
    assert [row[5] for _, row in after.rows] == [b"b0", b"a1"]


def fetched(world: World, selection: FeedSelection, after: int = -1) -> MergedSlice:
    answers = Answers()
    world.apply(feeds(world).fetch(selection, {}, after=after, resumed=False, written=_same, reply=answers))
    found: MergedSlice = answers[0]
    return found


def test_who_begins_at_the_end_of_nothing_comes_back_to_it(kept: World, ann: Peer) -> None:
    begin = start(kept, Latest())
    told = AtId(parse_id(cursor_text(begin.after)))
    assert start(kept, told, resumed=True) == FeedStart(begin.after, resumed=True), "and is not ahead of anything"
    ann.publish("t", b"first")
    assert read(kept, wanted(), start(kept, told, resumed=True).after) == [b"first"]


def test_logs_are_named_once_for_all_who_read_them_whatever_types_they_want(kept: World, ann: Peer) -> None:
    for topic in ("a", "b"):
        ann.publish(topic)
    plain, matched = (feeds(kept).select(wanted(matcher=each)) for each in ("", "^x"))
    assert matched.sources is plain.sources
    assert feeds(kept).select(wanted("a")).sources[0] is plain.sources[0]


def test_what_is_remembered_of_choices_and_expressions_has_a_bound(
    kept: World, ann: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SELECTIONS_KEPT", 4)
    ann.publish("t0", b"x")
    for number in range(10):
        feeds(kept).select(wanted(f"t{number}", matcher=f"^{number}"))
        feeds(kept).select(wanted("t0"))
    assert len(feeds(kept)._sources_by_request) == 4
    assert (TopicPattern.parse("t0"), None) in feeds(kept)._sources_by_request, "the one that was asked for last stays"
    assert module._compile_cached.cache_info().maxsize == module._MATCHERS_KEPT


def test_who_waits_is_woken_once_and_only_for_topics_of_theirs(kept: World, ann: Peer) -> None:
    ann.publish("a")
    ann.publish("b")
    mine, theirs, gone = Answers(), Answers(), Answers()
    feeds(kept).wait(wanted("a"), mine)
    feeds(kept).wait(wanted("b"), theirs)
    feeds(kept).wait(wanted("a"), gone)()
    ann.publish("a")
    ann.publish("a")
    assert (mine, theirs, gone) == ([None], [], [])


def test_after_a_restart_all_that_the_logs_hold_can_be_read(kept: World, ann: Peer) -> None:
    last = [ann.publish(topic, topic.encode())["id"] for topic in ("a", "b")][-1]
    kept.restart(reopen=True)
    assert feeds(kept).frontier == ticks_of_id(parse_id(last))
    assert read(kept, wanted()) == [b"a", b"b"]


def test_a_topic_made_anew_is_read_from_its_beginning(kept: World, ann: Peer) -> None:
    first = ann.publish("t", b"old")["id"]
    ann.ask("system.topic.delete", {"topic": "t"})
    ann.publish("t", b"new")
    assert read(kept, wanted("t"), ticks_of_id(parse_id(first))) == [b"new"]


def test_a_live_topic_has_nothing_to_read(kept: World, ann: Peer) -> None:
    ann.ask("system.topic.create", {"topic": "live", "dispatch": "live"})
    with pytest.raises(PenstockError, match="is a live topic"):
        feeds(kept).select(wanted("live"))
