"""Several gateways on one queue manager: each knows what the others are and do."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gateway_template
import pytest
from bridge_estate import Talker
from gateways import TREE, RunningGateway
from ibm_fleet import Fleet, fleet_in, until

from gateway.mqtt import packets as p

pytestmark = [pytest.mark.mqi, pytest.mark.timeout(240)]


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with fleet_in(tmp_path) as made:
        yield made


def listed(gateway: RunningGateway) -> list[dict[str, Any]]:
    """What `mqgate gateway list` says beside it."""
    words = ["gateway", "list", "--json", "-c", "settings.yaml"]
    environ = {**os.environ, "PYTHONPATH": TREE}
    done = gateway_template.run(*words, cwd=gateway.directory, env=environ)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    return list(found["items"] if isinstance(found, dict) else found)


def test_each_gateway_lists_all_and_the_broker_counts_them_together(fleet: Fleet) -> None:
    gateways = [fleet.start(), fleet.start()]
    talkers = [Talker(gateway.port, f"talks-{number}") for number, gateway in enumerate(gateways)]
    talkers[1].subscribe("$SYS/broker/clients/connected", 0)
    value = b""
    while value != b"2":
        value = bytes(talkers[1].next(p.PUBLISH, 60)[4])

    def complete() -> bool:
        found = listed(gateways[0])
        return len(found) == 2 and [one["connections"] for one in found] == [1, 1]

    until(complete)
    own, other = listed(gateways[0])
    assert (own["own"], other["own"]) == (True, False)
    assert own["name"] != other["name"]
    assert own["version"] == other["version"] != ""
    assert other["heard"] >= other["started"]
    gateways[1].stop()
    until(lambda: len(listed(gateways[0])) == 1)
