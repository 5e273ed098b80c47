"""What becomes of a message that IBM MQ refuses while the buffer drains: its rule says, as it does without a buffer.

Two things are different here. Nothing is held up by waiting: what waits is set aside, in a line of its own. And the
device has had its acknowledgement: there is nobody left to disconnect, so such a message is dead-lettered. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from gateway.mq.reason_policy import TOO_LONG, Action, action_for, concerns_destination
from gateway.ports.failure_policy import Policy

Act = Literal["wait", "aside", "segment", "dead_letter", "drop"]
PolicyOf = Callable[[str], Policy | None]
"""A rule's policy by its name; None: there is no such rule any more."""


def decide(policy: Policy | None, reason: int, tries: int, *, aside: bool) -> Act:
    """After so many attempts with this reason. Without its rule a message waits for what may pass and is dead-lettered
    for what may not."""
    if not concerns_destination(reason):
        return "wait"
    may_pass = action_for(reason) is Action.RETRY
    if policy is None:
        waits = may_pass
    else:
        if reason in TOO_LONG and policy.too_long == "segment":
            return "segment"
        waits = policy.then == "hold" or (may_pass and tries < policy.retry_times)
    if waits:
        return "wait" if aside else "aside"
    return "drop" if policy is not None and policy.then == "drop" else "dead_letter"


def pause(policy: Policy | None, tries: int) -> float | None:
    """Seconds until the next attempt; None: as the line does by itself."""
    if policy is None or tries > policy.retry_times:
        return None
    return float(min(policy.retry_first * 2 ** min(tries, 16), policy.retry_longest))
