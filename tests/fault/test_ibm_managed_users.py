"""Managed users of two gateways on one queue manager: what is changed at one is in force at the other."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from gateways import RunningGateway
from ibm_fleet import SETTINGS, Fleet, fleet_in, until

from gateway.errors import ProtocolError
from gateway.net.device import Device
from gateway.ports.state_queues import USERS

pytestmark = [pytest.mark.mqi, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet_in(tmp_path_factory.mktemp("managed")) as made:
        made.settings = SETTINGS.replace("security: {", "security: {managed: true, anonymous: false, ")
        yield made


@pytest.fixture(scope="module")
def gateways(fleet: Fleet) -> list[RunningGateway]:
    return [fleet.start(), fleet.start()]


def ask(gateway: RunningGateway, method: str, path: str, body: object = None) -> Any:
    token = (gateway.directory / "mqgate-data" / "admin.token").read_text().strip()
    data = None if body is None else json.dumps(body).encode()
    url = f"http://127.0.0.1:{gateway.admin}/api/v1{path}"
    request = urllib.request.Request(url, data, {"Authorization": f"Bearer {token}"}, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        text = answer.read()
    return json.loads(text) if text else None


def change(gateway: RunningGateway, mode: str, **user: object) -> dict[str, str]:
    [found] = ask(gateway, "POST", "/device-users", {"mode": mode, "users": [user]})["items"]
    return dict(found)


def device(gateway: RunningGateway) -> Device:
    return Device("127.0.0.1", gateway.port, "c1", version=5, timeout=60)


def lets_in(gateway: RunningGateway, user: str, password: str) -> bool:
    with device(gateway) as one:
        return one.connect(user, password.encode()) == 0


def publishes(one: Device, topic: str) -> bool:
    try:
        one.publish(topic, b"1", 1)
    except ProtocolError:
        return False
    return True


def test_changes_hold_at_the_other_gateway_for_clients_that_are_connected_there(gateways: list[RunningGateway]) -> None:
    here, there = gateways
    ask(here, "PUT", "/device-roles/lines", {"publish": ["up/#"]})
    password = change(here, "add", user="line7", role="lines")["password"]
    until(lambda: lets_in(there, "line7", password))
    with device(there) as one:
        assert one.connect("line7", password.encode()) == 0
        assert publishes(one, "up/t")
        assert not publishes(one, "other/t")
        ask(here, "PUT", "/device-roles/lines", {"publish": ["other/#"]})
        until(lambda: publishes(one, "other/t"))
        assert not publishes(one, "up/t")
        change(here, "change", user="line7", enabled=False)
        left: Any = one._next(14)
        assert left[1].reason == 0x87
    assert not lets_in(there, "line7", password)


def test_changes_made_at_both_at_the_same_time_are_known_at_both(gateways: list[RunningGateway]) -> None:
    """Each has its own last change, and the other's before it."""
    for number in range(4):
        change(gateways[number % 2], "add", user=f"u{number}")

    def known(gateway: RunningGateway) -> list[str]:
        return [one["user"] for one in ask(gateway, "GET", "/device-users?search=u")["items"]]

    until(lambda: known(gateways[0]) == known(gateways[1]) == ["u0", "u1", "u2", "u3"])
    change(gateways[0], "change", user="u0", enabled=False)
    change(gateways[1], "change", user="u1", enabled=False)

    def disabled(gateway: RunningGateway) -> list[str]:
        return [one["user"] for one in ask(gateway, "GET", "/device-users?search=u")["items"] if not one["enabled"]]

    until(lambda: disabled(gateways[0]) == disabled(gateways[1]) == ["u0", "u1"])


def test_what_was_changed_at_the_other_gateway_just_before_is_not_taken_back(gateways: list[RunningGateway]) -> None:
    """As it knew nothing of that for two seconds, it wrote the user as it had been."""
    here, there = gateways
    change(here, "add", user="v", role="lines")
    change(there, "change", user="v", enabled=False)
    change(here, "change", user="v", role="other")
    for gateway in gateways:
        until(lambda gateway=gateway: ask(gateway, "GET", "/device-users/v")["role"] == "other")  # type: ignore[misc]
        assert not ask(gateway, "GET", "/device-users/v")["enabled"]
    ask(there, "DELETE", "/device-users/v")
    with pytest.raises(urllib.error.HTTPError, match="404"):
        change(here, "change", user="v", role="lines")


def test_users_that_are_changed_at_both_at_once_have_one_record(gateways: list[RunningGateway], fleet: Fleet) -> None:
    """And are gone for good when they are removed."""
    names = [f"w{number}" for number in range(10)]
    for name in names:
        change(gateways[0], "add", user=name)
    with ThreadPoolExecutor(4) as threads:
        for number in range(3):
            for made in [
                threads.submit(change, gateway, "change", user=name, role=f"r{number}{gateway.port}")
                for name in names
                for gateway in gateways
            ]:
                made.result()
    until(lambda: len(users_of(fleet)) == len(set(users_of(fleet))))
    until(lambda: known(gateways[0]) == known(gateways[1]))
    for name in names:
        ask(gateways[1], "DELETE", f"/device-users/{name}")
    assert not set(names) & set(users_of(fleet))


def users_of(fleet: Fleet) -> list[str]:
    """Of each record of a user, whose it is; their version, among them, is 16 bytes that may look like anything."""
    records = [json.loads(body) for body in fleet.bodies(USERS) if len(body) != 16]
    return [record["name"] for record in records if record["kind"] == "user"]


def known(gateway: RunningGateway) -> list[dict[str, object]]:
    found = ask(gateway, "GET", "/device-users?search=w")["items"]
    return [one for one in found if one["user"].startswith("w")]
