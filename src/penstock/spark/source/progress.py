"""Progress of a Spark job, reported to the broker as the position of a subscription.

So the broker shows the lag of the job beside that of other subscriptions. Reports must not disturb the job: a thread of
their own sends them, and only the newest positions. A failure is logged once and tried again later. After the reporter
was made, it raises nothing.
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
"""The time that the end of a job waits for the last report."""
_ASK_SECONDS: Final = 5.0
_PAUSE_SECONDS: Final = 1.0
"""The pause after a failure; doubled with each further one."""
_PAUSE_SECONDS_MAX: Final = 30.0

Positions = Mapping[tuple[str, int], int]
"""The next offset by topic and partition."""


class ProgressReporter:
    """A reporter for one job, under one subscription name. It connects when it sends the first report."""

    def __init__(self, broker: str, name: str, tls: Mapping[str, str] | None = None, *, archive: bool = False) -> None:
        """Prepare reports to `broker` as the subscription `name`.

        `tls` has the paths of `tls_ca`, `tls_cert`, `tls_key` and `token_file`, for a broker that requires them.
        `archive` tells the broker that the job keeps its messages, and so needs their schemas even after the log has
        dropped them. Raises `InvalidRequest` for a wrong address or subscription name.
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
        self._changed = threading.Condition()
        self._pending: dict[tuple[str, int], int] = {}
        self._requested: dict[tuple[str, int], int] = {}
        """The last position requested for each partition, sent or not."""

        self._sending = False
        self._closing = False
        self._thread: threading.Thread | None = None
        self._client: Client | None = None
        self._failed = False

    def report(self, positions: Positions) -> None:
        """Queue positions for the next report, and return at once.

        For each partition only the newest position is sent, and only if it changed. After `close` nothing is queued.
        """
        offsets_by_key = {(str(topic), partition): offset for (topic, partition), offset in positions.items()}
        with self._changed:
            if self._closing:
                return
            self._pending |= {
                key: offset for key, offset in offsets_by_key.items() if self._requested.get(key) != offset
            }
            self._requested |= offsets_by_key
            if self._pending and self._thread is None:
                self._thread = threading.Thread(target=self._run, name="penstock-progress", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def flush(self, seconds: float = CLOSE_SECONDS) -> bool:
        """Wait at most `seconds` until every position is sent or sending has failed. Return whether every position was
        sent.

        A process that may end at any moment calls this, since its end would lose waiting reports.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._failed or not (self._pending or self._sending), seconds)
            return not (self._failed or self._pending or self._sending)

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """End the reports. Waits at most `seconds` for positions that are not sent yet."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(seconds)

    # in the thread of the reports

    def _run(self) -> None:
        pause = _PAUSE_SECONDS
        while (positions := self._next_positions()) is not None:
            last = self._closing
            if self._try_send(positions):
                pause = _PAUSE_SECONDS
            elif last:
                break
            else:
                self._retry_later(positions, pause)
                pause = min(2 * pause, _PAUSE_SECONDS_MAX)
        self._disconnect()

    def _retry_later(self, positions: dict[tuple[str, int], int], seconds: float) -> None:
        """Put positions back for the next report, unless newer ones came; wait `seconds`, or until the end."""
        with self._changed:
            self._pending = positions | self._pending
            self._changed.wait_for(lambda: self._closing, seconds)

    def _next_positions(self) -> dict[tuple[str, int], int] | None:
        """Wait for positions to send, and return them. None when the reporter is closed and has sent all."""
        with self._changed:
            self._changed.wait_for(lambda: self._pending or self._closing)
            positions, self._pending = self._pending, {}
            self._sending = bool(positions)
            return positions or None

    def _try_send(self, positions: Positions) -> bool:
        try:
            self._send(positions)
        except Exception as error:  # the job goes on, whatever the error
            if not self._failed:
                _LOG.warning("progress of the job could not be reported to the broker at %s: %s", self._url, error)
            self._disconnect()
            self._note_result(failed=True)
            return False
        if self._failed:
            _LOG.warning("progress of the job is reported to the broker at %s again", self._url)
        self._note_result(failed=False)
        return True

    def _note_result(self, *, failed: bool) -> None:
        with self._changed:
            self._failed, self._sending = failed, False
            self._changed.notify_all()

    def _send(self, positions: Positions) -> None:
        by_topic: dict[str, dict[str, int]] = defaultdict(dict)
        for (topic, partition), offset in positions.items():
            by_topic[str(TopicName.parse(topic))][str(partition)] = offset
        refused: PenstockError | None = None
        for topic, offsets in by_topic.items():
            try:
                said = {"topic": topic, "subscription": self._name, "positions": offsets}
                self._connection().ask(TOPIC, said | self._more)
            except PenstockError as error:
                refused = refused or error
        if refused is not None:
            raise refused

    def _connection(self) -> Client:
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
