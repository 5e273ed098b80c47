"""What rules and translation cost, in microseconds a message: `python tests/bench/bench_bridge.py`.

Ratios matter: ten thousand rules beside ten, a prepared message beside one that is evaluated.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from gateway.bridge import outbound
from gateway.bridge.inbound import Origin, plan
from gateway.config.security import AclEntry
from gateway.mq import mqmd
from gateway.routing.acl import Subject, compile_acl
from gateway.routing.filters import Interest, Subscriptions
from gateway.routing.table import Context, compile_mappings
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
    show("the same made from the plan without", microseconds(lambda: plan(one, ORIGIN, users, base)))
    [simple] = base.prepared
    head, tails = simple.head, simple.tails
    show("a message of a known one: head, tails[id] + payload", microseconds(lambda: (head, tails[7] + PAYLOAD)))
    for what, text in (
        ("text is checked", "payload: {format: string}"),
        ("JSON is checked", "payload: {format: json}"),
        ("a JSON field becomes a property", "properties: {v: '{json.value}', at: '{received_at}'}"),
    ):
        [made] = plan(table(f"  - {{name: a, topic: '#', queue: Q, {text}}}\n"), ORIGIN, {}).prepared
        show(f"a message: {what}", microseconds(lambda made=made: made.build(7, PAYLOAD, 1e9)))


def from_queues() -> None:
    mappings = parse_mappings([("b", "to_mq: [{name: a, topic: '#', queue: Q}]\nto_mqtt: [{name: b, queue: Q}]\n")])
    [prepared] = plan(compile_mappings(mappings), ORIGIN, {0x26: [("a", "1")]}).prepared
    built = prepared.build(7, PAYLOAD, 1e9)
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
    for part in (rules, inbound, from_queues, subscriptions, access):
        part()
