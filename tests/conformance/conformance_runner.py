"""Runs the cases in *.yaml against a real gateway, each in every protocol version it names.

A case has a `name` (with the statement), perhaps `versions` (default: all), perhaps `profile` (a file in profiles/) and
`steps`. A step is `CLIENT VERB ARGUMENTS`: `>` sends, `<` expects the next packet, `<|` expects several in any order
(split by `||`); the other verbs are methods of `conformance_client.Client`. `restart`, `kill` and `wait SECONDS` act
on the gateway. Clients open their sockets when they are first named, and again after `leaves`, `drops` or `closed`.

One gateway a profile serves all its cases at once, so that their waits pass together; cases that kill or restart it
share these too: every one of them goes on to its next `kill`, then the gateway is killed once for all.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

import pytest
import yaml
from conformance_client import Client, Failed
from conformance_notation import to_bytes, to_pattern
from gateways import RunningGateway

HERE = Path(__file__).parent
PROFILES = {path.stem: path for path in sorted((HERE / "profiles").glob("*.yaml"))}
VERSIONS = {"3.1": 3, "3.1.1": 4, "5.0": 5}
ENDED = {"drops", "leaves", "closed", "refused", "refused_late", "turned_away"}
AT_ONCE = 8


def load_cases():
    for path in sorted(HERE.glob("*.yaml")):
        for number, case in enumerate(yaml.safe_load(path.read_text())):
            for version in str(case.get("versions", "3.1 3.1.1 5.0")).split():
                tag = f"{path.stem}{number}"
                name = f"{path.stem}: {case['name']} ({version})"
                yield pytest.param(case, tag, VERSIONS[version], case.get("profile", "default"), id=name)


class Served(Protocol):
    """A gateway, or what stands for one."""

    def connect(self) -> socket.socket: ...
    def start(self) -> object: ...
    def stop(self) -> object: ...
    def kill(self) -> None: ...
    def close(self) -> object: ...


class Case:
    """The clients of one run of one case."""

    def __init__(self, gateway: Served, tag: str, version: int, steps: str) -> None:
        self.gateway, self.tag, self.version = gateway, tag, version
        self.steps = list(filter(None, map(str.strip, steps.splitlines())))
        self.clients: dict[str, Client] = {}
        self.log: list[str] = []

    def names(self, text: str) -> str:
        text = text.replace("{t}", f"{self.tag}v{self.version}")
        for letter in "ABCDE":
            text = text.replace(f"{{{letter}}}", self.client_id(letter))
        return text

    def client_id(self, name: str) -> str:
        return f"{self.tag}v{self.version}{name}"

    def client(self, name: str) -> Client:
        if name not in self.clients:
            client = Client(name, self.client_id(name), self.version, self.gateway.connect())
            client.log = self.log
            self.clients[name] = client
        return self.clients[name]

    def run(self) -> Iterator[str]:
        """Steps one after the other; says `kill` or `restart` where the gateway has to be, and goes on after it."""
        for step in self.steps:
            self.log.append(f"-- {step}")
            name, _, rest = self.names(step).partition(" ")
            if name in {"kill", "restart"}:
                yield name
                self.close()
            elif name == "wait":
                time.sleep(float(rest))
            elif name == "shares":
                self.shares(rest.split())
            else:
                self.act(name, rest.strip())

    def act(self, name: str, rest: str) -> None:
        verb, _, text = rest.partition(" ")
        client = self.client(name)
        if verb == ">":
            client.send(to_bytes(text, self.version))
        elif verb == "<":
            client.expect(to_pattern(text, self.version), text)
        elif verb == "<|":
            self.expect_in_any_order(client, text)
        else:
            getattr(client, verb)(text)
        if verb in ENDED:
            self.clients.pop(name).socket.close()

    def expect_in_any_order(self, client: Client, text: str) -> None:
        wanted = [to_pattern(part, self.version) for part in text.split("||")]
        while wanted:
            frame = client.frame()
            found = next((pattern for pattern in wanted if pattern.fullmatch(frame)), None)
            if found is None:
                raise Failed(f"{client.name}: {frame.hex(' ')} is none of {text}")
            wanted.remove(found)

    def shares(self, words: list[str]) -> None:
        """`shares B C PAYLOAD...`: each payload reaches one of the two, each of them half."""
        got = {name: [self.client(name).frame()[-2:].decode() for _ in words[2::2]] for name in words[:2]}
        if sorted(payload for payloads in got.values() for payload in payloads) != sorted(words[2:]):
            raise Failed(f"shared among members: {got}, wanted {words[2:]}")

    def close(self) -> None:
        for client in self.clients.values():
            client.socket.close()
        self.clients.clear()


class Runner:
    """Runs the cases that were selected, all of a profile at once; a test only asks how its own has gone."""

    def __init__(self, directory, selected, make: Callable[..., Served] = RunningGateway) -> None:
        """`make` makes the gateway of a profile, or what stands for one."""
        self.directory = directory
        self.make = make
        self.pool = ThreadPoolExecutor(AT_ONCE + len(PROFILES))
        profiles = {profile for _, _, _, profile in selected}
        self.gateways = {profile: self.pool.submit(self.started, profile) for profile in sorted(profiles)}
        self.outcomes: dict[tuple[str, int], Future[str]] = {}
        rounds: dict[str, list[tuple[dict, str, int]]] = {}
        for case, tag, version, profile in sorted(selected, key=lambda one: -duration(one[0])):
            if restarts(case):
                rounds.setdefault(profile, []).append((case, tag, version))
                self.outcomes[tag, version] = Future()
            else:
                self.outcomes[tag, version] = self.pool.submit(self.run, profile, case, tag, version)
        for profile, cases in rounds.items():
            self.pool.submit(self.run_rounds, profile, cases)

    def started(self, profile: str) -> Served:
        directory = self.directory / profile
        directory.mkdir()
        for user in ("alice", "bob"):
            (directory / f"{user}.pw").write_text(f"{user}pw\n")
        (directory / "none.yaml").write_text("version: 1\n")
        gateway = self.make(directory, settings=PROFILES[profile].read_text())
        gateway.start()
        return gateway

    def run(self, profile: str, case: dict, tag: str, version: int) -> str:
        run = Case(self.gateways[profile].result(), tag, version, case["steps"])
        said: list[str] = []
        self.advance(run, run.run(), said)
        run.close()
        return "".join(said)

    def advance(self, run: Case, steps: Iterator[str], said: list[str]) -> str:
        """Go on to the next kill or restart, which is returned; "" at the end, where what failed has been said."""
        try:
            return next(steps, "")
        except (Failed, OSError) as failure:
            said.append(f"{failure}\n" + "\n".join(run.log))
            return ""

    def run_rounds(self, profile: str, cases: list[tuple[dict, str, int]]) -> None:
        try:
            self.go_round(profile, cases)
        except Exception as defect:  # noqa: BLE001 -- a gateway that does not start again is the failure of all of them
            for _, tag, version in cases:
                if not self.outcomes[tag, version].done():
                    self.outcomes[tag, version].set_result(f"the gateway of this case: {defect!r}")

    def go_round(self, profile: str, cases: list[tuple[dict, str, int]]) -> None:
        gateway = self.gateways[profile].result()
        runs = [Case(gateway, tag, version, case["steps"]) for case, tag, version in cases]
        going = [(run, run.run()) for run in runs]
        waiting: list[tuple[str, Case, Iterator[str]]] = []
        while going or waiting:
            for run, steps in going:
                said: list[str] = []
                action = self.advance(run, steps, said)
                if action:
                    waiting.append((action, run, steps))
                else:
                    run.close()
                    self.outcomes[run.tag, run.version].set_result("".join(said))
            going = self.act(gateway, waiting)

    def act(self, gateway: Served, waiting: list[tuple[str, Case, Iterator[str]]]) -> list[tuple[Case, Iterator[str]]]:
        """Kill the gateway for all that wait for it; restart it in order when nobody does. Who goes on is returned."""
        actions = {action for action, _, _ in waiting}
        chosen = "kill" if "kill" in actions else "restart"
        if not actions:
            return []
        if chosen == "kill":
            gateway.kill()
        else:
            for _, run, _ in waiting:
                run.close()
            gateway.stop()
        gateway.start()
        going = [(run, steps) for action, run, steps in waiting if action == chosen]
        waiting[:] = [one for one in waiting if one[0] != chosen]
        return going

    def outcome(self, tag: str, version: int) -> str:
        """What failed in a case; "" if nothing did."""
        for gateway in self.gateways.values():
            if defect := gateway.exception():  # not raised: its traceback would grow with each of hundreds of cases
                return f"a gateway of these cases: {defect!r}"
        return self.outcomes[tag, version].result(300)

    def stop(self) -> None:
        self.pool.shutdown(cancel_futures=True)
        for gateway in self.gateways.values():
            if gateway.done() and not gateway.cancelled() and gateway.exception() is None:
                gateway.result().close()


def selected(session: pytest.Session, path: str) -> list[tuple[dict, str, int, str]]:
    """The cases of a test file that this run has selected."""
    mine = [item.callspec.params for item in session.items if item.path == Path(path)]
    return [(one["case"], one["tag"], one["version"], one["profile"]) for one in mine]


def restarts(case: dict) -> bool:
    """Whether the case kills or restarts the gateway."""
    return bool({"kill", "restart"} & set(map(str.strip, case["steps"].splitlines())))


def duration(case: dict) -> float:
    """Seconds the case waits, roughly: the long ones begin first."""
    lines = [line.split() for line in case["steps"].splitlines()]
    return sum(float(words[1]) if words[:1] == ["wait"] else "refused_late" in words for words in lines)
