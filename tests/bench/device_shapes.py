"""Shapes of `sizes.py`: what devices do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from delivering import answers_to
from shapes import RULE, Window, World, now, shape, window

from gateway.mq import constants as mq
from gateway.mqtt import client, writer
from gateway.mqtt import packets as p
from gateway.mqtt import properties as prop
from gateway.ports.mqi import ObjectDescriptor, PutOptions
from gateway.queue_manager.descriptor import default_descriptor
from gateway.session.connection import Connection

for _name, _queue in {
    "queue": "A", "alias": "ALIAS", "remote queue": "REMOTE", "alias of a topic": "TALIAS", "STREAMQ": "STREAMED",
    "trigger FIRST": "FIRST", "trigger EVERY": "EVERY", "trigger DEPTH": "DEEP",
    "queue full": "SMALL", "too long": "SHORT", "put disabled": "SHUT", "no such queue": "NONE.SUCH",
}.items():  # fmt: skip
    window(_name, Window(RULE.format(_queue)))
    window(_name + ", QoS 2", Window(RULE.format(_queue), qos=2))
    window(_name + ", from 100", Window(RULE.format(_queue), clients=100))
_EXTRA = "  - {{name: bench, topic: 'dev/{{device}}', queue: A, {}}}\n"
for _name, _extra in {
    "COA": "descriptor: {report: [coa], reply_to: {queue: B}}",
    "COD": "descriptor: {report: [cod], reply_to: {queue: B}}",
    "expiry": "descriptor: {expiry: 5m}",
    "priority": "descriptor: {priority: 3}",
    "group": "group_by: '{device}'",
    "json": "properties: {v: '{json.value}'}",
    "other queue manager": "queue_manager: OTHER",
}.items():
    window(
        _name, Window(_EXTRA.format(_extra), objects="DEFINE QLOCAL(OTHER) USAGE(XMITQ) MAXDEPTH(999999999) REPLACE\n")
    )
for _then in ("drop", "dead_letter"):
    for _queue in ("SMALL", "SHORT", "SHUT", "NONE.SUCH"):
        _rule = RULE.format(_queue + f", on_failure: {{retry: {{times: 0}}, then: {_then}}}")
        for _qos in (1, 2):
            window(f"refused by {_queue}, {_then}, QoS {_qos}", Window(_rule, qos=_qos))
        window(f"refused by {_queue}, {_then}, from 100", Window(_rule, clients=100))
window(
    "queue full, exception report",
    Window(
        "  - {name: bench, topic: 'dev/{d}', queue: SMALL, descriptor: {report: [exception], reply_to: {queue: B}}}\n"
    ),
)
window("segments", Window("  - {name: bench, topic: 'dev/{d}', queue: SHORT, too_long: segment}\n"))
window("queue full, each its topic", Window(RULE.format("SMALL"), topics=0))
window("mq_topic", Window("  - {name: bench, topic: 'dev/{d}', mq_topic: 'some/topic'}\n"))
window("mq_topic, each its own", Window("  - {name: bench, topic: 'dev/{d}', mq_topic: 'some/{d}'}\n", topics=0))
window("RETAIN", Window(RULE.format("A"), retain=True))
window("RETAIN, each its topic", Window(RULE.format("A"), retain=True, topics=0))
window("RETAIN, QoS 2", Window(RULE.format("A"), retain=True, qos=2))
FLEETS = (2000, 8000, 32000, 48000)
window("each its topic", Window(RULE.format("A"), topics=0))
window("fleet", Window(RULE.format("A"), topics=0), FLEETS)
window("fleet, subscriber", Window(RULE.format("A"), filters=("dev/#",), topics=0), FLEETS)
window("fleet, RETAIN", Window(RULE.format("A"), topics=0, retain=True), FLEETS)
window("fleet, QoS 2", Window(RULE.format("A"), topics=0, qos=2), FLEETS)
window(
    "fleet, user properties", Window(RULE.format("A"), topics=0, properties={prop.USER_PROPERTY: [("a", "b")]}), FLEETS
)
window("RETAIN, QoS 2, each its topic", Window(RULE.format("A"), retain=True, qos=2, topics=0))
window("each its topic, QoS 0", Window(RULE.format("A"), topics=0, qos=0))
window("subscriber", Window(RULE.format("A"), filters=("dev/#",)))
window("subscriber, QoS 2", Window(RULE.format("A"), filters=("dev/#",), qos=2, sub_qos=2))
window("subscriber, each its topic", Window(RULE.format("A"), filters=("dev/#",), topics=0))
window("shared by three", Window(RULE.format("A"), filters=("$share/g/dev/#",) * 3))
window("subscriber, RETAIN, each its topic", Window(RULE.format("A"), filters=("dev/#",), topics=0, retain=True))
window("user properties", Window(RULE.format("A"), properties={prop.USER_PROPERTY: [("a", "b")]}))
window("expiry interval", Window(RULE.format("A"), properties={prop.MESSAGE_EXPIRY_INTERVAL: 60}))
window("response topic", Window(RULE.format("A"), properties={prop.RESPONSE_TOPIC: "answers/1"}))
window(
    "two queues, one full",
    Window(RULE.format("A").replace("queue", "continue: true, queue") + RULE.format("SMALL").replace("bench", "b2")),
)
window(
    "three remote queues",
    Window(
        RULE.format("REMOTE").replace("queue", "continue: true, queue")
        + RULE.format("STREAMED").replace("bench", "b2").replace("queue", "continue: true, queue")
        + RULE.format("TALIAS").replace("bench", "b3")
    ),
)
window(
    "from a queue to a subscriber",
    Window("to_mq:\n" + RULE.format("A") + "to_mqtt:\n  - {name: out, queue: A, topic: 'out/x'}\n", filters=("out/#",)),
)
window(
    "from a queue to nobody",
    Window("to_mq:\n" + RULE.format("A") + "to_mqtt:\n  - {name: out, queue: A, topic: 'out/x'}\n"),
)
window("queue per device", Window("  - {name: bench, topic: 'dev/{d}', queue: 'Q{d}'}\n", topics=0,
    objects="".join(f"DEFINE QLOCAL(Q{n}) MAXDEPTH(999999999) REPLACE\n" for n in range(8001))))  # fmt: skip
window("remote queue per device", Window("  - {name: bench, topic: 'dev/{d}', queue: 'R{d}'}\n", topics=0,
    objects="".join(f"DEFINE QREMOTE(R{n}) RNAME(X{n}) RQMNAME(OTHER) XMITQ(XQ)\n" for n in range(8001))))  # fmt: skip
window("no such queue per device", Window("  - {name: bench, topic: 'dev/{d}', queue: 'N{d}'}\n", topics=0))


def several(size: int) -> tuple[str, str]:
    """A rule for each of so many queues."""
    rules = "".join(
        f"  - {{name: r{n}, topic: 'dev/{{d}}', queue: C{n}, continue: {str(n < size - 1).lower()}}}\n"
        for n in range(size)
    )
    return rules, "".join(f"DEFINE QLOCAL(C{n}) MAXDEPTH(999999999) REPLACE\n" for n in range(size))


@shape("queues of rules with continue, each", (2, 4, 8, 16), several)
def _(world: World, size: int) -> Iterator[int]:
    for count in Window(qos=1)(world, 500):
        yield count * size


@shape("queues of rules with continue, QoS 2, each", (2, 4, 8, 16), several)
def _(world: World, size: int) -> Iterator[int]:
    for count in Window(qos=2)(world, 500):
        yield count * size


def _published(world: World, topics: list[str], qos: int = 1, retain: bool = False, who: str = "pub") -> Iterator[int]:
    (publisher,) = world.join([who])
    chunk = b"".join(
        writer.encode_publish(4, topic.encode(), b"12.5", qos, retain=retain, packet_id=at if qos else 0)
        for at, topic in enumerate(topics, 1)
    )
    while True:
        world.feed([(publisher, chunk)])
        world.rest(1)
        if qos == 2:
            world.feed([(publisher, b"".join(b"\x62\x02" + at.to_bytes(2) for at in range(1, len(topics) + 1)))])
            world.rest(1)
        publisher.link.take()
        yield len(topics)


def _taken(subscribers: list[Connection], world: World) -> float:
    """They acknowledge what they have got, until nothing more comes of that; how long the gateway takes for it."""
    took = 0.0
    answers = [(one, b"".join(answers_to(one.link.take()))) for one in subscribers]
    while answers := [one for one in answers if one[1]]:
        before = now()
        world.feed(answers)
        took += now() - before
        answers = [(one, b"".join(answers_to(one.link.take()))) for one, _ in answers]
    return took


def subscribers(
    name: str, filter_of: Callable[[int], str], qos: int, clean: bool = True, published: int = 1, version: int = 4,
    identifiers: int = 0,
) -> None:  # fmt: skip
    """Many subscribers of one topic; what they do themselves does not count. QoS and version -1: all of them.
    `identifiers`: so many different ones."""

    @shape(f"subscribers: {name}, each copy", (625, 1250, 2500, 5000))
    def _(world: World, size: int) -> Iterator[int]:
        subs = []
        for number in range(size):
            version_of = 3 + number % 3 if version < 0 else version
            subs += world.join([f"s{number}"], clean=clean, version=version_of, expiry=0 if clean else 3600)
            granted, identifier = number // 3 % 3 if qos < 0 else qos, number % identifiers + 1 if identifiers else 0
            world.subscribe(subs[-1], [filter_of(number)], granted, version_of, identifier)
        feeding = _published(world, ["out/1"] * 4, published)
        while True:
            before = now()
            count = next(feeding)
            world.own = now() - before + _taken(subs, world)
            yield count * size


subscribers("QoS 0", lambda _: "out/#", 0)
subscribers("QoS 1", lambda _: "out/#", 1)
subscribers("QoS 1, durable", lambda _: "out/#", 1, clean=False)
subscribers("QoS 0 of 2", lambda _: "out/#", 0, published=2)
subscribers("QoS 1 of 2", lambda _: "out/#", 1, published=2)
subscribers("QoS 2", lambda _: "out/#", 2, published=2)
subscribers("QoS 2, durable", lambda _: "out/#", 2, clean=False, published=2)
subscribers("mixed QoS and versions", lambda _: "out/#", -1, published=2, version=-1)
subscribers("an identifier each", lambda _: "out/#", 1, published=2, version=5, identifiers=100_000)
subscribers("shared in pairs", lambda n: f"$share/g{n // 2}/out/#", 1)


def wills(name: str, topic: str) -> None:
    """Clients that are lost together, with a will each that many subscribers get."""

    @shape(f"subscribers: wills {name}, each copy", (625, 1250, 2500, 5000))
    def _(world: World, size: int) -> Iterator[int]:
        subs = world.join([f"s{n}" for n in range(size)])
        for one in subs:
            world.subscribe(one, ["out/#"], 1)
        while True:
            found = [
                world.join([f"c{n}"], will=p.Will(topic.format(n), b"gone", 1, retain=False))[0] for n in range(16)
            ]
            before = now()
            for gone in found:
                world.engine.closed(gone)
            world.rest()
            world.own = now() - before + _taken(subs, world)
            yield 16 * size


wills("of one topic", "out/1")
wills("of a topic each", "out/{}")


@shape(
    "subscribers: from a queue, each copy", (625, 1250, 2500, 5000),
    lambda _: ("to_mqtt:\n  - {name: out, queue: A, topic: 'out/x', qos: 1}\n", ""),
)  # fmt: skip
def _(world: World, size: int) -> Iterator[int]:
    subs = world.join([f"s{n}" for n in range(size)])
    for one in subs:
        world.subscribe(one, ["out/#"], 1)
    program = world.program()
    handle = program.open(ObjectDescriptor("A"), mq.MQOO_OUTPUT).handle
    while True:
        for _ in range(16):
            program.put(handle, default_descriptor(persistence=1), PutOptions(mq.MQPMO_SYNCPOINT), b"12.5")
        before = now()
        program.commit()
        world.rest()
        world.own = now() - before + _taken(subs, world)
        yield 16 * size


def without(what: str, away: bool, packet: int = 0, **limits: int) -> None:
    """Subscribers that get nothing: their clients take no packets of that size, or there is no room."""

    def waiting(name: str, filter_: str, counted: bool) -> None:
        @shape(f"{name}: {what}{', each copy' * counted}", (625, 1250, 2500, 5000))
        def _(world: World, size: int) -> Iterator[int]:
            subs = world.join([f"s{n}" for n in range(size)], version=5, clean=not away, expiry=3600, packet=packet)
            for one in subs:
                world.subscribe(one, [filter_], 1, 5)
            for one in subs if away else ():
                world.engine.closed(one)
            world.rest()
            world.engine.context.limits = replace(world.engine.context.limits, **limits)
            for count in _published(world, ["out/" + "1" * 50] * 16, 1):
                for one in subs:
                    one.link.take()
                yield count * (size if counted else 1)

    waiting("subscribers", "out/#", True)
    waiting("shared subscription", "$share/g/out/#", False)


without("too large for them", away=False, packet=40)
without("no room for any", away=True, max_queued=1)
without("no room for all together", away=True, max_total_queued=1)


@shape("shared subscription: members", (625, 1250, 2500, 5000))
def _(world: World, size: int) -> Iterator[int]:
    subs = world.join([f"s{n}" for n in range(size)])
    for one in subs:
        world.subscribe(one, ["$share/g/out/#"], 1)
    for count in _published(world, [f"out/{n}" for n in range(500)], 1):
        _taken(subs, world)
        yield count


@shape("shared subscription: members away", (125, 250, 500, 1000))
def _(world: World, size: int) -> Iterator[int]:
    subs = world.join([f"s{n}" for n in range(size)], clean=False)
    for one in subs:
        world.subscribe(one, ["$share/g/out/#"], 1)
    for one in subs:
        world.engine.closed(one)
    world.rest()
    yield from _published(world, [f"out/{n}" for n in range(500)], 1)


@shape("shared subscription: members that have all they may", (625, 1250, 2500, 5000))
def _(world: World, size: int) -> Iterator[int]:
    subs = world.join([f"s{n}" for n in range(size)])
    for one in subs:
        world.subscribe(one, ["$share/g/out/#"], 1)
        one.session.outflow.window = 1
    for _ in range(size // 500 + 1):
        next(_published(world, [f"out/{n}" for n in range(500)], 1, who="first"))
    yield from _published(world, [f"out/{n}" for n in range(500)], 1)


@shape("filters of one subscriber that match", (125, 250, 500, 1000))
def _(world: World, size: int) -> Iterator[int]:
    (one,) = world.join(["s"])
    levels = [f"out/{'+/' * (n % 10)}{n}/#" for n in range(size - 1)]
    world.subscribe(one, ["out/#", *levels], 1)
    for count in _published(world, [f"out/x/{n}" for n in range(500)], 1):
        _taken([one], world)
        yield count


@shape("SUBSCRIBE: filters of one client, each", (2500, 5000, 10000, 20000))
def _(world: World, size: int) -> Iterator[int]:
    (one,) = world.join(["s"], clean=False)
    while True:
        world.subscribe(one, [f"a/{n}/+" for n in range(size)], 1)
        world.rest()
        yield size


@shape("UNSUBSCRIBE: filters of one client, each", (2500, 5000, 10000, 20000))
def _(world: World, size: int) -> Iterator[int]:
    (one,) = world.join(["s"], clean=False)
    filters = [f"a/{n}/+" for n in range(size)]
    while True:
        world.subscribe(one, filters, 1)
        world.rest()
        before = now()
        for at in range(0, size, 1000):
            world.feed([(one, client.encode_unsubscribe(4, p.Unsubscribe(1, filters[at : at + 1000])))])
        world.rest()
        world.own = now() - before
        yield size


def _retained(world: World, size: int, last: str = "") -> None:
    """So many retained messages, each on a topic of its own."""
    for at in range(0, size, 5000):
        topics = [f"r/{n % 100}/{n}{last}" for n in range(at, min(size, at + 5000))]
        next(_published(world, topics, 1, retain=True, who=f"p{at}"))


def delivered(what: str, qos: int, sizes: tuple[int, ...]) -> None:
    """All retained messages go to a new subscriber each time, who acknowledges them."""

    @shape(f"retained: delivered by #{what}, each", sizes)
    def _(world: World, size: int) -> Iterator[int]:
        _retained(world, size)
        number = 0
        while True:
            number += 1
            (one,) = world.join([f"s{number}"])
            before = now()
            world.subscribe(one, ["#"], qos)
            world.rest()
            answered = idle = 0
            while answered < size and idle < 50:
                answers = list(answers_to(one.link.take()))
                answered, idle = answered + len(answers), 0 if answers else idle + 1
                world.feed([(one, b"".join(answers))])
                world.rest()
                world.clock.advance(0.01)  # they come by the page
            world.own = now() - before
            assert answered == size, f"{answered} of {size} have come"
            yield size


delivered("", 0, (2500, 5000, 10000, 20000, 40000))
delivered(" at QoS 1", 1, (2500, 5000, 10000, 20000))


@shape("retained: + at each of 10 levels, each stored", (2500, 5000, 10000, 20000))
def _(world: World, size: int) -> Iterator[int]:
    _retained(world, size, "/x")
    (one,) = world.join(["s"])
    while True:
        world.subscribe(one, ["+/+/+/y"], 0)
        world.rest()
        yield size


@shape("clients that connect, each", (1250, 2500, 5000, 10000))
def _(world: World, size: int) -> Iterator[int]:
    number = 0
    while True:
        number += 1
        before = now()
        found = world.join([f"c{number}-{n}" for n in range(size)])
        world.own = now() - before
        for one in found:
            world.engine.closed(one)
        world.rest()
        yield size


@shape("clients that leave, each", (1250, 2500, 5000, 10000))
def _(world: World, size: int) -> Iterator[int]:
    number = 0
    while True:
        number += 1
        found = world.join([f"c{number}-{n}" for n in range(size)])
        for one in found:
            world.subscribe(one, ["x/#", "$share/g/y"], 0)
        before = now()
        for one in found:
            world.engine.closed(one)
        world.rest()
        world.own = now() - before
        yield size


@shape("clients whose wills are published, each", (1250, 2500, 5000, 10000))
def _(world: World, size: int) -> Iterator[int]:
    number = 0
    (one,) = world.join(["s"])
    world.subscribe(one, ["dev/#"], 1)
    while True:
        number += 1
        found = world.join([f"c{number}-{n}" for n in range(size)], will=p.Will("dev/1", b"gone", 1, False))
        before = now()
        for gone in found:
            world.engine.closed(gone)
        world.rest()
        world.own = now() - before
        _taken([one], world)
        yield size


@shape("stored messages of a session that comes back, each", (2500, 5000, 10000, 20000))
def _(world: World, size: int) -> Iterator[int]:
    (one,) = world.join(["s"], clean=False)
    world.subscribe(one, ["out/#"], 1)
    feeding = _published(world, ["out/1"] * 2500, 1)
    while True:
        world.engine.closed(one)
        world.rest()
        for _round in range(size // 2500):
            next(feeding)
        before = now()
        (one,) = world.join(["s"], clean=False)
        while data := b"".join(answers_to(one.link.take())):
            world.feed([(one, data)])
            world.rest(1)
        world.own = now() - before
        yield size


@shape("stored messages of a session that is away", (2500, 5000, 10000, 20000, 40000))
def _(world: World, size: int) -> Iterator[int]:
    (one,) = world.join(["s"], clean=False)
    world.subscribe(one, ["out/#"], 1)
    world.engine.closed(one)
    world.rest()
    feeding = _published(world, ["out/1"] * 2500, 1)
    for _round in range(size // 2500):
        next(feeding)
    for _ in range(4):
        before = now()
        yield next(feeding)
        world.own = now() - before


@shape("levels of a topic, each", (16, 32, 64, 127))
def _(world: World, size: int) -> Iterator[int]:
    (sub,) = world.join(["s"])
    world.subscribe(sub, ["dev/#"], 1)
    for count in _published(world, ["/".join(["dev", *[f"{at}-{n}" for n in range(size)]]) for at in range(100)]):
        _taken([sub], world)
        yield count * size


@shape("wildcards at many levels of a topic, each", (4, 8, 16, 32))
def _(world: World, size: int) -> Iterator[int]:
    (sub,) = world.join(["s"])
    filters = ["/".join("+" if (n >> (k % 9)) & 1 else "a" for k in range(size)) for n in range(512)]
    world.subscribe(sub, filters, 1)
    for count in _published(world, ["/".join(["a"] * size) for at in range(50)]):
        _taken([sub], world)
        yield count * size


JSON_RULE = "  - {name: bench, topic: 'dev/{d}', queue: A, properties: {v: '{json.value}'}}\n"


def json(name: str, make: Callable[[int], bytes], sizes: tuple[int, ...]) -> None:
    """A payload that a rule looks into."""

    @shape(f"JSON: {name}, each", sizes, lambda _: (JSON_RULE, ""))
    def _(world: World, size: int) -> Iterator[int]:
        for count in Window(payload=make(size))(world, 20):
            yield count * size


json(
    "fields",
    lambda n: b'{"value": 1' + b"".join(b', "k%d": %d' % (i, i) for i in range(n)) + b"}",
    (1000, 2000, 4000, 8000),
)
json("depth", lambda n: b'{"value": 1, "x": ' + b"[" * n + b"]" * n + b"}", (16, 32, 64, 128))
json("one name", lambda n: b'{"value": 1' + b', "k": 1' * n + b"}", (1000, 2000, 4000, 8000))
