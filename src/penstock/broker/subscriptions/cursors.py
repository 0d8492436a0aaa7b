"""The cursor store: changed cursors, saved together. A change marked before a save is durable when the save ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.broker.base.effects import Effect, RunInThread
from penstock.broker.context import BrokerContext, Reply
from penstock.core.errors import PenstockError
from penstock.storage.catalog.catalog import Catalog
from penstock.storage.catalog.subscriptions import Cursor

_LAZY_MS: Final = 100
"""The longest time that a change waits for others if no request waits for it."""
_AGAIN_MS: Final = 1_000

Key = tuple[int, int]
"""Subscription uid and partition."""


class CursorStore:
    """Group commit of cursors: one save at a time; while it runs, the next one gathers changes."""

    def __init__(self, catalog: Catalog, context: BrokerContext) -> None:
        self._catalog = catalog
        self._context = context
        self._changed: dict[Key, Callable[[], Cursor]] = {}
        self._waiting: list[Reply] = []
        self._saving: dict[Key, Callable[[], Cursor]] | None = None
        """The changes that are being saved; None between saves."""

        self._due_ms: int | None = None

    @property
    def due_ms(self) -> int | None:
        """The time to save the changes even if no request waits for them; None while a save is under way."""
        return None if self._saving is not None else self._due_ms

    @property
    def idle(self) -> bool:
        return self._saving is None and not self._changed

    def mark_dirty(self, key: Key, cursor: Callable[[], Cursor]) -> None:
        """Note that a cursor has changed. `cursor` is called for its value when the save begins."""
        self._changed[key] = cursor
        if self._due_ms is None:
            self._due_ms = self._context.now_ms + _LAZY_MS

    def forget(self, subscription_uid: int) -> None:
        """Forget the cursors of a deleted subscription."""
        self._changed = {key: cursor for key, cursor in self._changed.items() if key[0] != subscription_uid}

    def when_durable(self, reply: Reply, result: object) -> list[Effect]:
        """Answer with `result` once all changes so far are durable."""
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
            effects = [effect for reply in waiting for effect in reply(outcome)]
            if isinstance(outcome, PenstockError):
                self._changed = changed | self._changed
                self._due_ms = self._context.now_ms + _AGAIN_MS
                return effects
            return [*effects, *(self.flush() if self._waiting else [])]

        return [RunInThread(lambda: self._catalog.save_cursors(cursors), saved)]

    def close(self) -> None:
        """Save all changes now, those of an unfinished save too, as its outcome will never arrive."""
        changed = (self._saving or {}) | self._changed
        self._catalog.save_cursors({key: cursor() for key, cursor in changed.items()})
