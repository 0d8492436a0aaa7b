"""The tree of errors: a code for each class, a class for each code, and an answer to "does trying again help?"."""

from __future__ import annotations

import json
import pickle
import re

import pytest

from penstock.core import errors
from penstock.core.errors import Code, DiskFull, OffsetOutOfRange, PenstockError, StorageFailed

CLASSES = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, PenstockError)]
BELOW_THE_ROOT = [each for each in CLASSES if each is not PenstockError]

# DESIGN.md, section 2.3: the founding document's codes, then Penstock's own.
DOCUMENTED_CODES = [
    "MALFORMED_MESSAGE",
    "INVALID_REQUEST",
    "INVALID_REQUEST_ID",
    "VERSION_NOT_SUPPORTED",
    "UNAUTHORIZED",
    "FORBIDDEN",
    "TOPIC_NOT_SUPPORTED",
    "NO_ROUTE_FOUND",
    "SERVICE_UNAVAILABLE",
    "TIMEOUT",
    "INTERNAL_ERROR",
    "SCHEMA_REJECTED",
    "PAYLOAD_TOO_LARGE",
    "DISK_FULL",
    "STORAGE_FAILED",
    "OFFSET_OUT_OF_RANGE",
    "NOT_OWNER",
    "QUOTA_EXCEEDED",
]

# What passes by itself: a subscriber comes, load goes down, an answer is late, room is made, a rate recovers.
RETRIABLE = {Code.NO_ROUTE_FOUND, Code.SERVICE_UNAVAILABLE, Code.TIMEOUT, Code.DISK_FULL, Code.QUOTA_EXCEEDED}


def test_the_codes_are_the_documented_ones_in_the_documented_order() -> None:
    assert [code.value for code in Code] == DOCUMENTED_CODES


def test_a_code_is_written_as_it_is_named() -> None:
    assert all(code.name == code.value == str(code) for code in Code)


def test_the_root_is_an_internal_error_and_not_retriable() -> None:
    assert PenstockError.code is Code.INTERNAL_ERROR
    assert not PenstockError.retriable


@pytest.mark.parametrize("code", [code for code in Code if code is not Code.INTERNAL_ERROR])
def test_every_other_code_has_exactly_one_class(code: Code) -> None:
    assert len([each for each in BELOW_THE_ROOT if each.code is code]) == 1


def test_no_class_below_the_root_hides_behind_internal_error() -> None:
    assert all(each.code is not Code.INTERNAL_ERROR for each in BELOW_THE_ROOT)


@pytest.mark.parametrize("each", BELOW_THE_ROOT)
def test_a_class_is_named_after_its_code_and_says_what_it_means(each: type[PenstockError]) -> None:
    assert re.sub(r"(?<!^)(?=[A-Z])", "_", each.__name__).upper() == each.code
    assert each.__doc__


def test_the_retriable_errors_are_those_that_pass_by_themselves() -> None:
    assert {each.code for each in CLASSES if each.retriable} == RETRIABLE


def test_a_full_disk_may_be_tried_again_and_a_failed_one_may_not() -> None:
    assert DiskFull.retriable
    assert not StorageFailed.retriable


@pytest.mark.parametrize("each", CLASSES)
def test_every_error_is_caught_at_the_root_and_reads_as_its_sentence(each: type[PenstockError]) -> None:
    with pytest.raises(PenstockError, match=r"^the pipe is full$") as caught:
        raise each("the pipe is full", room=0)
    assert str(caught.value) == caught.value.message == "the pipe is full"
    assert caught.value.details == {"room": 0}


@pytest.mark.parametrize("each", CLASSES)
def test_an_error_without_details_is_described_by_code_and_message_alone(each: type[PenstockError]) -> None:
    assert each("no").as_dict() == {"code": each.code.value, "message": "no"}


@pytest.mark.parametrize("each", CLASSES)
def test_an_error_with_details_carries_them_in_its_description(each: type[PenstockError]) -> None:
    described = each("no", first=3, next=9).as_dict()
    assert described == {"code": each.code.value, "message": "no", "details": {"first": 3, "next": 9}}
    assert type(described["code"]) is str


def test_a_detail_called_code_does_not_replace_the_code() -> None:
    described = DiskFull("no room", code="mine").as_dict()
    assert described == {"code": "DISK_FULL", "message": "no room", "details": {"code": "mine"}}


def test_a_description_goes_through_json_unchanged() -> None:
    described = OffsetOutOfRange("offset 7 is gone", first=10, next=12).as_dict()
    assert json.loads(json.dumps(described)) == described


@pytest.mark.parametrize("each", CLASSES)
def test_an_error_crosses_a_process_boundary_with_its_details(each: type[PenstockError]) -> None:
    returned = pickle.loads(pickle.dumps(each("no", limit=1)))
    assert type(returned) is each
    assert returned.as_dict() == each("no", limit=1).as_dict()


def test_details_may_have_any_name() -> None:
    found = PenstockError("a sentence", message=3, self=4)
    assert (found.message, found.details) == ("a sentence", {"message": 3, "self": 4})
