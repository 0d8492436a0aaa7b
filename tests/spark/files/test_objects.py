"""Object stores: a real one in a local directory, options of others, and errors of stores that do not answer."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.spark.log_kit import ORDERS, SMALL, append, everything, make_data, records

from penstock.core.errors import InvalidRequest, OffsetOutOfRange, ServiceUnavailable
from penstock.spark.files.location import Location
from penstock.spark.files.objects import ObjectDisk, open_store
from penstock.storage.base.disk import read_all
from penstock.storage.inspect.data_reader import DataReader
from penstock.storage.store import Store


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_data(tmp_path / "some data", dropped=70)


def test_it_reads_what_a_plain_reader_reads(root: Path) -> None:
    location = Location.parse(path=root.as_uri())
    assert everything(location.open()) == everything(DataReader(root))


def test_a_log_that_grows_and_loses_its_beginning_is_followed(root: Path) -> None:
    log = Location.parse(path=root.as_uri()).open().topic(ORDERS).partition(0)
    assert len(records(log)) == 230
    with Store.open(root, limits=SMALL) as store:
        append(store, ORDERS, range(300, 400))
        store.truncate_before(ORDERS, 200)
    log.refresh()
    with pytest.raises(OffsetOutOfRange):
        log.read(70)
    assert [record.offset for record in records(log)] == list(range(200, 400))


def test_names_folders_sizes_and_bytes_are_those_of_the_files(root: Path) -> None:
    disk = ObjectDisk(root.as_uri())
    assert disk.folders(Path()) == ["topics"]
    assert "store.json" in disk.names(Path())
    assert disk.folders(Path("topics/shop")) == [f"parts.sold-part-{number}" for number in range(3)]
    assert disk.names(Path("nowhere")) == disk.folders(Path("nowhere")) == []
    assert disk.exists(Path("store.json"))
    assert disk.exists(Path("topics"))
    assert not disk.exists(Path("nothing"))
    file = disk.open(Path("store.json"))
    data = (root / "store.json").read_bytes()
    assert file.size() == len(data)
    assert bytes(read_all(file, 2, 5)) == data[2:7]
    assert bytes(read_all(file, len(data) - 1, 5)) == data[-1:]
    assert bytes(read_all(file, len(data) + 9, 5)) == b""


def test_a_file_that_has_become_shorter_ends_where_it_ends(root: Path) -> None:
    disk = ObjectDisk(root.as_uri())
    file = disk.open(Path("store.json"))
    (root / "store.json").write_bytes(b"{}")
    assert bytes(read_all(file, 5, 5)) == b""


def test_what_is_not_there_is_not_found(root: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ObjectDisk(root.as_uri()).open(Path("nothing"))


def test_a_place_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="nowhere cannot be opened"):
        Location.parse(path=(tmp_path / "nowhere").as_uri()).open()


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("s3://bucket/logs", {"region": "eu-west-1", "aws_access_key_id": "k", "aws_secret_access_key": "s"}),
        ("s3://bucket/logs", {"endpoint": "http://127.0.0.1:9", "allow_http": "true", "skip_signature": "true"}),
        ("gs://bucket/logs", {"skip_signature": "true"}),
        ("az://container/logs", {"account_name": "me", "skip_signature": "true"}),
    ],
)
def test_stores_are_opened_with_their_options(url: str, options: dict[str, str]) -> None:
    assert "Store(" in repr(open_store(url, options))


def test_an_option_that_the_store_does_not_have_is_named() -> None:
    with pytest.raises(InvalidRequest, match=r"storage\.colour: the object store s3://bucket/logs has no such option"):
        Location.parse(path="s3://bucket/logs", storage_options={"colour": "blue"})
    with pytest.raises(InvalidRequest, match=r"storage\.region is an option of object stores"):
        Location.parse(path="file:///tmp", storage_options={"region": "x"})


def test_a_store_that_does_not_answer_is_named() -> None:
    """No process listens on port 9; few retries make the test quick."""
    options = {"endpoint": "http://127.0.0.1:9", "allow_http": "true", "skip_signature": "true", "region": "x"}
    with pytest.raises(ServiceUnavailable, match="s3://bucket/logs cannot be read"):
        Location.parse(path="s3://bucket/logs", storage_options=options).open()
