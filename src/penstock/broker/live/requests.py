"""Open requests: those that wait for a response. The broker gives each one an id of its own, under which the server
responds, and a deadline."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from penstock.core.errors import InvalidRequestId, ServiceUnavailable
from penstock.protocol.header import Header

_ABANDONED_MAX: Final = 10_000  # requests without a requester, remembered so that a response is no error


@dataclass(frozen=True, slots=True)
class OpenRequest:
    id: str
    """The id that the broker made. The server responds under it."""

    requester: str
    server: str
    header: Header
    """The header as the requester sent it. The response goes back with its topic, version and id."""

    deadline_ms: int


class OpenRequests:
    """The open requests, at most `limit`. Those from one requester, and those to one server, may be at most 90 % of it.
    An accepted request always ends with a response, an error or a timeout, unless its requester leaves."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._share = limit - limit // 10
        self._open: dict[str, OpenRequest] = {}
        self._deadlines: list[tuple[int, str]] = []
        self._of_requester: dict[str, set[str]] = {}
        self._of_server: dict[str, set[str]] = {}
        self._abandoned: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._open)

    def add(self, request: OpenRequest) -> None:
        """Open a request. Raises `ServiceUnavailable` if too many are open. A request without an id is not opened, as
        nobody waits for its response: that is dropped when it comes."""
        if request.header.request_id is None:
            self._forget(request)
            return
        for what, count, most in (
            ("requests", len(self._open), self._limit),
            ("requests of this connection", len(self._of_requester.get(request.requester, ())), self._share),
            ("requests to this service", len(self._of_server.get(request.server, ())), self._share),
        ):
            if count >= most:
                raise ServiceUnavailable(
                    f"Too many {what} are waiting for an answer: at most {most}; try again later",
                    requests_open_max=self._limit,
                )
        self._open[request.id] = request
        self._of_requester.setdefault(request.requester, set()).add(request.id)
        self._of_server.setdefault(request.server, set()).add(request.id)
        heapq.heappush(self._deadlines, (request.deadline_ms, request.id))

    def answer(self, request_id: str | None, server: str) -> OpenRequest | None:
        """Close and return the request that a response from `server` belongs to; None if its requester no longer waits,
        so that the response is dropped.

        Raises `InvalidRequestId` if there is no such request: the response is late, comes a second time, or comes from
        another server.
        """
        if request_id is None:
            raise InvalidRequestId("Received response message without requestId.")
        key = request_id.lower()
        if self._abandoned.get(key) == server:
            del self._abandoned[key]
            return None
        request = self._open.get(key)
        if request is None or request.server != server:
            raise InvalidRequestId(f"No matching request found for requestId: {request_id}")
        self._close(request)
        return request

    def expire(self, now_ms: int) -> Iterator[OpenRequest]:
        """Close and yield the requests whose deadline has passed."""
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            request = self._open.get(heapq.heappop(self._deadlines)[1])
            if request is not None:
                self._close(request)
                yield request

    def next_deadline_ms(self) -> int | None:
        while self._deadlines and self._deadlines[0][1] not in self._open:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def close_all(self) -> list[OpenRequest]:
        """Close and return all requests."""
        return self._closed(list(self._open))

    def close_of_server(self, server: str) -> list[OpenRequest]:
        """Close and return all requests that wait for a response from this server."""
        return self._closed(sorted(self._of_server.get(server, ())))

    def abandon_requester(self, requester: str) -> None:
        """Close the requests of a requester that has left. Responses to them are dropped, without an error for the
        server."""
        for request in self._closed(list(self._of_requester.get(requester, ()))):
            self._forget(request)

    def _closed(self, ids: list[str]) -> list[OpenRequest]:
        requests = [self._open[request_id] for request_id in ids]
        for request in requests:
            self._close(request)
        return requests

    def _forget(self, request: OpenRequest) -> None:
        if len(self._abandoned) >= _ABANDONED_MAX:
            del self._abandoned[next(iter(self._abandoned))]
        self._abandoned[request.id] = request.server

    def _close(self, request: OpenRequest) -> None:
        del self._open[request.id]
        _discard(self._of_requester, request.requester, request.id)
        _discard(self._of_server, request.server, request.id)
        # Closed requests stay among the deadlines until theirs comes, or until most are closed.
        if len(self._deadlines) > 2 * len(self._open) + 1024:
            self._deadlines = [(request.deadline_ms, request.id) for request in self._open.values()]
            heapq.heapify(self._deadlines)


def _discard(sets: dict[str, set[str]], key: str, member: str) -> None:
    members = sets.get(key)
    if members is not None:
        members.discard(member)
        if not members:
            del sets[key]
