"""Renders the chart with real Helm and answers questions about what came out."""

from __future__ import annotations

import functools
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from ops_machine import DEPLOY, helm

CHART = DEPLOY / "chart"
SCENARIOS = {path.name.removesuffix("-values.yaml"): path for path in sorted((CHART / "ci").glob("*.yaml"))}
APIS = ("monitoring.coreos.com/v1", "cert-manager.io/v1")
Manifest = dict[str, Any]


@functools.cache
def template(
    major: int,
    scenario: str,
    *sets: str,
    kube: str = "1.31.0",
    apis: bool = True,
    release: str = "gate",
    upgrade: bool = False,
) -> subprocess.CompletedProcess[str]:
    """`helm template` of a scenario with values set on top."""
    command = [helm(major), "template", release, str(CHART), "--namespace", "edge", "--kube-version", kube]
    command += ["--values", str(SCENARIOS[scenario])]
    for each in APIS if apis else ():
        command += ["--api-versions", each]
    command += ["--is-upgrade"] if upgrade else []
    for each in sets:
        command += ["--set", each]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def rendered(scenario: str, *sets: str, major: int = 4, kube: str = "1.31.0", release: str = "gate") -> list[Manifest]:
    """The manifests of a scenario."""
    done = template(major, scenario, *sets, kube=kube, release=release)
    assert done.returncode == 0, done.stderr
    found: list[Manifest] = json.loads(_as_json(done.stdout))
    return found


@functools.cache
def _as_json(text: str) -> str:
    """The manifests of a text, which many tests ask for: it takes a hundredth of the time to read JSON."""
    return json.dumps([each for each in yaml.load_all(text, yaml.CSafeLoader) if each])


def refused(scenario: str, *sets: str, major: int = 4, apis: bool = True) -> str:
    """The text with which a scenario is refused."""
    done = template(major, scenario, *sets, apis=apis)
    assert done.returncode != 0
    return done.stderr


def of_kind(manifests: list[Manifest], *kinds: str) -> list[Manifest]:
    """Those of some kinds."""
    return [each for each in manifests if each["kind"] in kinds]


def workload(manifests: list[Manifest]) -> Manifest:
    """The StatefulSet or Deployment."""
    (found,) = of_kind(manifests, "StatefulSet", "Deployment")
    return found


def pods(manifests: list[Manifest]) -> Iterator[tuple[Manifest, Manifest]]:
    """(metadata, spec) of every pod: the workload's and the test hook's."""
    for each in of_kind(manifests, "StatefulSet", "Deployment"):
        yield each["spec"]["template"]["metadata"], each["spec"]["template"]["spec"]
    for each in of_kind(manifests, "Pod"):
        yield each["metadata"], each["spec"]


def gateway(manifests: list[Manifest]) -> Manifest:
    """The gateway's container."""
    (found,) = [
        each for each in workload(manifests)["spec"]["template"]["spec"]["containers"] if each["name"] == "mqgate"
    ]
    return found


def settings(manifests: list[Manifest]) -> str:
    """The settings file."""
    (found,) = [each for each in of_kind(manifests, "ConfigMap") if each["metadata"]["name"].endswith("-settings")]
    return str(found["data"]["mqgate.yaml"])


def without_secrets(manifests: list[Manifest]) -> str:
    """Comparable text: generated passwords and the checksums over them taken out."""
    text = json.dumps(manifests, sort_keys=True)
    return re.sub(r'"(token|password)": "[A-Za-z0-9+/=]{20,}"', r'"\1": ""', text)


def write(manifests: list[Manifest], folder: Path) -> Path:
    """The manifests as one file."""
    path = folder / "rendered.yaml"
    path.write_text(yaml.safe_dump_all(manifests))
    return path
