"""Open requests: a machine with a simple model, played in any order; and the few edges worth a name."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from penstock.broker.live.requests import _ABANDONED_MAX, OpenRequest, OpenRequests
from penstock.core.errors import InvalidRequestId, ServiceUnavailable
from penstock.protocol.actions import Action
from penstock.protocol.header import Header, header

LIMIT = 5
HEADER = header(Action.REQUEST, "svc.echo", request_id="00000000-0000-4000-8000-000000000001")
NO_ID = header(Action.REQUEST, "svc.echo")
peers = st.sampled_from(["ann", "bob", "cat"])


def made(number: int, *, requester: str = "ann", server: str = "bob", deadline_ms: int = 1000) -> OpenRequest:
    return OpenRequest(f"{number:08x}-0000-4000-8000-00000000abcd", requester, server, HEADER, deadline_ms)


def is_empty(requests: OpenRequests) -> bool:
    return not (requests._open or requests._of_server or requests._of_requester)


class Requests(RuleBasedStateMachine):
    """Model of open requests: a dictionary id -> (requester, server, deadline, header), and one of abandoned ids."""

    ids = Bundle("ids")

    def __init__(self) -> None:
        super().__init__()
        self.requests = OpenRequests(LIMIT)
        self.model: dict[str, tuple[str, str, int, Header]] = {}
        self.unwanted: dict[str, str] = {}
        self.now_ms = 0
        self.count = 0

    @rule(
        target=ids, requester=peers, server=peers, timeout_ms=st.integers(1, 30), head=st.sampled_from([HEADER, NO_ID])
    )
    def open(self, requester: str, server: str, timeout_ms: int, head: Header) -> str:
        self.count += 1
        # Counting down: the order of ids is not the order of time.
        request = made(2**20 - self.count, requester=requester, server=server, deadline_ms=self.now_ms + timeout_ms)
        request = OpenRequest(request.id, requester, server, head, request.deadline_ms)
        if head.request_id is None:
            self.requests.add(request)
            self.unwanted[request.id] = server
        elif len(self.model) < LIMIT:
            self.requests.add(request)
            self.model[request.id] = (requester, server, request.deadline_ms, head)
        else:
            with pytest.raises(ServiceUnavailable) as caught:
                self.requests.add(request)
            assert caught.value.details == {"requests_open_max": LIMIT}
        return request.id

    @rule(request_id=ids, server=peers, upper=st.booleans())
    def answer(self, request_id: str, server: str, upper: bool) -> None:
        """Answer rightly, twice, late or from another server, or be refused, as the model knows."""
        spelled = request_id.upper() if upper else request_id
        if self.unwanted.get(request_id) == server:
            assert self.requests.answer(spelled, server) is None
            del self.unwanted[request_id]
            return
        expected = self.model.get(request_id)
        if expected is None or expected[1] != server:
            with pytest.raises(InvalidRequestId, match=spelled):
                self.requests.answer(spelled, server)
            return
        closed = self.requests.answer(spelled, server)
        del self.model[request_id]
        self.same(closed, request_id, expected)

    @rule(request_id=consumes(ids))
    def answer_as_it_should_be(self, request_id: str) -> None:
        if request_id in self.model:
            expected = self.model.pop(request_id)
            self.same(self.requests.answer(request_id, expected[1]), request_id, expected)
            with pytest.raises(InvalidRequestId):
                self.requests.answer(request_id, expected[1])

    @rule(ms=st.integers(0, 20))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms
        late = {key: value for key, value in self.model.items() if value[2] <= self.now_ms}
        found = list(self.requests.expire(self.now_ms))
        assert [each.deadline_ms for each in found] == sorted(each.deadline_ms for each in found)
        assert {each.id for each in found} == late.keys()
        for each in found:
            self.same(each, each.id, self.model.pop(each.id))

    @rule(server=peers)
    def server_leaves(self, server: str) -> None:
        lost = {key: value for key, value in self.model.items() if value[1] == server}
        found = self.requests.close_of_server(server)
        assert {each.id for each in found} == lost.keys()
        for each in found:
            self.same(each, each.id, self.model.pop(each.id))

    @rule(requester=peers)
    def requester_leaves(self, requester: str) -> None:
        self.requests.abandon_requester(requester)
        for key in [key for key, (who, *_) in self.model.items() if who == requester]:
            self.unwanted[key] = self.model.pop(key)[1]

    def same(self, found: OpenRequest | None, request_id: str, expected: tuple[str, str, int, Header]) -> None:
        assert found == OpenRequest(request_id, *expected[:2], expected[3], expected[2])

    @invariant()
    def counts_agree(self) -> None:
        assert len(self.requests) == len(self.model) <= LIMIT
        assert self.requests.next_deadline_ms() == min((each[2] for each in self.model.values()), default=None)
        if not self.model:
            assert is_empty(self.requests)

    def teardown(self) -> None:
        list(self.requests.expire(self.now_ms + 1000))
        assert is_empty(self.requests)
        assert self.requests._deadlines == []


TestRequests = Requests.TestCase
TestRequests.settings = settings(max_examples=150, stateful_step_count=40)


def test_a_deadline_is_over_when_it_is_reached_and_not_before() -> None:
    requests = OpenRequests(1)
    requests.add(made(1, deadline_ms=1000))
    assert requests.next_deadline_ms() == 1000
    assert list(requests.expire(999)) == []
    assert [each.id for each in requests.expire(1000)] == [made(1).id]
    assert requests.next_deadline_ms() is None


def test_the_newest_is_refused_and_none_that_was_taken_is_dropped() -> None:
    requests = OpenRequests(3)
    for number in range(3):
        requests.add(made(number))
    for number in range(3, 10):
        with pytest.raises(ServiceUnavailable, match="at most 3"):
            requests.add(made(number))
    for number in range(3):
        assert requests.answer(made(number).id, "bob") == made(number)
    requests.add(made(10))


def test_a_requester_may_be_its_own_server() -> None:
    requests = OpenRequests(3)
    requests.add(made(1, requester="ann", server="ann"))
    requests.abandon_requester("ann")
    assert requests.close_of_server("ann") == []
    assert is_empty(requests)


def test_one_requester_and_one_server_leave_room_for_others() -> None:
    requests = OpenRequests(100)
    for number in range(90):
        requests.add(made(number))
    with pytest.raises(ServiceUnavailable, match="requests of this connection"):
        requests.add(made(90, server="cat"))
    with pytest.raises(ServiceUnavailable, match="requests to this service"):
        requests.add(made(90, requester="cat"))
    requests.add(made(90, requester="cat", server="dan"))


def test_answers_that_nobody_waits_for_are_known_only_so_many_at_a_time() -> None:
    requests = OpenRequests(1)
    for number in range(_ABANDONED_MAX + 1):
        each = made(number)
        requests.add(OpenRequest(each.id, "ann", "bob", NO_ID, 1000))
    assert requests.answer(made(1).id, "bob") is None
    with pytest.raises(InvalidRequestId):
        requests.answer(made(0).id, "bob")


def test_an_answer_without_an_id_answers_nothing() -> None:
    with pytest.raises(InvalidRequestId, match="without requestId"):
        OpenRequests(1).answer(None, "bob")


def test_closed_requests_do_not_pile_up_among_the_deadlines() -> None:
    requests = OpenRequests(10)
    for number in range(50_000):
        requests.add(made(number, deadline_ms=3_600_000))
        requests.answer(made(number).id, "bob")
    assert len(requests._deadlines) < 2000


def test_those_still_open_keep_their_deadlines_when_the_closed_are_cleared_away() -> None:
    requests = OpenRequests(10)
    for number in range(5):
        requests.add(made(number, deadline_ms=100 - number))
    for number in range(5, 5000):
        requests.add(made(number, deadline_ms=1))
        requests.answer(made(number).id, "bob")
    assert requests.next_deadline_ms() == 96
    assert [each.deadline_ms for each in requests.expire(100)] == [96, 97, 98, 99, 100]
