"""The commands of the READMEs, typed as they stand, but for fewer orders."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.kit import child_environment
from tests.examples.kit import commands, copied
from tests.ports import free_ports

SECONDS = 1500
"""Every command of a page has a Spark of its own, which a busy machine starts slowly."""
pytestmark = pytest.mark.timeout(SECONDS + 60)


def typed(example: Path, temporary: pytest.TempPathFactory, *, orders: tuple[str, str] | None = None) -> str:
    """What the commands of its README print, with other numbers of orders. Fails with all that was said if one does."""
    text = commands(example / "README.md")
    if orders is not None:
        assert orders[0] in text
        text = text.replace(*orders)
    environment = child_environment(temporary)
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    (port,) = free_ports(1)
    ports = {"PENSTOCK_TCP_PORT": str(port), "PENSTOCK_WS_PORT": "0", "PENSTOCK_URL": f"tcp://127.0.0.1:{port}"}
    done = subprocess.run(
        ["sh", "-ec", text],
        cwd=example,
        env=environment | ports,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def test_revenue(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    said = typed(copied("revenue", tmp_path), tmp_path_factory, orders=("20000", "4000"))
    assert "revenue.toml: valid" in said
    assert "step   hourly <- orders by SQL" in said
    assert said.count("│ revenue.table │ done ") == 2
    assert "'product': 'anvil'" in said


def test_sessions(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    said = typed(copied("sessions", tmp_path), tmp_path_factory)
    assert said.count('"visitor":"visitor-') == 5


def test_enrichment(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    said = typed(copied("enrichment", tmp_path), tmp_path_factory, orders=("2000", "200"))
    assert "enrichment.toml: valid" in said
    assert said.count("order.enriched") == 5


def test_declarative(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    from pyarrow import dataset

    example = copied("declarative", tmp_path)
    typed(example, tmp_path_factory)
    assert dataset.dataset(example / "warehouse/orders", format="parquet").count_rows() == 2500
    revenue = dataset.dataset(example / "warehouse/revenue", format="parquet").to_table().to_pylist()
    assert {row["product"]: row["orders"] for row in revenue} == dict.fromkeys(
        ("anvil", "bolt", "crank", "dowel", "easel"), 500
    )
