"""The file library of one schema: its own file, those it refers to, and the well-known ones, in one pool of
descriptors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from google.protobuf.descriptor_pool import DescriptorPool

from penstock.core.schemas import SCHEMA_DEPTH_MAX
from penstock.schema.protobuf.limits import TOKENS_MAX
from penstock.schema.protobuf.linking.checks import check_rules
from penstock.schema.protobuf.linking.feature_rules import check_built
from penstock.schema.protobuf.linking.linked_file import LinkedFile, link_file
from penstock.schema.protobuf.linking.option_rules import OPTIONS
from penstock.schema.protobuf.linking.option_values import OptionInterpreter, draft, has_custom_options, has_options
from penstock.schema.protobuf.linking.source import SourceFile, read_source
from penstock.schema.protobuf.linking.structure_rules import STRUCTURE
from penstock.schema.protobuf.linking.well_known import ALWAYS, well_known

ROOT: Final = ""
"""The name of a schema's own file; no file can import it."""


class FileLibrary:
    """A set of linked files. Adding a file also adds the files that it imports, from the references or from the
    built-in ones; references that are not imported are not parsed."""

    def __init__(self, references: Mapping[str, str]) -> None:
        self.pool = DescriptorPool()
        self.files: dict[str, LinkedFile] = {}
        """Files by the name they are imported under, each after those it imports."""
        self.well_known: set[str] = set()
        """Names of the imported files that are built in, and did not come from a reference."""
        self._references = references
        self._open: list[str] = []
        self._tokens_left = TOKENS_MAX
        self._drafts = DescriptorPool()
        self._drafted: set[str] = set()

    def add(self, name: str, text: str) -> LinkedFile:
        """Parse, link and check a file, and add it under `name`. Raises `InvalidSchema` for a text that is not a
        schema, or imports a missing file."""
        read = read_source(text, name, self._tokens_left)
        self._tokens_left -= read.tokens
        linked = link_file(read, self._imports(read))
        check_rules(linked, STRUCTURE)
        if has_options(linked.file):
            self._interpret(linked)
        check_rules(linked, OPTIONS)
        self._keep(linked)
        check_built(read, self.pool.FindFileByName(name))
        return linked

    def _imports(self, read: SourceFile) -> tuple[LinkedFile, ...]:
        self._open.append(read.file.name)
        imported = tuple(self._imported(read, name) for name in read.file.dependency)
        self._open.pop()
        return imported

    def _imported(self, read: SourceFile, name: str) -> LinkedFile:
        if name in self.files:
            return self.files[name]
        position = f"import {name}"
        if name in self._open or not name:
            raise read.refusal(f'"{name}" imports itself, on a way that leads through here', position)
        if len(self._open) > SCHEMA_DEPTH_MAX:
            raise read.refusal(f"more than {SCHEMA_DEPTH_MAX} files import each other", position)
        if name in self._references and name not in ALWAYS:
            return self.add(name, self._references[name])
        return self._add_well_known(read, name, position)

    def _add_well_known(self, read: SourceFile, name: str, position: str) -> LinkedFile:
        known = well_known(name)
        if known is None:
            raise read.refusal(f'"{name}" is not among the references of this schema', position)
        self.well_known.add(name)
        return self._keep(link_file(known, self._imports(known)))

    def _keep(self, linked: LinkedFile) -> LinkedFile:
        _build(self.pool, linked.source, linked.file)
        self.files[linked.file.name] = linked
        return linked

    def _interpret(self, linked: LinkedFile) -> None:
        """Interpret the options of a file. It may use options that it defines itself, so a draft of the file goes into
        a pool of its own first."""
        pool = None
        if has_custom_options(linked.file):
            pool = self._drafts
            for name, file in self.files.items():
                self._draft(name, file.source, file.file)
            self._draft(linked.file.name, linked.source, draft(linked))
        OptionInterpreter(linked, linked.scope(), pool).interpret(linked.file)

    def _draft(self, name: str, read: SourceFile, file: Any) -> None:
        if name not in self._drafted:
            self._drafted.add(name)
            _build(self._drafts, read, file)


def _build(pool: Any, read: SourceFile, file: Any) -> None:
    try:
        pool.AddSerializedFile(file.SerializeToString())
    except (TypeError, ValueError) as error:
        _, _, why = str(error).rpartition("descriptor pool: ")
        raise read.refusal(f"it is not a sound file: {why.strip()}") from None


def load_library(text: str, references: Mapping[str, str]) -> FileLibrary:
    """Load a schema and all that it refers to; its own file is the one under `ROOT`. Raises `InvalidSchema`."""
    files = FileLibrary(references)
    files.add(ROOT, text)
    return files
