"""Topics, settings and checkpoints as values: what can be made, and that it comes back from text as it was."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import InvalidRequest, StorageFailed, TopicNotSupported
from penstock.core.limits import PARTITIONS_MAX, SEGMENT_BYTES_CEILING, SEGMENT_BYTES_FLOOR
from penstock.core.names import TopicName
from penstock.core.offsets import OFFSET_MAX, Offset
from penstock.storage.topics import (
    ProducerCheckpoint,
    ProducerMark,
    Retention,
    TopicSettings,
    check_partitions,
    check_producer_name,
    marks_text,
    settings_text,
    stored_checkpoint,
    stored_settings,
)

bounds = st.none() | st.integers(1, OFFSET_MAX)
retentions = st.builds(Retention, age_ms=bounds, bytes=bounds, count=bounds)


@st.composite
def topic_settings(draw: st.DrawFn) -> TopicSettings:
    segment = draw(st.none() | st.integers(SEGMENT_BYTES_FLOOR, SEGMENT_BYTES_CEILING))
    return TopicSettings(
        retention=draw(retentions),
        segment_bytes_max=segment,
        segment_age_ms_max=draw(bounds),
        payload_bytes_max=draw(st.none() | st.integers(1, segment or SEGMENT_BYTES_CEILING)),
    )


@given(topic_settings())
def test_settings_come_back_as_they_were(settings: TopicSettings) -> None:
    assert stored_settings(settings_text(settings)) == settings


@given(
    st.dictionaries(st.integers(1, OFFSET_MAX), st.tuples(st.integers(0, OFFSET_MAX), st.integers(0, OFFSET_MAX - 1)))
)
def test_a_checkpoint_comes_back_as_it_was(marks: dict[int, tuple[int, int]]) -> None:
    last = {key: ProducerMark(request_id=request_id, offset=offset) for key, (request_id, offset) in marks.items()}
    checkpoint = ProducerCheckpoint(next_offset=Offset(OFFSET_MAX), last=last)
    assert stored_checkpoint(OFFSET_MAX, marks_text(checkpoint.last)) == checkpoint


@pytest.mark.parametrize("field", ["segment_bytes_max", "segment_age_ms_max", "payload_bytes_max"])
@pytest.mark.parametrize("value", [0, -1, 2**63, True, "7", 1.5])
def test_a_setting_that_cannot_be_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(InvalidRequest, match=field) as refused:
        TopicSettings(**{field: value})
    assert refused.value.details["field"] == field


@pytest.mark.parametrize("field", ["age_ms", "bytes", "count"])
@pytest.mark.parametrize("value", [0, -1, 2**63, False, "7d"])
def test_a_retention_that_cannot_be_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(InvalidRequest, match=f"retention.{field}"):
        Retention(**{field: value})


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="payload_bytes_max"):
        TopicSettings(segment_bytes_max=8192, payload_bytes_max=8193)
    with pytest.raises(InvalidRequest, match="segment_bytes_max"):
        TopicSettings(segment_bytes_max=SEGMENT_BYTES_CEILING + 1)
    with pytest.raises(InvalidRequest, match="from 4096"):
        TopicSettings(segment_bytes_max=SEGMENT_BYTES_FLOOR - 1)
    with pytest.raises(InvalidRequest, match="retention"):
        TopicSettings(retention={"age_ms": 1})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"compaction":true}', '{"retention":{"age":1}}', '{"segment_bytes_max":0}', "null"],
)
def test_stored_settings_of_any_other_form_are_not_believed(text: str) -> None:
    with pytest.raises(StorageFailed, match="settings"):
        stored_settings(text)


@pytest.mark.parametrize("text", ["", "{}", "[[1,2]]", "[[0,1,1]]", "[[1,1,5]]", "[[1,-1,1]]", '[["1",1,1]]'])
def test_stored_marks_of_any_other_form_are_not_believed(text: str) -> None:
    with pytest.raises(StorageFailed, match="checkpoint"):
        stored_checkpoint(5, text)


def test_a_checkpoint_cannot_know_of_offsets_it_does_not_speak_of() -> None:
    with pytest.raises(InvalidRequest, match="before offset 5 cannot know of offset 5"):
        ProducerCheckpoint(next_offset=Offset(5), last={1: ProducerMark(request_id=1, offset=5)})


def test_a_checkpoint_does_not_change_when_the_mapping_it_was_made_of_does() -> None:
    last = {1: ProducerMark(request_id=1, offset=0)}
    checkpoint = ProducerCheckpoint(next_offset=Offset(1), last=last)
    last.clear()
    assert set(checkpoint.last) == {1}
    with pytest.raises(TypeError):
        checkpoint.last[2] = ProducerMark(request_id=1, offset=0)  # type: ignore[index]


@pytest.mark.parametrize("partitions", [0, -1, PARTITIONS_MAX + 1, True, "3", 1.0])
def test_a_number_of_partitions_no_topic_has_is_refused(partitions: Any) -> None:
    with pytest.raises(InvalidRequest, match="partitions"):
        check_partitions(TopicName.parse("orders"), partitions)


def test_a_name_that_fills_a_file_name_cannot_be_partitioned() -> None:
    name = TopicName.parse("a" * 255)
    check_partitions(name, 1)
    with pytest.raises(TopicNotSupported, match="at most 245 characters"):
        check_partitions(name, 2)


@pytest.mark.parametrize("name", ["", "a" * 256, "é" * 128, "a\0b", "\ud800"])
def test_a_producer_name_that_cannot_be_stored_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_producer_name(name)
    assert refused.value.details["field"] == "name"
