"""What rules and translation cost, in microseconds a message: `python tests/bench/bench_bridge.py`.

Ratios matter: ten thousand rules beside ten, a prepared message beside one that is evaluated.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from gateway.bridge import outbound
from gateway.bridge.form import Users
from gateway.bridge.inbound import Origin, plan, timestamp
from gateway.bridge.payload import Body
from gateway.config.security import AclEntry
from gateway.mq import mqmd
from gateway.routing.acl import Subject, compile_acl
from gateway.routing.filters import Interest, Subscriptions
from gateway.routing.table import Context, Table, compile_mappings
from gateway.rules.parse import parse_mappings

PAYLOAD = b'{"value": 21.5, "unit": "C", "valid": true}'
ORIGIN = Origin("dev-1", "", "plant/lima/line7/t", 1)


def microseconds(call: Callable[[], object], seconds: float = 0.3) -> float:
    """The best of five runs."""
    count = 1
    while True:
        begin = time.perf_counter()
        for _ in range(count):
            call()
        if time.perf_counter() - begin > seconds / 5:
            break
        count *= 2
    best = float("inf")
    for _ in range(5):
        begin = time.perf_counter()
        for _ in range(count):
            call()
        best = min(best, time.perf_counter() - begin)
    return best / count * 1e6


def table(rules: str):
    return compile_mappings(parse_mappings([("bench", "to_mq:\n" + rules)]))


def show(what: str, value: float, unit: str = "us") -> None:
    print(f"{what:58}{value:10.2f} {unit}")


def rules() -> None:
    lines = [f"  - {{name: r{n}, topic: 'plant/{{site}}/line{n}/+', queue: 'Q.{{site}}'}}\n" for n in range(10_000)]
    few, many = table("".join(lines[:10])), table("".join(lines))
    context = Context("dev-1")
    show("match a topic among 10 rules", microseconds(lambda: few.match(ORIGIN.topic, context)))
    show("match a topic among 10,000 rules", microseconds(lambda: many.match(ORIGIN.topic, context)))
    begin = time.perf_counter()
    parse_mappings([("bench", "to_mq:\n" + "".join(lines))])
    show("read and check 10,000 rules", (time.perf_counter() - begin) * 1e3, "ms")


def inbound() -> None:
    one = table("  - {name: a, topic: 'plant/{site}/{line}/+', queue: 'Q.{site}', properties: {site: '{site}'}}\n")
    show("plan for a new (client, topic)", microseconds(lambda: plan(one, ORIGIN, {})))
    base, users = plan(one, ORIGIN, {}), {0x26: [("ts", "1767225600.123"), ("seq", "17")], 0x02: 60}
    show("plan with properties of one message", microseconds(lambda: plan(one, ORIGIN, users)))
    wire, body = [(name.encode(), value.encode()) for name, value in users[0x26]], Body(PAYLOAD)
    show("the same by the form", microseconds(lambda: base.prepared[0].build_with(7, body, 1e9, wire, 60)))
    [simple] = base.prepared
    head, tails = simple.head, simple.tails
    show("a message of a known one: head, tails[id] + payload", microseconds(lambda: (head, tails[7] + PAYLOAD)))


SHORT = b'{"seq": 123456, "ts": 1767225600.123, "value": 21.5, "unit": "C", "device": "line-7", "text": "%b"}' % (
    b"x" * 20
)
LONG = b'{"value": 21.5, "unit": "C", "samples": [%b]}' % b", ".join([b'{"t": 17.25, "v": 21.5, "q": "good"}'] * 54)
SCHEMA = '{"type": "object", "required": ["value"], "properties": {"value": {"type": "number", "maximum": 100}}}'
ASKED = {
    "nothing": "",
    "time of receipt": "properties: {at: '{received_at}'}",
    "text": "payload: {format: string}",
    "JSON": "payload: {format: json}",
    "JSON field": "properties: {v: '{json.value}'}",
    "condition": "when: {json: {unit: C}}",
    "schema": "payload: {format: json, schema: s.json}",
    "all of them": "when: {json: {unit: C}}, properties: {v: '{json.value}', at: '{received_at}'}, "
    "payload: {format: json, schema: s.json}",
}


def forms() -> None:
    """A message by its rule's form, as the fast lane makes it, beside the one that asks nothing of the message."""
    users = [(b"trace", b"00-4bf92f3577b34da6a3ce929d0e0e4736-01"), (b"seq", b"17"), (b"unit", b"<C>")]
    for size, payload in (("120 bytes", SHORT), ("2 KB", LONG)):
        first = 0.0
        for what, rule in ASKED.items():
            text = f"to_mq: [{{name: a, topic: '#', queue: Q, {rule}}}]\n"
            known = compile_mappings(parse_mappings([("bench", text)], load=lambda _path: SCHEMA))
            for named, given in ((what, ()), (f"{what}, 3 user properties", users)):
                taken = microseconds(by_form(known, given, payload))
                first = first or taken
                print(f"{f'{size}: {named}':58}{taken:10.2f} us{taken / first:8.2f}")


def by_form(known: Table, users: Users, payload: bytes) -> Callable[[], bytes | None]:
    [form] = plan(known, ORIGIN, {}).forms
    now = timestamp(1e9).encode()

    def make() -> bytes | None:
        body = Body(payload)
        if form.condition is not None and not form.condition(body):
            return None
        if form.check is not None:
            form.check(body)
        return form.make(now, users, body, 7)

    return make


def from_queues() -> None:
    mappings = parse_mappings([("b", "to_mq: [{name: a, topic: '#', queue: Q}]\nto_mqtt: [{name: b, queue: Q}]\n")])
    [prepared] = plan(compile_mappings(mappings), ORIGIN, {0x26: [("a", "1")]}).prepared
    built = prepared.build(7, Body(PAYLOAD), 1e9)
    md, data = built.head[: mqmd.LENGTH], built.head[mqmd.LENGTH :] + built.body
    rule = mappings.to_mqtt[0]
    show("queue to topic, with an MQRFH2", microseconds(lambda: outbound.publication(rule, md, data)))
    plain = parse_mappings([("b", "to_mqtt: [{name: b, queue: Q, topic: a/b}]\n")]).to_mqtt[0]
    md = mqmd.build(format="MQSTR", persistence=1)
    show("queue to topic, body alone", microseconds(lambda: outbound.publication(plain, md, PAYLOAD)))


def subscriptions() -> None:
    for count in (10, 100_000):
        known: Subscriptions[int] = Subscriptions()
        for number in range(count):
            known.add(number, f"plant/+/line{number}/#", Interest(1))
        show(
            f"match a topic among {count:,} subscriptions", microseconds(lambda known=known: known.match(ORIGIN.topic))
        )


def access() -> None:
    acl = compile_acl([AclEntry(user=f"u{n}", allow=[f"x{n}/#"]) for n in range(1000)] + [AclEntry(allow=["plant/#"])])
    show("access: a remembered decision", microseconds(lambda: acl.may_publish("", "c", "u5", ORIGIN.topic)))
    show("access: rights of a new client among 1,001 entries", microseconds(lambda: acl.of(Subject("c", "u5"))))


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    for part in (rules, inbound, forms, from_queues, subscriptions, access):
        part()
