"""Fuzzing: garbage, and valid frames gone wrong, at the parser and at a broker that runs.

    python -m tests.server.fuzz --seconds 60 --seed 7

The parser must give the same frames however the bytes are cut, and one outcome for each frame. The broker must go on
answering, hold no connection for ever, say nothing of a defect in its log, and leave other clients alone. Exit code 1
and the seed of the round that failed, otherwise.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

if __package__ in (None, ""):  # started by its path
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.server.kit import (
    ID,
    OTHER_ID,
    BrokerProcess,
    Ended,
    Link,
    TcpClient,
    WsClient,
    framed,
    launch,
    message,
    upgrade,
    ws_frame,
)

from penstock.protocol.actions import Action
from penstock.protocol.batch_reader import BatchReader, PublishBatch, Scratch
from penstock.protocol.frames import Frame, FrameLimits, FrameReader, RejectedFrame

LIMITS: Final = FrameLimits(payload_bytes_max=2000)
WATCHED: Final = "fuzz.watched"
_CONNECTION_SECONDS: Final = 20.0
_SEEDS: Final = (
    message("publish:fuzz.noise:1.0.0", b"payload"),
    message(f"publish:fuzz.noise:1.0.0:{ID}", b"payload\nwith lines"),
    message(f"publish:FUZZ.noise:1.0.0:{ID}:{OTHER_ID}", b""),
    message(f"request:system.heartbeat:1.0.0:{ID}", b"{}"),
    message(f"request:system.topic.subscribe:1.0.0:{ID}", b'{"action":"both","topic":"fuzz.+.#","priority":3}'),
    message(f"request:system.topic.unsubscribe:1.0.0:{ID}", b'{"action":"publish","topic":"fuzz.+.#"}'),
    message(f"request:system.service.register:1.0.0:{ID}", b'{"name":"n","description":"d"}'),
    message(f"request:system.topic.list:1.0.0:{ID}", b"{}"),
    message(f"request:system.log.subscribe:1.0.0:{ID}", b'{"levels":["info"],"regex":"a+"}'),
    message(f"request:system.metrics:1.0.0:{ID}", b'{"filter":"router","showAll":true,"paramFilter":{"a":"b"}}'),
    message(f"request:fuzz.noise:1.0.0:{ID}:{OTHER_ID}:100", b"?"),
    message(f"request:fuzz.noise:1.0.0:{ID}::50", b"?"),
    message(f"response:fuzz.noise:1.0.0:{ID}", b"!"),
    message(f"subscribe:fuzz.noise.+:1.0.0:{ID}", b'{"action":"request","priority":-1}'),
    message(f"unsubscribe:fuzz.noise.+:1.0.0:{ID}", b""),
    message(f"ack:fuzz.noise:1.0.0:{ID}", b"{}"),
    message(f"append:/shop/fuzz.noise:1.0.0:{ID}", bytes(range(64))),
)
_SPICE: Final = (b":", b"\n", b"\0", b"\xff", b".", b"#", b"+", b"/", b" ", b"{", b'"', b"-", b"4", b"\xe2\x98")


# input


def mutated(chance: random.Random, content: bytes) -> bytes:
    """The same message with a few things wrong, or none."""
    data = bytearray(content)
    for _ in range(chance.choice((0, 0, 1, 1, 2, 5))):
        place = chance.randrange(len(data) + 1)
        match chance.randrange(5):
            case 0:
                data[place : place + 1] = bytes([chance.randrange(256)])
            case 1:
                data[place:place] = chance.choice(_SPICE) * chance.choice((1, 1, 2, 300))
            case 2:
                del data[place : place + chance.randrange(1, 9)]
            case 3:
                data[place:place] = data[: chance.randrange(40)]
            case 4:
                del data[place:]
    return bytes(data)


def contents(chance: random.Random, count: int) -> list[bytes]:
    """Messages: garbage, valid ones, mutated ones, and the same again."""
    found: list[bytes] = []
    while len(found) < count:
        kind = chance.random()
        if kind < 0.1:
            found.append(chance.randbytes(chance.choice((0, 1, 30, 600, 3000))))
        elif kind < 0.2 and found:
            found += [found[-1]] * chance.randrange(1, 40)
        else:
            found.append(mutated(chance, chance.choice(_SEEDS)))
    return found[:count]


def pieces(chance: random.Random, data: bytes) -> Iterator[bytes]:
    """The same bytes in pieces of any size."""
    most = chance.choice((1, 7, 100, 5000, 1 << 20))
    place = 0
    while place < len(data):
        size = chance.randrange(1, most + 1)
        yield data[place : place + size]
        place += size


# the parser

Outcome = tuple[object, ...]


def _outcome(item: Frame | RejectedFrame) -> Outcome:
    if isinstance(item, Frame):
        return ("frame", item.header, item.payload)
    return ("rejected", item.error.code, item.error.message, item.salvage, item.fatal)


def _batch_outcomes(batch: PublishBatch) -> Iterator[Outcome]:
    """Return the outcome of each message of a batch, as if it had come alone."""
    for each in batch.messages():
        reader = FrameReader(LIMITS)
        reader.receive_data(framed(each))
        frame = reader.next_frame()
        assert isinstance(frame, Frame), f"a batch holds what no reader accepts: {frame}"
        assert frame.header.action is Action.PUBLISH
        yield _outcome(frame)


def _by_blocks(parts: Iterable[bytes], scratch: Scratch) -> list[Outcome]:
    reader = BatchReader(LIMITS, scratch)
    found: list[Outcome] = []
    for part in parts:
        for item in reader.receive_data(part):
            found += _batch_outcomes(item) if isinstance(item, PublishBatch) else [_outcome(item)]
    return found


def _one_by_one(parts: Iterable[bytes]) -> list[Outcome]:
    reader = FrameReader(LIMITS)
    found: list[Outcome] = []
    for part in parts:
        reader.receive_data(part)
        while (item := reader.next_frame()) is not None:
            found.append(_outcome(item))
            if isinstance(item, RejectedFrame) and item.fatal:
                return found
    return found


def _without_salvage(found: list[Outcome]) -> list[Outcome]:
    """Return the outcomes without the salvaged bytes of a too long frame: their number depends on the pieces."""
    return [(*each[:3], each[4]) if each[0] == "rejected" and each[4] else each for each in found]


def fuzz_parser(chance: random.Random, scratch: Scratch) -> None:
    """Run one round. Raises `AssertionError` if two ways of reading the same bytes differ."""
    messages = contents(chance, chance.choice((1, 5, 200)))
    data = b"".join(framed(each) for each in messages)
    if chance.random() < 0.3:
        data += chance.randbytes(chance.randrange(40))
    whole = _by_blocks([data], scratch)
    assert whole == _one_by_one([data]), "the two readers differ"
    assert len(whole) >= len([each for each in messages if len(each) <= LIMITS.frame_bytes_max]) or any(
        each[0] == "rejected" and each[-1] for each in whole
    )
    assert _without_salvage(_by_blocks(pieces(chance, data), scratch)) == _without_salvage(whole), "a split matters"
    garbage = chance.randbytes(chance.choice((3, 100, 5000)))
    found = _one_by_one([garbage])
    assert _without_salvage(_by_blocks(pieces(chance, garbage), scratch)) == _without_salvage(found)


# a live broker


def _say(link: Link, chance: random.Random, data: bytes) -> None:
    try:
        for piece in pieces(chance, data):
            link.raw(piece)
    except (ConnectionError, TimeoutError):
        pass


def _drained(link: Link) -> None:
    """Read until it ends; we have said that we send no more, so it must."""
    link.socket.settimeout(_CONNECTION_SECONDS)
    try:
        link.socket.shutdown(1)
        while True:
            link.exactly(1)
    except TimeoutError:
        raise AssertionError("a connection is stuck") from None
    except (Ended, OSError):
        return


def _noise_over_tcp(broker: BrokerProcess, chance: random.Random) -> None:
    with TcpClient(broker.tcp_port) as link:
        if chance.random() < 0.3:
            data = chance.randbytes(chance.randrange(1, 5000))
        else:
            data = b"".join(framed(each) for each in contents(chance, chance.choice((1, 5, 50))))
        if chance.random() < 0.2:
            data = mutated(chance, data)
        _say(link, chance, data)
        if chance.random() < 0.8:
            _drained(link)


def _noise_over_websocket(broker: BrokerProcess, chance: random.Random) -> None:
    with WsClient(broker.ws_port, greet=False) as link:
        request = upgrade(broker.ws_port)
        if chance.random() < 0.2:
            request = mutated(chance, request)
        frames = [_noisy_frame(chance, each) for each in contents(chance, chance.choice((1, 5, 50)))]
        data = request + b"".join(frames)
        _say(link, chance, mutated(chance, data) if chance.random() < 0.2 else data)
        if chance.random() < 0.8:
            _drained(link)


def _noisy_frame(chance: random.Random, content: bytes) -> bytes:
    kind = chance.random()
    if kind < 0.8:
        return ws_frame(chance.choice((1, 2)), content)
    if kind < 0.9:
        cut = chance.randrange(len(content) + 1)
        ping = ws_frame(9, b"between") if chance.random() < 0.5 else b""
        return ws_frame(2, content[:cut], fin=False) + ping + ws_frame(0, content[cut:])
    return ws_frame(
        chance.randrange(16),
        content[: chance.choice((1, 125, 500))],
        fin=chance.random() < 0.7,
        reserved=chance.choice((0, 0, 0, 1, 2, 4)),
        mask=None if chance.random() < 0.1 else chance.randbytes(4),
    )


class Witness:
    """Another client of the same broker, whom nothing of this may concern."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self._subscriber = TcpClient(broker.tcp_port)
        self._subscriber.subscribe(WATCHED)
        self._subscriber.subscribe("fuzz.served", "request")
        self._before = self._subscriptions()

    def close(self) -> None:
        self._subscriber.close()

    def _subscriptions(self) -> object:
        return self._subscriber.ask(f"request:system.service.subscriptions:1.0.0:{ID}").json

    def check(self) -> None:
        """A new client is served, the old one gets what is published, and has the subscriptions it had."""
        for transport, port in ((TcpClient, self._broker.tcp_port), (WsClient, self._broker.ws_port)):
            with transport(port) as client:
                assert client.answers()
                client.send(f"publish:{WATCHED}:1.0.0", b"seen?")
                assert self._subscriber.receive().payload == b"seen?"
        assert self._subscriptions() == self._before
        assert self._broker.defects() == [], self._broker.defects()
        assert self._broker.process.poll() is None, "the broker has ended"


def fuzz_socket(broker: BrokerProcess, chance: random.Random) -> None:
    """Send noise over one connection."""
    chance.choice((_noise_over_tcp, _noise_over_websocket))(broker, chance)


# the program


def rounds(seed: int, seconds: float, broker: BrokerProcess, *, least: int = 1, loud: bool = False) -> tuple[int, int]:
    """Both, in turn, for so long, and so often at least; how many rounds of each. A failure names the seed of its
    round."""
    until = time.monotonic() + seconds
    scratch, witness = Scratch(), Witness(broker)
    parsed = said = 0
    try:
        while time.monotonic() < until or said < least:
            _round(f"{seed}/parser/{parsed}", lambda chance: fuzz_parser(chance, scratch))
            parsed += 1
            _round(f"{seed}/socket/{said}", lambda chance: fuzz_socket(broker, chance))
            said += 1
            if said % 20 == 0:
                witness.check()
                if loud:
                    print(f"\r{parsed} rounds of the parser, {said} connections", end="", flush=True)
        witness.check()
    finally:
        witness.close()
    return parsed, said


def _round(name: str, play: object) -> None:
    assert callable(play)
    try:
        play(random.Random(name))
    except BaseException:
        sys.stderr.write(f"\nfailed in round {name}\n")
        raise


def main(arguments: list[str] | None = None) -> int:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--seconds", type=float, default=30.0)
    asked.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    given = asked.parse_args(arguments)
    print(f"seed {given.seed}")
    with tempfile.TemporaryDirectory(prefix="penstock-fuzz-") as folder:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
        broker = launch(Path(folder), kept, "--log-level", "debug").wait_ready()
        try:
            parsed, said = rounds(given.seed, given.seconds, broker, loud=sys.stdout.isatty())
        except AssertionError as error:
            print(f"\n{error}\n{broker.log()[-2000:]}", file=sys.stderr)
            return 1
        finally:
            broker.stop()
    print(f"{parsed} rounds of the parser and {said} connections: nothing found")
    return 0


if __name__ == "__main__":
    sys.exit(main())
