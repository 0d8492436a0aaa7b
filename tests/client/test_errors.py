"""Errors, as programs import them."""

from __future__ import annotations

import penstock
import penstock.errors
from penstock.core.errors import PenstockError


def test_every_error_is_there_under_its_name() -> None:
    kinds: list[type[PenstockError]] = [PenstockError, *PenstockError.__subclasses__()]
    for kind in kinds:
        if kind.__module__ == "penstock.core.errors":
            assert getattr(penstock.errors, kind.__name__) is kind
            assert kind.__name__ in penstock.errors.__all__
    assert penstock.errors.Code.TIMEOUT is penstock.errors.Timeout.code
