"""Forks registrars on one catalog and kills each with SIGKILL; compares the catalog with the answers that they got.

    python killed_registrars.py DIR KILLS SEED

All imports happen once, here, so that a kill costs milliseconds. A registrar registers schema after schema under a few
subjects and reports its answers. Prints one JSON object.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

from penstock.core.clock import SystemClock
from penstock.core.schemas import Definition, Schema, SchemaKind
from penstock.schema.problems import Problem
from penstock.schema.registry.models import LookupFilter
from penstock.schema.registry.registry import Registry
from penstock.schema.steps import SchemaForm, SchemaPair, run_procedure
from penstock.storage.catalog.catalog import Catalog

SUBJECTS = ("orders", "payments", "returns")
Promise = tuple[str, int, int, str]
"""Subject, version, id, text."""


class Agreeing:
    """A schema engine that takes any text for a schema, and any two for compatible."""

    def parse(self, definition: Definition, form: SchemaForm = SchemaForm.CANONICAL) -> str:
        return definition.text

    def check_compatibility(self, pairs: tuple[SchemaPair, ...], *, lenient: bool) -> list[list[Problem]]:
        return [[] for _ in pairs]


def register_until_killed(path: Path, registrar: int, tell: int) -> None:
    catalog = Catalog.open(path, clock=SystemClock())
    registry, turn = Registry(catalog.schemas), 0
    os.write(tell, b"ready\n")
    while True:
        subject, text = SUBJECTS[turn % len(SUBJECTS)], f"{registrar}-{turn}"
        made = run_procedure(registry.register(subject, Schema(kind=SchemaKind.JSON, text=text)), Agreeing())
        os.write(tell, f"{subject} {made.version} {made.schema_id} {text}\n".encode())
        turn += 1


def one_kill(path: Path, registrar: int, chance: random.Random) -> list[Promise]:
    """Return the answers that the registrar got before it died."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            register_until_killed(path, registrar, writing)
        finally:
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading, "rb") as promises:
        if promises.readline() != b"ready\n":
            raise AssertionError("the registrar could not open what its predecessor left")
        # Most are killed after their first promise, however slow the machine is; the others before it.
        first = promises.readline() if chance.random() < 0.8 else b""
        time.sleep(chance.random() ** 2 * 0.03)
        os.kill(child, signal.SIGKILL)
        lines = (first + promises.read()).split(b"\n")[:-1]  # the last one may be cut
    os.waitpid(child, 0)
    return [_promise(line.decode()) for line in lines]


def _promise(line: str) -> Promise:
    subject, version, schema_id, text = line.split()
    return subject, int(version), int(schema_id), text


def check(path: Path, promised: list[Promise]) -> int:
    """Raise if a promised version is missing, or a number is missing or given twice; return the number of versions."""
    with Catalog.open(path, clock=SystemClock()) as catalog:
        every = Registry(catalog.schemas).schemas(lookup=LookupFilter.INCLUDE_DELETED)
    found = {(each.subject, each.version, each.schema_id, each.schema.text) for each in every}
    assert set(promised) <= found, f"missing: {set(promised) - found}"
    assert sorted(each.schema_id for each in every) == list(range(1, len(every) + 1)), "ids are not dense"
    for subject in SUBJECTS:
        versions = sorted(each.version for each in every if each.subject == subject)
        assert versions == list(range(1, len(versions) + 1)), f"versions of {subject} are not dense"
    return len(every)


def main(arguments: list[str]) -> None:
    path, kills, chance = Path(arguments[0]) / "catalog.db", int(arguments[1]), random.Random(arguments[2])
    Catalog.open(path, clock=SystemClock()).close()
    promised: list[Promise] = []
    for registrar in range(kills):
        promised += one_kill(path, registrar, chance)
    print(json.dumps({"kills": kills, "promised": len(promised), "found": check(path, promised)}))


if __name__ == "__main__":
    main(sys.argv[1:])
