"""Import paths that the documentation of release 0.1 named, and that have moved: programs that use them still run.

A path is looked up here only when no module of that name exists, so nothing else becomes slower. `importlib.abc` has
base classes for both classes here; importing it takes longer than all of `penstock`.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final, NamedTuple, cast


class Home(NamedTuple):
    """The module that holds what a former module held, and the classes that have another name in it."""

    module: str
    renamed: dict[str, str]


_TRANSFER: Final = "penstock.spark.jobs.transfer"
FORMER: Final = {
    "penstock.client.deadletters": Home("penstock.client.consume.dead_letters", {}),
    "penstock.storage.readers": Home("penstock.storage.inspect.data_reader", {}),
    "penstock.spark.jobs.compact": Home(f"{_TRANSFER}.compact", {}),
    "penstock.spark.jobs.interchange": Home(f"{_TRANSFER}.file_formats", {"Format": "FileFormat"}),
    "penstock.spark.jobs.page": Home("penstock.spark.jobs.audit.report.page", {}),
    "penstock.spark.jobs.replay": Home(f"{_TRANSFER}.replay", {}),
    "penstock.spark.jobs.report": Home("penstock.spark.jobs.audit.report.fields", {}),
    "penstock.spark.jobs.selecting": Home(
        f"{_TRANSFER}.selection", {"FromLog": "LogOrigin", "FromArchive": "ArchiveOrigin"}
    ),
}


class _FormerLoader:
    """Fill a former module with what its home holds."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return ModuleType(spec.name, f"The former name of {FORMER[spec.name].module}.")

    def exec_module(self, module: ModuleType) -> None:
        home = FORMER[module.__name__]
        members = vars(import_module(home.module))
        vars(module).update({name: member for name, member in members.items() if not name.startswith("__")})
        vars(module).update({former: members[name] for former, name in home.renamed.items()})


class _FormerFinder:
    """Find former modules, after every other finder has failed."""

    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        loader = cast("Any", _FormerLoader())
        return ModuleSpec(fullname, loader) if fullname in FORMER else None


def install() -> None:
    """Let former import paths be found."""
    if not any(isinstance(finder, _FormerFinder) for finder in sys.meta_path):
        sys.meta_path.append(_FormerFinder())
