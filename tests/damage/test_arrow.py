"""Arrow batches of damaged and forged files: whatever the bytes are, Arrow's full validation passes."""

from __future__ import annotations

import logging
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.spark.source_kit import location, make_logs, segments, unchanged

from penstock.core.names import TopicName
from penstock.core.positions import Earliest
from penstock.record.hashing import hash64
from penstock.record.layout import CHECKSUM_BYTES
from penstock.spark.scan.columns import NAMES
from penstock.spark.scan.slice_reader import LostRange, batches
from penstock.spark.scan.slices import Slice
from penstock.storage.inspect.data_reader import DataReader
from penstock.storage.log.index import unchecked_ends
from penstock.storage.log.segment import index_path

ORDERS = ("/default/orders", 0)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_logs(tmp_path_factory.mktemp("arrow") / "data", seed=3)


@pytest.fixture
def copy(logs: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(logs, tmp_path / "copy"))


def checked_rows(root: Path, stop: int, *, verify: bool) -> tuple[set[int], set[int]]:
    """The offsets that are given, in batches that are valid through and through, and those that are told to be lost."""
    losses: list[LostRange] = []
    given: set[int] = set()
    part = Slice(location(root), *ORDERS, 0, stop, 0)
    for batch in batches(part, NAMES, verify=verify, fail_on_data_loss=False, on_loss=losses.append):
        batch.validate(full=True)
        given |= set(batch.column("offset").to_pylist())
    return given, {offset for loss in losses for offset in range(loss.start, loss.stop)}


def check_blocks(root: Path, *, verify: bool) -> None:
    """Compare the blocks with the log's own reader, with and without views."""
    reader = DataReader(root).topic(TopicName.parse("orders")).partition(0)
    offset = int(reader.offset_of(Earliest()))
    while offset < reader.view.next_offset:
        chunk = reader.read(offset, verify=verify)
        for views in (True, False):
            chunk.block.to_arrow(views=views).validate(full=True)
        offset = int(chunk.next_offset)


def forge(path: Path, text: bytes) -> int:
    """Make the first such text of a segment no UTF-8, with a right checksum; how many records end before it."""
    data = bytearray(path.read_bytes())
    place = data.index(text)
    data[place + len(text) - 1] = 0xFF
    ends = [end for end in unchecked_ends(index_path(path).read_bytes()[128:]).tolist() if end]
    ordinal = sum(end <= place for end in ends)
    start, stop = (ends[ordinal - 1] if ordinal else 0), ends[ordinal] - CHECKSUM_BYTES
    data[stop : stop + CHECKSUM_BYTES] = hash64(bytes(data[start:stop])).to_bytes(CHECKSUM_BYTES, "big")
    path.write_bytes(data)
    return int(path.stem) + int(ordinal)


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize(
    "text",
    [b"\x0corder.created"[1:], "prodücer".encode(), b"\x00\x02a1", b"\x00\x00\x00\x02vv"],
    ids=["type", "producer name", "attribute name", "attribute value"],
)
def test_text_that_is_no_utf8_is_damage_of_that_record_alone(copy: Path, text: bytes, verify: bool) -> None:
    total = len(unchanged(copy)[ORDERS])
    segment = next(path for path in segments(copy, "orders") if text in path.read_bytes())
    offset = forge(segment, text)
    given, lost = checked_rows(copy, total, verify=verify)
    assert lost == {offset}
    assert given == set(range(total)) - lost
    check_blocks(copy, verify=verify)


@pytest.mark.parametrize("seed", range(20))
def test_batches_of_mutated_files_are_valid(copy: Path, seed: int) -> None:
    chance = random.Random(seed)
    total = len(unchanged(copy)[ORDERS])
    for path in segments(copy, "orders"):
        data = bytearray(path.read_bytes())
        for _ in range(chance.choice((0, 1, 20))):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
    for verify in (True, False):
        given, lost = checked_rows(copy, total, verify=verify)
        assert given | lost == set(range(total))
        assert not given & lost
        check_blocks(copy, verify=verify)
