"""A defect while new rules are put into force: the rules before them are in force again, and in their file."""

from __future__ import annotations

import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bridge_estate import Talker
from gateways import RunningGateway

from gateway.mqtt import packets as p

OBJECTS = "DEFINE QLOCAL(OLD.Q)\nDEFINE QLOCAL(NEW.Q)\nDEFINE QLOCAL(OLD.DOWN)\nDEFINE QLOCAL(NEW.DOWN)\n"
RULES = """version: 1
to_mq:
  - {name: old, topic: "up/#", queue: OLD.Q, headers: []}
to_mqtt:
  - {name: down, queue: OLD.DOWN, topic: down}
"""


def rules(name: str) -> str:
    return RULES.replace("name: old", f"name: {name}").replace("OLD.", "NEW.")


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[RunningGateway]:
    (tmp_path / "map.yaml").write_text(RULES)
    (tmp_path / "objects.mqsc").write_text(OBJECTS)
    settings = "mappings: [map.yaml]\nqueue_manager: {embedded: {objects: objects.mqsc}}\n"
    made = RunningGateway(tmp_path, settings=settings)
    made.program = [str(Path(__file__).with_name("rules_gateway.py"))]
    with made:
        yield made


def put(gateway: RunningGateway, text: str) -> Any:
    return gateway.api("PUT", "/mapping", {"file": str(gateway.directory / "map.yaml"), "text": text})


def put_in_vain(gateway: RunningGateway, name: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        put(gateway, rules(name))
    assert refused.value.code == 500
    refused.value.close()


def are_in_force(gateway: RunningGateway, which: str, body: str) -> None:
    """In both directions, and in the file."""
    assert f"queue: {which}.Q" in (gateway.directory / "map.yaml").read_text()
    with Talker(gateway.port, "one") as device:
        device.subscribe("down", 0)
        assert device.publish("up/a", body.encode()) == 0
        assert body in gateway.bodies(f"{which}.Q")
        gateway.api("POST", f"/queues/{which}.DOWN/messages", {"text": body})
        assert bytes(device.next(p.PUBLISH)[4]) == body.encode()


@pytest.mark.parametrize("name", ["begun", "done"])
def test_rules_that_meet_a_defect_are_in_force_nowhere(gateway: RunningGateway, name: str) -> None:
    put_in_vain(gateway, name)
    are_in_force(gateway, "OLD", "after the defect")
    assert gateway.api("GET", "/mapping")["history"] == []
    assert not gateway.api("GET", "/overview")["last_reload"]["ok"]
    assert gateway.metric("mqgate_config_last_reload_successful") == 0
    assert gateway.metric('mqgate_config_reloads_total{result="failed"}') == 1
    put(gateway, rules("new"))
    are_in_force(gateway, "NEW", "rules without one")
    assert gateway.api("GET", "/overview")["last_reload"]["ok"]


def test_where_nothing_can_be_put_into_force_any_more_a_restart_is_asked_for(gateway: RunningGateway) -> None:
    put_in_vain(gateway, "never")
    (finding,) = gateway.api("GET", "/overview")["last_reload"]["findings"]
    assert "restart" in finding["fix"]
    assert gateway.stop() == 0
    gateway.start()
    are_in_force(gateway, "OLD", "after the restart")
