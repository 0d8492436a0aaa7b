"""The registry's state: the catalog, which is durable, and the index, which follows it.

Steps run elsewhere and other procedures may run in between. A commit names the revisions that its decision rests on; if
the catalog has moved on, the decision is made again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.schema.registry.index import RegistryIndex
from penstock.schema.steps import CommitToCatalog, Procedure, Result
from penstock.storage.catalog.schema_rows import RegistryUpdate, SubjectChanged
from penstock.storage.catalog.schemas import SchemaCatalog

ATTEMPTS_MAX: Final = 32
"""Attempts of a decision while other writers are faster: as many as change one subject at the same moment."""


class RegistryState:
    """The catalog and its index. It belongs to the thread that drives the procedures."""

    def __init__(self, catalog: SchemaCatalog) -> None:
        """Read the whole catalog at once."""
        self.catalog = catalog
        self.index = RegistryIndex()
        self.index.apply(catalog.load())

    def retry_on_conflict(self, attempt: Callable[[], Procedure[Result]]) -> Procedure[Result]:
        """Return the result of `attempt`, which runs again whenever another writer has changed the subject meanwhile.
        Raises `SubjectChanged` if that happens `ATTEMPTS_MAX` times."""
        for _ in range(ATTEMPTS_MAX - 1):
            try:
                return (yield from attempt())
            except SubjectChanged as error:
                revision = error.details["revision"]
                if isinstance(revision, int) and self.index.revision < revision:
                    yield from self.catch_up()
        return (yield from attempt())

    def commit(self, call: Callable[[], RegistryUpdate]) -> Procedure[RegistryUpdate]:
        """Run `call`, which changes the catalog, in a step; then bring the index up to date. Returns the update, which
        is durable."""
        update: RegistryUpdate = yield CommitToCatalog(call)
        if update.revision == self.index.revision + 1:
            self.index.apply(update)
        elif update.revision > self.index.revision:
            yield from self.catch_up()  # another commit came first, from this process or another
        return update

    def catch_up(self) -> Procedure[None]:
        """Bring the index to the catalog's revision."""
        since = self.index.revision
        changes: RegistryUpdate = yield CommitToCatalog(lambda: self.catalog.load(since))
        # Commits applied meanwhile are part of the news, which were read later; or the news are outdated.
        if changes.revision > self.index.revision:
            self.index.apply(changes)
