"""Resolution of URI references: the examples of RFC 3986, section 5.4, and fragments."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.schema.jsonschema.model.uris import escaped, resolve, unescaped

BASE = "http://a/b/c/d;p?q"


@pytest.mark.parametrize(
    ("reference", "meant"),
    [
        ("g:h", "g:h"),
        ("g", "http://a/b/c/g"),
        ("./g", "http://a/b/c/g"),
        ("g/", "http://a/b/c/g/"),
        ("/g", "http://a/g"),
        ("//g", "http://g"),
        ("?y", "http://a/b/c/d;p?y"),
        ("g?y", "http://a/b/c/g?y"),
        (";x", "http://a/b/c/;x"),
        ("", "http://a/b/c/d;p?q"),
        (".", "http://a/b/c/"),
        ("./", "http://a/b/c/"),
        ("..", "http://a/b/"),
        ("../g", "http://a/b/g"),
        ("../..", "http://a/"),
        ("../../g", "http://a/g"),
        ("../../../g", "http://a/g"),
        ("/./g", "http://a/g"),
        ("/../g", "http://a/g"),
        ("g.", "http://a/b/c/g."),
        ("./g/.", "http://a/b/c/g/"),
        ("g/./h", "http://a/b/c/g/h"),
        ("g/../h", "http://a/b/c/h"),
    ],
)
def test_a_reference_is_resolved_as_the_standard_has_it(reference: str, meant: str) -> None:
    assert resolve(BASE, reference) == meant


@pytest.mark.parametrize(
    ("base", "reference", "meant"),
    [("", "a.json", "a.json"), ("a.json", "b.json", "b.json"), ("dir/a.json", "b.json", "dir/b.json"), ("a", "", "a")],
)
def test_names_that_are_no_addresses_are_resolved_too(base: str, reference: str, meant: str) -> None:
    assert resolve(base, reference) == meant


@given(st.text(), st.text())
def test_whatever_stands_there_has_some_meaning(base: str, reference: str) -> None:
    assert isinstance(resolve(base, reference), str)


@given(st.text())
def test_a_fragment_is_read_as_it_was_written(text: str) -> None:
    if text.isprintable():
        assert unescaped(escaped(text)) == text
        assert escaped(text).isascii()


def test_what_is_not_utf_8_is_no_fragment() -> None:
    assert unescaped("%ff") is None
    assert unescaped("%e2%82%ac") == "€"
    assert unescaped("%zz%4") == "%zz%4"
