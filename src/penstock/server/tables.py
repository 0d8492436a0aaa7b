"""All that can be asked over HTTP: the rows of every room, in one table."""

from __future__ import annotations

from typing import Final

from penstock.server.admin import routes as admin
from penstock.server.api.routing import Table
from penstock.server.events import routes as events
from penstock.server.files import routes as files
from penstock.server.operations import routes as operations
from penstock.server.registry import routes as registry

_ROOMS: Final = (registry, files, events, admin, operations)
ALL: Final = Table(
    [row for room in _ROOMS for row in room.ROWS],
    {name: variable for room in _ROOMS for name, variable in room.VARIABLES.items()},
)
