from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tests.cli.kit import child_environment
from tests.server.events.sse import Reader
from tests.server.http_kit import Answer, Client, raw
from tests.server.kit import eventually

import penstock
from penstock.aio import connect
from penstock.core.ids import format_id
from penstock.core.names import TopicName
from penstock.record.block import Draft
from penstock.record.message import Message, SchemaRef
from penstock.storage.store import Store
from penstock.testing import RunningBroker

NDJSON = "application/x-ndjson"


def post(http: Client, query: str, body: bytes = b"x", **headers: str) -> Any:
    answer = http.ask("POST", f"/api/events?{query}", body, **headers)
    assert answer.status == 200, answer.body
    return answer.json


def events(http: Client, query: str, **headers: str) -> list[dict[str, Any]]:
    """Return all stored events, as lines."""
    answer = http.ask(
        "GET", f"/api/events?from=earliest&follow=false&{query}", Accept="application/x-ndjson", **headers
    )
    assert (answer.status, answer.media) == (200, "application/x-ndjson")
    return [json.loads(line) for line in answer.body.splitlines()]


def code(answer: Answer) -> str:
    return str(answer.json["error"]["code"])


# POST


def test_one_message_is_durable_when_it_is_answered(http: Client, broker: RunningBroker) -> None:
    stored = post(http, "type=order.created&topic=shop.orders&key=customer-7", b"\x00\xffbytes", X_Attr_Tenant="a")
    assert stored == {"id": stored["id"], "offset": 0, "topic": "/default/shop.orders", "partition": 0}
    with penstock.connect(broker.url) as client:
        message = client.consumer("shop.orders", "billing", start="earliest").receive(20)
        assert message is not None
        assert (message.payload, message.type, message.key) == (b"\x00\xffbytes", "order.created", b"customer-7")
        assert message.attributes == {"tenant": "a"}


def test_without_a_topic_it_goes_to_events(http: Client) -> None:
    assert post(http, "type=a")["topic"] == "/default/events"


def test_what_is_sent_again_after_a_time_out_is_stored_once(http: Client) -> None:
    first = post(http, "type=a&topic=retries", Idempotency_Key="order-1")
    again = post(http, "type=a&topic=retries", Idempotency_Key="order-1")
    assert again == first | {"duplicate": True}
    numbered = [post(http, "type=a&topic=retries", X_Producer="till", X_Request_Id="5") for _ in range(2)]
    assert [each.get("duplicate", False) for each in numbered] == [False, True]
    assert len(events(http, "topic=retries")) == 2


def test_a_key_stands_for_a_post_with_as_many_messages(http: Client) -> None:
    one = post(http, "type=a&topic=longer&lines=payload", b"a", Content_Type=NDJSON, Idempotency_Key="k")
    two = post(http, "type=a&topic=longer&lines=payload", b"b\nc", Content_Type=NDJSON, Idempotency_Key="k")
    assert [each.get("duplicate", False) for each in (*one["events"], *two["events"])] == [False] * 3
    assert [each["payload"] for each in events(http, "topic=longer")] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("media", "body"),
    [
        ("application/x-ndjson", b'{"payload":"a"}\n{"payload":"b","type":"u"}\n'),
        ("multipart/mixed; boundary=b", b"--b\r\n\r\na\r\n--b\r\nX-Type: u\r\n\r\nb\r\n--b--\r\n"),
        (
            "application/vnd.penstock.block",
            bytes(Draft.of([Message(payload=b"a", type="t"), Message(payload=b"b", type="u")]).with_checksums().data),
        ),
    ],
    ids=["lines", "parts", "block"],
)
def test_a_batch_is_told_where_each_lies(http: Client, media: str, body: bytes) -> None:
    topic = f"batches.{media.split('/')[1][:1]}{len(body)}"
    found = post(http, f"type=t&topic={topic}", body, Content_Type=media)
    assert (found["topic"], found["count"], [each["offset"] for each in found["events"]]) == (
        f"/default/{topic}",
        2,
        [0, 1],
    )
    stored = events(http, f"topic={topic}")
    assert [(each["type"], each["payload"]) for each in stored] == [("t", "a"), ("u", "b")]
    assert [each["id"] for each in stored] == [each["id"] for each in found["events"]]


def test_cloudevents_are_messages_in_every_mode(http: Client) -> None:
    said = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/s", "ce-type": "u", "Content-Type": "text/plain"}
    post(http, "topic=ce", b"binary", **said)
    event = {"specversion": "1.0", "id": "2", "source": "/s", "type": "u", "data": {"a": 1}}
    post(http, "topic=ce", json.dumps(event).encode(), Content_Type="application/cloudevents+json")
    batch = json.dumps([event, event | {"subject": "k"}]).encode()
    post(http, "topic=ce", batch, Content_Type="application/cloudevents-batch+json")
    found = events(http, "topic=ce")
    assert [each["payload"] for each in found] == ["binary", '{"a": 1}', '{"a": 1}', '{"a": 1}']
    assert [each["attributes"]["ce-id"] for each in found] == ["1", "2", "2", "2"]
    assert found[3]["key"] == "k"


def test_a_batch_is_refused_whole_with_the_line_that_is_wrong(http: Client) -> None:
    answer = http.ask(
        "POST", "/api/events?type=t&topic=whole", b'{"payload":1}\n{', Content_Type="application/x-ndjson"
    )
    assert (answer.status, code(answer), answer.json["error"]["details"]["line"]) == (400, "MALFORMED_MESSAGE", 2)
    large = b'{"payload":1}\n{"payload":1,"type":"' + b"t" * 300 + b'"}'
    answer = http.ask("POST", "/api/events?type=t&topic=whole", large, Content_Type="application/x-ndjson")
    assert (answer.status, answer.json["error"]["details"]["line"]) == (413, 2)
    assert events(http, "topic=whole") == []


@pytest.mark.parametrize("media", ["application/cloudevents+json", "application/json", "application/x-ndjson"])
def test_what_is_too_large_is_refused_before_it_is_looked_at(http: Client, media: str) -> None:
    answer = http.ask("POST", "/api/events?type=t&topic=toolarge", b"{" * (5 << 20), Content_Type=media)
    assert (answer.status, code(answer)) == (413, "PAYLOAD_TOO_LARGE")


@pytest.mark.parametrize("number", [b"1e999", b"9" * 5000])
def test_a_number_that_nobody_can_hold_is_the_senders_fault(http: Client, number: bytes) -> None:
    event = b'{"specversion":"1.0","source":"/","type":"t","id":' + number + b"}"
    for media, body in (("cloudevents+json", event), ("cloudevents-batch+json", b"[" + event + b"]")):
        answer = http.ask("POST", "/api/events?topic=numbers", body, Content_Type=f"application/{media}")
        assert (answer.status, answer.json["error"]["details"]["field"]) == (422, "id")


def test_a_schema_is_enforced_as_everywhere(http: Client, broker: RunningBroker) -> None:
    schema = '{"type": "object", "required": ["order"]}'
    with penstock.connect(broker.url) as client:
        made = client.ask("system.schema.register", {"subject": "strict-value", "type": "JSON", "schema": schema})
        client.ask(
            "system.topic.create",
            {
                "topic": "strict",
                "schema_policy": "enforce",
                "schema_payloads": True,
                "schema_subjects": ["strict-value"],
            },
        )
    named = {"X-Schema-Id": str(made["id"]), "X-Schema-Version": str(made["version"])}
    assert code(http.ask("POST", "/api/events?type=t&topic=strict", b'{"order":1}')) == "SCHEMA_REJECTED"
    wrong = http.ask("POST", "/api/events?type=t&topic=strict", b"{}", **named)
    assert (wrong.status, code(wrong)) == (422, "SCHEMA_REJECTED")
    lines = b'{"payload":{"order":1}}\n\n{"payload":{}}'
    batch = http.ask("POST", "/api/events?type=t&topic=strict", lines, Content_Type="application/x-ndjson", **named)
    assert batch.json["error"]["message"].startswith("line 3: ")
    schema_ref = SchemaRef(made["id"], made["version"])
    two = [Message(payload=each, type="t", schema=schema_ref) for each in (b'{"order":1}', b"{}")]
    block = http.ask(
        "POST",
        "/api/events?topic=strict",
        bytes(Draft.of(two).with_checksums().data),
        Content_Type="application/vnd.penstock.block",
    )
    assert (block.status, block.json["error"]["details"]["message"]) == (422, 2)
    assert block.json["error"]["message"].startswith("message 2: ")
    assert events(http, "topic=strict") == []
    assert post(http, "type=t&topic=strict", b'{"order":1}', **named)["offset"] == 0
    assert events(http, "topic=strict")[0]["schema_id"] == made["id"]


# GET


def test_a_browser_would_read_it(http: Client, port: int) -> None:
    for number, payload in enumerate((b"one", b"two\nlines", b"\xff\x00", b"")):
        post(http, f"topic=browser&type=t{number}", payload)
    with Reader(port, "/api/events?topic=browser&from=earliest", Accept="text/event-stream") as reader:
        assert b"content-type: text/event-stream" in reader.head.lower()
        found = reader.take(4)
        assert [(each.type, each.payload) for each in found] == [
            ("t0", b"one"), ("t1", b"two\nlines"), ("t2", b"\xff\x00"), ("t3", b""),
        ]  # fmt: skip
        assert found[2].data == "data:application/octet-stream;base64,/wA="
        post(http, "topic=browser&type=later", b"now")
        assert reader.take(1)[0].type == "later"


def test_who_comes_back_goes_on_behind_the_last_id(http: Client, port: int) -> None:
    ids = [post(http, f"topic=back.t{number % 2}&type=t")["id"] for number in range(6)]
    for header in ("Last-Event-ID", "lastEventId"):
        query = "" if header == "Last-Event-ID" else f"&lastEventId={ids[2]}"
        said = {header: ids[2]} if header == "Last-Event-ID" else {}
        with Reader(port, f"/api/events?topic=back.%23&from=earliest{query}", **said) as reader:
            assert [each.id for each in reader.take(3)] == ids[3:]


def test_who_is_cut_off_before_the_first_event_misses_nothing(http: Client, port: int) -> None:
    post(http, "topic=quiet&type=t", b"before")
    with Reader(port, "/api/events?topic=quiet") as reader:
        body = next(reader.bodies())
        assert reader.parser.receive(body) == []
        last = reader.parser.last_id
    assert last
    post(http, "topic=quiet&type=t", b"meanwhile")
    with Reader(port, "/api/events?topic=quiet", Last_Event_ID=last) as reader:
        assert reader.take(1)[0].data == "meanwhile"


def test_a_filter_that_nothing_passes_moves_on_all_the_same(http: Client, port: int) -> None:
    post(http, "topic=filtered&type=other")
    with Reader(port, "/api/events?topic=filtered&from=earliest&typeMatcher=%5Ewanted&heartbeat=1") as reader:
        last = ""
        for body in reader.bodies():
            assert reader.parser.receive(body) == []
            last = reader.parser.last_id or last
            if last:
                break
    wanted = post(http, "topic=filtered&type=wanted.one")["id"]
    assert last < wanted
    with Reader(port, "/api/events?topic=filtered&typeMatcher=%5Ewanted", Last_Event_ID=last) as reader:
        assert [each.id for each in reader.take(1)] == [wanted]


def test_a_reader_hears_of_the_stream_although_all_that_comes_is_filtered_out(http: Client, port: int) -> None:
    first = post(http, "topic=noise&type=other")["id"]
    enough = threading.Event()
    with Reader(port, "/api/events?topic=noise&typeMatcher=%5Ewanted&heartbeat=1") as reader:
        noise = threading.Thread(target=make_noise, args=(port, enough))
        noise.start()
        try:
            for body in reader.bodies():
                assert reader.parser.receive(body) == []
                if reader.parser.comments:
                    break
        finally:
            enough.set()
            noise.join()
    assert reader.parser.last_id > first


def make_noise(port: int, enough: threading.Event) -> None:
    with Client(port) as client:
        while not enough.is_set():
            post(client, "topic=noise&type=other")


def test_who_is_there_before_anything_is_stored_misses_nothing_when_it_comes_back(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with RunningBroker("--http-port", "0", environment=child_environment(tmp_path_factory)) as running:
        port = int(running.ready["http_port"])
        lasts = []
        for said in ({}, {"Last_Event_ID": "00000000-0000-6000-8000-000000000000"}):
            with Reader(port, "/api/events?topic=first", **said) as reader:
                assert reader.parser.receive(next(reader.bodies())) == [], "nothing is ahead, and nothing is told"
                lasts.append(reader.parser.last_id)
        assert lasts == ["00000000-0000-6000-8000-000000000000", ""]
        with Client(port) as http:
            post(http, "topic=first&type=t", b"meanwhile")
        with Reader(port, "/api/events?topic=first", Last_Event_ID=lasts[0]) as reader:
            assert reader.take(1)[0].data == "meanwhile"


def test_a_stream_ends_after_so_many_or_at_the_end(http: Client) -> None:
    for _ in range(5):
        post(http, "topic=limited&type=t")
    assert len(events(http, "topic=limited&limit=3")) == 3
    assert len(events(http, "topic=limited")) == 5


def test_a_topic_that_comes_to_be_is_in_the_stream(http: Client, port: int) -> None:
    with Reader(port, "/api/events?topic=/appearing/%23") as reader:
        next(reader.bodies())
        for number in range(3):
            post(http, f"topic=/appearing/t{number}&type=t", b"%d" % number)
        assert [each.data for each in reader.take(3)] == ["0", "1", "2"]


def test_places_to_begin_at(http: Client) -> None:
    ids = [post(http, "topic=places&type=t", b"%d" % number)["id"] for number in range(4)]
    for start, first in ((ids[2], "2"), ("2", "2"), ("2020-01-01T00:00:00Z", "0"), ("earliest", "0")):
        answer = http.ask("GET", f"/api/events?topic=places&from={start}&follow=false", Accept="application/x-ndjson")
        assert json.loads(answer.body.splitlines()[0])["payload"] == first


@pytest.mark.slow
def test_what_retention_took_is_told(tmp_path: Path) -> None:
    name = TopicName.parse("short")
    with Store.open(tmp_path / "data", create=True) as store:
        store.create_topic(name)
        done = store.append(name, Draft.of([Message(payload=b"%d" % number) for number in range(4)]))
        ids = [format_id(done.ids[row]) for row in range(4)]
        store.truncate_before(name, 3)
    with RunningBroker("--http-port", "0", data=tmp_path / "data") as running:
        port = int(running.ready["http_port"])
        with Reader(port, "/api/events?topic=short", Last_Event_ID=ids[0]) as reader:
            gap, event = reader.take(2)
            assert (gap.type, gap.json["stop"], gap.json["reason"]) == ("penstock.gap", 3, "retention")
            assert (event.id, event.data) == (ids[3], "3")
        with Client(port) as http:
            answer = http.ask("GET", "/api/events?topic=short&from=1")
            assert (answer.status, code(answer)) == (410, "OFFSET_OUT_OF_RANGE")


def test_an_id_of_elsewhere_is_told(port: int, http: Client) -> None:
    post(http, "topic=ahead&type=t")
    with Reader(port, "/api/events?topic=ahead", Last_Event_ID="ffffffff-ffff-6fff-8000-000000000000") as reader:
        (gap,) = reader.take(1)
        assert "ahead" in gap.json["reason"]
        post(http, "topic=ahead&type=t", b"next")
        assert reader.take(1)[0].data == "next"


def test_signs_of_life_come_when_nothing_else_does(port: int) -> None:
    with Reader(port, "/api/events?topic=silent&heartbeat=1") as reader:
        while not reader.parser.comments:
            reader.parser.receive(next(reader.bodies()))
        assert reader.parser.retry_ms == 1000
    with Reader(port, "/api/events?topic=silent&heartbeat=1", Accept="application/x-ndjson") as reader:
        assert next(reader.bodies()) == b"\n"


@pytest.mark.parametrize(
    ("query", "headers", "status"),
    [
        ("typeMatcher=(", {}, 422),
        ("typeMatcher=" + "a" * 300, {}, 422),
        ("topic=no!topic", {}, 404),
        ("topic=system.log", {}, 422),
        ("from=yesterday", {}, 422),
        ("from=5", {}, 422),
        ("topic=events&partition=9", {}, 422),
        ("limit=0", {}, 422),
        ("limit=x", {}, 422),
        ("", {"Last_Event_ID": "garbage"}, 422),
        ("", {"Last_Event_ID": "17"}, 422),
        ("", {"Last_Event_ID": "x" * 5000}, 422),
        ("", {"Accept": "image/png"}, 406),
    ],
)
def test_what_cannot_be_asked_is_refused_before_anything_is_sent(
    http: Client, query: str, headers: dict[str, str], status: int
) -> None:
    post(http, "type=a")
    post(http, "type=a&topic=other")
    answer = http.ask("GET", f"/api/events?{query}", **headers)
    assert answer.status == status, answer.body
    assert answer.json["error"]["message"]


@pytest.mark.parametrize("late", ["5236-03-31T21:21:01Z", "9999-12-31T23:59:59Z"])
def test_a_time_that_no_id_can_have_is_waited_for(port: int, late: str) -> None:
    with Reader(port, f"/api/events?from={late}&heartbeat=1") as reader:
        assert reader.status == 200
        pieces = [next(reader.bodies()) for _ in range(2)]
    assert pieces == [b"retry: 1000\nid: ffffffff-ffff-6ffe-8000-000000000000\n\n", b": heartbeat\n\n"]


def test_of_a_stream_one_may_ask_the_head_alone(http: Client) -> None:
    answer = http.ask("HEAD", "/api/events")
    assert (answer.status, answer.body) == (200, b"")
    assert answer.headers["cache-control"] == "no-store"


def test_readers_that_take_nothing_cost_little_and_hold_up_nobody(
    http: Client, port: int, broker: RunningBroker
) -> None:
    async def fill() -> None:
        async with connect(broker.url) as client, client.producer("large") as producer:
            for _ in range(400):
                await producer.send(b"x" * 100_000, type="t")

    asyncio.run(fill())
    before = resident(broker.pid)
    stuck = [socket.create_connection(("127.0.0.1", port)) for _ in range(30)]
    for each in stuck:
        each.sendall(b"GET /api/events?topic=large&from=earliest HTTP/1.1\r\nHost: localhost\r\n\r\n")
    with Reader(port, "/api/events?topic=large&from=earliest&limit=400") as reader:
        assert len(list(reader)) == 400
    assert resident(broker.pid) - before < 120_000_000
    for each in stuck:
        each.close()


def test_where_room_is_short_those_that_take_nothing_are_cut_off_and_others_read_on(
    http: Client, port: int, broker: RunningBroker
) -> None:
    for _ in range(6):
        post(http, "topic=huge&type=t", b"x" * 1_000_000)
    stuck = [socket.socket() for _ in range(90)]
    with Reader(port, "/api/events?topic=other.one") as reader:
        for number, each in enumerate(stuck):
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            each.connect(("127.0.0.1", port))
            # Each asks for something else, so that nothing is shared.
            path = f"/api/events?topic=huge&from=earliest&typeMatcher=t|x{number}"
            each.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        eventually(lambda: "event stream cut off" in broker.log, "a reader that is cut off")
        post(http, "topic=other.one&type=t", b"still here")
        assert [each.data for each in reader.take(1)] == ["still here"]
    for each in stuck:
        each.close()


def resident(pid: int) -> int:
    with open(f"/proc/{pid}/statm") as file:  # noqa: PTH123
        return int(file.read().split()[1]) * 4096


# what is wrong


@pytest.mark.parametrize(
    ("asked", "field", "expected"),
    [
        ("POST /api/events?type=a&foo=1", "foo", "'foo' is no parameter of this: there are type, topic, key, lines"),
        ("GET /api/events?follow=false&topics=a", "topics", "there are topic, partition, typeMatcher, from"),
        ("GET /api/events?limit=0", "limit", "limit='0' is wrong: a whole number from 1 to 2147483647"),
        ("GET /api/events?follow=no", "follow", "true or false"),
        ("POST /api/events?type=a&lines=x", "lines", "one of message, payload"),
        ("GET /api/events?typeMatcher=(", "typeMatcher", "that RE2 takes: missing ): ("),
    ],
)
def test_what_is_wrong_is_told_by_its_name_with_what_is_allowed(
    http: Client, asked: str, field: str, expected: str
) -> None:
    method, _, path = asked.partition(" ")
    answer = http.ask(method, path, b"x" if method == "POST" else None)
    assert (answer.status, code(answer)) == (422, "INVALID_REQUEST")
    assert answer.json["error"]["details"]["field"] == field
    assert expected in answer.json["error"]["message"]


def test_a_method_that_there_is_not_is_answered_with_those_there_are(http: Client) -> None:
    answer = http.ask("DELETE", "/api/events")
    assert (answer.status, code(answer), answer.headers["allow"]) == (405, "INVALID_REQUEST", "POST, GET, HEAD")


# hostile


def test_a_client_that_goes_away_in_the_middle_leaves_nothing_behind(http: Client, port: int) -> None:
    post(http, "topic=gone&type=t")
    for _ in range(50):
        with Reader(port, "/api/events?topic=gone&from=earliest") as reader:
            reader.take(1)
    with Reader(port, "/api/events?topic=gone&from=earliest&limit=1") as reader:
        assert len(list(reader)) == 1


def test_half_closed_connections_are_ended(http: Client, port: int) -> None:
    with Reader(port, "/api/events?topic=half") as reader:
        next(reader.bodies())
        reader.connection.shutdown(socket.SHUT_WR)
        assert list(reader.bodies()) == []
    cut = b"POST /api/events?type=t&topic=half HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nhal"
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(cut)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65536):
            pass
    assert events(http, "topic=half") == []


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"X-Attr-A: " + b"a" * 100_000 + b"\r\n\r\n", b" 431 "),
        (b"X-Attr-A: \xff\xfe\r\nContent-Length: 0\r\n\r\n", b" 422 "),
        (b"Content-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx", b" 415 "),
        (b"Content-Length: 99999999\r\n\r\n" + b"x" * 17_000_000, b" 413 "),
        (b"Content-Type: multipart/mixed\r\nContent-Length: 1\r\n\r\nx", b" 422 "),
        (b"Content-Type: multipart/mixed; boundary=b\r\nContent-Length: 7\r\n\r\n--b\r\n\r\n", b" 400 "),
        (b"Idempotency-Key: " + b"k" * 300 + b"\r\nContent-Length: 0\r\n\r\n", b" 422 "),
        (b"".join(b"X-Attr-%d: 1\r\n" % number for number in range(300)) + b"Content-Length: 0\r\n\r\n", b" 422 "),
    ],
    ids=["huge header", "bad UTF-8", "compressed", "huge body", "no boundary", "truncated", "long key", "attributes"],
)
def test_what_is_hostile_is_refused(http: Client, port: int, sent: bytes, status: bytes) -> None:
    head = b"POST /api/events?type=t&topic=hostile HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    try:
        answer = raw(port, head + sent)
    except (ConnectionResetError, BrokenPipeError):
        assert status == b" 413 "  # it was not read to its end
    else:
        assert status in answer.partition(b"\r\n")[0] + b" ", answer[:300]
    assert events(http, "topic=hostile") == []


def test_pages_of_other_sites_may_neither_post_nor_read(http: Client) -> None:
    assert http.ask("POST", "/api/events?type=t", b"x", Origin="https://evil.example").status == 403
    assert http.ask("GET", "/api/events", Origin="https://evil.example").status == 403


@pytest.mark.slow
def test_streams_end_at_once_when_the_broker_stops(tmp_path_factory: pytest.TempPathFactory) -> None:
    with RunningBroker("--http-port", "0") as running:
        port = int(running.ready["http_port"])
        with Reader(port, "/api/events") as reader:
            next(reader.bodies())
            began = time.monotonic()
            running.stop()
            assert list(reader.bodies()) == []
            assert time.monotonic() - began < 60
