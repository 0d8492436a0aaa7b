"""Schema policies of topics: which messages are stored, which are marked, and why the others are rejected."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.broker.kit import ID2, Peer, World, block_of, code_of, error_of, numbered, own_id

from penstock.broker.base.effects import Append, RunInThread
from penstock.broker.topics.schema_policy import WARNING
from penstock.core.errors import DiskFull, ServiceUnavailable
from penstock.core.limits import ATTRIBUTE_BYTES_MAX, ATTRIBUTES_MAX
from penstock.record.block import Draft, parse_block
from penstock.record.message import Message, SchemaRef
from penstock.schema.languages import SchemaLanguages
from penstock.schema.steps import run_procedure

CLOSED = {"type": "object", "additionalProperties": False}
INTEGER, TEXT = {"type": "integer"}, {"type": "string"}
AGE = json.dumps({**CLOSED, "properties": {"age": INTEGER}, "required": ["age"]})
AGE_OR_NAME = json.dumps({**CLOSED, "properties": {"age": INTEGER, "name": TEXT}})
GOOD, BAD, BROKEN = b'{"age": 7}', b'{"age": "seven"}', b'{"age":'


@pytest.fixture
def world(kept: World) -> World:
    """A broker with a disk."""
    return kept


def register(peer: Peer, text: str = AGE, subject: str = "people-value") -> SchemaRef:
    found = peer.ask("system.schema.register", {"subject": subject, "type": "JSON", "schema": text})
    assert "error" not in found, found
    return SchemaRef(found["id"], found["version"])


def create(peer: Peer, topic: str = "people", **settings: Any) -> None:
    found = peer.ask("system.topic.create", {"topic": topic} | settings)
    assert "error" not in found, found


def enforced(peer: Peer, **settings: Any) -> SchemaRef:
    create(peer, schema_policy="enforce", **settings)
    return register(peer)


def message(payload: bytes = GOOD, schema: SchemaRef | None = None, **fields: Any) -> Message:
    return Message(payload=payload, schema=schema, **fields)


def number(answer: Any) -> int:
    return int(answer["error"]["details"]["registry_code"])


def refused(answer: Any) -> str:
    """Return the error that refused a block as a whole."""
    assert answer["error"]["code"] == "SCHEMA_REJECTED", answer
    return str(answer["error"]["message"])


def stored(world: World, topic: str = "people") -> list[tuple[bytes, SchemaRef | None]]:
    return [(each.message.payload, each.message.schema) for each in world.log(topic).records()]


# what is named


def test_a_topic_without_a_policy_takes_whatever_is_named(world: World, ann: Peer) -> None:
    create(ann)
    assert ann.append("people", message(BAD, SchemaRef(99, 3)), b"plain")["count"] == 2
    assert stored(world) == [(BAD, SchemaRef(99, 3)), (b"plain", None)]


@pytest.mark.parametrize(
    ("named", "reason"),
    [
        (None, "the message names no schema, and /default/people wants a version of 'people-value'"),
        (SchemaRef(99, 1), "schema 99 is not registered"),
        (SchemaRef(1, 0), "the message names schema 1 without its version, 1"),
        (SchemaRef(1, 2), "schema 1 is version 1 of 'people-value', not 2"),
        (SchemaRef(2, 1), "schema 2 is of 'others', and /default/people wants a version of 'people-value'"),
    ],
)
def test_what_does_not_name_a_version_of_the_topics_subject_is_refused_with_the_reason(
    world: World, ann: Peer, named: SchemaRef | None, reason: str
) -> None:
    enforced(ann)
    register(ann, AGE_OR_NAME, "others")
    assert refused(ann.append("people", message(schema=named))) == f"message 0 of the block: {reason}"
    assert stored(world) == []


def test_what_names_a_version_is_stored_with_it(world: World, ann: Peer) -> None:
    schema = enforced(ann, schema_payloads=False)
    assert ann.append("people", message(BROKEN, schema))["offset"] == 0
    assert stored(world) == [(BROKEN, schema)], "payloads are not looked at where nobody wants that"


def test_the_good_ones_of_a_block_are_stored_and_each_bad_one_is_refused_by_its_row(world: World, ann: Peer) -> None:
    schema = enforced(ann, schema_payloads=False)
    answer = ann.append("people", message(b"0", schema), b"1", message(b"2", schema), message(b"3", SchemaRef(9, 1)))
    assert [row[0] for row in answer["refused"]] == [1, 3]
    assert answer["refused"][1][1:] == ["schema 9 is not registered", ""]
    assert (answer["count"], answer["parts"][0][:3]) == (4, [0, 0, 2])
    assert [payload for payload, _ in stored(world)] == [b"0", b"2"]


def by_attributes(schema: SchemaRef) -> dict[str, str]:
    return {"schema_id": str(schema.id), "schema_version": str(schema.version), "other": "x"}


def test_a_message_may_name_its_schema_among_its_attributes(world: World, ann: Peer) -> None:
    one, two = enforced(ann), register(ann, AGE_OR_NAME)
    told = json.dumps({"attributes": by_attributes(two)}).encode()
    assert ann.call("message", "people", told + b"\n" + GOOD)["offset"] == 0
    several = [message(attributes=by_attributes(one)), message(schema=two, attributes=by_attributes(one)), message()]
    answer = ann.append("people", *several, message(attributes=by_attributes(two)))
    assert [row[0] for row in answer["refused"]] == [2]
    assert [schema for _, schema in stored(world)] == [two, one, two, two]
    assert next(world.log("people").records()).message.attributes == by_attributes(two)


def test_what_attributes_name_is_judged_like_any_other_name(ann: Peer) -> None:
    enforced(ann)
    unversioned = message(attributes={"schema_id": "1"})
    assert refused(ann.append("people", unversioned)).endswith("names schema 1 without its version, 1")
    unknown = message(attributes={"schema_id": "99", "schema_version": "1"})
    assert refused(ann.append("people", unknown)).endswith("schema 99 is not registered")


@pytest.mark.parametrize("text", ["", "0", "one", "-1", "+1", "1.0", "\u0661", str(2**63), "9" * 400])
def test_an_attribute_that_is_no_number_of_a_schema_names_none(world: World, ann: Peer, text: str) -> None:
    create(ann)
    ann.append("people", message(attributes={"schema_id": text, "schema_version": "1"}))
    assert stored(world) == [(GOOD, None)]


def test_the_attributes_of_a_message_count_more_than_the_topics_default(world: World, ann: Peer) -> None:
    one = enforced(ann, schema_default="latest")
    two = register(ann, AGE_OR_NAME)
    ann.append("people", message(attributes=by_attributes(one)), message())
    assert [schema for _, schema in stored(world)] == [one, two]


def test_several_subjects_and_a_name_of_its_own(world: World, ann: Peer) -> None:
    create(ann, schema_policy="enforce", schema_subjects=["orders", "returns"])
    one, other = register(ann, AGE, "orders"), register(ann, AGE_OR_NAME, "returns")
    assert "refused" not in ann.append("people", message(schema=one), message(schema=other))
    assert "'orders' or 'returns'" in refused(ann.append("people", message()))


def test_the_default_subject_of_another_namespace_bears_its_name(world: World, ann: Peer) -> None:
    create(ann, "/shop/people", schema_policy="enforce")
    schema = register(ann, subject="shop/people-value")
    assert ann.append("/shop/people", message(schema=schema))["offset"] == 0


def test_a_deprecated_version_is_refused_only_where_the_topic_says_so(world: World, ann: Peer) -> None:
    schema = enforced(ann)
    given = {"subject": "people-value", "version": 1, "message": "use 2"}
    assert ann.ask("system.schema.deprecate", given)["deprecated"] == "use 2"
    assert "refused" not in ann.append("people", message(schema=schema))
    ann.ask("system.topic.alter", {"topic": "people", "schema_deprecated": False})
    answer = refused(ann.append("people", message(schema=schema)))
    assert answer.endswith("version 1 of 'people-value' is deprecated: use 2")


def test_a_deleted_version_is_refused_and_one_that_is_brought_back_is_not(world: World, ann: Peer) -> None:
    schema = enforced(ann)
    assert ann.ask("system.schema.delete", {"subject": "people-value"}) == {"versions": [1]}
    assert "is deleted" in refused(ann.append("people", message(schema=schema)))
    assert ann.ask("system.schema.undelete", {"subject": "people-value"}) == {"versions": [1]}
    assert "refused" not in ann.append("people", message(schema=schema))


def test_a_version_counts_from_the_moment_it_is_registered_and_a_policy_from_when_it_is_set(
    world: World, ann: Peer
) -> None:
    create(ann)
    schema = register(ann)
    assert ann.append("people", b"anything")["offset"] == 0
    ann.ask("system.topic.alter", {"topic": "people", "schema_policy": "enforce"})
    assert refused(ann.append("people", b"anything"))
    later = register(ann, AGE_OR_NAME)
    assert "refused" not in ann.append("people", message(schema=schema), message(schema=later))
    ann.ask("system.topic.alter", {"topic": "people", "schema_policy": None})
    assert ann.append("people", b"anything")["offset"] == 3


# publish, message, and the default


def test_what_is_published_bears_the_topics_default_schema(world: World, ann: Peer) -> None:
    schema = enforced(ann, schema_default="latest", schema_payloads=False)
    assert ann.publish("people", GOOD)["offset"] == 0
    ann.send(*(f"publish:people:1.0.0:{own_id(each)}\nhi" for each in range(3)))
    later = register(ann, AGE_OR_NAME)
    assert ann.publish("people", GOOD)["offset"] == 4
    assert [named for _, named in stored(world)] == [schema] * 4 + [later]


def test_a_default_may_be_a_version_and_what_names_one_itself_keeps_that(world: World, ann: Peer) -> None:
    first = enforced(ann, schema_default=1)
    later = register(ann, AGE_OR_NAME)
    ann.append("people", GOOD, message(schema=later))
    assert [named for _, named in stored(world)] == [first, later]


def test_without_a_default_nothing_can_be_published_under_a_policy(world: World, ann: Peer) -> None:
    enforced(ann)
    assert "names no schema" in refused(ann.publish("people"))
    answers = ann.send(*(f"publish:people:1.0.0:{own_id(each)}\nhi" for each in range(3)))
    assert [code_of(each) for each in answers] == ["SCHEMA_REJECTED"] * 3
    assert stored(world) == []


def test_of_published_messages_each_is_answered_for_itself(world: World, ann: Peer) -> None:
    enforced(ann, schema_default="latest", schema_payloads=True)
    given = (GOOD, BAD, GOOD, BROKEN, BAD)
    answers = ann.send(*(f"publish:people:1.0.0:{own_id(n)}\n".encode() + each for n, each in enumerate(given)))
    found = {answer.partition("\n")[0][-1]: answer for answer in answers}
    assert {number: code_of(found[number]) for number in "134"} == dict.fromkeys("134", "SCHEMA_REJECTED")
    assert error_of(found["1"])["details"]["path"] == "/age"
    assert [json.loads(found[number].partition("\n")[2])["offset"] for number in "02"] == [0, 1]
    assert [payload for payload, _ in stored(world)] == [GOOD, GOOD]


def test_a_message_with_metadata_names_its_schema(world: World, ann: Peer) -> None:
    schema = enforced(ann, schema_payloads=True)
    line = json.dumps({"schema_id": schema.id, "schema_version": schema.version}).encode()
    assert ann.call("message", "people", line + b"\n" + GOOD)["offset"] == 0
    assert "/age" in refused(ann.call("message", "people", line + b"\n" + BAD))
    assert stored(world) == [(GOOD, schema)]


# payloads


def test_a_payload_is_held_against_the_version_it_names(world: World, ann: Peer) -> None:
    first = enforced(ann, schema_payloads=True)
    later = register(ann, AGE_OR_NAME)
    nobody = b"{}"
    answer = ann.append("people", message(nobody, later), message(nobody, first), message(GOOD, first))
    assert [row[0] for row in answer["refused"]] == [1]
    assert [each for each, _ in stored(world)] == [nobody, GOOD]


def test_blocks_stay_in_order_while_one_of_them_is_looked_at(world: World, ann: Peer) -> None:
    schema = enforced(ann, schema_payloads=True)
    world.hold()
    for number in range(3):
        payload = b'{"age": %d}' % number
        ann.post(f"append:people:1.0.0:{own_id(number + 1)}\n".encode() + block_of(message(payload, schema)))
    for work in world.works:
        world.do(work)
    assert len(world.inspections) == 3
    for inspection in reversed(world.inspections):
        world.do(inspection)
    assert len(world.appends) == 3
    world.release()
    assert [payload for payload, _ in stored(world)] == [b'{"age": %d}' % number for number in range(3)]


def test_where_nothing_can_be_looked_at_enforce_says_so_and_warn_takes_it(world: World, ann: Peer) -> None:
    schema = enforced(ann, schema_payloads=True)
    ann.append("people", message(schema=schema))
    world.hold()
    ann.post(f"append:people:1.0.0:{ID2}\n".encode() + block_of(message(schema=schema)))
    world.do(world.inspections[0], error=ServiceUnavailable("too many wait"))
    assert ann.answer(ID2)["error"]["code"] == "SERVICE_UNAVAILABLE"
    world.release()
    ann.ask("system.topic.alter", {"topic": "people", "schema_policy": "warn"})
    world.hold()
    ann.post(f"append:people:1.0.0:{ID2}\n".encode() + block_of(message(schema=schema)))
    world.do(world.inspections[0], error=ServiceUnavailable("too many wait"))
    world.release()
    assert ann.answer(ID2)["offset"] == 1
    (*_, last) = world.log("people").records()
    assert last.message.attributes[WARNING] == "it was not looked at: too many wait"


# warnings


def test_a_warning_takes_the_message_counts_it_and_marks_it(world: World, ann: Peer) -> None:
    create(ann, schema_policy="warn", schema_payloads=True)
    schema = register(ann)
    kept = {"attributes": {"a": "1"}, "key": b"k", "type": "t"}
    given = (message(GOOD, schema), message(BAD, schema, **kept), message(GOOD), message(GOOD, schema))
    answer = ann.append("people", *given)
    assert "refused" not in answer
    found = [each.message for each in world.log("people").records()]
    assert [each.payload for each in found] == [each.payload for each in given]
    assert [WARNING in each.attributes for each in found] == [False, True, True, False]
    assert found[1].attributes["a"] == "1"
    assert (found[1].key, found[1].type, found[1].schema) == (b"k", "t", schema)
    assert found[1].attributes[WARNING].startswith("at /age: ")
    found_metrics = ann.ask("system.metrics", {"filter": "^schema.*total"})["metrics"]
    assert found_metrics == {"schema.refused.total": 0, "schema.warned.total": 2}


# producers that count


def test_what_was_refused_is_refused_again_and_what_was_stored_is_recognised(world: World, ann: Peer) -> None:
    schema = enforced(ann, schema_payloads=True)
    producer = ann.register("people", name="p")

    def block() -> bytes:
        draft = Draft.of_payloads([GOOD, BAD, GOOD], schema=schema, producer_id=producer, first_request_id=1)
        return bytes(draft.data)

    first = ann.call("append", "people", block())
    assert [row[0] for row in first["refused"]] == [1]
    again = ann.call("append", "people", block())
    assert [row[0] for row in again["refused"]] == [1]
    assert again["duplicates"] == [[0, 0, 0], [2, 0, 1]]
    assert len(stored(world)) == 2


def test_what_is_stored_stays_so_when_it_is_sent_again_after_its_version_was_deleted(world: World, ann: Peer) -> None:
    schema = enforced(ann)
    producer = ann.register("people", name="p")
    block = bytes(Draft.of_payloads([GOOD], schema=schema, producer_id=producer, first_request_id=1).data)
    ann.call("append", "people", block)
    ann.ask("system.schema.delete", {"subject": "people-value"})
    assert ann.call("append", "people", block)["duplicate"] is True


def test_partitions_get_what_is_allowed_and_rows_keep_their_numbers(world: World, ann: Peer) -> None:
    schema = enforced(ann, partitions=3, schema_payloads=False)
    given = [message(b"%d" % each, schema if each % 2 else None, key=b"%d" % each) for each in range(20)]
    answer = ann.append("people", *given)
    assert [row[0] for row in answer["refused"]] == list(range(0, 20, 2))
    found = [payload for part in range(3) for payload in world.stored("people", part)]
    assert sorted(found, key=int) == [b"%d" % each for each in range(1, 20, 2)]


def test_a_block_that_waits_is_the_producers_and_who_takes_its_place_goes_on_behind_it(world: World, ann: Peer) -> None:
    schema = enforced(ann, schema_payloads=True)
    producer = ann.register("people", name="p")

    def block(first: int, payload: bytes) -> bytes:
        given = {"producer_id": producer, "first_request_id": first}
        return bytes(Draft.of_payloads([payload], schema=schema, **given).data)  # type: ignore[arg-type]

    ann.call("append", "people", block(1, b'{"age": 1}'))
    world.hold()
    ann.post(f"append:people:1.0.0:{ID2}\n".encode() + block(2, b'{"age": 2}'))
    bob = world.connect()
    bob.post(f"request:system.producer.register:1.0.0:{ID2}\n".encode() + b'{"topic": "people", "name": "p"}')
    while world.works:
        world.do(world.works[0])
    assert bob.answer(ID2)["last_request_id"] == 2
    world.release()
    assert bob.call("append", "people", block(3, b'{"age": 3}'))["duplicate"] is False
    assert [payload for payload, _ in stored(world)] == [b'{"age": %d}' % each for each in (1, 2, 3)]


def test_what_could_not_be_looked_at_is_not_overtaken(world: World, ann: Peer) -> None:
    schema = enforced(ann, schema_payloads=True)
    producer = ann.register("people", name="p")
    ann.append("people", message(schema=schema))
    world.hold()
    for number in (1, 2, 3):
        given = Draft.of_payloads([GOOD], schema=schema, producer_id=producer, first_request_id=number)
        ann.post(f"append:people:1.0.0:{own_id(number)}\n".encode() + bytes(given.data))
    world.do(world.inspections[0], error=ServiceUnavailable("too many wait"))
    world.release()
    found = [ann.answer(own_id(number)) for number in (1, 2, 3)]
    assert [each["error"]["code"] for each in found] == ["SERVICE_UNAVAILABLE"] * 3
    assert "comes first" in found[2]["error"]["message"]
    for number in (1, 2, 3):
        given = Draft.of_payloads([GOOD], schema=schema, producer_id=producer, first_request_id=number)
        assert ann.call("append", "people", bytes(given.data))["duplicate"] is False


def test_a_warning_for_which_there_is_no_room_is_left_out(world: World, ann: Peer) -> None:
    create(ann, schema_policy="warn")
    many = {f"a{number}": "" for number in range(ATTRIBUTES_MAX)}
    large = {"a": "x" * (ATTRIBUTE_BYTES_MAX - 10)}
    given = (message(attributes=many), message(attributes=large), message(attributes={"a": "1"}))
    assert ann.append("people", *given)["count"] == 3
    found = [each.message.attributes for each in world.log("people").records()]
    assert [WARNING in each for each in found] == [False, False, True]
    assert ann.append("people", message())["offset"] == 3


def test_only_the_broker_warns(world: World, ann: Peer) -> None:
    create(ann, schema_policy="warn")
    schema = register(ann)
    forged = {WARNING: "all is well", "a": "1"}
    ann.append("people", message(schema=schema, attributes=forged), message(attributes=forged))
    found = [each.message.attributes for each in world.log("people").records()]
    assert found[0] == {"a": "1"}
    assert found[1].keys() == {"a", WARNING}
    assert found[1][WARNING].startswith("the message names no schema")


def test_the_answer_to_very_many_refused_messages_fits_into_a_frame(world: World, ann: Peer) -> None:
    enforced(ann)
    payload = bytes(Draft.of_payloads([b""] * 30_000).data)
    answer = ann.call("append", "people", payload)
    refused = answer["error"]["details"]["refused"]
    assert len(refused) == 30_000
    assert [len(each) for each in refused[:300]] == [3] * 256 + [1] * 44


# uses


def test_a_schema_of_which_there_are_messages_is_not_deleted_for_good(world: World, ann: Peer) -> None:
    create(ann)
    schema = register(ann)
    ann.append("people", message(schema=schema))
    ann.ask("system.schema.delete", {"subject": "people-value"})
    answer = ann.ask("system.schema.delete", {"subject": "people-value", "permanent": True})
    assert answer["error"]["details"]["registry_code"] == 42206
    assert "topic /default/people" in answer["error"]["message"]


def test_a_schema_is_deleted_for_good_once_its_topic_is_gone(world: World, ann: Peer) -> None:
    create(ann)
    schema = register(ann)
    ann.append("people", message(schema=schema))
    token = ann.ask("system.topic.delete", {"topic": "people"})["confirm"]
    ann.ask("system.topic.delete", {"topic": "people", "confirm": token})
    ann.ask("system.schema.delete", {"subject": "people-value"})
    assert ann.ask("system.schema.delete", {"subject": "people-value", "permanent": True}) == {"versions": [1]}
    assert ann.ask("system.schema.get", {"id": schema.id})["error"]["details"]["registry_code"] == 40403


def with_messages_deleted(peer: Peer) -> Any:
    peer.ask("system.schema.delete", {"subject": "people-value"})
    return peer.ask("system.schema.delete", {"subject": "people-value", "permanent": True})


def test_a_schema_is_deleted_for_good_once_retention_has_taken_its_messages(world: World, ann: Peer) -> None:
    create(ann, retention={"count": 1}, segment_bytes_max=4096)
    schema = register(ann)
    ann.append("people", *[message(b"x" * 1000, schema)] * 3)
    assert number(with_messages_deleted(ann)) == 42206
    for _ in range(20):
        ann.append("people", b"x" * 1000)
    world.after(60_000)
    assert world.log("people").first_offset > 3
    found = world.connect().ask("system.schema.delete", {"subject": "people-value", "permanent": True})
    assert found == {"versions": [1]}


def reported(peer: Peer, *, archive: bool) -> None:
    positions = {"topic": "people", "subscription": "lake", "positions": {"0": 1}}
    assert peer.ask("system.subscription.report", positions | {"archive": archive})["lag"] == 0


def topic_deleted(peer: Peer) -> None:
    token = peer.ask("system.topic.delete", {"topic": "people"})["confirm"]
    peer.ask("system.topic.delete", {"topic": "people", "confirm": token})


def test_a_schema_of_what_an_archive_has_is_not_deleted_for_good(world: World, ann: Peer) -> None:
    create(ann)
    ann.append("people", message(schema=register(ann)))
    reported(ann, archive=True)
    topic_deleted(ann)
    answer = with_messages_deleted(ann)
    assert number(answer) == 42206
    assert answer["error"]["message"].endswith("schema id 1 are kept in archive lake of /default/people")
    asked = {"subject": "people-value", "permanent": True, "archived": True}
    assert ann.ask("system.schema.delete", asked) == {"versions": [1]}


def test_whoever_only_reads_needs_no_schema(world: World, ann: Peer) -> None:
    create(ann)
    ann.append("people", message(schema=register(ann)))
    reported(ann, archive=False)
    topic_deleted(ann)
    assert with_messages_deleted(ann) == {"versions": [1]}


def test_what_an_archive_needs_is_noted_before_its_place_moves(world: World, ann: Peer) -> None:
    create(ann)
    ann.append("people", message(schema=register(ann)))
    world.hold()
    asked = {"topic": "people", "subscription": "lake", "positions": {"0": 1}, "archive": True}
    ann.post(f"request:system.subscription.report:1.0.0:{ID2}\n".encode() + json.dumps(asked).encode())
    world.do(error=DiskFull("no room"))
    assert ann.answer(ID2)["error"]["code"] == "DISK_FULL"
    world.release()
    assert ann.ask("system.subscription.list", {"topic": "people"})["subscriptions"] == []


def test_archived_is_about_what_is_deleted_for_good(ann: Peer) -> None:
    register(ann)
    answer = ann.ask("system.schema.delete", {"subject": "people-value", "archived": True})
    assert answer["error"]["details"] == {"field": "archived"}


def test_topics_that_keep_a_schema_are_named_whatever_their_numbers(world: World, ann: Peer) -> None:
    schema = register(ann)
    names = [f"t{letter}" for letter in "abcdefghijk"]
    for name in names:
        ann.append(name, message(schema=schema))
    said = with_messages_deleted(ann)["error"]["message"].partition(" are kept in ")[2]
    assert sorted(said.split(", ")) == [f"topic /default/{name}" for name in names]


@pytest.mark.parametrize("waits_for", ["the note", "the inspection", "the log"])
def test_a_schema_of_which_messages_are_on_their_way_is_not_deleted_for_good(
    world: World, ann: Peer, waits_for: str
) -> None:
    create(ann, schema_policy="warn", schema_payloads=True)
    schema = register(ann)
    ann.ask("system.schema.delete", {"subject": "people-value"})
    bob = world.connect()
    world.hold()
    ann.post(f"append:people:1.0.0:{ID2}\n".encode() + block_of(message(schema=schema)))
    if waits_for != "the note":
        world.do(world.works[0])
    if waits_for == "the log" and world.inspections:
        world.do(world.inspections[0])
    asked = {"subject": "people-value", "permanent": True}
    bob.post(f"request:system.schema.delete:1.0.0:{ID2}\n".encode() + json.dumps(asked).encode())
    world.release()
    assert number(bob.answer(ID2)) == 42206
    assert stored(world) == [(GOOD, schema)]


def test_a_schema_that_is_gone_before_its_use_is_noted_is_as_if_it_had_never_been(world: World, ann: Peer) -> None:
    schema = enforced(ann, schema_payloads=False)
    world.hold()
    ann.post(f"append:people:1.0.0:{ID2}\n".encode() + block_of(message(schema=schema)))
    (note,) = world.works
    world.open.clear()
    assert world.broker.durable is not None
    for permanent in (False, True):
        run_procedure(
            world.broker.durable.registry.delete_subject("people-value", permanent=permanent), SchemaLanguages()
        )
    world.open.append(note)
    world.release()
    assert "is not registered" in refused(ann.answer(ID2))


def test_blocks_behind_a_use_that_cannot_be_noted_are_refused_with_it(world: World, ann: Peer) -> None:
    create(ann)
    schema = register(ann)
    world.hold()
    for each in (1, 2):
        ann.post(f"append:people:1.0.0:{own_id(each)}\n".encode() + block_of(message(schema=schema)))
    ann.post(f"append:people:1.0.0:{own_id(3)}\n".encode() + block_of(b"plain"))
    world.do(error=DiskFull("no room"))
    world.release()
    assert [ann.answer(own_id(each))["error"]["code"] for each in (1, 2)] == ["DISK_FULL"] * 2
    assert ann.answer(own_id(3))["offset"] == 0


def test_a_use_is_durable_before_the_first_message_is_stored(world: World, ann: Peer) -> None:
    create(ann)
    schema = register(ann)
    world.hold()
    ann.post(f"append:people:1.0.0:{ID2}\n".encode() + block_of(message(schema=schema)))
    assert [type(each) for each in world.open] == [RunInThread]
    world.do()
    assert [type(each) for each in world.open] == [Append]
    world.release()
    world.hold()
    ann.post(f"append:people:1.0.0:{own_id(7)}\n".encode() + block_of(message(schema=schema)))
    assert [type(each) for each in world.open] == [Append], "once is enough"


def test_a_use_that_cannot_be_noted_refuses_the_block_and_the_next_one_tries_again(world: World, ann: Peer) -> None:
    create(ann)
    schema = register(ann)
    world.hold()
    ann.post(f"append:people:1.0.0:{ID2}\n".encode() + block_of(message(schema=schema)))
    world.do(error=DiskFull("no room"))
    assert ann.answer(ID2)["error"]["code"] == "DISK_FULL"
    ann.post(f"append:people:1.0.0:{ID2}\n".encode() + block_of(message(schema=schema)))
    world.release()
    assert ann.answer(ID2)["offset"] == 0


def test_dead_letters_keep_their_schema_whatever_policy_their_topic_has(world: World, ann: Peer) -> None:
    schema = enforced(ann)
    create(ann, "/default-dlq/people", schema_policy="enforce")
    ann.append("people", message(schema=schema))
    ann.consume("people", subscription="s", since="earliest", redeliveries=0, exhausted="dead_letter")
    ann.call("nack", "people", {"subscription": "s", "offsets": [0], "reason": "no"}, request_id=ID2)
    assert stored(world, "/default-dlq/people") == [(GOOD, schema)]


# bad settings


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"schema_subjects": []}, "1 to 16 subjects"),
        ({"schema_subjects": ["a\x00b"]}, "control character"),
        ({"schema_subjects": ["x"] * 17}, "1 to 16 subjects"),
        ({"schema_subjects": [":.there:x"]}, "context"),
        ({"schema_subjects": "x"}, "Expected `array"),
        ({"schema_default": "newest"}, "a version or 'latest'"),
        ({"schema_default": 0}, "from 1"),
        ({"schema_payloads": "yes"}, "bool"),
        ({"schema_policy": "strict"}, "one of none, warn, enforce"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(ann: Peer, settings: dict[str, Any], words: str) -> None:
    answer = ann.ask("system.topic.create", {"topic": "people"} | settings)
    assert words in answer["error"]["message"]


def test_a_live_topic_has_no_policy(ann: Peer) -> None:
    live = {"topic": "people", "dispatch": "live"}
    answer = ann.ask("system.topic.create", live | {"schema_policy": "warn"})
    assert answer["error"]["details"] == {"field": "schema_policy"}
    ann.ask("system.topic.create", live)
    answer = ann.ask("system.topic.alter", {"topic": "people", "schema_policy": "enforce"})
    assert "no schema policy" in answer["error"]["message"]


def test_a_live_topic_takes_nothing_about_schemas_from_its_namespace(ann: Peer) -> None:
    wanted = {"schema_policy": "enforce", "schema_subjects": ["all"], "schema_payloads": True, "redeliveries": 2}
    ann.ask("system.namespace", {"namespace": "shop"} | wanted)
    live = ann.ask("system.topic.create", {"topic": "/shop/live", "dispatch": "live"})
    assert live["settings"] == {"retention": {}, "redeliveries": 2}
    assert ann.ask("system.topic.alter", {"topic": "/shop/live", "rate_max": 6})["settings"]["rate_max"] == 6
    kept = ann.ask("system.topic.create", {"topic": "/shop/kept"})
    assert kept["settings"] == {"retention": {}} | wanted


def test_numbered_blocks_of_a_topic_without_a_policy_are_as_before(world: World, ann: Peer) -> None:
    create(ann)
    producer = ann.register("people")
    assert ann.call("append", "people", numbered(producer, 1, b"a", b"b"))["count"] == 2
    assert [record.message.payload for record in parse_block(block_of(b"a"))] == [b"a"]
