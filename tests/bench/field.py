"""What devices and rules do in the field, one thing at a time: `python tests/bench/field.py [--peers mosquitto]`.

Each variant has a gateway of its own in which one thing differs from `plain`: the version of the protocol, properties,
TLS, a rule that looks into the message. Two loads, ten clients with a hundred messages in flight and a hundred with
one. Printed are the rates, the share that is left of plain (of `json` where payloads are JSON, which are longer), and
the same load on peers where they know the variant. The last rule of a benchmark: one shape that is fast says nothing
of the others.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from servers import Running, gateway, load_generator, peer, pinned

LOADS = {"10 x 100": "--pubs 10 --window 100", "100 x 1": "--pubs 100 --window 1"}
TIMES = "--qos 1 --size 64 --warmup 0.7 --max-seconds 30 --keepalive 60"
QUEUES = ("FIELD.ONE", "FIELD.TWO", *(f"FIELD.DEV.{number}" for number in range(100)))
RULE: dict[str, Any] = {
    "name": "field", "topic": "dev/{device}/{kind}", "queue": "FIELD.ONE", "headers": ["mqtt", "mqps"],
    "properties": {"device": "{device}", "kind": "{kind}", "listener": "{listener}"},
}  # fmt: skip
SCHEMA = {"type": "object", "required": ["seq", "value"], "properties": {"value": {"type": "number", "maximum": 100}}}
JSON_LOAD = "--json 1 --size 120"
Rules = tuple[dict[str, Any], ...]


def _rule(**changes: Any) -> dict[str, Any]:
    """The rule with something else, and with further properties."""
    return {**RULE, **changes, "properties": {**RULE["properties"], **changes.get("properties", {})}}


class Variant(NamedTuple):
    """One difference, and what is wanted of it: shares of `of` at the two loads."""

    load: str = ""
    rules: Rules = (RULE,)
    settings: Mapping[str, Any] = MappingProxyType({})
    listener: str = "plain"
    of: str = "plain"
    wanted: tuple[float, float] = (1.0, 1.0)
    peer: dict[str, str] | None = None
    """What peers need for the same; None: they have nothing like it."""
    queues: tuple[str, ...] = ("FIELD.ONE",)
    """Where each message is afterwards."""


OWN_TOPICS = {"security": {"anonymous": True, "acl": [{"anonymous": True, "publish": ["dev/{client}/#"]}]}}
VARIANTS = {
    "plain": Variant(peer={}),
    "MQTT 5": Variant("--proto 5", wanted=(0.9, 0.9), peer={}),
    "MQTT 5, 3 user properties": Variant("--proto 5 --user-props 3", wanted=(0.25, 0.5), peer={}),
    "1,000 topics in turn": Variant("--topics 1000 --topic dev/%d/temp", wanted=(0.7, 0.8), peer={}),
    "time of receipt as a property": Variant(
        rules=(_rule(properties={"received": "{received_at}"}),), wanted=(0.7, 0.8)
    ),
    "RETAIN": Variant("--retain 1", wanted=(0.15, 0.4), peer={}),
    "two queues": Variant(
        rules=({**RULE, "continue": True}, {**RULE, "name": "second", "queue": "FIELD.TWO"}),
        wanted=(0.5, 0.7),
        queues=("FIELD.ONE", "FIELD.TWO"),
    ),
    "a queue for each device": Variant(
        rules=({**RULE, "queue": "FIELD.DEV.{device}"},),
        wanted=(0.75, 0.8),
        queues=tuple(f"FIELD.DEV.{number}" for number in range(100)),
    ),
    "a client may publish below its own name": Variant(
        "--id own --topic dev/ownp%d/temp", settings=OWN_TOPICS, wanted=(0.9, 0.9)
    ),
    "rate limits": Variant(settings={"limits": {"publishes_per_second": 10_000_000}}, wanted=(0.75, 0.8)),
    "another client is logged": Variant(settings={"log": {"clients": ["nobody*"]}}, wanted=(0.9, 0.9)),
    "stored for a session that is away": Variant(wanted=(0.3, 0.5)),
    "QoS 2": Variant("--qos 2", wanted=(0.4, 0.4), peer={}),
    "QoS 2, MQTT 5, 3 user properties": Variant("--qos 2 --proto 5 --user-props 3", wanted=(0.15, 0.25), peer={}),
    "json": Variant(JSON_LOAD, peer={}),
    "json: a field as a property": Variant(
        JSON_LOAD, (_rule(properties={"v": "{json.value}"}),), of="json", wanted=(0.25, 0.6)
    ),
    "json: format checked": Variant(
        JSON_LOAD, ({**RULE, "payload": {"format": "json"}},), of="json", wanted=(0.4, 0.7)
    ),
    "json: schema": Variant(
        JSON_LOAD, ({**RULE, "payload": {"format": "json", "schema": "schema.json"}},), of="json", wanted=(0.2, 0.5)
    ),
    "json: condition": Variant(JSON_LOAD, ({**RULE, "when": {"json": {"unit": "C"}}},), of="json", wanted=(0.25, 0.6)),
    "TLS": Variant("--tls 1", listener="tls", wanted=(0.35, 0.5), peer={"PEER_TLS": "certificate"}),
    "WebSocket": Variant("--ws 1", listener="ws", wanted=(0.35, 0.5), peer={"PEER_WS": "1"}),
    "WebSocket, a frame for each packet": Variant("--ws 1 --ws-split 1", listener="ws", wanted=(0.25, 0.5)),
    "TLS, MQTT 5, 3 user properties": Variant(
        "--tls 1 --proto 5 --user-props 3", listener="tls", wanted=(0.15, 0.35), peer={"PEER_TLS": "certificate"}
    ),
}


class Figure(NamedTuple):
    """One measurement."""

    rate: float
    cpu: float
    """Microseconds of the server's processor time for a message."""
    ok: bool


Figures = dict[tuple[str, str], list[Figure]]
"""By server, and load."""


def certificate(folder: Path) -> Path:
    """A certificate for 127.0.0.1 in a folder of its own, as the shared scripts for peers expect it."""
    made = folder / "certificate"
    made.mkdir()
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", str(made / "key.pem")]
    command = ["openssl", "req", "-x509", *key, "-out", str(made / "cert.pem"), "-days", "2", *names]
    subprocess.run(command, check=True, capture_output=True)
    return made


def settings_of(variant: Variant, tls: Path) -> dict[str, Any]:
    """The files of the gateway."""
    listeners = [
        {"name": "plain", "port": 0, "bind": "127.0.0.1"},
        {"name": "tls", "port": 0, "bind": "127.0.0.1",
         "tls": {"certificate": str(tls / "cert.pem"), "key": str(tls / "key.pem")}},
        {"name": "ws", "port": 0, "bind": "127.0.0.1", "websocket": {"path": "/mqtt"}},
    ]  # fmt: skip
    unbounded = {"max_queued": 100_000_000, "max_queued_bytes": "100GiB", "max_total_queued": 0,
                 "max_total_queued_bytes": 0}  # fmt: skip
    everything = {
        "queue_manager": {"embedded": {"objects": "objects.mqsc"}}, "mappings": ["rules.json"], "mqtt": unbounded,
        "listeners": listeners,
        "security": {"anonymous": True, "acl": [{"anonymous": True, "publish": ["dev/#"], "subscribe": ["dev/#"]}]},
        **variant.settings,
    }  # fmt: skip
    return {
        "settings.yaml": everything,
        "rules.json": {"version": 1, "to_mq": list(variant.rules)},
        "schema.json": SCHEMA,
        "objects.mqsc": "".join(f"DEFINE QLOCAL({queue}) MAXDEPTH(999999999) REPLACE\n" for queue in QUEUES),
    }


def measure(tool: Path, port: int, pid: int, load: str, seconds: float) -> dict[str, Any]:
    """One run of the load generator."""
    command = [*pinned(1), str(tool), "pub", "--port", str(port), "--pid", str(pid), *TIMES.split(),
               "--seconds", str(seconds), *load.split()]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        return dict(json.loads(done.stdout.strip().splitlines()[-1]))
    except (ValueError, IndexError):
        raise SystemExit(f"{' '.join(command)}: {done.stderr[-300:]}") from None


def figure(found: dict[str, Any]) -> Figure:
    """What is kept of a run."""
    return Figure(float(found.get("pub_rate") or 0), float(found.get("srv_us_per_msg") or 0), bool(found.get("ok")))


def of_gateway(tool: Path, name: str, tls: Path, seconds: float) -> Iterator[tuple[str, Figure]]:
    """A variant on a gateway of its own. Every acknowledged message has to be where its rules put it."""
    variant = VARIANTS[name]
    with gateway(settings_of(variant, tls)) as running:
        port = running.ports[variant.listener]
        if "away" in name:
            absent = "sub --subs 1 --clean 0 --purge 0 --id away --filter dev/# --seconds 0.3 --max-seconds 3"
            subprocess.run([str(tool), *absent.split(), "--port", str(port)], check=True, capture_output=True)
        acknowledged = 0
        for load, shape in LOADS.items():
            found = measure(tool, port, running.pid, f"{shape} {variant.load}", seconds)
            acknowledged += int(found.get("acked") or 0)
            yield load, figure(found)
        check(name, variant, running, acknowledged)


def check(name: str, variant: Variant, running: Running, acknowledged: int) -> None:
    """Whether the queues have what was acknowledged."""
    token = (running.folder / "data" / "admin.token").read_text().split("\n", 1)[0].strip()
    request = urllib.request.Request(
        f"http://127.0.0.1:{running.ports['admin']}/api/v1/queues?limit=500",
        headers={"Authorization": f"Bearer {token}"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        depths = {one["name"]: one["depth"] for one in json.load(answer)["items"] if one["depth"]}
    copies = len(variant.queues) if name == "two queues" else 1
    if set(depths) != set(variant.queues) or sum(depths.values()) < copies * acknowledged:
        print(f"{name}: {acknowledged} acknowledged, on the queues {depths}", file=sys.stderr)


@contextmanager
def _peers(names: list[str], variant: Variant, tls: Path) -> Iterator[dict[str, tuple[int, int]]]:
    """The peers that know a variant: port and process by name."""
    from contextlib import ExitStack

    environment = {key: str(tls) if key == "PEER_TLS" else value for key, value in (variant.peer or {}).items()}
    with ExitStack() as stack:
        known = names if variant.peer is not None else []
        yield {
            name: (17_951 + at, stack.enter_context(peer(name, 17_951 + at, **environment)))
            for at, name in enumerate(known)
        }


def run(given: argparse.Namespace, tool: Path) -> dict[str, Figures]:
    """Measure what was asked for, and what it is compared with."""
    asked = [name for name in VARIANTS if re.search(given.only, name)]
    names = [name for name in VARIANTS if name in asked or name in {"plain", *(VARIANTS[one].of for one in asked)}]
    results: dict[str, Figures] = {name: {} for name in names}
    peers = [name for name in given.peers.split(",") if name]
    with tempfile.TemporaryDirectory(prefix="field-") as folder:
        tls = certificate(Path(folder))
        for _ in range(given.repetitions):
            for name in names:
                for load, found in of_gateway(tool, name, tls, given.seconds):
                    results[name].setdefault(("mqgate", load), []).append(found)
                with _peers(peers, VARIANTS[name], tls) as running:
                    time.sleep(1 if running else 0)
                    for server, (port, pid) in running.items():
                        for load, shape in LOADS.items():
                            found = figure(measure(tool, port, pid, f"{shape} {VARIANTS[name].load}", given.seconds))
                            results[name].setdefault((server, load), []).append(found)
                print(f"{name}: done", file=sys.stderr, flush=True)
    return results


def median(figures: list[Figure]) -> float:
    """The rate in the middle."""
    return statistics.median(one.rate for one in figures) if figures else 0.0


def report(results: dict[str, Figures]) -> list[dict[str, Any]]:
    """The table, and the same for programs."""
    servers = list(dict.fromkeys(server for figures in results.values() for server, _ in figures if server != "mqgate"))
    heads = [
        f"{load}{what}" for load in LOADS for what in ("", ", µs", ", share", ", wanted", *(f", {s}" for s in servers))
    ]
    print("| variant | " + " | ".join(heads) + " |\n|" + "---|" * (len(heads) + 1))
    rows = []
    for name, figures in results.items():
        variant = VARIANTS[name]
        cells: list[str] = []
        row: dict[str, Any] = {"variant": name, "of": variant.of}
        for at, load in enumerate(LOADS):
            ours, plain = median(figures["mqgate", load]), median(results[variant.of]["mqgate", load])
            cpu = statistics.median(one.cpu for one in figures["mqgate", load])
            share = ours / plain if plain else 0.0
            others = {server: median(figures.get((server, load), [])) for server in servers}
            cells += [f"{ours:,.0f}/s", f"{cpu:.2f}", f"{share:.2f}", f"{variant.wanted[at]:g}"]
            cells += [f"{ours / rate:.2f}" if rate else "" for rate in others.values()]
            row[load] = {"rate": ours, "us": cpu, "share": share, "wanted": variant.wanted[at], **others}
        rows.append(row)
        print(f"| {name} | " + " | ".join(cells) + " |")
    failed = [f"{server}, {name}, {load}" for name, figures in results.items() for (server, load), several in
              figures.items() if not all(one.ok for one in several)]  # fmt: skip
    if failed:
        print("\nNot all was acknowledged: " + "; ".join(failed))
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", default="", help="peers (see servers.py), with commas between")
    parser.add_argument("--only", default=".", help="regular expression over the names of variants")
    parser.add_argument("--repetitions", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--json", type=Path, help="write what was measured to this file")
    given = parser.parse_args()
    tool = load_generator()
    if tool is None:
        raise SystemExit("the variants need the load generator in C (MQTTLOAD=path, or ../shared/bench beside this)")
    rows = report(run(given, tool))
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
