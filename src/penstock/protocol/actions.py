"""The actions of the wire protocol, with a row of rules for each."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Action(StrEnum):
    """An action: the first field of every header."""

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
    """Rules for the header of an action. The broker decides elsewhere if a client may send it."""

    takes_pattern: bool = False
    """True if the topic may contain the wildcards `+` and `#`."""

    takes_timeout: bool = False
    """True if the sender waits for an answer, and may set a timeout."""

    from_client: bool = True
    """False if only the broker sends it."""

    carries_block: bool = False
    """True if the payload is a block of messages, for which a larger limit applies."""


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
