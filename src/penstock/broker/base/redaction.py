"""Redaction of errors for clients: paths of the server are removed, and logged instead."""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import Any, Final

from penstock.core.errors import PenstockError, error_from_dict

_LOG: Final = logging.getLogger(__name__)
_LOG_EVERY_MS: Final = 10_000
"""The time in which the same error is logged only once."""
_REMEMBERED: Final = 100


class PathRedactor:
    """A redactor that removes the path of the data directory from errors, as only the operator needs to know it."""

    def __init__(self, root: str = "") -> None:
        self._root = root
        self._logged_ms: OrderedDict[str, int] = OrderedDict()

    def redact(self, error: PenstockError, now_ms: int) -> PenstockError:
        """Return the error with paths relative to the data directory. If it had such a path, the original is logged."""
        if not self._root or not _mentions(error, self._root):
            return error
        self._log(error, now_ms)
        details = {name: self._without_root(value) for name, value in error.details.items()}
        return error_from_dict(
            {"code": error.code.value, "message": self._without_root(error.message), "details": details}
        )

    def _without_root(self, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        return value.replace(f"{self._root}/", "").replace(self._root, "the data directory")

    def _log(self, error: PenstockError, now_ms: int) -> None:
        last = self._logged_ms.get(error.message)
        if last is not None and now_ms - last < _LOG_EVERY_MS:
            return
        self._logged_ms[error.message] = now_ms
        self._logged_ms.move_to_end(error.message)
        if len(self._logged_ms) > _REMEMBERED:
            self._logged_ms.popitem(last=False)
        _LOG.warning("a client was refused", extra={"code": error.code.value, "error": error.message})


def _mentions(error: PenstockError, root: str) -> bool:
    return root in error.message or any(isinstance(value, str) and root in value for value in error.details.values())
