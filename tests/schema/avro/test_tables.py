"""The public cases of the Avro project's own checker: the same verdicts, at the same places.

They are not part of this project: they lie in `shared/tables` beside it, or where `REGISTRY_TABLES` says.
"""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from tests.beside import files_beside
from tests.schema.avro.kit import verdict

_FILES: Final = files_beside("tables/avro-apache.json", "REGISTRY_TABLES")

DISAGREEMENTS: Final[dict[int, str]] = {}
"""By the number of the case: why we say something else. In all of them we say the same."""


def cases() -> list[Any]:
    return [test for file in _FILES for test in json.loads(file.read_text())["tests"]]


@pytest.mark.skipif(not _FILES, reason="there are no tables beside the repository")
@pytest.mark.parametrize(("number", "case"), list(enumerate(cases())) or [(0, {})])
def test_a_public_case_has_the_verdict_it_should(number: int, case: dict[str, Any]) -> None:
    problems = verdict(case["reader"], case["writer"])
    agreed = (not problems) == case["compatible"]
    assert agreed == (number not in DISAGREEMENTS)
    assert {path or "/" for _, path in problems} <= set(case["locations"])
