"""`penstock schema config | deprecate | delete | undelete`, with a real broker."""

from __future__ import annotations

import pytest
from tests.cli.kit import Run

pytestmark = pytest.mark.usefixtures("at_keeper")


def registered(here: Run, subject: str, count: int = 1) -> None:
    """Register versions that differ in their documentation."""
    for number in range(1, count + 1):
        text = b'{"type": "record", "name": "A", "doc": "%s %d", "fields": []}' % (subject.encode(), number)
        done = here("schema", "register", subject, "-", given=text)
        assert done.code == 0, done.err


def living(here: Run, subject: str, *options: str) -> list[int]:
    return [row["version"] for row in here("schema", "versions", subject, *options, "--json").rows]


# settings


def test_what_holds_for_all_is_shown_and_changed(here: Run) -> None:
    assert "compatibility       BACKWARD\n" in here("schema", "config").out
    try:
        (found,) = here("schema", "config", "--compatibility", "forward-transitive", "--lenient", "--json").rows
        assert (found["compatibility"], found["lenient"], found["mode"]) == ("FORWARD_TRANSITIVE", True, "READWRITE")
        assert "compatibility       FORWARD_TRANSITIVE (as for all)" in here("schema", "config", "upkeep.other").out
    finally:
        here("schema", "config", "--clear")
    assert "compatibility       BACKWARD\n" in here("schema", "config").out


def test_a_subject_has_settings_of_its_own_until_they_are_taken_back(here: Run) -> None:
    (found,) = here("schema", "config", "upkeep.own", "--compatibility", "FULL", "--json").rows
    assert found == {
        "subject": "upkeep.own",
        "compatibility": "FULL",
        "lenient": False,
        "mode": "READWRITE",
        "inherited": False,
    }
    shown = " ".join(here("schema", "config", "upkeep.own", "--lenient", "--mode", "readonly").out.split())
    assert shown == "subject upkeep.own compatibility FULL optional additions pass (lenient) mode READONLY"
    text = b'{"type": "record", "name": "A", "fields": []}'
    here("schema", "register", "upkeep.own", "-", given=text).refused("read-only mode", "--mode")
    cleared = " ".join(here("schema", "config", "upkeep.own", "--clear").out.split())
    assert cleared.endswith("compatibility BACKWARD (as for all) optional additions are judged (strict) mode READWRITE")
    assert here("schema", "config", "upkeep.own", "--clear").out.startswith("subject")
    assert here("schema", "register", "upkeep.own", "-", given=text).code == 0


def test_a_setting_that_cannot_be_is_refused_with_those_that_can(here: Run) -> None:
    here("schema", "config", "upkeep.bad", "--compatibility", "sideways").refused(
        "--compatibility 'sideways': choose from NONE, BACKWARD,"
    )
    here("schema", "config", "upkeep.bad", "--mode", "sideways").refused(
        "--mode 'sideways': choose from READWRITE, READONLY,"
    )
    here("schema", "config", "upkeep.bad", "--mode", "readonly", "--clear").refused("--clear", "alone")


# words about a version


def test_what_is_said_of_a_version_is_changed_and_what_is_not_named_stays(here: Run) -> None:
    registered(here, "upkeep.words")
    text = b'{"type": "record", "name": "A", "doc": "upkeep.words 1", "fields": []}'
    again = here("schema", "register", "upkeep.words", "-", "--description", "the first", "--tag", "a", given=text)
    assert "version 1 was there already, with other words: `penstock schema describe` changes them" in again.err
    shown = here("schema", "describe", "upkeep.words", "1", "--description", "the first", "--tag", "a", "--tag", "b")
    assert " ".join(shown.out.split()) == "subject upkeep.words version 1 description the first tags a, b"
    (found,) = here("schema", "describe", "upkeep.words", "latest", "--tag", "none", "--json").rows
    assert (found["description"], "tags" in found) == ("the first", False)
    assert here("schema", "register", "upkeep.words", "-", "--description", "the first", given=text).err == ""
    here("schema", "describe", "upkeep.words", "1").refused("nothing to change")
    here("schema", "describe", "upkeep.words", "1", "--tag", "a", "--tag", "none").refused("give it alone")
    here("schema", "describe", "upkeep.words", "2", "--tag", "a").refused("Version 2 not found")


# deprecating


def test_a_version_is_deprecated_with_a_reason_and_no_longer(here: Run) -> None:
    registered(here, "upkeep.old")
    shown = here("schema", "deprecate", "upkeep.old", "1", "use version 2")
    assert shown.out == "upkeep.old: version 1 is deprecated\n"
    assert "deprecated: use version 2" in here("schema", "versions", "upkeep.old").out
    (found,) = here("schema", "deprecate", "upkeep.old", "1", "--undo", "--json").rows
    assert found == {"subject": "upkeep.old", "version": 1, "deprecated": None}
    assert "deprecated" not in here("schema", "versions", "upkeep.old").out
    here("schema", "deprecate", "upkeep.old", "1").refused("say why", "--undo")
    here("schema", "deprecate", "upkeep.old", "1", "why", "--undo").refused("say why", "--undo")
    here("schema", "deprecate", "upkeep.old", "7", "why").refused("Version 7 not found", "penstock schema versions")


# deleting


def test_deleting_says_what_goes_and_asks(here: Run) -> None:
    registered(here, "upkeep.asked", 12)
    asked = here("schema", "delete", "upkeep.asked", given=b"\n")
    assert (asked.code, asked.out) == (2, "")
    assert "upkeep.asked version 1 (id " in asked.err
    assert " and 2 more would be deleted, and topics of this subject refuse messages that name it" in asked.err
    assert "`undelete` brings it back. Delete? [y/N]" in asked.err
    assert len(living(here, "upkeep.asked")) == 12
    done = here("schema", "delete", "upkeep.asked", "--version", "3", given=b"y\n")
    assert done.out == "upkeep.asked: deleted: version 3\n"
    assert 3 not in living(here, "upkeep.asked")
    assert 3 in living(here, "upkeep.asked", "--deleted")


def test_what_was_deleted_comes_back_until_it_is_gone_for_good(here: Run) -> None:
    registered(here, "upkeep.back", 2)
    here("schema", "delete", "upkeep.back", "--version", "1", "--permanent", "-y").refused(
        "version 1 (id", "not deleted yet; delete it without --permanent first"
    )
    (done,) = here("schema", "delete", "upkeep.back", "--yes", "--json").rows
    assert done == {"subject": "upkeep.back", "versions": [1, 2], "done": "deleted"}
    assert here("schema", "ls", "upkeep.back").out.startswith("no subjects")
    assert here("schema", "ls", "upkeep.back", "--deleted").out == "upkeep.back  (deleted)\n"
    here("schema", "delete", "upkeep.back", "--yes").refused("deleted before", "undelete", "--permanent")
    assert here("schema", "undelete", "upkeep.back", "--version", "2").out == "upkeep.back: back: version 2\n"
    assert (
        here("schema", "get", "upkeep.back", "--version", "1").err == "penstock: version 1 of upkeep.back is deleted\n"
    )
    assert here("schema", "undelete", "upkeep.back").out == "upkeep.back: back: version 1\n"
    here("schema", "undelete", "upkeep.back", "--version", "1").refused("version 1 is not deleted: there is nothing")
    here("schema", "undelete", "upkeep.back").refused("no version of it is deleted: there is nothing to bring back")
    here("schema", "delete", "upkeep.back", "--version", "1", "--yes")
    here("schema", "delete", "upkeep.back", "--archived").refused("it goes with --permanent")
    asked = here("schema", "delete", "upkeep.back", "--version", "1", "--permanent", given=b"no\n")
    assert "would be gone for good, and what was written with it could not be decoded any more" in asked.err
    gone = here("schema", "delete", "upkeep.back", "--version", "1", "--permanent", "--archived", "--yes")
    assert gone.out == "upkeep.back: deleted for good: version 1\n"
    assert living(here, "upkeep.back", "--deleted") == [2]
    here("schema", "undelete", "upkeep.back", "--version", "1").refused("Version 1 not found")


def test_what_is_not_there_cannot_be_deleted(here: Run) -> None:
    here("schema", "delete", "upkeep.none", "--yes").refused("'upkeep.none' not found", "penstock schema ls")
    registered(here, "upkeep.one")
    here("schema", "delete", "upkeep.one", "--version", "2", "--yes").refused("Version 2 not found", "schema versions")


def test_what_others_refer_to_stays(here: Run) -> None:
    here("schema", "register", "upkeep.inner", "-", given=b'{"type": "record", "name": "Inner", "fields": []}')
    outer = b'{"type": "record", "name": "Outer", "fields": [{"name": "inner", "type": "Inner"}]}'
    here("schema", "register", "upkeep.outer", "-", "--reference", "Inner=upkeep.inner:1", given=outer)
    here("schema", "delete", "upkeep.inner", "--yes").refused(
        "INVALID_REQUEST: version 1 of 'upkeep.inner' stays: Version 1 of subject 'upkeep.outer'"
    )
