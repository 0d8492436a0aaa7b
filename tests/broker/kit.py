"""A broker with its clients and a clock, and no sockets: what is sent in, what comes out at whom."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from random import Random
from typing import Any

from penstock.broker.broker import Broker
from penstock.broker.clients import Client
from penstock.broker.effects import Close, Effect, Send
from penstock.broker.routing import Kind, Trie, _Node
from penstock.core.errors import PenstockError
from penstock.core.limits import WireLimits
from penstock.core.names import TopicPattern
from penstock.protocol.blocks import BlockReader, Scratch
from penstock.protocol.frames import Frame, FrameLimits, FrameReader, Rejected
from penstock.testing import ManualClock

SUCCESS = '{"status":"success"}'
FAILURE = '{"status":"failure"}'
START_MS = 5_000_000
_SCRATCH = Scratch()
_UUID = re.compile("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
_OURS = "00000000-0000-4000"


def own_id(number: int) -> str:
    """An id of the client's own; every other one is the broker's."""
    return f"{_OURS}-8000-{number:012x}"


ID, ID2, ID3, ID4 = (own_id(number) for number in range(1, 5))


def normal(text: str) -> str:
    """Ids the broker made up are `<uuid>`, times are `<time>`."""
    shown = _UUID.sub(lambda found: found[0] if found[0].startswith(_OURS) else "<uuid>", text)
    return _TIME.sub("<time>", shown)


def framed(message: bytes | str) -> bytes:
    raw = message.encode() if isinstance(message, str) else message
    return len(raw).to_bytes(4, "big") + raw


def text_of(frame: Frame) -> str:
    header = frame.header
    fields = [header.action.value, header.topic, header.version]
    assert header.parent_id is None, "the broker passes no parent id on"
    assert header.timeout_ms is None, "the broker passes no timeout on"
    if header.request_id is not None:
        fields.append(header.request_id)
    return normal(f"{':'.join(fields)}\n{frame.payload.decode('utf-8', 'backslashreplace')}")


def error_of(text: str) -> dict[str, Any]:
    found = json.loads(text.partition("\n")[2])["error"]
    assert isinstance(found, dict)
    assert set(found) <= {"code", "message", "timestamp", "details"}
    assert found["timestamp"] == "<time>"
    return found


def code_of(text: str) -> str:
    return str(error_of(text)["code"])


class Peer:
    """One connection, as its client sees it."""

    def __init__(self, world: World, client: Client) -> None:
        self.world = world
        self.client = client
        self.got: list[Frame] = []
        """Everything that came and was not looked at yet."""

        self.closed: PenstockError | None = None
        self._reader = BlockReader(world.frame_limits, _SCRATCH)
        self._one_by_one = FrameReader(world.frame_limits)

    @property
    def id(self) -> str:
        return self.client.id

    def send(self, *messages: bytes | str) -> list[str]:
        """Send them in one piece; what came back at once."""
        self.post(*messages)
        return self.take()

    def send_bytes(self, data: bytes) -> list[str]:
        self._post(data)
        return self.take()

    def post(self, *messages: bytes | str) -> None:
        """Send them, and leave what comes back where it is."""
        self._post(b"".join(map(framed, messages)))

    def _post(self, data: bytes) -> None:
        broker, now_ms = self.world.broker, self.world.now_ms
        for effects in broker.receive(self.client, self._reader.receive_data(data), now_ms):
            self.world.apply(effects)

    def send_one_by_one(self, *messages: bytes | str) -> list[str]:
        """The same through the reader that knows no runs."""
        self._one_by_one.receive_data(b"".join(map(framed, messages)))
        while (item := self._one_by_one.next_frame()) is not None:
            for effects in self.world.broker.receive(self.client, [item], self.world.now_ms):
                self.world.apply(effects)
        return self.take()

    def take(self) -> list[str]:
        return [text_of(frame) for frame in self.take_frames()]

    def take_frames(self) -> list[Frame]:
        got, self.got = self.got, []
        return got

    def ask(self, topic: str, payload: object = None, *, request_id: str = ID) -> Any:
        """A request to a system topic: its answer, read."""
        given = b"" if payload is None else payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        (answer,) = self.send(f"request:{topic}:1.0.0:{request_id}\n".encode() + given)
        header, _, body = answer.partition("\n")
        assert header == f"response:{topic}:1.0.0:{request_id}"
        return json.loads(body)

    def subscribe(self, topic: str, action: str = "publish", **options: object) -> None:
        found = self.ask("system.topic.subscribe", {"topic": topic, "action": action} | options)
        assert found == {"status": "success"}

    def leave(self) -> None:
        self.world.leave(self)


class World:
    """The broker, its peers, and the time."""

    def __init__(self, seed: int = 1, **limits: int) -> None:
        self.limits = WireLimits(**limits).check()
        self.frame_limits = FrameLimits(self.limits.payload_bytes_max, self.limits.request_timeout_ms_max)
        self.clock = ManualClock()
        self.now_ms = START_MS
        self.broker = Broker(self.limits, self.clock, Random(seed), now_ms=self.now_ms)
        self.peers: dict[str, Peer] = {}

    def connect(self, *, greeted: bool = True) -> Peer:
        client, effects = self.broker.connect("127.0.0.1:5", self.now_ms)
        peer = self.peers[client.id] = Peer(self, client)
        self.apply(effects)
        if greeted:
            peer.take()
        return peer

    def leave(self, peer: Peer) -> None:
        del self.peers[peer.id]
        self.apply(self.broker.disconnect(peer.client, self.now_ms))

    def after(self, ms: int) -> None:
        """Let time pass, with a tick whenever the broker has something to do."""
        until = self.now_ms + ms
        while (due := self.broker.next_due_ms()) <= until:
            self._move_to(max(due, self.now_ms))
            self.apply(self.broker.tick(self.now_ms))
        self._move_to(until)

    def _move_to(self, now_ms: int) -> None:
        self.clock.advance_ms(now_ms - self.now_ms)
        self.now_ms = now_ms

    def apply(self, effects: list[Effect]) -> None:
        """As the hub does it: what is for nobody is dropped, who is closed is gone."""
        for effect in effects:
            peer = self.peers.get(effect.client)
            if peer is None:
                continue
            if isinstance(effect, Send):
                peer.got += self._read(effect.frames)
            elif isinstance(effect, Close):
                peer.closed = effect.reason
                self.leave(peer)
        self.check()

    def _read(self, data: bytes) -> Iterator[Frame]:
        """All that the broker sends keeps the rules it asks of others."""
        reader = FrameReader(self.frame_limits)
        reader.receive_data(data)
        read = 0
        while (item := reader.next_frame()) is not None:
            assert not isinstance(item, Rejected), f"the broker sent what it would refuse: {item.error}"
            read += 1
            yield item
        assert read > 0
        assert reader._position == len(reader._buffer), "half a frame"

    # what must always hold

    def check(self) -> None:
        self._check_routes()
        self._check_requests()
        clients = {client.id for client in self.broker.clients}
        assert clients == set(self.peers)
        assert set(self.broker.clients.loggers) <= clients
        assert all(
            (client.log_filter is not None) == (client.id in self.broker.clients.loggers)
            for client in self.broker.clients
        )

    def _check_routes(self) -> None:
        for kind in Kind:
            expected = {
                (str(pattern), client.id): priority
                for client in self.broker.clients
                for (each, pattern), priority in client.subscriptions.items()
                if each is kind
            }
            assert subscriptions_in(self.broker._routes._tries[kind]) == expected

    def _check_requests(self) -> None:
        requests = self.broker._requests
        of_server: dict[str, set[str]] = {}
        of_requester: dict[str, set[str]] = {}
        for request_id, request in requests._open.items():
            assert request.id == request_id
            of_server.setdefault(request.server, set()).add(request_id)
            if request.requester:
                of_requester.setdefault(request.requester, set()).add(request_id)
        assert requests._of_server == of_server
        assert requests._of_requester == of_requester
        assert set(requests._open) <= {each for _, each in requests._deadlines}
        assert of_server.keys() | of_requester.keys() <= {client.id for client in self.broker.clients}

    def state(self) -> object:
        """All that a frame can change, apart from counters and signs of life."""
        return (
            {client.id: dict(client.subscriptions) for client in self.broker.clients},
            {client.id: (client.name, client.description, client.log_filter) for client in self.broker.clients},
            dict(self.broker._requests._open),
        )


def subscriptions_in(trie: Trie) -> dict[tuple[str, str], int]:
    """Everything a trie holds, by pattern and client; and that none of its nodes is empty."""
    found: dict[tuple[str, str], int] = {}
    stack: list[tuple[_Node, tuple[str, ...]]] = [(trie._root, ())] if trie._root.below else []
    while stack:
        node, path = stack.pop()
        assert node.members or node.below, "an empty node was left behind"
        if node.members:
            pattern = TopicPattern(path[0], ".".join(path[1:]))
            found |= {(str(pattern), client): priority for client, priority in node.members.items()}
        stack += [(child, (*path, level)) for level, child in node.below.items()]
    return found
