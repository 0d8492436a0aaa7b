from __future__ import annotations

import logging

import pytest

from penstock.broker.base.redaction import PathRedactor
from penstock.core.errors import DiskFull, InvalidRequest, StorageFailed

ROOT = "/srv/broker/data"


def test_a_client_is_told_where_in_the_data_directory_and_not_where_that_is() -> None:
    sentence = f"{ROOT}/topics/default/orders/0 cannot be read: I/O error"
    error = StorageFailed(sentence, path=f"{ROOT}/catalog.db", errno=5)
    told = PathRedactor(ROOT).redact(error, 0)
    assert isinstance(told, StorageFailed)
    assert told.message == "topics/default/orders/0 cannot be read: I/O error"
    assert told.details == {"path": "catalog.db", "errno": 5}
    assert ROOT in error.message, "the error itself stays as it was"


def test_the_directory_itself_has_no_name() -> None:
    assert PathRedactor(ROOT).redact(DiskFull(f"{ROOT}: no room"), 0).message == "the data directory: no room"


def test_what_names_no_path_stays_the_very_same() -> None:
    error = InvalidRequest("offset 7 of /default/orders", topic="/default/orders")
    assert PathRedactor(ROOT).redact(error, 0) is error
    assert PathRedactor().redact(StorageFailed(f"{ROOT} failed"), 0).message == f"{ROOT} failed"


def test_the_log_has_the_path_and_is_not_drowned_in_it(caplog: pytest.LogCaptureFixture) -> None:
    redactor = PathRedactor(ROOT)
    with caplog.at_level(logging.WARNING):
        for now_ms in (0, 10, 9_999, 10_000):
            redactor.redact(DiskFull(f"{ROOT}/topics/a: no room"), now_ms)
        redactor.redact(DiskFull(f"{ROOT}/topics/b: no room"), 10_001)
    assert [vars(each)["error"] for each in caplog.records] == [
        f"{ROOT}/topics/a: no room",
        f"{ROOT}/topics/a: no room",
        f"{ROOT}/topics/b: no room",
    ]
