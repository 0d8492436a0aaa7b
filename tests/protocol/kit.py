"""Wire text made for tests: ids, headers right and wrong, frames in any pieces."""

from __future__ import annotations

import itertools
import re
import string
from collections.abc import Iterable

from hypothesis import strategies as st

from penstock.core.errors import PenstockError
from penstock.core.limits import TOPIC_LEVELS_MAX
from penstock.protocol.actions import ACTION_RULES, Action
from penstock.protocol.frames import Frame, RejectedFrame
from penstock.protocol.header import HEADER_BYTES_MAX, Header, header, serialise

ID = "00000000-0000-4000-8000-000000000001"
PARENT = "ABCDEFab-cdef-4ABC-bDEF-0123456789aB"
TIMEOUT_MS_MAX = 3_600_000

UUID4 = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-4[0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}", re.ASCII)


def is_uuid4(text: str) -> bool:
    return UUID4.fullmatch(text) is not None


# Headers that are right


def _uuid4(bits: int, upper: bool) -> str:
    digits = f"{bits:032x}"
    variant = "89ab"[bits & 3]
    text = f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"
    return text.upper() if upper else text


uuids = st.builds(_uuid4, st.integers(0, 2**128 - 1), st.booleans())
levels = st.builds(
    str.__add__, st.sampled_from(string.ascii_letters), st.text(string.ascii_letters + string.digits, max_size=6)
)
namespaces = st.one_of(st.just(""), st.text(string.ascii_letters + "_-09", min_size=1, max_size=8).map("/{}/".format))
topics = st.builds(str.__add__, namespaces, st.lists(levels, min_size=1, max_size=TOPIC_LEVELS_MAX).map(".".join))
patterns = st.builds(
    lambda space, places, rest: space + ".".join([*places, *rest][:TOPIC_LEVELS_MAX]),
    namespaces,
    st.lists(st.one_of(levels, st.just("+")), min_size=1, max_size=TOPIC_LEVELS_MAX),
    st.sampled_from([[], ["#"]]),
)
numbers = st.integers(0, 999_999).map(str)
versions = st.tuples(numbers, numbers, numbers).map(".".join)


@st.composite
def headers(draw: st.DrawFn) -> Header:
    action = draw(st.sampled_from(Action))
    topic = draw(st.one_of(topics, patterns) if ACTION_RULES[action].takes_pattern else topics)
    timeout = st.one_of(st.none(), st.integers(1, TIMEOUT_MS_MAX)) if ACTION_RULES[action].takes_timeout else st.none()
    return header(
        action,
        topic,
        draw(versions),
        draw(st.one_of(st.none(), uuids)),
        draw(st.one_of(st.none(), uuids)),
        draw(timeout),
    )


# Bytes that arrive


def framed(message: bytes) -> bytes:
    return len(message).to_bytes(4, "big") + message


def cut(data: bytes, places: Iterable[int]) -> list[bytes]:
    """The bytes in pieces, cut at these places; some pieces may be empty."""
    edges = [0, *sorted(min(place, len(data)) for place in places), len(data)]
    return [data[start:stop] for start, stop in itertools.pairwise(edges)]


def plain(item: Frame | RejectedFrame) -> object:
    """Something that can be compared: errors are not equal to each other, their facts are."""
    if isinstance(item, Frame):
        return item
    return facts(item.error), item.salvage, item.fatal


def facts(error: PenstockError) -> tuple[type[PenstockError], str, dict[str, object]]:
    return type(error), error.message, error.details


# Messages of all kinds, small enough that a few of them meet every limit

PAYLOAD_BYTES_MAX = 40
"""A limit for tests. The longest header is ten times that: oversize payloads fit into a frame that is not too long."""

HEADS = [
    "publish:a.b:1.0.0",
    "PUBLISH:a.b:1.0.0",
    "publish:A.b:1.0.0",
    "publish:a.b:1.0.1",
    "publish:a.bc:1.0.0",
    "publish:/shop/orders.created:10.20.30",
    "publish:system.x:1.0.0",
    "request:a.b:1.0.0",
    "response:#:1.0.0",
    "ack:a.b:1.0.0",
]
BROKEN_HEADS = [
    "",
    ":",
    "publish",
    "publish:",
    "publish:a.b",
    "publish:a.b:",
    "publish:a.b:1.0",
    "publish:a..b:1.0.0",
    "publish:+:1.0.0",
    "pub:a.b:1.0.0",
    "publish:a.b:1.0.0 ",
    "publish:é:1.0.0",
    "publish:::",
]
TAILS = [
    "",
    f":{ID}",
    f":{PARENT}",
    f":{ID}:{PARENT}",
    f"::{PARENT}",
    f":{ID}::500",
    ":",
    "::",
    f":{ID}:",
    f":{ID[:-1]}x",
    ":::::",
]
BROKEN_IDS = [ID[:-1] + "g", ID.replace("-4", "-5", 1), ID.replace("-8", "-c", 1), ID.replace("-", "0"), ID[:-1] + ":"]

payloads = st.binary(max_size=6) | st.sampled_from(
    [b"\n", b"\n\n", b"publish:a.b:1.0.0\n", *(b"x" * (PAYLOAD_BYTES_MAX + extra) for extra in (-1, 0, 1, 100))]
)
heads = st.sampled_from(HEADS[:3]) | st.sampled_from(HEADS) | st.sampled_from(BROKEN_HEADS)
tails = (
    st.sampled_from(TAILS[:2])
    | st.sampled_from(TAILS)
    | st.sampled_from(BROKEN_IDS).map(":{}".format)
    | uuids.map(":{}".format)
)
common_messages = st.builds(lambda head, tail, payload: f"{head}{tail}\n".encode() + payload, heads, tails, payloads)
other_messages = st.one_of(
    headers().flatmap(lambda each: payloads.map(lambda payload: serialise(each) + b"\n" + payload)),
    st.binary(max_size=60),
    st.builds(lambda head, tail: f"{head}{tail}".encode(), heads, tails),  # no newline
    st.integers(-2, 40).map(lambda extra: b"publish:" + b"a" * (HEADER_BYTES_MAX - 8 + extra) + b"\n"),
    st.integers(-2, 2).map(
        lambda extra: b"publish:a.b:1.0.0:".ljust(HEADER_BYTES_MAX + extra, b"x") + b"\n" + b"p" * 40
    ),
    st.integers(-2, 2).map(lambda extra: f"publish:a.b:1.0.0:{ID}".encode().ljust(HEADER_BYTES_MAX + extra, b":")),
)
messages = st.one_of(common_messages, common_messages, other_messages)
FRAME_BYTES_MAX = HEADER_BYTES_MAX + 1 + PAYLOAD_BYTES_MAX
fitting_messages = messages.filter(lambda message: len(message) <= FRAME_BYTES_MAX)
"""Messages that keep the framing intact."""
