"""Several processes on one catalog, some of them killed: no version is lost, and none is given twice."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.schema.registry_kit import Trial, trial, words

from penstock.schema.registry.models import RegisteredVersion
from penstock.schema.registry.registry import Registry
from penstock.schema.steps import run_procedure
from penstock.storage.catalog import sqlite

KILLER = Path(__file__).with_name("killed_registrars.py")

REGISTRAR = """
import sys
from pathlib import Path
from tests.schema.registry.killed_registrars import Agreeing
from penstock.core.clock import SystemClock
from penstock.core.schemas import Schema, SchemaKind
from penstock.schema.steps import run_procedure
from penstock.schema.registry.registry import Registry
from penstock.storage.catalog import sqlite
from penstock.storage.catalog.catalog import Catalog

sqlite.BUSY_MS = 60_000
path, who, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
with Catalog.open(path, clock=SystemClock()) as catalog:
    registry = Registry(catalog.schemas)
    print("ready", flush=True)
    sys.stdin.readline()
    for turn in range(count):
        for text in (f"shared-{turn}", f"{who}-{turn}"):
            schema = Schema(kind=SchemaKind.JSON, text=text)
            made = run_procedure(registry.register("orders", schema), Agreeing())
            print(text, made.version, made.schema_id)
"""


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait longer for the catalog: many write at once here, on a disk that may be slow; the error is tested
    elsewhere."""
    monkeypatch.setattr(sqlite, "BUSY_MS", 60_000)


def check_dense(registry: Registry, subject: str, count: int) -> None:
    versions = registry.versions(subject)
    assert versions == tuple(range(1, count + 1))
    ids = {registry.version(subject, version).schema_id for version in versions}
    assert ids == set(range(1, count + 1))


def test_threads_that_register_at_once_lose_nothing_and_get_each_number_once(tmp_path: Path) -> None:
    with trial(tmp_path) as t:
        t.run(t.registry.set_compatibility(None, "NONE"))

        def work(who: int) -> list[RegisteredVersion]:
            mine = Trial(t.catalog)
            texts = [text for turn in range(5) for text in (f"shared{turn}", f"own{who}-{turn}")]
            return [mine.register("orders", text) for text in texts]

        with ThreadPoolExecutor(4) as pool:
            answers = [made for each in pool.map(work, range(4)) for made in each]
        registry = t.reload()
        check_dense(registry, "orders", 5 + 4 * 5)
        for made in answers:
            assert registry.version("orders", made.version) == made


def outputs_of(commands: Iterable[list[str]]) -> list[list[str]]:
    """Return the outputs of processes that begin together, once all of them are ready."""
    with ExitStack() as stack:
        processes = [
            stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
            for command in commands
        ]
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        outputs = [process.communicate(timeout=120)[0].splitlines() for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    return outputs


@pytest.mark.slow
def test_processes_that_register_at_once_agree(tmp_path: Path) -> None:
    with trial(tmp_path) as t:
        t.run(t.registry.set_compatibility(None, "NONE"))
        command = [sys.executable, "-c", REGISTRAR, str(tmp_path / "catalog.db")]
        said = {line for output in outputs_of([*command, who, "10"] for who in ("a", "b")) for line in output}
        registry = t.reload()
        check_dense(registry, "orders", 30)
        assert said == {f"{each.schema.text} {each.version} {each.schema_id}" for each in registry.schemas()}
        t.run(t.registry.refresh())
        assert run_procedure(t.registry.register("orders", words("last")), t.engine).version == 31


def kill(directory: Path, kills: int) -> dict[str, int]:
    command = [sys.executable, str(KILLER), str(directory), str(kills), "seed"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: dict[str, int] = json.loads(done.stdout)
    return found


def test_a_handful_of_kills_during_registration(tmp_path: Path) -> None:
    found = kill(tmp_path, 5)
    assert found["found"] >= found["promised"] > 0


@pytest.mark.slow
def test_what_killed_registrars_were_promised_is_there_and_numbers_stay_dense(tmp_path: Path) -> None:
    found = kill(tmp_path, 50)
    assert found["found"] >= found["promised"] > 25


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_thousands_of_kills_during_registration(tmp_path: Path) -> None:
    for turn in range(10):
        (tmp_path / str(turn)).mkdir()
        found = kill(tmp_path / str(turn), 300)
        assert found["found"] >= found["promised"] > 0
