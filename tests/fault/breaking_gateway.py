"""Gateways that stop at named points and ask a test what happens there; forked from a process that has loaded them.

`python breaking_gateway.py` reads a line of JSON for each one (argv, env, cwd, log, stops) and answers with its pid.

The points are on the way of one unit of work with messages for the queue in MQGATE_BREAK_QUEUE. At one that is armed
the gateway says its name on the socket in MQGATE_BREAK_SOCKET and waits; the answer is `go`, `kill` (itself), or
`mqsc TEXT` (for a queue manager in this very process).
"""

from __future__ import annotations

import json
import os
import queue
import signal
import socket
import sys
import threading
from collections.abc import Callable
from functools import partial, wraps
from importlib import import_module
from typing import Any

QUEUE = os.environ["MQGATE_BREAK_QUEUE"]
BEFORE_PUT, AFTER_PUT, DURING_COMMIT, AFTER_COMMIT, RELEASED = POINTS = (
    "before put", "after put", "during commit", "after commit", "between PUBREC and PUBREL",
)  # fmt: skip

LOADED_ONCE = "gateway.app.gateway", "gateway.app.queue_managers.ibm", "gateway.mqi.server_protocol", "gateway.cli.run"
"""What every gateway needs is loaded before the first one is forked."""


class Wire:
    """The line to the test."""

    def __init__(self) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(os.environ["MQGATE_BREAK_SOCKET"])
        self.armed: set[str] = set(filter(None, [os.environ.get("MQGATE_BREAK_ARMED", "")]))
        self.answers: queue.Queue[str] = queue.Queue()
        self.here: Callable[[str, str], None] = lambda _point, _text: None
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in self.socket.makefile():
            word, _, rest = line.rstrip("\n").partition(" ")
            if word == "arm":
                self.armed = {rest}
                self.socket.sendall(b"armed\n")
            else:
                self.answers.put(line.rstrip("\n"))

    def reach(self, point: str) -> None:
        if point not in self.armed:
            return
        self.armed = set()
        self.socket.sendall(f"at {point}\n".encode())
        answer = self.answers.get()
        if answer == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        word, _, rest = answer.partition(" ")
        if word == "mqsc":
            self.here(point, rest.replace(";", "\n"))


def concerned(unit: Any) -> bool:
    return any(puts.queue == QUEUE for puts in unit.puts)


def before(owner: Any, name: str, call: Callable[..., None]) -> None:
    """Have `call` run with the arguments of a method before it."""
    original = getattr(owner, name)

    @wraps(original)
    def wrapped(*arguments: Any, **named: Any) -> Any:
        call(*arguments, **named)
        return original(*arguments, **named)

    setattr(owner, name, wrapped)


def install(wire: Wire) -> None:
    from gateway.backends.ibm.client import IbmQueueManager
    from gateway.backends.ibm.worker import Worker
    from gateway.broker.engine import Engine
    from gateway.broker.publish.fast import FastLane
    from gateway.broker.publish.qos2 import Staging
    from gateway.queue_manager.embedded import EmbeddedQueueManager
    from gateway.queue_manager.journal.files import DurableFile
    from gateway.queue_manager.journal.store import Store

    under_way = threading.Event()
    """A unit with messages for the queue has been submitted to the embedded queue manager and is not committed."""

    def submitted(manager: Any, unit: Any, _done: Any) -> None:
        if not concerned(unit):
            return
        if isinstance(manager, EmbeddedQueueManager):
            under_way.set()
            wire.here = partial(now, manager)
        wire.reach(BEFORE_PUT)

    def now(manager: Any, point: str, text: str) -> None:
        from twisted.internet import reactor

        if point in {BEFORE_PUT, RELEASED}:
            manager.mqsc(text)
        else:  # the queue manager is in the middle of something
            reactor.callFromThread(manager.mqsc, text)

    before(EmbeddedQueueManager, "submit", submitted)
    before(IbmQueueManager, "submit", submitted)

    def writing(_store: Any, _prepared: Any) -> None:
        if under_way.is_set():
            wire.reach(AFTER_PUT)

    def half(file: Any, data: memoryview, offset: int) -> None:
        if under_way.is_set() and DURING_COMMIT in wire.armed:
            part = len(data) // 8192 * 4096
            if part:
                written(file, data[:part], offset)
            wire.reach(DURING_COMMIT)

    written = DurableFile.write
    before(Store, "write", writing)
    before(DurableFile, "write", half)

    def done(_engine: Any, unit: Any, outcome: Any) -> None:
        if concerned(unit):
            under_way.clear()
            if not outcome.failures:
                wire.reach(AFTER_COMMIT)

    before(Engine, "done", done)
    before(Staging, "pubrel", lambda *_: wire.reach(RELEASED))
    before(FastLane, "taken_records", lambda *_: wire.reach(RELEASED))
    before(FastLane, "may_move", lambda *_: wire.reach(RELEASED))

    apply = Worker._apply

    def applied(worker: Any, connection: Any, batch: Any, *, asynchronous: bool) -> Any:
        tokens = apply(worker, connection, batch, asynchronous=asynchronous)
        if any(map(concerned, batch)):
            wire.reach(AFTER_PUT)
            if DURING_COMMIT in wire.armed:
                threading.Thread(target=wire.reach, args=(DURING_COMMIT,)).start()
        return tokens

    Worker._apply = applied  # type: ignore[method-assign]


def run(asked: dict[str, Any]) -> None:
    """In the child: be a gateway."""
    from gateway.cli import main as gateway

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    log = os.open(asked["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for number in (1, 2):
        os.dup2(log, number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ.update(asked["env"])
    os.chdir(asked["cwd"])
    sys.argv = ["mqgate", *asked["argv"]]
    if asked["stops"]:
        install(Wire())
    gateway()


def main() -> None:
    sys.path.insert(0, os.environ["MQGATE_BREAK_ROOT"])
    for module in LOADED_ONCE:
        import_module(module)
    assert "twisted.internet.reactor" not in sys.modules, "the reactor belongs to the child"
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            run(json.loads(line))
            os._exit(0)
        print(pid, flush=True)


if __name__ == "__main__":
    main()
