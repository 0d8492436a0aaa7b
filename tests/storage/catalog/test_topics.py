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
from penstock.storage.catalog.topics import (
    Dispatch,
    Exhausted,
    ProducerCheckpoint,
    RequestRun,
    Retention,
    SchemaPolicy,
    TopicSettings,
    check_partitions,
    check_producer_name,
    merged_settings,
    parse_checkpoint,
    parse_settings,
    runs_text,
    settings_text,
)

bounds = st.none() | st.integers(1, OFFSET_MAX)
kept_for = st.lists(st.sampled_from(["archive", "audit.v2", "a"]), max_size=3).map(tuple)
retentions = st.builds(Retention, age_ms=bounds, bytes=bounds, count=bounds, keep_for=kept_for)


@st.composite
def topic_settings(draw: st.DrawFn) -> TopicSettings:
    segment = draw(st.none() | st.integers(SEGMENT_BYTES_FLOOR, SEGMENT_BYTES_CEILING))
    return TopicSettings(
        retention=draw(retentions),
        segment_bytes_max=segment,
        segment_age_ms_max=draw(bounds),
        payload_bytes_max=draw(st.none() | st.integers(1, segment or SEGMENT_BYTES_CEILING)),
        rate_max=draw(bounds),
        schema_policy=draw(st.none() | st.sampled_from(SchemaPolicy)),
        redeliveries=draw(st.none() | st.integers(0, 1000)),
        exhausted=draw(st.none() | st.sampled_from(Exhausted)),
    )


@given(topic_settings())
def test_settings_come_back_as_they_were(settings: TopicSettings) -> None:
    assert parse_settings(settings_text(settings)) == settings


@st.composite
def runs_of_one(draw: st.DrawFn) -> tuple[RequestRun, ...]:
    """Any runs, in the order of their offsets."""
    runs, offset = [], 0
    for gap, count, request in draw(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9), st.integers(1, 2**62)))):
        runs.append(RequestRun(request, offset + gap, count))
        offset += gap + count
    return tuple(runs)


@given(st.dictionaries(st.integers(1, OFFSET_MAX), runs_of_one()))
def test_a_checkpoint_comes_back_as_it_was(runs: dict[int, tuple[RequestRun, ...]]) -> None:
    checkpoint = ProducerCheckpoint(next_offset=Offset(OFFSET_MAX), runs=runs)
    assert parse_checkpoint(OFFSET_MAX, runs_text(checkpoint.runs)) == checkpoint


def test_settings_of_the_first_release_are_read() -> None:
    text = '{"retention":{"age_ms":1000},"segment_bytes_max":8192,"segment_age_ms_max":5,"payload_bytes_max":10}'
    settings = parse_settings(text)
    assert (settings.segment_bytes_max, settings.retention) == (8192, Retention(age_ms=1000))
    assert (settings.rate_max, settings.schema_policy, settings.redeliveries, settings.exhausted) == (None,) * 4
    assert settings_text(settings) == text


@given(topic_settings(), st.sampled_from(Dispatch))
def test_what_is_given_comes_before_what_is_the_default(settings: TopicSettings, dispatch: Dispatch) -> None:
    assert merged_settings(settings, TopicSettings(), dispatch) == settings
    assert merged_settings(TopicSettings(), settings, Dispatch.RELIABLE) == settings
    assert merged_settings(settings, settings, dispatch) == settings


def test_settings_and_defaults_are_merged_field_by_field_and_retention_as_a_whole() -> None:
    defaults = TopicSettings(retention=Retention(age_ms=1, bytes=2), rate_max=3, redeliveries=4)
    given_ = TopicSettings(retention=Retention(count=9), redeliveries=0, exhausted=Exhausted.DROP)
    assert merged_settings(given_, defaults, Dispatch.RELIABLE) == TopicSettings(
        retention=Retention(count=9), rate_max=3, redeliveries=0, exhausted=Exhausted.DROP
    )


def test_settings_and_defaults_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="payload_bytes_max"):
        merged_settings(TopicSettings(segment_bytes_max=8192), TopicSettings(payload_bytes_max=8193), Dispatch.RELIABLE)


@pytest.mark.parametrize("field", ["schema_policy", "exhausted"])
@pytest.mark.parametrize("value", ["drop", "enforce", "", 0, True])
def test_a_choice_that_is_none_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(InvalidRequest, match=f"{field} must be one of") as refused:
        TopicSettings(**{field: value})
    assert refused.value.details["field"] == field


def test_no_redelivery_is_a_number_of_redeliveries() -> None:
    assert TopicSettings(redeliveries=0).redeliveries == 0
    with pytest.raises(InvalidRequest, match="from 0 to 1000, not 1001"):
        TopicSettings(redeliveries=1001)


@pytest.mark.parametrize("field", ["segment_bytes_max", "segment_age_ms_max", "payload_bytes_max", "rate_max"])
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


@pytest.mark.parametrize("value", ["archive", ["archive"], ("no name!",), ("",), ("a",) * 17])
def test_what_no_subscription_is_called_cannot_be_kept_for(value: Any) -> None:
    with pytest.raises(InvalidRequest) as refused:
        Retention(keep_for=value)
    assert refused.value.details["field"] == "retention.keep_for"


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
        parse_settings(text)


@pytest.mark.parametrize(
    "runs",
    [
        "1",
        "[[1,1]]",
        "[[0,1,1]]",
        "[[1,-1,1]]",
        "[[1,1,0]]",
        '[["1",1,1]]',
        "[[1,4,2]]",
        "[[1,3,1],[2,3,1]]",
        "[[1,1,1,1]]",
    ],
)
def test_stored_runs_of_any_other_form_are_not_believed(runs: str) -> None:
    with pytest.raises(StorageFailed, match="checkpoint"):
        parse_checkpoint(5, f"[[1,{runs}]]")


@pytest.mark.parametrize("text", ["", "{}", "[[1,2]]", "[[0,[[1,1,1]]]]", "[[1,1,1]]", '[["1",[[1,1,1]]]]', "[[1]]"])
def test_stored_producers_of_any_other_form_are_not_believed(text: str) -> None:
    with pytest.raises(StorageFailed, match="checkpoint"):
        parse_checkpoint(5, text)


def test_a_checkpoint_cannot_know_of_offsets_it_does_not_speak_of() -> None:
    with pytest.raises(InvalidRequest, match="before offset 5 cannot know of offset 5"):
        ProducerCheckpoint(next_offset=Offset(5), runs={1: (RequestRun(1, 4, 2),)})


def test_a_checkpoint_does_not_change_when_the_mapping_it_was_made_of_does() -> None:
    runs = {1: (RequestRun(1, 0, 1),)}
    checkpoint = ProducerCheckpoint(next_offset=Offset(1), runs=runs)
    runs.clear()
    assert set(checkpoint.runs) == {1}
    with pytest.raises(TypeError):
        checkpoint.runs[2] = (RequestRun(1, 0, 1),)  # type: ignore[index]


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
