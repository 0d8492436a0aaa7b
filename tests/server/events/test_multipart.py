from __future__ import annotations

import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import InvalidRequest, MalformedMessage
from penstock.server.events.multipart import HEAD_BYTES_MAX, BodyPart, boundary_of, parameter, parts

MARK = b"XyZ"
BODIES = st.lists(st.binary(max_size=80).filter(lambda body: b"--XyZ" not in body), min_size=1, max_size=5)


def composed(bodies: list[bytes], head: bytes = b"a: b\r\n") -> bytes:
    return b"".join(b"--XyZ\r\n" + head + b"\r\n" + body + b"\r\n" for body in bodies) + b"--XyZ--\r\n"


@given(BODIES)
def test_every_part_is_found_as_it_was_sent(bodies: list[bytes]) -> None:
    assert list(parts(composed(bodies), MARK)) == [BodyPart([(b"a", b"b")], body) for body in bodies]
    assert [part.body for part in parts(composed(bodies, head=b""), MARK)] == bodies


@given(BODIES, st.data())
def test_a_body_that_ends_too_early_is_refused_wherever_it_ends(bodies: list[bytes], data: st.DataObject) -> None:
    whole = composed(bodies)
    cut = data.draw(st.integers(0, len(whole) - len(b"--\r\n") - 1))
    with pytest.raises(MalformedMessage):
        list(parts(whole[:cut], MARK))


@given(st.binary(max_size=200))
def test_garbage_has_one_outcome(body: bytes) -> None:
    with suppress(MalformedMessage):
        assert list(parts(body, MARK))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "the boundary that Content-Type names is not in the body"),
        (b"--XyZ--\r\n", "the body has no parts"),
        (b"--XyZ\r\n\r\na\r\n--XyZ\r\n\r\nb", "part 2: the body ends within it"),
        (b"--XyZ garbage\r\n\r\na\r\n--XyZ--", "part 1: its boundary is not alone on its line"),
        (b"--XyZ\r\nno colon\r\n\r\na\r\n--XyZ--", "part 1: a line of its headers is not NAME: VALUE"),
        (b"--XyZ\r\na: b\r\n--XyZ--", "part 1: there is no empty line behind its headers"),
        (b"--XyZ\r\na: " + b"x" * HEAD_BYTES_MAX + b"\r\n\r\n\r\n--XyZ--", "part 1: its headers have more than"),
    ],
)
def test_what_is_wrong_is_told_with_the_number_of_the_part(body: bytes, said: str) -> None:
    with pytest.raises(MalformedMessage, match=said):
        list(parts(body, MARK))


def test_what_comes_before_and_after_is_for_people() -> None:
    assert [part.body for part in parts(b"hello\r\n" + composed([b"a"]) + b"bye", MARK)] == [b"a"]


def test_a_boundary_is_what_the_standard_allows() -> None:
    assert boundary_of('multipart/mixed; boundary="a b"') == b"a b"
    assert boundary_of("multipart/form-data; boundary=----x_1") == b"----x_1"
    for wrong in ("multipart/mixed", "multipart/mixed; boundary=", "multipart/mixed; boundary=" + "x" * 71):
        with pytest.raises(InvalidRequest):
            boundary_of(wrong)


def test_a_header_made_to_take_long_takes_no_time() -> None:
    began = time.process_time()
    assert parameter('multipart/mixed; a="' + ";" * 30_000, "boundary") is None
    assert time.process_time() - began < 1
    assert parameter('form-data; name="a\\"b"; filename=c', "name") == 'a"b'
