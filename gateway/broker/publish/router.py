"""Finds where a publication goes: topic validity, access, rules, local subscribers. Callers cache the results. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from copy import copy
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

from gateway.bridge import inbound
from gateway.bridge.mqtt5 import user_properties
from gateway.bridge.syncpoint import why_within
from gateway.bridge.trace import NewSpan
from gateway.broker.columns import Columns
from gateway.broker.publish.route import MOST_COPIES, UNROUTED, FastPath, Receiver, Route, Shared
from gateway.broker.publish.shared_routes import Key, SharedRoute, SharedRoutes, join
from gateway.errors import Refused
from gateway.mq import mqmd
from gateway.mqtt import reasons
from gateway.mqtt.packets import Properties
from gateway.mqtt.properties import USER_PROPERTY, decode_publish
from gateway.mqtt.topics import NOBODYS, SHARE_PREFIX, is_shared, split_shared, topic_name_error
from gateway.ports.access import Access, Decisions
from gateway.ports.batch import MQMD_LENGTH, Address
from gateway.ports.failure_policy import Policy
from gateway.routing.filters import Group, Interest, Members, Subscriptions, width
from gateway.routing.filters import matched as matched_by
from gateway.routing.table import Table
from gateway.rules.feedback import Feedback
from gateway.rules.model import ToMq
from gateway.session.connection import Publisher
from gateway.session.record import REPORTS
from gateway.session.session import Session

if TYPE_CHECKING:
    from gateway.bridge.form import Form
    from gateway.bridge.payload import Body, Check
    from gateway.broker.context import Context

_STATE_MD = mqmd.build(persistence=1, put_appl_name="mqgate")
_MAX_HEADS = 20_000
WIDE = 2000
"""The most subscriptions that are looked at in one turn."""
MOST_PLACES = 4000
"""The most places in the tree of filters that are looked at in one turn."""
MOST_LINKED = 16
"""The most queues to which a publication goes on the fast path."""
_MAX_PLANS = 4096
_AT_ONCE = 1000
"""Filters of a session that are removed in the turn in which it ends."""
_MAX_COUNTERS = 20_000
_MOST_WALKED, _NEVER_WALKED = 256, [-1]
_CACHED_LENGTH, _MAX_LEVEL = 1024, 64
"""Longer topics and properties are not cached: clients choose them, and may send many."""


class Router:
    """Finds the route of a publication from rules, access lists and subscriptions."""

    def __init__(self, table: Table, access: Access, new_client_id: Callable[[], str], new_span: NewSpan) -> None:
        self.table = table
        self.access = access
        self.subscriptions: Subscriptions[Session] = Subscriptions()
        self._walked: dict[str, tuple[list[int], int, list[tuple[str, Members[Session]]]]] = {}
        """The few filters that match a topic for which many places were looked at, with its change counter and the
        counter's value then. The next publications need not look again."""
        self.elsewhere: Subscriptions[str] = Subscriptions()
        """The filters of clients of other gateways on the same state queues, by gateway."""
        self._gone: dict[str, object] = {}
        """Gateways that have ended and whose filters are still being forgotten, each with the run that does so."""
        self.sent_on: Callable[[str], bool] = lambda _topic: False
        """Whether a session that has moved to another gateway is to be sent what is published to a topic."""
        self.on_interest: Callable[[str, int], None] = lambda _filter, _by: None
        """Called when a session subscribes to a filter (1) or no longer does (-1)."""
        self.new_client_id = new_client_id
        self.generation = 0
        """Grows when rules or access lists change: cached routes of another generation are void."""
        self._counters: dict[str, list[int]] = {}
        self._heads: dict[bytes, bytes] = {}
        self._shared_routes = SharedRoutes()
        self._columns: dict[tuple[Address, Policy, bool], Columns] = {}
        self.context: Context
        """Set by the engine."""
        self.new_span = new_span
        """Makes the identifier of our span in a trace."""

    def use(self, table: Table) -> None:
        """Put new rules into force, between two batches."""
        self.table = table
        self.generation += 1

    def touch(self) -> None:
        """Void every cached route, including those of no connection, which serve what comes from other gateways and
        from targets."""
        self.generation += 1
        self._forget_counters()

    # -- routes --

    def route(self, publisher: Publisher, wire_topic: bytes, first: int, *, may_be_wide: bool = False) -> Route:
        """The route of one topic for one client; `first` holds the QoS and RETAIN bits."""
        route = self._whole_route(publisher, wire_topic, first, may_be_wide=may_be_wide)
        self._shared_routes.keep(publisher, route, self.table, self)
        return route

    def shared_route(self, publisher: Publisher, wire_topic: bytes, first: int, decisions: Decisions) -> Route | None:
        """Return the route made of what other clients' routes to this topic have in common, or None if that is not
        known."""
        return join(self.shared_routes, publisher, wire_topic, first, decisions, self.access.may_publish)

    @property
    def shared_routes(self) -> dict[Key, SharedRoute]:
        """What the routes to one topic have in common, by topic, until the generation changes."""
        return self._shared_routes.of(self)

    def forget_shared_routes(self) -> None:
        """Forget all shared routes, of which there are too many."""
        self._shared_routes.forget(self)

    def sweep_shared_routes(self, now: float) -> Iterator[None]:
        """Remove void shared routes, one at each step; called once a second."""
        return self._shared_routes.sweep(now)

    def check_answer(self, publisher: Publisher, prepared: inbound.Prepared) -> None:
        """A device may name as response topic only what it could publish or receive itself: the answer of the MQ
        application is published there in its name."""
        request = prepared.request
        if request is None:
            return
        who = (publisher.listener, publisher.client_id, publisher.user, request.response_topic)
        if not (self.access.may_publish(*who) or self.access.may_receive(*who)):
            raise Refused("the access list does not allow the response topic", Feedback.NOT_AUTHORISED)

    def _whole_route(self, publisher: Publisher, wire_topic: bytes, first: int, *, may_be_wide: bool) -> Route:
        problem = self._topic_error(publisher.listener, wire_topic)
        if problem is not None:
            route = Route("", wire_topic, first)
            malformed = topic_name_error(wire_topic) is not None  # 0x90 is for well-formed names that are not accepted
            route.error = reasons.MALFORMED_PACKET if malformed else reasons.TOPIC_NAME_INVALID
            route.error_text, route.version = problem, 0
            return route
        topic = wire_topic.decode()
        route = Route(topic, wire_topic, first)
        who = publisher.listener, publisher.client_id, publisher.user
        if topic.startswith(NOBODYS) or not self.access.may_publish(*who, topic):
            route.error, route.error_text = reasons.NOT_AUTHORIZED, "the access list does not allow this topic"
            route.version = 0
            return route
        self.find_destinations(route, publisher)
        self.find_receivers(route, publisher, may_be_wide=may_be_wide)
        return route

    def _topic_error(self, listener: str, wire_topic: bytes) -> str | None:
        """Return why no client can publish to this topic, or None."""
        limits = self.context.limits.at(listener)
        if len(wire_topic) > limits.max_topic_length:
            return f"topics have at most {limits.max_topic_length} bytes here"
        return topic_name_error(wire_topic, limits.max_topic_levels)

    def variant(self, route: Route, publisher: Publisher, deciding: bytes) -> Route | None:
        """See `FastLane.variant`. Returns None if each publication has to be looked at. Raises `Refused` if an answer
        is not allowed."""
        made, properties = Route(route.topic, route.wire_topic, route.first), decode_publish(deciding)
        read = tuple(user_properties(properties))
        properties.pop(USER_PROPERTY, None)
        self.find_destinations(made, publisher, properties, read)
        plan = made.whole_plan
        if plan is None:
            return UNROUTED
        if not plan.forms or any(one.too_long == "reject" for one in made.policies):
            return None
        for prepared in plan.prepared:
            self.check_answer(publisher, prepared)
        made.fast_path, made.version = self._path_to_queues(made), made.changes[0]  # who gets it the other one knows
        return made if made.fast_path in {FastPath.DIRECT, FastPath.FORMED, FastPath.STAGED} else None

    def find_destinations(
        self, route: Route, publisher: Publisher, properties: Properties | None = None,
        read: tuple[tuple[str, str], ...] | None = None,
    ) -> None:  # fmt: skip
        """What the rules make of publications on a route, with these properties; `read` as `inbound.plan` has it."""
        origin = origin_of(route, publisher)
        plan = inbound.plan(self.table, origin, properties or {}, read)
        if not (plan.may_match or plan.dead_letter):
            return
        route.whole_plan, route.reads = plan, plan.reads
        route.policies = tuple(policy_of(one) for one in plan.prepared)
        route.rule = plan.prepared[0].rule.name if plan.prepared else ""
        if plan.simple and plan.prepared and not plan.asks:
            route.rows = tuple(
                (address_of(one, alone=len(plan.prepared) == 1), policy, one.head, one.tails)
                for one, policy in zip(plan.prepared, route.policies, strict=True)
            )
        if len(plan.prepared) == 1 and plan.simple:
            only = plan.prepared[0]
            self._aim(route, only, address_of(only, alone=True), route.policies[0])
            route.head, route.tails = only.head, only.tails
        elif route.rows is not None and 1 < len({row[0] for row in route.rows}) == len(route.rows) <= MOST_LINKED:
            self._link(route, plan, [row[0] for row in route.rows])
        elif plan.forms and not any(form.goes_on for form in plan.forms[:-1]):
            self._choose(route, plan)
        elif plan.forms and len(plan.forms) <= MOST_LINKED:
            addresses = list(map(address_by_form, plan.prepared, plan.forms))
            is_sure = not self.table.dead_letter_unmatched or any(one.condition is None for one in plan.prepared)
            within = all(one.syncpoint for one in addresses)  # whether one rule applies or several
            if is_sure and within and len({*addresses}) == len(addresses):
                self._link(route, plan, addresses)

    def _link(self, route: Route, plan: inbound.Plan, addresses: list[Address]) -> None:
        """Make each publication go where all rules that apply to it say, up to the first that does not continue."""
        linked: list[tuple[Route, bool]] = []
        for prepared, policy, address in zip(plan.prepared, route.policies, addresses, strict=True):
            target = Route(route.topic, route.wire_topic, route.first)
            target.whole_plan, target.policies = inbound.Plan([prepared], pending=False), (policy,)
            target.columns = self._columns_of(address, policy, answered=bool(route.first & 6))
            if prepared.simple and prepared.condition is None:
                target.head, target.tails = prepared.head, prepared.tails
            else:
                target.form = form = prepared.form
                target.tails = prepared.tails if form is None else form.tails
            target.otherwise, target.version = UNROUTED, 0
            linked.append((target, prepared.rule.spec.goes_on))
        route.linked = tuple(linked)

    def _choose(self, route: Route, plan: inbound.Plan) -> None:
        """Make each publication go where the first rule that applies to it says, by the rules' forms."""
        may_miss = plan.prepared[-1].condition is not None and not self.table.dead_letter_unmatched
        following: Route | None = UNROUTED if may_miss else None
        rules = list(zip(plan.prepared, plan.forms, route.policies, strict=True))
        for prepared, form, policy in reversed(rules):
            here = route if form is plan.forms[0] else Route(route.topic, route.wire_topic, route.first)
            here.form, here.otherwise, here.tails = form, following, form.tails
            if here is not route:
                here.whole_plan = inbound.Plan([prepared], pending=False)
            self._aim(here, prepared, address_by_form(prepared, form), policy)
            following = here

    def _aim(self, route: Route, prepared: inbound.Prepared, address: Address, policy: Policy) -> None:
        """Make a route lead to an address. Where a rule names many queues, and publications of QoS 1 are one unit of
        work anyway, all of these queues share columns."""
        context, queue = self.context, prepared.rule.queue
        mixes = (
            context.mixes and route.first >> 1 & 3 == 1 and address.syncpoint
            and not address.retain and not address.queue_manager and queue is not None and queue.slots
        )  # fmt: skip
        if mixes:
            route.queue, address = address.queue, address._replace(queue="")
        route.columns = self._columns_of(address, policy, answered=bool(route.first & 6))

    def _columns_of(self, address: Address, policy: Policy, *, answered: bool) -> Columns:
        """Return the columns that all routes with this address and policy share."""
        key = address, policy, answered
        found = self._columns.get(key)
        if found is None:
            if len(self._columns) >= _MAX_PLANS:
                self._columns.clear()
            found = self._columns[key] = Columns(address, policy, answered=answered, mixed=not address.queue)
        return found

    def find_receivers(self, route: Route, publisher: Publisher, *, may_be_wide: bool = False) -> None:
        """Bring the local subscribers of a route, and its fast path, up to date. `may_be_wide`: the caller copies
        publications in slices if there are many subscribers."""
        route.changes = self._counter(route.topic)
        route.version = route.changes[0]
        entries = self._few(route.topic) if may_be_wide else self.subscriptions.entries(route.topic)
        route.wide = entries is None
        if entries is None:
            route.receivers, route.shared, route.fast_path = (), (), FastPath.NONE
            self.find_elsewhere(route)
            return
        matched = matched_by(entries)
        route.receivers = tuple(
            _receiver(session, (interest.echoed or interest) if session.client_id == publisher.client_id else interest)
            for session, interest in matched.direct.items()
            if not (interest.no_local and session.client_id == publisher.client_id)  # [MQTT5-3.8.3-3]
            and self.may_receive(session, route.topic)
        )
        route.is_own = any(one.no_local or one.echoed is not None for one in matched.direct.values())
        route.shared = tuple(self.shared(group, route.topic) for group in matched.groups)
        route.stored = None
        bounds = self.context.bounds
        most = MOST_COPIES if bounds is None else min(MOST_COPIES, bounds.enough)
        route.most = max(1, most // (len(route.receivers) + len(route.shared) or 1))
        self.find_elsewhere(route)
        checked = any(policy.too_long == "reject" for policy in route.policies) and not self._is_measured(route)
        offered = route.first >> 1 & 3 <= self.context.limits.max_qos  # [MQTT-3.2.2-11]
        looked_at = checked or not offered or route.shared_elsewhere or route.sent_on
        route.fast_path = FastPath.NONE if looked_at else self._path_to_queues(route)
        wanted = route.receivers or route.shared or (route.elsewhere and route.fast_path is FastPath.NONE)
        if wanted and not looked_at:
            route.fast_path = self._path_to_sessions(route)

    def _is_measured(self, route: Route) -> bool:
        """Whether the fast lane leaves to the plain one what is too long for the queue of a rule with `too_long:
        reject`: that works where the route has one form, which checks the length. A publication of QoS 2 is refused
        before there is a message."""
        form = route.ask_for_form() if len(route.policies) == 1 and not route.first & 4 else None
        if form is None:
            return False
        if not isinstance(form.check, Measure):
            measured = copy(form)
            measured.check = Measure(self, route, form.check)
            route.form, route.head = measured, b""
        return True

    def is_wide(self, topic: str) -> bool:
        """Whether so many subscriptions match a topic, or so many places have to be looked at to find them, that its
        publications are copied in slices."""
        return self._few(topic) is None

    def _few(self, topic: str) -> list[tuple[str, Members[Session]]] | None:
        """Return the filters that match a topic, or None if the topic is wide."""
        if self.has_walked(topic):
            return self._walked[topic][2]
        entries = self.subscriptions.entries_among(topic, MOST_PLACES)
        return None if entries is None or width(entries) > WIDE else entries

    def has_walked(self, topic: str) -> bool:
        """Whether the filters are known that match a topic for which many places have to be looked at."""
        changes, version, _ = self._walked.get(topic, (_NEVER_WALKED, 0, ()))
        if changes[0] != version:
            self._walked.pop(topic, None)
        return changes[0] == version

    def keep_walked(self, route: Route, version: int, entries: list[tuple[str, Members[Session]]]) -> None:
        """Keep what was found once all places have been looked at."""
        if route.changes[0] == version and width(entries) <= WIDE and len(route.topic) <= _CACHED_LENGTH:
            if len(self._walked) >= _MOST_WALKED:
                self._walked.clear()
            self._walked[route.topic] = route.changes, version, entries

    def find_elsewhere(self, route: Route) -> None:
        """Find which other gateways have subscribers."""
        route.sent_on = self.sent_on(route.topic)
        if not len(self.elsewhere):
            route.elsewhere, route.shared_elsewhere = (), {}
            return
        matched = self.elsewhere.match(route.topic)
        gone = self._gone
        route.elsewhere = tuple(one for one in matched.direct if one not in gone)
        groups = {name_of(group): tuple(one for one in group.members if one not in gone) for group in matched.groups}
        route.shared_elsewhere = {name: members for name, members in groups.items() if members}

    def _path_to_queues(self, route: Route) -> FastPath:
        if route.first & 1 and not self._may_keep(route):
            return FastPath.NONE
        if route.head:
            return FastPath.STAGED if route.first & 4 else FastPath.DIRECT
        if route.plan is None and not route.elsewhere:
            return FastPath.UNROUTED
        leads_nowhere = route.reads and route.plan is not None and not (route.plan.prepared or route.plan.dead_letter)
        if route.first & 4 and (route.linked or route.form or leads_nowhere):
            return FastPath.STAGED
        if route.linked:
            return FastPath.LINKED
        return FastPath.FORMED if route.form or leads_nowhere else FastPath.NONE

    def _path_to_sessions(self, route: Route) -> FastPath:
        """Return the path to subscribers, and to the route's queue if it has one."""
        if route.first & 1 and not self._may_keep(route):
            return FastPath.NONE
        is_whole = bool(route.head or route.form) or route.plan is None
        if route.first & 4:
            return FastPath.PROMISED if is_whole else FastPath.NONE
        return FastPath.FAN_OUT if is_whole or route.linked else FastPath.NONE

    def _may_keep(self, route: Route) -> bool:
        """Whether a retained message of this route concerns this gateway alone. What MQ retains too takes the plain
        lane."""
        each: Route | None = route
        while each is not None and not each.address.retain:
            each = each.otherwise
        return self.context.limits.retain and each is None

    def shared(self, group: Group[Session], topic: str) -> Shared:
        """A shared subscription with the members that may have the topic."""
        members = group.members

        def receiver(session: Session) -> Receiver | None:
            interest = members.get(session)
            allowed = interest is not None and self.may_receive(session, topic)
            return _receiver(session, interest) if interest is not None and allowed else None

        return Shared(name_of(group), members, receiver)

    def may_receive(self, session: Session, topic: str) -> bool:
        """Whether the access list lets a session receive a topic; asked again when the list changes. A session that has
        ended gets nothing, though its filters may still be there for a moment."""
        return not session.ended and self.access.may_receive(session.listener, session.client_id, session.user, topic)

    # -- subscriptions --

    def _counter(self, topic: str) -> list[int]:
        """The change counter of a topic's first level: subscriptions below other levels do not void its routes."""
        level = topic.partition("/")[0][:_MAX_LEVEL]
        counter = self._counters.get(level)
        if counter is None:
            if len(self._counters) >= _MAX_COUNTERS:
                self._forget_counters()
            counter = self._counters[level] = [0]
        return counter

    def _forget_counters(self) -> None:
        """Void every route and forget the counters. This bounds the memory for a client that publishes below ever new
        first levels."""
        for counter in self._counters.values():
            counter[0] += 1
        self._counters.clear()

    def _changed(self, filter_: str) -> None:
        level = split_shared(filter_)[1].partition("/")[0]
        if level in {"+", "#"}:
            self._forget_counters()  # each is counted up once, however many such filters come and go
        else:
            self._counter(level)[0] += 1

    def subscribe(self, session: Session, filter_: str, interest: Interest) -> bool:
        """Add or replace a subscription. Returns True if it is new."""
        self._changed(filter_)
        new = self.subscriptions.add(session, filter_, interest)
        if new:
            self.on_interest(filter_, 1)
        return new

    def unsubscribe(self, session: Session, filter_: str) -> None:
        """Remove a subscription."""
        self._changed(filter_)
        if self.subscriptions.remove(session, filter_):
            self.on_interest(filter_, -1)

    def unsubscribe_all(self, session: Session) -> None:
        """Remove all subscriptions of a session; in slices if it has ended and has very many."""
        for filter_ in session.subscriptions:
            self._changed(filter_)
        filters = self.subscriptions.leave(session)
        if session.ended and len(filters) > _AT_ONCE:
            later = [one for one in filters if not is_shared(one)]
            filters = [one for one in filters if is_shared(one)]  # what it has of these goes to the others now
            self.context.slices.run(f"filters of {id(session)}", partial(self._remove_each, session, later))
        for _ in self._remove_each(session, filters):
            pass

    def _remove_each(self, session: Session, filters: list[str]) -> Iterator[None]:
        for filter_ in filters:
            self.subscriptions.detach(session, filter_)
            self.on_interest(filter_, -1)
            yield

    def subscribe_elsewhere(self, gateway: str, filter_: str, interest: Interest) -> None:
        """Note that a client of another gateway has subscribed."""
        if gateway in self._gone:  # it is there again
            del self._gone[gateway]
            self.elsewhere.remove_all(gateway)
        self._changed(filter_)
        self.elsewhere.add(gateway, filter_, interest)

    def unsubscribe_elsewhere(self, gateway: str, filter_: str) -> None:
        """Note that no client of another gateway subscribes to a filter any more."""
        self._changed(filter_)
        self.elsewhere.remove(gateway, filter_)

    def sharing_elsewhere(self, name: str) -> list[str]:
        """Return the other gateways with members of a shared subscription."""
        group = self.elsewhere.group(name)
        return [] if group is None else [one for one in group.members if one not in self._gone]

    def touch_filters(self, filters: Iterable[str]) -> None:
        """Void the routes of topics that one of these filters may match."""
        for filter_ in filters:
            self._changed(filter_)

    def forget_elsewhere(self, gateway: str) -> Iterator[None]:
        """Forget a gateway that has ended, in steps. Nothing goes to it from the first step on; each step forgets one
        filter, of which there may be a hundred thousand."""
        filters, this = list(self.elsewhere.of(gateway)), object()
        if filters:
            self._gone[gateway] = this
            self.touch()
        for filter_ in filters:
            yield
            if self._gone.get(gateway) is not this:  # it has come back, and may have ended again
                return
            self.elsewhere.remove(gateway, filter_)
        self._gone.pop(gateway, None)

    def too_long(self, route: Route, payload: bytes) -> int:
        """Return the longest message that the queue of a rule with `too_long: reject` takes if this payload does not
        fit, else -1."""
        return next((longest for longest, before in self._longest(route) if before + len(payload) > longest), -1)

    def longest_payload(self, route: Route) -> float:
        """Return the longest payload that all queues of rules with `too_long: reject` take."""
        return min((longest - before for longest, before in self._longest(route)), default=inf)

    def _longest(self, route: Route) -> Iterator[tuple[int, int]]:
        """Yield for each queue of a rule with `too_long: reject` the longest message, and how much of it precedes the
        payload."""
        context = self.context
        if route.plan is None:
            return
        for prepared, policy in zip(route.plan.prepared, route.policies, strict=True):
            if policy.too_long == "reject" and prepared.queue:
                before = len(prepared.head) - MQMD_LENGTH + len(prepared.tails[1])
                yield context.queue_manager.max_length(prepared.queue), before

    def state_head(self, prefix: bytes) -> bytes:
        """The head of a state message; equal prefixes share one object, so that a frame holds them once."""
        if prefix[1] & REPORTS:  # no two of these are equal
            return _STATE_MD + prefix
        head = self._heads.get(prefix)
        if head is None:
            if len(self._heads) >= _MAX_HEADS:
                self._heads.clear()
            head = _STATE_MD + prefix
            if len(prefix) <= _CACHED_LENGTH:
                self._heads[prefix] = head
        return head


class Measure:
    """The check of a form whose rule has `too_long: reject`; its queue is asked once in a turn."""

    __slots__ = ("_check", "_longest", "_route", "_router", "_until")

    def __init__(self, router: Router, route: Route, check: Check | None) -> None:
        self._router, self._route, self._check = router, route, check
        self._longest, self._until = 0.0, -inf

    def __call__(self, body: Body) -> None:
        """Check a body. Raises `Refused` if the payload is too long, or if the rule's own check refuses it."""
        until = self._router.context.until
        if until != self._until:
            self._longest, self._until = self._router.longest_payload(self._route), until
        if len(body.raw) > self._longest:
            raise Refused("it is longer than its queue takes", Feedback.TOO_LONG)
        if self._check is not None:
            self._check(body)


def name_of(group: Group[Any]) -> str:
    """A shared subscription as it is subscribed to."""
    return f"{SHARE_PREFIX}{group.name}/{group.filter}"


def origin_of(route: Route, publisher: Publisher) -> inbound.Origin:
    """What the rules are asked about: the publication without properties and payload."""
    qos, retain = route.first >> 1 & 3, bool(route.first & 1)
    user = publisher.user or ""
    return inbound.Origin(publisher.client_id, user, route.topic, qos, retain, listener=publisher.listener)


def address_of(prepared: inbound.Prepared, *, alone: bool) -> Address:
    """The address of what a rule prepared; `alone`: the publication has no other destination."""
    queue = prepared.queue or f"topic://{prepared.mq_topic}"
    syncpoint = not alone or under_syncpoint(prepared, persistent=prepared.persistent)
    retain = is_retained(prepared, prepared.mq_topic)
    return Address(
        queue, prepared.queue_manager, prepared.priority, prepared.persistent, syncpoint=syncpoint, retain=retain
    )


def address_by_form(prepared: inbound.Prepared, form: Form) -> Address:
    """The address of messages that a rule's form makes."""
    queue, queue_manager, mq_topic = form.destination
    return Address(
        queue or f"topic://{mq_topic}", queue_manager, form.priority, form.persistent,
        syncpoint=under_syncpoint(prepared, persistent=form.persistent), retain=is_retained(prepared, mq_topic),
    )  # fmt: skip


def is_retained(prepared: inbound.Prepared, mq_topic: str) -> bool:
    """Whether MQ is to keep the publication for later subscribers; an empty one is kept nowhere."""
    return bool(mq_topic) and prepared.origin.retain


def under_syncpoint(prepared: inbound.Prepared, *, persistent: bool) -> bool:
    """Whether a message is part of the unit of work."""
    return bool(why_within(prepared, persistent=persistent))


def policy_of(prepared: inbound.Prepared) -> Policy:
    """The failure policy of the rule that prepared this."""
    return policy_in(prepared.rule.spec)


def policy_in(spec: ToMq) -> Policy:
    """The failure policy of a rule."""
    retry = spec.on_failure.retry
    return Policy(spec.name, retry.times, retry.first, retry.longest, spec.on_failure.then, spec.too_long)


def policies_of(table: Table, rules: Collection[str]) -> dict[str, Policy]:
    """The failure policies of these rules, perhaps ten thousand, by their names."""
    specs = (route.rule.spec for route in table.routes) if rules else ()
    return {spec.name: policy_in(spec) for spec in specs if spec.name in rules}


def _receiver(session: Session, interest: Interest) -> Receiver:
    return Receiver(session, interest.qos, interest.retain_as_published, interest.identifiers)
