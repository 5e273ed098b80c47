"""The gateway's benchmark, one command: `python tests/bench/run.py [--peers mosquitto,aedes,limit-ring]`.

Starts a gateway of its own on a fresh data directory, drives it with the load generator in C where its source is
beside the checkout (`../shared/bench`, or MQTTLOAD=path), otherwise with the bundled one in Python, interleaved with
peers, and prints medians, spread and ratios. Every figure is of one run on one machine: compare ratios, not rates.

The full path is measured: session, access list, rule, MQMD and MQRFH2 with the mqtt and mqps folders and three
properties, journal with fdatasync semantics, acknowledgement after the commit.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import statistics
import subprocess
import sys
import time
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any

from plot import ratios_plot
from servers import gateway, load_generator, peer, pinned
from stored import stored_session

SETTINGS = """
listeners: [{name: mqtt, port: 0, bind: 127.0.0.1}]
mappings: [map.yaml]
mqtt: {max_inflight: 65535, max_queued: 200000, max_connections: 20000}
security:
  acl: [{user: "*", deny: ["forbidden/#"]}, {anonymous: true, allow: ["#"]}]
queue_manager: {embedded: {objects: objects.mqsc}}
"""
OTHER_RULES = "".join(
    f"  - {{name: other {number}, topic: 'area{number}/{{device}}/{{kind}}', queue: BENCH.IN}}\n"
    for number in range(99)
)
MAPPING = (
    f"""
version: 1
to_mq:
{OTHER_RULES}"""
    """  - name: bench
    topic: "dev/{device}/{kind}"
    queue: BENCH.IN
    properties: {device: "{device}", kind: "{kind}", listener: "{listener}"}
    headers: [mcd, mqps, mqtt]
  - {name: through, topic: "through/{n}", queue: BENCH.OUT, properties: {n: "{n}"}}
to_mqtt:
  - {name: out, queue: BENCH.OUT, topic: "out/{usr.n}"}
"""
)
OBJECTS = """
DEFINE QLOCAL(BENCH.IN) MAXDEPTH(999999999) REPLACE
DEFINE QLOCAL(BENCH.OUT) MAXDEPTH(999999999) REPLACE
"""
FILES = {"settings.yaml": SETTINGS, "map.yaml": MAPPING, "objects.mqsc": OBJECTS}
TIMES = "--keepalive 60 --seconds {seconds} --warmup {warmup} --max-seconds 40"
STORED = 100_000
AWAY = (
    "sub --subs 1 --clean 0 --purge 0 --run-id {run} --id away{run} --filter stored/{run} --seconds 0.2",
    "pub --qos 1 --pubs 1 --window 100 --size 64 --topic stored/{run} --run-id {run} --count {stored}",
    "sub --subs 1 --clean 0 --run-id {run} --id away{run} --filter stored/{run} --expect {stored}",
)
"""A durable subscriber comes and goes, messages are stored for it, it comes back: what counts is the last step."""
THROUGH, DIRECT = "--topic through/%d --filter out/%d", "--topic out/%d --filter out/%d"
"""Onto an MQ queue by one rule and off it by another; peers hand the same from publisher to subscriber."""
CASES: dict[str, tuple[str | tuple[str, ...], str]] = {
    "q1 10x100 64B": ("pub --qos 1 --pubs 10 --window 100 --size 64", "pub_rate"),
    "q1 100x100 64B": ("pub --qos 1 --pubs 100 --window 100 --size 64", "pub_rate"),
    "q1 10x100 64B 1000 topics": ("pub --qos 1 --pubs 10 --window 100 --size 64 --topics 1000", "pub_rate"),
    "q1 10x100 1KiB": ("pub --qos 1 --pubs 10 --window 100 --size 1024", "pub_rate"),
    "q1 100x1 64B": ("pub --qos 1 --pubs 100 --window 1 --size 64", "pub_rate"),
    "q1 1000x1 64B": ("pub --qos 1 --pubs 1000 --window 1 --size 64", "pub_rate"),
    "q1 10x1 64B": ("pub --qos 1 --pubs 10 --window 1 --size 64", "pub_rate"),
    "q1 1x1 64B": ("pub --qos 1 --pubs 1 --window 1 --size 64", "pub_rate"),
    "q2 10x100 64B": ("pub --qos 2 --pubs 10 --window 100 --size 64", "pub_rate"),
    "q0 10 64B": ("pub --qos 0 --pubs 10 --size 64", "pub_rate"),
    "fan-out 1 to 100 q0": ("pubsub --qos 0 --pubs 1 --subs 100 --e2e-window 100", "recv_rate"),
    "fan-out 1 to 100 q1": ("pubsub --qos 1 --pubs 1 --subs 100 --window 10 --e2e-window 20", "recv_rate"),
    "q1 durable 1 to 1": ("pubsub --qos 1 --pubs 1 --subs 1 --clean 0 --window 100", "recv_rate"),
    "q1 durable 10 to 10": (
        "pubsub --qos 1 --pubs 10 --subs 10 --filter dev/%d/temp --clean 0 --window 100",
        "recv_rate",
    ),
    "q1 through a queue 10 to 10": (
        f"pubsub --qos 1 --pubs 10 --subs 10 {THROUGH} --clean 0 --window 100",
        "recv_rate",
    ),
    "drain of 100,000 stored": (AWAY, "recv_rate"),
    "latency 5000/s q1": ("pub --qos 1 --pubs 10 --rate 5000 --window 100", "ack_ms"),
    "connects": ("connect --total 6000 --conc 32", "rate"),
}
PROMISE = {
    "mqgate": "on disk (O_DSYNC), full MQ message",
    "mosquitto": "in memory",
    "aedes": "in memory",
    "amqtt": "in memory",
    "rabbitmq": "fsynced on the classic queue of a durable session that is away (without one: at once, kept nowhere)",
    "rabbitmq-quorum": "fsynced in the Raft log of such a session's quorum queue",
    "rabbitmq4": "RabbitMQ 4.3: as rabbitmq-quorum",
    "mosquitto21": "mosquitto 2.1: in memory",
    "rumqttd": "in memory",
    "nats": "JetStream with sync_interval: always: fsynced in the stream of the topic",
    "nats-default": "JetStream as it is shipped: written, synchronised every two minutes",
    "limit": "nothing: parses and answers",
    "bare": "on disk (O_DSYNC): payload behind a fixed head, 140 lines of Python without a broker",
    "limit-ring": "fdatasynced into a ring of blocks, no broker",
    "limit-log": "fdatasynced append",
}


def calibration() -> float:
    """Millions of turns a second of a plain Python loop that slices, looks up and joins: this machine, this moment."""
    table = {b"dev/1/temp": 1}
    data = b"\x32\x50\x00\x0adev/1/temp\x00\x01" + bytes(64)
    best = 0.0
    for _ in range(3):
        began, out = time.perf_counter(), []
        for _ in range(200_000):
            if table[data[4:14]]:
                out.append(data[14:16] + data[16:])  # noqa: PERF401 -- the loop is what is measured
        b"".join(out)
        best = max(best, 0.2 / (time.perf_counter() - began))
    return best


def measure(tool: Path, arguments: str, port: int, pid: int, pin: bool) -> dict[str, Any]:
    """One run of the load generator."""
    command = [*pinned(1, wanted=pin), str(tool), *arguments.split(), "--port", str(port), "--pid", str(pid)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        return json.loads(done.stdout)
    except (ValueError, subprocess.TimeoutExpired):
        return {"ok": False}


def steps_of(arguments: str | tuple[str, ...], times: str) -> list[str]:
    """The runs of the load generator that a case is made of; only the last is measured."""
    if isinstance(arguments, str):
        return [arguments + (" --seconds 3" if arguments.startswith("connect") else f" {times}")]
    run = time.time_ns() % 1_000_000_007
    return [step.format(run=run, stored=STORED) + " --max-seconds 60" for step in arguments]


def storing(server: str, step: str, port: int) -> AbstractContextManager[None]:
    """RabbitMQ keeps what is published only where a durable session has subscribed to it."""
    return stored_session(port) if server.startswith("rabbitmq") and step.startswith("pub ") else nullcontext()


def value_of(result: dict[str, Any], key: str) -> float | None:
    """The figure of a case."""
    if key == "ack_ms":
        ack = result.get("ack_us")
        return ack["p50"] / 1000 if ack else None
    found = result.get(key)
    return float(found) if found else None


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--peers", default="", help="peers with commas between: those of ../shared/bench/peers.sh and of newer_peers.py"
    )
    parser.add_argument("--cases", default=".", help="regular expression")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--no-pin", action="store_true", help="do not pin server and load to a core each")
    parser.add_argument("--json", type=Path, help="write everything measured to this file")
    parser.add_argument("--plot", type=Path, help="draw the ratios (SVG)")
    given = parser.parse_args()
    tool = load_generator()
    if tool is None:
        from python_load import main as python_load

        python_load()
        return
    pin = not given.no_pin
    wanted = {name: case for name, case in CASES.items() if re.search(given.cases, name)}
    results: dict[str, dict[str, list[dict[str, Any]]]] = {name: {} for name in wanted}
    speed = calibration()
    times = TIMES.format(seconds=given.seconds, warmup=0.5)
    with ExitStack() as stack:
        ours = stack.enter_context(gateway(FILES, pin=pin))
        servers = {"mqgate": (ours.ports["mqtt"], ours.pid)}
        for index, name in enumerate(one for one in given.peers.split(",") if one):
            servers[name] = (17_901 + index, stack.enter_context(peer(name, 17_901 + index)))
        time.sleep(10 if given.peers else 0)  # some go on starting for a while after they listen, on the servers' core
        for name, (arguments, _) in wanted.items():
            for _ in range(given.repetitions):
                for server, (port, pid) in servers.items():
                    steps = steps_of(arguments, times)
                    if server != "mqgate":
                        steps = [step.replace(THROUGH, DIRECT) for step in steps]
                    with storing(server, steps[0], port):
                        found = [measure(tool, step, port, pid, pin) for step in steps]
                    results[name].setdefault(server, []).append(found[-1])
            print(f"{name}: done", file=sys.stderr, flush=True)
            if given.json:  # what is measured so far stays if this is ended
                measured = {"machine": platform.platform(), "calibration": speed, "results": results}
                given.json.write_text(json.dumps(measured))
    ratios = report(wanted, results, speed)
    if given.plot:
        given.plot.write_text(ratios_plot("Times as fast as the peer (logarithmic)", ratios))


def report(wanted: dict[str, tuple[str, str]], results: dict[str, Any], speed: float) -> dict[str, dict[str, float]]:
    """The table: medians, spread, and the gateway's ratio to each peer."""
    ratios: dict[str, dict[str, float]] = {}
    print(f"\n{platform.platform()}, Python {platform.python_version()}, calibration {speed:.2f} M turns/s\n")
    print("| case | server | median | spread | server CPU us/msg | mqgate is | ok |\n|---|---|---|---|---|---|---|")
    for name, (_, key) in wanted.items():
        medians: dict[str, float] = {}
        for server, runs in results[name].items():
            values = [value for value in (value_of(run, key) for run in runs) if value is not None]
            if values:
                medians[server] = statistics.median(values)
        ours = medians.get("mqgate", 0.0)
        found = {
            server: median / ours if key == "ack_ms" else ours / median
            for server, median in medians.items()
            if server != "mqgate" and ours
        }
        ratios[name] = found
        for server, median in medians.items():
            runs = results[name][server]
            values = [value_of(run, key) or 0.0 for run in runs]
            cpu = statistics.median(run.get("srv_us_per_msg") or 0.0 for run in runs)
            ratio = f"{found[server]:.2f}x" if server in found else ""
            shown = f"{median:.2f} ms" if key == "ack_ms" else f"{median:,.0f}/s"
            good = sum(bool(run.get("ok")) for run in runs)
            print(f"| {name} | {server} | {shown} | {min(values):,.6g} to {max(values):,.6g} | {cpu:.2f} | {ratio} |"
                  f" {good}/{len(runs)} |")  # fmt: skip
    print("\nWhat an acknowledgement promises:")
    for server in dict.fromkeys(one for case in results.values() for one in case):
        print(f"* {server}: {PROMISE.get(server, 'see its documentation')}")
    return ratios


if __name__ == "__main__":
    main()
