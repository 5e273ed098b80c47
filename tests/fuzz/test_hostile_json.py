"""Hostile JSON wherever JSON is read: nothing raises what is not expected, nothing is a defect, and others go on."""

from __future__ import annotations

import base64
import json
from contextlib import suppress
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
from broker_harness import Harness
from hypothesis import example, given, settings
from hypothesis import strategies as st
from strategies_json import documents, texts, values

from gateway.access.managed import ManagedUsers
from gateway.app.managed_users import UserStore
from gateway.backends.buffer import progress
from gateway.backends.ibm import leases
from gateway.bridge import set_aside
from gateway.bridge.request import Request
from gateway.errors import ConfigurationError, StoreCorrupt
from gateway.mq import mqmd
from gateway.mqtt import packets as p
from gateway.ports.state_queues import OUT, REQUESTS, RETAINED, SESSIONS, STAGED, USERS, WILLS
from gateway.routing.acl import Lists
from gateway.rules.parse import parse_mappings
from gateway.session.record import key_of

KEYS = st.sampled_from(["t", "a", "kind", "at", "text", "site", "0"])
SCHEMA = json.dumps({
    "type": "object", "required": ["t"],
    "properties": {"t": {"type": ["number", "string"], "maxLength": 5, "pattern": "^[a-z]*$"},
                   "a": {"type": "array", "uniqueItems": True, "items": {"type": "number", "multipleOf": 0.1}}},
    "patternProperties": {"^k": {"format": "uuid"}},
})  # fmt: skip
MAPPING = """version: 1
to_mq:
  - {name: schema, topic: "schema/#", queue: S.Q, payload: {format: json, schema: s.json}}
  - {name: fields, topic: "fields/#", queue: "F.{json.site:safe}", payload: {format: json},
     descriptor: {correlation: "{json.text}"},
     properties: {t: "{json.t}", n: "{json.t:int}", f: "{json.at:float}", a: "{json.a}", b: "{json.a.0:bool}"}}
  - {name: chosen, topic: "chosen/#", queue: C.Q, when: {json: {t: 1, kind: "x"}}, continue: true}
  - {name: text, topic: "#", queue: T.Q, properties: {t: "{json.t}"}}
to_mqtt:
  - {name: out, queue: OUT.Q, topic: "out/{json.t}/{json.a}", qos: 1}
unmatched: dead_letter
"""


def schema_of(_path: str) -> str:
    return SCHEMA


def bench_of() -> Harness:
    return Harness(MAPPING, load=schema_of)


def good_client_works(bench: Harness) -> None:
    device = bench.device(4, "a good client").connect()
    device.publish("schema/good", b'{"t": 1}', 1, 1)
    assert [packet[0] >> 4 for packet in device.take()] == [p.CONNACK, p.PUBACK]
    device.disconnect()


# -- payloads --


@given(
    st.lists(documents(KEYS), min_size=1, max_size=3),
    st.sampled_from(["schema", "fields", "chosen", "other"]),
    st.sampled_from([4, 5]),
)
@example([b'{"t": "\\ud800"}'], "schema", 5)
@example([b'{"t": 1, "text": "\\udfff"}'], "fields", 4)
def test_payloads_of_publications_and_wills(payloads: list[bytes], rule: str, version: int) -> None:
    bench = bench_of()
    device = bench.device(version, "d").connect(clean=False, will=p.Will(f"{rule}/w", payloads[0], 1, retain=True))
    device.take()
    for number, payload in enumerate(payloads, 1):
        device.publish(f"{rule}/a", payload, number % 3, number)
        if number % 3 == 2:
            device.ack(p.PUBREL, number)
    assert not device.wire.closed
    device.drop()
    bench.kill()
    good_client_works(bench)


@given(st.lists(documents(KEYS), min_size=1, max_size=4))
def test_messages_from_queues(bodies: list[bytes]) -> None:
    bench = bench_of()
    device = bench.device(5, "d").connect()
    device.subscribe("out/#", 1)
    bench.queues.arrive("OUT.Q", *[(mqmd.build(persistence=1), body) for body in bodies])
    bench.clock.run()
    assert not bench.queues.rows["OUT.Q"]
    good_client_works(bench)


# -- what is stored --


FIELDS = st.sampled_from(
    ["client", "version", "user", "expiry", "since", "connected", "sent", "subscriptions", "topic", "payload", "qos",
     "retain", "properties", "delay", "listener", "owner", "waiting", "replayed"]
)  # fmt: skip
QUEUES = st.sampled_from([SESSIONS, RETAINED, STAGED, OUT, WILLS, REQUESTS])


@given(st.dictionaries(QUEUES, documents(FIELDS) | st.binary(max_size=60), min_size=1))
def test_records_of_state(records: dict[str, bytes]) -> None:
    """A start survives them. What cannot be used is set aside."""
    bench = bench_of()
    bench.defects = []
    for number, (queue, data) in enumerate(records.items(), 1000):
        bench.queues.rows.setdefault(queue, {})[number] = (0, key_of("d"), bytes(364), data)
        bench.queues._priorities[number] = 0
    bench.kill()
    device = bench.device(5, "d").connect(clean=False)
    assert device.take()[0][1].reason == 0
    bench.advance(2)
    device.drop()
    bench.clock.advance(4000)
    bench.engine.tick()
    good_client_works(bench)


USER = {"kind": "user", "name": "u", "password": "x", "role": "r", "enabled": True, "client_id": "", "fingerprint": "",
        "token": "", "token_ends": 0.0, "changed": 1}  # fmt: skip
ROLE = {"kind": "role", "name": "r", "publish": ["a/#"], "subscribe": []}


shared_bench = cache(bench_of)
"""For what leaves nothing behind in a broker."""


def users_of(*records: bytes) -> ManagedUsers:
    """What a gateway knows after its start with these on its queue, beside a good user and its role."""
    bench = shared_bench()
    bench.queues.rows[USERS] = {}
    good = [json.dumps(USER | {"name": "good"}).encode(), json.dumps(ROLE).encode()]
    for number, data in enumerate([*records, *good], 1000):
        bench.queues.rows[USERS][number] = (0, key_of(str(number)), bytes(364), data)
        bench.queues._priorities[number] = 0
    managed = ManagedUsers()
    UserStore(bench.engine, managed).start()
    assert managed.lists("good") == Lists(("a/#",), ())
    for name in managed.users:
        managed.refuses(name, "c")
        managed.certified(name, "00")
        managed.version(name)
    return managed


@given(documents(st.sampled_from([*USER, *ROLE])))
@example(b"[" * 100_000)
@example(b'{"kind": "user", "name": "\\ud800"}')
def test_records_of_managed_users(record: bytes) -> None:
    """A start survives them, and everybody else is known."""
    users_of(record)


@given(st.sampled_from(sorted(USER)), values())
def test_a_managed_user_with_one_wrong_value(name: str, value: object) -> None:
    users_of(json.dumps(USER | {name: value}).encode("utf-8", "surrogatepass"))


@given(st.sampled_from(sorted(ROLE)), values())
def test_a_role_with_one_wrong_value(name: str, value: object) -> None:
    users_of(
        json.dumps(ROLE | {"name": "other", name: value}).encode("utf-8", "surrogatepass"), json.dumps(USER).encode()
    )


RECORD = {
    "client": "d", "version": 5, "user": None, "listener": "bench", "expiry": 3600, "since": 1.0, "connected": True,
    "sent": 0, "subscriptions": [["a/#", 1, False, False, 0, 0]], "topic": "plain/a", "payload": "00", "qos": 1,
    "retain": False, "properties": "", "delay": 0,
}  # fmt: skip


@given(st.sampled_from(sorted(RECORD)), values(), st.sampled_from([SESSIONS, WILLS]))
def test_records_with_one_wrong_value(name: str, value: object, queue: str) -> None:
    bench = bench_of()
    bench.defects = []
    data = json.dumps(RECORD | {name: value}).encode()
    bench.queues.rows.setdefault(queue, {})[1000] = (0, key_of("d"), bytes(364), data)
    bench.kill()
    bench.advance(2)
    good_client_works(bench)


@given(
    documents(
        st.sampled_from(["instance", "workers", "heir", "host", "from", "kind", "client", "main", "aside", "owner"])
    )
)
@example(b"[" * 100_000)
@example(b'{"instance": "aa", "workers": 1e999}')
@example(b'{"main": 1e999, "aside": [], "owner": ""}')
def test_messages_between_gateways_and_the_progress_of_the_buffer(raw: bytes) -> None:
    leases.decode(b"t", raw)
    leases.decode_message(raw)
    with suppress(StoreCorrupt):
        progress.decode(raw)
    with suppress(ValueError, TypeError, RecursionError):  # a unit of its own: `test_records_of_state`
        Request.decode(raw)


# -- what people write --


@given(documents(st.sampled_from(["type", "properties", "required", "$ref", "pattern", "items", "enum"])))
def test_schemas(raw: bytes) -> None:
    text = raw.decode("utf-8", "surrogateescape")
    mapping = "version: 1\nto_mq: [{name: a, topic: a, queue: Q, payload: {format: json, schema: s.json}}]\n"
    with suppress(ConfigurationError):
        parse_mappings([("m.yaml", mapping)], lambda _path: text)


@given(documents(KEYS))
def test_bodies_of_the_admin_api(raw: bytes) -> None:
    from io import BytesIO

    from gateway.net import api

    request: Any = SimpleNamespace(content=BytesIO(raw))
    read = [value for name, value in vars(api).items() if name in {"_body", "body_of"}]
    if not read:
        pytest.skip("the API reads its body elsewhere")
    try:
        read[0](request, "POST")
    except (api.Problem, TypeError):
        return


@given(
    values(st.sampled_from(["alg", "kid", "typ", "sub", "exp", "aud"])), values(st.sampled_from(["sub", "exp", "aud"]))
)
@settings(max_examples=50)
def test_tokens(header: object, claims: object) -> None:
    """Whoever has no key: refused, whatever the parts say."""
    from gateway.access.key_sets import FixedKeys, Keys
    from gateway.access.tokens import Claimed, Issuer, NotBelieved, Tokens
    from gateway.config.identity import Jwt

    def part(value: object) -> bytes:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=")

    head = header if isinstance(header, dict) else {"alg": "ES256", "kid": header}
    token = b".".join([part({"alg": "ES256"} | head), part(claims), b"AAAA"])
    tokens = Tokens([Issuer(Jwt(jwks_file="keys.json"), FixedKeys(Keys({}, [])))])
    said: list[Claimed | NotBelieved] = []
    tokens.check(token, said.append)
    assert isinstance(said[0], NotBelieved)
    two = [Issuer(Jwt(jwks_file="keys.json", issuer=one), FixedKeys(Keys({}, []))) for one in ("a", "b")]
    Tokens(two).check(token, said.append)
    assert isinstance(said[1], NotBelieved)
    Tokens.is_token(token)


@given(texts, texts, documents())
def test_what_is_set_aside_can_always_be_said(reason: str, trace: str, data: bytes) -> None:
    made = set_aside.build(mqmd.build(), data, {"reason": reason, "traceback": trace, "key": data[:24]})
    back = set_aside.strip(made.head[:364], made.head[364:] + made.body)
    assert back.data == data
    str(back.said["reason"]).encode()
