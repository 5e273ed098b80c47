"""How long a message may be that is put to a queue: for an alias, what its queue takes; for a remote queue, what its
transmission queue takes in addition to the headers."""

from __future__ import annotations

from collections.abc import Callable

from gateway.errors import MQError
from gateway.mq import constants as mq
from gateway.mq.reason_policy import Action, action_for
from gateway.mq.transmitted_segments import HEADERS_LENGTH

Inquire = Callable[[str, int], int | str]
"""Returns one attribute of a queue, or of the queue manager if the name is empty. Raises MQError."""


def limit_of(inquire: Inquire, queue: str) -> int | None:
    """Returns the longest message data by the definition of a queue; None if it is not known here: for a cluster queue,
    a topic, or where the gateway may not ask. Raises MQError if no queue manager can be asked."""
    return _limit(inquire, queue, aliases=1)


def longest_on(inquire: Inquire, queue: str) -> int | None:
    """Returns the same, limited to what the queue manager takes on any queue."""
    limits = [limit_of(inquire, queue), _number(inquire, "")]
    return min((limit for limit in limits if limit is not None), default=None)


def _limit(inquire: Inquire, queue: str, *, aliases: int) -> int | None:
    own = _number(inquire, queue)
    if own is not None or not aliases:
        return own
    base = _name(inquire, queue, mq.MQCA_BASE_Q_NAME)
    if base:
        return _limit(inquire, base, aliases=0)
    transmission = _name(inquire, queue, mq.MQCA_XMIT_Q_NAME) or _name(inquire, queue, mq.MQCA_REMOTE_Q_MGR_NAME)
    limit = _number(inquire, transmission) if transmission else None
    return None if limit is None else max(0, limit - HEADERS_LENGTH)


def _number(inquire: Inquire, queue: str) -> int | None:
    found = _asked(inquire, queue, mq.MQIA_MAX_MSG_LENGTH)
    return found if isinstance(found, int) and found >= 0 else None


def _name(inquire: Inquire, queue: str, selector: int) -> str:
    found = _asked(inquire, queue, selector)
    return found.strip(" \0*") if isinstance(found, str) else ""


def _asked(inquire: Inquire, queue: str, selector: int) -> int | str | None:
    try:
        return inquire(queue, selector)
    except MQError as error:
        if action_for(error.reason) is Action.RECONNECT:
            raise
        return None
