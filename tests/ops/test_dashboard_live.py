"""Every query of the dashboard, run on a real Prometheus that scrapes a running gateway, one with a message in its
buffer and the exporter of a job, returns something."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from free_ports import free_port
from gateways import RunningGateway
from ops_machine import program
from running_gateway import Running, buffering, publish, running
from test_generated import GRAFANA

from gateway.pipeline.jobs.metrics import metrics_text, serve_metrics

pytestmark = [pytest.mark.ops, pytest.mark.xdist_group("prometheus")]

CONFIGURATION = """
global: {{scrape_interval: 1s}}
scrape_configs:
  - {{job_name: mqgate, static_configs: [{{targets: ["127.0.0.1:{admin}"]}}]}}
  - {{job_name: buffering, static_configs: [{{targets: ["127.0.0.1:{behind}"]}}]}}
  - {{job_name: pipeline, static_configs: [{{targets: ["127.0.0.1:{job}"]}}]}}
"""
ELSEWHERE = {"Depth by IBM's exporter", "Held"}
"""Panels that show what is not scraped here: IBM's exporter is not to be had, and what is held is in
test_alerts_live.py."""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("gateway")) as found:
        yield found


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with buffering(tmp_path_factory.mktemp("buffering")) as found:
        yield found


@pytest.fixture(scope="module")
def job() -> Iterator[int]:
    """The port of a job's exporter."""
    state = {
        "job": "land",
        "run": {"state": "running"},
        "last_batch": {"landed": time.time(), "seconds": 1.0, "rows": 5},
    }
    port, text = free_port(), metrics_text({**state, "groups": [{"name": "spark", "lag": 7}]})
    server = serve_metrics("127.0.0.1", port, lambda: text)
    yield port
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def prometheus(
    gateway: Running, behind: RunningGateway, job: int, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("prometheus")
    (folder / "prometheus.yml").write_text(CONFIGURATION.format(admin=gateway.admin, behind=behind.admin, job=job))
    address = f"127.0.0.1:{free_port()}"
    command = [program("prometheus"), f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
               f"--web.listen-address={address}", "--log.level=error"]  # fmt: skip
    with subprocess.Popen(command) as process:
        try:
            _scraped(address, 2)
            publish(gateway, "plant/lima/line/7/temperature", "21.5", 50)
            publish(gateway, "plant/lima/line/7/temperature", "21.5", 5, qos=0)
            publish(gateway, "lost/x", "1", 2)
            _scraped(address, 2)
            yield address
        finally:
            process.terminate()


def _scraped(address: str, times: int) -> None:
    """Wait until everything was scraped so often from now on. What of one is looked at is what it was scraped with:
    `timestamp()` of more than a selector is the time of the question."""
    begun = time.time()
    for _ in range(400):
        found = [[at for at, up in each["values"] if up == "1" and at > begun] for each in query(address, "up[5m]")]
        if len(found) == CONFIGURATION.count("job_name") and all(len(scrapes) >= times for scrapes in found):
            return
        time.sleep(0.2)
    raise AssertionError(f"Prometheus does not scrape: {query(address, 'up[5m]')}")


def query(address: str, expr: str) -> list[dict[str, Any]]:
    url = f"http://{address}/api/v1/query?{urllib.parse.urlencode({'query': expr})}"
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
            return found
    except ConnectionError:
        return []
    except urllib.error.HTTPError as error:
        if error.code == 503:  # it is still starting
            return []
        raise AssertionError(f"{expr}: {error.read().decode()}") from error
    except urllib.error.URLError:
        return []


def test_every_panel_has_data(prometheus: str) -> None:
    empty = []
    for panel, expr in GRAFANA.expressions():
        filled = expr.replace("$job", ".*").replace("$instance", ".*").replace("$__rate_interval", "10s")
        if not query(prometheus, filled) and panel not in ELSEWHERE:
            empty.append((panel, expr))
    assert empty == []


def test_what_was_published_is_what_is_counted(prometheus: str) -> None:
    def value(expr: str) -> float:
        return float(query(prometheus, expr)[0]["value"][1])

    assert value('sum(mqgate_mqtt_publish_received_total{route="readings", qos="1"})') == 50
    assert value('sum(mqgate_mqtt_publish_received_total{route="readings", qos="0"})') == 5
    assert value('mqgate_queue_depth{queue="MQGATE.DEFAULT"}') == 55
    assert value("sum(mqgate_dlq_messages_total)") == 2


def test_the_exposition_is_clean(gateway: Running, tmp_path: Path) -> None:
    text = gateway.text("/metrics")
    done = subprocess.run(
        [program("promtool"), "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    complaints = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith("mqgate_")]
    assert complaints == []
    (tmp_path / "metrics").write_text(text)
