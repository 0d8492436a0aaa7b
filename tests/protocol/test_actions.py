"""The verbs: one row each, as the design's table has them."""

from __future__ import annotations

from penstock.protocol.actions import ACTION_CHARS_MAX, ACTION_RULES, ACTIONS_BY_NAME, Action

NAMED_IN_THE_DESIGN = {
    "publish",
    "request",
    "response",
    "subscribe",
    "unsubscribe",
    "append",
    "message",
    "records",
    "ack",
    "nack",
    "seek",
}


def test_the_actions_are_those_of_the_design() -> None:
    assert {action.value for action in Action} == NAMED_IN_THE_DESIGN


def test_every_action_has_a_row_and_is_found_by_its_name() -> None:
    assert set(ACTION_RULES) == set(Action)
    assert {name: action.value for name, action in ACTIONS_BY_NAME.items()} == {
        name: name for name in NAMED_IN_THE_DESIGN
    }


def test_every_name_is_lower_case_letters() -> None:
    assert all(name.isascii() and name.isalpha() and name.islower() for name in ACTIONS_BY_NAME)


def test_only_a_request_waits_for_an_answer() -> None:
    assert [action for action, verb in ACTION_RULES.items() if verb.takes_timeout] == [Action.REQUEST]


def test_patterns_are_for_subscriptions_and_for_the_answers_to_them() -> None:
    taking = {action for action, verb in ACTION_RULES.items() if verb.takes_pattern}
    assert taking == {Action.SUBSCRIBE, Action.UNSUBSCRIBE, Action.RESPONSE}


def test_only_records_are_never_sent_by_a_client() -> None:
    assert [action for action, verb in ACTION_RULES.items() if not verb.from_client] == [Action.RECORDS]


def test_no_name_is_longer_than_the_longest() -> None:
    assert max(map(len, NAMED_IN_THE_DESIGN)) == ACTION_CHARS_MAX == len("unsubscribe")
