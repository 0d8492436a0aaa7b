"""The worker, asked as the broker asks it: whatever it is given, an answer comes, and the next one can be asked."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tests.schema.hostile import FAN_OUT, PAYLOADS, PORT, SCHEMAS, HostilePayload, HostileSchema
from tests.server.background.weighed_worker import WEIGHTS
from tests.server.provoked import block_of, questions

from penstock.core.errors import PenstockError, ServiceUnavailable
from penstock.core.schemas import Definition, SchemaKind
from penstock.record.block import Block
from penstock.schema.errors import InvalidSchema
from penstock.schema.language import PayloadFault
from penstock.schema.steps import CheckCompatibility, ParseSchema, SchemaPair
from penstock.schema.worker.process import MEMORY_BYTES_MAX
from penstock.server.background import schema_workers
from penstock.server.background.schema_workers import SchemaWorkers

NUMBERS = Definition(SchemaKind.JSON, '{"type":"integer"}')


Ask = Callable[[SchemaWorkers], Awaitable[None]]


def examined(ask: Ask) -> None:
    """Run the story with workers of its own."""

    async def run() -> None:
        made = SchemaWorkers()
        try:
            await ask(made)
        finally:
            await made.close()

    asyncio.run(run())


@pytest.fixture(scope="module")
def same_workers() -> Iterator[Callable[[Ask], None]]:
    """Run stories with the same workers one after the other: damage that one does shows in the next."""

    async def begun() -> SchemaWorkers:
        return SchemaWorkers()

    async def asked(ask: Ask) -> None:
        await ask(made)

    with asyncio.Runner() as runner:
        made = runner.run(begun())
        yield lambda ask: runner.run(asked(ask))
        runner.run(made.close())


async def works(made: SchemaWorkers) -> bool:
    """Return whether the workers still parse and validate."""
    good = await made.parse(ParseSchema(NUMBERS)) == '{"type":"integer"}'
    faults = await made.validate(NUMBERS, block_of(b"1", b"x", b"2"))
    return good and list(faults) == [1]


@contextmanager
def nobody_is_called() -> Iterator[int]:
    """A server that fails the test if anybody connects."""
    calls: list[object] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            while True:
                try:
                    connection, address = listener.accept()
                except OSError:
                    return
                calls.append(address)
                connection.close()

        listening = threading.Thread(target=answer, daemon=True)
        listening.start()
        yield int(listener.getsockname()[1])
        listener.shutdown(socket.SHUT_RDWR)
        listening.join()
    assert not calls


# what it is for


def test_schemas_are_examined_compared_and_payloads_held_against_them() -> None:
    async def ask(made: SchemaWorkers) -> None:
        assert await works(made)
        texts = Definition(SchemaKind.JSON, '{"type":["integer","string"]}')
        back, forth = await made.check_compatibility(
            CheckCompatibility((SchemaPair(NUMBERS, texts), SchemaPair(texts, NUMBERS)))
        )
        assert [bool(back), bool(forth)] == [True, False]

    examined(ask)


def test_payloads_with_newlines_and_empty_ones_are_looked_at_one_by_one() -> None:
    async def ask(made: SchemaWorkers) -> None:
        faults = await made.validate(NUMBERS, block_of(b"1", b"\n2\n", b"", b"3\n4", b"5"))
        assert sorted(faults) == [2, 3]

    examined(ask)


def test_a_payload_in_the_framing_of_other_registries_is_looked_at_behind_it() -> None:
    async def ask(made: SchemaWorkers) -> None:
        framed = b"\0\0\0\0\7"
        payloads = block_of(b"1", framed + b"1", framed + b"x", b"\0\0\0\0\x08" + b"1", framed)
        assert sorted(await made.validate(NUMBERS, payloads, 7)) == [2, 3, 4]
        message = Definition(SchemaKind.PROTOBUF, 'syntax="proto3"; message A { int32 a = 1; }')
        payloads = block_of(b"\x08\1", framed + b"\0\x08\1", framed + b"\x08\1")
        assert sorted(await made.validate(message, payloads, 7)) == [2]

    examined(ask)


def test_a_block_that_does_not_fit_is_looked_at_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.schema.worker.protocol.SHARED_BYTES", 4096)

    async def ask(made: SchemaWorkers) -> None:
        payloads = [b"x" if number % 100 == 7 else b"%d" % number for number in range(1000)]
        assert sorted(await made.validate(NUMBERS, block_of(*payloads))) == list(range(7, 1000, 100))

    examined(ask)


def test_questions_are_answered_in_turn_and_too_many_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_workers, "SCHEMAS_WAITING_MAX", 2)

    async def ask(made: SchemaWorkers) -> None:
        asked = [asyncio.create_task(made.parse(ParseSchema(NUMBERS))) for _ in range(5)]
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(each) for each in found] == [str, str, str, ServiceUnavailable, ServiceUnavailable]

    examined(ask)


def test_one_who_asked_and_went_does_not_get_the_next_ones_answer() -> None:
    async def ask(made: SchemaWorkers) -> None:
        gone = asyncio.create_task(made.parse(ParseSchema(Definition(SchemaKind.JSON, '{"type":"string"}'))))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        gone.cancel()
        assert await works(made)

    examined(ask)


# what it is not


@pytest.mark.parametrize("case", SCHEMAS.values(), ids=SCHEMAS)
def test_a_hostile_schema_is_refused_and_does_no_harm(same_workers: Callable[[Ask], None], case: HostileSchema) -> None:
    async def ask(made: SchemaWorkers) -> None:
        with nobody_is_called() as port:
            definition = Definition(case.kind, re.sub(rf":{PORT}\b", f":{port}", case.text))
            with pytest.raises(InvalidSchema) as refused:
                await made.parse(ParseSchema(definition))
            assert len(refused.value.message) < 2000
        assert await works(made)

    same_workers(ask)


@pytest.mark.parametrize("case", FAN_OUT.values(), ids=FAN_OUT)
def test_a_small_schema_that_means_a_huge_one_does_not_hold_anybody_up(
    same_workers: Callable[[Ask], None], case: HostileSchema
) -> None:
    async def ask(made: SchemaWorkers) -> None:
        definition = Definition(case.kind, case.text)
        with suppress(InvalidSchema):
            await made.parse(ParseSchema(definition))
        with suppress(InvalidSchema):
            await made.check_compatibility(CheckCompatibility((SchemaPair(definition, definition),)))
        with suppress(InvalidSchema):
            await made.validate(definition, block_of(b'"a"', b"1"))
        assert await works(made)

    same_workers(ask)


@pytest.mark.parametrize("case", PAYLOADS.values(), ids=PAYLOADS)
def test_a_hostile_payload_is_refused_and_does_no_harm(
    same_workers: Callable[[Ask], None], case: HostilePayload
) -> None:
    async def ask(made: SchemaWorkers) -> None:
        definition = Definition(case.kind, case.schema)
        faults = await made.validate(definition, block_of(case.payload))
        assert list(faults) == [0]
        assert len(faults[0].message) < 2000
        assert await works(made)

    same_workers(ask)


def test_a_payload_that_ends_the_process_is_refused_and_all_others_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker is started with a validator that dies on some payloads, whatever it would die of."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    monkeypatch.setattr(schema_workers, "_PROGRAM", "tests.server.background.dying_worker")

    async def ask(made: SchemaWorkers) -> None:
        payloads = [b"good", b"bad", b"die", b"good", b"loop", b"bad", b"grow", b"good"]
        faults = await made.validate(Definition(SchemaKind.STRING, ""), block_of(*payloads))
        assert sorted(faults) == [1, 2, 4, 5, 6]
        assert faults[1] == faults[5] == PayloadFault("", "bad")
        assert faults[4].message == "it cannot be examined: it takes too much time"
        many = await made.validate(Definition(SchemaKind.STRING, ""), block_of(*[b"die"] * 30, b"good"))
        assert len(many) == 31, "after so many deaths the rest is refused unseen"

    examined(ask)


def children(made: SchemaWorkers) -> list[int]:
    """The processes of both workshops, parents first."""
    parents = [each._process.pid for each in (made._schemas, made._payloads) if each._process is not None]
    found = subprocess.run(["pgrep", "-P", ",".join(map(str, parents))], capture_output=True, check=False, text=True)
    return [*parents, *map(int, found.stdout.split())]


def most_bytes(process: int) -> int:
    """Return the most memory that the process has used."""
    (kib,) = re.findall(r"VmHWM:\s+([0-9]+) kB", Path(f"/proc/{process}/status").read_text())
    return int(kib) * 1024


def test_nothing_hostile_takes_more_memory_than_a_worker_may_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    monkeypatch.setenv("WEIGHED", str(tmp_path))
    monkeypatch.setattr(schema_workers, "_PROGRAM", "tests.server.background.weighed_worker")

    async def ask(made: SchemaWorkers) -> None:
        for question in questions():
            with suppress(PenstockError):
                await question.ask(made)
        assert await works(made)  # whoever was to be replaced after its last answer has been
        living = max(map(most_bytes, children(made)[2:]))
        begun, ended = zip(*(WEIGHTS.unpack(file.read_bytes()) for file in tmp_path.iterdir()), strict=True)
        assert len(begun) == 2, "one worker for schemas, one for payloads"
        assert max(ended) > min(begun) > 0, "some have grown so much that they were replaced"
        assert max(living, *ended) - min(begun) <= MEMORY_BYTES_MAX

    examined(ask)


@pytest.mark.parametrize("killed", ["parents", "children"])
def test_a_worker_killed_between_two_jobs_costs_no_answer(killed: str) -> None:
    async def ask(made: SchemaWorkers) -> None:
        for _ in range(3):
            assert await works(made)
            for victim in children(made)[:2] if killed == "parents" else children(made)[2:]:
                os.kill(victim, signal.SIGKILL)
            await asyncio.sleep(0.05)
        texts = [Definition(SchemaKind.JSON, f'{{"title":"{number}"}}') for number in range(5)]
        assert [await made.parse(ParseSchema(each)) for each in texts] == [each.text for each in texts]

    examined(ask)


def test_a_worker_that_is_killed_again_and_again_at_work_gives_every_answer_to_its_asker() -> None:
    async def ask(made: SchemaWorkers) -> None:
        assert await works(made)

        async def kill() -> None:
            """A question is given up after two deaths: so many cannot keep all of sixty from being answered, however
            slowly workers are replaced."""
            chance = random.Random(7)
            for _ in range(100):
                await asyncio.sleep(chance.random() / 20)
                with suppress(ProcessLookupError, IndexError):
                    os.kill(chance.choice(children(made)), signal.SIGKILL)

        killing = asyncio.create_task(kill())
        wrong = {7: b"x", 300: b"{}", 4999: b""}
        block = block_of(*(wrong.get(number, b"%d" % number) for number in range(5000)))
        answers = 0
        for number in range(60):
            with suppress(ServiceUnavailable):
                assert await made.parse(ParseSchema(Definition(SchemaKind.JSON, f'{{"title":"{number}"}}'))) == (
                    f'{{"title":"{number}"}}'
                )
                assert sorted(await made.validate(NUMBERS, block)) == sorted(wrong)
                answers += 1
        killing.cancel()
        assert answers
        assert await works(made)

    examined(ask)


def test_more_than_a_worker_can_hold_is_refused_before_it_is_sent() -> None:
    async def ask(made: SchemaWorkers) -> None:
        references = tuple((f"r{number}", "x" * 1_000_000) for number in range(20))
        with pytest.raises(InvalidSchema, match="too large"):
            await made.parse(ParseSchema(Definition(SchemaKind.JSON, "{}", references)))
        assert await works(made)

    examined(ask)


def test_one_block_that_is_slow_to_check_does_not_hold_up_the_others() -> None:
    slow = {"type": "string", "allOf": [{"not": {"pattern": f"^(a|b|{number})*c$"}} for number in range(100)]}

    async def ask(made: SchemaWorkers) -> None:
        assert await works(made)
        order: list[str] = []

        async def check(name: str, definition: Definition, block: Block) -> None:
            assert await made.validate(definition, block) == {}
            order.append(name)

        long = check("slow", Definition(SchemaKind.JSON, json.dumps(slow)), block_of(*[b'"abababab"'] * 60_000))
        waiting = asyncio.create_task(long)
        await asyncio.sleep(0)
        await check("quick", NUMBERS, block_of(b"1"))
        await waiting
        assert order == ["quick", "slow"]

    examined(ask)


def test_a_comparison_that_takes_too_long_is_a_problem_of_that_pair() -> None:
    branches = [{"properties": {f"p{each}": {"const": each}}} for each in range(400)]
    wide = Definition(SchemaKind.JSON, json.dumps({"oneOf": [{"anyOf": branches}, {"anyOf": branches[1:]}]}))
    wider = Definition(SchemaKind.JSON, json.dumps({"oneOf": [{"anyOf": branches[2:]}, {"anyOf": branches[:-3]}]}))

    async def ask(made: SchemaWorkers) -> None:
        slow, quick = await made.check_compatibility(
            CheckCompatibility((SchemaPair(wide, wider), SchemaPair(NUMBERS, NUMBERS)))
        )
        assert [problem.kind for problem in slow] == ["UNDECIDED"]
        assert quick == []

    examined(ask)


def test_a_module_that_lies_about_is_not_the_one_that_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "msgspec.py").write_text("raise SystemExit('not this one')")
    monkeypatch.chdir(tmp_path)

    async def ask(made: SchemaWorkers) -> None:
        assert await works(made)

    examined(ask)


def test_a_payload_larger_than_the_shared_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.schema.worker.protocol.SHARED_BYTES", 8192)

    async def ask(made: SchemaWorkers) -> None:
        assert sorted(await made.validate(NUMBERS, block_of(b"1", b"2" * 9000, b"3", b"x"))) == [1, 3]

    examined(ask)


def test_the_worker_can_open_nothing() -> None:
    program = (
        "import os, socket, mmap\n"
        "from penstock.schema.worker import process as worker\n"
        "worker.limit_memory(); worker.give_up_rights()\n"
        "for attempt in (lambda: os.open('/etc/passwd', os.O_RDONLY), socket.socket, os.pipe):\n"
        "    try:\n"
        "        attempt()\n"
        "    except OSError as error:\n"
        "        os.write(1, b'%d ' % error.errno)\n"
        "try:\n"
        "    bytearray(worker.MEMORY_BYTES_MAX + 2**20)\n"
        "except MemoryError:\n"
        "    os.write(1, b'full')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout == b"24 24 24 full"
