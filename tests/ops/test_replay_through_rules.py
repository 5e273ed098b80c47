"""Dead letters that a rule has refused go by the rules again, after these have been corrected."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from running_gateway import TOKEN, Running, publish, running

pytestmark = pytest.mark.ops

MAPPING = """
version: 1
to_mq:
  - {name: events, topic: "plant/{site}/events", queue: "EVENTS.{site:upper}", properties: {site: "{site}"},
     payload: {format: json}}
"""


def posted(gateway: Running, path: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(
        f"http://127.0.0.1:{gateway.admin}/api/v1{path}",
        json.dumps(body).encode(),
        {"Authorization": f"Bearer {TOKEN}"},
        method="POST",
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read())


def test_a_refused_payload_reaches_its_queue_when_the_rule_is_corrected(tmp_path: Path) -> None:
    with running(tmp_path, mapping=MAPPING) as gateway:
        posted(gateway, "/mqsc", {"text": "DEFINE QLOCAL(EVENTS.LIMA)"})
        publish(gateway, "plant/lima/events", "not json", 2)
        letters = json.loads(gateway.text("/api/v1/dlq", TOKEN))["items"]
        assert {each["destination"] for each in letters} == {"EVENTS.LIMA"}
        refused = posted(gateway, "/dlq/replay", {"through_rules": True})
        assert (refused["matched"], refused["done"]) == (2, 0)
        assert "rule 'events' still refuses it" in refused["failed"][0]["text"]
        (tmp_path / "plant.yaml").write_text(MAPPING.replace("format: json", "format: string"))
        posted(gateway, "/reload", {})
        done = posted(gateway, "/dlq/replay", {"through_rules": True, "tokens": [letters[0]["token"]]})
        assert (done["matched"], done["done"], done["failed"]) == (1, 1, [])
        found = json.loads(gateway.text("/api/v1/queues/EVENTS.LIMA/messages?property=site%3Dlima", TOKEN))["items"]
        assert [each["preview"] for each in found] == ["not json"]
        assert json.loads(gateway.text("/api/v1/dlq", TOKEN))["total"] == 1


TWO = """
version: 1
to_mq:
  - {name: checked, topic: "plant/{site}/events", queue: "EVENTS.{site:upper}", payload: {format: json}, continue: true}
  - {name: every, topic: "plant/#", queue: EVERYTHING}
"""


def test_only_the_rule_whose_letter_it_is_puts_it_again(tmp_path: Path) -> None:
    with running(tmp_path, mapping=TWO) as gateway:
        posted(gateway, "/mqsc", {"text": "DEFINE QLOCAL(EVENTS.LIMA)\nDEFINE QLOCAL(EVERYTHING)"})
        publish(gateway, "plant/lima/events", "not json", 1)
        assert (
            "rule 'checked' still refuses it"
            in posted(gateway, "/dlq/replay", {"through_rules": True})["failed"][0]["text"]
        )
        (tmp_path / "plant.yaml").write_text(TWO.replace("format: json", "format: string"))
        posted(gateway, "/reload", {})
        assert posted(gateway, "/dlq/replay", {"through_rules": True})["done"] == 1
        for queue in ("EVENTS.LIMA", "EVERYTHING"):
            found = json.loads(gateway.text(f"/api/v1/queues/{queue}/messages", TOKEN))["items"]
            assert [each["preview"] for each in found] == ["not json"], queue


def test_a_dead_letter_goes_back_to_the_queue_manager_it_was_for(tmp_path: Path) -> None:
    mapping = 'to_mq: [{name: far, topic: "#", queue: FAR, queue_manager: QM9, on_failure: {retry: {times: 0}}}]'
    with running(tmp_path, mapping=mapping) as gateway:
        objects = "DEFINE QLOCAL(FAR)\nDEFINE QLOCAL(QM9) USAGE(XMITQ) PUT(DISABLED)"
        posted(gateway, "/mqsc", {"text": objects})
        publish(gateway, "a", "x", 1)
        posted(gateway, "/mqsc", {"text": "ALTER QLOCAL(QM9) USAGE(NORMAL) PUT(ENABLED)"})
        nowhere = posted(gateway, "/dlq/replay", {"destination": "FAR"})["failed"]
        posted(gateway, "/mqsc", {"text": "DELETE QLOCAL(QM9)"})
        unknown = posted(gateway, "/dlq/replay", {"destination": "FAR"})["failed"]
        assert (nowhere[0]["reason"], unknown[0]["reason"]) == (2092, 2087)
        assert "it was for queue manager QM9" in unknown[0]["text"]
        posted(gateway, "/mqsc", {"text": "DEFINE QLOCAL(QM9) USAGE(XMITQ)"})
        done = posted(gateway, "/dlq/replay", {"destination": "FAR"})
        assert (done["done"] > 0, done["failed"]) == (True, [])
        for queue, count in (("QM9", done["done"]), ("FAR", 0)):
            assert len(json.loads(gateway.text(f"/api/v1/queues/{queue}/messages", TOKEN))["items"]) == count
