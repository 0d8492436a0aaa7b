"""The transcripts of the page about HTTP are what happens: every command is run, and what it says is compared."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.cli.kit import child_environment
from tests.docs.test_docs import DOCS, SECONDS, blocks
from tests.server.events.sse import Parser

from penstock.testing import RunningBroker

PAGE: Final = DOCS / "http.md"
_ID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_CHANGING: Final = re.compile(r'"timestamp":"[^"]*"|"publish_time":\d+|"broker_addr":"[^"]*"')

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="no curl on this machine")


def steps() -> Iterator[tuple[str, str]]:
    """Every command, and what the page says that it says."""
    for block in blocks(PAGE, "console"):
        for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, said = step.partition("\n")
            yield command, said


def learn(known: dict[str, str], page: str, real: str) -> None:
    """Ids of the page stand for those that were given out, in the order in which they appear."""
    for told, found in zip(_ID.findall(page), _ID.findall(real), strict=False):
        assert known.setdefault(told, found) == found, f"{told} is another one here"


def in_the_words_of_the_page(known: dict[str, str], real: str) -> str:
    back = {found: told for told, found in known.items()}
    return _CHANGING.sub("<changes>", _ID.sub(lambda found: back.get(found[0], found[0]), real))


def test_the_transcripts_are_what_happens(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    known: dict[str, str] = {}
    with RunningBroker("--http-port", "0", environment=child_environment(tmp_path_factory)) as broker:
        for command, said in steps():
            line = _ID.sub(lambda found: known.get(found[0], found[0]), command)
            real = run(line.replace("localhost:7452", broker.http_url.removeprefix("http://")), tmp_path)
            learn(known, said, real)
            assert in_the_words_of_the_page(known, real).strip() == _CHANGING.sub("<changes>", said).strip(), command
    assert len(known) == 10


def run(line: str, folder: Path) -> str:
    environment = os.environ | {"LC_ALL": "C"}
    done = subprocess.run(
        ["sh", "-c", line], cwd=folder, capture_output=True, text=True, timeout=SECONDS, env=environment
    )
    assert done.returncode == 0, (line, done.stderr)
    return done.stdout


def test_the_streams_of_the_page_are_what_a_browser_reads() -> None:
    streams = [said for _, said in steps() if said.startswith("retry:")]
    found = [[(each.type, each.data) for each in Parser().receive(said.encode())] for said in streams]
    assert found[0] == [("order.created", '{"order":1}'), ("order.created", '{"order":2}')]
    assert [len(each) for each in found] == [2, 2, 1]
