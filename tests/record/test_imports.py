"""Cheap imports stay cheap: heavy libraries are imported with the room that needs them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import penstock.core

HEAVY = ("numba", "llvmlite", "numpy", "pyarrow", "sqlalchemy", "msgspec", "picows", "structlog", "uvloop")
CORE = sorted(f"penstock.core.{path.stem}" for path in Path(str(penstock.core.__file__)).parent.glob("[a-z]*.py"))


def heavy_after(module: str) -> list[str]:
    code = f"import sys, {module}\nprint(*[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_the_package_and_its_core_import_nothing_heavy() -> None:
    assert "penstock.core.ids" in CORE
    assert heavy_after(", ".join(["penstock", *CORE])) == []


def test_the_client_is_nothing_but_python() -> None:
    assert heavy_after("penstock.aio, penstock.client.sync") == []


def test_messages_and_the_layout_are_nothing_but_python() -> None:
    assert heavy_after("penstock.record.message, penstock.record.layout, penstock.record.kernels.kernel_cache") == []


@pytest.mark.parametrize("module", ["penstock.record.block", "penstock.record.kernels.block_kernels"])
def test_arrow_comes_in_only_when_it_is_asked_for(module: str) -> None:
    assert {"pyarrow", "sqlalchemy"}.isdisjoint(heavy_after(module))
