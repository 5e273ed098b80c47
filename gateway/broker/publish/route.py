"""Routes: where publications of one client on one topic go, computed once and kept for those that follow. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from gateway.broker.columns import Columns
from gateway.errors import Refused
from gateway.ports.batch import Address
from gateway.ports.failure_policy import Policy

if TYPE_CHECKING:
    from gateway.bridge.form import Form, Users
    from gateway.bridge.inbound import Plan
    from gateway.bridge.payload import Body
    from gateway.broker.marks import Released
    from gateway.broker.publish.router import Router
    from gateway.routing.filters import Sharers
    from gateway.session.connection import Connection, Publisher
    from gateway.session.publication import Publication
    from gateway.session.session import Session

    Sent = tuple[Connection, "Route", bytes, bytes, int, Released | None]
    """A publication that clients of other gateways want: who has published it, its route, payload, user properties,
    the seconds it has to live (0: for ever), and at QoS 2 the staged record that this releases. A plain tuple: the
    compiled fast lane makes it."""
    Asked = Callable[[Session], "Receiver | None"]


_MAX_ORDERED, _LONGEST_NAMES = 8, 512
"""The most variants that are kept for one route, and the longest names of user properties they are kept by: a client
may have thousands of routes, and chooses the names."""
_MOST_KNOWN = 500
MOST_COPIES = 4096
"""The most copies made of one run of publications: the rest is another run, and may be put off."""


class FastPath(IntEnum):
    """The kind of a route whose publications need no decision for each message."""

    NONE = 0
    """Each publication is looked at: the route has several destinations, or none, or rules that look into the
    message."""
    DIRECT = 1
    """Straight to one queue."""
    STAGED = 2
    """QoS 2, straight to one or several queues, with a head or a form for each; staged at PUBLISH."""
    FAN_OUT = 3
    """To local subscribers, and to any number of queues, with a head or a form for each."""
    FORMED = 4
    """Straight to one queue; the head is made for each message, by the route's form."""
    LINKED = 5
    """Straight to several queues, as rules with `continue` have it; with a head or a form for each."""
    PROMISED = 6
    """QoS 2, to local subscribers and at most one queue; staged at PUBLISH if the subscribers have room."""
    UNROUTED = 7
    """To nobody: counted and acknowledged."""


class Receiver(NamedTuple):
    """A local session that gets a copy: a single one, at the highest QoS of its matching subscriptions
    [MQTT-3.3.5-1]."""

    session: Session
    qos: int
    retain_as_published: bool
    sub_ids: tuple[int, ...]


class Shared:
    """A shared subscription on its way to one topic: one of its members gets each message. Whether a member may have
    the topic is asked when the member is first considered, and remembered: there may be many members, and few
    messages."""

    __slots__ = ("_known", "_receiver", "is_nobodys", "name", "sharers")

    def __init__(self, name: str, sharers: Sharers[Session], receiver: Asked) -> None:
        self.name = name
        self.sharers = sharers
        self._receiver = receiver
        self.is_nobodys = False
        """Whether none of its members may have the topic: it is known, and members with other rights void the route."""
        self._known: dict[Session, Receiver | None] = {}

    def member(self, session: Session) -> Receiver | None:
        """A session as a receiver; None if it may not have the topic."""
        known = self._known
        if session not in known:
            if len(known) >= _MOST_KNOWN:  # for each topic of each publisher
                known.clear()
            known[session] = self._receiver(session)
        return known[session]

    def takes(self, *, anyhow: bool) -> bool:
        """Whether a member here takes a message soon; with `anyhow`, whether one takes it whenever its client comes to
        it, as long as that is connected."""
        return any(
            (one.connection is not None if anyhow else one.takes_soon) and self.member(one) is not None
            for one in self.sharers
        )

    def members(self) -> Iterator[Receiver]:
        """The members that may have the topic."""
        for session in self.sharers:
            member = self.member(session)
            if member is not None:
                yield member


DEAD_LETTER_POLICY = Policy("_none", 1_000_000_000, 0.1, 10.0, "hold", "dead_letter")
"""The dead-letter queue as a destination: putting to it is never given up."""
REPORT_POLICY = Policy("_none", 0, 0.1, 10.0, "dead_letter", "dead_letter")
"""A reply queue as the destination of a report: what it refuses is dead-lettered, as the queue manager does."""


NOWHERE = Columns(Address("", persistent=False), Policy("_none", 0, 0.1, 10.0, "drop", "dead_letter"), answered=False)
"""The columns of a route that leads to no queue, or to several."""


_NO_TAILS: dict[int, bytes] = {}
_NEVER_CHANGED = [0]
"""Shared by all new routes: a client may have thousands of topics, and few routes ever have their own."""


class FastSlots:
    """What the lanes read of a route for each message: these slots lie at its beginning, together in memory."""

    __slots__ = (
        "changes", "columns", "elsewhere", "fast_path", "form", "head", "linked", "most", "otherwise", "queue", "reads",
        "tails", "version",
    )  # fmt: skip

    fast_path: FastPath
    head: bytes
    columns: Columns
    form: Any
    linked: tuple[tuple[Route, bool], ...]
    otherwise: Route | None
    elsewhere: tuple[str, ...]
    most: int
    """How many publications for subscribers are copied at once; set together with `receivers` and `shared`."""
    queue: str
    reads: tuple[bytes, ...]
    changes: list[int]
    version: int
    tails: dict[int, bytes]


class Route(FastSlots):
    """Where publications of one client on one topic go, with these QoS and RETAIN bits."""

    __slots__ = (
        "error",
        "error_text",
        "first",
        "forward_head",
        "is_own",
        "like",
        "movable",
        "ordered",
        "policies",
        "publisher",
        "receivers",
        "router",
        "rows",
        "rule",
        "sent_on",
        "shared",
        "shared_elsewhere",
        "staged_head",
        "stored",
        "topic",
        "whole_plan",
        "wide",
        "wire_topic",
    )

    def __init__(self, topic: str, wire_topic: bytes, first: int) -> None:  # noqa: PLR0915 -- its slots
        self.topic = topic
        self.wire_topic = wire_topic
        self.first = first
        self.error = 0
        """A reason code when the publication is refused: 0x90 topic name, 0x87 not authorised."""
        self.error_text = ""
        self.whole_plan: Plan | None = None
        self.router: Router | None = None
        """Set on a route that was taken from a shared route: the router then makes plan and rows for its publisher when
        they are first asked for, which few publications do."""
        self.publisher: Publisher | None = None
        self.policies: tuple[Policy, ...] = ()
        self.rows: tuple[tuple[Address, Policy, bytes, dict[int, bytes]], ...] | None = None
        """What is put for each publication when nothing is evaluated for the message: address, policy, head, tails. Ask
        for `plan` first."""
        self.stored: dict[tuple[int, bool, tuple[int, ...]], bytes] | None = None
        """Backs `prefixes`; None: there are none yet."""
        self.like: Publication | None = None
        """What its publications without properties have in common, for copies."""
        self.columns = NOWHERE
        self.queue = ""
        """If its columns are for many queues: the queue."""
        self.head = b""
        self.form: Form | bool | None = False
        """Makes the heads of messages that are not all alike. None: there is no form; False: nobody has asked; True:
        there are no messages."""
        self.linked = ()
        """For a route to several queues: a route to each, and whether later ones are considered where its rule applies.
        A route whose rule does not apply leads `otherwise` to nobody."""
        self.ordered: dict[bytes, Route | None] | None = None
        """Routes to the same place with other forms, by the names of user properties whose order these keep."""
        self.reads = ()
        """Names of the user properties that decide where a publication goes: publications with other values have routes
        of their own."""
        self.otherwise = None
        """The route, with another form, of publications whose payload does not meet the condition of this form."""
        self.tails = _NO_TAILS
        self.wide = False
        """Whether so many subscriptions match that they have not been looked up: publications are copied in slices, and
        there are neither `receivers` nor `shared`."""
        self.receivers: tuple[Receiver, ...] = ()
        self.is_own = False
        """Whether one of the receivers is the publisher and would get something else of its own publications: No
        Local."""
        self.shared: tuple[Shared, ...] = ()
        self.most = 1
        self.elsewhere = ()
        """Other gateways whose clients subscribe to the topic."""
        self.forward_head = b""
        """The head of what is put for other gateways of publications without properties."""
        self.sent_on = False
        """Whether a session that has moved to another gateway is to be sent what is published on this topic."""
        self.shared_elsewhere: dict[str, tuple[str, ...]] = {}
        """Other gateways that have members of a shared subscription, by its name."""
        self.rule = ""
        self.fast_path = FastPath.NONE
        """On a fast path a message is two appends: `head`, and `tails[packet_id] + payload`."""
        self.staged_head = b""
        self.movable = 0
        """Whether QoS 2 publications can be staged as the messages they will be: 1 yes, -1 no, 0 not known yet."""
        self.changes = _NEVER_CHANGED
        """The number of changes to subscriptions that could concern this topic, in a list that all topics with the same
        first level share. `receivers` and `fast_path` are valid while it equals `version`."""
        self.version = -1

    def copy(self) -> Route:
        """A copy of the route."""
        made = Route.__new__(Route)
        for name in _SLOTS:
            setattr(made, name, getattr(self, name))
        return made

    @property
    def address(self) -> Address:
        """Where its publications are put."""
        address = self.columns.address
        return address._replace(queue=self.queue) if self.queue else address

    @property
    def prefixes(self) -> dict[tuple[int, bool, tuple[int, ...]], bytes]:
        """Heads of what durable sessions store of publications without properties: they name the publisher."""
        if self.stored is None:
            self.stored = {}
        return self.stored

    @property
    def plan(self) -> Plan | None:
        """What the rules make of its publications; None if no rule matches, or the route was refused before the rules
        were asked."""
        if self.router is not None and self.publisher is not None:
            router, self.router = self.router, None
            router.find_destinations(self, self.publisher)
        return self.whole_plan

    def ask_for_form(self) -> Form | None:
        """The form, if the route leads straight to one queue and its rule has one."""
        if self.form is False:
            forms = self.plan.forms if self.plan is not None and self.columns is not NOWHERE else ()
            self.form = forms[0] if len(forms) == 1 else None
        return self.form  # type: ignore[return-value]

    def make(
        self, now: bytes, users: Users, expiry: int | None, body: Body, packet_id: int
    ) -> tuple[Route, bytes] | None:  # fmt: skip
        """The head of a message, and the route that has made it and has its tail. None if the plain lane has to make
        it, or to say why there is none."""
        chosen = self._in_order(users)
        form = None if chosen is None else chosen.ask_for_form()
        if chosen is None or form is None:
            return None
        try:
            if form.check is not None:
                form.check(body)
            head = form.make(now, users, body, packet_id, expiry)
        except Refused:
            return None
        return None if head is None else (chosen, head)

    def _in_order(self, users: Users) -> Route | None:
        """The route itself; or, where a name of user properties occurs twice or is one that the rule sets, a variant
        whose form keeps their order. None if the plain lane has to keep it."""
        form = self.ask_for_form()
        if form is None or form.fits(users):
            return self
        names = b"\0".join([name for name, _ in users])  # which has no NUL [MQTT-1.5.4-2]
        if self.ordered is None or len(self.ordered) >= _MAX_ORDERED:
            self.ordered = {}
        if names not in self.ordered:
            self.ordered[names] = self._with_order(form, users) if len(names) <= _LONGEST_NAMES else None
        return self.ordered[names]

    def _with_order(self, form: Form, users: Users) -> Route | None:
        prepared = [one for one in self.plan.prepared if one.form is form] if self.plan is not None else []
        ordered = prepared[0].form_in_order(users) if prepared else None
        if ordered is None:
            return None
        made = self.copy()
        made.form, made.tails, made.head, made.ordered = ordered, ordered.tails, b"", None
        return made

    @property
    def interested(self) -> bool:
        """Whether a queue or a subscriber gets the message [MQTT 5: 0x10 No matching subscribers]."""
        found = (self.plan and self.plan.may_match) or self.receivers or self.shared or self.wide
        return bool(found or self.forwarded)

    @property
    def forwarded(self) -> bool:
        """Whether clients of other gateways want what is published on this topic."""
        return bool(self.elsewhere or self.shared_elsewhere or self.sent_on)


_SLOTS = (*FastSlots.__slots__, *Route.__slots__)
UNROUTED = Route("", b"", 0)
"""The route of publications to which no rule applies: they are counted, and put nowhere."""
UNROUTED.form = True
