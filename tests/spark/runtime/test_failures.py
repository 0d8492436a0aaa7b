"""The message of a failure in Spark."""

from __future__ import annotations

import pytest

from penstock.core.errors import OffsetOutOfRange, PenstockError
from penstock.spark.runtime.failures import Failure, failure_of, reason


class Captured(Exception):
    """An error as PySpark has it: a text, and a cause beside it."""

    def __init__(self, text: str, cause: Captured | None = None) -> None:
        super().__init__(text)
        self._cause = cause


TRACEBACK = """Job aborted: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/somewhere/worker.py", line 5, in main
    process()
{raised}

\tat org.apache.spark.api.python.BasePythonRunner.java:1)
"""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "[UNRESOLVED_COLUMN] A column with name `m` cannot be resolved. SQLSTATE: 42703; line 1 pos 7;\n'Project",
            "[UNRESOLVED_COLUMN] A column with name `m` cannot be resolved. line 1 pos 7",
        ),
        (
            "\n[PARSE_SYNTAX_ERROR] Syntax error at or near 'as'. SQLSTATE: 42601 (line 1, pos 35)\n\n== SQL ==\n",
            "[PARSE_SYNTAX_ERROR] Syntax error at or near 'as'. (line 1, pos 35)",
        ),
        ("plain", "plain"),
        ("", "Captured"),
        ("said\n\nJVM stacktrace:\norg.apache", "said"),
    ],
)
def test_plans_and_stack_traces_are_left_out(text: str, told: str) -> None:
    assert reason(Captured(text)) == told


def test_what_a_function_raised_in_a_worker_is_told() -> None:
    assert reason(Captured(TRACEBACK.format(raised="ValueError: no such page"))) == "ValueError: no such page"
    assert reason(Captured(TRACEBACK.format(raised="KeyError"))) == "KeyError"


def test_what_penstock_said_is_told_with_its_kind() -> None:
    found = failure_of(Captured(TRACEBACK.format(raised="penstock.core.errors.OffsetOutOfRange: offset 7 is gone")))
    assert found == Failure("offset 7 is gone", "OffsetOutOfRange")
    error = found.error("query shop.show failed")
    assert isinstance(error, OffsetOutOfRange)
    assert error.message == "query shop.show failed: offset 7 is gone"


@pytest.mark.parametrize("kind", [None, "Nonsense", "Final"])
def test_what_is_none_of_ours_is_a_plain_error(kind: str | None) -> None:
    assert type(Failure("why", kind).error("it")) is PenstockError


def test_causes_are_looked_at_when_the_first_says_nothing() -> None:
    assert reason(Captured("Exception thrown in awaitResult: ", Captured("the disk is full"))) == "the disk is full"
    assert reason(Captured("it failed", Captured("no", Captured("the disk is full")))) == "it failed (the disk is full)"
    assert reason(Captured("it failed: no", Captured("no"))) == "it failed: no"
    named = Captured(TRACEBACK.format(raised="penstock.core.errors.DiskFull: full"))
    assert failure_of(Captured("it failed", named)) == Failure("full", "DiskFull")
