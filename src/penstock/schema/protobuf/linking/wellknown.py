"""Files that every schema may import without a reference."""

from __future__ import annotations

from typing import Final

from google.protobuf import (
    any_pb2,
    api_pb2,
    descriptor_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    source_context_pb2,
    struct_pb2,
    timestamp_pb2,
    type_pb2,
    wrappers_pb2,
)

from penstock.schema.protobuf.limits import TOKENS_MAX
from penstock.schema.protobuf.linking.interfaces import TEXTS
from penstock.schema.protobuf.linking.source import Source, source

_MODULES: Final = (
    *(any_pb2, api_pb2, descriptor_pb2, duration_pb2, empty_pb2, field_mask_pb2),
    *(source_context_pb2, struct_pb2, timestamp_pb2, type_pb2, wrappers_pb2),
)
_FILES: Final[dict[str, bytes]] = {each.DESCRIPTOR.name: each.DESCRIPTOR.serialized_pb for each in _MODULES}


ALWAYS: Final = frozenset(_FILES)
"""Those that are the same for every schema, whatever a reference of that name says."""


def well_known(name: str) -> Source | None:
    """The file of that name, if it is one of them; its names are not resolved yet."""
    if name in _FILES:
        return Source(descriptor_pb2.FileDescriptorProto.FromString(_FILES[name]))
    return source(TEXTS[name], name, TOKENS_MAX) if name in TEXTS else None
