"""New rules while the gateway runs, in each of the ways: when that is said to be done, what they consume is open."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bridge_estate import Talker
from gateways import RunningGateway
from ibm_fleet import MAPPING, SETTINGS, Fleet, fleet_in, until

from gateway.backends.ibm.ahead import AHEAD
from gateway.mqtt import packets as p

pytestmark = [pytest.mark.mqi, pytest.mark.timeout(240)]
COUNT = 30
SUBSCRIBING = "to_mqtt:\n" + "".join(
    f'  - {{name: d{number}, mq_topic: "NAMED/{number}", topic: "down/{number}"}}\n' for number in range(COUNT)
)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet_in(tmp_path_factory.mktemp("rules")) as made:
        made.settings = SETTINGS
        made.program = [str(Path(__file__).with_name("patient_gateway.py"))]
        made.start()
        yield made


def by_reload(gateway: RunningGateway, file: Path, text: str) -> None:
    file.write_text(text)
    gateway.api("POST", "/reload")


def by_signal(gateway: RunningGateway, file: Path, text: str) -> None:
    file.write_text(text)
    done = gateway.log.count('"reloaded"')
    assert gateway.process is not None
    gateway.process.send_signal(signal.SIGHUP)
    until(lambda: gateway.log.count('"reloaded"') > done)


def by_page(gateway: RunningGateway, file: Path, text: str) -> None:
    [shown] = gateway.api("GET", "/mapping")["files"]
    assert Path(shown["file"]).name == file.name
    gateway.api("PUT", "/mapping", {"file": shown["file"], "text": text})


def by_page_taken_back(gateway: RunningGateway, file: Path, text: str) -> None:
    by_page(gateway, file, text)
    by_page(gateway, file, MAPPING)
    gateway.api("POST", "/mapping/undo", {"number": gateway.api("GET", "/mapping")["history"][0]["number"]})


@pytest.mark.parametrize("change", [by_reload, by_signal, by_page, by_page_taken_back])
def test_what_new_rules_consume_is_open_when_they_are_said_to_be_in_force(
    fleet: Fleet, change: Callable[[RunningGateway, Path, str], None]
) -> None:
    gateway = fleet.gateways[0]
    names = SUBSCRIBING.replace("NAMED", change.__name__)
    change(gateway, gateway.directory / "map.yaml", MAPPING + names)
    shown = fleet.queue_manager.mqsc("DISPLAY SUB(*) TOPICSTR").lines
    assert sum(f"{change.__name__}/" in line for line in shown) == COUNT


TO_TOPICS = "version: 1\nto_mq:\n" + "".join(
    f'  - {{name: to-{name}, topic: "to/{name}", mq_topic: "RULES/{name}", headers: []}}\n' for name in ("gone", "kept")
)
GONE, KEPT = (f'  - {{name: {name}, mq_topic: "RULES/{name}", topic: "down/{name}"}}\n' for name in ("gone", "kept"))


def test_what_no_rule_takes_any_more_holds_up_no_other_rule_and_comes_when_it_is_back(fleet: Fleet) -> None:
    """The durable subscription of a rule outlives it, and shares its queue with those of other rules."""
    gateway, file = fleet.gateways[0], fleet.gateways[0].directory / "map.yaml"
    by_reload(gateway, file, f"{TO_TOPICS}to_mqtt:\n{GONE}{KEPT}")
    with Talker(gateway.port, "kept") as kept, Talker(gateway.port, "sends") as sends:
        kept.subscribe("down/#", 0)
        sends.publish("to/gone", b"first")
        assert bytes(kept.next(p.PUBLISH)[4]) == b"first"
        by_reload(gateway, file, f"{TO_TOPICS}to_mqtt:\n{KEPT}")
        for number in range(2 * AHEAD):
            sends.publish("to/gone", b"%d" % number)
        sends.publish("to/kept", b"on its way")
        assert bytes(kept.next(p.PUBLISH)[4]) == b"on its way"
        by_reload(gateway, file, f"{TO_TOPICS}to_mqtt:\n{GONE}{KEPT}")
        assert [bytes(kept.next(p.PUBLISH)[4]) for _ in range(2 * AHEAD)] == [b"%d" % n for n in range(2 * AHEAD)]
