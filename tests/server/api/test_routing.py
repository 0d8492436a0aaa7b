from __future__ import annotations

from contextlib import suppress
from http import HTTPStatus
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.server.api.errors import JSON, PLAIN, HttpError, WrongMethod
from penstock.server.api.routing import (
    PUBLIC,
    Method,
    Parameter,
    Route,
    RouteTable,
    choice,
    flag,
    number,
    percent_decoded,
    read_query,
    text,
)


async def nothing(_call: object) -> None:
    """A handler that is never called: matching does not depend on it."""


def row(method: Method, path: str) -> Route:
    return Route(method=method, path=path, handler=nothing, about="", permission=PUBLIC)


ROUTES = (
    row(Method.GET, "/"),
    row(Method.GET, "/subjects"),
    row(Method.GET, "/subjects/{subject}/versions"),
    row(Method.POST, "/subjects/{subject}/versions"),
    row(Method.GET, "/subjects/{subject}/versions/{version}"),
    row(Method.GET, "/schemas/types"),
    row(Method.GET, "/schemas/ids/{version}"),
    row(Method.GET, "/v1/topics"),
    row(Method.POST, "/v1/topics"),
)
TABLE = RouteTable(ROUTES, {"subject": text("subject", "a name"), "version": number("version", "a number", at_least=1)})

subjects = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(lambda name: name.strip("/") == name)


def status_of(method: str, path: str) -> HTTPStatus:
    with pytest.raises(HttpError) as refused:
        TABLE.find(method, path)
    return refused.value.status


@given(subjects, st.integers(1, 2**31 - 1))
def test_any_name_is_found_again_however_it_is_escaped(name: str, version: int) -> None:
    everything = "".join(f"%{byte:02x}" for byte in name.encode())
    for escaped in (quote(name, safe=""), everything, everything.upper()):
        found, named = TABLE.find("GET", f"/subjects/{escaped}/versions/{version}")
        assert (found, named) == (ROUTES[4], {"subject": name, "version": version})


@given(st.text(st.characters(max_codepoint=0x7E, min_codepoint=0x21)))
def test_any_path_is_found_or_refused(path: str) -> None:
    with suppress(HttpError):
        assert TABLE.find("GET", path)[0] in ROUTES


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("/", 0),
        ("", 0),
        ("http://localhost:8081", 0),
        ("http://localhost:8081/subjects", 1),
        ("/subjects", 1),
        ("/subjects/", 1),
        ("/%73ubjects", 1),
        ("/subjects/a/versions/", 2),
        ("/subjects/versions/versions", 2),
        ("/schemas/types", 5),
    ],
)
def test_the_same_place_may_be_written_in_several_ways(path: str, place: int) -> None:
    assert TABLE.find("GET", path)[0] is ROUTES[place]


@pytest.mark.parametrize(
    "path", ["/nowhere", "/subjects//versions", "/subjects/a/b", "/Subjects", "*", "/schemas", "/subjects/a%2Fversions"]
)
def test_what_has_no_row_is_not_found(path: str) -> None:
    assert status_of("GET", path) == 404


@pytest.mark.parametrize("method", ["POST", "PATCH", "OPTIONS", "get", ""])
def test_another_method_is_not_found_either(method: str) -> None:
    assert status_of(method, "/subjects") == 404


@pytest.mark.parametrize("method", ["PATCH", "OPTIONS", "get", ""])
def test_another_method_of_what_is_our_own_is_not_allowed_and_those_are_named_that_are(method: str) -> None:
    with pytest.raises(WrongMethod, match="only GET, HEAD, POST") as refused:
        TABLE.find(method, "/v1/topics/")
    answer = PLAIN.refuse(refused.value, JSON)
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD, POST")
    assert status_of(method, "/v1/nowhere") == 404


def test_head_is_where_get_is() -> None:
    assert TABLE.find("HEAD", "/subjects")[0] is ROUTES[1]
    assert TABLE.find("POST", "/subjects/a/versions")[0] is ROUTES[3]


@pytest.mark.parametrize("raw", ["%", "%2", "%zz", "a%2gb", "%%41", "%ff", "%c3", "%ed%a0%80", "%u0041", "% 41"])
def test_bad_escapes_are_refused(raw: str) -> None:
    for path in (f"/subjects/{raw}/versions", f"/{raw}"):
        assert status_of("GET", path) == 400
    with pytest.raises(HttpError):
        percent_decoded(raw)


KNOWN = (
    flag("deleted", "true or false"),
    flag("deletedOnly", "true or false", alias="deleted_only"),
    number("limit", "how many", -1, at_least=-1),
    text("subject", "a name"),
)


@pytest.mark.parametrize(
    ("query", "changed"),
    [
        ("", {}),
        ("deleted=true", {"deleted": True}),
        ("deleted=TRUE&deletedOnly=False", {"deleted": True}),
        ("deleted_only=True", {"deletedOnly": True}),
        ("deleted=true&deleted=false", {"deleted": True}),
        ("limit=-1", {}),
        ("limit=007", {"limit": 7}),
        ("subject=a%2Fb+c%2B", {"subject": "a/b c+"}),
        ("subject=", {}),
        ("unknown=1&DELETED=true&&=&x", {}),
    ],
)
def test_parameters_are_read_and_others_are_ignored(query: str, changed: dict[str, object]) -> None:
    assert read_query(query, KNOWN) == {"deleted": False, "deletedOnly": False, "limit": -1, "subject": ""} | changed


def test_where_only_those_are_taken_others_are_refused_with_the_names_there_are() -> None:
    assert read_query("deleted_only=true&limit=3&&=", KNOWN, only=True)["limit"] == 3
    with pytest.raises(
        HttpError, match="'limits' is no parameter of this: there are deleted, deletedOnly, l"
    ) as refused:
        read_query("deleted=true&limits=3", KNOWN, only=True)
    assert refused.value.status == 422
    assert refused.value.details == {"field": "limits", "known": ["deleted", "deletedOnly", "limit", "subject"]}
    with pytest.raises(HttpError, match="there are none"):
        read_query("x", (), only=True)


@pytest.mark.parametrize(
    ("parameter", "wanted"),
    [
        (KNOWN[0], "true or false"),
        (KNOWN[2], "a whole number from -1 to 2147483647"),
        (choice("lines", "what a line is", ("message", "payload"), "message"), "one of message, payload"),
    ],
)
def test_what_is_wrong_is_told_with_what_is_allowed(parameter: Parameter, wanted: str) -> None:
    with pytest.raises(HttpError, match=f"='x' is wrong: {wanted}; {parameter.about}$"):
        parameter.read("x")


@pytest.mark.parametrize(
    "query",
    ["deleted", "deleted=", "deleted=1", "deleted=yes", "limit=-2", "limit=+1", "limit=1_0", "limit=２", "limit=1.0",
     "limit=2147483648", "limit=99999999999999999999", "limit=", "limit=0x1"],
)  # fmt: skip
def test_a_known_parameter_that_is_wrong_is_refused_by_name(query: str) -> None:
    with pytest.raises(HttpError) as refused:
        read_query(query, KNOWN)
    assert refused.value.status == 422
    assert refused.value.details["field"] == query.partition("=")[0]
