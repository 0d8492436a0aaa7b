"""Compiled kernels are kept where they can be, read where they cannot be written, and else made for one process."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.record.hashing import hash64
from penstock.record.kernels import block_kernels, kernel_cache
from penstock.record.kernels.kernel_cache import ENVIRONMENT, Kernel

pytestmark = pytest.mark.xdist_group("kernel cache")  # all use the same compiled kernels
HASH_OF_NOTHING = 0x907A56DE22C26E53

USE = """
from penstock.record.hashing import hash64
assert hash64(b"") == 0x907A56DE22C26E53
print("used")
"""
"""A program with one small kernel: a process without a cache compiles no other."""
FEW = """
from penstock.record.kernels import (
    block_kernels, column_kernels, frame_kernels, kernel_cache, stream_kernels, tally_kernels, text_kernels
)
kernel_cache._KERNELS[:] = [block_kernels.hash_bytes, block_kernels.hash_finish, block_kernels.first_used]
"""
"""A program that knows few kernels: compiling all of them takes half a minute."""
TOGETHER = """
import pathlib, time
say = kernel_cache._say
def say_and_wait(line):
    say(line)
    open(f"{place}/{os.getpid()}", "x").close()
    until = time.monotonic() + 120
    while len(list(pathlib.Path(place).iterdir())) < 2 and time.monotonic() < until:
        time.sleep(0.01)
kernel_cache._say = say_and_wait
"""
"""A program for two processes, which compile only after both have announced it."""
COMPILING = "penstock: compiling kernels for this machine, once, into"
FOR_ITSELF = f"this process compiles the kernels that it needs; set {ENVIRONMENT} to keep them\n"


BOUND_BY_MODES = """
import ctypes, os
PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 24, 1, 2
if os.geteuid() == 0:
    for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
        ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
"""
"""Modes count for root too."""

NO_ROOM = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
"""
"""Every write to a file fails, as on a full disk."""


def run(
    cache: Path | None, *, code: str = USE, before: str = "", env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """A new process that does `before`, becomes a fresh one, and runs `code` with that cache."""
    environment = {"PATH": os.environ["PATH"], "PYTHONWARNINGS": "error"} | (env or {})
    if cache is not None:
        environment[ENVIRONMENT] = str(cache)
    start = f"{before}\nimport os, sys; os.execv(sys.executable, [sys.executable, '-c', {code!r}])"
    command = [sys.executable, "-c", start if before else code]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd="/", check=False)


def used(cache: Path | None, **options: Any) -> str:
    """Use kernels in a process of their own; what it said on stderr."""
    done = run(cache, **options)
    assert (done.returncode, done.stdout) == (0, "used\n"), done.stderr
    return done.stderr


def files_in(place: Path, names: str = "*") -> dict[Path, tuple[int, int]]:
    files = [path for path in sorted(place.rglob(names)) if path.is_file()]
    return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in files}


def kept_in(place: Path) -> dict[Path, tuple[int, int]]:
    """Without what others who begin at the same time try out whether they could write there."""
    return files_in(place, "*.nb[ci]") | files_in(place, "complete")


@pytest.fixture
def modes_count(tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o555)
    code = f"import pathlib; pathlib.Path({str(locked / 'file')!r}).touch()"
    if "PermissionError" not in run(None, code=code, before=BOUND_BY_MODES).stderr:
        pytest.skip("modes do not bind this user, and it cannot give that up")


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of a few kernels, made in an empty directory by two processes at once; each said so in one line."""
    place = tmp_path_factory.mktemp("warm")
    code = f"{FEW}import os; place = {str(tmp_path_factory.mktemp('together'))!r}{TOGETHER}{USE}"
    with ThreadPoolExecutor(2) as both:
        for said in both.map(lambda cache: used(cache, code=code), [place, place]):
            assert said.startswith(COMPILING)
            assert said.count("\n") == 1
    return place


@pytest.fixture
def readonly(warm: Path, tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "readonly"
    shutil.copytree(warm, place)
    for path in (*place.rglob("*"), place):
        path.chmod(0o444 if path.is_file() else 0o555)
    yield place
    for path in (place, *place.rglob("*")):
        path.chmod(0o755)


# A directory that can be written


@pytest.mark.slow
def test_processes_compile_at_once_and_the_next_compiles_nothing_writes_nothing_and_is_silent(warm: Path) -> None:
    before = files_in(warm)
    assert [path.name for path in before if path.suffix not in (".nbi", ".nbc")] == ["complete"]
    assert used(warm) == ""
    assert files_in(warm) == before


@pytest.mark.slow
def test_every_kernel_is_in_a_complete_cache() -> None:
    """The cache of this machine, made by `penstock warm`, by another test, or now."""
    kernel_cache.load_all()
    place = kernel_cache.directory()
    if place is None:
        pytest.skip("this machine keeps none")
    code = """
from penstock.record.kernels import block_kernels, kernel_cache
assert kernel_cache.prepare() == 0.0
kernel_cache.load_all()
assert all(each.loaded for each in vars(block_kernels).values() if isinstance(each, kernel_cache.Kernel))
print("used")
"""
    before = kept_in(place)
    assert used(kernel_cache._wanted(), code=code) == ""
    assert kept_in(place) == before


# A directory that cannot be written


@pytest.mark.slow
@pytest.mark.usefixtures("modes_count")
def test_a_readonly_cache_is_used_through_a_copy_that_is_gone_afterwards(readonly: Path, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    before = files_in(readonly)
    assert used(readonly, env={"TMPDIR": str(scratch)}, before=BOUND_BY_MODES) == ""
    assert files_in(readonly) == before
    assert list(scratch.iterdir()) == []


@pytest.mark.slow
@pytest.mark.usefixtures("modes_count")
def test_a_readonly_cache_without_room_for_a_copy_is_said_and_done_without(readonly: Path) -> None:
    code = "import tempfile; tempfile.tempdir = '/proc/no/such/place'\n" + USE
    said = used(readonly, code=code, before=BOUND_BY_MODES)
    assert said.startswith("penstock: no kernel cache can be written (")
    assert said.endswith(FOR_ITSELF)
    assert said.count("\n") == 1


@pytest.mark.slow
@pytest.mark.usefixtures("modes_count")
def test_a_home_that_belongs_to_somebody_else_is_said_and_done_without(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0)
    said = used(None, env={"HOME": str(home)}, before=BOUND_BY_MODES)
    assert str(home) in said
    assert said.endswith(FOR_ITSELF)
    assert said.count("\n") == 1
    assert list(home.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("below", ["", "deeper/still"])
def test_a_place_that_cannot_be_made_is_said_and_done_without(tmp_path: Path, below: str) -> None:
    file = tmp_path / "file"
    file.write_text("a file, not a directory")
    said = used(file / below)
    assert said.startswith("penstock: no kernel cache can be written (")
    assert str(file) in said
    assert said.endswith(FOR_ITSELF)
    assert said.count("\n") == 1
    assert file.read_text() == "a file, not a directory"


@pytest.mark.slow
def test_without_a_cache_nothing_is_compiled_but_what_is_called(tmp_path: Path) -> None:
    code = """
from penstock.record.hashing import hash64
from penstock.record.kernels import block_kernels
hash64(b"")
assert block_kernels.hash_bytes.loaded and not block_kernels.encode.loaded
print("used")
"""
    file = tmp_path / "file"
    file.touch()
    assert used(file, code=code).endswith(FOR_ITSELF)


@pytest.mark.slow
def test_a_full_disk_is_said_and_done_without(tmp_path: Path) -> None:
    said = used(tmp_path, code=FEW + USE, before=NO_ROOM)
    assert said.startswith(COMPILING)
    assert "cannot be used (OSError(" in said
    assert not list(tmp_path.rglob("complete"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("suffix", "damage"), [(".nbi", b""), (".nbi", bytes(4_096)), (".nbc", b""), (".nbc", b"\x80\5x")]
)
def test_a_damaged_cache_is_said_and_done_without(warm: Path, tmp_path: Path, damage: bytes, suffix: str) -> None:
    shutil.copytree(warm, tmp_path, dirs_exist_ok=True)
    for path in tmp_path.rglob(f"*{suffix}"):
        path.write_bytes(damage)
    said = used(tmp_path)
    assert said.startswith("penstock: the kernel cache")
    assert "cannot be used" in said


# In this process


def test_a_kernel_is_loaded_when_it_is_first_called() -> None:
    made = Kernel(block_kernels.hash_bytes.function, block_kernels.hash_bytes.signature)
    assert not made.loaded
    assert made(np.zeros(0, dtype=np.uint8)) == HASH_OF_NOTHING
    assert made.loaded


def test_many_threads_may_call_first() -> None:
    made = Kernel(block_kernels.hash_bytes.function, block_kernels.hash_bytes.signature)
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(made(np.zeros(0, dtype=np.uint8)))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [HASH_OF_NOTHING] * 8


def test_numbas_own_settings_are_as_they_were() -> None:
    import numba

    config: Any = numba.config
    before = config.CACHE_DIR
    Kernel(block_kernels.hash_bytes.function, block_kernels.hash_bytes.signature).load()
    assert before == config.CACHE_DIR


def test_nothing_is_left_to_prepare_once_everything_is_loaded(capfd: pytest.CaptureFixture[str]) -> None:
    kernel_cache.load_all()
    capfd.readouterr()  # it may have compiled them
    assert kernel_cache.prepare() == 0.0
    assert capfd.readouterr().err == ""
    assert hash64(b"") == HASH_OF_NOTHING


def test_the_directory_is_named_by_all_that_the_code_depends_on(monkeypatch: pytest.MonkeyPatch) -> None:
    import numba
    from numba.core.registry import cpu_target

    names = {kernel_cache._fingerprint()}
    assert names == {kernel_cache._fingerprint()}
    with monkeypatch.context() as patch:
        patch.setattr(numba, "__version__", "0.0")
        names.add(kernel_cache._fingerprint())
    with monkeypatch.context() as patch:
        patch.setattr(kernel_cache, "_SOURCES", kernel_cache._SOURCES[:1])
        names.add(kernel_cache._fingerprint())
    with monkeypatch.context() as patch:
        patch.setattr(type(cpu_target.target_context.codegen()), "magic_tuple", lambda self: ("another", "machine", ""))
        names.add(kernel_cache._fingerprint())
    assert len(names) == 4


def test_every_module_with_a_kernel_is_one_of_the_sources() -> None:
    modules = {Path(str(sys.modules[made.function.__module__].__file__)) for made in kernel_cache._KERNELS}
    assert modules <= set(kernel_cache._SOURCES)


def test_the_cache_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENVIRONMENT, "/given")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert kernel_cache._wanted() == Path("/given")
    monkeypatch.delenv(ENVIRONMENT)
    assert kernel_cache._wanted() == Path("/xdg/penstock/kernels")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert kernel_cache._wanted() == Path("/home/somebody/.cache/penstock/kernels")


def test_a_user_without_a_home_has_no_cache(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    def unknown(_uid: int) -> None:
        raise KeyError("getpwuid(): uid not found")

    for name in (ENVIRONMENT, "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert kernel_cache._choose() is None
    assert "no kernel cache can be written (Could not determine home directory" in capfd.readouterr().err
