"""Import paths of release 0.1 that its documentation named: programs that use them still run."""

from __future__ import annotations

import importlib
import sys

import pytest

from penstock import former_names
from penstock.former_names import FORMER

DOCUMENTED = [
    ("penstock.client.deadletters", ["DeadLetters", "Which", "listed"]),
    ("penstock.core.limits", ["Limits", "WireLimits"]),
    ("penstock.core.names", ["TopicName"]),
    ("penstock.record.block", ["Draft"]),
    ("penstock.record.message", ["Message"]),
    ("penstock.spark", ["counts", "decode", "session"]),
    ("penstock.spark.files.location", ["Location"]),
    ("penstock.spark.jobs.audit", ["Wanted", "audit"]),
    ("penstock.spark.jobs.compact", ["compact"]),
    ("penstock.spark.jobs.interchange", ["Format"]),
    ("penstock.spark.jobs.page", ["page"]),
    ("penstock.spark.jobs.replay", ["replay"]),
    ("penstock.spark.jobs.report", ["as_dict"]),
    ("penstock.spark.jobs.selecting", ["FromLog", "Selection"]),
    ("penstock.spark.jobs.transfer", ["export"]),
    ("penstock.spark.lake", ["Marker", "open_table"]),
    ("penstock.spark.lake.archive", ["archive"]),
    ("penstock.spark.lake.frames", ["read_frame", "write_frame"]),
    ("penstock.spark.runtime", ["home", "java"]),
    ("penstock.spark.runtime.session", ["register"]),
    ("penstock.spark.sink.options", ["SinkOptions"]),
    ("penstock.storage.readers", ["DataReader"]),
    ("penstock.storage.store", ["Store"]),
]


@pytest.mark.parametrize(("module", "names"), DOCUMENTED, ids=lambda value: value if isinstance(value, str) else "")
def test_documented_imports_of_release_0_1_work(module: str, names: list[str]) -> None:
    for name in names:
        if not hasattr(importlib.import_module(module), name):
            importlib.import_module(f"{module}.{name}")


def test_functions_and_classes_are_the_same_by_both_names() -> None:
    former, home = (
        importlib.import_module(name)
        for name in ("penstock.storage.readers", FORMER["penstock.storage.readers"].module)
    )
    assert former.DataReader is home.DataReader
    jobs, audit = (importlib.import_module(f"penstock.spark.jobs.{name}") for name in ("audit", "audit.run"))
    assert jobs.Wanted is audit.AuditRequest
    assert jobs.audit is audit.audit


def test_a_former_name_that_never_was_is_no_module() -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("penstock.client.nothing")


def test_the_finder_is_installed_once() -> None:
    before = len(sys.meta_path)
    former_names.install()
    assert len(sys.meta_path) == before
