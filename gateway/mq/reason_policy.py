"""What the gateway does about each MQ reason code, in one table. Pure.

The broker asks it about a refused put, the buffer about a refused put while it drains, the IBM backend about any call,
and the drainer whether to try again. docs/reference/reason-codes.md is made from it.
"""

from __future__ import annotations

from enum import Enum
from typing import Literal, NamedTuple

from gateway.mq import constants as mq
from gateway.mq.constants import name_of_reason

DeadLetterLabel = Literal["queue_full", "unknown_queue", "put_inhibited", "not_authorized", "too_long", "other"]
"""The reason by which a dead letter is counted."""
DropLabel = Literal["queue_full", "too_large", "oversized_header", "other"]
"""The reason by which a message that its rule drops is counted."""


class Action(Enum):
    """What to do about a reason code."""

    NORMAL = "normal"
    """Part of the normal flow of calls: not an error."""
    RECONNECT = "reconnect"
    """The connection is void or cannot be made now: connect again. The outcome of a commit in progress is unknown."""
    HOLD = "hold"
    """The queue manager cannot do it now, whatever the destination: everything waits and is tried again as it is."""
    RETRY = "retry"
    """The destination cannot take it now: the rule's `on_failure.retry`, while other destinations go on."""
    DEAD_LETTER = "dead-letter"
    """This message can never be put as it is: the rule's `on_failure.then` at once."""
    CONFIGURATION = "configuration"
    """Nothing changes until an operator acts: the rule's `on_failure.then` at once."""
    MISUSE = "misuse"
    """The gateway made a wrong call: handled as HOLD, and worth a report."""


class ReasonPolicy(NamedTuple):
    """What is done about one reason code."""

    action: Action
    advice: str
    """What an operator does about it, in one sentence; empty where there is nothing to do."""
    dead_letter: DeadLetterLabel = "other"
    drop: DropLabel = "other"


_NORMAL, _RECONNECT, _HOLD, _RETRY = Action.NORMAL, Action.RECONNECT, Action.HOLD, Action.RETRY
_DEAD_LETTER, _CONFIGURATION, _MISUSE = Action.DEAD_LETTER, Action.CONFIGURATION, Action.MISUSE

_CONVERT = "the message cannot be converted: correct its CodedCharSetId, Encoding or Format, or take CONVERT off"
_HEADER = "a header of the message is malformed: correct what built it"
_PROPERTY = "a message property is not one MQ allows: correct `properties` of the rule, or what the device sends"
_SEGMENT = "the message's group or segment fields contradict each other: correct what set them"
_REPORT = "a wrong call by the gateway: please report it with the log line"
_TLS = "TLS could not be started: compare `tls` with the channel's SSLCIPH and SSLPEER and check the certificates"
_XMITQ = "the route to the remote queue manager is not as it should be: check the remote queue, its XMITQ and DEFXMITQ"
_STOPPING = "the queue manager is being stopped: the gateway connects again when it is back"
_MQ_CLIENT = "the MQ client of the gateway's machine is not installed as it should be: run `mqgate doctor`"

TABLE: dict[int, ReasonPolicy] = {
    0: ReasonPolicy(_NORMAL, ""),
    2001: ReasonPolicy(_CONFIGURATION, "the alias names an object it cannot stand for: correct its TARGET"),
    2002: ReasonPolicy(_NORMAL, "this thread is connected already: ask for a shared handle"),
    2003: ReasonPolicy(_HOLD, "the queue manager backed the unit of work out: it is repeated"),
    2004: ReasonPolicy(_MISUSE, _REPORT),
    2005: ReasonPolicy(_MISUSE, _REPORT),
    2006: ReasonPolicy(_MISUSE, _REPORT),
    2009: ReasonPolicy(_RECONNECT, "the connection broke: it is made again and the last commit looked up"),
    2010: ReasonPolicy(_DEAD_LETTER, "the length of the message is not one MQ allows: raise MAXMSGL of the channel"),
    2012: ReasonPolicy(_CONFIGURATION, _MQ_CLIENT),
    2013: ReasonPolicy(_DEAD_LETTER, "MQMD.Expiry is neither -1 nor above 0: correct `descriptor.expiry` of the rule"),
    2014: ReasonPolicy(_DEAD_LETTER, "MQMD.Feedback is not one MQ allows: correct `descriptor` of the rule"),
    2016: ReasonPolicy(_RETRY, "GET(DISABLED) on the queue: ALTER QLOCAL(...) GET(ENABLED)"),
    2017: ReasonPolicy(_RETRY, "the connection has MAXHANDS objects open: raise MAXHANDS of the queue manager"),
    2018: ReasonPolicy(_RECONNECT, "the connection is no longer valid: it is made again"),
    2019: ReasonPolicy(_RETRY, "the object is no longer open: it is opened again"),
    2024: ReasonPolicy(_RETRY, "the unit of work has more messages than MAXUMSGS of the queue manager: raise it"),
    2025: ReasonPolicy(_RECONNECT, "the queue manager allows no more connections: raise its limit or close others"),
    2026: ReasonPolicy(_DEAD_LETTER, "the message descriptor is malformed: correct what built it"),
    2027: ReasonPolicy(_DEAD_LETTER, "a request, or a message that asks for reports, needs `descriptor.reply_to`"),
    2029: ReasonPolicy(_DEAD_LETTER, "MQMD.MsgType is not one MQ allows: correct `descriptor` of the rule"),
    2030: ReasonPolicy(_DEAD_LETTER, "raise MAXMSGL of the queue or lower `max_packet`", "too_long", "too_large"),
    2031: ReasonPolicy(
        _DEAD_LETTER,
        "raise MAXMSGL of the queue manager and of the channel, or lower `max_packet`",
        "too_long",
        "too_large",
    ),
    2033: ReasonPolicy(_NORMAL, ""),
    2034: ReasonPolicy(_MISUSE, _REPORT),
    2035: ReasonPolicy(
        _CONFIGURATION,
        "where it cannot connect check the user, the password and the CHLAUTH rules of the channel; otherwise give the "
        "gateway's user the authorities in deploy/mq/authorities.sh: AMQERR01.LOG names what is missing",
        "not_authorized",
    ),
    2036: ReasonPolicy(_MISUSE, _REPORT),
    2037: ReasonPolicy(_MISUSE, _REPORT),
    2038: ReasonPolicy(_MISUSE, _REPORT),
    2039: ReasonPolicy(_MISUSE, _REPORT),
    2040: ReasonPolicy(_MISUSE, _REPORT),
    2041: ReasonPolicy(_RETRY, "the object was changed while it was open: it is opened again"),
    2042: ReasonPolicy(_RETRY, "another program has the object open exclusively: end it"),
    2043: ReasonPolicy(_MISUSE, _REPORT),
    2044: ReasonPolicy(_MISUSE, _REPORT),
    2045: ReasonPolicy(_CONFIGURATION, "the object cannot be used so: check its type, and what the rule asks of it"),
    2046: ReasonPolicy(_MISUSE, _REPORT),
    2047: ReasonPolicy(_DEAD_LETTER, "MQMD.Persistence is not one MQ allows: correct `descriptor.persistence`"),
    2048: ReasonPolicy(
        _DEAD_LETTER, "a temporary dynamic queue takes no persistent messages: correct `descriptor.persistence`"
    ),
    2049: ReasonPolicy(_NORMAL, "the queue manager has lowered the priority to its MAXPRTY"),
    2050: ReasonPolicy(_DEAD_LETTER, "MQMD.Priority is not one MQ allows: correct `descriptor.priority` of the rule"),
    2051: ReasonPolicy(_RETRY, "PUT(DISABLED) on the queue: ALTER QLOCAL(...) PUT(ENABLED)", "put_inhibited"),
    2052: ReasonPolicy(_CONFIGURATION, "the queue was deleted while it was open: define it again"),
    2053: ReasonPolicy(
        _RETRY, "the queue is at MAXDEPTH: consume from it or raise MAXDEPTH", "queue_full", "queue_full"
    ),
    2056: ReasonPolicy(_RETRY, "there is no space for the queue's file: consume from it or raise MAXFSIZE"),
    2057: ReasonPolicy(_CONFIGURATION, "the queue is of a type that cannot be used here: correct it or the mapping"),
    2058: ReasonPolicy(_CONFIGURATION, "`queue_manager.ibm.name` is not the name of the queue manager that answers"),
    2059: ReasonPolicy(_RECONNECT, "the queue manager is not running or not reachable at `connection`"),
    2061: ReasonPolicy(_DEAD_LETTER, "MQMD.Report asks for what MQ does not know: correct `descriptor.report`"),
    2063: ReasonPolicy(_CONFIGURATION, "the queue manager's security service failed: AMQERR01.LOG says why"),
    2065: ReasonPolicy(_MISUSE, _REPORT),
    2067: ReasonPolicy(_MISUSE, _REPORT),
    2071: ReasonPolicy(_RETRY, "there is not enough memory for the call: free some, or put smaller messages"),
    2079: ReasonPolicy(_NORMAL, ""),
    2080: ReasonPolicy(_NORMAL, ""),
    2082: ReasonPolicy(
        _CONFIGURATION, "the alias names a queue that does not exist: define it or correct TARGET", "unknown_queue"
    ),
    2085: ReasonPolicy(
        _CONFIGURATION,
        "the queue does not exist: define it (deploy/mq has the gateway's own) or correct the mapping",
        "unknown_queue",
    ),
    2086: ReasonPolicy(_CONFIGURATION, "the queue manager named by the object is not known: correct the mapping"),
    2087: ReasonPolicy(
        _CONFIGURATION, "no transmission queue or alias of that queue manager's name exists", "unknown_queue"
    ),
    2091: ReasonPolicy(_CONFIGURATION, _XMITQ),
    2092: ReasonPolicy(_CONFIGURATION, _XMITQ),
    2101: ReasonPolicy(_CONFIGURATION, "the object is damaged: restore it (RCRMQOBJ) or define it again"),
    2102: ReasonPolicy(_HOLD, "the queue manager is short of resources: its error log says of which"),
    2104: ReasonPolicy(_NORMAL, ""),
    2109: ReasonPolicy(_CONFIGURATION, "an exit of the queue manager suppressed the call: ask who maintains the exit"),
    2110: ReasonPolicy(_DEAD_LETTER, _CONVERT),
    2111: ReasonPolicy(_DEAD_LETTER, _CONVERT),
    2112: ReasonPolicy(_DEAD_LETTER, _CONVERT),
    2113: ReasonPolicy(_DEAD_LETTER, _CONVERT),
    2114: ReasonPolicy(_DEAD_LETTER, _CONVERT),
    2115: ReasonPolicy(_DEAD_LETTER, _CONVERT),
    2116: ReasonPolicy(_DEAD_LETTER, _CONVERT),
    2117: ReasonPolicy(_DEAD_LETTER, _CONVERT),
    2118: ReasonPolicy(_DEAD_LETTER, _CONVERT),
    2119: ReasonPolicy(_DEAD_LETTER, _CONVERT),
    2120: ReasonPolicy(_DEAD_LETTER, _CONVERT),
    2135: ReasonPolicy(_DEAD_LETTER, _HEADER),
    2139: ReasonPolicy(_MISUSE, _REPORT),
    2141: ReasonPolicy(_DEAD_LETTER, _HEADER),
    2142: ReasonPolicy(_DEAD_LETTER, _HEADER),
    2148: ReasonPolicy(_DEAD_LETTER, _HEADER),
    2149: ReasonPolicy(_DEAD_LETTER, _HEADER),
    2150: ReasonPolicy(_DEAD_LETTER, _CONVERT),
    2152: ReasonPolicy(_CONFIGURATION, "the queue's name is not one MQ allows: correct the mapping"),
    2153: ReasonPolicy(_CONFIGURATION, "the queue manager's name is not one MQ allows: correct the mapping"),
    2161: ReasonPolicy(_RECONNECT, _STOPPING),
    2162: ReasonPolicy(_RECONNECT, _STOPPING),
    2173: ReasonPolicy(_MISUSE, _REPORT),
    2184: ReasonPolicy(_CONFIGURATION, "RNAME of the remote queue is not one MQ allows: correct it"),
    2186: ReasonPolicy(_MISUSE, _REPORT),
    2188: ReasonPolicy(_CONFIGURATION, "the cluster workload exit rejected the call: ask who maintains the exit"),
    2189: ReasonPolicy(_RETRY, "the cluster could not resolve the queue: check that its full repositories are running"),
    2190: ReasonPolicy(_DEAD_LETTER, _CONVERT),
    2192: ReasonPolicy(_HOLD, "the queue manager's log or file system is full"),
    2194: ReasonPolicy(_MISUSE, _REPORT),
    2195: ReasonPolicy(_HOLD, "an unexpected error of the queue manager: its error log says more"),
    2196: ReasonPolicy(_CONFIGURATION, _XMITQ),
    2197: ReasonPolicy(_CONFIGURATION, _XMITQ),
    2198: ReasonPolicy(_CONFIGURATION, _XMITQ),
    2199: ReasonPolicy(_CONFIGURATION, _XMITQ),
    2202: ReasonPolicy(_RECONNECT, _STOPPING),
    2203: ReasonPolicy(_RECONNECT, _STOPPING),
    2218: ReasonPolicy(_DEAD_LETTER, "raise MAXMSGL of the channel or lower `max_packet`", "too_long", "too_large"),
    2219: ReasonPolicy(_HOLD, "another call of the connection is under way: it is repeated"),
    2220: ReasonPolicy(_DEAD_LETTER, _HEADER),
    2246: ReasonPolicy(_MISUSE, _REPORT),
    2248: ReasonPolicy(_DEAD_LETTER, _HEADER),
    2249: ReasonPolicy(_DEAD_LETTER, _SEGMENT),
    2250: ReasonPolicy(_DEAD_LETTER, _SEGMENT),
    2251: ReasonPolicy(_DEAD_LETTER, _SEGMENT),
    2252: ReasonPolicy(_DEAD_LETTER, _SEGMENT),
    2253: ReasonPolicy(_DEAD_LETTER, _SEGMENT),
    2257: ReasonPolicy(_DEAD_LETTER, "the message needs an MQMD of version 2: correct what built it"),
    2258: ReasonPolicy(_DEAD_LETTER, _SEGMENT),
    2260: ReasonPolicy(_DEAD_LETTER, _HEADER),
    2273: ReasonPolicy(_RECONNECT, "the connection failed: it is made again"),
    2277: ReasonPolicy(_CONFIGURATION, "the channel definition is not valid: see `queue_manager.ibm`"),
    2278: ReasonPolicy(_CONFIGURATION, "the channel definition is not valid: see `queue_manager.ibm` or the CCDT"),
    2298: ReasonPolicy(_MISUSE, _REPORT),
    2330: ReasonPolicy(_DEAD_LETTER, _CONVERT),
    2334: ReasonPolicy(_DEAD_LETTER, _HEADER),
    2336: ReasonPolicy(_DEAD_LETTER, _HEADER),
    2337: ReasonPolicy(_DEAD_LETTER, _HEADER),
    2338: ReasonPolicy(_DEAD_LETTER, _HEADER),
    2339: ReasonPolicy(_DEAD_LETTER, _HEADER),
    2364: ReasonPolicy(_DEAD_LETTER, _HEADER),
    2365: ReasonPolicy(_DEAD_LETTER, "the queue takes no segments: set `too_long: dead_letter` in the rule"),
    2381: ReasonPolicy(_CONFIGURATION, "the key repository cannot be opened: see `tls.key_repository`"),
    2391: ReasonPolicy(_CONFIGURATION, _TLS),
    2392: ReasonPolicy(_CONFIGURATION, _TLS),
    2393: ReasonPolicy(
        _CONFIGURATION,
        "TLS could not be started: compare `tls.cipher` with the channel's SSLCIPH and check the certificates",
    ),
    2396: ReasonPolicy(_CONFIGURATION, _TLS),
    2397: ReasonPolicy(_CONFIGURATION, _TLS),
    2398: ReasonPolicy(_CONFIGURATION, _TLS),
    2399: ReasonPolicy(_CONFIGURATION, _TLS),
    2400: ReasonPolicy(_CONFIGURATION, _TLS),
    2420: ReasonPolicy(_DEAD_LETTER, _HEADER),
    2421: ReasonPolicy(_DEAD_LETTER, _HEADER),
    2422: ReasonPolicy(_DEAD_LETTER, _HEADER),
    2424: ReasonPolicy(_MISUSE, _REPORT),
    2425: ReasonPolicy(_DEAD_LETTER, "the topic string is empty or too long: correct `mq_topic` of the rule"),
    2426: ReasonPolicy(_MISUSE, _REPORT),
    2429: ReasonPolicy(_RETRY, "another program has the subscription open: end it"),
    2430: ReasonPolicy(_MISUSE, _REPORT),
    2436: ReasonPolicy(_CONFIGURATION, "the topic allows no durable subscriptions: ALTER TOPIC(...) DURSUB(YES)"),
    2438: ReasonPolicy(_MISUSE, _REPORT),
    2440: ReasonPolicy(_CONFIGURATION, "the subscription's name is not one MQ allows: correct the rule's name"),
    2441: ReasonPolicy(_DEAD_LETTER, "the object string is not one MQ allows: correct `mq_topic` of the rule"),
    2442: ReasonPolicy(_DEAD_LETTER, _PROPERTY),
    2460: ReasonPolicy(_MISUSE, _REPORT),
    2461: ReasonPolicy(_MISUSE, _REPORT),
    2462: ReasonPolicy(_MISUSE, _REPORT),
    2463: ReasonPolicy(_MISUSE, _REPORT),
    2464: ReasonPolicy(_MISUSE, _REPORT),
    2465: ReasonPolicy(_DEAD_LETTER, _PROPERTY),
    2466: ReasonPolicy(_DEAD_LETTER, _CONVERT),
    2467: ReasonPolicy(_DEAD_LETTER, _PROPERTY),
    2469: ReasonPolicy(_DEAD_LETTER, _PROPERTY),
    2470: ReasonPolicy(_DEAD_LETTER, _CONVERT),
    2471: ReasonPolicy(_NORMAL, ""),
    2472: ReasonPolicy(_DEAD_LETTER, _CONVERT),
    2473: ReasonPolicy(_DEAD_LETTER, _PROPERTY),
    2478: ReasonPolicy(
        _DEAD_LETTER, "raise MAXPROPL of the queue manager, or carry fewer properties", drop="oversized_header"
    ),
    2479: ReasonPolicy(_RETRY, "the publication could not be retained: check SYSTEM.RETAINED.PUB.QUEUE"),
    2480: ReasonPolicy(_CONFIGURATION, "the alias was changed from a queue to a topic or back: check its TARGTYPE"),
    2481: ReasonPolicy(_MISUSE, _REPORT),
    2482: ReasonPolicy(_MISUSE, _REPORT),
    2491: ReasonPolicy(_DEAD_LETTER, "the length of the message is not one MQ allows: correct what built it"),
    2492: ReasonPolicy(_DEAD_LETTER, _CONVERT),
    2495: ReasonPolicy(_CONFIGURATION, _MQ_CLIENT),
    2496: ReasonPolicy(_CONFIGURATION, _MQ_CLIENT),
    2497: ReasonPolicy(_CONFIGURATION, _MQ_CLIENT),
    2498: ReasonPolicy(_DEAD_LETTER, _HEADER),
    2502: ReasonPolicy(_RETRY, "no subscriber's queue took the publication: see PMSGDLV and NPMSGDLV of the topic"),
    2503: ReasonPolicy(_CONFIGURATION, "subscribing is disabled: ALTER TOPIC(...) SUB(ENABLED)"),
    2513: ReasonPolicy(_DEAD_LETTER, _PROPERTY),
    2537: ReasonPolicy(_RECONNECT, "the channel is not available: START it, or raise MAXINST"),
    2538: ReasonPolicy(_RECONNECT, "the host does not answer: see `connection`"),
    2539: ReasonPolicy(_RECONNECT, "the two ends of the channel do not agree: compare the channel's attributes"),
    2540: ReasonPolicy(_RECONNECT, "the queue manager has no such channel: see `channel`"),
    2543: ReasonPolicy(_RECONNECT, "this instance of the queue manager is on standby: the active one is looked for"),
    2544: ReasonPolicy(_RECONNECT, "the connection is being made again"),
    2545: ReasonPolicy(_RECONNECT, "the connection was made again: what was under way has been backed out"),
    2547: ReasonPolicy(
        _CONFIGURATION, "the queue manager cannot reconnect this client: set DefRecon=NO in mqclient.ini"
    ),
    2548: ReasonPolicy(_RECONNECT, "the MQ client gave up connecting again: the gateway goes on"),
    2549: ReasonPolicy(_RECONNECT, "the call was interrupted by the loss of the connection: its outcome is looked up"),
    2550: ReasonPolicy(_NORMAL, ""),
    2553: ReasonPolicy(_CONFIGURATION, _TLS),
    2554: ReasonPolicy(_DEAD_LETTER, "the content cannot be parsed for a selector: correct what built it"),
    2568: ReasonPolicy(_RECONNECT, "the connection is not available: it is made again"),
    2583: ReasonPolicy(_CONFIGURATION, _MQ_CLIENT),
    2592: ReasonPolicy(_CONFIGURATION, _TLS),
    2594: ReasonPolicy(_CONFIGURATION, "the ends disagree on password protection: compare mqclient.ini and qm.ini"),
    2595: ReasonPolicy(_MISUSE, _REPORT),
}

UNKNOWN = ReasonPolicy(_RETRY, "")
"""For a code that is not in the table: where a destination refused, the rule's retries, so that nothing is lost and
others go on. A refusal that names no destination is held, whatever its code."""

TOO_LONG = frozenset({mq.MQRC_MSG_TOO_BIG_FOR_Q, mq.MQRC_MSG_TOO_BIG_FOR_Q_MGR})
"""The message is longer than its queue takes: a rule with `too_long: segment` has it cut."""
_DESTINATION = frozenset({_RETRY, _DEAD_LETTER, _CONFIGURATION})


def policy_for(reason: int) -> ReasonPolicy:
    """Returns the row of a code, or `UNKNOWN`."""
    return TABLE.get(reason, UNKNOWN)


def action_for(reason: int) -> Action:
    """Returns what to do about a code."""
    return policy_for(reason).action


def concerns_destination(reason: int) -> bool:
    """Whether a refused put is this message's or this destination's alone, so that others can go on."""
    return action_for(reason) in _DESTINATION


def explain(reason: int, what: str = "") -> str:
    """Returns a line for the operator: what failed, the code by name, what to do about it."""
    advice = policy_for(reason).advice
    what = what.replace(f"MQRC {reason}: ", "")  # the name below says it
    head = f"{what}: " if what else ""
    return f"{head}{name_of_reason(reason)} ({reason})" + (f": {advice}" if advice else "")
