"""The audit log: the contents of its lines, its limits, and that no client can drown it."""

from __future__ import annotations

import json
import logging
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.access.policy import AuditedAction, Decision, Origin
from penstock.server.security import audit_log
from penstock.server.security.audit_log import FILES_MAX, PENDING_MAX, REFUSED_MAX, AuditLog

HERE = Origin("tcp", "127.0.0.1:5")


def denied(who: str = "key:ann", **more: Any) -> Decision:
    return Decision(who, "topic.publish", "topic /default/orders", "denied", HERE, **more)


def written(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "audit.jsonl").read_text().splitlines()]


@pytest.fixture
def log(tmp_path: Path) -> AuditLog:
    return AuditLog(tmp_path, lambda: 1_700_000_000_000)


def test_a_line_says_who_what_to_what_whence_and_when(log: AuditLog, tmp_path: Path) -> None:
    log.note(denied())
    log.write(log.take())
    assert written(tmp_path) == [
        {
            "time": "2023-11-14T22:13:20.000Z",
            "principal": "key:ann",
            "operation": "topic.publish",
            "resource": "topic /default/orders",
            "outcome": "denied",
            "surface": "tcp",
            "address": "127.0.0.1:5",
        }
    ]
    assert stat.S_IMODE((tmp_path / "audit.jsonl").stat().st_mode) == 0o600


def test_a_line_says_by_what_and_which_one_was_meant(log: AuditLog, tmp_path: Path) -> None:
    audited = AuditedAction("POST /v1/keys", (("name", "shop"), ("bindings", ("viewer", "admin"))))
    log.note(denied(audited=audited))
    log.note(denied(audited=AuditedAction("POST /v1/keys")))
    log.write(log.take())
    first, second = written(tmp_path)
    assert (first["action"], first["target"]) == ("POST /v1/keys", {"name": "shop", "bindings": ["viewer", "admin"]})
    assert "target" not in second


def test_the_same_again_is_one_line_with_a_count(log: AuditLog, tmp_path: Path) -> None:
    for _ in range(5000):
        log.note(denied())
    log.note(denied("key:bob"))
    log.write(log.take())
    assert [(each["principal"], each.get("count")) for each in written(tmp_path)] == [
        ("key:ann", 5000),
        ("key:bob", None),
    ]


def test_of_too_many_different_things_only_the_number_is_written(log: AuditLog, tmp_path: Path) -> None:
    for number in range(REFUSED_MAX + 3):
        log.note(denied(f"key:{number}"))
    for number in range(PENDING_MAX - REFUSED_MAX + 4):
        log.note(replace(denied(f"key:{number}"), outcome="allowed"))
    log.write(log.take())
    found = written(tmp_path)
    assert len(found) == PENDING_MAX + 1
    assert sum(each["outcome"] == "denied" for each in found) == REFUSED_MAX
    assert (found[-1]["outcome"], found[-1]["count"]) == ("dropped", 7)
    assert log.take() == b""


def test_anonymous_refusals_are_one_line_however_many_connections_they_come_over(log: AuditLog, tmp_path: Path) -> None:
    for port in range(1000):
        for who, outcome in (("anonymous", "denied"), ("unknown", "refused")):
            log.note(Decision(who, "authenticate", "the server", outcome, Origin("tcp", f"10.0.0.1:{port}")))
    log.write(log.take())
    assert [(each["address"], each["count"]) for each in written(tmp_path)] == [("10.0.0.1", 1000)] * 2


def test_nothing_is_written_where_nothing_happened(log: AuditLog, tmp_path: Path) -> None:
    log.write(log.take())
    assert list(tmp_path.iterdir()) == []


def test_what_is_long_is_cut_and_a_line_stays_a_line(log: AuditLog, tmp_path: Path) -> None:
    log.note(Decision("a" * 10_000, "x", "b\n{}" * 10_000, "denied", HERE, "c\r\n" * 10_000))
    log.write(log.take())
    (line,) = written(tmp_path)
    assert all(len(str(value)) <= 512 for value in line.values())


def test_full_files_are_kept_up_to_a_number(log: AuditLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_log, "FILE_BYTES_MAX", 400)
    for number in range(3 * FILES_MAX):
        log.note(denied(f"key:{number}"))
        log.note(denied(f"key:{number}-too"))
        log.write(log.take())
    names = sorted(each.name for each in tmp_path.iterdir())
    assert names == sorted(["audit.jsonl", *(f"audit.{number}.jsonl" for number in range(1, FILES_MAX))])
    assert written(tmp_path)[-1]["principal"] == f"key:{3 * FILES_MAX - 1}-too"
    before = json.loads((tmp_path / "audit.1.jsonl").read_text().splitlines()[0])
    assert before["principal"] == f"key:{3 * FILES_MAX - 2}"


def test_a_disk_that_fails_is_said_once_and_later_lines_are_tried(
    log: AuditLog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "audit.jsonl").mkdir()
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            log.note(denied())
            log.write(log.take())
    assert [each.getMessage() for each in caplog.records] == ["the audit log cannot be written"]
    (tmp_path / "audit.jsonl").rmdir()
    log.note(denied("key:later"))
    log.write(log.take())
    assert [each["principal"] for each in written(tmp_path)] == ["key:later"]
