"""The commands of the operations page are run, in the order in which an operator comes to need them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Final

import pytest
from tests.cli.kit import child_environment
from tests.docs.test_docs import DOCS, blocks, typed

PAGE: Final = DOCS / "operations.md"
DATA, BACKUP = "/var/lib/penstock", "/mnt/backup"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("curl") is None, reason="no curl on this machine"),
]


def beside(serve: str) -> str:
    """A broker that the next lines can ask, and that ends with the shell."""
    assert serve.startswith("penstock serve ")
    assert serve.count("\n") == 1
    return (
        f"rm -f ready.json; {serve.strip()} --ready-file ready.json & broker=$!\n"
        "trap 'kill $broker' EXIT\nwhile [ ! -e ready.json ]; do sleep 0.1; done\n"
    )


def script(place: Path) -> str:
    """All of the page, with directories of our own, and between the blocks what the page takes for granted."""
    serve, ready, top, backup, restore, room, damage = blocks(PAGE, "sh")
    restored, again = restore.splitlines(keepends=True)
    topics = "for topic in telemetry.raw scratch.test; do penstock publish $topic hello; done\n"
    lost = f"kill $broker; wait $broker || true\nrm -r {DATA}\n"
    left = "penstock topic ls\n"
    whole = beside(serve) + topics + ready + top + backup + room + damage + lost + restored + beside(again) + left
    return (
        whole.replace(DATA, str(place / "data"))
        .replace(BACKUP, str(place / "backup"))
        .replace("127.0.0.1:7452", "localhost:7452")
    )


def test_the_commands_of_the_operations_page_run(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    done = typed(script(tmp_path), tmp_path, child_environment(tmp_path_factory))
    assert done.returncode == 0, done.stderr
    for words in (
        "topics by rate",
        "holds   2 topics, 2 partitions, 2 messages",
        "deleted /default/scratch.test",
        "clean",
    ):
        assert words in done.stdout, words
    told, _ = json.JSONDecoder().raw_decode(done.stdout, done.stdout.index('{"status":"ready"'))
    assert told == json.loads(blocks(PAGE, "json")[0])
    _, _, restored = done.stdout.partition("restored")
    assert "scratch.test" in restored
