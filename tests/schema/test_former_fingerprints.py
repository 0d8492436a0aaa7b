"""Former fingerprints: Avro names without meaning make no difference, and schemas stored before are still found."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.core.schemas import Definition, Schema, SchemaKind
from penstock.schema.errors import SchemaNotFound
from penstock.schema.languages import SchemaLanguages
from penstock.schema.registry.models import fingerprint_of
from penstock.schema.registry.registry import Registry
from penstock.schema.steps import Procedure, SchemaForm, run_procedure
from penstock.storage.catalog.catalog import Catalog
from penstock.storage.catalog.schema_rows import NewVersion
from penstock.testing import ManualClock

INT = '{"type": "int"}'
NAMED = '{"type": "int", "name": "x"}'
LIST = '{"type": "array", "items": "string"}'
NAMED_LIST = '{"type": "array", "name": "xs", "namespace": "n", "items": {"type": "string", "name": "x"}}'


def avro(text: str) -> Schema:
    return Schema(kind=SchemaKind.AVRO, text=text)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    with Catalog.open(tmp_path / "catalog.db", clock=ManualClock()) as made:
        yield made


def do(procedure: Procedure[Any]) -> Any:
    return run_procedure(procedure, SchemaLanguages())


@pytest.mark.parametrize(("registered", "asked"), [(NAMED, INT), (INT, NAMED), (NAMED_LIST, LIST), (LIST, NAMED_LIST)])
def test_a_name_of_what_has_none_makes_no_difference(catalog: Catalog, registered: str, asked: str) -> None:
    registry = Registry(catalog.schemas)
    made = do(registry.register("s", avro(registered)))
    found = do(registry.look_up("s", avro(asked)))
    assert (found.version, found.schema_id, found.schema.text) == (1, made.schema_id, registered)
    assert do(registry.register("s", avro(asked))).version == 1
    assert do(registry.register("t", avro(asked))).schema_id == made.schema_id


def test_other_properties_and_the_names_of_types_that_have_one_do(catalog: Catalog) -> None:
    registry = Registry(catalog.schemas)
    do(registry.set_compatibility("s", "NONE"))
    texts = [INT, '{"type": "int", "doc": "x"}', '{"type": "int", "logicalType": "date"}']
    texts += [json.dumps({"type": "fixed", "size": 1, "name": name}) for name in ("a", "b")]
    assert [do(registry.register("s", avro(each))).version for each in texts] == [1, 2, 3, 4, 5]


def test_what_was_stored_with_a_former_fingerprint_is_still_known(catalog: Catalog) -> None:
    schema = avro(NAMED)
    legacy_canonical = fingerprint_of(
        schema, SchemaLanguages().parse(Definition(schema.kind, schema.text), SchemaForm.FORMER)
    )
    catalog.schemas.add_version(NewVersion(subject="s", schema=schema, fingerprint=legacy_canonical), expected={})
    registry = Registry(catalog.schemas)
    assert do(registry.look_up("s", schema)).version == 1
    assert do(registry.register("s", schema)).version == 1
    assert registry.versions("s") == (1,)
    again = do(registry.import_(registry.export()))
    assert (again.imported, again.refused) == (0, ())
    with pytest.raises(SchemaNotFound):
        do(registry.look_up("s", avro('"long"')))


def test_of_others_the_former_form_is_the_canonical_one() -> None:
    for kind, text in ((SchemaKind.JSON, '{"type": "integer"}'), (SchemaKind.AVRO, '"int"'), (SchemaKind.STRING, "")):
        definition = Definition(kind, text)
        assert SchemaLanguages().parse(definition, SchemaForm.FORMER) == SchemaLanguages().parse(definition)
