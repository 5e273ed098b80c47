"""Topics: the topic objects above a topic string, the subscriptions that match it, retained publications, publishing.

Subscriptions are definitions of type SUB in the catalogue; `Topics` keeps the index by which publications find them.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gateway.errors import HeaderError, MQError
from gateway.mq import constants as mq
from gateway.mq import propctl, properties
from gateway.queue_manager import descriptor
from gateway.queue_manager.core import Core
from gateway.queue_manager.descriptor import LENGTH, Descriptor, padded
from gateway.queue_manager.objects import topic_names
from gateway.queue_manager.objects.attributes import Value
from gateway.queue_manager.objects.catalogue import Definition, matches
from gateway.queue_manager.objects.dynamic_queues import delete_dynamic, make_dynamic
from gateway.queue_manager.objects.name_resolution import resolve
from gateway.queue_manager.objects.placement import Placer
from gateway.queue_manager.objects.selectors import Selector, compile_selector
from gateway.queue_manager.objects.topic_names import CHARACTER_WILDCARDS, is_inside
from gateway.queue_manager.store.unit import StoreUnit

Contents = dict[tuple[str, bool], tuple[bytes, bytes]]
"""What copies of one publication have behind their descriptors, and the descriptor that matches, by user data of the
subscription and by whether they have message properties."""
RETAINED_STATE = b"retained/"
_UNTIL = struct.Struct("<4sq")
_EXPIRES = b"UNTL"
"""How a record of a retained publication with an Expiry begins, followed by when it expires (microseconds); any other
begins with its descriptor."""
BASE = "SYSTEM.BASE.TOPIC"
REMEMBERED = 10_000
"""Topics whose attributes and counts are cached."""
TOPIC_WILDCARDS = 2
"""A value of WSCHEMA."""
NO_PROPERTIES = 0
"""PSPROP(NONE): a publication says nothing about its topic and the subscription."""
MANAGED_PREFIX = {True: "SYSTEM.MANAGED.DURABLE.*", False: "SYSTEM.MANAGED.NDURABLE.*"}
MODEL = {True: ("MDURMDL", "SYSTEM.DURABLE.MODEL.QUEUE"), False: ("MNDURMDL", "SYSTEM.NDURABLE.MODEL.QUEUE")}
HIGHEST_LEVEL, LEVEL_OF_RETAINED = 9, 1
"""The SUBLEVEL that a publication reaches unless its put asks for a lower one, and the one that a retained publication
reaches."""
ALL_OR_NONE, ALL_DURABLE_OR_NONE = 1, 2
"""Values of PMSGDLV and NPMSGDLV under which a publication fails when any subscription, or any durable one, cannot be
reached."""


@dataclass(slots=True)
class Subscription:
    """A SUB definition, compiled for matching."""

    definition: Definition
    topic: str
    pattern: re.Pattern[str] | None
    """None if the topic has no wildcards."""
    destination: str
    destination_queue_manager: str
    correl_id: bytes
    selector: Selector | None
    priority: int
    user_data: str
    durable: bool
    on_request: bool
    level: int
    user: str
    expires: int
    """Seconds since the epoch; 0: never."""
    grouped: bool
    """MQSO_GROUP_SUB: of several such subscriptions with the same destination and CorrelId, one gets a publication."""
    blocked: tuple[str, ...] = ()
    """Topic strings at and below which its wildcards match nothing: WILDCARD(BLOCK) of a topic object, as it was when
    the subscription was made."""

    def matches(self, topic: str) -> bool:
        """Whether the subscription covers this topic."""
        if self.pattern is None:
            return self.topic == topic
        return self.pattern.match(topic) is not None and not any(is_inside(topic, over) for over in self.blocked)


def compile_topic(topic: str, schema: int) -> re.Pattern[str] | None:
    """Returns the pattern of a topic with wildcards: `+` for one level and `#` for any number of levels, or `*` for any
    characters and `?` for one. Returns None without wildcards."""
    if schema == CHARACTER_WILDCARDS:
        if "*" not in topic and "?" not in topic:
            return None
        body = re.escape(topic).replace(r"\*", ".*").replace(r"\?", ".")
        return re.compile(body + r"\Z", re.DOTALL)
    levels = topic.split("/")
    if "+" not in levels and "#" not in levels:
        return None
    return re.compile(_levels(levels) + r"\Z")


def _levels(levels: list[str]) -> str:
    """Returns the expression for the levels. A `#` includes its separator, so that a/# matches a, and #/b matches b."""
    parts: list[str] = []
    for index, level in enumerate(levels):
        first, last = index == 0, index == len(levels) - 1
        if level == "#":
            if first and last:
                return ".*"
            parts.append("(?:.*/)?" if first else "(?:/.*)?")
            continue
        after_leading_many = index == 1 and levels[0] == "#"
        separator = "" if first or after_leading_many else "/"
        parts.append(separator + ("[^/]*" if level == "+" else re.escape(level)))
    return "".join(parts)


def _one_of_each_group(found: list[Subscription]) -> list[Subscription]:
    """Returns the subscriptions that are not grouped, and of the grouped ones the first for each destination and
    CorrelId."""
    if not any(one.grouped for one in found):
        return found
    seen: set[tuple[str, str, bytes]] = set()
    chosen = []
    for one in found:
        group = one.destination, one.destination_queue_manager, one.correl_id
        if one.grouped and group in seen:
            continue
        if one.grouped:
            seen.add(group)
        chosen.append(one)
    return chosen


def _for_subscribers(md: bytes, data: bytes) -> tuple[bytes, bytes]:
    """Returns the publication without the properties that are not to be copied into publications (MQPD,
    CopyOptions)."""
    found = properties.properties_of(md, data) if b" copy=" in data else []
    kept = properties.copied(found, "publish")
    if len(kept) == len(found):
        return md, data
    return properties.with_properties(*propctl.without_properties(md, data), kept)


def _content(
    topic: str, md: bytes, data: bytes, user_data: str, has_properties: bool, *, retained: bool
) -> tuple[bytes, bytes]:
    """Returns what copies of a publication have behind their descriptors, and a descriptor that matches."""
    held = [properties.Property("mqps.Top", topic)] if has_properties else []
    if has_properties and user_data:
        held.append(properties.Property("mqps.Sud", user_data))
    if has_properties and retained:
        held.append(properties.Property("mqps.Ret", value=True, dt="boolean"))
    try:
        return properties.with_properties(*_for_subscribers(md, data), held)
    except (MQError, HeaderError):  # the publisher's own MQRFH2 is broken: nothing can be added to it
        return md, data


class Topics:
    """The index of subscriptions, the retained publications, and the attributes of topic strings."""

    def __init__(self, core: Core, placer: Placer) -> None:
        self._core = core
        self._placer = placer
        self._exact: dict[str, dict[str, Subscription]] = {}
        self._wild: dict[str, Subscription] = {}
        self.retained: dict[str, tuple[bytes, bytes]] = {}
        self._retained_until: dict[str, float] = {}
        """When those with an Expiry expire, in seconds since the epoch."""
        self.published: dict[str, int] = {}
        """Number of publications on each topic, for the first REMEMBERED topics."""
        self._topics_of: dict[str, str] = {}
        """The topics of subscriptions without wildcards, by name."""
        self._objects: dict[str, list[Definition]] = {}
        """Topic objects by topic string. The next attribute holds the lengths of these strings, the longest first."""
        self._lengths: list[int] = []
        self._governed: dict[tuple[str, str], Value] = {}
        self._changes = -1
        core.on_installed.append(self._installed)
        core.on_removed.append(self._ended)
        core.on_state.append(self._state_changed)
        for definition in core.catalogue.matching(("SUB",)):
            self._installed(definition)
        self._state_changed(dict(core.store.state()))
        placer.publish = self.publish

    # The index

    def _installed(self, definition: Definition) -> None:
        if definition.kind != "SUB":
            return
        self._removed(definition)
        try:
            subscription = self._compile(definition)
        except MQError:  # its topic object is not defined, or it has no topic at all: nothing matches
            return
        if subscription.pattern is None:
            self._exact.setdefault(subscription.topic, {})[definition.name] = subscription
            self._topics_of[definition.name] = subscription.topic
        else:
            self._wild[definition.name] = subscription

    def _ended(self, definition: Definition) -> None:
        """A subscription was deleted: delete its managed queue now, or when it is closed."""
        self._removed(definition)
        if definition.kind != "SUB" or definition.number("DESTCLAS") != mq.MQDC_MANAGED:
            return
        queue = self._core.queues.get(definition.text("DEST"))
        if queue is not None and queue.open_count:
            queue.ending = True
        elif queue is not None:
            delete_dynamic(self._core, queue)

    def _removed(self, definition: Definition) -> None:
        if definition.kind != "SUB":
            return
        self._wild.pop(definition.name, None)
        topic = self._topics_of.pop(definition.name, None)
        if topic is not None:
            del self._exact[topic][definition.name]
            if not self._exact[topic]:
                del self._exact[topic]

    def _compile(self, definition: Definition) -> Subscription:
        topic = self.full(definition.text("TOPICOBJ"), definition.text("TOPICSTR"))
        selector = definition.text("SELECTOR")
        correlation = definition.text("DESTCORL")
        pattern = compile_topic(topic, definition.number("WSCHEMA"))
        return Subscription(
            definition,
            topic,
            pattern,
            definition.text("DEST"),
            definition.text("DESTQMGR"),
            bytes.fromhex(correlation)[:24].ljust(24, b"\0") if correlation else bytes(24),
            compile_selector(selector) if selector else None,
            definition.number("PUBPRTY"),
            definition.text("USERDATA"),
            definition.number("DURABLE") == 1,
            definition.number("REQONLY") == 1,
            definition.number("SUBLEVEL"),
            definition.text("SUBUSER"),
            int(definition.extra.get("EXPIRES", 0)),
            bool(definition.extra.get("GROUPED", 0)),
            topic_names.blocked(definition),
        )

    def topic_of(self, subscription: Definition) -> str:
        """Returns the topic string of a subscription, which may be given by a topic object."""
        return topic_names.topic_of(self._core.catalogue, subscription)

    def matching(self, topic: str) -> Iterator[Subscription]:
        """Yields the subscriptions that match this topic."""
        yield from self._exact.get(topic, {}).values()
        for subscription in self._wild.values():
            if subscription.matches(topic):
                yield subscription

    def expired(self) -> list[Definition]:
        """Returns the subscriptions whose SubExpiry has passed."""
        now = self._core.now()
        every = [*self._wild.values(), *(one for by_name in self._exact.values() for one in by_name.values())]
        return [one.definition for one in every if 0 < one.expires <= now]

    def known(self, pattern: str = "#") -> list[str]:
        """Returns the topics that were published on, or have a retained publication or a subscription without
        wildcards, and that match `pattern`: `+` and `#` as in subscriptions, or a `*` at the end."""
        every = sorted({*self.retained, *self.published, *self._exact})
        wild = compile_topic(pattern, TOPIC_WILDCARDS)
        return [topic for topic in every if (wild.match(topic) if wild is not None else matches(pattern, topic))]

    def manages(self, queue: str) -> bool:
        """Whether a queue is the managed queue of a subscription, and is deleted with it."""
        definitions = self._core.catalogue.matching(("SUB",))
        return any(one.text("DEST") == queue and one.number("DESTCLAS") == mq.MQDC_MANAGED for one in definitions)

    @property
    def subscriptions(self) -> int:
        """Returns how many subscriptions there are."""
        return len(self._wild) + len(self._topics_of)

    def find(self, name: str) -> Subscription | None:
        """Returns a subscription by its name."""
        found = self._wild.get(name)
        topic = self._topics_of.get(name)
        return self._exact[topic][name] if found is None and topic is not None else found

    def _state_changed(self, records: dict[bytes, bytes | None]) -> None:
        for key, record in records.items():
            if key.startswith(RETAINED_STATE):
                topic = key.removeprefix(RETAINED_STATE).decode()
                self._retained_until.pop(topic, None)
                if record is not None and record.startswith(_EXPIRES):
                    self._retained_until[topic] = _UNTIL.unpack_from(record)[1] / 1_000_000
                    record = record[_UNTIL.size :]
                if record is None:
                    self.retained.pop(topic, None)
                else:
                    self.retained[topic] = (record[:LENGTH], record[LENGTH:])

    # Topic strings and the topic objects above them

    def full(self, topic_object: str, topic_string: str) -> str:
        """Returns the full topic string of a topic object and a string below it."""
        return topic_names.full(self._core.catalogue, topic_object, topic_string)

    def governing(self, topic: str, keyword: str, as_parent: Value) -> Value:
        """Returns the attribute of the closest topic object above a topic string whose value is not `as_parent`."""
        self._look_at_objects()
        value = self._governed.get((topic, keyword))
        if value is None:
            found = [one.attributes[keyword] for one in self._above(topic)]
            value = next((one for one in found if one != as_parent), as_parent)
            if len(self._governed) > REMEMBERED:
                self._governed.clear()
            self._governed[topic, keyword] = value
        return value

    def over(self, topic: str) -> list[str]:
        """Returns the topic objects above a topic string, the closest first, SYSTEM.BASE.TOPIC last."""
        self._look_at_objects()
        return [one.name for one in self._above(topic) if one.name != BASE] + [BASE]

    def _look_at_objects(self) -> None:
        catalogue = self._core.catalogue
        if self._changes == catalogue.changes("TOPIC"):
            return
        self._changes = catalogue.changes("TOPIC")
        self._governed.clear()
        self._objects = {}
        for one in catalogue.matching(("TOPIC",)):
            if one.text("TOPICSTR") or one.name == BASE:
                self._objects.setdefault("" if one.name == BASE else one.text("TOPICSTR"), []).append(one)
        self._lengths = sorted({len(over) for over in self._objects}, reverse=True)

    def _above(self, topic: str) -> Iterator[Definition]:
        """Yields the topic objects above a topic string, the closest first. They are found by their strings, because
        there may be thousands."""
        for length in self._lengths:
            over = topic[:length]
            if len(over) == length and (not over or is_inside(topic, over)):
                yield from self._objects.get(over, ())

    def make_managed_queue(self, topic: str, *, durable: bool) -> Definition:
        """Make the queue of a managed subscription from the model queue that the topic names."""
        keyword, usual = MODEL[durable]
        name = str(self.governing(topic, keyword, "")) or usual
        model = self._core.catalogue.get("QUEUE", name)
        if model is None or model.kind != "QMODEL":
            text = f"model queue {name!r} for managed subscriptions is not defined"
            raise MQError(mq.MQRC_UNKNOWN_OBJECT_NAME, text)
        return make_dynamic(self._core, model, MANAGED_PREFIX[durable])

    def check_publish(self, topic: str) -> None:
        """Raise 2051 where publishing is disabled."""
        if self.governing(topic, "PUB", 0) == 1:
            raise MQError(mq.MQRC_PUT_INHIBITED, f"publishing on {topic!r} is disabled: ALTER TOPIC PUB(ENABLED)")

    def check_subscribe(self, topic: str, *, durable: bool) -> None:
        """Raise 2503 where subscribing is disabled, and 2436 where durable subscriptions are."""
        if self.governing(topic, "SUB", 0) == 1:
            raise MQError(mq.MQRC_SUB_INHIBITED, f"subscribing to {topic!r} is disabled: ALTER TOPIC SUB(ENABLED)")
        if durable and self.governing(topic, "DURSUB", 0) == 2:
            raise MQError(
                mq.MQRC_DURABILITY_NOT_ALLOWED, f"{topic!r} takes no durable subscriptions: ALTER TOPIC DURSUB(YES)"
            )

    # Publishing

    def publish(
        self,
        topic_object: str,
        topic_string: str,
        md: bytes,
        data: bytes,
        options: int,
        unit: StoreUnit,
        level: int = HIGHEST_LEVEL,
    ) -> int:
        """Put a copy for every matching subscription of the highest SUBLEVEL up to `level`; returns how many
        subscriptions there were."""
        topic = self.full(topic_object, topic_string) if topic_object else topic_string
        self.check_publish(topic)
        if options & mq.MQPMO_RETAIN:
            self._retain(topic, md, data, unit)
        if topic in self.published or len(self.published) < REMEMBERED:
            self.published[topic] = self.published.get(topic, 0) + 1
        reached = 0
        failed: list[tuple[Subscription, MQError]] = []
        contents: Contents = {}
        for subscription in self._reached(topic, md, data, level):
            try:
                self.deliver(subscription, topic, md, data, unit, contents)
                reached += 1
            except MQError as error:
                failed.append((subscription, error))
        if failed:
            self._check_reach(topic, md, failed)
        return reached

    def _retain(self, topic: str, md: bytes, data: bytes, unit: StoreUnit) -> None:
        """Keep a publication for those who subscribe later, until it expires."""
        tenths, until = descriptor.integer(md, "expiry"), b""
        if tenths > 0:
            until = _UNTIL.pack(_EXPIRES, int(self._core.now() * 1_000_000) + tenths * 100_000)
        unit.state[RETAINED_STATE + topic.encode()] = until + md + data

    def clear_retained(self, topics: Iterable[str]) -> None:
        """Remove the retained publications of these topics."""
        self._core.commit(StoreUnit(state={RETAINED_STATE + topic.encode(): None for topic in topics}))

    def retained_and_expired(self) -> list[str]:
        """Returns the topics whose retained publication has expired."""
        now = self._core.now()
        return [topic for topic, until in self._retained_until.items() if until <= now]

    def _reached(self, topic: str, md: bytes, data: bytes, level: int) -> list[Subscription]:
        """Returns the subscriptions that get a publication: those of the highest level. A subscriber there gets it
        before those at lower levels, and publishes it to them if it wants to."""
        now = self._core.now()
        found = [
            one
            for one in self.matching(topic)
            if not (one.on_request or 0 < one.expires <= now or one.level > level)
            and (one.selector is None or one.selector.accepts(md, data))
        ]
        highest = max((one.level for one in found), default=0)
        return _one_of_each_group([one for one in found if one.level == highest])

    def _check_reach(self, topic: str, md: bytes, failed: list[tuple[Subscription, MQError]]) -> None:
        """Raise 2502 if PMSGDLV or NPMSGDLV does not allow the publication to miss these subscriptions."""
        persistent = descriptor.integer(md, "persistence") == mq.MQPER_PERSISTENT
        delivery = self.governing(topic, "PMSGDLV" if persistent else "NPMSGDLV", 0)
        durable = any(subscription.durable for subscription, _ in failed)
        if delivery == ALL_OR_NONE or (delivery == ALL_DURABLE_OR_NONE and durable):
            subscription, error = failed[0]
            text = f"subscription {subscription.definition.name!r} could not be reached: {error}"
            raise MQError(mq.MQRC_PUBLICATION_FAILURE, text)

    def deliver(
        self, subscription: Subscription, topic: str, md: bytes, data: bytes, unit: StoreUnit, contents: Contents,
        *, retained: bool = False,
    ) -> None:  # fmt: skip
        """Put one copy on a subscription's queue, or on the dead-letter queue. `contents`: what other copies have
        already."""
        definition = subscription.definition
        kind = subscription.user_data, definition.number("PSPROP") != NO_PROPERTIES
        if kind not in contents:  # the headers of a publication are read once, not for each copy
            contents[kind] = _content(topic, md, data, *kind, retained=retained)
        md, content = contents[kind]
        copy = self._copy(subscription, topic, md)
        try:
            target = resolve(self._core, subscription.destination, subscription.destination_queue_manager)
            target.check_put()
            if target.queue is not None and target.queue.temporary:  # the queue does not outlive a restart either
                copy = descriptor.with_integer(copy, "persistence", mq.MQPER_NOT_PERSISTENT)
            if subscription.priority == mq.MQPRI_PRIORITY_AS_Q_DEF and target.chain:
                copy = descriptor.with_integer(copy, "priority", target.chain[0].number("DEFPRTY"))
            self._placer.place(target, copy, content, unit)
        except MQError as error:
            use_dead_letter = self.governing(topic, "USEDLQ", 0) != 1
            destination = subscription.destination
            if not use_dead_letter or not self._placer.dead_letter(copy, content, error.reason, destination, "", unit):
                raise

    def _copy(self, subscription: Subscription, topic: str, md: bytes) -> bytes:
        message = Descriptor(md)
        message.msg_id = self._core.new_identifier()
        message.correl_id = subscription.correl_id
        message.report, message.type = 0, mq.MQMT_DATAGRAM
        if subscription.priority >= 0:
            message.priority = subscription.priority
        message.user = padded(subscription.user, 12)
        definition = subscription.definition
        if any(token := bytes.fromhex(definition.text("PUBACCT"))):
            message.accounting_token = token[:32].ljust(32, b"\0")
        if application := definition.text("PUBAPPID"):
            message.application_identity = padded(application, 32)
        message.put_application_type = mq.MQAT_QMGR_PUBLISH
        message.put_application_name = padded(topic, 28)
        return message.pack()

    def send_retained(self, subscription: Subscription, unit: StoreUnit) -> int:
        """Put the retained publications that match a subscription; returns how many there were."""
        sent, now = 0, self._core.now()
        for topic, (md, data) in sorted(self.retained.items()):
            until = self._retained_until.get(topic)
            if until is not None and until <= now:
                continue
            chosen = subscription.selector is None or subscription.selector.accepts(md, data)
            if subscription.matches(topic) and chosen and subscription.level <= LEVEL_OF_RETAINED:
                left = descriptor.with_remaining(md, until, now)
                self.deliver(subscription, topic, left, data, unit, {}, retained=True)
                sent += 1
        return sent
