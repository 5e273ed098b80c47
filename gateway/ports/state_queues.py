"""The queues that hold the gateway's own state, beside the application's: one unit of work covers both."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.ports.batch import BatchQueueManager, Stored, Token

PREFIX = "MQGATE."
"""Rules may not name such a queue; the embedded queue manager makes one when it is first used, without limits."""

SESSIONS = "MQGATE.SESSIONS"
"""Persistent sessions with their subscriptions: one record for each, under its session's key."""
RETAINED = "MQGATE.RETAINED"
"""Retained messages, each under the key of its topic."""
STAGED = "MQGATE.STAGED"
"""QoS 2 publications that are not released by PUBREL yet."""
TOGETHER = b"all sessions".ljust(24, b"\0")
"""The key under which a gateway that has the state queues for itself stages those of all sessions. Where another
gateway may take a session over, each session has its own."""
OUT = "MQGATE.OUT"
"""What waits for the clients of persistent sessions, and what they have not acknowledged."""
WILLS = "MQGATE.WILLS"
"""Wills of connected clients, and those whose delay is running."""
REQUESTS = "MQGATE.REQUESTS"
"""Response topics and correlation data of requests that devices have sent to MQ applications."""
SUBSCRIPTIONS = "MQGATE.SUBSCRIPTIONS"
"""Where publications on MQ topics arrive that rules subscribe to."""
MARKERS = "MQGATE.MARKERS"
"""Markers of units of work, by which one in doubt is resolved."""
GATEWAYS = "MQGATE.GATEWAYS"
"""Leases, and messages between gateways that share these queues."""
FORWARD = "MQGATE.FORWARD"
"""Publications that clients of other gateways subscribe to, under the key of each gateway."""
USERS = "MQGATE.USERS"
"""Managed users and roles: one record for each."""
FAN_OUT = "MQGATE.FAN.OUT"
"""Publications that very many get, each once: until all have it. Only where a gateway has its state for itself: in the
embedded queue manager and the buffer."""

SET_ASIDE = "MQGATE.SET.ASIDE"
"""What met a defect of the gateway, for people to look at and to replay: see `broker/refused/set_aside.py`."""
SET_ASIDE_DEPTH = 10_000
"""As many messages there are at most: a defect that a client has found must not fill the disk."""
AUDIT = "MQGATE.AUDIT"
"""What people have done at the admin port, each act with an expiry: see `people/audit.py`."""
AUDIT_DEPTH = 1_000_000
KEYED = frozenset({SESSIONS, RETAINED, WILLS, REQUESTS, USERS, FAN_OUT})
"""State queues with one message for each key, which is replaced."""

ALL = (
    SESSIONS, RETAINED, STAGED, OUT, WILLS, REQUESTS, SUBSCRIPTIONS, MARKERS, GATEWAYS, FORWARD, USERS, SET_ASIDE,
    AUDIT,
)  # fmt: skip
"""Every one of them that a queue manager has to have."""

DEAD_LETTERS = "MQGATE.DEAD.LETTER"
"""Dead letters where the queue manager names no queue for them; not a state queue: people read it."""
DEFAULT = "MQGATE.DEFAULT"
"""Where the shipped default mapping puts messages; not a state queue either."""

COMMANDS = "SYSTEM.ADMIN.COMMAND.QUEUE"
"""What is put there is a command to the queue manager; not a state queue either."""

PAGE = 500
"""Messages of a state queue that are read at once."""


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
    """All messages that are stored for the session with this key."""
    return rows_of(queue_manager, OUT, key)
