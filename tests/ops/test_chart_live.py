"""What the chart renders, run: the settings, objects and secrets of a release start a gateway that the test hook's
command line finds well; generated secrets survive an upgrade (Helm's `lookup`, against a stand-in for an API server).
"""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import gateway_template
import pytest
import yaml
from chart_rendering import CHART, Manifest, gateway, of_kind, rendered, workload
from free_ports import free_port
from ibm_rig import OBJECTS, ServingProcess
from mqi_clients import BINDINGS, program_environment
from ops_machine import helm
from patient_device import Device
from running_gateway import Running, until_ready

pytestmark = [pytest.mark.ops, pytest.mark.xdist_group("helm")]


def mounted(manifests: list[Manifest], folder: Path, secrets: dict[str, dict[str, str]]) -> dict[str, str]:
    """Write what the pod's volumes hold below `folder`; where each mount point is now. `secrets`: those that are there
    before the release."""
    contents = dict(secrets)
    for each in of_kind(manifests, "ConfigMap"):
        contents[each["metadata"]["name"]] = each["data"]
    for each in of_kind(manifests, "Secret"):
        contents[each["metadata"]["name"]] = {
            key: base64.b64decode(value).decode() for key, value in each["data"].items()
        }
    sources = {
        each["name"]: each.get("secret", {}).get("secretName") or each.get("configMap", {}).get("name")
        for each in workload(manifests)["spec"]["template"]["spec"]["volumes"]
    }
    places = {}
    for mount in gateway(manifests)["volumeMounts"]:
        place = folder / mount["name"]
        place.mkdir()
        places[mount["mountPath"]] = str(place)
        project(place, contents.get(sources.get(mount["name"]) or "", {}))
    return places


def project(place: Path, files: dict[str, str]) -> None:
    """As the kubelet writes a ConfigMap or Secret: files in a directory of their own, one link swapped to it."""
    fresh = place / f"..{len(list(place.iterdir()))}"
    fresh.mkdir()
    for name, text in files.items():
        (fresh / name).write_text(text)
        if not (place / name).is_symlink():
            (place / name).symlink_to(Path("..data", name))
    (place / "..new").symlink_to(fresh.name)
    (place / "..new").replace(place / "..data")


@contextmanager
def started(
    manifests: list[Manifest], folder: Path, environment: dict[str, str] | None = None, **secrets: dict[str, str]
) -> Iterator[tuple[Running, dict[str, str]]]:
    """A pod: its gateway with what is mounted, at ports that are free, in the working directory of the image."""
    places = mounted(manifests, folder, secrets)
    settings = Path(places["/etc/mqgate/settings"]) / "mqgate.yaml"
    text = settings.read_text()
    port, admin = free_port(), free_port()
    here = places | {"1883": str(port), "9160": str(admin), "0.0.0.0": "127.0.0.1"}
    usual = "|".join(sorted(map(re.escape, here), key=len, reverse=True))
    settings.write_text(re.sub(usual, lambda found: here[found[0]], text))
    arguments = [settings if each.endswith("mqgate.yaml") else each for each in gateway(manifests)["args"]]
    with (folder / "log").open("wb") as log:
        process = gateway_template.launch(
            [sys.executable, "-m", "gateway", *map(str, arguments)],
            stdout=log, stderr=log, env=environment or os.environ, cwd=Path(places["/var/lib/mqgate"]),
        )  # fmt: skip
    running = Running(port, admin, 0, folder, process)
    try:
        until_ready(running)
        yield running, places
    finally:
        process.terminate()
        process.wait(60)


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, list[Manifest], dict[str, str]]]:
    manifests = rendered("watch", "mappings.watchSeconds=1")
    with started(manifests, tmp_path_factory.mktemp("release")) as (running, places):
        yield running, manifests, places


def test_pods_in_front_of_ibm_mq_are_one_broker(tmp_path: Path) -> None:
    """The MQI library, in the place of IBM's client, leads them to a queue manager of ours."""
    manifests = rendered("ibm")
    assert workload(manifests)["spec"]["replicas"] == 2
    (tmp_path / "qm").mkdir()
    queue_manager = ServingProcess(tmp_path / "qm", f"{OBJECTS}\nDEFINE QLOCAL(TELEMETRY.LIMA) REPLACE")
    secrets = {"mq-password": {"password": "pw\n"}, "mq-keys": {"key.kdb": ""}}
    environment = program_environment(str(queue_manager.socket), *BINDINGS)
    (credentials,) = [each["data"] for each in of_kind(manifests, "Secret")]
    login = ("mqgate", base64.b64decode(credentials["password"]))
    folders = [tmp_path / "0", tmp_path / "1"]
    for each in folders:
        each.mkdir()
    try:
        with (
            started(manifests, folders[0], environment, **secrets) as (first, _),
            started(manifests, folders[1], environment, **secrets) as (second, _),
            Device("127.0.0.1", first.port, "publisher") as publisher,
            Device("127.0.0.1", second.port, "subscriber") as subscriber,
        ):
            publisher.connect(*login)
            subscriber.connect(*login)
            subscriber.subscribe("plant/#", 1)
            publisher.publish("plant/LIMA/7", b"21.5", 1)
            assert subscriber.receive() == ("plant/LIMA/7", b"21.5")
    finally:
        queue_manager.kill()


def test_a_release_starts_and_answers_its_probes(release: tuple[Running, list[Manifest], dict[str, str]]) -> None:
    running, manifests, _ = release
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert running.text(gateway(manifests)[probe]["httpGet"]["path"]).endswith("ok\n")
    assert "mqgate_build_info" in running.text("/metrics")


def test_the_default_queue_of_a_release_is_as_deep_as_without_the_chart(
    release: tuple[Running, list[Manifest], dict[str, str]],
) -> None:
    """A queue that is full stops all devices."""
    running, _, places = release
    settings = f"{places['/etc/mqgate/settings']}/mqgate.yaml"
    words = ("queue", "show", "MQGATE.DEFAULT", "-c", settings, "--json")
    done = gateway_template.run(*words, cwd=running.folder)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["max_depth"] == 999_999_999


def test_a_changed_config_map_is_taken_over_by_the_running_pod(
    release: tuple[Running, list[Manifest], dict[str, str]],
) -> None:
    running, manifests, places = release
    (found,) = [each for each in of_kind(manifests, "ConfigMap") if each["metadata"]["name"].endswith("-mappings")]
    place = Path(places["/etc/mqgate/mappings"])
    text = found["data"]["plant.yaml"]
    log = running.folder / "log"

    project(place, {"plant.yaml": text.replace("queue:", "quue:")})
    until(lambda: '"reload_refused"' in log.read_text())
    assert "mqgate_config_last_reload_successful 0.0" in running.text("/metrics")

    project(place, {"plant.yaml": text.replace("readings", "changed readings")})
    until(lambda: 'mqgate_route_matched_total{route="changed readings"} 0.0' in running.text("/metrics"))
    assert "mqgate_config_last_reload_successful 1.0" in running.text("/metrics")
    assert log.read_text().count('"reload_refused"') == 1, "what was refused is not tried again as it is"
    assert running.process.poll() is None


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_the_test_hook_finds_it_well(release: tuple[Running, list[Manifest], dict[str, str]]) -> None:
    running, manifests, places = release
    (hook,) = of_kind(manifests, "Pod")
    arguments = []
    for argument in hook["spec"]["containers"][0]["args"]:
        argument = f"--port={running.port}" if argument.startswith("--port") else argument
        argument = "--host=127.0.0.1" if argument.startswith("--host") else argument
        arguments.append(argument.replace("/etc/mqgate/auth", places["/etc/mqgate/auth"]))
    done = gateway_template.run(*arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    without = [each for each in arguments if not each.startswith(("--user", "--password"))]
    assert gateway_template.run(*without).returncode == 1


def test_the_generated_token_opens_the_api(release: tuple[Running, list[Manifest], dict[str, str]]) -> None:
    running, _, places = release
    token = (Path(places["/etc/mqgate/admin"]) / "token").read_text().strip()
    assert json.loads(running.text("/api/v1/me", token))["role"] == "administrator"


class _Cluster(BaseHTTPRequestHandler):
    """As much of an API server as a server-side dry run asks for: discovery, and one Secret."""

    secret: ClassVar[dict[str, Any]]

    def do_GET(self) -> None:
        path = self.path.split("?")[0].rstrip("/")
        name = self.secret["metadata"]["name"]
        answers: dict[str, Any] = {
            "/version": {"major": "1", "minor": "31", "gitVersion": "v1.31.0"},
            "/api": {"kind": "APIVersions", "versions": ["v1"]},
            "/apis": {
                "kind": "APIGroupList",
                "apiVersion": "v1",
                "groups": [_group("apps"), _group("networking.k8s.io")],
            },
            "/api/v1": _resources("v1", "Secret", "ConfigMap", "Service", "ServiceAccount", "Pod"),
            "/apis/apps/v1": _resources("apps/v1", "StatefulSet", "Deployment"),
            "/apis/networking.k8s.io/v1": _resources("networking.k8s.io/v1", "NetworkPolicy"),
            f"/api/v1/namespaces/edge/secrets/{name}": self.secret,
            "/api/v1/namespaces/edge/secrets": {"kind": "SecretList", "apiVersion": "v1", "metadata": {}, "items": []},
        }
        missing = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
        self._say(200 if path in answers else 404, answers.get(path, missing))

    def _say(self, status: int, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def _group(name: str) -> dict[str, Any]:
    version = {"groupVersion": f"{name}/v1", "version": "v1"}
    return {"name": name, "versions": [version], "preferredVersion": version}


def _resources(version: str, *kinds: str) -> dict[str, Any]:
    plural = {"NetworkPolicy": "networkpolicies"}
    found = [
        {
            "name": plural.get(kind, f"{kind.lower()}s"),
            "singularName": "",
            "namespaced": True,
            "kind": kind,
            "verbs": ["get", "list", "create"],
        }
        for kind in kinds
    ]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": found}


@pytest.mark.parametrize("major", [3, 4])
def test_generated_secrets_are_kept_over_an_upgrade(major: int, tmp_path: Path) -> None:
    (made,) = of_kind(rendered("default"), "Secret")
    annotations = {"meta.helm.sh/release-name": "gate", "meta.helm.sh/release-namespace": "edge"}
    made["metadata"]["annotations"] = annotations
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Cluster", (_Cluster,), {"secret": made}))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_address[1]}"}}
        context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "clusters": [cluster],
            "contexts": [context],
            "users": [{"name": "u", "user": {}}],
        }
        (tmp_path / "config").write_text(yaml.safe_dump(config))
        command = [
            helm(major),
            "install",
            "gate",
            str(CHART),
            "-n",
            "edge",
            "--dry-run=server",
            "--disable-openapi-validation",
        ]
        environment = os.environ | {"KUBECONFIG": str(tmp_path / "config"), "HELM_CACHE_HOME": str(tmp_path)}
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=environment)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert done.returncode == 0, done.stderr
    text = done.stdout.split("MANIFEST:")[1].split("NOTES:")[0]
    (again,) = [each for each in yaml.safe_load_all(text) if each and each["kind"] == "Secret"]
    assert again["data"] == made["data"]
