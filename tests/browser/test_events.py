"""A page that follows a topic with nothing but the browser's own `EventSource`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
from tests.browser import test_websocket as kit
from tests.server.http_kit import Client

from penstock.testing import RunningBroker

PAGE = """<!doctype html><script>
const said = [];
const source = new EventSource("{url}");
const tell = () => fetch("/said", {{ method: "POST", body: JSON.stringify(said) }});
const note = (event) => {{
  said.push([event.type, event.data, event.lastEventId]);
  if (said.length === 5) {{ source.close(); tell(); }}
}};
source.onmessage = note;
source.addEventListener("order.created", note);
source.addEventListener("photo.taken", note);
source.onerror = () => {{
  if (source.readyState === EventSource.CLOSED) {{ said.push("refused"); tell(); }}
}};
</script>"""
SENT = (("order.created", b'{"order":1}'), ("order.created", "zwei\nZeilen ✓".encode()), ("photo.taken", b"\xff\x00"))


@pytest.fixture(scope="module")
def events() -> Iterator[RunningBroker]:
    with RunningBroker("--http-port", "0") as running:
        yield running


def shown(broker: RunningBroker, host: str, query: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(kit, "PAGE", PAGE)
    said: SimpleQueue[Any] = SimpleQueue()
    with (
        kit.served(f"{broker.http_url}/api/events?{query}", said) as port,
        kit.browsing(f"http://{host}:{port}/", tmp_path / "profile"),
    ):
        return said.get(timeout=60)


@pytest.mark.slow
@pytest.mark.skipif(kit.CHROMIUM is None, reason="no Chromium on this machine")
def test_a_page_follows_a_topic_and_comes_back_to_where_it_was(
    events: RunningBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every answer ends after two events: the browser asks again, with the last id."""
    with Client(int(events.ready["http_port"])) as http:
        ids = [
            http.ask("POST", f"/api/events?topic=page&type={kind}", payload).json["id"]
            for kind, payload in (SENT * 2)[:5]
        ]
    found = shown(events, "127.0.0.1", "topic=page&from=earliest&limit=2", tmp_path, monkeypatch)
    text = ['{"order":1}', "zwei\nZeilen ✓", "data:application/octet-stream;base64,/wA="]
    assert found == [[SENT[place % 3][0], text[place % 3], ids[place]] for place in range(5)]


@pytest.mark.slow
@pytest.mark.skipif(kit.CHROMIUM is None, reason="no Chromium on this machine")
def test_a_page_of_elsewhere_is_refused(events: RunningBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(events, "elsewhere.localhost", "topic=page", tmp_path, monkeypatch) == ["refused"]
