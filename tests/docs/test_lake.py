"""The recipes of docs/lake.md read tables as an archive leaves them, with no code of ours."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.test_docs import DOCS, SECONDS, blocks
from tests.spark.lake.kit import files, made, marker, rows

PAGE = DOCS / "lake.md"
HEADING = "Reading it with something else"


def warehouse(tmp_path: Path, kind: str) -> Path:
    """A table of twenty messages, and a file that belongs to no version of it."""
    table = made(tmp_path, kind, owner="q1")
    for batch in range(2):
        table.commit(files(table, rows(batch * 10, batch * 10 + 10)), marker(batch, batch * 10, batch * 10 + 10))
    (written,) = files(table, rows(0, 10))
    assert (table.folder.local / written.path).exists()
    place = tmp_path / "lake"
    if kind == "iceberg":
        place.symlink_to(tmp_path / kind)  # its metadata has whole paths
    else:
        shutil.move(tmp_path / kind, place)
    return place


def said(program: str, place: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=place.parent, capture_output=True, text=True, timeout=SECONDS
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
def test_the_recipes_for_delta_read_what_is_committed_and_nothing_else(tmp_path: Path) -> None:
    delta, _ = blocks(PAGE, "python", below=HEADING)
    _, late, counted = said(delta, warehouse(tmp_path, "delta"))
    assert (late, counted) == ("5", "[('/default/orders', 20, 19)]")


@pytest.mark.slow
def test_the_recipes_for_iceberg_find_the_catalog_and_its_tables(tmp_path: Path) -> None:
    _, iceberg = blocks(PAGE, "python", below=HEADING)
    tables, late, total, counted, metadata = said(iceberg, warehouse(tmp_path, "iceberg"))
    assert tables == "[('default', 'orders')]"
    assert (late, total, counted, metadata) == ("5", "20", "[('/default/orders', 20)]", "True")
