"""The routes of log files."""

from __future__ import annotations

from typing import Any, Final

from penstock.broker.access.policy import Operation
from penstock.server.api.routing import Method, Parameter, Permission, Route
from penstock.server.files import log_files

_NAME: Final[dict[str, Any]] = {"type": "string", "minLength": 1}
PATH_PARAMETERS: Final = {
    "namespace": Parameter(name="namespace", about="of topics", parse=str, schema=_NAME),
    "log": Parameter(
        name="log", about="a topic, or topic-part-N for one of several partitions", parse=str, schema=_NAME
    ),
    "file": Parameter(
        name="file", about="as it is listed: twenty digits and .seg or .idx, or start", parse=str, schema=_NAME
    ),
}

ROUTES: Final = (
    Route(
        method=Method.GET,
        path="/v1/logs",
        handler=log_files.list_namespaces,
        about="namespaces that have logs",
        permission=Permission(Operation.CONSUME, checked=False),
        answer=log_files.RootAnswer,
    ),
    Route(
        method=Method.GET,
        path="/v1/logs/{namespace}",
        handler=log_files.list_logs,
        about="its logs: topics, and partitions of topics",
        permission=Permission(Operation.CONSUME, checked=False),
        answer=log_files.NamespaceAnswer,
        errors=(404,),
    ),
    Route(
        method=Method.GET,
        path="/v1/logs/{namespace}/{log}",
        handler=log_files.list_files,
        about="files of a log",
        permission=Permission(Operation.CONSUME, "log"),
        answer=log_files.LogAnswer,
        errors=(404,),
    ),
    Route(
        method=Method.GET,
        path="/v1/logs/{namespace}/{log}/{file}",
        handler=log_files.get_file,
        about="bytes of a segment, of its index, or of the marker where a log begins",
        permission=Permission(Operation.CONSUME, "log"),
        headers=(log_files.RANGE,),
        media=log_files.BYTES,
        errors=(404, 416),
    ),
)
