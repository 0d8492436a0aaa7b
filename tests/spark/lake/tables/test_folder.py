"""Folders of a warehouse: a directory and an object store behave alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.core.errors import InvalidRequest
from penstock.spark.lake.tables.folder import Folder


@pytest.fixture(params=["local", "store"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    return Folder(str(tmp_path)) if request.param == "local" else Folder(f"file+store://{tmp_path}")


def test_a_new_file_is_made_once(where: Folder) -> None:
    assert where.put_new("a/b/c.json", b"one")
    assert not where.put_new("a/b/c.json", b"two")
    assert where.read("a/b/c.json") == b"one"
    assert [each.path for each in where.list()] == ["a/b/c.json"]


def test_what_is_written_can_be_read_in_any_order(where: Folder) -> None:
    with where.create("a/file") as out:
        out.write(b"0123456789" * 1000)
        assert out.tell() == 10_000
    with where.open("a/file") as source:
        source.seek(9_995)
        assert bytes(source.read(10)) == b"56789"
        source.seek(3)
        assert bytes(source.read(2)) == b"34"
    assert where.size("a/file") == 10_000
    assert where.size("a/other") is None


def test_files_are_listed_below_a_folder_and_deleted(where: Folder) -> None:
    for name in ("a/x", "a/y", "b/z"):
        where.put_new(name, b"1")
    assert sorted(each.path for each in where.list("a/")) == ["a/x", "a/y"]
    where.delete(["a/x", "b/z"])
    where.delete(["b/z"] if where.is_local else [])
    assert [each.path for each in where.list()] == ["a/y"]
    assert list(where.list("nothing/")) == []


def test_what_cannot_be_a_warehouse_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"warehouse 'ftp://x/y': expected a directory, or one of s3://"):
        Folder.parse("ftp://x/y")
    with pytest.raises(InvalidRequest, match="storage options are for object stores"):
        Folder.parse(str(tmp_path), {"aws_region": "x"})
    assert Folder.parse("s3://bucket/lake/", {"region": "eu", "allow_http": "true"}) == Folder(
        "s3://bucket/lake", (("allow_http", "true"), ("region", "eu"))
    )
    assert Folder.parse(tmp_path.as_uri()) == Folder(str(tmp_path))
