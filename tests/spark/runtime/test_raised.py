"""The Penstock errors that come out of Spark."""

from __future__ import annotations

import pytest

from penstock.core.errors import InvalidRequest, NotOwner, PenstockError, StorageFailed
from penstock.spark.runtime.failures import to_penstock_error

IN_A_SOURCE = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: ...
Traceback (most recent call last):
  File "following.py", line 1, in _lose_log
    raise DataLoss(
penstock.spark.scan.slice_reader.DataLoss: /default/orders partition 0 was read up to offset 7, and cannot be read on
  SQLSTATE: 38000"""


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (IN_A_SOURCE, StorageFailed),
        ("x\npenstock.core.errors.InvalidRequest: option rows is 'x': allowed is y\n at java", InvalidRequest),
        ("x\npenstock.core.errors.NotOwner: table a is archived by b", NotOwner),
    ],
)
def test_an_error_of_ours_is_raised_as_what_it_was(text: str, kind: type[PenstockError]) -> None:
    found = to_penstock_error(RuntimeError(text))
    assert type(found) is kind
    assert "\n" not in found.message
    assert found.message.split()[0] in ("/default/orders", "option", "table")


def test_anything_else_is_told_shortly() -> None:
    found = to_penstock_error(
        RuntimeError("Job aborted due to stage failure: the executor was lost\n\tat org.apache.spark")
    )
    assert found.message == "Spark failed: Job aborted due to stage failure: the executor was lost"


def test_an_error_that_is_ours_already_is_itself() -> None:
    error = InvalidRequest("no")
    assert to_penstock_error(error) is error
