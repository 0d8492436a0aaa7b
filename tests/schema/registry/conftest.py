"""Fixtures of the registry's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.schema.registry_kit import Trial, trial


@pytest.fixture
def t(tmp_path: Path) -> Iterator[Trial]:
    """A registry on a new catalog."""
    with trial(tmp_path) as made:
        yield made
