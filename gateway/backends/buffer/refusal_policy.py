"""What happens to a message that IBM MQ refuses while the buffer drains: its rule decides, as without a buffer. Pure.

Two things differ. A message that waits is set aside in a line of its own, so that it does not hold up anything else.
And the device has been sent its acknowledgement, so `then: disconnect` cannot apply: such a message is dead-lettered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from gateway.mq.reason_policy import TOO_LONG, Action, action_for, concerns_destination
from gateway.ports.failure_policy import Policy

Act = Literal["wait", "aside", "segment", "dead_letter", "drop"]
PolicyOf = Callable[[str], Policy | None]
"""Returns a rule's policy by its name; None: there is no such rule any more."""


def decide(policy: Policy | None, reason: int, tries: int, *, aside: bool) -> Act:
    """Returns what to do after this many attempts refused with this reason. A message whose rule is gone waits if the
    reason may pass, and is dead-lettered if it may not."""
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
    """Returns the seconds until the next attempt; None: the line's own pause."""
    if policy is None or tries > policy.retry_times:
        return None
    return float(min(policy.retry_first * 2 ** min(tries, 16), policy.retry_longest))
