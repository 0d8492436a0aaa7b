"""How far a Spark job is, told to the broker as the place of a subscription: its lag is seen among all others.

The job comes first. Reports go from a thread of their own, the newest only; one that fails is logged once and tried
again later, and nothing is ever raised after the start.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from penstock.client.wire.address import parse_url
from penstock.core.errors import InvalidRequest, PenstockError
from penstock.core.names import TopicName
from penstock.storage.catalog.topics import check_subscription_name

if TYPE_CHECKING:
    from penstock.client.sync import Client

_LOG: Final = logging.getLogger(__name__)
TOPIC: Final = "system.subscription.report"

CLOSE_SECONDS: Final = 5.0
"""How long an end waits for the last report."""
_ASK_SECONDS: Final = 5.0
_PAUSE_SECONDS: Final = 1.0
"""After a failure; twice as long after each further one."""
_PAUSE_SECONDS_MAX: Final = 30.0

Positions = Mapping[tuple[str, int], int]
"""The next offset by topic and partition."""


class ProgressReporter:
    """Reports of one job under one name. Nothing is connected before the first of them."""

    def __init__(self, broker: str, name: str, tls: Mapping[str, str] | None = None, *, archive: bool = False) -> None:
        """`tls`: the files `tls_ca`, `tls_cert`, `tls_key` and `token_file`, where the broker wants them.

        `archive`: the job keeps what it has read, and so needs its schemas, whatever becomes of the log.
        Raises `InvalidRequest` for what is no address, or no name of a subscription.
        """
        try:
            self._url = str(parse_url(broker))
        except InvalidRequest as error:
            raise InvalidRequest(f"broker={broker!r}: {error.message}", option="broker") from None
        try:
            check_subscription_name(name)
        except InvalidRequest as error:
            raise InvalidRequest(f"subscription={name!r}: {error.message}", option="subscription") from None
        self._name = name
        self._more = {"archive": True} if archive else {}
        self._tls = dict(tls or {})
        self._news = threading.Condition()
        self._pending: dict[tuple[str, int], int] = {}
        self._known: dict[tuple[str, int], int] = {}
        """What was asked to be said, whether it is yet or not."""

        self._sending = False
        self._closing = False
        self._thread: threading.Thread | None = None
        self._client: Client | None = None
        self._failed = False

    def report(self, positions: Positions) -> None:
        """Say so soon; what was not said yet of the same partitions is not said any more. Returns at once. What is as
        it was is not said again."""
        given = {(str(topic), partition): offset for (topic, partition), offset in positions.items()}
        with self._news:
            if self._closing:
                return
            self._pending |= {key: offset for key, offset in given.items() if self._known.get(key) != offset}
            self._known |= given
            if self._pending and self._thread is None:
                self._thread = threading.Thread(target=self._run, name="penstock-progress", daemon=True)
                self._thread.start()
            self._news.notify_all()

    def flush(self, seconds: float = CLOSE_SECONDS) -> bool:
        """Wait until all is said, or it turns out that it cannot be; whether it is. For a process that may end now."""
        with self._news:
            self._news.wait_for(lambda: self._failed or not (self._pending or self._sending), seconds)
            return not (self._failed or self._pending or self._sending)

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Say what is left, if that takes no longer; then no more."""
        with self._news:
            self._closing = True
            self._news.notify_all()
        if self._thread is not None:
            self._thread.join(seconds)

    # in the thread

    def _run(self) -> None:
        pause = _PAUSE_SECONDS
        while (positions := self._next()) is not None:
            last = self._closing
            if self._sent(positions):
                pause = _PAUSE_SECONDS
            elif last:
                break
            else:
                self._keep(positions, pause)
                pause = min(2 * pause, _PAUSE_SECONDS_MAX)
        self._disconnect()

    def _keep(self, positions: dict[tuple[str, int], int], seconds: float) -> None:
        """For the next time, unless there is something newer by then; which is in a while, or at the end."""
        with self._news:
            self._pending = positions | self._pending
            self._news.wait_for(lambda: self._closing, seconds)

    def _next(self) -> dict[tuple[str, int], int] | None:
        """What is to be said, once there is something; None at the end."""
        with self._news:
            self._news.wait_for(lambda: self._pending or self._closing)
            positions, self._pending = self._pending, {}
            self._sending = bool(positions)
            return positions or None

    def _sent(self, positions: Positions) -> bool:
        try:
            self._send(positions)
        except Exception as error:  # the job goes on, whatever it is
            if not self._failed:
                _LOG.warning("how far the job is could not be told to the broker at %s: %s", self._url, error)
            self._disconnect()
            self._done(failed=True)
            return False
        if self._failed:
            _LOG.warning("the broker at %s hears again how far the job is", self._url)
        self._done(failed=False)
        return True

    def _done(self, *, failed: bool) -> None:
        with self._news:
            self._failed, self._sending = failed, False
            self._news.notify_all()

    def _send(self, positions: Positions) -> None:
        by_topic: dict[str, dict[str, int]] = defaultdict(dict)
        for (topic, partition), offset in positions.items():
            by_topic[str(TopicName.parse(topic))][str(partition)] = offset
        refused: PenstockError | None = None
        for topic, offsets in by_topic.items():
            try:
                said = {"topic": topic, "subscription": self._name, "positions": offsets}
                self._connected().ask(TOPIC, said | self._more)
            except PenstockError as error:
                refused = refused or error
        if refused is not None:
            raise refused

    def _connected(self) -> Client:
        from penstock.client.sync import connect

        if self._client is None:
            self._client = connect(
                self._url,
                timeout=_ASK_SECONDS,
                reconnect=False,
                tls_ca=self._tls.get("tls_ca"),
                tls_cert=self._tls.get("tls_cert"),
                tls_key=self._tls.get("tls_key"),
                token_file=self._tls.get("token_file"),
            )
        return self._client

    def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            try:
                client.close()
            except Exception as error:
                _LOG.debug("the connection for reports could not be closed: %s", error)
