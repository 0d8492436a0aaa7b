"""`penstock backup` and `penstock restore`, as a user types them."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.cli.kit import Fill, Run


def test_a_backup_is_made_brought_up_to_date_verified_and_restored(here: Run, fill: Fill, home: Path) -> None:
    fill([b"message %d" % number for number in range(10)])
    first = here("backup", "backup", "--json").rows[0]["backup"]
    assert (first["topics"], first["messages"], first["findings"], first["kept_bytes"]) == (1, 10, 0, 0)
    again = here("backup", "create", "backup", "--json").rows[0]["backup"]
    assert again["kept_bytes"] > 0
    said = here("backup", "verify", "backup")
    assert (said.code, said.out.splitlines()[-1]) == (0, "whole")
    done = here("restore", "backup", "new")
    assert done.code == 0
    assert "10 messages" in done.out
    assert done.out.splitlines()[-1] == "start it with: penstock serve --data new"
    read = here("log", "read", "orders", "--data", "new", "--json").rows
    assert read == here("log", "read", "orders", "--json").rows


def test_without_an_argument_the_help_is_shown(here: Run) -> None:
    assert "create" in here("backup").out
    assert "verify" in here("backup", "--help").out


def test_what_is_damaged_is_named_and_the_exit_code_is_1(here: Run, segment: Path) -> None:
    data = bytearray(segment.read_bytes())
    data[150] ^= 1
    segment.write_bytes(data)
    made = here("backup", "backup")
    assert made.code == 1
    assert "damaged in the original" in made.err
    assert str(segment.name) in made.err
    assert here("backup", "verify", "backup").code == 0
    stored = next(Path("backup").rglob("*.seg"))
    stored.write_bytes(stored.read_bytes()[:-1])
    found = here("backup", "verify", "backup", "--json")
    assert found.code == 1
    assert found.rows[0]["finding"]["file"] == str(stored.relative_to("backup"))
    assert found.rows[0]["finding"]["where"] == "/default/orders[0]"


def test_what_the_original_has_lost_is_named_and_kept_until_told_otherwise(here: Run, segment: Path) -> None:
    here("backup", "backup")
    shutil.rmtree(segment.parent)
    made = here("backup", "backup")
    assert made.code == 1
    assert f"{segment.parent.name} is missing; the backup keeps its copy" in made.err
    assert list(Path("backup").rglob("*.seg"))
    assert here("backup", "backup", "--replace").code == 1
    assert not list(Path("backup").rglob("*.seg"))


def test_the_backup_of_another_directory_is_replaced_only_if_told_to(here: Run, fill: Fill, home: Path) -> None:
    fill([b"a"])
    here("backup", "backup")
    shutil.rmtree("penstock-data")
    fill([b"b"])
    here("backup", "backup").refused("another data directory", "--replace")
    assert here("backup", "create", "backup", "--replace", "--quick").code == 0


def test_what_cannot_be_is_refused_with_a_sentence(here: Run, fill: Fill, home: Path) -> None:
    here("backup", "backup").refused("penstock-data", "not a Penstock data directory")
    fill([b"a"])
    (home / "letter.txt").write_text("dear")
    here("backup", home).refused("within each other")
    here("backup", home / "letter.txt").refused("not a directory")
    here("backup", "verify", "nowhere").refused("nowhere", "not a directory with a backup")
    here("restore", "penstock-data", "new").refused("no whole backup")
    here("backup", "backup")
    here("restore", "backup", "penstock-data").refused("not empty")
    assert here("restore", "backup", "penstock-data", "--json").error["code"] == "INVALID_REQUEST"
