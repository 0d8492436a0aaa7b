"""Test kit: a broker with its clients and a clock, and no sockets; frames go in, and tests read what comes out."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from penstock.broker.access.policy import AccessPolicy
from penstock.broker.base.effects import (
    AdjustBacklog,
    Append,
    AppendAtomically,
    Close,
    Effect,
    RunInThread,
    RunRegistryProcedure,
    Send,
    ValidatePayloads,
)
from penstock.broker.broker import Broker
from penstock.broker.live.connections import Client
from penstock.broker.live.routing import LiveKind, Trie, _Node
from penstock.broker.topics.topics import AutoCreate, TopicState
from penstock.core.errors import PenstockError
from penstock.core.limits import Limits, WireLimits
from penstock.core.names import TopicName, TopicPattern
from penstock.protocol.actions import Action
from penstock.protocol.batch_reader import BatchReader, Scratch
from penstock.protocol.frames import Frame, FrameLimits, FrameReader, RejectedFrame
from penstock.record.block import Block, Draft, parse_block
from penstock.record.message import Message, Record
from penstock.schema.languages import SchemaLanguages
from penstock.schema.steps import run_procedure
from penstock.storage.log.append_result import Durability
from penstock.storage.log.log import Log
from penstock.storage.store import Store
from penstock.testing import ManualClock

Elsewhere = Append | RunInThread | ValidatePayloads | RunRegistryProcedure

SUCCESS = '{"status":"success"}'
FAILURE = '{"status":"failure"}'
START_MS = 5_000_000
_SCRATCH = Scratch()
_UUID = re.compile("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
_OURS = "00000000-0000-4000"


def own_id(number: int) -> str:
    """Make an id of the client's own; all others are the broker's."""
    return f"{_OURS}-8000-{number:012x}"


ID, ID2, ID3, ID4 = (own_id(number) for number in range(1, 5))


def normal(text: str) -> str:
    """Replace ids that the broker made up by `<uuid>`, and times by `<time>`."""
    shown = _UUID.sub(lambda found: found[0] if found[0].startswith(_OURS) else "<uuid>", text)
    return _TIME.sub("<time>", shown)


def framed(message: bytes | str) -> bytes:
    raw = message.encode() if isinstance(message, str) else message
    return len(raw).to_bytes(4, "big") + raw


def text_of(frame: Frame) -> str:
    header = frame.header
    fields = [header.action.value, header.topic, header.version]
    of_subscription = header.action in (Action.MESSAGE, Action.RECORDS)
    assert header.parent_id is None or of_subscription, "the broker passes no parent id on"
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


def block_of(*messages: Message | bytes) -> bytes:
    """Encode messages into a block, as a client appends it."""
    given = (each if isinstance(each, Message) else Message(payload=each) for each in messages)
    return bytes(Draft.of(given).with_checksums().data)


def numbered(producer_id: int, first: int, *payloads: bytes, keys: tuple[bytes, ...] = ()) -> bytes:
    """Make a block of a producer that numbers its messages."""
    draft = Draft.of_payloads(payloads, keys=keys or None, producer_id=producer_id, first_request_id=first)
    return bytes(draft.data)


class Peer:
    """A connection, as its client sees it."""

    def __init__(self, world: World, client: Client) -> None:
        self.world = world
        self.client = client
        self.got: list[Frame] = []
        """Frames that have arrived and were not read yet."""

        self.closed: PenstockError | None = None
        self._reader = BatchReader(world.frame_limits, _SCRATCH)
        self._one_by_one = FrameReader(world.frame_limits)

    @property
    def id(self) -> str:
        return self.client.id

    def send(self, *messages: bytes | str) -> list[str]:
        """Send frames in one piece; return the frames that come back at once."""
        self.post(*messages)
        return self.take()

    def send_bytes(self, data: bytes) -> list[str]:
        self._post(data)
        return self.take()

    def post(self, *messages: bytes | str) -> None:
        """Send frames, and leave the answers unread."""
        self._post(b"".join(map(framed, messages)))

    def _post(self, data: bytes) -> None:
        broker, now_ms = self.world.broker, self.world.now_ms
        for effects in broker.receive(self.client, self._reader.receive_data(data), now_ms):
            self.world.apply(effects)

    def send_one_by_one(self, *messages: bytes | str) -> list[str]:
        """Send frames through the reader that does not batch runs."""
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
        """Send a request to a system topic; return its decoded answer."""
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

    # what is kept

    def _asked(self, action: str, topic: str, payload: bytes | object, request_id: str) -> None:
        given = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        self.post(f"{action}:{topic}:1.0.0:{request_id}\n".encode() + given)

    def answer(self, request_id: str = ID) -> Any:
        """Return the decoded answer under this id, None if it has not come yet; other frames stay unread."""
        found = [each for each in self.got if each.header.request_id == request_id]
        if not found:
            return None
        (frame,) = found
        assert frame.header.action is Action.RESPONSE
        self.got.remove(frame)
        return json.loads(frame.payload)

    def call(self, action: str, topic: str, payload: bytes | object = b"", *, request_id: str = ID) -> Any:
        self._asked(action, topic, payload, request_id)
        return self.answer(request_id)

    def publish(self, topic: str, payload: bytes = b"hi", *, request_id: str = ID) -> Any:
        return self.call("publish", topic, payload, request_id=request_id)

    def append(self, topic: str, *messages: Message | bytes, request_id: str = ID) -> Any:
        return self.call("append", topic, block_of(*messages), request_id=request_id)

    def consume(self, topic: str, *, request_id: str = ID, **options: object) -> Any:
        """Subscribe durably; `since` is the option `from`, which is no name in Python."""
        if "since" in options:
            options["from"] = options.pop("since")
        return self.call("subscribe", topic, options, request_id=request_id)

    def register(self, topic: str, **options: object) -> int:
        """Register a producer; return its id."""
        return int(self.ask("system.producer.register", {"topic": topic} | options)["producer_id"])

    def messages(self) -> list[tuple[dict[str, Any], bytes]]:
        """Take the messages that came one by one: metadata and payload. Other frames stay unread."""
        mine = [each for each in self.got if each.header.action is Action.MESSAGE]
        self.got = [each for each in self.got if each.header.action is not Action.MESSAGE]
        found = [each.payload.partition(b"\n") for each in mine]
        return [(json.loads(line), payload) for line, _, payload in found]

    def payloads(self) -> list[bytes]:
        return [payload for _, payload in self.messages()]

    def offsets(self) -> list[int]:
        return [facts["msg_id"]["topic_offset"] for facts, _ in self.messages()]

    def blocks(self) -> list[tuple[int, Block]]:
        """Take the messages that came as records: partition and block, with verified checksums."""
        mine = [each for each in self.got if each.header.action is Action.RECORDS]
        self.got = [each for each in self.got if each.header.action is not Action.RECORDS]
        return [(int((each.header.request_id or "")[-12:], 16), parse_block(each.payload)) for each in mine]

    def records(self) -> list[Record]:
        return [record for _, block in self.blocks() for record in block]


class World:
    """The broker, its peers, the time, and the disk if it has one.

    Effects for other threads are carried out at once, unless they are held back: then a test says what the disk
    answers, and when.
    """

    def __init__(
        self,
        seed: int = 1,
        *,
        root: Path | None = None,
        auto_create: AutoCreate = AutoCreate.RELIABLE,
        storage: Limits | None = None,
        access: AccessPolicy | None = None,
        **limits: int,
    ) -> None:
        self.limits = WireLimits(**limits).check()
        self.frame_limits = FrameLimits(
            self.limits.payload_bytes_max, self.limits.request_timeout_ms_max, self.limits.block_bytes_max
        )
        self.clock = ManualClock()
        self.now_ms = START_MS
        self.peers: dict[str, Peer] = {}
        self.held = False
        self.open: list[Elsewhere] = []
        """Effects for other threads that are held back, in the order in which the broker returned them."""

        self._held_bytes: Counter[str] = Counter()
        self._languages = SchemaLanguages()

        self._seed = seed
        self._root = root
        self._auto_create = auto_create
        self._access = access
        self._storage = storage or Limits(disk_reserve_bytes=1)
        self.store: Store | None = None if root is None else self._opened(root)
        self.broker = self._started()

    def _opened(self, root: Path) -> Store:
        # What a power cut takes is tested elsewhere, and a sync is slow.
        return Store.open(root, create=True, clock=self.clock, limits=self._storage, durability=Durability.OS)

    def _started(self) -> Broker:
        self._seed += 1
        chance = Random(self._seed)
        options: dict[str, Any] = {"store": self.store, "auto_create": self._auto_create, "now_ms": self.now_ms}
        options["access"] = self._access
        return Broker(self.limits, self.clock, chance, **options)

    # the disk

    @property
    def data(self) -> Store:
        assert self.store is not None
        return self.store

    def topic(self, topic: str) -> TopicState:
        assert self.broker.durable is not None
        return self.broker.durable.topics.find(TopicName.parse(topic))

    def log(self, topic: str, partition: int = 0) -> Log:
        return self.data.log(TopicName.parse(topic), partition)

    def stored(self, topic: str, partition: int = 0) -> list[bytes]:
        """Return the payloads that the log of a partition holds."""
        return [record.message.payload for record in self.log(topic, partition).records()]

    def hold(self) -> None:
        """Hold back the disk's answers until the test releases them."""
        self.held = True

    def release(self) -> None:
        """Carry out all effects that were held back, and later ones at once."""
        self.held = False
        self._carry_on()

    @property
    def appends(self) -> list[Append]:
        return [each for each in self.open if isinstance(each, Append)]

    @property
    def works(self) -> list[RunInThread]:
        return [each for each in self.open if isinstance(each, RunInThread)]

    @property
    def inspections(self) -> list[ValidatePayloads]:
        return [each for each in self.open if isinstance(each, ValidatePayloads)]

    def do(self, effect: Elsewhere | None = None, error: PenstockError | None = None) -> None:
        """Carry out this effect, or the oldest; with an error it fails instead."""
        taken = effect or self.open[0]
        if isinstance(taken, Append):
            assert next(each for each in self.appends if each.log is taken.log) is taken, "one log, one order"
        self.open = [each for each in self.open if each is not taken]
        outcome = self._outcome(taken) if error is None else error
        self.apply(self.broker.resume(taken.done, outcome, self.now_ms))

    def do_works(self) -> None:
        """Carry out all effects that are not appends."""
        while self.works:
            self.do(self.works[0])

    def _outcome(self, effect: Elsewhere) -> Any:
        try:
            match effect:
                case Append():
                    return self.data.writer.append(effect.log, effect.draft)
                case RunInThread():
                    return effect.run()
                case RunRegistryProcedure():
                    return run_procedure(effect.procedure, self._languages)
                case ValidatePayloads(definition, _, block):
                    validator = self._languages.validator(definition)
                    found = {row: validator.fault(bytes(block.payload(row))) for row in range(len(block))}
                    return {row: fault for row, fault in found.items() if fault is not None}
        except PenstockError as error:
            return error

    def _carry_on(self) -> None:
        while self.open and not self.held:
            self.do()

    def restart(self, *, clean: bool = False, reopen: bool = False) -> None:
        """End the broker with its connections and held-back effects, and start another on the same disk; `clean`: after
        it could save its state."""
        if clean:
            self.broker.close()
        self.peers.clear()
        self.open.clear()
        self._held_bytes.clear()
        self.held = False
        if reopen:
            self.data.close()
            assert self._root is not None
            self.store = self._opened(self._root)
        self.broker = self._started()

    def close(self) -> None:
        if self.store is not None:
            self.store.close()

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
        """Apply effects like the hub: frames for lost clients are dropped, closed clients are gone."""
        for effect in effects:
            if isinstance(effect, AppendAtomically):
                self.open += effect.parts  # the disk has taken them all; each is written by itself
                continue
            if isinstance(effect, Append | RunInThread | ValidatePayloads | RunRegistryProcedure):
                self.open.append(effect)
                continue
            if isinstance(effect, AdjustBacklog):
                self._held_bytes[effect.client] += effect.size
                continue
            peer = self.peers.get(effect.client)
            if peer is None:
                continue
            if isinstance(effect, Send):
                peer.got += self._read(effect.frames)
            elif isinstance(effect, Close):
                peer.closed = effect.reason
                self.leave(peer)
        self.check()
        self._carry_on()

    def _check_nothing_waits(self) -> None:
        """Assert that nothing waits for an effect that is not under way."""
        if self.broker.durable is not None:
            assert self.broker.durable.schema_enforcer.idle
            assert all(not topic.pending for topic in self.broker.durable.topics)
        assert not any(self._held_bytes.values())

    def _read(self, data: bytes) -> Iterator[Frame]:
        """Parse the broker's output, which must keep the rules that it sets for clients."""
        reader = FrameReader(self.frame_limits)
        reader.receive_data(data)
        read = 0
        while (item := reader.next_frame()) is not None:
            assert not isinstance(item, RejectedFrame), f"the broker sent what it would refuse: {item.error}"
            read += 1
            yield item
        assert read > 0
        assert reader._position == len(reader._buffer), "half a frame"

    # what must always hold

    def check(self) -> None:
        if not self.open:
            self._check_nothing_waits()
        self._check_routes()
        self._check_requests()
        clients = {client.id for client in self.broker.clients}
        assert clients == set(self.peers)
        assert set(self.broker.clients.loggers) <= clients
        assert all(
            (client.log_filter is not None) == (client.id in self.broker.clients.loggers)
            for client in self.broker.clients
        )
        self._check_durable()

    def _check_durable(self) -> None:
        durable = self.broker.durable
        if durable is None:
            return
        for topic in durable.topics:
            for runner in topic.subscriptions.values():
                runner.machine.check()
                assert set(runner.endpoints) == set(runner.machine.consumers)
                assert {seat.client for seat in runner.endpoints.values()} <= set(self.peers)
        if not self.open:
            assert durable.publisher.pending == 0
            assert not durable.subscriptions.cursor_store._saving
            assert not durable.topics._creating

    def _check_routes(self) -> None:
        for kind in LiveKind:
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
        """Capture the state that a frame can change, apart from counters and signs of life."""
        return (
            {client.id: dict(client.subscriptions) for client in self.broker.clients},
            {client.id: (client.name, client.description, client.log_filter) for client in self.broker.clients},
            dict(self.broker._requests._open),
        )


def subscriptions_in(trie: Trie) -> dict[tuple[str, str], int]:
    """Return the contents of a trie, by pattern and client; assert that none of its nodes is empty."""
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
