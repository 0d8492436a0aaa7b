"""The table of all HTTP routes, collected from the folders that answer them."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from penstock.server.admin import routes as admin
from penstock.server.api.routing import RouteTable
from penstock.server.events import routes as events
from penstock.server.files import routes as files
from penstock.server.front import routes as front
from penstock.server.operations import routes as operations
from penstock.server.registry import routes as registry

_GROUPS: Final = (
    ("front door", "what this is, and what can be asked", front),
    ("schema registry", "subjects, versions and what may change, as clients of schema registries know it", registry),
    ("log files", "segments of the log, byte by byte", files),
    ("events", "messages in and out, as JSON, CloudEvents, server-sent events or lines", events),
    ("administration", "topics, subscriptions, messages, dead letters, connections, keys and roles", admin),
    ("operations", "whether the broker is alive, ready and well", operations),
)
ROUTE_TABLE: Final = RouteTable(
    [replace(route, tag=name) for name, _, group in _GROUPS for route in group.ROUTES],
    {name: variable for _, _, group in _GROUPS for name, variable in group.PATH_PARAMETERS.items()},
    {name: about for name, about, _ in _GROUPS},
)
