"""The asyncio client against a real broker."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.cli.kit import child_environment
from tests.ports import free_ports

import penstock.aio
from penstock.aio import Message
from penstock.client import aio, live
from penstock.core.errors import (
    InvalidRequest,
    NoRouteFound,
    PayloadTooLarge,
    PenstockError,
    QuotaExceeded,
    ServiceUnavailable,
    Timeout,
)
from penstock.testing import RunningBroker

Story = Callable[[], Coroutine[Any, Any, None]]


def play(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 240))


async def gone(client: penstock.aio.AsyncClient) -> None:
    await until(lambda: not client.connected)


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not true():
            await asyncio.sleep(0.01)


def test_what_is_published_arrives_in_order_at_everybody(broker: RunningBroker) -> None:
    async def story() -> None:
        async with penstock.aio.connect(broker.url) as one, penstock.aio.connect(broker.url) as other:
            near, far = await one.subscribe("aio.order"), await other.subscribe("aio.#")
            await one.publish("aio.order", b"0")
            assert await one.publish_many("aio.order", (str(n) for n in range(1, 2000))) == 1999
            for subscription in (near, far):
                heard = [int((await anext(subscription)).text) for _ in range(2000)]
                assert heard == list(range(2000))

    play(story())


def test_a_subscription_can_be_iterated_at_once_and_ends_with_the_loop(broker: RunningBroker) -> None:
    async def story() -> None:
        async with penstock.aio.connect(broker.url) as client:
            messages = client.subscribe("aio.once")
            iterator = aiter(messages)
            first = asyncio.ensure_future(anext(iterator))
            await until(lambda: bool(client._subscriptions))
            await client.publish("aio.once", b"x")
            assert (await first).payload == b"x"
            await iterator.aclose()  # type: ignore[attr-defined]
            with pytest.raises(NoRouteFound):
                await client.publish("aio.once", b"x")

    play(story())


def test_a_publish_that_nobody_would_get_raises(broker: RunningBroker) -> None:
    async def story() -> None:
        async with penstock.aio.connect(broker.url) as client:
            with pytest.raises(NoRouteFound, match=r"aio\.nobody"):
                await client.publish("aio.nobody", b"")
            with pytest.raises(NoRouteFound):
                await client.publish_many("aio.nobody", [b""] * 10_000)
            with pytest.raises(PayloadTooLarge):
                await client.publish("aio.nobody", bytes(1024 * 1024 + 1))
            assert await client.ping() < 10

    play(story())


def test_requests_find_their_service_and_its_errors_come_back(broker: RunningBroker) -> None:
    async def echo(message: Message) -> bytes:
        return message.payload[::-1]

    def fail(message: Message) -> bytes:
        if message.text == "refuse":
            raise QuotaExceeded("not today", left=0)
        raise ZeroDivisionError("secret")

    async def story() -> None:
        async with (
            penstock.aio.connect(broker.url, name="echo", description="says it backwards") as server,
            penstock.aio.connect(broker.url) as client,
        ):
            async with await server.respond("aio.svc.echo", echo), await server.respond("aio.svc.fail", fail):
                assert await client.request("aio.svc.echo", "abc") == b"cba"
                answers = await asyncio.gather(*(client.request("aio.svc.echo", str(n)) for n in range(10, 200)))
                assert answers == [str(n)[::-1].encode() for n in range(10, 200)]
                with pytest.raises(QuotaExceeded, match="not today") as caught:
                    await client.request("aio.svc.fail", "refuse")
                assert caught.value.details == {"left": 0}
                with pytest.raises(PenstockError, match="ZeroDivisionError") as hidden:
                    await client.request("aio.svc.fail", "crash")
                assert "secret" not in hidden.value.message
                with pytest.raises(InvalidRequest, match="already"):
                    await server.respond("aio.svc.echo", echo)
            with pytest.raises(NoRouteFound):
                await client.request("aio.svc.echo", "abc")

    play(story())


def test_a_request_times_out_where_the_broker_says_so(broker: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aio, "_REQUEST_GRACE_SECONDS", 60.0)  # however long its word takes to come

    async def never(message: Message) -> bytes:
        await asyncio.sleep(60)
        return message.payload

    async def story() -> None:
        async with penstock.aio.connect(broker.url) as server, penstock.aio.connect(broker.url) as client:
            await server.respond("aio.slow", never)
            with pytest.raises(Timeout, match="Request timed out") as caught:
                await client.request("aio.slow", b"", timeout=0.1)
            assert "targetServiceId" in caught.value.details

    play(story())


def test_a_server_that_goes_is_reported_at_once(broker: RunningBroker) -> None:
    async def story() -> None:
        asked = asyncio.Event()

        async def never(message: Message) -> bytes:
            asked.set()
            await asyncio.sleep(60)
            return message.payload

        async with penstock.aio.connect(broker.url) as client:
            server = await penstock.aio.connect(broker.url)
            await server.respond("aio.gone", never)
            waiting = asyncio.create_task(client.request("aio.gone", b"", timeout=60))
            await asked.wait()
            await server.close()
            with pytest.raises(ServiceUnavailable, match="disconnected"):
                await waiting

    play(story())


def test_callbacks_are_called_in_turn_and_their_failures_do_not_end_it(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        heard: list[str] = []

        async def slowly(message: Message) -> None:
            await asyncio.sleep(0)
            if message.text == "1":
                raise ValueError("bad one")
            heard.append(message.text)

        async with penstock.aio.connect(broker.url) as client:
            async with await client.subscribe("aio.called", slowly):
                await client.publish_many("aio.called", ["0", "1", "2"])
                await until(lambda: len(heard) == 2)
            assert heard == ["0", "2"]
            with pytest.raises(NoRouteFound):
                await client.publish("aio.called", b"")

    with caplog.at_level(logging.ERROR):
        play(story())
    assert "bad one" in caplog.text


def test_two_iterators_over_one_pattern_both_get_everything(broker: RunningBroker) -> None:
    async def story() -> None:
        async with penstock.aio.connect(broker.url) as client:
            one, two = await client.subscribe("aio.twice"), await client.subscribe("AIO.twice")
            await client.publish("aio.twice", b"x")
            assert (await anext(one)).payload == (await anext(two)).payload == b"x"
            await one.close()
            await client.publish("aio.twice", b"y")
            assert (await anext(two)).payload == b"y"
            assert [message async for message in one] == []

    play(story())


def test_a_reader_that_is_slow_is_waited_for_and_loses_nothing(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "_WAITING_MAX", 1000)

    async def story() -> None:
        async with penstock.aio.connect(broker.url) as slow, penstock.aio.connect(broker.url) as quick:
            waiting = await slow.subscribe("aio.slowly")
            await quick.publish_many("aio.slowly", (b"%d" % n for n in range(20_000)))
            heard = [int((await anext(waiting)).text) for _ in range(20_000)]
            assert heard == list(range(20_000))

    play(story())


def test_answers_are_read_however_full_a_subscription_is_and_whoever_does_not_keep_up_is_told(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "_WAITING_MAX", 10)

    async def story() -> None:
        async with penstock.aio.connect(broker.url) as client:
            waiting = await client.subscribe("aio.full")
            for _ in range(30):
                await client.publish("aio.full", b"")
            assert [(await anext(waiting)).payload for _ in range(30)] == [b""] * 30
            await client.publish_many("aio.full", [b""] * 100)
            heard = [await anext(waiting) for _ in range(40)]
            with pytest.raises(QuotaExceeded, match="too slow: 40 messages"):
                await anext(waiting)
            assert len(heard) == 40
            await client.ping()

    play(story())


def test_a_pipeline_on_one_client_does_not_hold_itself_up(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "_WAITING_MAX", 200)

    async def story() -> None:
        async with penstock.aio.connect(broker.url) as client, penstock.aio.connect(broker.url) as other:
            done = await other.subscribe("aio.done")

            async def pass_on(message: Message) -> None:
                await client.publish("aio.done", message.payload)

            await client.subscribe("aio.todo", pass_on)
            await other.publish_many("aio.todo", (b"%d" % n for n in range(700)))
            assert [int((await anext(done)).text) for _ in range(700)] == list(range(700))

    play(story())


def test_a_subscription_is_full_by_its_bytes_too(broker: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "_WAITING_BYTES_MAX", 1000)

    async def story() -> None:
        async with penstock.aio.connect(broker.url) as client, penstock.aio.connect(broker.url) as other:
            waiting = await client.subscribe("aio.bytes")
            await other.publish_many("aio.bytes", [bytes(100)] * 10)
            await until(lambda: waiting.full)
            await other.publish_many("aio.bytes", [bytes(100)] * 25)
            assert len([await anext(waiting) for _ in range(35)]) == 35
            assert not waiting.full

    play(story())


class Half:
    """A proxy between a client and a broker that cuts the connection in the middle of a message, once."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.left = 1

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._port)
        forward = asyncio.create_task(self._pipe(reader, up_writer))
        try:
            while data := await up_reader.read(65_536):
                if b"cut here" in data and self.left:
                    self.left -= 1
                    writer.write(data[: data.index(b"cut here") + 3])
                    await writer.drain()
                    break
                writer.write(data)
        finally:  # also where the loop ends before both sides have hung up
            forward.cancel()
            writer.close()
            up_writer.close()

    async def _pipe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            writer.write(data)
        writer.close()


def test_a_connection_that_breaks_in_the_middle_of_a_message_is_made_again(broker: RunningBroker) -> None:
    async def story() -> None:
        server = await asyncio.start_server(Half(broker.tcp_port).serve, "127.0.0.1", 0)
        url = f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server, penstock.aio.connect(url) as client, penstock.aio.connect(broker.url) as other:
            heard = await client.subscribe("aio.half")
            await other.publish("aio.half", "cut here")
            await until(lambda: not client.connected)
            await until(lambda: client.connected)
            await other.publish("aio.half", "whole")
            assert (await anext(heard)).text == "whole"

    play(story())


def test_a_call_ends_in_time_also_where_nobody_reads() -> None:
    async def silent(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\x00\x00\x00\x22publish:system.initialize:1.0.0\n{}")
        try:
            await asyncio.sleep(60)
        finally:
            writer.transport.abort()

    async def story() -> None:
        server = await asyncio.start_server(silent, "127.0.0.1", 0, limit=1)
        url = f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with penstock.aio.connect(url, timeout=3, payload_bytes_max=32 << 20) as client:
            with pytest.raises(Timeout):
                await client.publish("a.b", bytes(32 << 20))
        server.close()

    play(story())


def test_the_client_can_be_closed_from_its_own_callback_and_handler(broker: RunningBroker) -> None:
    async def story() -> None:
        for how in ("callback", "handler"):
            client = await penstock.aio.connect(broker.url)
            async with penstock.aio.connect(broker.url) as other:

                async def end(_message: Message, client: penstock.aio.AsyncClient = client) -> bytes:
                    await client.close()
                    return b""

                if how == "callback":
                    await client.subscribe("aio.close", end)
                    await other.publish("aio.close", b"")
                else:
                    await client.respond("aio.close", end)
                    with pytest.raises(ServiceUnavailable):
                        await other.request("aio.close", b"")
                await gone(client)

    play(story())


def test_a_cancelled_subscription_leaves_nothing_at_the_broker(broker: RunningBroker) -> None:
    async def story() -> None:
        async with penstock.aio.connect(broker.url) as client:
            for pending in (client.subscribe("aio.gone"), client.respond("aio.gone", lambda message: message.payload)):
                task = asyncio.ensure_future(pending)
                await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            assert await client.request("system.service.subscriptions") == b'{"subscriptions":[]}'
            one, two = await asyncio.gather(client.subscribe("aio.both"), client.subscribe("aio.both"))
            await client.publish("aio.both", b"x")
            assert (await anext(one)).payload == (await anext(two)).payload == b"x"

    play(story())


def test_the_last_answer_is_sent_before_the_client_is_closed(broker: RunningBroker) -> None:
    async def story() -> None:
        async with penstock.aio.connect(broker.url) as other:
            for _ in range(20):
                asked = asyncio.Event()

                async def slowly(message: Message, asked: asyncio.Event = asked) -> bytes:
                    asked.set()
                    await asyncio.sleep(0.01)
                    return message.payload

                async with penstock.aio.connect(broker.url) as client:
                    await client.respond("aio.last", slowly)
                    answer = asyncio.create_task(other.request("aio.last", b"x"))
                    await asked.wait()
                assert await answer == b"x"

    play(story())


def test_payloads_topics_and_timeouts_of_the_wrong_kind_are_refused_here(broker: RunningBroker) -> None:
    async def story() -> None:
        async with penstock.aio.connect(broker.url) as client:
            for wrong in (42, True, None, {"a": 1}, [104, 105], 1.5):
                with pytest.raises(TypeError, match="a payload is bytes or str"):
                    await client.publish("a.b", wrong)  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="a topic is a str"):
                await client.publish(None, b"")  # type: ignore[arg-type]
            for timeout in (0, -1, float("nan"), float("inf"), "2s", True):
                with pytest.raises(InvalidRequest, match="number of seconds above 0"):
                    await client.request("a.b", b"", timeout=timeout)  # type: ignore[arg-type]
            await client.respond("aio.wrong", lambda _: 7)  # type: ignore[arg-type, return-value]
            with pytest.raises(PenstockError, match="TypeError"):
                await client.request("aio.wrong", b"")
            await client.respond("aio.large", lambda _: bytes(2 << 20))
            with pytest.raises(PayloadTooLarge):
                await client.request("aio.large", b"")
            assert client.connected

    play(story())
    with pytest.raises(InvalidRequest, match="use tls://"):
        penstock.aio.connect("tcp://a:1", tls_ca="ca.pem")


def test_a_start_that_fails_leaves_no_connection(broker: RunningBroker) -> None:
    async def story() -> None:
        before = asyncio.all_tasks()
        with pytest.raises(InvalidRequest, match="too long"):
            await penstock.aio.connect(broker.url, name="n" * 37)
        assert asyncio.all_tasks() == before

    play(story())


def test_after_a_crash_subscriptions_and_services_come_back_and_the_unconfirmed_raises(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    environment = child_environment(tmp_path_factory)
    data = tmp_path_factory.mktemp("data") / "data"
    (port,) = map(str, free_ports(1))

    async def story(first: RunningBroker) -> None:
        async with penstock.aio.connect(first.url, name="survivor") as client, penstock.aio.connect(first.url) as other:
            heard = await client.subscribe("crash.#")
            held = asyncio.Event()

            async def hold(message: Message) -> bytes:
                held.set()
                await asyncio.sleep(1e6 if message.text == "hold" else 0)
                return b"here"

            await client.respond("svc.crash", hold)
            waiting = asyncio.create_task(other.request("svc.crash", "hold", timeout=60))
            await held.wait()
            first.kill()
            with pytest.raises(ServiceUnavailable, match="before this was confirmed"):
                await waiting
            await gone(client)
            with RunningBroker("--tcp-port", port, data=data, environment=environment):
                await until(lambda: client.connected and other.connected)
                await other.publish("crash.again", b"back")
                assert (await anext(heard)).text == "back"
                assert await other.request("svc.crash", "now") == b"here"
                assert b'"name":"survivor"' in await other.request("system.service.list")

    with RunningBroker("--tcp-port", port, data=data, environment=environment) as first:
        play(story(first))


def test_without_reconnecting_the_loss_is_final_and_iterators_say_why(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    async def story(running: RunningBroker) -> None:
        async with penstock.aio.connect(running.url, reconnect=False) as client:
            subscription = await client.subscribe("a.b")
            running.stop()
            with pytest.raises(ServiceUnavailable, match="stopping"):
                await anext(subscription)
            with pytest.raises(ServiceUnavailable, match="stopping"):
                await client.publish("a.b", b"")

    with RunningBroker(environment=child_environment(tmp_path_factory)) as running:
        play(story(running))


def test_no_broker_is_an_error_that_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        with socket.socket() as taken:  # by one who does not listen
            taken.bind(("127.0.0.1", 0))
            port = taken.getsockname()[1]
            with pytest.raises(ServiceUnavailable, match=f"no broker at tcp://127.0.0.1:{port}"):
                await penstock.aio.connect(f"tcp://127.0.0.1:{port}")

    play(story())


def test_a_port_that_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            url = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
            with pytest.raises(Timeout, match=r"within 0\.2 s"):
                await penstock.aio.connect(url, timeout=0.2)

    play(story())


def test_a_client_that_is_closed_or_was_never_open_says_so(broker: RunningBroker) -> None:
    async def story() -> None:
        client = penstock.aio.connect(broker.url)
        with pytest.raises(InvalidRequest, match="not connected yet"):
            await client.publish("a.b", b"")
        async with client:
            subscription = await client.subscribe("aio.closed")
        assert [message async for message in subscription] == []
        with pytest.raises(ServiceUnavailable, match="closed"):
            await client.publish("a.b", b"")
        await client.close()

    play(story())


def test_a_subscription_that_is_refused_leaves_nothing_behind(broker: RunningBroker) -> None:
    async def story() -> None:
        async with penstock.aio.connect(broker.url) as client:
            with pytest.raises(InvalidRequest, match="restricted"):
                await client.subscribe("system.log")
            with pytest.raises(InvalidRequest, match="restricted"):
                await client.respond("system.x", lambda message: message.payload)
            assert await client.request("system.service.subscriptions") == b'{"subscriptions":[]}'

    play(story())


def test_the_names_are_where_users_look_for_them() -> None:
    assert penstock.aio.connect is aio.connect
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        penstock.nothing  # noqa: B018
