"""Queues whose names a rule makes from topics are counted as others are, once something was put to them."""

from __future__ import annotations

import urllib.request
from pathlib import Path

from bridge_estate import Talker
from gateways import RunningGateway

MAPPING = """
version: 1
to_mq:
  - {name: sites, topic: "site/{site}", queue: "SITE.{site}", headers: []}
"""
SETTINGS = """
mappings: [map.yaml]
queue_manager: {embedded: {objects: objects.mqsc}}
"""


def test_their_depth_and_limits_are_metrics_and_their_messages_are_in_the_overview(tmp_path: Path) -> None:
    (tmp_path / "map.yaml").write_text(MAPPING)
    (tmp_path / "objects.mqsc").write_text("DEFINE QLOCAL(SITE.A) MAXDEPTH(10)\nDEFINE QLOCAL(SITE.B)\n")
    with RunningGateway(tmp_path, settings=SETTINGS) as gateway, Talker(gateway.port, "dev") as device:
        for _ in range(9):
            assert device.publish("site/A") == 0
        with urllib.request.urlopen(f"http://127.0.0.1:{gateway.admin}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        for name, value in (("depth", "9.0"), ("max_depth", "10.0"), ("high_depth", "8.0")):
            assert f'mqgate_queue_{name}{{queue="SITE.A"}} {value}' in lines
        assert not any("SITE.B" in line for line in lines)
        assert gateway.api("GET", "/overview")["spool"]["messages"] == 9
