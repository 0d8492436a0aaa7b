"""The blocking client against a real broker."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

import penstock
from penstock.core.errors import NoRouteFound, PenstockError, ServiceUnavailable
from penstock.testing import RunningBroker


def threads() -> set[threading.Thread]:
    """Return the threads of clients, of others in this process too."""
    return {each for each in threading.enumerate() if each.name.startswith("penstock-client")}


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
    before = threads()
    client = penstock.connect(broker.url)
    assert len(threads() - before) == 1
    messages = client.subscribe("blocking.end")
    client.register("blocking", "to be closed")
    open_before = client.connected
    client.close()
    client.close()
    assert open_before
    assert not threads() - before
    assert not client.connected
    del messages


def test_no_broker_leaves_no_thread_behind() -> None:
    before = threads()
    with pytest.raises(ServiceUnavailable, match="no broker at"):
        penstock.connect("tcp://127.0.0.1:1", timeout=20)
    assert not threads() - before


def test_a_closed_client_says_so_and_so_does_one_of_another_process(broker: RunningBroker) -> None:
    client = penstock.connect(broker.url)
    messages = client.subscribe("blocking.closed")
    client.close()
    for call in (client.ping, messages.get):
        with pytest.raises(ServiceUnavailable, match="is closed"):
            call()
    messages.close()


def test_many_nested_requests_do_not_starve_each_other(broker: RunningBroker) -> None:
    with penstock.connect(broker.url) as client:

        def outer(message: penstock.Message) -> bytes:
            return client.request("blocking.inner", message.payload, timeout=60)

        client.respond("blocking.inner", lambda message: message.payload)
        client.respond("blocking.outer", outer)
        with ThreadPoolExecutor(20) as pool:
            answers = list(pool.map(lambda n: client.request("blocking.outer", str(n), timeout=60), range(20)))
        assert answers == [str(n).encode() for n in range(20)]


def test_payloads_are_taken_in_the_callers_thread_and_may_use_the_client(broker: RunningBroker) -> None:
    with penstock.connect(broker.url) as client, client.subscribe("blocking.many") as messages:

        def payloads() -> Iterator[str]:
            for n in range(5):
                client.ping()
                yield f"{n} {threading.current_thread() is threading.main_thread()}"

        assert client.publish_many("blocking.many", payloads()) == 5
        heard = [messages.get(timeout=10) for _ in range(5)]
        assert [each.text for each in heard if each] == [f"{n} True" for n in range(5)]


def test_closing_from_a_callback_and_with_a_handler_that_hangs_does_not_hang(broker: RunningBroker) -> None:
    client = penstock.connect(broker.url)
    ended, held = threading.Event(), threading.Event()

    def end(_message: penstock.Message) -> None:
        client.close()
        ended.set()

    client.subscribe("blocking.over", end)
    client.respond("blocking.hang", lambda _: str(held.wait(60)))
    with penstock.connect(broker.url) as other:
        thread = threading.Thread(target=lambda: suppressed(other))
        thread.start()
        other.publish("blocking.over", b"")
        assert ended.wait(20)
        thread.join(20)
        assert not thread.is_alive()
    held.set()


def suppressed(client: penstock.Client) -> None:
    with suppress(PenstockError):
        client.request("blocking.hang", b"", timeout=30)
