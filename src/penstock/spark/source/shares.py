"""Sharing a bound among those who wait: nobody starves, and nothing is left over while somebody could use it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

K = TypeVar("K")


def fair_shares(wants: Mapping[K, int], bound: int, *, turn: int = 0) -> dict[K, int]:
    """How much each gets of `bound`: all get what they want if it is enough; otherwise those who want little get it,
    and the others share the rest alike. What cannot be divided goes to those whose turn it is.

    The sum is the bound, or what is wanted if that is less. The same question always has the same answer.
    """
    shares = dict.fromkeys(wants, 0)
    left = min(bound, sum(wants.values()))
    waiting = sorted((key for key in wants if wants[key] > 0), key=wants.__getitem__)
    while waiting and wants[waiting[0]] <= left // len(waiting):
        key = waiting.pop(0)
        shares[key] = wants[key]
        left -= wants[key]
    in_order = [key for key in wants if key in waiting]
    for place, key in enumerate(in_order):
        each, over = divmod(left, len(in_order))
        shares[key] = each + ((place - turn) % len(in_order) < over)
    return shares
