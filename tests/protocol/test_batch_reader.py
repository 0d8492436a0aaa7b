"""Blocks: the reader of many messages gives what the reader of one gives; batches say what plain Python would."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.protocol.kit import (
    HEADS,
    ID,
    PARENT,
    PAYLOAD_BYTES_MAX,
    cut,
    fitting_messages,
    framed,
    is_uuid4,
    messages,
    payloads,
    plain,
    uuids,
)

from penstock.core.errors import InvalidRequest, PayloadTooLarge
from penstock.core.ids import format_id, id_bytes
from penstock.core.limits import GIB, MIB
from penstock.protocol.actions import Action
from penstock.protocol.batch_reader import (
    _ROWS,
    BatchReader,
    PublishBatch,
    Scratch,
    is_single_frame,
    publish_frames,
    warm_up,
)
from penstock.protocol.frames import Frame, FrameLimits, FrameReader, RejectedFrame, parse_message
from penstock.protocol.header import HEADER_BYTES_MAX, Head, SalvagedHeader
from penstock.record.block import EMPTY_BLOCK, Draft, parse_block
from penstock.record.kernels.frame_kernels import HEADS_MAX
from penstock.record.message import Message

LIMITS = FrameLimits(payload_bytes_max=PAYLOAD_BYTES_MAX)
SCRATCH = Scratch()
FIRST_ID = "11111111-2222-4333-8444-0000000000ff"


def frames_of(batch: PublishBatch) -> list[Frame]:
    """The batch taken apart, message by message."""
    found = []
    for message in batch.messages():
        item = parse_message(message, FrameLimits())
        assert isinstance(item, Frame)
        found.append(item)
    return found


def flat(items: Iterable[PublishBatch | Frame | RejectedFrame]) -> list[object]:
    found: list[object] = []
    for item in items:
        if isinstance(item, PublishBatch):
            check(item)
            found += frames_of(item)
        else:
            found.append(plain(item))
    return found


def check(batch: PublishBatch) -> None:
    """Check that a batch's numbers agree with its messages."""
    inside = frames_of(batch)
    sizes = [len(frame.payload) for frame in inside]
    assert len(batch) == len(inside) > 0
    assert {frame.header.action for frame in inside} == {Action.PUBLISH}
    assert (batch.payload_bytes, batch.largest_bytes) == (sum(sizes), max(sizes))
    counted: Counter[Head] = Counter()
    for _, head, count in batch.counts():
        counted[head] += count  # spelled differently, it may be there twice
    assert counted == Counter(frame.header.head for frame in inside)
    assert frames_of(batch.expecting_answers()) == [frame for frame in inside if frame.header.request_id is not None]


def by_block(pieces: list[bytes], limits: FrameLimits = LIMITS) -> list[object]:
    reader = BatchReader(limits, SCRATCH)
    return [item for piece in pieces for item in flat(reader.receive_data(piece))]


def one_by_one(pieces: list[bytes], limits: FrameLimits = LIMITS) -> list[object]:
    reader = FrameReader(limits)
    found: list[object] = []
    for piece in pieces:
        reader.receive_data(piece)
        while (item := reader.next_frame()) is not None:
            found.append(plain(item))
            if isinstance(item, RejectedFrame) and item.fatal:
                return found
    return found


def batches(data: bytes, limits: FrameLimits = LIMITS) -> list[PublishBatch]:
    return [item for item in BatchReader(limits, SCRATCH).receive_data(data) if isinstance(item, PublishBatch)]


def one_batch(*given_messages: bytes) -> PublishBatch:
    (only,) = batches(b"".join(map(framed, given_messages)))
    return only


too_long = st.sampled_from([LIMITS.frame_bytes_max + 1, 2**31, 2**32 - 1])
endings = st.one_of(
    st.just(b""),
    st.binary(max_size=30),
    st.builds(lambda size, after: size.to_bytes(4, "big") + after, too_long, messages | st.binary(max_size=10)),
)
places = st.lists(st.integers(0, 900), max_size=12)


# The same as one by one


@given(st.lists(messages, max_size=10), endings, places)
@settings(max_examples=600)
def test_both_readers_give_the_same_of_the_same_pieces(
    given_messages: list[bytes], ending: bytes, where: list[int]
) -> None:
    pieces = cut(b"".join(map(framed, given_messages)) + ending, where)
    assert by_block(pieces) == one_by_one(pieces)


@given(st.lists(fitting_messages, max_size=10), places, places)
@settings(max_examples=200)
def test_any_split_or_merge_of_the_bytes_gives_the_same(
    given_messages: list[bytes], one: list[int], other: list[int]
) -> None:
    data = b"".join(map(framed, given_messages))
    assert by_block(cut(data, one)) == by_block(cut(data, other)) == one_by_one([data])


@given(st.lists(fitting_messages, max_size=4), too_long, messages, places, places)
def test_only_what_is_saved_of_a_lost_frame_may_depend_on_how_much_of_it_had_come(
    given_messages: list[bytes], size: int, after: bytes, one: list[int], other: list[int]
) -> None:
    data = b"".join(map(framed, given_messages)) + size.to_bytes(4, "big") + after
    (*first, (error, _, fatal)), (*second, (other_error, _, other_fatal)) = (  # type: ignore[misc]
        by_block(cut(data, where)) for where in (one, other)
    )
    assert (first, error, fatal) == (second, other_error, other_fatal)  # type: ignore[has-type]


@given(st.lists(st.tuples(st.sampled_from(HEADS[:4]), uuids | st.none(), payloads), max_size=40), places)
@settings(max_examples=200)
def test_long_batches_are_taken_apart_into_what_was_sent(
    given_messages: list[tuple[str, str | None, bytes]], where: list[int]
) -> None:
    data = b"".join(
        framed(f"{head}{'' if each is None else f':{each}'}\n".encode() + payload)
        for head, each, payload in given_messages
    )
    pieces = cut(data, where)
    assert by_block(pieces) == one_by_one(pieces)


@given(st.lists(st.binary(max_size=30), max_size=20))
def test_bytes_without_any_meaning_are_judged_alike(pieces: list[bytes]) -> None:
    assert by_block(pieces) == one_by_one(pieces)


@pytest.mark.parametrize("step", [1, 2, 3, 5, 7, 64])
def test_pieces_of_any_size_give_the_same(step: int) -> None:
    made = [f"publish:a.b:1.0.0:{ID}\n{n}".encode() for n in range(5)]
    made += [b"", b"publish", b"publish:a.b:1.0.0\n", b"bogus\n", f"request:a.b:1.0.0:{ID}\n".encode()]
    data = b"".join(map(framed, made * 3))
    pieces = [data[place : place + step] for place in range(0, len(data), step)]
    assert by_block(pieces) == one_by_one([data])


def test_what_is_complete_comes_at_once_and_half_a_frame_waits() -> None:
    reader = BatchReader(LIMITS, SCRATCH)
    data = framed(b"publish:a.b:1.0.0\nx")
    for piece, count in ((data[:3], 0), (data[3:] + data + data[:9], 2), (data[9:], 1)):
        assert flat(reader.receive_data(piece)) == one_by_one([data] * count)


@pytest.mark.parametrize("count", [_ROWS - 1, _ROWS, _ROWS + 1, 2 * _ROWS, 2 * _ROWS + 3])
def test_more_messages_than_there_are_rows_are_all_read(count: int) -> None:
    pool = [f"publish:a.b:1.0.0:{ID}\n".encode(), b"publish:a.b:1.0.0\n", b"bogus\n"]
    made = [pool[0 if n < 5000 else n % 3] + str(n).encode() for n in range(count)]
    data = b"".join(map(framed, made))
    found = by_block([data[:100], data[100:]])
    assert found == one_by_one([data])
    assert len(found) == count


def test_two_readers_may_share_a_scratch_as_long_as_they_take_turns() -> None:
    one, other = (BatchReader(LIMITS, SCRATCH) for _ in range(2))
    data = framed(b"publish:a.b:1.0.0\nx") * 3
    assert flat(one.receive_data(data[:30])) == one_by_one([data[:30]])
    assert flat(other.receive_data(data)) == one_by_one([data])
    assert flat(one.receive_data(data[30:])) == one_by_one([data])[1:]


# What stays together


def test_published_messages_of_any_topics_are_one_batch() -> None:
    data = b"".join(framed(f"publish:a.b{n % 7}:1.0.0:{ID}\n{n}".encode()) for n in range(100))
    (batch,) = batches(data)
    assert len(batch) == 100
    assert [(head.topic, count) for _, head, count in batch.counts()] == [(f"a.b{n}", 15 - (n > 1)) for n in range(7)]


def test_a_batch_ends_where_something_else_comes() -> None:
    made = [
        "publish:a.b:1.0.0\n",
        f"publish:a.c:1.0.0:{ID}\n",
        f"publish:a.b:1.0.1:{PARENT}:{ID}\n",
        f"publish:a.b:1.0.1:{PARENT}\n",
        "Publish:a.b:1.0.1\n",
        "request:a.b:1.0.0\n",
        "bogus\n",
        "publish:a.b:1.0.0\n",
    ]
    items = list(BatchReader(LIMITS, SCRATCH).receive_data(b"".join(framed(each.encode()) for each in made)))
    assert [len(item) if isinstance(item, PublishBatch) else 0 for item in items] == [2, 0, 2, 0, 0, 1]


@pytest.mark.parametrize("distinct", [HEADS_MAX - 1, HEADS_MAX, HEADS_MAX + 1, 3 * HEADS_MAX])
def test_more_heads_than_a_split_can_hold_are_all_read(distinct: int) -> None:
    data = b"".join(framed(f"publish:a.b{n % distinct}:1.0.0\n{n}".encode()) for n in range(2 * distinct))
    assert by_block([data]) == one_by_one([data])


@pytest.mark.parametrize("first", ["publish:a.b\n", "publish\n", ":\n", "\n", f"publish:a.b:{ID}\n"])
def test_a_broken_message_does_not_spoil_the_batch_behind_it(first: str) -> None:
    data = framed(first.encode()) + framed(b"publish:a.b:1.0.0\n") * 10
    assert by_block([data]) == one_by_one([data])
    assert [len(batch) for batch in batches(data)] == [10]


def test_one_message_alone_is_a_frame() -> None:
    data = framed(b"publish:a.b:1.0.0\n")
    assert is_single_frame(data, LIMITS)
    (item,) = BatchReader(LIMITS, SCRATCH).receive_data(data)
    assert isinstance(item, Frame)


@given(st.binary(max_size=8) | messages.map(framed), st.binary(max_size=3))
def test_one_frame_is_exactly_one_frame(data: bytes, more: bytes) -> None:
    whole = data + more
    size = int.from_bytes(whole[:4], "big")
    assert is_single_frame(whole, LIMITS) == (len(whole) == 4 + size and size <= LIMITS.frame_bytes_max)


@given(st.lists(st.sampled_from(HEADS[:6]), min_size=2, max_size=20), st.data())
def test_a_part_of_a_batch_is_a_batch(heads: list[str], data: st.DataObject) -> None:
    batch = one_batch(*(f"{head}\n{n}".encode() for n, head in enumerate(heads)))
    inside = frames_of(batch)
    wanted = np.array([data.draw(st.booleans()) for _ in heads])
    part = batch.selected(wanted)
    assert frames_of(part) == [frame for frame, kept in zip(inside, wanted, strict=True) if kept]
    numbers = [number for number, _, _ in batch.counts() if data.draw(st.booleans())]
    chosen = sorted(place for number in numbers for place in batch.rows_with_head(number).tolist())
    assert frames_of(batch.with_heads(numbers)) == [inside[place] for place in chosen]
    for number, head, count in batch.counts():
        assert [inside[place].header.head for place in batch.rows_with_head(number).tolist()] == [head] * count


# What a batch says


def id_of(first: str, start: int) -> str:
    """The broker's id of the message that begins there."""
    return f"{first[:-12]}{int(first[-12:], 16) + start:012x}"


def starts(given_messages: list[bytes]) -> list[int]:
    """Where in the buffer each message begins."""
    return [4 + sum(4 + len(each) for each in given_messages[:place]) for place in range(len(given_messages))]


first_ids = uuids.map(lambda text: text.lower()[:-12] + "0" * 2 + text.lower()[-10:])
sent_messages = st.lists(
    st.tuples(st.sampled_from(HEADS[:6]), st.none() | uuids, st.binary(max_size=PAYLOAD_BYTES_MAX)),
    min_size=2,
    max_size=30,
)


def read(data: bytes) -> list[Frame]:
    reader = FrameReader()
    reader.receive_data(data)
    found = []
    while (item := reader.next_frame()) is not None:
        assert isinstance(item, Frame)
        found.append(item)
    return found


def raw(head: str, request_id: str | None, payload: bytes) -> bytes:
    return f"{head}{'' if request_id is None else f':{request_id}'}\n".encode() + payload


@given(sent_messages, first_ids)
def test_deliveries_are_what_plain_python_would_compose(
    sent: list[tuple[str, str | None, bytes]], first_id: str
) -> None:
    made = [raw(*each) for each in sent]
    assert one_batch(*made).delivery_frames(first_id) == b"".join(
        framed(f"publish:{head.partition(':')[2]}:{id_of(first_id, start)}\n".encode() + payload)
        for (head, _, payload), start in zip(sent, starts(made), strict=True)
    )


@given(sent_messages, st.binary(max_size=60), first_ids)
def test_answers_go_under_the_ids_that_came_and_else_under_the_brokers(
    sent: list[tuple[str, str | None, bytes]], payload: bytes, first_id: str
) -> None:
    made = [raw(*each) for each in sent]
    assert one_batch(*made).answer_frames(first_id, payload) == b"".join(
        framed(f"response:{head.partition(':')[2]}:{given_id or id_of(first_id, start)}\n".encode() + payload)
        for (head, given_id, _), start in zip(sent, starts(made), strict=True)
    )


def test_a_message_has_the_same_id_for_all_who_get_it() -> None:
    made = [f"publish:a.b{n % 3}:1.0.0\n{n}".encode() for n in range(9)]
    batch = one_batch(*made)
    whole, part = (set(read(each.delivery_frames(FIRST_ID))) for each in (batch, batch.with_heads([1])))
    assert part < whole


def test_the_ids_of_deliveries_are_valid_and_distinct() -> None:
    data = framed(b"publish:a.b:1.0.0\n") * 5000
    ids: list[str] = []
    for batch in BatchReader(LIMITS, SCRATCH).receive_data(data):
        assert isinstance(batch, PublishBatch)
        delivered = read(batch.delivery_frames("11111111-2222-4333-8444-00fffffff000"))
        ids += [frame.header.request_id or "" for frame in delivered]
    assert all(map(is_uuid4, ids))
    assert len(set(ids)) == 5000


def test_an_empty_part_says_nothing() -> None:
    batch = one_batch(*[b"publish:a.b:1.0.0\n"] * 3)
    empty = batch.selected(np.zeros(3, np.bool_))
    assert empty.delivery_frames(FIRST_ID) == empty.answer_frames(FIRST_ID, b"x") == b""
    assert empty.receipt_frames(partition=0, first_offset=0, first_ticks=0, id_low=0) == b""
    with pytest.raises(InvalidRequest, match="at least one message"):
        empty.draft(b"")


# On the way to the log and back


def test_a_batch_that_is_kept_does_not_depend_on_the_reader() -> None:
    reader = BatchReader(LIMITS, SCRATCH)
    made = [raw(HEADS[n % 4], ID if n % 3 else None, b"%d" % n) for n in range(20)]
    (batch,) = reader.receive_data(b"".join(map(framed, made)))
    assert isinstance(batch, PublishBatch)
    kept, part = batch.copy(), batch.with_heads([0, 2]).copy()
    inside, chosen = frames_of(kept), frames_of(part)
    list(reader.receive_data(framed(b"publish:c:9.9.9\nother") * 30))
    assert list(batch.messages()) != list(kept.messages())
    assert frames_of(kept) == inside == [parse_message(each, FrameLimits()) for each in made]
    assert frames_of(part) == chosen
    check(kept)
    check(part)


@given(sent_messages, st.text(max_size=20))
def test_a_batch_becomes_a_draft_of_its_payloads(sent: list[tuple[str, str | None, bytes]], name: str) -> None:
    draft = one_batch(*(raw(*each) for each in sent)).draft(name.encode())
    expected = Draft.of([Message(payload=payload, producer_name=name) for _, _, payload in sent])
    assert draft.data.tobytes() == expected.data
    assert draft.count == len(parse_block(draft.data, verify=False)) == len(sent)


def test_a_part_of_a_batch_becomes_a_draft_of_that_part() -> None:
    batch = one_batch(*(f"publish:a.b{n % 2}:1.0.0\n{n}".encode() for n in range(9)))
    block = parse_block(batch.with_heads([1]).copy().draft(b"x" * 255).data, verify=False)
    assert [record.message for record in block] == [
        Message(payload=b"%d" % n, producer_name="x" * 255) for n in (1, 3, 5, 7)
    ]


def test_a_payload_as_large_as_they_get_becomes_a_record() -> None:
    data = (framed(b"publish:a:1.0.0\n" + b"x" * MIB) + framed(b"publish:a:1.0.0\n")) * 2
    (batch,) = batches(data, FrameLimits())
    block = parse_block(batch.draft(b"").data, verify=False)
    assert [len(record.message.payload) for record in block] == [MIB, 0, MIB, 0]


@pytest.mark.parametrize(("name", "kind"), [(b"x" * 256, PayloadTooLarge), (b"\xff", InvalidRequest)])
def test_a_name_that_no_producer_can_have_makes_no_draft(name: bytes, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="producer_name"):
        one_batch(b"publish:a:1.0.0\n", b"publish:a:1.0.0\n").draft(name)


@given(
    sent_messages,
    st.integers(0, 1023),
    st.integers(0, 2**63 - 100) | st.sampled_from([0, 5, 95, 9_990]),
    st.integers(0, 2**60 - 100),
    st.integers(0, 2**64 - 1),
)
def test_receipts_say_where_each_message_lies(
    sent: list[tuple[str, str | None, bytes]], partition: int, offset: int, ticks: int, low: int
) -> None:
    batch = one_batch(*(raw(*each) for each in sent))
    expected = b"".join(
        framed(
            f"response:{head.partition(':')[2]}:{given_id}\n"
            f'{{"partition":{partition},"offset":{offset + place},'
            f'"id":"{format_id(id_bytes(ticks + place, low))}","duplicate":false}}'.encode()
        )
        for place, (head, given_id, _) in enumerate(sent)
        if given_id is not None
    )
    found = batch.receipt_frames(partition=partition, first_offset=offset, first_ticks=ticks, id_low=low)
    assert found == expected


def test_receipts_of_a_part_count_the_messages_of_that_part() -> None:
    made = [f"publish:a.b{n % 2}:1.0.0:{ID}\n" if n > 2 else f"publish:a.b{n % 2}:1.0.0\n" for n in range(7)]
    part = one_batch(*map(str.encode, made)).with_heads([1])
    found = read(part.receipt_frames(partition=1, first_offset=10, first_ticks=0, id_low=0))
    assert [frame.payload.split(b",")[1] for frame in found] == [b'"offset":11', b'"offset":12']


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=20), first_ids)
def test_records_are_published_under_ids_that_count_up(given_payloads: list[bytes], first_id: str) -> None:
    block = parse_block(Draft.of_payloads(given_payloads, type="t", producer_name="n", keys=given_payloads).data)
    assert publish_frames(block, "a.b", "1.0.0", first_id) == b"".join(
        framed(f"publish:a.b:1.0.0:{id_of(first_id, place)}\n".encode() + payload)
        for place, payload in enumerate(given_payloads)
    )


def test_published_records_are_frames_like_any_other() -> None:
    block = parse_block(Draft.of_payloads([b"%d" % n for n in range(5_000)]).data)
    found = read(publish_frames(block.select(7, 4_000), "/shop/orders.created", "10.20.30", FIRST_ID))
    assert [frame.payload for frame in found] == [b"%d" % n for n in range(7, 4_000)]
    ids = [frame.header.request_id or "" for frame in found]
    assert all(map(is_uuid4, ids))
    assert len(set(ids)) == len(ids)
    assert publish_frames(EMPTY_BLOCK, "a.b", "1.0.0", FIRST_ID) == b""


def test_all_of_it_can_be_rehearsed() -> None:
    warm_up()


# Limits


@pytest.mark.parametrize("limit", [1, PAYLOAD_BYTES_MAX, 65_535, 1 * MIB])
@pytest.mark.parametrize("before", [0, 1])
def test_the_payload_limit_is_exact(limit: int, before: int) -> None:
    limits = FrameLimits(payload_bytes_max=limit)
    head = f"publish:a.b:1.0.0:{ID}\n".encode()
    small = framed(head) * before
    for extra in (-1, 0, 1):
        data = small + framed(head + bytes(limit + extra))
        found = by_block([data], limits)
        assert found == one_by_one([data], limits)
        assert isinstance(found[-1], Frame) == (extra <= 0)
        if extra > 0:
            (kind, _, details), saved, fatal = found[-1]  # type: ignore[misc]
            assert (kind, details["bytes"], fatal) == (PayloadTooLarge, limit + 1, False)  # type: ignore[has-type]
            assert saved == SalvagedHeader("a.b", "1.0.0", ID)  # type: ignore[has-type]


def test_the_header_limit_is_exact_in_the_middle_of_a_batch() -> None:
    good = framed(b"publish:a.b:1.0.0\n")
    for extra in (-1, 0, 1, 2):
        data = good + framed(b"publish:a.b:1.0.0:".ljust(HEADER_BYTES_MAX + extra, b"x") + b"\n") + good
        found = by_block([data])
        assert found == one_by_one([data])
        ((_, _, details), _, _) = found[1]  # type: ignore[misc]
        assert details["field"] == ("requestId" if extra <= 0 else "header")  # type: ignore[has-type]


@pytest.mark.parametrize("before", [0, 1, 3])
def test_the_frame_limit_is_exact(before: int) -> None:
    good = framed(b"publish:a.b:1.0.0\n")
    for extra in (-1, 0, 1):
        data = good * before + framed(b"x" * (LIMITS.frame_bytes_max + extra)) + good
        found = by_block([data])
        assert found == one_by_one([data])
        assert len(found) == before + (2 if extra <= 0 else 1)


@pytest.mark.parametrize("size", [LIMITS.frame_bytes_max + 1, 2**31 - 1, 2**31, 2**32 - 1])
def test_after_a_length_that_no_frame_can_have_nothing_more_comes(size: int) -> None:
    reader = BatchReader(LIMITS, SCRATCH)
    good = framed(b"publish:a.b:1.0.0\n")
    *_, last = reader.receive_data(good * 2 + size.to_bytes(4, "big") + good)
    assert isinstance(last, RejectedFrame)
    assert last.fatal
    for more in (b"", good, good * 3, bytes(1000)):
        assert list(reader.receive_data(more)) == []


def test_a_declared_frame_of_2_gib_allocates_nothing() -> None:
    reader = BatchReader(FrameLimits(), SCRATCH)
    list(reader.receive_data(framed(b"publish:a.b:1.0.0\n") * 2))  # the kernels are loaded
    tracemalloc.start()
    try:
        (item,) = reader.receive_data((2 * GIB).to_bytes(4, "big") + b"publish:a.b:1.0.0\n")
        assert isinstance(item, RejectedFrame)
        for _ in range(100):
            assert list(reader.receive_data(bytes(10_000))) == []
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_a_frame_that_is_announced_and_does_not_come_allocates_only_what_came() -> None:
    reader = BatchReader(FrameLimits(), SCRATCH)
    tracemalloc.start()
    try:
        assert list(reader.receive_data((1 * MIB).to_bytes(4, "big") + bytes(1000))) == []
        assert tracemalloc.get_traced_memory()[1] < 20_000
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_a_frame_in_tiny_pieces_costs_little_more_than_its_bytes() -> None:
    size = 200_000
    in_tiny_pieces(size)  # loads the kernels, which takes memory of its own
    tracemalloc.start()
    try:
        reader = in_tiny_pieces(size)
        assert tracemalloc.get_traced_memory()[0] < 4 * size
        assert list(reader.receive_data(b"")) == []
    finally:
        tracemalloc.stop()


def in_tiny_pieces(size: int) -> BatchReader:
    """A reader that has so many bytes of a frame, two at a time, and waits for ten more."""
    reader = BatchReader(FrameLimits(), SCRATCH)
    assert list(reader.receive_data((size + 10).to_bytes(4, "big"))) == []
    for n in range(size // 2):
        assert list(reader.receive_data(bytes((n & 255, n >> 8 & 255)))) == []
    return reader
