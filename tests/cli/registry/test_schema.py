"""`penstock schema`, with a real broker."""

from __future__ import annotations

import json
import os
import pty
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest
from tests.cli.kit import Run, Start

pytestmark = pytest.mark.usefixtures("at_keeper")

ID = {"name": "id", "type": "long"}
NOTE = {"name": "note", "type": "string"}
CURRENCY = {"name": "currency", "type": "string", "default": "EUR"}
PROTO = 'syntax = "proto3";\npackage %s;\nmessage %s {\n\tint64 id = 1; // grüezi\n}\r\n'


def record(*fields: Mapping[str, object], name: str = "Order") -> str:
    return json.dumps({"type": "record", "name": name, "fields": fields})


def write(name: str, text: str) -> Path:
    """Write a file into the current directory."""
    file = Path(name)
    file.write_bytes(text.encode())
    return file


def all_of(terminal: int) -> bytes:
    """Read the rest of a terminal that no process writes to any more: it comes in pieces."""
    shown = b""
    with suppress(OSError):  # the end of it
        while piece := os.read(terminal, 65_536):
            shown += piece
    os.close(terminal)
    return shown


def registered(here: Run, subject: str, *texts: str) -> None:
    for text in texts:
        done = here("schema", "register", subject, "-", given=text.encode())
        assert done.code == 0, done.err


# registering and looking


def test_a_schema_is_registered_listed_and_printed_byte_for_byte(here: Run) -> None:
    text = PROTO % ("bytewise", "Order")
    file = write("order.proto", text)
    shown = here("schema", "register", "cli.bytewise-value", file, "--description", "first", "--tag", "team=x")
    assert shown.out.startswith("cli.bytewise-value: version 1, id ")
    assert shown.out.endswith("(PROTOBUF)\n")
    assert here("schema", "get", "cli.bytewise-value").raw == text.encode()
    (facts,) = here("schema", "get", "cli.bytewise-value", "--version", "1", "--json").rows
    assert (facts["subject"], facts["version"], facts["type"], facts["schema"]) == (
        "cli.bytewise-value",
        1,
        "PROTOBUF",
        text,
    )
    assert (facts["description"], facts["tags"]) == ("first", ["team=x"])
    assert here("schema", "get", "--id", str(facts["id"])).raw == text.encode()
    assert here("schema", "ls", "cli.bytewise").out == "cli.bytewise-value\n"
    assert here("schema", "ls", "cli.bytewise", "--json").rows == [{"subject": "cli.bytewise-value", "deleted": False}]
    (row,) = here("schema", "versions", "cli.bytewise-value", "--json").rows
    assert (row["version"], row["id"], row["deleted"], row["description"]) == (1, facts["id"], False, "first")
    table = here("schema", "versions", "cli.bytewise-value").out
    for words in ("PROTOBUF", "first", "team=x"):
        assert words in table


def test_the_same_schema_again_is_the_same_version(here: Run) -> None:
    (first,) = here("schema", "register", "cli.again", "-", "--json", given=record(ID).encode()).rows
    assert first == {"subject": "cli.again", "version": 1, "id": first["id"], "type": "AVRO"}
    spaced = json.dumps(json.loads(record(ID)), indent=4).encode()
    assert here("schema", "register", "cli.again", "-", "--json", given=spaced).rows == [first]
    assert len(here("schema", "versions", "cli.again", "--json").rows) == 1


def test_a_schema_without_text_needs_no_file(here: Run) -> None:
    assert "(NUMBER)" in here("schema", "register", "cli.number", "--type", "number").out
    assert here("schema", "get", "cli.number").raw == b""
    here("schema", "register", "cli.number", "--type", "avro").refused("name a file with the schema, or '-'")
    here("schema", "register", "cli.number").refused("name a file")


def test_a_schema_refers_to_others_by_name_subject_and_version(here: Run) -> None:
    registered(here, "cli.money", record({"name": "cents", "type": "long"}, name="Money"))
    order = write("order.avsc", record({"name": "price", "type": "Money"}))
    here("schema", "register", "cli.priced", order).refused("Money", "--reference NAME=SUBJECT:VERSION")
    ref = b'{"$ref": "https://acme.com/line.json"}'
    here("schema", "register", "cli.priced", "-", given=ref).refused("line.json", "--reference NAME=SUBJECT:VERSION")
    proto = b'syntax = "proto3"; import "money.proto"; message A {}'
    here("schema", "check", "cli.priced", "-", given=proto).refused("money.proto", "--reference NAME=SUBJECT:VERSION")
    assert here("schema", "register", "cli.priced", order, "--reference", "Money=cli.money:1").code == 0
    (facts,) = here("schema", "get", "cli.priced", "--json").rows
    assert facts["references"] == [{"name": "Money", "subject": "cli.money", "version": 1}]
    here("schema", "register", "cli.priced", order, "--reference", "Money=cli.money:9").refused("cli.money", "9")
    here("schema", "register", "cli.priced", order, "--reference", "Money").refused("expected NAME=SUBJECT:VERSION")


def test_on_a_terminal_nothing_in_a_schema_moves_the_cursor(here: Run, start: Start) -> None:
    registered(here, "cli.terminal", PROTO % ("terminal", "A") + "// \x1b[31m red\n")
    ours, theirs = pty.openpty()
    with start("schema", "get", "cli.terminal", stdout=theirs) as process:
        assert process.wait(60) == 0
    os.close(theirs)
    shown = all_of(ours)
    assert b"\\x1b[31m red\r\n" in shown
    assert b"\x1b[31m" not in shown
    assert "grüezi\r\n".encode() in shown


# checking


def test_incompatibility_is_explained_so_that_a_person_can_act_on_it(here: Run) -> None:
    registered(here, "cli.check", record(ID, NOTE))
    bad = write("bad.avsc", record({"name": "id", "type": "int"}, {"name": "currency", "type": "string"}))
    shown = here("schema", "check", "cli.check", bad)
    assert shown.code == 1
    for words in (
        "cli.check: not compatible (BACKWARD), 2 problems\n",
        "the new schema cannot read what version 1 wrote:\n",
        "  /fields/0/type: what is written as long cannot be read as int\n",
        '    the new schema has  "int"\n',
        '    version 1 has       "long"\n',
        '    to mend it          give field "currency" a default',
        "    READER_FIELD_MISSING_DEFAULT_VALUE\n",
    ):
        assert words in shown.out
    found = here("schema", "check", "cli.check", bad, "--json")
    assert found.code == 1
    (facts,) = found.rows
    assert (facts["subject"], facts["compatible"], facts["compatibility"]) == ("cli.check", False, "BACKWARD")
    assert {(each["version"], each["direction"]) for each in facts["problems"]} == {(1, "BACKWARD")}


def test_what_others_could_not_read_is_told_the_other_way_round(here: Run) -> None:
    registered(here, "cli.forward", record(ID, NOTE))
    here("schema", "config", "cli.forward", "--compatibility", "full")
    shown = here("schema", "check", "cli.forward", "-", given=record(ID).encode())
    assert shown.code == 1
    assert "version 1 cannot read what the new schema writes:\n" in shown.out
    assert "the new schema cannot read" not in shown.out


def test_a_compatible_schema_is_said_to_be_so(here: Run) -> None:
    fine = write("fine.avsc", record(ID, CURRENCY))
    new = "cli.fine: compatible (no versions yet: there is nothing to compare with)\n"
    assert here("schema", "check", "cli.fine", fine).out == new
    registered(here, "cli.fine", record(ID), record(ID, NOTE | {"default": ""}))
    assert here("schema", "check", "cli.fine", fine, "--against", "1").out == "cli.fine: compatible (BACKWARD)\n"
    (facts,) = here("schema", "check", "cli.fine", fine, "--against", "latest", "--json").rows
    assert (facts["compatible"], facts["new_subject"]) == (True, False)
    here("schema", "config", "cli.fine", "--compatibility", "none")
    assert here("schema", "check", "cli.fine", fine).out == "cli.fine: compatible (NONE: nothing is checked)\n"
    here("schema", "check", "cli.fine", fine, "--against", "9").refused("Version 9 not found", "schema versions")
    here("schema", "check", "cli.fine", fine, "--against", "first").refused("--against: 'first' is no version")


def test_registering_what_is_incompatible_says_all_that_is_in_the_way(here: Run) -> None:
    registered(here, "cli.refused", record(ID))
    bad = write("bad.avsc", record(NOTE))
    done = here("schema", "register", "cli.refused", bad)
    assert (done.code, done.out) == (2, "")
    assert "the new schema cannot read what version 1 wrote:\n  /fields/0: " in done.err
    assert done.err.endswith("penstock: INVALID_REQUEST: cli.refused takes no such version: nothing was registered\n")
    error = here("schema", "register", "cli.refused", bad, "--json").error
    assert error["details"]["registry_code"] == 409
    assert error["details"]["problems"][0]["path"] == "/fields/0"
    assert len(here("schema", "versions", "cli.refused", "--json").rows) == 1


def test_a_dry_run_checks_and_registers_nothing(here: Run) -> None:
    order = write("order.avsc", record(ID))
    assert here("schema", "register", "cli.dry", order, "--dry-run").out.startswith(
        "cli.dry: compatible (no versions yet"
    )
    here("schema", "versions", "cli.dry").refused("'cli.dry' not found", "penstock schema ls")
    registered(here, "cli.dry", record(ID))
    assert here("schema", "register", "cli.dry", write("b.avsc", record(NOTE)), "--dry-run").code == 1


def test_a_subject_that_may_be_a_slip_of_another_is_asked_about(here: Run) -> None:
    registered(here, "cli.slip-value", record(ID))
    order, asked = write("order.avsc", record(ID)), "cli.slip-vlaue is a new subject; was cli.slip-value meant?"
    assert asked in here("schema", "check", "cli.slip-vlaue", order).err
    (facts,) = here("schema", "check", "cli.slip-vlaue", order, "--json").rows
    assert (facts["new_subject"], facts["similar"]) == (True, ["cli.slip-value"])
    assert asked in here("schema", "config", "cli.slip-vlaue").err
    assert asked in here("schema", "register", "cli.slip-vlaue", order).err
    assert here("schema", "register", "cli.slip-vlaue", order).err == ""


# comparing


def test_two_versions_stand_side_by_side_with_who_reads_whom(here: Run) -> None:
    here("schema", "config", "cli.diff", "--compatibility", "none")
    registered(here, "cli.diff", record(ID), record(ID, {"name": "note", "type": "string"}))
    shown = here("schema", "diff", "cli.diff", "1", "2").out
    head, *_ = shown.splitlines()
    assert [word in head for word in ("version 1 (AVRO, id ", "version 2 (AVRO, id ")] == [True, True]
    assert '>        "name": "note",\n' in shown
    assert 'version 2 cannot read what version 1 wrote:\n  /fields/1: field "note"' in shown
    assert "version 2 has" in shown
    assert shown.endswith("version 1 can read what version 2 wrote\n")
    below = here("schema", "diff", "cli.diff", "1", "latest", "--unified").out
    assert below.startswith("--- version 1 (AVRO, id ")
    assert '+      "name": "note",\n' in below
    (facts,) = here("schema", "diff", "cli.diff", "1", "2", "--json").rows
    assert (facts["versions"], facts["same"]) == ([1, 2], False)
    assert [(each["reader"], each["writer"], each["compatible"]) for each in facts["readings"]] == [
        (2, 1, False),
        (1, 2, True),
    ]
    same = here("schema", "diff", "cli.diff", "2", "2").out
    assert same.endswith(" are the same\n")
    here("schema", "diff", "cli.diff", "1", "3").refused("Version 3 not found", "penstock schema versions")
    here("schema", "diff", "cli.diff", "1", "next").refused("V2: 'next' is no version")


def test_a_difference_is_in_color_on_a_terminal_and_nowhere_else(here: Run, start: Start) -> None:
    registered(here, "cli.color", record(ID), record(ID, CURRENCY))
    assert b"\x1b[" not in here("schema", "diff", "cli.color", "1", "2").raw
    ours, theirs = pty.openpty()
    with start("schema", "diff", "cli.color", "1", "2", stdout=theirs) as process:
        assert process.wait(60) == 0
    os.close(theirs)
    shown = all_of(ours)
    assert b"\x1b[32m" in shown


# what cannot be


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["register", "cli.bad", "nowhere.avsc"], ["nowhere.avsc cannot be read: there is no such file"]),
        (["register", "cli.bad", "."], ["a directory"]),
        (["register", "cli.bad", "latin.avsc"], ["latin.avsc is no text in UTF-8: byte 1 of it is not"]),
        (["register", "cli.bad", "huge.avsc"], ["huge.avsc is too large", "1,048,576 bytes"]),
        (["register", "cli.bad", "words.txt"], ["words.txt does not look like a schema", "--type"]),
        (["register", "cli.bad", "words.txt", "--type", "xml"], ["--type 'xml': choose from avro, json, protobuf"]),
        (["register", "cli.bad", "words.txt", "--type", "avro"], ["words.txt: it is not JSON", "line 1, column 1"]),
        (["register", "", "order.avsc"], ["subject"]),
        (["get"], ["name a subject", "--id"]),
        (["get", "cli.bad", "--id", "1"], ["name a subject", "--id"]),
        (["get", "--id", "1", "--version", "2"], ["name a subject", "--id"]),
        (["get", "cli.bad"], ["'cli.bad' not found", "penstock schema ls"]),
        (["get", "cli.bad", "--version", "0"], ["--version: '0' is no version"]),
        (["get", "--id", "2147483647"], ["Schema 2147483647 not found", "penstock schema versions"]),
        (["versions", "cli.bad"], ["'cli.bad' not found"]),
    ],
)
def test_what_cannot_be_is_a_sentence_that_says_what_to_do(here: Run, arguments: list[str], words: list[str]) -> None:
    Path("latin.avsc").write_bytes(b'"\xe9"')
    write("huge.avsc", '"' + "x" * 1_048_576)
    write("words.txt", "hello")
    write("order.avsc", record(ID))
    here("schema", *arguments).refused(*words)


def test_no_subjects_are_a_hint_for_people_and_nothing_for_scripts(here: Run) -> None:
    assert here("schema", "ls", "cli.nothing").out.startswith("no subjects begin with cli.nothing: ")
    assert here("schema", "ls", "cli.nothing", "--json").raw == b""
