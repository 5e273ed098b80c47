"""Alert and recording rules: linted, tested with data by promtool, on metrics that exist, each with its runbook."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from ops_machine import DEPLOY, ROOT, program, run

from gateway.pipeline.drain.drainer import QueueDrain
from gateway.pipeline.jobs.metrics import metrics_text
from gateway.ports.counters import CATALOGUE

pytestmark = pytest.mark.ops

RULES = DEPLOY / "prometheus"


@functools.cache
def read(name: str) -> Any:
    """A file of rules, or of their tests."""
    return yaml.load((RULES / name).read_text(), yaml.CSafeLoader)


def rules(name: str) -> list[dict[str, Any]]:
    return [rule for group in read(name)["groups"] for rule in group["rules"]]


ALERTS = rules("alerts.yaml")


NAMED_BEFORE = {"MqgateMessageDamaged": "damaged-frame"}
"""Pages that are older than their alert: log lines and errors name them."""


def of_the_pipeline() -> set[str]:
    """What a pipeline job shows on its own port."""
    group, last = {"name": "g", "lag": 1}, {"landed": 1, "seconds": 1, "rows": 1}
    run = {"state": "running", "wait_p50": 1, "wait_p99": 1}
    text = metrics_text({"job": "j", "run": run, "last_batch": last, "groups": [group]})
    text += draining_metrics()
    return set(re.findall(r"^(mqgate_\w+)", text, re.MULTILINE))


def draining_metrics() -> str:
    """What a drain of IBM MQ queues into a journal shows."""
    drain = SimpleNamespace(connected=True, done={"Q": SimpleNamespace(messages=1, repeated=0, units=1)})
    return QueueDrain.metrics(drain)  # type: ignore[arg-type]


@functools.cache
def exposed() -> frozenset[str]:
    """Every name a query may use."""
    names = of_the_pipeline() | {metric.exposed_name for metric in CATALOGUE if metric.kind != "histogram"}
    return frozenset(names) | {
        metric.exposed_name + end
        for metric in CATALOGUE
        if metric.kind == "histogram"
        for end in ("_bucket", "_count", "_sum")
    }


def test_promtool_finds_nothing_to_complain_of() -> None:
    done = run(program("promtool"), "check", "rules", "--lint=all", str(RULES / "alerts.yaml"), str(RULES / "slo.yaml"))
    assert "SUCCESS" in done.stdout + done.stderr
    run(program("promtool"), "check", "config", str(RULES / "prometheus.yml"))


def test_each_alert_fires_when_it_should_and_not_just_below() -> None:
    run(program("promtool"), "test", "rules", str(RULES / "tests.yaml"))


def test_each_alert_has_a_firing_and_a_quiet_case() -> None:
    cases = {each["name"] for each in read("tests.yaml")["tests"]}
    for rule in ALERTS:
        assert {f"{rule['alert']} fires", f"{rule['alert']} stays quiet"} <= cases


def test_cases_use_series_that_are_really_shown() -> None:
    """A case with a label or a value that nobody shows would prove nothing."""
    shown = {metric.exposed_name: {label.name: label for label in metric.labels} for metric in CATALOGUE}
    target = {"job", "instance", "namespace", "le"}
    wrong = []
    for case in read("tests.yaml")["tests"]:
        for one in case["input_series"]:
            name, _, rest = one["series"].partition("{")
            labels = dict(re.findall(r'(\w+)="([^"]*)"', rest))
            known = shown.get(re.sub("_(bucket|count|sum)$", "", name), shown.get(name))
            if known is None:
                wrong += [one["series"]] if name != "up" and name not in of_the_pipeline() else []
                continue
            values = {key: known[key].values for key in labels.keys() & known.keys()}
            wrong += [one["series"]] if labels.keys() - known.keys() - target else []
            wrong += [one["series"] for key, closed in values.items() if closed and labels[key] not in map(str, closed)]
    assert wrong == []


def test_rules_use_metrics_and_labels_the_gateway_has() -> None:
    recorded = {rule["record"] for rule in rules("slo.yaml")}
    labels = {label.name for metric in CATALOGUE for label in metric.labels} | {"namespace", "job", "instance", "le"}
    for rule in [*ALERTS, *rules("slo.yaml")]:
        assert set(re.findall(r"\bmqgate_\w+", rule["expr"])) <= exposed(), rule
        assert set(re.findall(r"\bmqgate:[\w:]+", rule["expr"])) <= recorded, rule
        for listed in re.findall(r"by \(([^)]*)\)", rule["expr"]):
            assert set(re.split(r",\s*", listed)) <= labels, rule


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_each_alert_says_what_is_wrong_and_where_the_cure_is(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in {"critical", "warning"}
    words = re.sub(r"(?<!^)(?=[A-Z])", "-", rule["alert"].removeprefix("Mqgate")).lower()
    words = NAMED_BEFORE.get(rule["alert"], words)
    assert rule["annotations"]["runbook_url"] == f"docs/runbooks/{words}.md"
    page = (ROOT / "docs" / "runbooks" / f"{words}.md").read_text()
    for heading in ("## What it means", "## Look", "## Cure"):
        assert heading in page, f"{words}.md lacks {heading}"
    assert rule["alert"] in page


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: page.stem)
def test_pages_name_metrics_the_gateway_has(page: Path) -> None:
    named = set(re.findall(r"\bmqgate_[a-z_]+", page.read_text()))
    histograms = {metric.exposed_name for metric in CATALOGUE if metric.kind == "histogram"}
    assert named <= exposed() | histograms
