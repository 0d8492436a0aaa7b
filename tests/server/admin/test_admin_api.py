"""The admin API of a real broker: every row does what it says, and what is wrong is said in one shape."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from tests.server.admin.kit import Admin, admin_of, topic, wrong
from tests.server.http_kit import Client, raw

from penstock.server.admin.routes import ROUTES

pytestmark = pytest.mark.slow  # a real broker

_NUMBERS = count()


@pytest.fixture(scope="module")
def admin() -> Iterator[Admin]:
    with admin_of() as found:
        yield found


@pytest.fixture
def name(admin: Admin) -> str:
    """A topic of this test's own."""
    made = f"t{next(_NUMBERS)}"
    admin.post("/topics", {"topic": made})
    return made


def publish(admin: Admin, name: str, number: int, **more: Any) -> None:
    for each in range(number):
        admin.post(f"/topics/{name}/messages", {"payload": str(each)} | more)


# namespaces and topics


def test_a_topic_is_created_described_altered_and_deleted(admin: Admin) -> None:
    answer = admin.ask("POST", "/topics", {"topic": "/shop/orders", "partitions": 2, "retention": {"age_ms": 60_000}})
    assert answer.status == 201
    assert answer.json["settings"] == {"retention": {"age_ms": 60_000}}
    path = f"/topics/{topic('/shop/orders')}"
    found = admin.get(path)
    assert [log["partition"] for log in found["logs"]] == [0, 1]
    altered = admin.ask("PATCH", path, {"rate_max": 7, "retention": None})
    assert altered.json["settings"] == {"retention": {}, "rate_max": 7}
    assert admin.delete(path) == {"status": "success"}
    wrong(admin.ask("GET", path), 404, "TOPIC_NOT_SUPPORTED")


def test_a_topic_that_holds_something_is_deleted_in_two_steps(admin: Admin, name: str) -> None:
    publish(admin, name, 3)
    error = wrong(admin.ask("DELETE", f"/topics/{name}"), 409, "INVALID_REQUEST")
    assert (error["details"]["messages"], error["details"]["subscriptions"]) == (3, 0)
    wrong(admin.ask("DELETE", f"/topics/{name}", confirm="no"), 409, "INVALID_REQUEST")
    assert admin.get(f"/topics/{name}")["messages"] == 3
    assert admin.delete(f"/topics/{name}", confirm=error["details"]["confirm"]) == {"status": "success"}


def test_topics_come_in_pages_and_of_one_namespace(admin: Admin) -> None:
    names = [f"/paged/t{number}" for number in range(5)]
    for each in reversed(names):
        admin.post("/topics", {"topic": each})
    found: list[str] = []
    after: dict[str, str] = {}
    while True:
        answer = admin.get("/topics", namespace="paged", limit=2, **after)
        found += [each["topic"] for each in answer["topics"]]
        if "next" not in answer:
            break
        after = {"after": answer["next"]}
    assert found == names
    assert {"namespace": "paged", "topics": 5} in admin.get("/namespaces")["namespaces"]


def test_defaults_of_a_namespace_are_put_whole(admin: Admin) -> None:
    put = admin.ask("PUT", "/namespaces/lab", {"rate_max": 5, "redeliveries": 1})
    assert put.json == {"namespace": "lab", "settings": {"retention": {}, "rate_max": 5, "redeliveries": 1}}
    admin.ask("PUT", "/namespaces/lab", {"redeliveries": 2})
    assert admin.get("/namespaces/lab")["settings"] == {"retention": {}, "redeliveries": 2}
    assert admin.post("/topics", {"topic": "/lab/t"})["settings"] == {"retention": {}, "redeliveries": 2}


# messages


def test_messages_are_browsed_filtered_and_paged(admin: Admin, name: str) -> None:
    for number in range(12):
        body = {
            "payload_json": {"n": number},
            "type": f"order.{'paid' if number % 3 else 'made'}",
            "key": f"k{number % 2}",
        }
        admin.post(f"/topics/{name}/messages", body | {"attributes": {"region": "eu" if number < 6 else "us"}})
    path = f"/topics/{name}/messages"
    made = admin.get(path, typeMatcher="made$")
    assert [each["offset"] for each in made["messages"]] == [0, 3, 6, 9]
    assert (made["scanned"], made["matched"], made["end"]) == (12, 4, True)
    narrow = admin.get(path, type="order.*", key="k0", attribute="region:eu", contains='"n":')
    assert [each["offset"] for each in narrow["messages"]] == [0, 2, 4]
    assert admin.get(path, attributes=json.dumps({"region": "us"}))["matched"] == 6
    assert [each["offset"] for each in admin.get(path, last=2)["messages"]] == [10, 11]
    found: list[int] = []
    resume: dict[str, str] = {}
    while True:
        answer = admin.get(path, typeMatcher="made$", limit=1, scan=2, **resume)
        found += [each["offset"] for each in answer["messages"]]
        resume = {"resume": answer["resume"]}
        if answer["end"]:
            break
    assert found == [0, 3, 6, 9]


def test_one_message_is_fetched_by_offset_and_by_id_and_its_payload_as_it_is(admin: Admin, name: str) -> None:
    payload = bytes(range(256)) * 4000  # more than fits one answer
    with admin.client() as client, client.producer(name) as producer:
        producer.send(payload)
    preview = admin.get(f"/topics/{name}/messages")["messages"][0]
    assert (preview["payload_bytes"], preview["payload_cut"]) == (len(payload), True)
    by_offset, by_id = (admin.get(f"/topics/{name}/messages/{each}") for each in (0, preview["id"]))
    assert by_offset == by_id
    for each in (0, preview["id"]):
        answer = admin.ask("GET", f"/topics/{name}/messages/{each}/payload")
        assert answer.body == payload
        assert (answer.media, answer.headers["content-disposition"]) == ("application/octet-stream", "attachment")
    head = admin.ask("HEAD", f"/topics/{name}/messages/0/payload")
    assert (head.body, head.headers["content-length"]) == (b"", str(len(payload)))


def test_what_is_published_is_durable_and_as_it_was_written(admin: Admin, name: str) -> None:
    path = f"/topics/{name}/messages"
    answer = admin.ask("POST", path, b'{"payload_json": {"b" : 1.50, "a": 123456789012345678901234567890}}')
    assert (answer.status, answer.json["offset"]) == (201, 0)
    assert admin.get(f"{path}/{answer.json['id']}")["payload"] == '{"b" : 1.50, "a": 123456789012345678901234567890}'
    admin.post(path, {"payload_base64": b64encode(b"\xff").decode(), "key_base64": "/w=="})
    assert admin.get(f"{path}/1")["payload_base64"] == "/w=="
    admin.post(path, {"payload": ""})
    assert admin.ask("GET", f"{path}/2/payload").body == b""


# subscriptions


def test_a_subscription_is_created_moved_paused_skipped_and_deleted(admin: Admin, name: str) -> None:
    publish(admin, name, 4)
    path = f"/topics/{name}/subscriptions"
    made = admin.post(path, {"subscription": "s", "type": "shared", "from": "earliest", "redeliveries": 1})
    assert (made["created"], made["lag"]) == (True, 4)
    (listed,) = admin.get(path)["subscriptions"]
    assert listed["lag_seconds"] > 0
    assert admin.post(f"{path}/s/seek", {"position": 2}) == {"subscription": "s", "positions": {"0": 2}}
    assert admin.post(f"{path}/s/skip", {"offsets": [3]}) == {"status": "success"}
    found = admin.get(f"{path}/s")
    assert (found["lag"], found["partitions"][0]["acked_above"], found["options"]["redeliveries"]) == (1, [[3, 4]], 1)
    admin.post(f"{path}/s/pause")
    assert admin.get(f"{path}/s")["paused"] is True
    admin.post(f"{path}/s/resume")
    assert admin.get(f"{path}/s")["paused"] is False
    assert admin.delete(f"{path}/s") == {"status": "success"}
    wrong(admin.ask("GET", f"{path}/s"), 404, "INVALID_REQUEST")


def test_who_reads_the_files_and_reports_is_among_the_pipelines(admin: Admin, name: str) -> None:
    publish(admin, name, 3)
    with admin.client() as client:
        client.ask("system.subscription.report", {"topic": name, "subscription": "spark", "positions": {"0": 1}})
    found = [each for each in admin.get("/pipelines")["pipelines"] if each["topic"] == f"/default/{name}"]
    assert [(each["subscription"], each["lag"]) for each in found] == [("spark", 2)]
    assert found[0]["reported_at"].endswith("Z")


# dead letters


def test_dead_letters_are_listed_shown_redriven_and_dropped(admin: Admin, name: str) -> None:
    publish(admin, name, 6)
    with admin.client() as client, client.consumer(name, "s", start="earliest", redeliveries=0) as consumer:
        for number in range(6):
            consumer.nack(consumer.receive(20), reason="bad" if number % 2 else "worse")
    path = f"/topics/{name}/dead-letters"
    _eventually_left(admin, name, 6)
    assert [each["reason"] for each in admin.get(path, reason="w*")["messages"]] == ["worse"] * 3
    shown = admin.get(path, limit=2, redrivesMax=1)
    assert [each["verdict"] for each in shown["messages"]] == ["redrive"] * 2
    assert len(admin.get(path, resume=shown["resume"], until=shown["until"])["messages"]) == 4
    assert len(admin.get(path, until=shown["resume"])["messages"]) == 2
    wrong(admin.ask("GET", f"{path}?redrivesMax=0"), 422, "INVALID_REQUEST")
    wrong(admin.ask("POST", f"{path}/drop", {"until": "x"}), 422, "INVALID_REQUEST")
    redriven = admin.post(f"{path}/redrive", {"reason": "worse"})
    assert (redriven["redriven"], redriven["left"], redriven["end"]) == (3, 3, True)
    assert admin.post(f"{path}/redrive", {"reason": "worse"})["redriven"] == 0
    dropped = admin.post(f"{path}/drop", {"limit": 2})
    assert (dropped["dropped"], dropped["left"]) == (2, 1)
    assert admin.get(f"/topics/{name}")["messages"] == 9


def _eventually_left(admin: Admin, name: str, left: int) -> None:
    from tests.server.kit import eventually

    def there() -> bool:
        found = admin.get("/dead-letters")["dead_letters"]
        return any(each["topic"] == f"/default/{name}" and each["left"] == left for each in found)

    eventually(there, f"{left} dead letters")


# connections, keys


def test_connections_are_listed_and_one_is_ended(admin: Admin) -> None:
    with admin.client() as client:
        client.ask("system.service.register", {"name": "victim", "description": "to be ended"})
        client.ask("system.topic.subscribe", {"topic": "x.#", "action": "publish"})
        (mine,) = [each for each in admin.get("/connections")["connections"] if each["name"] == "victim"]
        assert mine["subscriptions"] == 1
        live = admin.get(f"/connections/{mine['id']}/subscriptions")["subscriptions"]
        assert live == [{"action": "publish", "topic": "x.#"}]
        assert "victim" in [each["name"] for each in admin.get("/services")["services"]]
        assert admin.delete(f"/connections/{mine['id']}", reason="a test") == {"status": "success"}
        assert mine["id"] not in [each["id"] for each in admin.get("/connections")["connections"]]
    wrong(admin.ask("DELETE", f"/connections/{mine['id']}"), 404, "INVALID_REQUEST")
    wrong(admin.ask("GET", f"/connections/{mine['id']}/subscriptions"), 404, "INVALID_REQUEST")


def test_keys_and_bindings_are_made_shown_and_taken_back(admin: Admin) -> None:
    made = admin.post("/keys", {"name": "billing", "bindings": ["publisher@topic:orders.#"]})
    listed = admin.get("/keys")["keys"]
    assert made["key_id"] in [each["key_id"] for each in listed]
    assert made["key"] not in json.dumps(listed)
    standing = admin.post("/access/grant", {"principal": "key:billing", "binding": "consumer@topic:a"})
    assert len(standing["bindings"]) == 2
    assert len(admin.get("/access", principal="key:billing")["bindings"]) == 2
    admin.post("/access/revoke", {"principal": "key:billing", "binding": "consumer@topic:a"})
    assert len(admin.get("/access", principal="key:billing")["bindings"]) == 1
    assert admin.delete(f"/keys/{made['key_id']}") == {"revoked": [made["key_id"]]}


# hostile


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/topics/..%2F..%2Fetc%2Fpasswd", None, 422),
        ("GET", "/topics/%2F..%2Fx", None, 422),
        ("GET", "/topics/a%00b", None, 422),
        ("GET", "/topics/%ff", None, 400),
        ("GET", "/topics/system.metrics", None, 404),
        ("GET", "/namespaces/..%2F..", None, 404),
        ("POST", "/topics", {"topic": "/../x"}, 422),
        ("POST", "/topics", {"topic": "system.mine"}, 422),
        ("POST", "/topics", {"topic": "a", "unknown": 1}, 422),
        ("POST", "/topics", {"topic": "a", "partitions": 10**30}, 422),
        ("POST", "/topics", {"topic": "a", "rate_max": -1}, 422),
        ("POST", "/topics", {"topic": "a", "rate_max": 10**40}, 422),
        ("POST", "/topics", {"topic": ["a"]}, 422),
        ("POST", "/topics", {}, 422),
        ("POST", "/topics", [], 422),
        ("POST", "/topics", b"{", 400),
        ("POST", "/topics", b"\xff", 400),
        ("POST", "/topics", b"[" * 10_000, 422),
        ("POST", "/topics", {"topic": "a" * 70_000}, 413),
        ("POST", "/topics/known/messages", {}, 422),
        ("POST", "/topics/known/messages", {"payload": "a", "payload_json": 1}, 422),
        ("POST", "/topics/known/messages", {"payload": "a", "producer_id": 1}, 422),
        ("POST", "/topics/known/messages", {"payload": "a", "schema_id": 10**30}, 422),
        ("POST", "/topics/nowhere/messages", {"payload": "a"}, 404),
        ("GET", "/topics/known/messages?limit=0", None, 422),
        ("GET", "/topics/known/messages?limit=99999999999999999999", None, 422),
        ("GET", "/topics/known/messages?from=5", None, 410),
        ("GET", "/topics/known/messages?from=99999999999999999999", None, 422),
        ("GET", "/topics/known/messages?from=%00", None, 422),
        ("GET", "/topics/known/messages?from=2026-13-01", None, 422),
        ("GET", "/topics/known/messages?typeMatcher=(", None, 422),
        ("GET", "/topics/known/messages?attribute=x", None, 422),
        ("GET", "/topics/known/messages?attributes=[]", None, 422),
        ("GET", "/topics/known/messages?resume=x", None, 422),
        ("GET", "/topics/known/messages?partition=7", None, 422),
        ("GET", "/topics/known/messages/7", None, 410),
        ("GET", "/topics/known/messages/99999999999999999999", None, 422),
        ("GET", "/topics/known/messages/x", None, 422),
        ("GET", "/topics/known/messages/1f0c2a4e-7b1d-6c00-9a3f-0123456789ab", None, 404),
        ("GET", "/topics/known/messages/..%2F0/payload", None, 422),
        ("GET", "/topics/known/subscriptions/..%2Fx", None, 404),
        ("POST", "/topics/known/subscriptions", {"subscription": "../x"}, 422),
        ("POST", "/topics/known/subscriptions", {"subscription": "s", "from": 9}, 410),
        ("POST", "/topics/known/subscriptions/none/seek", {"position": 0}, 404),
        ("POST", "/topics/known/dead-letters/redrive", {"limit": -1}, 404),
        ("GET", "/topics/%2Fdefault-dlq%2Fknown/dead-letters", None, 422),
        ("DELETE", "/connections/x", None, 404),
        ("DELETE", "/keys/none", None, 422),
        ("PATCH", "/topics", {}, 405),
        ("GET", "/topics?namespaces=shop", None, 422),
        ("GET", "/topics?limit=x", None, 422),
        ("GET", "/topics?after=%00", None, 200),
    ],
)
def test_what_is_wrong_is_refused_in_the_one_shape(
    admin: Admin, method: str, path: str, body: Any, status: int
) -> None:
    admin.ask("POST", "/topics", {"topic": "known"})
    answer = admin.http.ask(method, f"/v1{path}", body)
    assert answer.status == status, answer.body
    if status != 200:
        assert set(answer.json) == {"error"}
        assert len(answer.body) < 2_000


def test_every_row_says_what_it_needs_and_is_under_v1() -> None:
    assert all(row.path.startswith("/v1/") and row.permission is not None for row in ROUTES)
    assert len({(row.method, row.path) for row in ROUTES}) == len(ROUTES)


def test_a_client_that_disconnects_holds_no_slot(admin: Admin, name: str) -> None:
    """Send a hundred requests and disconnect at once: later clients are served."""
    publish(admin, name, 50)
    for _ in range(100):
        request = f"GET /v1/topics/{name}/messages?scan=100000&contains=zzz HTTP/1.1\r\nHost: localhost\r\n\r\n"
        _send_and_leave(admin.port, request.encode())
    with Client(admin.port) as client:
        from tests.server.kit import eventually

        eventually(lambda: client.ask("GET", f"/v1/topics/{name}/messages").status == 200, "an answer")


def _send_and_leave(port: int, sent: bytes) -> None:
    import socket

    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(sent)


def test_a_request_in_pieces_is_the_same_request(admin: Admin, name: str) -> None:
    body = b'{"payload": "x"}'
    head = f"POST /v1/topics/{name}/messages HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    size = f"Content-Length: {len(body)}\r\n\r\n"
    assert raw(admin.port, (head + size).encode() + body).startswith(b"HTTP/1.1 201")
