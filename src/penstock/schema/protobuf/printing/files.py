"""From descriptors back to .proto text, as a person would write it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from penstock.schema.protobuf.linking.link import Linked
from penstock.schema.protobuf.literals import quoted
from penstock.schema.protobuf.names import local
from penstock.schema.protobuf.parsing.files import EDITIONS
from penstock.schema.protobuf.printing.lines import Lines, Naming, Style, below, block
from penstock.schema.protobuf.printing.messages import brought, enum, extends, message

_EDITIONS: Final = {number: name for name, number in EDITIONS.items()}


def printed(linked: Linked, pool: Any) -> str:
    """Parsed again, it gives the same descriptors."""
    return printed_file(Style(linked.file, pool, _short_names(linked)))


def printed_file(style: Style) -> str:
    blocks = (_head(style.file), _imports(style.file), style.options(style.file), *_declarations(style))
    return "\n\n".join(each for each in ("\n".join(lines) for lines in blocks) if each) + "\n"


def _short_names(linked: Linked) -> Naming:
    """Without the package where that means the same."""

    visible = linked.scope()

    def name(full: str, scope: str) -> str:
        short = local(full[1:], linked.file.package)
        found = visible.find(short, scope, (visible.symbols[full[1:]].sort,))
        return short if not isinstance(found, str) and found.name == full[1:] else full

    return name


def _head(file: Any) -> Lines:
    yield f'edition = "{_EDITIONS[file.edition]}";' if file.edition else f'syntax = "{file.syntax or "proto2"}";'
    if file.package:
        yield ""
        yield f"package {file.package};"


def _imports(file: Any) -> Lines:
    for index, name in enumerate(file.dependency):
        public = "public " if index in file.public_dependency else ""
        weak = "weak " if index in file.weak_dependency else ""
        yield f"import {public}{weak}{quoted(name)};"


def _declarations(style: Style) -> Iterator[Lines]:
    file, scope = style.file, style.file.package
    within = brought(scope, file.message_type, file.extension)
    for each in file.message_type:
        name = below(scope, each.name)
        if f".{name}" not in within:
            yield message(style, each, name)
    for each in file.enum_type:
        yield enum(style, each)
    yield from extends(style, file, scope, within)
    for each in file.service:
        yield _service(style, each, below(scope, each.name))


def _service(style: Style, service: Any, name: str) -> Lines:
    def lines() -> Lines:
        yield from style.options(service)
        for method in service.method:
            yield from _method(style, method, below(name, method.name))

    yield from block(f"service {service.name}", lines())


def _method(style: Style, method: Any, name: str) -> Lines:
    taken = ("stream " if method.client_streaming else "") + style.name(method.input_type, name)
    given = ("stream " if method.server_streaming else "") + style.name(method.output_type, name)
    head = f"rpc {method.name}({taken}) returns ({given})"
    if method.HasField("options"):
        yield from block(head, style.options(method))
    else:
        yield f"{head};"
