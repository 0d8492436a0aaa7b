from __future__ import annotations

from typing import Any

import pytest
from tests.broker.conftest import Keeping
from tests.broker.kit import Peer, World

from penstock.broker.base.effects import Effect
from penstock.broker.topics.publish_batch import MessageNumbers, StoredAt
from penstock.broker.topics.topics import AutoCreate
from penstock.core.errors import (
    DiskFull,
    InvalidRequest,
    NotOwner,
    PayloadTooLarge,
    PenstockError,
    QuotaExceeded,
    SchemaRejected,
    TopicNotSupported,
)
from penstock.core.names import TopicName
from penstock.record.block import Draft, parse_block
from penstock.record.message import Message, SchemaRef
from penstock.storage.producer_windows import WINDOW

SCHEMA = '{"type": "object", "required": ["order"]}'


class Posts:
    """A batch publisher with a record of posts and answers."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.answers: list[Any] = []

    def __call__(
        self, *payloads: bytes, topic: str = "t", numbered: MessageNumbers | None = None, **fields: Any
    ) -> Any:
        messages = [Message(payload=each, type="t", **fields) for each in payloads]
        return self.messages(messages, topic=topic, numbered=numbered)

    def messages(self, messages: Any, *, topic: str = "t", numbered: MessageNumbers | None = None) -> Any:
        """Return the answer, None if it has not come."""
        assert self.world.broker.durable is not None
        before = len(self.answers)
        posting = self.world.broker.durable.batch_publisher
        self.world.apply(posting.post(TopicName.parse(topic), messages, numbered, self._answer))
        return self.answers[-1] if len(self.answers) > before else None

    def _answer(self, outcome: Any) -> list[Effect]:
        self.answers.append(outcome)
        return []


def by_key(key: str, count: int = 1, principal: str = "anonymous") -> MessageNumbers:
    return MessageNumbers.by_key(key, count, principal)


@pytest.fixture
def post(kept: World) -> Posts:
    return Posts(kept)


def places(found: Any) -> list[tuple[int, int, bool]]:
    assert not isinstance(found, PenstockError), found
    return [(each.partition, each.offset, each.duplicate) for each in found]


def test_a_message_is_stored_and_its_place_is_told(kept: World, post: Posts) -> None:
    (place,) = post(b"one", key=b"k", attributes={"a": "b"})
    assert place == StoredAt(0, 0, next(iter(kept.log("t").records())).id, duplicate=False)
    (record,) = kept.log("t").records()
    assert (record.message.payload, record.message.key, record.message.attributes) == (b"one", b"k", {"a": "b"})


def test_a_message_that_is_posted_may_name_its_schema_among_its_attributes(kept: World, post: Posts) -> None:
    post(b"one", attributes={"schema_id": "7", "schema_version": "2"})
    post(b"two", attributes={"schema_id": "7"}, numbered=by_key("k"))
    assert [record.message.schema for record in kept.log("t").records()] == [SchemaRef(7, 2), SchemaRef(7, 0)]


def test_nothing_is_answered_before_it_is_on_disk(kept: World, post: Posts) -> None:
    post(b"first")
    kept.hold()
    assert post(b"second") is None
    kept.release()
    assert places(post.answers[-1]) == [(0, 1, False)]


def test_several_are_told_in_their_order_wherever_they_lie(kept: World, post: Posts) -> None:
    kept.connect().ask("system.topic.create", {"topic": "p", "partitions": 4})
    messages = [Message(payload=b"%d" % number, key=b"%d" % (number % 5), type="t") for number in range(20)]
    found = post.messages(messages, topic="p")
    for number, place in enumerate(found):
        record = next(iter(kept.log("p", place.partition).read(place.offset)))
        assert (record.message.payload, record.id) == (b"%d" % number, place.id)


def test_what_is_sent_again_with_the_same_key_is_stored_once_and_answered_the_same(kept: World, post: Posts) -> None:
    again = by_key("order-7")
    (first,) = post(b"x", numbered=again)
    (second,) = post(b"x", numbered=again)
    (other,) = post(b"x", numbered=by_key("order-8"))
    assert second == first._replace(duplicate=True)
    assert (other.offset, other.duplicate) == (1, False)


def test_a_key_is_known_after_a_restart_too(kept: World, post: Posts) -> None:
    (first,) = post(b"x", numbered=by_key("a"))
    kept.restart(reopen=True)
    (again,) = Posts(kept)(b"x", numbered=by_key("a"))
    assert again == first._replace(duplicate=True)


def test_a_batch_with_a_key_is_stored_once_as_a_whole(kept: World, post: Posts) -> None:
    kept.connect().ask("system.topic.create", {"topic": "p", "partitions": 3})
    batch = by_key("batch", 3)
    first = post(b"a", b"b", b"c", topic="p", numbered=batch)
    assert post(b"a", b"b", b"c", topic="p", numbered=batch) == [each._replace(duplicate=True) for each in first]
    assert sum(len(kept.stored("p", each)) for each in range(3)) == 3


def test_more_under_a_key_that_is_known_are_stored_whole_and_not_as_what_is_missing(kept: World, post: Posts) -> None:
    post(b"a", numbered=by_key("k", 1))
    longer = post(b"b", b"c", numbered=by_key("k", 2))
    assert places(longer) == [(0, 1, False), (0, 2, False)]
    assert places(post(b"b", b"c", numbered=by_key("k", 2))) == [(0, 1, True), (0, 2, True)]
    assert kept.stored("t") == [b"a", b"b", b"c"]


def test_a_key_is_that_of_who_sends_it(kept: World, post: Posts) -> None:
    found = [post(b"x", numbered=by_key("order-7", 1, each)) for each in ("key:ann", "key:bob", "key:ann")]
    assert [places(each)[0] for each in found] == [(0, 0, False), (0, 1, False), (0, 0, True)]


def test_a_batch_of_which_a_part_was_lost_is_completed(kept: World, post: Posts) -> None:
    """Fail the disk in the middle of several partitions."""
    kept.connect().ask("system.topic.create", {"topic": "p", "partitions": 2})
    messages = [Message(payload=b"%d" % number, key=b"%d" % number, type="t") for number in range(8)]
    batch = by_key("batch", 8)
    post.messages(messages[:1], topic="p")
    kept.hold()
    post.messages(messages, topic="p", numbered=batch)
    kept.do_works()
    one, other = kept.appends
    kept.do(one)
    kept.do(other, DiskFull("no room"))
    assert isinstance(post.answers[-1], DiskFull)
    kept.release()
    found = post.messages(messages, topic="p", numbered=batch)
    assert {each.duplicate for each in found} == {True, False}
    stored = [payload for each in range(2) for payload in kept.stored("p", each)]
    assert sorted(stored) == sorted(each.payload for each in (messages[0], *messages))


def test_many_keys_at_once_do_not_wait_for_each_other_and_the_same_one_does(kept: World, post: Posts) -> None:
    post(b"first", numbered=by_key("first"))
    kept.hold()
    for number in range(50):
        post(b"%d" % number, numbered=by_key(f"{number}"))
        post(b"%d" % number, numbered=by_key(f"{number}"))
    assert len(kept.appends) == 50
    kept.release()
    found = [places(each)[0] for each in post.answers[1:]]
    assert sorted(found) == sorted((0, number + 1, again) for number in range(50) for again in (False, True))


def test_a_refusal_for_now_holds_up_no_other_key(kept: World, post: Posts) -> None:
    post(b"first", numbered=by_key("first"))
    kept.hold()
    for number in range(20):
        post(b"x", numbered=by_key(f"{number}"))
    for each in kept.appends:
        kept.do(each, DiskFull("no room"))
    kept.release()
    again = [post(b"x", numbered=by_key(f"{number}")) for number in range(20)]
    assert [places(each)[0][2] for each in again] == [False] * 20


def test_numbers_of_a_producer_are_recognised_and_a_gap_is_none_of_our_business(kept: World, post: Posts) -> None:
    found = [post(b"%d" % each, numbered=MessageNumbers.by_number("p", each)) for each in (3, 9, 3, 4)]
    assert [places(each)[0][1:] for each in found] == [(0, False), (1, False), (0, True), (2, False)]
    (record, *_) = kept.log("t").records()
    assert (record.message.producer_name, record.message.request_id) == ("p", 3)


def test_a_name_that_a_connection_has_for_itself_is_not_used_by_others(kept: World, post: Posts) -> None:
    ann = kept.connect()
    ann.register("t", name="p")
    assert isinstance(post(b"x", numbered=MessageNumbers.by_number("p", 1)), NotOwner)
    ann.leave()
    assert places(post(b"x", numbered=MessageNumbers.by_number("p", 1))) == [(0, 0, False)]


@pytest.mark.parametrize("clean", [False, True], ids=["killed", "stopped"])
def test_a_name_belongs_to_the_principal_that_first_numbered_messages_under_it(
    kept: World, post: Posts, clean: bool
) -> None:
    def of(principal: str, number: int) -> Any:
        return post(b"of %s" % principal.encode(), numbered=MessageNumbers.by_number("till-3", number, principal))

    assert places(of("key:alice", 1)) == [(0, 0, False)]
    assert places(of("key:alice", 1)) == [(0, 0, True)]
    for _ in range(2):
        refused = of("key:mallory", 2)
        assert isinstance(refused, NotOwner)
        assert "belongs to another principal" in refused.message
        assert "alice" not in str(refused.as_dict()), "whose it is, is nobody's business"
        kept.restart(clean=clean, reopen=True)
    assert places(of("key:alice", 2)) == [(0, 1, False)]
    elsewhere = MessageNumbers.by_number("till-3", 1, "key:mallory")
    assert places(post(b"x", topic="other", numbered=elsewhere)) == [(0, 0, False)], "a name is of one topic"
    assert [record.message.payload for record in kept.log("t").records()] == [b"of key:alice"] * 2


def test_where_nobody_says_who_they_are_a_name_is_anybodys_until_somebody_does(kept: World, post: Posts) -> None:
    assert places(post(b"x", numbered=MessageNumbers.by_number("p", 1))) == [(0, 0, False)]
    assert places(post(b"x", numbered=MessageNumbers.by_number("p", 2, "key:ann"))) == [(0, 1, False)]
    assert isinstance(post(b"x", numbered=MessageNumbers.by_number("p", 3, "key:bob")), NotOwner)
    kept.data.delete_topic(TopicName.parse("t"))  # with its producers, and who they belonged to
    assert kept.data.catalog.producer_id(kept.data.create_topic(TopicName.parse("t")), "p", principal="key:bob")


def test_the_oldest_keys_are_forgotten_first_also_after_a_restart_with_several_partitions(
    kept: World, post: Posts
) -> None:
    kept.connect().ask("system.topic.create", {"topic": "p", "partitions": 2})
    size = WINDOW // 4
    for number in range(6):
        post(*[b"x"] * size, topic="p", numbered=by_key(f"{number}", size))
    kept.restart(reopen=True)
    again = Posts(kept)
    for number in (5, 4, 3):
        assert all(each.duplicate for each in again(*[b"x"] * size, topic="p", numbered=by_key(f"{number}", size)))


def test_the_id_of_a_duplicate_that_retention_took_is_not_known(kept: World, post: Posts) -> None:
    post(b"x", numbered=by_key("a"))
    post(b"y")
    kept.data.truncate_before(TopicName.parse("t"), 1)
    (again,) = post(b"x", numbered=by_key("a"))
    assert again == StoredAt(0, 0, None, duplicate=True)


def enforced(world: World) -> tuple[int, int]:
    ann = world.connect()
    made = ann.ask("system.schema.register", {"subject": "t-value", "type": "JSON", "schema": SCHEMA})
    ann.ask(
        "system.topic.create",
        {"topic": "t", "schema_policy": "enforce", "schema_payloads": True, "schema_default": "latest",
         "schema_subjects": ["t-value"]},
    )  # fmt: skip
    return made["id"], made["version"]


def test_of_a_batch_that_the_schema_does_not_allow_nothing_is_stored(kept: World, post: Posts) -> None:
    enforced(kept)
    found = post(b'{"order": 1}', b"{}", b'{"order": 2}')
    assert isinstance(found, SchemaRejected)
    assert found.message.startswith("message 1 of the block: ")
    assert kept.stored("t") == []
    assert places(post(b'{"order": 1}', b'{"order": 2}')) == [(0, 0, False), (0, 1, False)]


def test_a_refused_batch_is_refused_again_although_it_has_a_key(kept: World, post: Posts) -> None:
    enforced(kept)
    for _ in range(2):
        assert isinstance(post(b'{"order": 1}', b"{}", numbered=by_key("k", 2)), SchemaRejected)
    assert kept.stored("t") == []


def test_a_block_is_taken_as_it_is(kept: World, post: Posts) -> None:
    block = parse_block(
        Draft.of([Message(payload=b"%d" % number, type="t") for number in range(3)]).with_checksums().data
    )
    assert places(post.messages(block)) == [(0, 0, False), (0, 1, False), (0, 2, False)]
    numbered = by_key("block", 3)
    assert places(post.messages(block, numbered=numbered))[0] == (0, 3, False)
    assert places(post.messages(block, numbered=numbered))[0] == (0, 3, True)


def test_a_block_of_somebody_elses_producer_is_refused(kept: World, post: Posts) -> None:
    producer = kept.connect().register("t", name="p")
    block = parse_block(Draft.of([Message(payload=b"x", producer_id=producer, request_id=1)]).with_checksums().data)
    assert isinstance(post.messages(block), NotOwner)


@pytest.mark.parametrize(
    ("topic", "error"), [("system.topic.list", TopicNotSupported), ("live", TopicNotSupported)], ids=["system", "live"]
)
def test_what_keeps_nothing_takes_nothing(kept: World, post: Posts, topic: str, error: type[PenstockError]) -> None:
    kept.connect().ask("system.topic.create", {"topic": "live", "dispatch": "live"})
    assert isinstance(post(b"x", topic=topic), error)


def test_a_topic_is_created_by_the_same_rule_as_everywhere(keeping: Keeping) -> None:
    assert places(Posts(keeping())(b"x", topic="new")) == [(0, 0, False)]
    assert isinstance(Posts(keeping(auto_create=AutoCreate.OFF))(b"x", topic="new"), TopicNotSupported)
    assert isinstance(Posts(keeping(auto_create=AutoCreate.LIVE))(b"x", topic="new"), TopicNotSupported)


def test_what_cannot_be_stored_is_told_with_its_place(kept: World, post: Posts) -> None:
    found = post.messages([Message(payload=b"x", type="t"), Message(payload=b"x", type="t" * 256)])
    assert isinstance(found, PayloadTooLarge)
    assert found.details["record"] == 1
    assert kept.broker.durable is not None
    assert kept.broker.durable.idle


def test_a_rate_is_kept_to(keeping: Keeping) -> None:
    world = keeping()
    world.connect().ask("system.topic.create", {"topic": "t", "rate_max": 1})
    post = Posts(world)
    answers = [post(b"x") for _ in range(5)]
    assert any(isinstance(each, QuotaExceeded) for each in answers)


@pytest.mark.parametrize(
    "make", [lambda: by_key(""), lambda: by_key("k" * 256), lambda: MessageNumbers.by_number("p", 0),
             lambda: MessageNumbers.by_number("", 1), lambda: MessageNumbers.by_number("p", 2**63)],
)  # fmt: skip
def test_what_numbers_nothing_is_refused(make: Any) -> None:
    with pytest.raises(InvalidRequest):
        make()


def test_live_subscribers_get_what_is_posted(kept: World, post: Posts) -> None:
    ann: Peer = kept.connect()
    ann.subscribe("t")
    post(b"hello")
    assert any("hello" in each for each in ann.take())


def test_what_live_subscribers_get_is_counted_whichever_way_it_came(kept: World, post: Posts) -> None:
    for peer in (kept.connect(), kept.connect()):
        peer.subscribe("t")
    metrics = kept.broker.metrics
    before = metrics.count("live.delivered")
    post(b"a", b"b")
    assert metrics.count("live.delivered") - before == 4, "the short way"
    post(b"c", b"d", b"e", numbered=MessageNumbers.by_number("till", 1))
    assert metrics.count("live.delivered") - before == 10
