"""What the gateway requires of a queue manager, checked at start and by `mqgate doctor`, before messages are refused.

All missing or unsuitable objects are reported at once, each with what to do; nothing is changed. One connection is
used, and opened objects are closed again.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Container, Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from gateway.backends.ibm.connection import TOPIC_PREFIX
from gateway.backends.ibm.driver import ConnectSettings, Session, load
from gateway.backends.ibm.structures import object_descriptor
from gateway.errors import MQError
from gateway.mq import constants as mq
from gateway.mq.reason_policy import Action, action_for, explain
from gateway.ports.state_queues import ALL, AUDIT, DEAD_LETTERS, SET_ASIDE, SUBSCRIPTIONS

STATE_QUEUES = ALL
"""The queues that deploy/mq/state.mqsc defines; a test compares the two."""
SUBSCRIPTION_TO = "subscription to "
"""How the subject of a problem with a topic begins that a rule subscribes to."""
_PUT = mq.MQOO_OUTPUT | mq.MQOO_FAIL_IF_QUIESCING
_CONSUME = _PUT | mq.MQOO_INPUT_SHARED | mq.MQOO_BROWSE
_HEADERS = 4096
"""Room for what the rules put in front of a payload."""
ROOMY = 100_000
"""The MAXDEPTH that a state queue should have at least; deploy/mq gives it more."""
_NEARLY_FULL = 0.8
_DEPTHS = (mq.MQIA_CURRENT_Q_DEPTH, mq.MQIA_MAX_Q_DEPTH)


class Problem(NamedTuple):
    """One object that is missing or unsuitable."""

    subject: str
    text: str
    serious: bool
    """Whether it would stop a route; otherwise it is advice."""
    reason: int = 0
    """The reason code, if a call was refused."""


def examine(
    session: Session, puts: Iterable[str], consumes: Iterable[str], longest: int, short: Container[str] = ()
) -> list[Problem]:
    """Returns the problems of state queues, of the queues that rules put to and of those they consume; `longest` is
    `mqtt.max_packet`. Queues in `short` need not take as much: their rules say what happens to longer messages."""
    found: list[Problem] = []
    for queue in STATE_QUEUES:
        if queue in {SET_ASIDE, AUDIT}:
            found += _advised(session, queue, longest if queue == SET_ASIDE else 0)
            continue
        found += _queue(session, queue, _CONSUME, longest) or [
            *_switches(session, queue, get=True),
            *_roomy(session, queue),
        ]
    for queue in puts:
        if queue.startswith(TOPIC_PREFIX):
            found += _topic(session, queue)
        else:
            found += _queue(session, queue, _PUT, 0 if queue in short else longest) or [
                *_switches(session, queue, get=False),
                *_depth(session, queue),
            ]
    for queue in consumes:
        if queue.startswith(TOPIC_PREFIX):
            found += _subscribed(session, queue)
            continue
        found += _queue(session, queue, _CONSUME, 0) or _switches(session, queue, get=True)
        found += _backout(session, queue)
    found += _dead_letters(session, longest)
    found += _queue_manager(session, longest)
    return found


def look(
    settings: ConnectSettings,
    driver: str,
    puts: Iterable[str],
    consumes: Iterable[str],
    longest: int,
    short: Container[str] = (),
) -> list[Problem]:
    """`examine` on a connection of its own. Raises MQError if none can be made, DriverUnavailable without a binding."""
    try:
        session = load(driver).connect(settings)
    except MQError as error:
        raise MQError(error.reason, explain(error.reason, str(error)), error.comp_code) from None
    try:
        return examine(session, puts, consumes, longest, short)
    finally:
        session.disconnect()


def require(session: Session) -> None:
    """Raise MQError that names every state queue with which the gateway cannot work."""
    wrong = [problem for problem in examine(session, (), (), 0) if problem.serious]
    if wrong:
        texts = "; ".join(problem.text for problem in wrong)
        raise MQError(wrong[0].reason, f"{texts}. deploy/mq/state.mqsc defines the gateway's queues")


def dead_letter_queue(session: Session) -> str:
    """Returns the queue manager's own, or the one that deploy/mq brings."""
    with suppress(MQError):
        return str(session.inquire("", mq.MQCA_DEAD_LETTER_Q_NAME)) or DEAD_LETTERS
    return DEAD_LETTERS


def _queue(session: Session, queue: str, options: int, longest: int) -> list[Problem]:
    """Returns problems unless a queue can be opened as it will be, and takes as much as devices may send."""
    return list(_opened(session, queue, options, longest))


def _opened(session: Session, queue: str, options: int, longest: int) -> Iterator[Problem]:
    try:
        session.close(session.open(bytes(bytearray(object_descriptor(queue))), options))
    except MQError as error:
        if action_for(error.reason) is Action.RECONNECT:
            raise
        yield Problem(queue, explain(error.reason, queue), serious=True, reason=error.reason)
        return
    limit = _asked(session, queue, mq.MQIA_MAX_MSG_LENGTH)
    if longest and limit is not None and limit < longest + _HEADERS:
        yield Problem(
            queue,
            f"{queue} takes {limit} bytes, `mqtt.max_packet` allows {longest}: raise MAXMSGL to {longest + _HEADERS}",
            serious=limit < longest,
        )


def _advised(session: Session, queue: str, longest: int) -> Iterator[Problem]:
    """Yields advice on queues that releases before this one did not have: without them, what meets a defect stays where
    it was, and acts of people are only in the log."""
    problems = _queue(session, queue, _CONSUME, longest) or [*_switches(session, queue, get=True)]
    for problem in problems or _depth(session, queue):
        yield problem._replace(serious=False)


def _topic(session: Session, name: str) -> Iterator[Problem]:
    """Yields a problem if a topic may not be published to."""
    text = ctypes.create_string_buffer(name.removeprefix(TOPIC_PREFIX).encode())
    address = ctypes.addressof(text)
    descriptor = object_descriptor("", topic_pointer=address, topic_length=len(text) - 1)
    try:
        session.close(session.open(bytes(bytearray(descriptor)), _PUT))
    except MQError as error:
        if action_for(error.reason) is Action.RECONNECT:
            raise
        yield Problem(name, explain(error.reason, name), serious=True, reason=error.reason)


def _subscribed(session: Session, name: str) -> Iterator[Problem]:
    """Yields a problem if a topic may not be subscribed to as a rule does it: with a subscription that gets nothing and
    is removed at once."""
    try:
        target = session.open(bytes(bytearray(object_descriptor(SUBSCRIPTIONS))), mq.MQOO_INPUT_SHARED)
    except MQError as error:
        if action_for(error.reason) is Action.RECONNECT:
            raise
        return  # reported as a state queue
    how = mq.MQSO_CREATE | mq.MQSO_PUBLICATIONS_ON_REQUEST
    probe, topic = f"mqgate.look.{os.urandom(6).hex()}", name.removeprefix(TOPIC_PREFIX)
    try:
        session.unsubscribe(session.subscribe(probe, topic, target, bytes(24), how=how), remove=True)
    except MQError as error:
        if action_for(error.reason) is Action.RECONNECT:
            raise
        text = explain(error.reason, f"subscribing to topic {topic}") + _grant(session, error.reason)
        yield Problem(f"{SUBSCRIPTION_TO}{topic}", text, serious=True, reason=error.reason)
    finally:
        session.close(target)


def _grant(session: Session, reason: int) -> str:
    """Returns the command that allows a user to subscribe."""
    if reason != mq.MQRC_NOT_AUTHORIZED:
        return ""
    with suppress(MQError):
        manager = str(session.inquire("", mq.MQCA_Q_MGR_NAME))
        return (
            f"; for the topic object over it (SYSTEM.BASE.TOPIC where none is nearer) and the gateway's user: "
            f"`setmqaut -m {manager} -n SYSTEM.BASE.TOPIC -t topic -p USER +sub +resume`, or "
            "SET AUTHREC PROFILE('SYSTEM.BASE.TOPIC') OBJTYPE(TOPIC) PRINCIPAL('USER') AUTHADD(SUB,RESUME)"
        )
    return ""


def _dead_letters(session: Session, longest: int) -> Iterator[Problem]:
    """Yields problems of the dead-letter queue, as advice only: no route stops without it until a message has to go
    there."""
    queue = dead_letter_queue(session)
    for problem in _queue(session, queue, _PUT, longest) or _switches(session, queue, get=False):
        yield problem._replace(text=f"dead letters: {problem.text}", serious=False)


def _switches(session: Session, queue: str, *, get: bool) -> Iterator[Problem]:
    """Yields problems with attributes that an administrator may have switched off, or not on."""
    if _asked(session, queue, mq.MQIA_INHIBIT_PUT):
        yield Problem(queue, f"{queue} has PUT(DISABLED): ALTER QLOCAL('{queue}') PUT(ENABLED)", serious=False)
    if get and _asked(session, queue, mq.MQIA_INHIBIT_GET):
        yield Problem(queue, f"{queue} has GET(DISABLED): ALTER QLOCAL('{queue}') GET(ENABLED)", serious=False)
    if get and _asked(session, queue, mq.MQIA_SHAREABILITY) == 0:
        text = f"{queue} has NOSHARE, but the gateway opens it on several connections: ALTER QLOCAL('{queue}') SHARE"
        yield Problem(queue, text, serious=True)


def _roomy(session: Session, queue: str) -> Iterator[Problem]:
    maximum = _asked(session, queue, mq.MQIA_MAX_Q_DEPTH)
    if maximum is not None and maximum < ROOMY:
        text = f"{queue} has MAXDEPTH({maximum}); full, it stops acknowledgements: deploy/mq/state.mqsc gives it more"
        yield Problem(queue, text, serious=False)
    else:
        yield from _depth(session, queue)


def _depth(session: Session, queue: str) -> Iterator[Problem]:
    depth, maximum = (_asked(session, queue, selector) for selector in _DEPTHS)
    if depth is not None and maximum and depth >= maximum * _NEARLY_FULL:
        text = f"{queue} holds {depth} of MAXDEPTH({maximum}) messages: {explain(mq.MQRC_Q_FULL)}"
        yield Problem(queue, text, serious=False)


def _asked(session: Session, queue: str, selector: int) -> int | None:
    """Returns an attribute; None if the object does not have it (alias, remote, cluster queue)."""
    try:
        value = int(session.inquire(queue, selector))
    except MQError as error:
        if action_for(error.reason) is Action.RECONNECT:
            raise
        return None
    return value if value >= 0 else None


def _backout(session: Session, queue: str) -> Iterator[Problem]:
    try:
        threshold = int(session.inquire(queue, mq.MQIA_BACKOUT_THRESHOLD))
        target = str(session.inquire(queue, mq.MQCA_BACKOUT_REQ_Q_NAME))
    except MQError:
        return
    if threshold and not target:
        text = f"{queue} has BOTHRESH({threshold}) and no BOQNAME: what cannot be delivered goes to the dead letters"
        yield Problem(queue, text, serious=False)
    elif threshold:
        for problem in _queue(session, target, _PUT, 0):
            yield problem._replace(text=f"BOQNAME of {queue}: {problem.text}", serious=False)


def _queue_manager(session: Session, longest: int) -> Iterator[Problem]:
    limit = _asked(session, "", mq.MQIA_MAX_MSG_LENGTH)
    if limit is not None and limit < longest:
        text = f"the queue manager takes {limit} bytes, but `mqtt.max_packet` allows {longest}: ALTER QMGR MAXMSGL"
        yield Problem("queue manager", text, serious=True)
