"""Runs the cases in *.yaml against a real gateway, each in every protocol version it names.

A case has a `name` (with the clause), perhaps `versions` (default: all), perhaps `profile` (a file in profiles/) and
`steps`. A step is `CLIENT VERB ARGUMENTS`: `>` sends, `<` expects the next packet, `<|` expects several in any order
(split by `||`); the other verbs are methods of `conformance_client.Client`. `restart`, `kill` and `wait SECONDS` act
on the gateway. Clients open their sockets when they are first named, and again after `leaves`, `drops` or `closed`.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import yaml
from conformance_client import Client, Failed
from conformance_notation import to_bytes, to_pattern
from gateway_process import Gateway

HERE = Path(__file__).parent
PROFILES = {path.stem: path for path in sorted((HERE / "profiles").glob("*.yaml"))}
VERSIONS = {"3.1": 3, "3.1.1": 4, "5.0": 5}
ENDED = {"drops", "leaves", "closed", "refused", "refused_late", "turned_away"}


def load_cases():
    for path in sorted(HERE.glob("*.yaml")):
        for number, case in enumerate(yaml.safe_load(path.read_text())):
            for version in str(case.get("versions", "3.1 3.1.1 5.0")).split():
                profile = case.get("profile", "default")
                mark = pytest.mark.xdist_group(f"conformance-{profile}")
                tag = f"{path.stem}{number}"
                yield pytest.param(
                    case, tag, VERSIONS[version], profile, id=f"{path.stem}: {case['name']} ({version})", marks=mark
                )


@pytest.fixture(scope="module")
def gateways(tmp_path_factory):
    running: dict[str, Gateway] = {}

    def get(profile: str) -> Gateway:
        if profile not in running:
            settings = PROFILES[profile].read_text()
            directory = tmp_path_factory.mktemp(f"conformance-{profile}")
            for user in ("alice", "bob"):
                (directory / f"{user}.pw").write_text(f"{user}pw\n")
            (directory / "none.yaml").write_text("version: 1\n")
            gateway = Gateway(directory, settings)
            gateway.start()
            running[profile] = gateway
        return running[profile]

    yield get
    for gateway in running.values():
        gateway.stop()


class Case:
    """The clients of one run of one case."""

    def __init__(self, gateway: Gateway, tag: str, version: int) -> None:
        self.gateway, self.tag, self.version = gateway, tag, version
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

    def run(self, step: str) -> None:
        self.log.append(f"-- {step}")
        name, _, rest = self.names(step).partition(" ")
        if name in {"restart", "kill", "wait"}:
            self.act(name, rest)
            return
        if name == "shares":
            self.shares(rest.split())
            return
        verb, _, text = rest.strip().partition(" ")
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

    def act(self, verb: str, text: str) -> None:
        if verb == "wait":
            time.sleep(float(text))
            return
        self.close()
        if verb == "kill":
            self.gateway.kill()
        else:
            self.gateway.stop()
        self.gateway.start()

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


@pytest.mark.parametrize(("case", "tag", "version", "profile"), list(load_cases()))
def test_case(gateways, case, tag, version, profile):
    run = Case(gateways(profile), tag, version)
    try:
        for step in filter(None, map(str.strip, case["steps"].splitlines())):
            run.run(step)
    except Failed as failure:
        pytest.fail(f"{failure}\n" + "\n".join(run.log), pytrace=False)
    finally:
        run.close()
