"""The queues that hold the gateway's own state, next to the application's, so that one unit of work covers both."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.ports.batch import BatchQueueManager, Stored, Token

PREFIX = "MQGATE."
"""How these queues' names begin. Rules may not name such a queue; the embedded queue manager creates one, without
limits, when it is first used."""

SESSIONS = "MQGATE.SESSIONS"
"""Persistent sessions with their subscriptions, one record for each, under the session's key."""
RETAINED = "MQGATE.RETAINED"
"""Retained messages, each under the key of its topic."""
STAGED = "MQGATE.STAGED"
"""QoS 2 publications that PUBREL has not released yet."""
TOGETHER = b"all sessions".ljust(24, b"\0")
"""The key under which a gateway that has the state queues to itself stages the publications of all sessions. If another
gateway may take a session over, each session has its own key."""
OUT = "MQGATE.OUT"
"""What waits for the clients of persistent sessions, and what they have not acknowledged."""
WILLS = "MQGATE.WILLS"
"""Wills of connected clients, and those whose delay is running."""
REQUESTS = "MQGATE.REQUESTS"
"""Response topics and correlation data of requests that devices have sent to MQ applications."""
SUBSCRIPTIONS = "MQGATE.SUBSCRIPTIONS"
"""Where publications arrive on MQ topics to which rules subscribe."""
MARKERS = "MQGATE.MARKERS"
"""Markers of units of work, by which a unit in doubt is resolved."""
GATEWAYS = "MQGATE.GATEWAYS"
"""Leases, and messages between gateways that share these queues."""
FORWARD = "MQGATE.FORWARD"
"""Publications that clients of other gateways have subscribed to, under the key of each gateway."""
USERS = "MQGATE.USERS"
"""Managed users and roles: one record for each."""
FAN_OUT = "MQGATE.FAN.OUT"
"""Publications that very many sessions get, each stored once until all have it. Only where a gateway has its state to
itself: in the embedded queue manager and the buffer."""

SET_ASIDE = "MQGATE.SET.ASIDE"
"""What ran into a defect of the gateway, for people to look at and replay: see `broker/refused/set_aside.py`."""
SET_ASIDE_DEPTH = 10_000
"""The most messages there: a defect that a client has found must not fill the disk."""
AUDIT = "MQGATE.AUDIT"
"""What people have done at the admin port, as messages that expire: see `people/audit.py`."""
AUDIT_DEPTH = 1_000_000
KEYED = frozenset({SESSIONS, RETAINED, WILLS, REQUESTS, USERS, FAN_OUT})
"""State queues with one message per key, which is replaced."""

ALL = (
    SESSIONS, RETAINED, STAGED, OUT, WILLS, REQUESTS, SUBSCRIPTIONS, MARKERS, GATEWAYS, FORWARD, USERS, SET_ASIDE,
    AUDIT,
)  # fmt: skip
"""The state queues that every queue manager has to have."""

DEAD_LETTERS = "MQGATE.DEAD.LETTER"
"""Dead letters, if the queue manager names no queue for them; not a state queue, as people read it."""
DEFAULT = "MQGATE.DEFAULT"
"""Where the shipped default mapping puts messages; not a state queue either."""

COMMANDS = "SYSTEM.ADMIN.COMMAND.QUEUE"
"""What is put there is a command to the queue manager; not a state queue either."""

PAGE = 500
"""How many messages of a state queue are read at once."""


def holds_state(name: str) -> bool:
    """Whether a queue of this name holds the gateway's own state, so that nobody else may put on it."""
    return name.startswith(PREFIX) and name not in {DEFAULT, DEAD_LETTERS}


def rows_of(queue_manager: BatchQueueManager, queue: str, key: bytes) -> Iterator[Stored]:
    """All messages of a state queue with this key, in order."""
    last: Token | None = None
    while True:
        page = queue_manager.fetch(queue, key, PAGE, last)
        yield from page
        if len(page) < PAGE:
            return
        last = page[-1].token


def stored_for(queue_manager: BatchQueueManager, key: bytes) -> Iterator[Stored]:
    """All messages stored for the session with this key."""
    return rows_of(queue_manager, OUT, key)
