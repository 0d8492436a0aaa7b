"""Memory that is free: what a flood has left is given back, and what is used again and again stays."""

from __future__ import annotations

from penstock.core.limits import MIB
from penstock.server.resources.memory import Glibc, HeapTrimmer


class Heap:
    def __init__(self) -> None:
        self.free = 0
        self.trims = 0

    def free_bytes(self) -> int:
        return self.free

    def trim(self) -> None:
        self.trims += 1


def test_what_stays_free_is_given_back_once() -> None:
    heap = Heap()
    trimmer = HeapTrimmer(heap)
    heap.free = 400 * MIB
    assert not trimmer.trim_if_idle(), "it may be used again at once"
    assert trimmer.trim_if_idle()
    assert not trimmer.trim_if_idle(), "the system has it already"
    assert heap.trims == 1


def test_what_is_used_between_two_looks_is_not_given_back() -> None:
    heap = Heap()
    trimmer = HeapTrimmer(heap)
    for free in (400, 100, 400, 120, 300, 90):
        heap.free = free * MIB
        assert not trimmer.trim_if_idle()


def test_another_flood_is_another_surplus() -> None:
    heap = Heap()
    trimmer = HeapTrimmer(heap)
    found = []
    for free in (400, 400, 50, 300, 300, 300):
        heap.free = free * MIB
        found.append(trimmer.trim_if_idle())
    assert found == [False, True, False, False, True, False]


def test_the_heap_of_this_process_can_be_asked_and_trimmed() -> None:
    heap = Glibc()
    assert heap.free_bytes() >= 0
    heap.trim()
