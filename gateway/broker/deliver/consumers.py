"""From queues and MQ topics to devices: fetch, hand over, take: one unit of work a batch. Pure.

A message leaves its queue in the unit of work that stores it for its durable sessions (or dead-letters
it); for the others it has been handed to their connections when that unit is submitted. What was published to the
gateway is never routed back to a queue from here, and what its own devices published is recognised by its origin, so
the two directions cannot feed each other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial

from gateway.broker.context import Context
from gateway.broker.deliver import pages
from gateway.broker.deliver.handover import BATCH, DEEP, GIVING_SECONDS, PAUSE, Handover, Source
from gateway.broker.deliver.pages import Taken
from gateway.broker.deliver.target_queues import TargetQueue
from gateway.errors import MQError
from gateway.mq.constants import MQRC_UNKNOWN_OBJECT_NAME
from gateway.ports.asking import found_or_raised
from gateway.ports.batch import Stored
from gateway.ports.counters import MqCall, mqrc_label
from gateway.ports.sources import Backout, Claims, Gathers, Incomplete, LetsGo, Pages, Sources, Subscribed, TellsDefined
from gateway.ports.targets import Origin
from gateway.routing.table import Table
from gateway.rules.mappings import OutboundRule
from gateway.session.session import Session

PATIENCE = 5.0
"""For this many seconds a device that is full may let the others wait without acknowledging anything; then it loses its
own messages."""
_AT_ONCE_SECONDS = 0.05
"""For this many seconds, queues of new rules are opened at once; the others follow when there is time."""
_REST_FOR_PART = 0.0002
"""Seconds of rest for each part that was read: several times as long as reading one takes."""
_REOPEN = 10.0
"""Seconds until a queue or topic is tried again that could not be consumed."""


def _nothing() -> None:
    """Do nothing, where nothing has to be cancelled."""


class Consumers:
    """Runs the rules from queues and topics to devices."""

    def __init__(self, context: Context, handover: Handover) -> None:
        self.context = context
        self.handover = handover
        manager = context.queue_manager
        self._pages = manager if isinstance(manager, Pages) else None
        """The queue manager if it provides messages in columns; the next ones likewise, if it can do what their names
        say."""
        self._claims = manager if isinstance(manager, Claims) else None
        self._gathers = manager if isinstance(manager, Gathers) else None
        self._sources = manager if isinstance(manager, Sources) else None
        self._lets_go = manager if isinstance(manager, LetsGo) else None
        self._until = 0.0
        """The time up to which queues are opened at once."""
        self._full: dict[Session, tuple[int, float]] = {}
        """Connected sessions that are full, each with what it had acknowledged and since when it has acknowledged
        nothing more."""
        self._room = BATCH
        """How many more messages every connected session that keeps up has room for, as far as that matters."""
        self.sources: dict[str, Source] = {}
        """The sources of this queue manager by queue, and for MQ topics by subscription and topic."""
        self.at_targets: dict[tuple[str, Origin], TargetQueue] = {}
        """The queues of targets that are consumed."""
        self._consumed: dict[str, list[Source]] = {}
        self.asked: set[Source] = set()
        """Queues and topics about which the queue manager has been asked and has not answered yet."""
        self._refused: dict[Source, Callable[[], None]] = {}
        """Sources that cannot be consumed yet, each with the call that cancels the next attempt."""
        self._waiting: list[Callable[[], None]] = []
        """Calls that are made when the queue manager has answered."""
        context.on_committed = self.resume
        context.on_doubt = self._doubt
        if isinstance(manager, TellsDefined):
            manager.tell_defined(self._defined)

    def know(self, table: Table) -> tuple[dict[str, list[OutboundRule]], dict[tuple[str, Origin], list[OutboundRule]]]:
        """Note what the rules say about messages that other gateways pass on, which may come before anything is
        consumed here. Returns the rules by where they consume: from this queue manager, and from targets."""
        handover = self.handover
        handover.gateway = table.gateway
        handover.apart = frozenset(
            rule.name for rule in table.outbound if "{gateway}" in (rule.spec.subscription or "")
        )
        wanted: dict[str, list[OutboundRule]] = {}
        elsewhere: dict[tuple[str, Origin], list[OutboundRule]] = {}
        for rule in table.outbound:
            for target in rule.targets:
                elsewhere.setdefault((target, self._origin(rule)), []).append(rule)
            if not rule.targets:
                wanted.setdefault(self._key(rule), []).append(rule)
        all_rules = (*wanted.values(), *elsewhere.values())
        handover.rules = {rule.spec.name: rules for rules in all_rules for rule in rules}
        return wanted, elsewhere

    def use(self, table: Table) -> None:
        """Consume what the rules name, at start and after a reload."""
        self._until = self.context.scheduler.monotonic() + _AT_ONCE_SECONDS
        wanted, elsewhere = self.know(table)
        self._use_at_targets(elsewhere)
        back = [source for key, source in self.sources.items() if key in wanted and not source.active]
        for key, source in self.sources.items():
            source.active = key in wanted
            source.rules = wanted.get(key, [])
        self._let_go()
        for key, rules in wanted.items():
            known = self.sources.get(key)
            if known is None:
                known = self.sources[key] = Source(self._origin(rules[0]).queue, rules)
            if known in self._consumed.get(known.queue, ()):
                self._look_again(known)
            else:
                self._open_at_once(known)
        for source in back:
            if source.queue:
                self.arrived(source)  # what came while no rule named it was announced in vain

    def _let_go(self) -> None:
        """Stop consuming queues that no rule names any more; a queue with messages under way is let go when they are
        taken."""
        manager = self._lets_go
        if manager is None:
            return
        for queue, listening in list(self._consumed.items()):
            wanted = {source.key for source in listening if source.active}
            if wanted:  # what rules have subscribed to shares a queue: those that are no more are left
                for key in {source.key for source in listening if source.key} - wanted:
                    manager.stop_consuming(queue, key)
            elif self._claims is not None and any(source.running for source in listening):
                self.context.scheduler.later(PAUSE, self._let_go)
            else:
                del self._consumed[queue]
                manager.stop_consuming(queue)

    def _use_at_targets(self, wanted: dict[tuple[str, Origin], list[OutboundRule]]) -> None:
        """Put into force the rules that consume from targets."""
        for name in self.at_targets.keys() - wanted.keys():
            self.at_targets.pop(name).retire()
        for (target, origin), rules in wanted.items():
            if (target, origin) in self.at_targets:
                self.at_targets[target, origin].use(rules)
            else:
                made = TargetQueue(self.context, self.handover, target, origin, rules, self.arrived)
                self.at_targets[target, origin] = made

    def _origin(self, rule: OutboundRule) -> Origin:
        spec = rule.spec
        if spec.mq_topic is not None:
            return Origin("", spec.mq_topic, self.subscription(rule))
        return Origin(spec.queue or spec.transmission_queue or "")

    def _doubt(self, key: bytes) -> None:
        for source in self.at_targets.values():
            if source.key == key:
                source.doubt()

    def _key(self, rule: OutboundRule) -> str:
        origin = self._origin(rule)
        return origin.queue or f"topic://{origin.subscription}\0{origin.topic}"

    def subscription(self, rule: OutboundRule) -> str:
        """The name of the rule's durable subscription."""
        given = rule.spec.subscription or f"mqgate.{rule.name}"
        return given.replace("{gateway}", self.handover.gateway)

    def _open_at_once(self, source: Source) -> None:
        """Open a source at once if its queue manager answers in time, so that it is there when the rules are; otherwise
        as `_open` does."""
        remote, rule = self.context.remote_reads, source.rules[0]
        found: tuple[Subscribed, Backout] | MQError = MQError(0)
        if remote is not None and self.context.scheduler.monotonic() < self._until:
            found = found_or_raised(lambda: remote.briefly(lambda: self._look(source, rule)))
        if isinstance(found, MQError):
            self._open(source)
        else:
            self._opened(source, found)

    def _open(self, source: Source) -> None:
        """Subscribe if the source is a topic, and ask to be told of arrivals. What fails is tried again."""
        if source.active:
            rule = source.rules[0]
            self.asked.add(source)
            self.context.ask(lambda: self._look(source, rule), partial(self._answered, source))

    def when_open(self, done: Callable[[], None]) -> None:
        """Call `done` when the queue manager has said of everything that the rules consume whether it can be consumed,
        or after PATIENCE. From then on, what is published on their topics reaches devices."""
        waiting = [done]

        def over() -> None:
            if waiting:
                waiting.pop()()

        if not self.asked:
            over()
            return
        self._waiting.append(over)
        self.context.scheduler.later(PATIENCE, over)

    def _answered(self, source: Source, found: tuple[Subscribed, Backout] | MQError) -> None:
        self.asked.discard(source)
        try:
            self._opened(source, found)
        finally:
            if not self.asked:
                waiting, self._waiting = self._waiting, []
                for over in waiting:
                    over()

    def _look(self, source: Source, rule: OutboundRule) -> tuple[Subscribed, Backout]:
        """Return where a source's messages come from and what the queue manager knows of it. Changes nothing here."""
        topic = rule.spec.mq_topic
        if topic is None or source.queue:
            where = Subscribed(source.queue, source.key)
        else:
            where = self._subscribe(self.subscription(rule), topic)
        return where, self._backout(rule, where.queue)

    def _opened(self, source: Source, found: tuple[Subscribed, Backout] | MQError) -> None:
        context, problem, listening = self.context, source.name, list[Source]()
        try:
            if isinstance(found, MQError):
                raise found
            (source.queue, source.key), source.backout = found
            self._gather(source)
            listening = self._consumed.get(source.queue, [])
            if source in listening:
                return
            if not listening:
                context.queue_manager.consume(source.queue, lambda: self._arrived(source.queue))
            self._consumed[source.queue] = [*listening, source]
        except MQError as error:
            context.problems[problem] = f"it cannot be consumed: {error}; define it (mqgate mqsc)"
            self._open_later(source)
            return
        context.problems.pop(problem, None)
        if listening:
            self.arrived(source)

    def _open_later(self, source: Source) -> None:
        """Open a source after a while, or when its queue is defined."""
        self._refused.pop(source, _nothing)()
        self._refused[source] = self.context.scheduler.later(_REOPEN, lambda: self._open_again(source))

    def _open_again(self, source: Source) -> None:
        self._refused.pop(source, _nothing)()
        self._open(source)

    def _defined(self, queues: Collection[str]) -> None:
        for source in [one for one in self._refused if one.queue in queues]:
            self._open_again(source)

    def _look_again(self, source: Source) -> None:
        """Look at a source again: its rules may have changed."""
        rule = source.rules[0]

        def found(known: tuple[Subscribed, Backout] | MQError) -> None:
            if not isinstance(known, MQError):  # else what was known before holds
                source.backout = known[1]

        self._gather(source)
        self.context.ask(lambda: self._look(source, rule), found)

    def _subscribe(self, name: str, topic: str) -> Subscribed:
        if self._sources is None:
            raise MQError(2298, "this queue manager takes no subscriptions from rules")  # MQRC_FUNCTION_NOT_SUPPORTED
        return self._sources.subscribe(name, topic)

    def _backout(self, rule: OutboundRule, queue: str) -> Backout:
        """Return what the rule says about backing out, otherwise the queue's own BOTHRESH and BOQNAME."""
        given, own = rule.spec.backout, Backout()
        if (given.threshold is None or given.queue is None) and self._sources is not None:
            own = self._sources.backout(queue)
        return own.unless(given.threshold, given.queue)

    def _gather(self, source: Source) -> None:
        """Tell the queue manager whether a source's groups are wanted whole."""
        if self._gathers is not None:
            self._gathers.gather(source.queue, groups=any(rule.spec.groups == "whole" for rule in source.rules))

    def incomplete(self) -> Iterator[tuple[str, Incomplete]]:
        """Consumed queues with messages that stay because parts of them are missing, and which those are."""
        if self._gathers is None:
            return
        for queue in self._consumed:
            found = self._gathers.incomplete(queue)
            if found.number:
                yield queue, found

    def problems_at_targets(self) -> dict[str, str]:
        """The consumed queues of targets, each with what prevents it from being consumed."""
        problems = self.context.problems
        return {source.name: problems.get(source.name, "") for source in self.at_targets.values()}

    # -- arrivals --

    def _arrived(self, queue: str) -> None:
        for source in self._consumed.get(queue, ()):
            self.arrived(source)

    def arrived(self, source: Source) -> None:
        """Fetch from a source, as the queue manager says that messages may have arrived."""
        if source.running or source.paused or not source.active:
            source.waiting = source.running or source.paused
            return
        source.running = True
        self.context.scheduler.soon(lambda: self.pump(source))

    def resume(self) -> None:
        """Try the sources that were held back, as a unit of work was committed and there may be room now."""
        for source in (*self.sources.values(), *self.at_targets.values()):
            if source.waiting and not source.running and not source.paused:
                source.waiting = False
                self.arrived(source)

    def pump(self, source: Source) -> None:
        """Fetch and hand over one batch; everything it leads to is in one unit of work with its takes."""
        context = self.context
        context.now = context.scheduler.now()
        held_back = source.paused or context.draining or context.batch.rows > 5000 or context.is_full
        if held_back or not source.active or self._congested():
            source.running, source.waiting = False, True
            if self._full:
                context.scheduler.later(PAUSE, self.resume)  # perhaps nothing is committed until then
            return
        try:
            self._pump(source)
        except Exception as error:  # noqa: BLE001 -- nothing has been taken: it is read again, after a while
            context.set_aside.keep("queue_message", source.name, error)
            source.running, source.waiting = False, True
            context.scheduler.later(PAUSE, self.resume)

    def _pump(self, source: Source) -> None:
        context = self.context
        if isinstance(source, TargetQueue):
            source.pump()
            return
        fetched = context.scheduler.monotonic()
        if context.remote_reads is not None and self._claims is not None:
            stored = self._claims.claim(source.queue, source.key, source.claimed)
            self.handover.know_requests(stored, lambda error: self._pass_on(source, fetched, stored, error))
            return
        try:
            taken = self._page(source) or self._messages(source, self._fetched(source))
        except MQError as error:
            self._failed(source, error)
            return
        self._taken(source, fetched, taken)

    def _failed(self, source: Source, error: MQError) -> None:
        context = self.context
        context.problems[source.name] = f"get: {error}"
        series: tuple[str, MqCall, str] = context.queue_manager.name, "get", mqrc_label(error.reason)
        context.counters.mq_errors[series] += 1
        context.counters.examples.note("mq_errors", series, queue=source.queue)
        source.running, source.waiting = False, error.reason != MQRC_UNKNOWN_OBJECT_NAME
        if error.reason == MQRC_UNKNOWN_OBJECT_NAME:
            self._gone(source)

    def _gone(self, source: Source) -> None:
        """Forget a source whose queue was deleted. A queue that is defined by that name later is another one, which is
        asked for anew; so is a topic's subscription, whose queue is deleted with it."""
        listening = self._consumed.pop(source.queue, [])
        if source in listening:
            listening = [one for one in listening if one is not source]
            self._open_later(source)
        if listening:
            self._consumed[source.queue] = listening
        if source.rules and source.rules[0].spec.mq_topic is not None:
            source.queue = ""

    def _pass_on(self, source: Source, fetched: float, stored: list[Stored], error: MQError | None) -> None:
        """Hand over claimed messages, once it is known what they answer."""
        if error is None:
            self._taken(source, fetched, self._messages(source, stored))
            return
        self._failed(source, error)
        self.context.scheduler.later(PAUSE, self.resume)  # they come again

    def _taken(self, source: Source, fetched: float, taken: Taken) -> None:
        context = self.context
        context.problems.pop(source.name, None)
        if taken:
            context.batch.after.append(lambda: self._again(source, fetched, taken))
            context.flush()
            return
        rest = self._rest(source)
        if rest:
            context.scheduler.later(rest, lambda: self._rested(source))
        else:
            source.running = False

    def _rest(self, source: Source) -> float:
        """For how long a queue is left alone after a look that has come to its end. Each look reads the parts of
        everything incomplete there, so a program that puts the parts of a long group one by one would otherwise keep
        the gateway from anything else."""
        parts = self._gathers.incomplete(source.queue).messages if self._gathers is not None else 0
        return min(parts * _REST_FOR_PART, PAUSE) if parts > BATCH else 0.0

    def _rested(self, source: Source) -> None:
        source.running = False
        if source.waiting and not source.paused:
            source.waiting = False
            self.arrived(source)

    def _page(self, source: Source) -> Taken:
        """Hand over the next messages as columns, where the queue manager provides them so."""
        if self._pages is None:
            return {}
        page = self._pages.fetch_page(source.queue, source.key, min(source.batch, self._room))
        if page is None:
            return {}
        taken, count = pages.hand_over(self.handover, source, page)
        self.context.batch.taken(source.queue, source.key).extend(page.tokens[:count])
        source.fit(count, sum(map(len, page.bodies)))
        return taken

    def _fetched(self, source: Source) -> list[Stored]:
        if self._claims is not None:
            return self._claims.claim(source.queue, source.key, source.claimed)
        return self.context.queue_manager.fetch(source.queue, source.key, BATCH)

    def _messages(self, source: Source, found: list[Stored]) -> Taken:
        """Hand over the next messages as whole messages. Claimed ones are dealt with now; the rest of the others may
        wait."""
        context, taken = self.context, Taken()
        monotonic, claimed = context.scheduler.monotonic, self._claims is not None
        begun = monotonic()
        for stored in found:
            context.batch.take(source.queue, source.key, stored.token)
            taken.setdefault(self.handover.one(source, stored), []).append(stored.token)
            context.close_full()
            if not claimed and (source.in_slices or context.is_full or monotonic() - begun > GIVING_SECONDS):
                break
        if claimed and found:
            source.took(len(found), monotonic() - begun)
        return taken

    def _again(self, source: Source, fetched: float, taken: Taken) -> None:
        """Look at a source again, as the unit of work is committed and what it led to is handed to connections or
        stored for sessions."""
        counters, now = self.context.counters, self.context.scheduler.monotonic()
        counters.bridge_latency_seconds["out"].observe_many(now - fetched, sum(map(len, taken.values())))
        for rule, tokens in taken.items():
            taken_away = len(tokens) - sum(token in source.stayed for token in tokens) if source.stayed else len(tokens)
            counters.mq_get_messages[self.context.queue_manager.name, rule] += taken_away
        source.stayed.clear()
        rest = self._rest(source) if sum(map(len, taken.values())) < BATCH else 0.0
        scheduler = self.context.scheduler

        def pump() -> None:
            if rest:
                scheduler.later(rest, lambda: self.pump(source))
            else:
                scheduler.soon(lambda: self.pump(source))

        if source.under_way:
            source.over = pump
        else:
            pump()

    def _congested(self) -> bool:
        """Whether a connected session is so full that fetching more would only move the queue into memory. A session
        that no longer acknowledges anything is not waited for: what is for it alone is treated as undeliverable, and
        the others get theirs."""
        now = self.context.scheduler.monotonic()
        before, self._full = self._full, {}
        self._room = DEEP
        for connection in self.context.connections:
            session, most = connection.session, connection.limits.max_queued
            waiting = max(session.outflow.queued, session.stored)
            if waiting and waiting > most - BATCH:
                seen = before.get(session)
                moved = seen is None or seen[0] != session.delivered
                self._full[session] = (session.delivered, now) if moved or seen is None else seen
            elif most - waiting < self._room:
                self._room = most - waiting
        return any(now - since < PATIENCE for _, since in self._full.values())
