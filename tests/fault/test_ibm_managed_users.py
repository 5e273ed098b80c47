"""Managed users of two gateways on one queue manager: what is changed at one is in force at the other."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from gateways import RunningGateway
from ibm_fleet import SETTINGS, fleet_in, until

from gateway.errors import ProtocolError
from gateway.net.device import Device

pytestmark = [pytest.mark.mqi, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def gateways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RunningGateway]]:
    with fleet_in(tmp_path_factory.mktemp("managed")) as made:
        made.settings = SETTINGS.replace("security: {", "security: {managed: true, anonymous: false, ")
        yield [made.start(), made.start()]


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
