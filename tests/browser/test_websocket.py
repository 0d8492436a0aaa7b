"""A WebSocket from plain JavaScript: in Chromium where it is, and in Node."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

import pytest

from penstock.testing import RunningBroker

FOLDER: Final = Path(__file__).parent
CHROMIUM: Final = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
NODE: Final = shutil.which("node")
EXPECTED: Final = [
    "publish:system.initialize:1.0.0\n{}",
    "publish:system.initialize:1.0.0\n{}",
    '{"status":"success"}',
    '{"status":"success"}',
    "héllo 日本 😀",
    "255 254 0",
    "asked",
    "MALFORMED_MESSAGE",
    1000,
]
PAGE: Final = """<!doctype html><script type="module">
import {{ talk }} from "/conversation.mjs";
const said = await talk("{url}").catch((error) => [String(error)]);
await fetch("/said", {{ method: "POST", body: JSON.stringify(said) }});
</script>"""


class Page(SimpleHTTPRequestHandler):
    """Serves the page and its script, and takes what the page has to say."""

    def __init__(self, *arguments: Any, url: str, said: SimpleQueue[Any], **options: Any) -> None:
        self._url, self._said = url, said
        super().__init__(*arguments, directory=str(FOLDER), **options)

    def do_GET(self) -> None:
        if self.path != "/":
            super().do_GET()
            return
        body = PAGE.format(url=self._url).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self._said.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_arguments: object) -> None:
        """Not on the terminal."""


@contextmanager
def served(url: str, said: SimpleQueue[Any]) -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Page, url=url, said=said)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield int(server.server_address[1])
        server.shutdown()


@contextmanager
def browsing(address: str, profile: Path) -> Iterator[None]:
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
    command = [str(CHROMIUM), *options, f"--user-data-dir={profile}", "--remote-debugging-port=0", address]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as browser:
        try:
            yield
        finally:
            browser.terminate()
            browser.wait()


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_page_talks_to_the_broker_of_its_machine(broker: RunningBroker, tmp_path: Path, host: str) -> None:
    said: SimpleQueue[Any] = SimpleQueue()
    with (
        served(f"ws://127.0.0.1:{broker.ws_port}", said) as port,
        browsing(f"http://{host}:{port}/", tmp_path / "profile"),
    ):
        assert said.get(timeout=60) == EXPECTED


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
def test_a_page_from_elsewhere_is_refused(broker: RunningBroker, tmp_path: Path) -> None:
    said: SimpleQueue[Any] = SimpleQueue()
    # A name that is another host to the broker, and this machine to the browser.
    with (
        served(f"ws://127.0.0.1:{broker.ws_port}", said) as port,
        browsing(f"http://elsewhere.localhost:{port}/", tmp_path / "profile"),
    ):
        assert said.get(timeout=60) == ["Error: refused"]


if NODE is not None:  # Chromium says it all; where there is Node too, so does it

    @pytest.mark.slow
    def test_node_talks_to_the_broker(broker: RunningBroker) -> None:
        script = (
            'import { webcrypto } from "node:crypto"; globalThis.crypto ??= webcrypto;'
            f'const {{ talk }} = await import("{(FOLDER / "conversation.mjs").as_uri()}");'
            f'console.log(JSON.stringify(await talk("ws://127.0.0.1:{broker.ws_port}")));'
        )
        command = [str(NODE), "--experimental-websocket", "--no-warnings", "--input-type=module", "--eval", script]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == EXPECTED
