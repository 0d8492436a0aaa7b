"""Settings, modes, and metadata of versions."""

from __future__ import annotations

import pytest
from tests.schema.registry_kit import Trial, words

from penstock.core.schemas import (
    Compatibility,
    SubjectMode,
)
from penstock.schema.errors import (
    CompatibilityNotConfigured,
    InvalidCompatibility,
    InvalidMode,
    InvalidSchema,
    ModeNotConfigured,
    OperationNotPermitted,
    RegistryError,
    SubjectNotFound,
    VersionNotFound,
)
from penstock.schema.registry.models import CompatibilityConfig
from penstock.storage.catalog.schema_rows import VersionMetadata

# Settings


def test_a_subject_has_the_compatibility_of_all_until_it_has_its_own(t: Trial) -> None:
    backward = CompatibilityConfig(compatibility=Compatibility.BACKWARD, lenient=False)
    assert t.registry.compatibility() == backward
    with pytest.raises(CompatibilityNotConfigured, match=r"^Subject 'orders' does not have subject-level compatib"):
        t.registry.compatibility("orders")
    assert t.registry.compatibility("orders", default_to_global=True) == backward
    full = t.run(t.registry.set_compatibility(None, "full"))
    assert full == CompatibilityConfig(compatibility=Compatibility.FULL, lenient=False)
    assert t.registry.compatibility("orders", default_to_global=True) == full
    own = t.run(t.registry.set_compatibility("orders", "FORWARD", lenient=True))
    assert (
        own
        == t.registry.compatibility("orders")
        == CompatibilityConfig(compatibility=Compatibility.FORWARD, lenient=True)
    )
    assert t.run(t.registry.set_compatibility("orders", lenient=False)).compatibility is Compatibility.FORWARD
    assert t.registry.compatibility() == full
    assert t.reload().compatibility("orders") == t.registry.compatibility("orders")


def test_clearing_returns_what_it_was(t: Trial) -> None:
    t.run(t.registry.set_compatibility(None, "NONE"))
    t.run(t.registry.set_compatibility("orders", "FULL"))
    assert t.run(t.registry.clear_compatibility("orders")).compatibility is Compatibility.FULL
    with pytest.raises(SubjectNotFound, match=r"^Subject 'orders' not found\.$"):
        t.run(t.registry.clear_compatibility("orders"))
    assert t.run(t.registry.clear_compatibility(None)).compatibility is Compatibility.NONE
    assert t.run(t.registry.clear_compatibility(None)).compatibility is Compatibility.BACKWARD


def test_a_mode_is_a_setting_too(t: Trial) -> None:
    assert t.registry.mode() is SubjectMode.READWRITE
    with pytest.raises(ModeNotConfigured, match=r"^Subject 'orders' does not have subject-level mode configured$"):
        t.registry.mode("orders")
    assert t.run(t.registry.set_mode(None, "readonly")) is SubjectMode.READONLY
    assert t.registry.mode("orders", default_to_global=True) is SubjectMode.READONLY
    assert t.run(t.registry.set_mode("orders", "READWRITE")) is SubjectMode.READWRITE
    assert t.registry.mode("orders") is SubjectMode.READWRITE
    assert t.run(t.registry.clear_mode("orders")) is SubjectMode.READWRITE
    with pytest.raises(SubjectNotFound):
        t.run(t.registry.clear_mode("orders"))
    assert t.run(t.registry.clear_mode(None)) is SubjectMode.READONLY
    assert t.registry.mode() is SubjectMode.READWRITE


def test_words_that_are_no_setting_are_refused(t: Trial) -> None:
    with pytest.raises(InvalidCompatibility, match="Valid values are none, backward, backward_transitive, forward"):
        t.registry.set_compatibility(None, "SIDEWAYS")
    with pytest.raises(InvalidMode, match="Valid values are READWRITE, READONLY, READONLY_OVERRIDE, IMPORT"):
        t.registry.set_mode(None, "WRITEONLY")


# Modes


@pytest.mark.parametrize(
    ("general", "own"), [("READONLY", None), ("READWRITE", "READONLY"), ("READONLY_OVERRIDE", "READWRITE")]
)
def test_a_subject_that_is_read_only_is_only_read(t: Trial, general: str, own: str | None) -> None:
    made = t.register("orders", "a")
    t.register("orders", "a?")
    t.run(t.registry.delete_version("orders", 2))
    if own is not None:
        t.run(t.registry.set_mode("orders", own))
    t.run(t.registry.set_mode(None, general))
    for procedure in (
        t.registry.register("orders", words("a b?")),
        t.registry.delete_version("orders", 1),
        t.registry.delete_version("orders", 2, permanent=True),
        t.registry.delete_subject("orders"),
        t.registry.undelete("orders"),
        t.registry.set_compatibility("orders", "NONE"),
        t.registry.deprecate("orders", 1, "old"),
        t.registry.describe("orders", 1, description="d"),
    ):
        with pytest.raises(OperationNotPermitted, match=r"^Subject orders is in read-only mode$"):
            t.run(procedure)
    assert t.register("orders", "a") == made
    assert t.run(t.registry.look_up("orders", words("a"))) == made
    t.run(t.registry.set_mode(None, "READWRITE"))
    t.run(t.registry.set_mode("orders", "READWRITE"))
    assert t.run(t.registry.undelete("orders")) == (2,)


def test_a_subject_of_its_own_mode_does_not_mind_the_mode_of_all(t: Trial) -> None:
    t.run(t.registry.set_mode("orders", "READWRITE"))
    t.run(t.registry.set_mode(None, "READONLY"))
    assert t.register("orders", "a").version == 1


def test_only_what_is_empty_is_set_to_import_unless_by_force(t: Trial) -> None:
    t.register("orders", "a")
    for subject in ("orders", None):
        with pytest.raises(OperationNotPermitted, match=r"^Cannot import since found existing subjects$"):
            t.run(t.registry.set_mode(subject, "IMPORT"))
    assert t.run(t.registry.set_mode("payments", "IMPORT")) is SubjectMode.IMPORT
    t.run(t.registry.set_mode("orders", "IMPORT", force=True))
    assert t.run(t.registry.set_mode("orders", "IMPORT")) is SubjectMode.IMPORT
    t.run(t.registry.delete_subject("orders"))
    assert t.run(t.registry.set_mode(None, "IMPORT")) is SubjectMode.IMPORT


def test_imported_schemas_keep_their_numbers_and_are_compared_with_nothing(t: Trial) -> None:
    t.run(t.registry.set_mode("orders", "IMPORT"))
    made = t.run(t.registry.register("orders", words("a"), schema_id=70, version=5))
    assert (made.schema_id, made.version) == (70, 5)
    assert t.run(t.registry.register("orders", words("b"), schema_id=60, version=3)).version == 3
    assert t.run(t.registry.register("orders", words("c"), schema_id=80)).version == 6
    assert t.engine.compared == []
    assert t.registry.versions("orders") == (3, 5, 6)
    assert t.run(t.registry.register("orders", words("a"), schema_id=70, version=5)) == made
    assert t.run(t.registry.register("orders", words("a"), schema_id=70)) == made
    assert t.run(t.registry.register("orders", words("a"))) == made
    assert t.run(t.registry.register("orders", words("a"), schema_id=70, version=9)).version == 9
    t.run(t.registry.set_mode("orders", "READWRITE"))
    assert t.register("orders", "c?").schema_id == 81


def test_numbers_are_given_from_outside_in_import_mode_alone_and_an_id_always(t: Trial) -> None:
    with pytest.raises(OperationNotPermitted, match=r"^Subject orders is not in import mode$"):
        t.run(t.registry.register("orders", words("a"), schema_id=7))
    with pytest.raises(InvalidSchema, match="version 2 is not one more than the last version"):
        t.run(t.registry.register("orders", words("a"), version=2))
    assert t.run(t.registry.register("orders", words("a"), version=1)).version == 1
    t.run(t.registry.set_mode("orders", "IMPORT", force=True))
    with pytest.raises(OperationNotPermitted, match=r"^Subject orders is not in read-write mode$"):
        t.register("orders", "b")


@pytest.mark.parametrize(
    ("text", "numbers", "sentence"),
    [
        ("b", {"schema_id": 7}, "^Overwrite new schema with id 7 is not permitted. It is another schema: version 1 of"),
        ("a", {"schema_id": 8}, "^Schema already registered with id 7 instead of input id 8$"),
        ("b", {"schema_id": 8, "version": 1}, "^Version 1 of subject 'orders' is there already, with schema id 7$"),
        ("b", {"schema_id": 8, "version": 2}, "^Version 2 of subject 'orders' is there already, with schema id 9$"),
        ("b", {"schema_id": 0}, "from 1 to 2147483647, not 0$"),
        ("b", {"schema_id": 2**31}, "from 1 to 2147483647"),
        ("b", {"schema_id": 8, "version": 2**31}, "from 1 to 2147483647"),
    ],
)
def test_numbers_that_are_another_s_are_refused_with_the_reason(
    t: Trial, text: str, numbers: dict[str, int], sentence: str
) -> None:
    t.run(t.registry.set_mode(None, "IMPORT"))
    t.run(t.registry.register("orders", words("a"), schema_id=7, version=1))
    t.run(t.registry.register("orders", words("x"), schema_id=9, version=2))
    t.run(t.registry.delete_version("orders", 2))
    with pytest.raises(OperationNotPermitted, match=sentence):
        t.run(
            t.registry.register("orders", words(text), schema_id=numbers["schema_id"], version=numbers.get("version"))
        )


# Metadata of a version


def test_a_version_is_deprecated_with_a_message_and_no_longer_so(t: Trial) -> None:
    t.register("orders", "a")
    assert t.run(t.registry.deprecate("orders", "latest", "use version 2")).deprecated == "use version 2"
    assert t.reload().version("orders", 1).deprecated == "use version 2"
    assert t.run(t.registry.deprecate("orders", 1, None)).deprecated is None
    with pytest.raises(VersionNotFound):
        t.run(t.registry.deprecate("orders", 2, "x"))
    with pytest.raises(RegistryError, match="deprecated"):
        t.registry.deprecate("orders", 1, "x" * 5000)


def test_a_description_changes_and_what_is_not_given_stays(t: Trial) -> None:
    about = VersionMetadata(description="d", tags=("t",), created_by="me")
    t.run(t.registry.register("orders", words("a"), metadata=about))
    t.run(t.registry.delete_version("orders", 1))
    changed = t.run(t.registry.describe("orders", 1, description="e"))
    assert changed.metadata == VersionMetadata(description="e", tags=("t",), created_by="me")
    assert t.run(t.registry.describe("orders", 1, tags=["x", "y"])).metadata.tags == ("x", "y")
    revision = t.registry.revision
    t.run(t.registry.describe("orders", 1, tags=["x", "y"], description="e"))
    assert t.registry.revision == revision
    with pytest.raises(RegistryError, match="tags"):
        t.run(t.registry.describe("orders", 1, tags=["x"] * 99))
