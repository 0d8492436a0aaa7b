from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.server.transports.http_slots import PRESSED_SECONDS, Place, Places, whose


def test_a_newcomer_takes_the_place_of_the_one_that_has_waited_for_longest() -> None:
    places: Places[str] = Places(each=9, most=2, spare=1)
    assert places.enter("a", "1.1.1.1", 0.0) == (Place.ORDINARY, [])
    assert places.enter("b", "1.1.1.2", 0.1) == (Place.ORDINARY, [])
    assert places.enter("c", "1.1.1.3", 0.2) == (Place.ORDINARY, ["a"])


def test_who_has_asked_keeps_its_place_and_waits_again_when_it_is_answered() -> None:
    places: Places[str] = Places(each=9, most=2, spare=1)
    places.enter("a", "1.1.1.1", 0.0)
    places.enter("b", "1.1.1.2", 0.1)
    places.asked("a")
    assert places.enter("c", "1.1.1.3", 0.2) == (Place.ORDINARY, ["b"])
    places.answered("a", 0.3)
    assert places.enter("d", "1.1.1.4", 0.4) == (Place.ORDINARY, ["c"])
    assert places.enter("e", "1.1.1.5", 0.5) == (Place.ORDINARY, ["a"])


def test_where_all_have_asked_there_are_spare_places_and_those_are_given_up_in_the_same_way() -> None:
    places: Places[str] = Places(each=9, most=1, spare=1)
    places.enter("a", "1.1.1.1", 0.0)
    places.asked("a")
    assert places.enter("b", "1.1.1.2", 0.1) == (Place.SPARE, [])
    assert places.enter("c", "1.1.1.3", 0.2) == (Place.SPARE, ["b"])
    places.asked("c")
    assert places.enter("d", "1.1.1.4", 0.3) == (Place.NONE, [])
    places.leave("c")
    assert places.enter("e", "1.1.1.5", 0.4) == (Place.SPARE, [])


def test_one_address_takes_from_itself_and_not_from_others() -> None:
    places: Places[str] = Places(each=2, most=4, spare=1)
    places.enter("other", "2.2.2.2", 0.0)
    places.enter("a", "1.1.1.1", 0.1)
    places.enter("b", "1.1.1.1", 0.2)
    assert places.enter("c", "1.1.1.1", 0.3) == (Place.ORDINARY, ["a"])
    for each in ("b", "c"):
        places.asked(each)
    assert places.enter("d", "1.1.1.1", 0.4) == (Place.SPARE, [])
    assert places.enter("third", "3.3.3.3", 0.5) == (Place.ORDINARY, [])


def test_a_head_has_less_time_where_places_are_short() -> None:
    places: Places[int] = Places(each=9, most=4, spare=1)
    for number in range(3):
        assert places.enter(number, "1.1.1.1", 0.0) == (Place.ORDINARY, [])
    assert places.enter(3, "1.1.1.1", PRESSED_SECONDS * 2) == (Place.ORDINARY, []), "there is room enough"
    assert places.enter(4, "1.1.1.1", PRESSED_SECONDS * 2) == (Place.ORDINARY, [0])
    assert places.enter(5, "1.1.1.1", PRESSED_SECONDS * 2) == (Place.ORDINARY, [1])


def test_who_leaves_leaves_nothing_behind() -> None:
    places: Places[int] = Places(each=1, most=1, spare=0)
    for number in range(3):
        assert places.enter(number, "1.1.1.1", 0.0) == (Place.ORDINARY, [])
        places.asked(number)
        places.leave(number)
        places.answered(number, 0.0)
    assert not places._of
    assert places.enter(9, "1.1.1.1", 0.0) == (Place.ORDINARY, [])


Step = tuple[str, int, int]


@given(
    st.lists(st.tuples(st.sampled_from(("enter", "asked", "answered", "leave")), st.integers(0, 9), st.integers(0, 2)))
)
def test_there_are_never_more_than_may_be(steps: list[Step]) -> None:
    places: Places[int] = Places(each=3, most=5, spare=2)
    inside: dict[int, int] = {}
    for now, (what, guest, address) in enumerate(steps):
        match what:
            case "enter" if guest not in inside:
                place, gone = places.enter(guest, str(address), float(now))
                for each in gone:
                    del inside[each]
                if place is not Place.NONE:
                    inside[guest] = address
            case "asked":
                places.asked(guest)
            case "answered":
                places.answered(guest, float(now))
            case "leave":
                places.leave(guest)
                inside.pop(guest, None)
        ordinary = places._ordinary.taken
        assert len(ordinary) <= 5
        assert len(places._spare.taken) <= 2
        assert set(ordinary) | set(places._spare.taken) == set(inside)
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
    assert whose(host) == shared
