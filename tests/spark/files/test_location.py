"""Locations of files: options, refusals and their words, and pickling."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from tests.spark.log_kit import ORDERS, everything, make_data

from penstock.core.errors import InvalidRequest
from penstock.spark.files.location import Location
from penstock.storage.inspect.data_reader import DataReader


def test_a_directory_is_absolute_wherever_it_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert Location.parse(path="data").uri == str(tmp_path / "data")
    assert Location.parse(path="~/data").uri == str(tmp_path / "home/data")
    assert Location.parse(path="/data/").directory == Path("/data")


def test_urls_lose_their_last_slash_and_nothing_else() -> None:
    assert Location.parse(path="s3://bucket/logs/").uri == "s3://bucket/logs"
    assert Location.parse(url="http://127.0.0.1:8081/").uri == "http://127.0.0.1:8081"
    assert Location.parse(url="https://broker.example/penstock/").uri == "https://broker.example/penstock"


def test_it_knows_whether_it_is_a_directory_an_object_store_or_a_broker() -> None:
    assert Location.parse(path="file:///data%20here").directory == Path("/data here")
    assert Location.parse(path="gs://bucket/logs").directory is None
    assert Location.parse(url="http://127.0.0.1:1").is_broker
    assert not Location.parse(path="s3://bucket").is_broker


def test_it_travels_and_is_the_same_whatever_the_order_of_the_options() -> None:
    one = Location.parse(path="s3://bucket/x", storage_options={"region": "eu-1", "endpoint": "http://e"})
    two = Location.parse(path="s3://bucket/x", storage_options={"endpoint": "http://e", "region": "eu-1"})
    assert pickle.loads(pickle.dumps(one)) == one == two
    assert hash(one) == hash(two)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "neither path nor url is given"),
        ({"path": ""}, "neither path nor url is given"),
        ({"path": "/data", "url": "http://h:1"}, "path='/data' and url='http://h:1' are given"),
        ({"path": "http://h:1"}, "path='http://h:1' is a broker's address: give it as url"),
        ({"path": "ftp://h/data"}, "path='ftp://h/data': files are read from a directory, or from s3://"),
        ({"path": "memory://x"}, "path='memory://x': files are read"),
        ({"path": "file://data"}, "written file:///data"),
        ({"url": "127.0.0.1:8081"}, "http://HOST:PORT"),
        ({"url": "tcp://127.0.0.1:7450"}, "http://HOST:PORT"),
        ({"url": "http://"}, "http://HOST:PORT"),
        ({"url": "http://h:99999"}, "url='http://h:99999' is no address"),
        ({"url": "http://me:secret@h:1"}, "nothing but the address"),
        ({"path": "/data", "storage_options": {"region": "x"}}, "storage.region is an option of object stores"),
        ({"url": "http://h:1", "storage_options": {"region": "x"}}, "storage.region is no option of a broker: tls_ca"),
    ],
)
def test_what_cannot_be_is_refused_with_the_option_that_is_wrong(options: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        Location.parse(**options)  # type: ignore[arg-type]
    assert words in caught.value.message


def test_certificates_for_a_broker_may_be_given_wherever_the_files_are(tmp_path: Path) -> None:
    root = make_data(tmp_path / "data")
    for path in (str(root), root.as_uri()):
        location = Location.parse(path=path, storage_options={"tls_ca": "ca.pem"})
        assert location.storage_options == (("tls_ca", "ca.pem"),)
        assert len(location.open().topics()) == 2


def test_opened_it_reads_what_a_plain_reader_reads(tmp_path: Path) -> None:
    root = make_data(tmp_path / "data", dropped=70)
    assert everything(Location.parse(path=str(root)).open()) == everything(DataReader(root))


def test_topics_that_were_copied_without_the_rest_can_be_read(tmp_path: Path) -> None:
    root = make_data(tmp_path / "data")
    (tmp_path / "copy").mkdir()
    (root / "topics").rename(tmp_path / "copy/topics")
    found = Location.parse(path=str(tmp_path / "copy")).open()
    assert found.topic(ORDERS).partition(0).view.next_offset == 300


@pytest.mark.parametrize("where", ["missing", "empty"])
def test_a_place_without_logs_is_refused_by_name(tmp_path: Path, where: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidRequest, match=rf"{tmp_path / where} is not a Penstock data directory"):
        Location.parse(path=str(tmp_path / where)).open()
