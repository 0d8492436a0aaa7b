"""The cursor store: cursors that have changed are saved together. A change that was marked before a save began is
durable when the save has succeeded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.broker.base.effects import Effect, RunInThread
from penstock.broker.context import BrokerContext, Reply
from penstock.core.errors import PenstockError
from penstock.storage.catalog.catalog import Catalog
from penstock.storage.catalog.subscriptions import Cursor

_LAZY_MS: Final = 100
"""The longest time that a change waits to be saved together with others, if no request waits for it."""
_AGAIN_MS: Final = 1_000

Key = tuple[int, int]
"""The uid of a subscription, and a partition."""


class CursorStore:
    """Group commit of cursors. One save runs at a time; changes that come meanwhile are gathered for the next."""

    def __init__(self, catalog: Catalog, context: BrokerContext) -> None:
        self._catalog = catalog
        self._context = context
        self._changed: dict[Key, Callable[[], Cursor]] = {}
        self._waiting: list[Reply] = []
        self._saving: dict[Key, Callable[[], Cursor]] | None = None
        """The cursors of the save that runs now; None if none runs."""

        self._due_ms: int | None = None

    @property
    def due_ms(self) -> int | None:
        """The time at which changes are saved even if no request waits for them. None if there are no changes, or a
        save runs."""
        return None if self._saving is not None else self._due_ms

    @property
    def idle(self) -> bool:
        return self._saving is None and not self._changed

    def mark_dirty(self, key: Key, cursor: Callable[[], Cursor]) -> None:
        """Note that a cursor has changed. `cursor` returns its value; it is called when the save begins."""
        self._changed[key] = cursor
        if self._due_ms is None:
            self._due_ms = self._context.now_ms + _LAZY_MS

    def forget(self, subscription_uid: int) -> None:
        """Drop the unsaved cursors of a deleted subscription."""
        self._changed = {key: cursor for key, cursor in self._changed.items() if key[0] != subscription_uid}

    def when_durable(self, reply: Reply, result: object) -> list[Effect]:
        """Call `reply` with `result` once all changes up to now are durable, or with the error if they cannot be
        saved."""
        if self.idle:
            return reply(result)
        self._waiting.append(lambda outcome: reply(outcome if isinstance(outcome, PenstockError) else result))
        return self.flush()

    def flush(self) -> list[Effect]:
        """Begin to save the changes. If a save runs already, nothing happens now: another save follows it if a request
        waits."""
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
        """Save all changes now, and wait for the disk. Includes the cursors of an unfinished save, whose outcome will
        never arrive."""
        changed = (self._saving or {}) | self._changed
        self._catalog.save_cursors({key: cursor() for key, cursor in changed.items()})
