"""The client without asyncio, against a real broker."""

from __future__ import annotations

import threading

import pytest

import penstock
from penstock.core.errors import NoRouteFound, PenstockError, ServiceUnavailable
from penstock.testing import RunningBroker


def threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name.startswith("penstock-client")]


def test_publish_and_iterate(broker: RunningBroker) -> None:
    with penstock.connect(broker.url) as client, client.subscribe("blocking.#") as messages:
        client.publish("blocking.a", '{"n": 1}')
        assert client.publish_many("blocking.b", [b"2", b"3"]) == 2
        heard = [next(iter(messages)) for _ in range(3)]
        assert [message.topic for message in heard] == ["blocking.a", "blocking.b", "blocking.b"]
        assert heard[0].json() == {"n": 1}
        with pytest.raises(TimeoutError):
            messages.get(timeout=0.05)
        assert client.ping() < 10


def test_request_and_respond_where_the_handler_uses_the_same_client(broker: RunningBroker) -> None:
    with penstock.connect(broker.url, name="blocking") as client:

        def twice(message: penstock.Message) -> bytes:
            return client.request("blocking.once", message.payload) * 2

        def once(message: penstock.Message) -> bytes:
            if not message.payload:
                raise PenstockError("nothing to say")
            return message.payload

        with client.respond("blocking.once", once), client.respond("blocking.twice", twice, priority=2):
            assert client.request("blocking.twice", "ab", timeout=10) == b"abab"
            with pytest.raises(PenstockError, match="nothing to say"):
                client.request("blocking.once", "")
        with pytest.raises(NoRouteFound):
            client.request("blocking.once", "")


def test_callbacks_come_in_another_thread(broker: RunningBroker) -> None:
    heard: list[tuple[str, bool]] = []
    done = threading.Event()

    def called(message: penstock.Message) -> None:
        heard.append((message.text, threading.current_thread() is threading.main_thread()))
        if len(heard) == 2:
            done.set()

    with penstock.connect(broker.url) as client:
        client.subscribe("blocking.called", called)
        client.publish("blocking.called", "1")
        client.publish("blocking.called", "2")
        assert done.wait(20)
    assert heard == [("1", False), ("2", False)]


def test_closing_ends_the_iterator_and_the_thread(broker: RunningBroker) -> None:
    client = penstock.connect(broker.url)
    messages = client.subscribe("blocking.end")
    client.register("blocking", "to be closed")
    open_before = client.connected
    client.close()
    client.close()
    assert open_before
    assert not threads()
    assert not client.connected
    del messages


def test_no_broker_leaves_no_thread_behind() -> None:
    with pytest.raises(ServiceUnavailable, match="no broker at"):
        penstock.connect("tcp://127.0.0.1:1", timeout=5)
    assert not threads()
