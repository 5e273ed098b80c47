"""What deploy/build.py writes is fresh, and the dashboard is sound: unique ids, no overlap, metrics that exist."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from itertools import combinations
from types import ModuleType
from typing import Any

import pytest
from ops_machine import DEPLOY
from test_prometheus_rules import exposed, of_the_pipeline

pytestmark = pytest.mark.ops


def module(name: str, path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, DEPLOY / path)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    sys.modules[name] = found
    spec.loader.exec_module(found)
    return found


BUILD = module("deploy_build", "build.py")
GRAFANA = module("deploy_grafana", "grafana/build.py")
OUTPUTS = BUILD.outputs()
PANELS: list[dict[str, Any]] = json.loads(GRAFANA.text())["panels"]


@pytest.mark.parametrize("path", OUTPUTS, ids=lambda path: path.name)
def test_generated_files_are_fresh(path: Any) -> None:
    assert path.read_text() == OUTPUTS[path], "run python deploy/build.py"


def test_every_value_of_the_chart_is_documented() -> None:
    text = (DEPLOY / "chart" / "values.yaml").read_text()
    assert len(BUILD.documented(text)) > 100
    schema = BUILD.schema(text)
    assert schema["additionalProperties"] is False
    assert schema["properties"]["queueManager"]["properties"]["ibm"]["additionalProperties"] is False


def test_panels_have_unique_ids_and_do_not_overlap() -> None:
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    for one, two in combinations([panel["gridPos"] for panel in PANELS], 2):
        beside = one["x"] + one["w"] <= two["x"] or two["x"] + two["w"] <= one["x"]
        above = one["y"] + one["h"] <= two["y"] or two["y"] + two["h"] <= one["y"]
        assert beside or above, (one, two)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in PANELS)


def test_panels_use_the_chosen_data_source_and_metrics_the_gateway_has() -> None:
    for panel in PANELS:
        if panel["type"] == "row":
            continue
        assert panel["datasource"]["uid"] == "${datasource}"
        assert panel["targets"]
        for target in panel["targets"]:
            assert set(re.findall(r"\bmqgate_\w+", target["expr"])) <= exposed(), target["expr"]


def test_every_metric_is_on_a_panel_or_said_not_to_be() -> None:
    text = json.dumps(PANELS)
    left_out = {"mqgate_" + name for name in (
        "route_info", "build_info", "config_reloads_total", "worker_up", "mqtt_packets_total",
        "mqtt_inflight_messages", "messages_unrouted_total", "spool_messages", "spool_oldest_message_age_seconds",
        "spool_recovered_messages_total", "queue_oldest_message_age_seconds",
        "mq_put_bytes_total", "tls_certificate_not_after_timestamp_seconds", "tls_crl_next_update_timestamp_seconds",
        "config_last_reload_timestamp_seconds", "queue_incomplete_messages", "token_keys_age_seconds",
    )}  # fmt: skip
    shown = {name for name in exposed() if name in text}
    missing = {name for name in exposed() - of_the_pipeline() if not name.endswith(("_sum", "_count"))} - shown
    assert missing <= left_out, missing - left_out
