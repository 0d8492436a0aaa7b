"""The ledger: cursors that have changed, saved together. What was marked before a save is durable when it ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.broker.base.effects import Effect, RunInThread
from penstock.broker.context import BrokerContext, Reply
from penstock.core.errors import PenstockError
from penstock.storage.catalog.catalog import Catalog
from penstock.storage.catalog.subscriptions import Cursor

_LAZY_MS: Final = 100
"""How long a change waits for others where nobody asked to have it confirmed."""
_AGAIN_MS: Final = 1_000

Key = tuple[int, int]
"""Subscription and partition."""


class CursorStore:
    """One save at a time; while it runs, the next one gathers."""

    def __init__(self, catalog: Catalog, context: BrokerContext) -> None:
        self._catalog = catalog
        self._context = context
        self._changed: dict[Key, Callable[[], Cursor]] = {}
        self._waiting: list[Reply] = []
        self._saving: dict[Key, Callable[[], Cursor]] | None = None
        """What is being saved."""

        self._due_ms: int | None = None

    @property
    def due_ms(self) -> int | None:
        """When what has changed is to be saved, although nobody waits for it. Not while a save is under way."""
        return None if self._saving is not None else self._due_ms

    @property
    def idle(self) -> bool:
        return self._saving is None and not self._changed

    def mark_dirty(self, key: Key, cursor: Callable[[], Cursor]) -> None:
        """This one has changed."""
        self._changed[key] = cursor
        if self._due_ms is None:
            self._due_ms = self._context.now_ms + _LAZY_MS

    def forget(self, subscription_uid: int) -> None:
        """It is deleted."""
        self._changed = {key: cursor for key, cursor in self._changed.items() if key[0] != subscription_uid}

    def when_durable(self, reply: Reply, result: object) -> list[Effect]:
        """Answer with `result` once all that has changed so far is durable."""
        if self.idle:
            return reply(result)
        self._waiting.append(lambda outcome: reply(outcome if isinstance(outcome, PenstockError) else result))
        return self.flush()

    def flush(self) -> list[Effect]:
        """Begin a save, unless one is under way: that one is followed by another."""
        if self._saving is not None or not (self._changed or self._waiting):
            return []
        changed, self._changed = self._changed, {}
        waiting, self._waiting = self._waiting, []
        self._saving, self._due_ms = changed, None
        cursors = {key: cursor() for key, cursor in changed.items()}

        def saved(outcome: object) -> list[Effect]:
            self._saving = None
            effects = [each for reply in waiting for each in reply(outcome)]
            if isinstance(outcome, PenstockError):
                self._changed = changed | self._changed
                self._due_ms = self._context.now_ms + _AGAIN_MS
                return effects
            return [*effects, *(self.flush() if self._waiting else [])]

        return [RunInThread(lambda: self._catalog.save_cursors(cursors), saved)]

    def close(self) -> None:
        """Save all that has changed, here and now; also what was being saved, since nobody will hear of that."""
        changed = (self._saving or {}) | self._changed
        self._catalog.save_cursors({key: cursor() for key, cursor in changed.items()})
