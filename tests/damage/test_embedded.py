"""A payload may hold complete, valid records: a dead letter, a backup, an attack. None of them is ever served.

The forger knows the format, the hash and its key, the offsets, and the ids to come.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.core.ids import IdGenerator, IdRun
from penstock.core.limits import Limits
from penstock.record.block import Draft, stamp
from penstock.record.message import Message
from penstock.storage.log.log import Log
from penstock.storage.log.segment import index_path, segment_name
from penstock.testing import Crash, FaultDisk, ManualClock

LOG_PATH = Path("/log")
FIRST = LOG_PATH / segment_name(0)
LIMITS = Limits(
    payload_bytes_max=16_384,
    block_bytes_max=32_768,
    segment_bytes_first=32_768,
    segment_bytes_max=65_536,
    disk_reserve_bytes=1,
)
HOST = 2
"""The offset of the message that holds the forged records."""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def forged(first_offset: int, count: int, *, ahead_ticks: int) -> bytes:
    """Records as the log itself would write them, so many ticks after its first one."""
    draft = Draft.of(Message(payload=b"FORGED %d " % number + bytes(number * 40)) for number in range(count))
    data = bytearray(draft.data)
    first = IdGenerator(ManualClock(), node=1).take(1)
    stamp(data, count, IdRun(first.first_ticks + ahead_ticks, count, first.low), first_offset)
    return bytes(data)


def open_log(disk: FaultDisk) -> Log:
    clock = ManualClock()
    return Log.open(disk, LOG_PATH, ids=IdGenerator(clock, node=1), clock=clock, limits=LIMITS)


def hosts() -> Iterator[bytes]:
    """Payloads around forged chains: at the end, at the start, in the middle, on a sector's edge."""
    for offset in (HOST, HOST + 1, HOST + 2, HOST + 40):
        for count, ahead_ticks in ((1, HOST), (1, 50_000), (5, HOST), (5, HOST + 1)):
            chain = forged(offset, count, ahead_ticks=ahead_ticks)
            yield chain
            yield b"x" * 300 + chain
            yield chain + b"y" * 300
            yield b"z" * (1024 - 99) + chain + bytes(600)


def build(host: bytes, *, behind: int) -> tuple[FaultDisk, list[bytes]]:
    disk = FaultDisk()
    log = open_log(disk)
    sent = [b"one", b"two", host, *(b"real %d" % number for number in range(behind))]
    for payload in sent:
        log.append(Draft.of([Message(payload=payload)]))
    log.close_files()
    return disk, sent


def check(disk: FaultDisk, sent: list[bytes]) -> None:
    log = open_log(disk)
    for record in log.records():
        assert not record.message.payload.startswith(b"FORGED"), "a payload's record was served"
        assert sent[record.offset] == record.message.payload
    done = log.append(Draft.of([Message(payload=b"after")]))
    log.close_files()
    again = {int(record.offset): record.message.payload for record in open_log(disk).records()}
    assert again[int(done.offset)] == b"after"
    assert not any(payload.startswith(b"FORGED") for payload in again.values())


def host_start(sent: list[bytes]) -> int:
    return sum(len(Draft.of([Message(payload=payload)]).data) for payload in sent[:HOST])


@pytest.mark.slow
@pytest.mark.parametrize("index", ["kept", "lost"])
@pytest.mark.parametrize(
    ("behind", "some"),
    [(0, [0]), (1, [1]), (3, [2]), *(pytest.param(each, [0, 1, 2], marks=pytest.mark.soak) for each in (0, 1, 3))],
)
def test_whatever_bit_of_the_head_around_them_is_hit(index: str, behind: int, some: list[int]) -> None:
    """Every payload once, with so many records behind it or with others; `./dev soak` has each with all."""
    for host in (each for number, each in enumerate(hosts()) if number % 3 in some):
        disk, sent = build(host, behind=behind)
        if index == "lost":
            disk.remove(index_path(FIRST))
        start = host_start(sent)
        for bit in (*range(16 * 8, 21 * 8), 3, 50, 22 * 8, 30 * 8, 69 * 8):
            damaged = disk.copy()
            damaged.content(FIRST)[start + bit // 8] ^= 1 << bit % 8
            check(damaged, sent)


@pytest.mark.slow
@pytest.mark.parametrize("index", ["kept", "lost"])
def test_however_much_of_the_record_around_them_is_wiped(index: str) -> None:
    for host in hosts():
        disk, sent = build(host, behind=2)
        if index == "lost":
            disk.remove(index_path(FIRST))
        start = host_start(sent)
        for size in (1, 16, 60, 81, 200, 300):
            damaged = disk.copy()
            damaged.content(FIRST)[start : start + size] = bytes(size)
            check(damaged, sent)


def test_whichever_sectors_of_the_record_around_them_arrive() -> None:
    """The host was being written when the power failed: any of its sectors may be there, its first one missing too."""
    chance = random.Random(1)
    for host in hosts():
        for calls in range(3):
            disk = FaultDisk()
            log = open_log(disk)
            sent = [b"one", b"two"]
            for payload in sent:
                log.append(Draft.of([Message(payload=payload)]))
            disk.fail_at = disk.calls + calls
            with pytest.raises(Crash):
                log.append(Draft.of([Message(payload=host)]))
            for survivor in disk.survivors(chance, 24):
                check(survivor, [*sent, host])


def test_records_of_the_log_itself_sent_again_as_payloads() -> None:
    disk, _ = build(b"plain", behind=3)
    copy = bytes(disk.content(FIRST)[:1000])
    for index in ("kept", "lost"):
        disk, sent = build(copy, behind=3)
        if index == "lost":
            disk.remove(index_path(FIRST))
        for place in range(16, 22):
            damaged = disk.copy()
            damaged.content(FIRST)[host_start(sent) + place] ^= 0x81
            check(damaged, sent)
