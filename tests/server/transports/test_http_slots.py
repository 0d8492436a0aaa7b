from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.server.transports.http_slots import SHORTAGE_WAIT_SECONDS, ConnectionSlots, SlotKind, address_group


def test_a_newcomer_takes_the_place_of_the_one_that_has_waited_for_longest() -> None:
    slots: ConnectionSlots[str] = ConnectionSlots(address_max=9, size=2, spare=1)
    assert slots.acquire("a", "1.1.1.1", 0.0) == (SlotKind.ORDINARY, [])
    assert slots.acquire("b", "1.1.1.2", 0.1) == (SlotKind.ORDINARY, [])
    assert slots.acquire("c", "1.1.1.3", 0.2) == (SlotKind.ORDINARY, ["a"])


def test_who_has_asked_keeps_its_place_and_waits_again_when_it_is_answered() -> None:
    slots: ConnectionSlots[str] = ConnectionSlots(address_max=9, size=2, spare=1)
    slots.acquire("a", "1.1.1.1", 0.0)
    slots.acquire("b", "1.1.1.2", 0.1)
    slots.request_received("a")
    assert slots.acquire("c", "1.1.1.3", 0.2) == (SlotKind.ORDINARY, ["b"])
    slots.response_sent("a", 0.3)
    assert slots.acquire("d", "1.1.1.4", 0.4) == (SlotKind.ORDINARY, ["c"])
    assert slots.acquire("e", "1.1.1.5", 0.5) == (SlotKind.ORDINARY, ["a"])


def test_where_all_have_asked_there_are_spare_places_and_those_are_given_up_in_the_same_way() -> None:
    slots: ConnectionSlots[str] = ConnectionSlots(address_max=9, size=1, spare=1)
    slots.acquire("a", "1.1.1.1", 0.0)
    slots.request_received("a")
    assert slots.acquire("b", "1.1.1.2", 0.1) == (SlotKind.SPARE, [])
    assert slots.acquire("c", "1.1.1.3", 0.2) == (SlotKind.SPARE, ["b"])
    slots.request_received("c")
    assert slots.acquire("d", "1.1.1.4", 0.3) == (SlotKind.NONE, [])
    slots.release("c")
    assert slots.acquire("e", "1.1.1.5", 0.4) == (SlotKind.SPARE, [])


def test_one_address_takes_from_itself_and_not_from_others() -> None:
    slots: ConnectionSlots[str] = ConnectionSlots(address_max=2, size=4, spare=1)
    slots.acquire("other", "2.2.2.2", 0.0)
    slots.acquire("a", "1.1.1.1", 0.1)
    slots.acquire("b", "1.1.1.1", 0.2)
    assert slots.acquire("c", "1.1.1.1", 0.3) == (SlotKind.ORDINARY, ["a"])
    for name in ("b", "c"):
        slots.request_received(name)
    assert slots.acquire("d", "1.1.1.1", 0.4) == (SlotKind.SPARE, [])
    assert slots.acquire("third", "3.3.3.3", 0.5) == (SlotKind.ORDINARY, [])


def test_a_head_has_less_time_where_places_are_short() -> None:
    slots: ConnectionSlots[int] = ConnectionSlots(address_max=9, size=4, spare=1)
    for number in range(3):
        assert slots.acquire(number, "1.1.1.1", 0.0) == (SlotKind.ORDINARY, [])
    assert slots.acquire(3, "1.1.1.1", SHORTAGE_WAIT_SECONDS * 2) == (SlotKind.ORDINARY, []), "there is room enough"
    assert slots.acquire(4, "1.1.1.1", SHORTAGE_WAIT_SECONDS * 2) == (SlotKind.ORDINARY, [0])
    assert slots.acquire(5, "1.1.1.1", SHORTAGE_WAIT_SECONDS * 2) == (SlotKind.ORDINARY, [1])


def test_who_leaves_leaves_nothing_behind() -> None:
    slots: ConnectionSlots[int] = ConnectionSlots(address_max=1, size=1, spare=0)
    for number in range(3):
        assert slots.acquire(number, "1.1.1.1", 0.0) == (SlotKind.ORDINARY, [])
        slots.request_received(number)
        slots.release(number)
        slots.response_sent(number, 0.0)
    assert not slots._by_address
    assert slots.acquire(9, "1.1.1.1", 0.0) == (SlotKind.ORDINARY, [])


Step = tuple[str, int, int]


@given(
    st.lists(st.tuples(st.sampled_from(("enter", "asked", "answered", "leave")), st.integers(0, 9), st.integers(0, 2)))
)
def test_there_are_never_more_than_may_be(steps: list[Step]) -> None:
    slots: ConnectionSlots[int] = ConnectionSlots(address_max=3, size=5, spare=2)
    inside: dict[int, int] = {}
    for now, (what, guest, address) in enumerate(steps):
        match what:
            case "enter" if guest not in inside:
                place, gone = slots.acquire(guest, str(address), float(now))
                for lost in gone:
                    del inside[lost]
                if place is not SlotKind.NONE:
                    inside[guest] = address
            case "asked":
                slots.request_received(guest)
            case "answered":
                slots.response_sent(guest, float(now))
            case "leave":
                slots.release(guest)
                inside.pop(guest, None)
        ordinary = slots._ordinary.taken
        assert len(ordinary) <= 5
        assert len(slots._spare.taken) <= 2
        assert set(ordinary) | set(slots._spare.taken) == set(inside)
        assert all(list(ordinary.values()).count(each) <= 3 for each in ordinary.values())


@pytest.mark.parametrize(
    ("host", "shared"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
        ("a socket", "a socket"),
    ],
)
def test_places_are_shared_out_by_address_and_by_network(host: str, shared: str) -> None:
    assert address_group(host) == shared
