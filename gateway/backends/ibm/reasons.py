"""What a gateway does about an MQ reason code: one listed, documented table and a pure look-up.

The table is the code form of docs/reference/reason-codes.md; a test holds the two together.
"""

from __future__ import annotations

from enum import Enum

from gateway.mq.constants import name_of_reason


class Action(Enum):
    """What to do next."""

    NORMAL = "normal"
    """Part of the flow."""
    RETRY = "retry"
    """Wait and repeat; keep the message."""
    RECONNECT = "reconnect"
    """The connection is void: connect again; what was under way has an unknown outcome."""
    DEAD_LETTER = "dead-letter"
    """This message or its target cannot work: move it with the reason."""
    CONFIGURATION = "configuration"
    """Hold the route and tell the operator; drop nothing."""
    BUG = "bug"
    """A call was used wrongly: stop the route and tell the operator; drop nothing."""


_CODES: dict[Action, tuple[int, ...]] = {
    Action.NORMAL: (0, 2002, 2033, 2049, 2079, 2080, 2104, 2471, 2550),
    Action.RETRY: (2003, 2016, 2017, 2024, 2025, 2042, 2051, 2053, 2056, 2071, 2102, 2192, 2195, 2219, 2502),
    Action.RECONNECT: (
        2009, 2018, 2059, 2161, 2162, 2202, 2203, 2273, 2537, 2538, 2539, 2540, 2544, 2545, 2548, 2549,
    ),
    Action.DEAD_LETTER: (
        2010, 2013, 2027, 2029, 2030, 2031, 2047, 2048, 2050, 2061, 2110, 2111, 2115, 2119, 2120, 2190, 2218, 2334,
        2421, 2478,
    ),
    Action.CONFIGURATION: (
        2035, 2045, 2052, 2057, 2058, 2063, 2082, 2085, 2086, 2087, 2091, 2092, 2101, 2196, 2197, 2381, 2393, 2425,
        2440,
    ),
    Action.BUG: (
        2004, 2005, 2006, 2019, 2026, 2034, 2036, 2037, 2038, 2039, 2040, 2041, 2043, 2044, 2046, 2065, 2067, 2139,
        2141, 2173, 2186, 2246, 2248, 2250, 2251, 2257, 2260, 2298, 2424, 2426, 2430, 2438, 2442, 2460, 2461, 2462,
        2463, 2464, 2473, 2481, 2482, 2513, 2595,
    ),
}  # fmt: skip

TABLE: dict[int, Action] = {code: action for action, codes in _CODES.items() for code in codes}

_ADVICE = {
    2002: "this thread is connected already: ask for a shared handle",
    2003: "the queue manager backed the unit of work out: it is repeated",
    2009: "the connection broke: it is made again and the last commit looked up",
    2030: "raise MAXMSGL of the queue or lower `max_packet`",
    2031: "raise MAXMSGL of the queue manager and of the channel, or lower `max_packet`",
    2035: "give the gateway's user the authorities in deploy/mq/authorities.sh; AMQERR01.LOG names what is missing",
    2051: "PUT(DISABLED) on the queue: ALTER QLOCAL(...) PUT(ENABLED)",
    2053: "the queue is at MAXDEPTH: consume from it or raise MAXDEPTH",
    2058: "`queue_manager.ibm.name` is not the name of the queue manager that answers",
    2059: "the queue manager is not running or not reachable at `connection`",
    2085: "the queue does not exist: define it (deploy/mq has the gateway's own) or correct the mapping",
    2087: "no transmission queue or alias of that queue manager's name exists",
    2192: "the queue manager's log or file system is full",
    2195: "an unexpected error of the queue manager: its error log says more",
    2381: "the key repository cannot be opened: see `tls.key_repository`",
    2393: "TLS could not be started: compare `tls.cipher` with the channel's SSLCIPH and check the certificates",
    2537: "the channel is not available: START it, or raise MAXINST",
    2538: "the host does not answer: see `connection`",
    2540: "the queue manager has no such channel: see `channel`",
}


def action_for(reason: int) -> Action:
    """What to do. A code nobody has listed holds the route: nothing is lost and somebody looks at it."""
    return TABLE.get(reason, Action.CONFIGURATION)


def explain(reason: int, what: str = "") -> str:
    """The operator's line: what failed, the code by name, what to do about it."""
    advice = _ADVICE.get(reason, "")
    what = what.replace(f"MQRC {reason}: ", "")  # said once, by name
    head = f"{what}: " if what else ""
    return f"{head}{name_of_reason(reason)} ({reason})" + (f": {advice}" if advice else "")
