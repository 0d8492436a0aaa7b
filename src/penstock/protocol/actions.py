"""The verbs of the wire: one row each."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Action(StrEnum):
    PUBLISH = "publish"
    REQUEST = "request"
    RESPONSE = "response"
    SUBSCRIBE = "subscribe"
    UNSUBSCRIBE = "unsubscribe"
    APPEND = "append"
    MESSAGE = "message"
    RECORDS = "records"
    ACK = "ack"
    NACK = "nack"
    SEEK = "seek"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionRules:
    """What a header may say with an action. Whether a message is welcome is for the broker to decide."""

    takes_pattern: bool = False
    """The topic may hold `+` and `#`."""

    takes_timeout: bool = False
    """Somebody waits for an answer, and may say for how long."""

    from_client: bool = True
    """Only the broker sends the others."""

    carries_block: bool = False
    """Its payload holds messages with all that goes with them, and may be larger for it."""


ACTION_RULES: Final = {
    Action.PUBLISH: ActionRules(),
    Action.REQUEST: ActionRules(takes_timeout=True),
    Action.RESPONSE: ActionRules(takes_pattern=True),  # it repeats the topic of what it answers
    Action.SUBSCRIBE: ActionRules(takes_pattern=True),
    Action.UNSUBSCRIBE: ActionRules(takes_pattern=True),
    Action.APPEND: ActionRules(carries_block=True),
    Action.MESSAGE: ActionRules(carries_block=True),
    Action.RECORDS: ActionRules(from_client=False, carries_block=True),
    Action.ACK: ActionRules(),
    Action.NACK: ActionRules(),
    Action.SEEK: ActionRules(),
}

ACTION_CHARS_MAX: Final = max(len(action) for action in Action)
ACTIONS_BY_NAME: Final = {action.value: action for action in Action}
