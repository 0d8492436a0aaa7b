"""Access enforcement: authentication, checks on every message and every delivery, and disconnection."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.kit import ID, ID2, Peer, World

from penstock.broker.access.policy import AccessPolicy, Binding, Decision, Operation, Principal
from penstock.broker.access_enforcement import UNKNOWN_MS_MAX
from penstock.broker.admin.access import parse_new_key
from penstock.broker.admin.operations import TOPICS
from penstock.broker.permissions import ACTION_PERMISSIONS, SYSTEM_TOPIC_PERMISSIONS
from penstock.core.errors import Unauthorized
from penstock.protocol.actions import ACTION_RULES, Action
from penstock.protocol.notices import ENDED
from penstock.storage.catalog.access import StoredBinding

_COMES_AND_GOES = ("system.client.authenticate", "system.heartbeat")


class Guarded(World):
    """A broker with access control and a disk, and a maker of keys."""

    def __init__(self, root: Path) -> None:
        super().__init__(root=root, access=AccessPolicy(enabled=True))
        self.noted: list[Decision] = []
        self.broker.access.audit = self.noted.append

    def key(self, name: str, *bindings: str, expires_ms: int | None = None) -> str:
        """Create a key in another process, which this broker sees at its next read of the catalog."""
        fields: dict[str, Any] = {"name": name, "bindings": list(bindings), "expires_ms": expires_ms}
        made, kept, granted = parse_new_key(fields, 0)
        self.data.catalog.access.add_key(kept, granted)
        self.after(1000)
        return made.text

    def peer(self, name: str, *bindings: str) -> Peer:
        peer = self.connect()
        answer = peer.ask("system.client.authenticate", {"token": self.key(name, *bindings)})
        assert answer == {"status": "success", "principal": f"key:{name}"}
        return peer


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Guarded]:
    world = Guarded(tmp_path / "data")
    yield world
    world.close()


def code(answer: Any) -> str:
    return str(answer["error"]["code"]) if isinstance(answer, dict) and "error" in answer else "OK"


# the table is whole


def test_every_action_and_every_system_topic_says_what_it_needs() -> None:
    assert ACTION_PERMISSIONS.keys() == set(Action)
    assert SYSTEM_TOPIC_PERMISSIONS.keys() == TOPICS.keys()


def test_only_who_comes_and_whether_one_lives_is_public() -> None:
    public = {topic for topic, rule in SYSTEM_TOPIC_PERMISSIONS.items() if rule.operation is Operation.PUBLIC}
    assert public == set(_COMES_AND_GOES)
    assert not [action for action, rule in ACTION_PERMISSIONS.items() if rule.operation is Operation.PUBLIC]


def test_whoever_has_not_said_who_they_are_is_told_so_whatever_they_send(guarded: Guarded) -> None:
    nobody = guarded.connect()
    for topic in TOPICS.keys() - set(_COMES_AND_GOES):
        assert code(nobody.ask(topic, {})) == "UNAUTHORIZED", topic
    for action in Action:
        if ACTION_RULES[action].from_client and action is not Action.RESPONSE:
            assert code(nobody.call(action.value, "orders", b"{}")) == "UNAUTHORIZED", action
    assert code(nobody.ask("system.nothing", {})) == "UNAUTHORIZED"
    assert code(nobody.call("subscribe", "system.#", {})) == "UNAUTHORIZED"
    assert nobody.ask("system.heartbeat") == {"status": "success"}
    assert nobody.closed is None
    assert [str(each.name) for each in guarded.broker.durable.topics] == []  # type: ignore[union-attr]


def test_whoever_is_known_and_has_no_role_is_forbidden_everything_that_needs_one(guarded: Guarded) -> None:
    bare = guarded.peer("bare")
    given = {"topic": "orders", "subject": "orders", "namespace": "default", "subscription": "s", "serviceId": ID}
    for topic, rule in SYSTEM_TOPIC_PERMISSIONS.items():
        if rule.operation in (Operation.PUBLIC, Operation.CONNECT):
            continue
        answer = code(bare.ask(topic, given | {"action": "publish", "levels": ["error"]}))
        if not rule.checked_by_handler:
            assert answer == "FORBIDDEN", topic
        else:  # a list of what one may see, which is nothing; or refused
            assert answer in ("FORBIDDEN", "INVALID_REQUEST", "OK"), topic
    for action in (Action.PUBLISH, Action.APPEND, Action.MESSAGE, Action.REQUEST, Action.SUBSCRIBE, Action.ACK):
        assert code(bare.call(action.value, "orders", b"{}")) == "FORBIDDEN", action
    assert code(bare.call("seek", "orders", {"subscription": "s", "position": "earliest"})) == "FORBIDDEN"


# whose a producer's name is


@pytest.mark.parametrize("access", ["exclusive", "shared"])
def test_a_producers_name_belongs_to_the_principal_that_first_used_it(guarded: Guarded, access: str) -> None:
    alice = guarded.peer("alice", "publisher@topic:orders", "admin")
    alice.ask("system.topic.create", {"topic": "orders"})
    mine = alice.ask("system.producer.register", {"topic": "orders", "name": "till", "access": access})
    mallory = guarded.peer("mallory", "publisher@topic:orders")
    for resume in (False, True):
        asked = {"topic": "orders", "name": "till", "access": access, "resume": resume}
        assert code(mallory.ask("system.producer.register", asked)) == "NOT_OWNER"
    assert code(mallory.ask("system.producer.register", {"topic": "orders", "name": "other"})) == "OK"
    guarded.restart(reopen=True)
    again = guarded.connect()
    again.ask("system.client.authenticate", {"token": guarded.key("eve", "publisher@topic:orders")})
    assert code(again.ask("system.producer.register", {"topic": "orders", "name": "till"})) == "NOT_OWNER"
    again = guarded.connect()
    again.ask("system.client.authenticate", {"token": guarded.key("alice")})  # a new key of the same name is the same
    found = again.ask("system.producer.register", {"topic": "orders", "name": "till"})
    assert found["producer_id"] == mine["producer_id"]


# what is written beside it


def test_a_schema_bears_the_name_of_the_service_or_of_the_credentials_that_registered_it(guarded: Guarded) -> None:
    peer = guarded.peer("ann", "admin")
    peer.ask("system.schema.register", {"subject": "a", "type": "STRING"})
    peer.ask("system.service.register", {"name": "billing", "description": "bills"})
    peer.ask("system.schema.register", {"subject": "b", "type": "STRING"})
    found = [peer.ask("system.schema.versions", {"subject": each})["versions"][0] for each in ("a", "b")]
    assert [each["created_by"] for each in found] == ["key:ann", "billing"]


# coming in


def test_a_connection_that_does_not_say_who_it_is_is_closed_after_its_time(guarded: Guarded) -> None:
    nobody, known = guarded.connect(), guarded.peer("known")
    guarded.after(UNKNOWN_MS_MAX)
    assert isinstance(nobody.closed, Unauthorized)
    assert "who this is" in nobody.closed.message
    assert known.closed is None


def test_a_key_that_is_not_good_is_the_end_of_a_connection(guarded: Guarded) -> None:
    key = guarded.key("ann")
    for wrong in (f"{key[:-1]}{'a' if key[-1] != 'a' else 'b'}", "psk_x", "a.b.c", "x" * 10_000, "", "\0"):
        peer = guarded.connect()
        assert code(peer.ask("system.client.authenticate", {"token": wrong})) == "UNAUTHORIZED"
        assert isinstance(peer.closed, Unauthorized)


def test_nothing_of_a_token_is_repeated(guarded: Guarded) -> None:
    key = guarded.key("ann")
    for payload in (f'{{"token": "{key}"', f'["{key}"]', f'{{"token": ["{key}"]}}', f'{{"token": "{key}x"}}', key):
        peer = guarded.connect()
        answer = peer.ask("system.client.authenticate", payload.encode())
        assert key not in json.dumps(answer)
    assert key not in repr(guarded.noted)
    assert key.rpartition("_")[2] not in repr(guarded.broker.access._keys)


def test_a_connection_stays_the_one_it_is(guarded: Guarded) -> None:
    ann = guarded.peer("ann")
    other, again = guarded.key("bob"), guarded.key("ann")
    assert code(ann.ask("system.client.authenticate", {"token": other})) == "INVALID_REQUEST"
    assert ann.ask("system.client.authenticate", {"token": again})["principal"] == "key:ann"
    assert ann.closed is None


def test_a_certificate_is_somebody_too_and_a_key_may_take_its_place(guarded: Guarded) -> None:
    catalog, granted = guarded.data.catalog.access, parse_new_key({"name": "x", "bindings": ["publisher"]}, 0)[2]
    catalog.grant([type(each)(principal="certificate:host", role=each.role, scope=each.scope) for each in granted])
    guarded.after(1000)
    client, effects = guarded.broker.connect("", guarded.now_ms, principal=Principal(name="certificate:host"))
    peer = guarded.peers[client.id] = Peer(guarded, client)
    guarded.apply(effects)
    peer.take()
    assert code(peer.ask("system.topic.describe", {"topic": "nothing"})) == "TOPIC_NOT_SUPPORTED"
    assert code(peer.ask("system.topic.create", {"topic": "orders"})) == "FORBIDDEN"
    assert peer.ask("system.client.authenticate", {"token": guarded.key("boss", "admin")})["principal"] == "key:boss"
    assert code(peer.ask("system.topic.create", {"topic": "orders"})) == "OK"


def test_where_nobody_is_asked_a_token_is_taken_and_not_looked_at(world: World) -> None:
    ann = world.connect()
    assert ann.ask("system.client.authenticate", {"token": "whatever"}) == {
        "status": "success",
        "principal": "anonymous",
    }


# what is checked


def test_publishing_is_checked_message_by_message_also_within_a_batch(guarded: Guarded) -> None:
    boss, shop = guarded.peer("boss", "admin"), guarded.peer("shop", "publisher@topic:orders.#")
    for topic in ("orders.new", "payments"):
        assert code(boss.ask("system.topic.create", {"topic": topic})) == "OK"
    shop.post(f"publish:orders.new:1.0.0:{ID}\na", f"publish:payments:1.0.0:{ID2}\nb", "publish:payments:1.0.0\nc")
    assert code(shop.answer(ID)) == "OK"
    assert code(shop.answer(ID2)) == "FORBIDDEN"
    assert len(shop.take()) == 1  # refused although it asked for no answer
    assert guarded.stored("orders.new") == [b"a"]
    assert guarded.stored("payments") == []


def test_a_topic_comes_to_be_only_through_somebody_who_may_create_one(guarded: Guarded) -> None:
    shop = guarded.peer("shop", "publisher@topic:orders.#", "consumer@topic:orders.#")
    for action, payload in (("publish", b"x"), ("message", b"{}\nx"), ("subscribe", b'{"subscription":"s"}')):
        answer = shop.call(action, "orders.new", payload)
        assert code(answer) == "FORBIDDEN"
        assert answer["error"]["details"]["operation"] == "topic.create"
    assert code(shop.ask("system.producer.register", {"topic": "orders.new"})) == "FORBIDDEN"
    maker = guarded.peer("maker", "admin@topic:orders.#")
    assert code(maker.publish("orders.new")) == "OK"
    assert code(shop.publish("orders.new")) == "OK"
    assert code(maker.publish("payments")) == "FORBIDDEN"


def test_a_live_pattern_is_allowed_only_where_all_of_it_is(guarded: Guarded) -> None:
    ann = guarded.peer("ann", "consumer@topic:orders.+", "responder@topic:calls.#")
    for topic, action, expected in (
        ("orders.new", "publish", "OK"),
        ("orders.+", "publish", "OK"),
        ("orders.#", "publish", "FORBIDDEN"),
        ("#", "publish", "FORBIDDEN"),
        ("/other/orders.new", "publish", "FORBIDDEN"),
        ("calls.#", "request", "OK"),
        ("calls.#", "both", "FORBIDDEN"),
        ("orders.new", "request", "FORBIDDEN"),
    ):
        assert code(ann.ask("system.topic.subscribe", {"topic": topic, "action": action})) == expected, (topic, action)
        assert code(ann.call("subscribe", topic, {"action": action})) == expected, (topic, action)


def test_lists_show_what_one_may_see(guarded: Guarded) -> None:
    boss, ann = guarded.peer("boss", "admin"), guarded.peer("ann", "viewer@namespace:shop")
    for topic in ("/shop/a", "/shop/b", "/other/a"):
        assert code(boss.ask("system.topic.create", {"topic": topic})) == "OK"
        assert code(boss.consume(topic, subscription="s")) == "OK"
    boss.take()
    listed = [each["topic"] for each in ann.ask("system.topic.catalog", {})["topics"]]
    assert listed == ["/shop/a", "/shop/b"]
    found = ann.ask("system.subscription.list", {})["subscriptions"]
    assert [each["topic"] for each in found] == ["/shop/a", "/shop/b"]
    assert code(ann.ask("system.subscription.list", {"topic": "/other/a"})) == "FORBIDDEN"
    assert len(boss.ask("system.topic.catalog", {})["topics"]) == 3


def test_dead_letters_are_dealt_with_by_whoever_may_do_so_with_the_topic_they_came_from(guarded: Guarded) -> None:
    root = guarded.peer("root", "admin")
    for topic in ("/shop/orders", "/shop-dlq/orders"):
        root.append(topic, b"x")
    letters = {what: f"system.deadletter.{what}" for what in ("browse", "get", "redrive", "drop")}

    def may(name: str, binding: str) -> set[str]:
        peer, asked = guarded.peer(name, binding), {"topic": "/shop/orders"}
        given = {"get": asked | {"offset": 0}}
        return {what for what, topic in letters.items() if code(peer.ask(topic, given.get(what, asked))) == "OK"}

    def sees(name: str) -> list[str]:
        peer = guarded.peer(name)
        return [each["topic"] for each in peer.ask("system.deadletter.list")["dead_letters"]]

    assert (may("ann", "consumer@topic:/shop/orders"), sees("ann")) == ({"browse", "get"}, ["/shop/orders"])
    assert (may("bob", "operator@topic:/shop/orders"), sees("bob")) == (set(letters), ["/shop/orders"])
    assert (may("cat", "publisher@topic:/shop/orders"), sees("cat")) == (set(), ["/shop/orders"])
    assert (may("dan", "admin@namespace:shop-dlq"), sees("dan")) == (set(), []), "that is the topic they lie in"


def test_the_place_of_a_subscription_is_its_consumers_to_move_and_nobody_elses(guarded: Guarded) -> None:
    boss, ann = guarded.peer("boss", "admin"), guarded.peer("ann", "consumer@topic:orders")
    bob = guarded.peer("bob", "consumer@topic:orders")
    boss.publish("orders")
    assert code(ann.consume("orders", subscription="s", request_id=ID2)) == "OK"
    wanted = {"subscription": "s", "position": "earliest"}
    assert code(ann.call("seek", "orders", wanted)) == "OK"
    assert code(bob.call("seek", "orders", wanted)) == "FORBIDDEN"
    ann.take()
    assert code(ann.ask("system.subscription.seek", {"topic": "orders"} | wanted)) == "FORBIDDEN"
    assert code(boss.call("seek", "orders", wanted)) == "OK"


# revoking


def revoked(guarded: Guarded, name: str) -> None:
    catalog = guarded.data.catalog.access
    catalog.revoke_keys([each.key_id for each in catalog.load().keys if each.name == name])


def test_a_revoked_key_closes_its_connections_within_a_second(guarded: Guarded) -> None:
    ann, bob = guarded.peer("ann", "consumer"), guarded.peer("bob", "consumer")
    revoked(guarded, "ann")
    guarded.after(1000)
    assert isinstance(ann.closed, Unauthorized)
    assert bob.closed is None


def test_a_key_revoked_over_the_wire_is_revoked_when_that_is_answered(guarded: Guarded) -> None:
    boss, ann = guarded.peer("boss", "admin"), guarded.peer("ann", "consumer")
    assert len(boss.ask("system.key.revoke", {"key": "ann"})["revoked"]) == 1
    assert isinstance(ann.closed, Unauthorized)


def test_a_key_that_expires_closes_its_connections(guarded: Guarded) -> None:
    until = guarded.broker.context.unix_ms() + 5_000
    ann = guarded.connect()
    assert ann.ask("system.client.authenticate", {"token": guarded.key("ann", expires_ms=until)})["expires_ms"] == until
    guarded.after(3_000)
    assert ann.closed is None
    guarded.after(2_000)
    assert isinstance(ann.closed, Unauthorized)


def withdraw(boss: Peer, principal: str, binding: str) -> None:
    assert code(boss.ask("system.access.revoke", {"principal": principal, "binding": binding})) == "OK"


def test_a_live_subscriber_gets_nothing_more_once_it_may_not(guarded: Guarded) -> None:
    boss, ann = guarded.peer("boss", "admin"), guarded.peer("ann", "consumer@topic:orders")
    ann.subscribe("orders")
    boss.publish("orders", b"1")
    assert len(ann.take()) == 1
    withdraw(boss, "key:ann", "consumer@topic:orders")
    boss.publish("orders", b"2")
    boss.append("orders", b"3")
    assert ann.take() == []
    assert ann.closed is None
    assert code(boss.ask("system.access.grant", {"principal": "key:ann", "binding": "consumer"})) == "OK"
    boss.publish("orders", b"4")
    assert len(ann.take()) == 1


def test_a_responder_gets_no_more_requests_once_it_may_not(guarded: Guarded) -> None:
    boss, ann = guarded.peer("boss", "admin"), guarded.peer("ann", "responder@topic:price")
    ann.subscribe("price", "request")
    boss.post(f"request:price:1.0.0:{ID}\nx")
    assert len(ann.take()) == 1
    withdraw(boss, "key:ann", "responder@topic:price")
    assert code(boss.call("request", "price", b"x", request_id=ID2)) == "NO_ROUTE_FOUND"
    assert ann.take() == []


@pytest.mark.parametrize("form", ["message", "records"])
def test_a_consumer_that_may_no_longer_is_dismissed_and_others_get_its_messages(guarded: Guarded, form: str) -> None:
    boss = guarded.peer("boss", "admin")
    ann, bob = guarded.peer("ann", "consumer@topic:orders"), guarded.peer("bob", "consumer")
    boss.publish("orders", b"1")
    options = {"subscription": "s", "type": "shared", "since": "earliest", "format": form}
    assert code(ann.consume("orders", **options)) == "OK"
    assert len(ann.take_frames()) == 1
    withdraw(boss, "key:ann", "consumer@topic:orders")
    (notice,) = ann.take_frames()
    assert notice.header.topic == ENDED
    assert "no longer" in notice.payload.decode()
    assert code(bob.consume("orders", **options)) == "OK"
    assert len(bob.take_frames()) == 1  # what was in flight at ann
    boss.publish("orders", b"2")
    assert ann.take() == []
    assert code(ann.call("ack", "orders", {"subscription": "s", "offsets": [0]})) == "FORBIDDEN"


def test_a_reader_that_may_no_longer_is_dismissed(guarded: Guarded) -> None:
    boss, ann = guarded.peer("boss", "admin"), guarded.peer("ann", "consumer@topic:orders")
    boss.publish("orders", b"1")
    assert code(ann.consume("orders", since="earliest")) == "OK"
    ann.take()
    withdraw(boss, "key:ann", "consumer@topic:orders")
    (notice,) = ann.take_frames()
    assert notice.header.topic == ENDED
    boss.publish("orders", b"2")
    assert ann.take() == []


def test_what_is_asked_for_and_waits_for_the_disk_is_checked_once_more(guarded: Guarded) -> None:
    boss, ann = guarded.peer("boss", "admin"), guarded.peer("ann", "consumer@topic:orders")
    boss.publish("orders", b"1")
    guarded.hold()
    ann.post(f'subscribe:orders:1.0.0:{ID}\n{{"subscription":"s","from":"earliest"}}')
    revoked(guarded, "ann")
    guarded.broker.enforcer.load(guarded.data.catalog.access.load())
    guarded.release()
    assert code(ann.answer(ID)) == "UNAUTHORIZED"
    assert ann.take() == []


def test_logs_are_shown_no_longer_to_whom_they_may_not_be(guarded: Guarded) -> None:
    boss, ann = guarded.peer("boss", "admin"), guarded.peer("ann", "viewer")
    assert code(ann.ask("system.log.subscribe", {"levels": ["info"]})) == "OK"
    guarded.apply(guarded.broker.log("info", "something", {}))
    assert len(ann.take()) == 1
    withdraw(boss, "key:ann", "viewer")
    guarded.apply(guarded.broker.log("info", "something", {}))
    assert ann.take() == []


def test_a_catalog_that_cannot_be_read_changes_nothing(guarded: Guarded) -> None:
    ann = guarded.peer("ann", "viewer")
    guarded.hold()
    guarded.after(600)
    (look,) = guarded.works
    guarded.do(look, error=Unauthorized("stands for any failure of the disk"))
    guarded.release()
    assert code(ann.ask("system.metrics", {})) == "OK"


# keys and bindings over the wire


def test_a_key_made_over_the_wire_opens_at_once_with_what_it_was_given(guarded: Guarded) -> None:
    boss = guarded.peer("boss", "admin")
    made = boss.ask("system.key.create", {"name": "shop", "bindings": ["publisher@topic:orders"]})
    shop = guarded.connect()
    assert code(shop.ask("system.client.authenticate", {"token": made["key"]})) == "OK"
    assert code(boss.ask("system.topic.create", {"topic": "orders"})) == "OK"
    assert code(shop.publish("orders")) == "OK"
    assert code(shop.publish("payments")) == "FORBIDDEN"
    listed = boss.ask("system.key.list", {})["keys"]
    assert made["key_id"] in [each["key_id"] for each in listed]
    assert made["key"].rpartition("_")[2] not in json.dumps(listed)
    shown = boss.ask("system.access.show", {"principal": "key:shop"})["bindings"]
    assert [each["binding"] for each in shown] == ["publisher@topic:/default/orders"]


@pytest.mark.parametrize(
    ("topic", "fields"),
    [
        ("system.key.create", {"name": ""}),
        ("system.key.create", {"name": "a b"}),
        ("system.key.create", {"name": "a" * 64}),
        ("system.key.create", {"name": "a", "bindings": ["king"]}),
        ("system.key.create", {"name": "a", "bindings": ["viewer"] * 101}),
        ("system.key.create", {"name": "a", "bindings": [{}]}),
        ("system.key.create", {"name": "a", "expires_ms": 1}),
        ("system.key.create", {"name": "a", "expires_ms": "tomorrow"}),
        ("system.key.create", {"name": "a", "secret": "mine"}),
        ("system.key.revoke", {}),
        ("system.key.revoke", {"key": "nobody"}),
        ("system.key.revoke", {"key": 7}),
        ("system.access.grant", {"principal": "key:a"}),
        ("system.access.grant", {"principal": "a", "binding": "viewer"}),
        ("system.access.grant", {"principal": "key:a", "binding": "viewer@x"}),
        ("system.access.revoke", {"principal": "key:a", "binding": "viewer"}),
        ("system.access.show", {"principal": "\n"}),
        ("system.access.show", {"who": "key:a"}),
    ],
)
def test_what_cannot_be_asked_of_keys_and_bindings_is_refused_by_name(
    guarded: Guarded, topic: str, fields: dict[str, Any]
) -> None:
    boss = guarded.peer("boss", "admin")
    before = guarded.data.catalog.access.revision()
    answer = boss.ask(topic, fields)
    assert code(answer) == "INVALID_REQUEST"
    assert answer["error"]["details"], answer
    assert guarded.data.catalog.access.revision() == before


def test_an_operator_may_not_make_itself_an_admin(guarded: Guarded) -> None:
    operator = guarded.peer("operator", "operator")
    for topic in ("system.key.create", "system.access.grant"):
        given = (
            {"name": "x", "bindings": ["admin"]}
            if topic.endswith("create")
            else {"principal": "key:operator", "binding": "admin"}
        )
        assert code(operator.ask(topic, given)) == "FORBIDDEN"


def test_what_is_administered_is_noted_with_who_and_from_where(guarded: Guarded) -> None:
    boss = guarded.peer("boss", "admin")
    guarded.noted.clear()
    boss.ask("system.topic.create", {"topic": "orders"})
    boss.ask("system.topic.describe", {"topic": "orders"})
    (entry,) = guarded.noted
    assert (entry.principal, entry.operation, entry.resource) == ("key:boss", "topic.create", "topic /default/orders")
    assert (entry.outcome, entry.origin.surface, entry.origin.address) == ("allowed", "tcp", "127.0.0.1:5")


def test_the_audit_log_says_which_key_and_which_binding(guarded: Guarded) -> None:
    boss = guarded.peer("boss", "admin")
    guarded.noted.clear()
    made = boss.ask("system.key.create", {"name": "shop", "bindings": ["viewer"]})
    boss.ask("system.access.grant", {"principal": "key:shop", "binding": "consumer@topic:a"})
    boss.ask("system.key.revoke", {"key": made["key_id"]})
    assert [(each.audited.action, dict(each.audited.target)) for each in guarded.noted] == [
        ("system.key.create", {"name": "shop", "bindings": ("viewer",)}),
        ("system.access.grant", {"principal": "key:shop", "binding": "consumer@topic:a"}),
        ("system.key.revoke", {"key": made["key_id"]}),
    ]
    assert made["key"].rpartition("_")[2] not in repr(guarded.noted)


def test_a_later_key_of_a_name_has_only_what_it_is_given(guarded: Guarded) -> None:
    boss = guarded.peer("boss", "admin")
    asked = {"name": "shop", "bindings": ["admin@namespace:shop"]}
    boss.ask("system.key.create", asked)
    second = boss.ask("system.key.create", {"name": "shop", "bindings": ["viewer"]})
    assert second["bindings"] == ["admin@namespace:shop", "viewer@server"], "a key beside it has all of it"
    boss.ask("system.key.revoke", {"key": "shop"})
    made = boss.ask("system.key.create", {"name": "shop", "bindings": ["viewer@topic:open.a"]})
    assert made["bindings"] == ["viewer@topic:/default/open.a"]
    shop = guarded.connect()
    assert code(shop.ask("system.client.authenticate", {"token": made["key"]})) == "OK"
    assert code(shop.ask("system.topic.create", {"topic": "/shop/secret"})) == "FORBIDDEN"


def test_a_name_that_is_not_there_gets_no_hint_of_those_that_are(guarded: Guarded) -> None:
    boss, ann = guarded.peer("boss", "admin"), guarded.peer("ann", "operator@topic:payrol")
    boss.ask("system.topic.create", {"topic": "payroll"})
    for topic in ("system.topic.describe", "system.topic.alter", "system.topic.delete"):
        answer = ann.ask(topic, {"topic": "payrol"})
        assert code(answer) == "TOPIC_NOT_SUPPORTED"
        assert "payroll" not in json.dumps(answer)


# schemas


def registered(peer: Peer, subject: str, schema: object, *references: str) -> str:
    given = [{"name": f"{each}.json", "subject": each, "version": 1} for each in references]
    fields = {"subject": subject, "type": "JSON", "schema": json.dumps(schema), "references": given}
    return code(peer.ask("system.schema.register", fields))


@pytest.mark.parametrize("written", ["payroll-value", ":.:payroll-value"])
def test_a_subject_is_the_same_for_who_decides_and_for_who_answers(guarded: Guarded, written: str) -> None:
    boss, ann = guarded.peer("boss", "admin"), guarded.peer("ann", "registrar@subject:*.*")
    assert registered(boss, "payroll-value", {"type": "object"}) == "OK"
    asked: dict[str, dict[str, Any]] = {
        "get": {"version": 1},
        "versions": {},
        "delete": {},
        "config": {"compatibility": "NONE"},
    }
    for what, more in asked.items():
        assert code(ann.ask(f"system.schema.{what}", {"subject": written, **more})) == "FORBIDDEN", what


@pytest.mark.parametrize("written", ["payroll-value", ":.:payroll-value"])
def test_who_refers_to_a_subject_must_be_allowed_to_read_it(guarded: Guarded, written: str) -> None:
    boss = guarded.peer("boss", "admin")
    assert registered(boss, "payroll-value", {"type": "object"}) == "OK"
    ann = guarded.peer("ann", "registrar@subject:ann-*")
    refers = {"$ref": f"{written}.json"}
    assert registered(ann, "ann-a", {"type": "object"}) == "OK"
    assert registered(ann, "ann-b", refers, written) == "FORBIDDEN"
    fields = {
        "type": "JSON",
        "schema": json.dumps(refers),
        "references": [{"name": f"{written}.json", "subject": written, "version": 1}],
    }
    for what in ("lookup", "check"):
        assert code(ann.ask(f"system.schema.{what}", {"subject": "ann-a", **fields})) == "FORBIDDEN", what
    assert code(ann.ask("system.schema.compare", {"reader": fields, "writer": fields})) == "FORBIDDEN"
    guarded.data.catalog.access.grant([StoredBinding(principal="key:ann", role="viewer", scope="subject:payroll-*")])
    guarded.after(1000)
    assert registered(ann, "ann-b", refers, written) == "OK"


def test_what_comes_over_http_is_checked_as_whoever_asks(guarded: Guarded) -> None:
    answers: list[Any] = []

    def reply(outcome: Any) -> list[Any]:
        answers.append(outcome)
        return []

    ask: Callable[..., Any] = guarded.broker.ask
    asked = ("system.topic.create", {"topic": "orders"}, reply, guarded.now_ms)
    guarded.apply(ask(*asked))
    guarded.apply(ask(*asked, Principal(name="jwt:ann")))
    guarded.apply(ask(*asked, Principal(name="jwt:ann", bindings=(Binding.parse("operator@topic:orders"),))))
    assert [getattr(each, "code", "OK") for each in answers] == ["UNAUTHORIZED", "FORBIDDEN", "OK"]
