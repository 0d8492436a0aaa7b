"""Types for objects whose properties have names."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, Union

from msgspec import UNSET, UnsetType, defstruct


class Label(NamedTuple):
    """A property that tells which of several types an object is of."""

    name: str
    value: str


def struct(fields: Mapping[str, Any], required: Collection[str], *, closed: bool, label: Label | None) -> Any:
    """Raises `ValueError` for names that msgspec does not take."""
    renamed = {f"f{place}": name for place, name in enumerate(fields)}
    return defstruct(
        "Payload",
        [_field(field, fields[name], is_required=name in required) for field, name in renamed.items()],
        rename=renamed,
        tag_field=label.name if label else None,
        tag=label.value if label else None,
        forbid_unknown_fields=closed,
        kw_only=True,
        gc=False,
    )


def _field(name: str, kind: Any, *, is_required: bool) -> tuple[str, Any] | tuple[str, Any, Any]:
    if is_required:
        return (name, kind)
    return (name, Union[kind, UnsetType], UNSET)  # noqa: UP007 - made at run time
