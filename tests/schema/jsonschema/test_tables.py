"""Public cases of compatibility, all of them, and why some verdicts here are others.

The tables are not part of this project: they lie in `shared/tables` beside it, or where `REGISTRY_TABLES` says. What
they teach is also in the cases of this directory. A schema means the values it allows: a verdict other than the table's
is given only where a value, or a proof that there is none, speaks for it.
"""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from tests.beside import files_beside
from tests.schema.jsonschema.kit import understood

_FILES: Final = files_beside("tables/jsonschema-apicurio.json", "REGISTRY_TABLES")
_VERDICTS: Final = {
    (True, True): "both",
    (True, False): "backward",
    (False, True): "forward",
    (False, False): "none",
}

DIFFERENT: Final = {
    (96, "Const"): "both",
    (108, "Complex: anyOf 1"): "both",
    (117, "Complex: oneOf 1"): "forward",
    (119, "Complex: oneOf 3"): "none",
    (124, "Conditional: if"): "both",
}
"""By place and name in the table: what we say.

96: both demand a string that is a certain list; nothing is ever written, so everything that is written can be read.
108: `anyOf` a string, or not a string or a short one, allows everything, before and after.
117: a string of seven characters is one of `string` and `maxLength: 5`, and both of `string` and `maxLength: 10`.
119: a string of three characters is both of `string` and `maxLength: 5`, and `oneOf` takes no both.
124: the condition is asked about one more value, which the property next to it does not allow.
"""


def cases() -> list[Any]:
    tests = [test for file in _FILES for test in json.loads(file.read_text())["tests"]]
    return [pytest.param(place, test, id=f"{place} {test['id']}") for place, test in enumerate(tests)]


@pytest.mark.skipif(not _FILES, reason="there are no tables beside the repository")
@pytest.mark.parametrize(("place", "test"), cases() or [(0, {})])
def test_a_public_case_has_the_verdict_of_its_table_or_one_with_a_reason(place: int, test: dict[str, Any]) -> None:
    original, updated = understood(test["original"]), understood(test["updated"])
    verdict = _VERDICTS[not updated.problems_reading(original), not original.problems_reading(updated)]
    assert verdict == DIFFERENT.get((place, test["id"]), test["compatibility"])
