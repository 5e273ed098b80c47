"""Instructions of a message, variant by variant: `python tests/bench/counted.py [--only REGEX] [--python] [--seconds]`.

The variants of `field.py` inside this process: sockets of the hub, broker and journal as in a gateway, clients that are
a socket each. Counted by callgrind is what the gateway does in a round of the hub, and nothing of the clients nor of
the kernel: so the figures are the same on a busy machine. `--seconds` measures processor time instead (with the
kernel's part, and without valgrind), `--python` leaves the compiled parts out. Of TLS and WebSocket see `field.py`.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from field import VARIANTS, Variant, settings_of
from inside import Inside

from gateway.app.limits import client_rates
from gateway.app.memory import keep_what_is_freed
from gateway.broker import engine as engine_module
from gateway.config.load import load_settings
from gateway.mqtt import client, writer
from gateway.mqtt import packets as p
from gateway.mqtt import properties as prop
from gateway.net import hub as hub_module
from gateway.net.hub import Hub
from gateway.net.hub_socket import HubSocket
from gateway.net.rates import SendRates
from gateway.net.reactor import HubReactor
from gateway.queue_manager.batch import commit

COMPILED = (
    "gateway.broker.publish._fast", "gateway.net._frames", "gateway.net._tls", "gateway.net._wire",
    "gateway.queue_manager.store._rows", "gateway.session._copies",
)  # fmt: skip
WITHOUT = """
import runpy, sys
sys.modules.update(dict.fromkeys({names}))
sys.argv[:1] = []
sys.path.insert(0, {folder!r})
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Runs this file as if what is compiled were not there."""
HERE = {
    "two sessions": Variant(),
    "a shared subscription of two sessions": Variant(of="two sessions"),
}
"""Variants with subscribers, whose answers are counted too; of rates see `run.py`."""
LOADS = {"10 x 100": (10, 100, 4), "100 x 1": (100, 1, 30), "10 x 1": (10, 1, 60), "1 x 1": (1, 1, 100)}
"""Clients, messages each has in flight, rounds that are counted."""
WARM = 12
"""Rounds before any is counted: routes, heads and segments are known then."""
SWITCH = """
#include <valgrind/callgrind.h>
void begin(void) { CALLGRIND_START_INSTRUMENTATION; CALLGRIND_ZERO_STATS; }
void toggle(void) { CALLGRIND_TOGGLE_COLLECT; }
void end(const char *what) { CALLGRIND_DUMP_STATS_AT(what); CALLGRIND_STOP_INSTRUMENTATION; }
"""


class Load(NamedTuple):
    """What clients of a variant send, as the options of the load generator say it."""

    version: int
    qos: int
    topics: int
    topic: str
    retain: bool
    size: int
    json: bool
    properties: int

    @classmethod
    def of(cls, options: str) -> Load:
        """That of a variant."""
        words = options.split()
        given = dict(zip(words[::2], words[1::2], strict=True))
        return cls(
            int(given.get("--proto", 4)), int(given.get("--qos", 1)), int(given.get("--topics", 0)),
            given.get("--topic", "dev/%d/temp"), "--retain" in given, int(given.get("--size", 64)), "--json" in given,
            int(given.get("--user-props", 0)),
        )  # fmt: skip


class Publisher:
    """A client on a socket of its own."""

    def __init__(self, load: Load, number: int, others: int, hub: Hub, inside: Inside) -> None:
        ours, self.socket = socket.socketpair()
        ours.settimeout(0)
        self.socket.settimeout(0)
        for one in (ours, self.socket):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        self.load, self.number, self.others, self.sent = load, number, others, 0
        link = HubSocket(hub, ours, f"10.0.0.9:{number}", "plain")
        link.connection = inside.engine.connected(link)
        link.chunk = 1 << 16
        hub.add(link)
        self.socket.send(client.encode_connect(client.connect(load.version, f"ownp{number}")))

    def publish(self, window: int) -> None:
        """As many as may be in flight."""
        self.socket.send(b"".join(self._publication(packet_id) for packet_id in range(1, window + 1)))

    def release(self, window: int) -> None:
        """The PUBRELs of QoS 2."""
        self.socket.send(b"".join(writer.encode_acks(p.PUBREL, [number]) for number in range(1, window + 1)))

    def _publication(self, packet_id: int) -> bytes:
        load = self.load
        self.sent += 1
        at = self.number if not load.topics else self._topic(load.topics)
        topic = load.topic.replace("%d", str(at)).encode()
        if load.json:
            start = b'{"seq":1%09d,"value":21.5,"unit":"C","pad":"' % self.sent
            payload = start + b"x" * (load.size - len(start) - 2) + b'"}'
        else:
            payload = self.sent.to_bytes(8, "little") * (load.size // 8)
        pairs = [(f"k{chr(97 + at)}", f"{0 if at else self.sent:010d}") for at in range(load.properties)]
        block = prop.encode({prop.USER_PROPERTY: pairs}) if pairs else b""
        return writer.encode_publish(
            load.version, topic, payload, load.qos, retain=load.retain, packet_id=packet_id, properties=block
        )

    def _topic(self, topics: int) -> int:
        """Whoever is free sends to the next topic, as the load generator has it: seldom one that he has had."""
        turn, place = divmod(self.sent * self.others + self.number, topics)
        return (place + 7 * turn) % topics

    def drain(self) -> bytes:
        """What it has been told."""
        try:
            return self.socket.recv(1 << 20)
        except BlockingIOError:
            return b""


class Subscriber:
    """A client that acknowledges what it gets."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket, self.reader = connected, client.server_reader(4)

    def answer(self) -> bool:
        """All that has come; whether anything has."""
        try:
            packets = self.reader.feed(self.socket.recv(1 << 24))
        except BlockingIOError:
            return False
        self.socket.send(writer.encode_acks(p.PUBACK, [packet[2] for packet in packets]))
        return True


class Running:
    """A variant at a load."""

    def __init__(self, variant: Variant, clients: int, window: int, folder: Path) -> None:
        files: dict[str, Any] = {}
        load = variant.load
        for name, content in settings_of(variant, folder).items():
            if name == "settings.yaml":
                content["listeners"] = content["listeners"][:1]
                content["mappings"] = ["map.yaml"]
            files[name] = content
        (folder / "schema.json").write_text(json.dumps(files["schema.json"]))
        self.inside = Inside(
            folder, json.dumps(files["settings.yaml"]), json.dumps(files["rules.json"]), files["objects.mqsc"]
        )
        self.window, self.load = window, Load.of(load)
        engine = self.inside.engine
        self.reactor = HubReactor()
        self.hub = Hub(self.reactor, engine)
        engine.answers.write_each = self.hub.write_each
        found = load_settings(str(folder / "settings.yaml"), {}, {"listeners.0.port": 0})
        if client_rates(found):
            self.hub.rates = SendRates(client_rates(found), time.monotonic)
        traced = found.log.clients
        if traced:
            engine.context.on_accepted = lambda _connection: None
        self.publishers = [Publisher(self.load, number, clients, self.hub, self.inside) for number in range(clients)]
        self.subscribers: list[Subscriber] = []
        self._round()
        for one in self.publishers:
            one.drain()

    def close(self) -> None:
        """End the journal's threads, and close the sockets."""
        for connection in list(self.inside.engine.connections):
            connection.link.abort()
        for one in (*self.publishers, *self.subscribers):
            one.socket.close()
        self.inside.close()

    def absent(self) -> None:
        """A session that is away, for which everything is stored."""
        self._subscriber("away", "dev/#", clean=False).close()
        self._round()

    def subscribe(self, number: int, *, shared: bool) -> None:
        """So many clients that get what is published, each all of it or a share."""
        for at in range(number):
            one = self._subscriber(f"s{at}", "$share/g/dev/#" if shared else "dev/#", clean=True)
            one.settimeout(0)
            one.recv(1 << 10)
            self.subscribers.append(Subscriber(one))

    def _subscriber(self, client_id: str, filter_: str, *, clean: bool) -> socket.socket:
        engine = self.inside.engine
        ours, theirs = socket.socketpair()
        ours.settimeout(0)
        for one in (ours, theirs):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        link = HubSocket(self.hub, ours, "10.0.0.8:1", "plain")
        link.connection = engine.connected(link)
        self.hub.add(link)
        theirs.send(client.encode_connect(client.connect(4, client_id, clean_start=clean)))
        self._round()
        theirs.send(client.encode_subscribe(4, p.Subscribe(1, [p.Subscription(filter_, 1)], {})))
        self._round()
        return theirs

    def _round(self) -> None:
        """Serve what is ready."""
        self.hub.doRead()
        while not self.inside.engine.context.idle:
            self.inside.clock.advance(0)
            time.sleep(0.0002)
        self.inside.clock.advance(0)

    def round(self, measured: Callable[[Callable[[], None]], None]) -> None:
        """Everybody sends what he may, and PUBRELs after it."""
        for one in self.publishers:
            one.publish(self.window)
        measured(self._round)
        self._drained(4 if self.load.qos else 0)
        while [True for subscriber in self.subscribers if subscriber.answer()]:
            measured(self._round)
        if self.load.qos == 2:
            for one in self.publishers:
                one.release(self.window)
            measured(self._round)
            self._drained(4)

    def _drained(self, each: int) -> None:
        """Everything has to be acknowledged, in one round."""
        got = sum(len(one.drain()) for one in self.publishers)
        if got != each * self.window * len(self.publishers):
            raise SystemExit(f"{got} bytes of acknowledgements for {self.window * len(self.publishers)} publications")


def shim(folder: Path) -> Any:
    """What switches callgrind on and off."""
    source, library = folder / "switch.c", folder / "switch.so"
    source.write_text(SWITCH)
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source)], check=True)
    return ctypes.CDLL(str(library))


def instructions(running: Running, rounds: int, switch: Any, name: str) -> None:
    """Have callgrind write what some rounds cost to a file of its own."""
    switch.begin()

    def measured(call: Callable[[], None]) -> None:
        switch.toggle()
        call()
        switch.toggle()

    running.round(lambda call: call())  # its code is translated once
    for _ in range(rounds):
        running.round(measured)
    switch.end(name.encode())


def microseconds(running: Running, messages: int) -> float:
    """Processor time of a message, the least of some repetitions."""
    least = float("inf")
    for _ in range(15):
        spent = 0.0

        def measured(call: Callable[[], None]) -> None:
            nonlocal spent
            began = time.process_time()
            call()
            spent += time.process_time() - began

        done = 0
        while done < 4_000:
            running.round(measured)
            done += messages
        least = min(least, spent / done * 1e6)
    return least


def inner(given: argparse.Namespace) -> None:
    """Run the variants; print what `--seconds` asks for, or have callgrind write it."""
    commit.THREAD_ABOVE = float("inf")  # as on a disk that answers at once, however slow callgrind makes it
    engine_module.SLOW_COMMIT_SECONDS = float("inf")  # nor does a batch wait for those whom a slow one has answered
    hub_module.TURN_SECONDS = hub_module.SLOW_SECONDS = engine_module.SLOW_SECONDS = 60.0
    keep_what_is_freed()
    with tempfile.TemporaryDirectory() as made:
        switch = None if given.seconds else shim(Path(made))
        for name, variant in (VARIANTS | HERE).items():
            if not re.search(given.only, name) or variant.listener != "plain":
                continue
            for load, (clients, window, rounds) in LOADS.items():
                if given.load and given.load != load:
                    continue
                with tempfile.TemporaryDirectory(dir=given.folder) as folder:
                    running = Running(variant, clients, window, Path(folder))
                    if "away" in name:
                        running.absent()
                    if name in HERE:
                        running.subscribe(2, shared="shared" in name)
                    for _ in range(WARM * (1 if window > 1 else 4)):
                        running.round(lambda call: call())
                    if switch is None:
                        print(f"{name}\t{load}\t{microseconds(running, clients * window):.2f}", flush=True)
                    else:
                        instructions(running, rounds, switch, f"{name}\t{load}\t{rounds * clients * window}")
                    running.close()


def counted(given: argparse.Namespace) -> dict[tuple[str, str], float]:
    """What the inner process says, under callgrind if need be."""
    this = Path(__file__).resolve()
    without = ["-c", WITHOUT.format(names=COMPILED, folder=str(this.parent))] if given.python else []
    command = [sys.executable, *without, str(this), "--inner", *sys.argv[1:]]
    if given.seconds:
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        rows = [line.split("\t") for line in done.stdout.splitlines()]
        return {(name, load): float(value) for name, load, value in rows}
    out = Path(given.keep or tempfile.mkdtemp(prefix="counted-"))
    out.mkdir(exist_ok=True)
    grind = ["valgrind", "--tool=callgrind", "--instr-atstart=no", "--collect-atstart=no",
             f"--callgrind-out-file={out}/callgrind.%p"]  # fmt: skip
    subprocess.run([*grind, *command], check=True, stdout=subprocess.DEVNULL, env={**os.environ, "PYTHONHASHSEED": "0"})
    found = {}
    for file in sorted(out.glob("callgrind.*")):
        text = file.read_text(errors="replace")
        named = re.search(r"^desc: Trigger: Client Request: (.+)\t(.+)\t(\d+)$", text, re.MULTILINE)
        total = re.search(r"^(?:totals|summary): (\d+)", text, re.MULTILINE)
        if named and total:
            found[named[1], named[2]] = int(total[1]) / int(named[3])
    if not given.keep:
        shutil.rmtree(out)
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=".", help="regular expression over the names of variants")
    parser.add_argument("--load", choices=[*LOADS], help="one of the loads; otherwise both")
    parser.add_argument("--python", action="store_true", help="without the compiled parts")
    parser.add_argument("--seconds", action="store_true", help="microseconds of processor time instead of instructions")
    parser.add_argument("--keep", help="directory for callgrind's files, for callgrind_annotate")
    parser.add_argument("--folder", default="/dev/shm" if Path("/dev/shm").is_dir() else None, help="for the journal")
    parser.add_argument("--inner", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inner:
        inner(given)
        return
    if not given.seconds and not shutil.which("valgrind"):
        raise SystemExit("there is no valgrind here: install it, or ask for --seconds")
    found = counted(given)
    print("| variant | " + " | ".join(f"{load} | share" for load in LOADS) + " |\n|" + "---|" * (2 * len(LOADS) + 1))
    for name in dict.fromkeys(one for one, _ in found):
        cells = []
        for load in LOADS:
            value, plain = found.get((name, load), 0.0), found.get(((VARIANTS | HERE)[name].of, load), 0.0)
            cells.append(f"{value:,.2f}" if given.seconds else f"{value:,.0f}")
            cells.append(f"{plain / value:.2f}" if value and plain else "")
        print(f"| {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
