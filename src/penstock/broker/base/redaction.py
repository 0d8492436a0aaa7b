"""Errors as clients are told them: without the paths of the server, which its log has instead."""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import Any, Final

from penstock.core.errors import PenstockError, error_from_dict

_LOG: Final = logging.getLogger(__name__)
_LOG_EVERY_MS: Final = 10_000
"""The same sentence again is no news before."""
_REMEMBERED: Final = 100


class PathRedactor:
    """Of one data directory. Where it lies is nobody's business but the operator's."""

    def __init__(self, root: str = "") -> None:
        self._root = root
        self._logged_ms: OrderedDict[str, int] = OrderedDict()

    def redact(self, error: PenstockError, now_ms: int) -> PenstockError:
        """The same error, with paths that begin at the data directory; what it said before is in the log."""
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
    return root in error.message or any(isinstance(each, str) and root in each for each in error.details.values())
