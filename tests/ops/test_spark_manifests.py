"""What deploy/spark hands to Kubernetes: the application and its job fit together, and spark-submit, given a stand-in
of the API server, makes the pod that the script asks for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from chart_rendering import of_kind, rendered
from free_ports import free_port

from gateway.pipeline.jobs.job import parse_job
from gateway.pipeline.jobs.spark.spark_session import OLDEST

SPARK = Path(__file__).parents[2] / "deploy/spark"
DO_NOT_WAIT = "spark.kubernetes.submission.waitAppCompletion=false"


@pytest.fixture(scope="module")
def documents() -> dict[str, Any]:
    found = yaml.safe_load_all((SPARK / "spark-application.yaml").read_text())
    return {each["kind"]: each for each in found}


def test_the_job_of_the_application_is_one(documents: dict[str, Any]) -> None:
    job = parse_job("job.yaml", documents["ConfigMap"]["data"]["job.yaml"])
    mounts = {each["mountPath"] for each in documents["SparkApplication"]["spec"]["driver"]["volumeMounts"]}
    assert job.warehouse in mounts, "tables and checkpoint are on the claim"
    assert str(Path(job.source.token_file).parent) in mounts
    assert job.source.url, "executors have no gateway's disk"


def test_volumes_are_those_that_are_mounted(documents: dict[str, Any]) -> None:
    spec = documents["SparkApplication"]["spec"]
    volumes = {each["name"]: each for each in spec["volumes"]}
    for side in ("driver", "executor"):
        assert {each["name"] for each in spec[side]["volumeMounts"]} == set(volumes)
    claim = documents["PersistentVolumeClaim"]
    assert volumes["lake"]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    assert volumes["job"]["configMap"]["name"] == documents["ConfigMap"]["metadata"]["name"]
    at = {each["name"]: each["mountPath"] for each in spec["driver"]["volumeMounts"]}
    assert spec["arguments"] == [f"{at['job']}/job.yaml"]


def test_the_token_and_the_address_are_those_that_the_chart_makes(documents: dict[str, Any]) -> None:
    """Nothing made the Secret that was named: the pods waited for it."""
    made = rendered("default", release="mqgate")
    names = {each["metadata"]["name"]: each for each in of_kind(made, "Secret", "Service")}
    (secret,) = [each["secret"] for each in documents["SparkApplication"]["spec"]["volumes"] if "secret" in each]
    assert {each["key"] for each in secret["items"]} <= names[secret["secretName"]]["data"].keys()
    assert f"TOKEN_SECRET:-{secret['secretName']}}}" in (SPARK / "submit.sh").read_text()
    job = parse_job("job.yaml", documents["ConfigMap"]["data"]["job.yaml"])
    assert urlsplit(job.source.url).hostname in names


def test_both_sides_have_the_variables_of_object_storage(documents: dict[str, Any]) -> None:
    spec = documents["SparkApplication"]["spec"]
    for side in ("driver", "executor"):
        assert spec[side]["envFrom"] == [{"secretRef": {"name": "mqgate-lake-storage", "optional": True}}]


def test_the_application_is_restarted_and_new_enough(documents: dict[str, Any]) -> None:
    spec = documents["SparkApplication"]["spec"]
    assert documents["SparkApplication"]["apiVersion"] == "sparkoperator.k8s.io/v1beta2"
    assert spec["restartPolicy"]["type"] == "Always"
    assert tuple(int(part) for part in spec["sparkVersion"].split(".")[:2]) >= OLDEST
    assert spec["mainApplicationFile"].removeprefix("local://") in (SPARK / "Dockerfile").read_text()


@pytest.mark.parametrize(
    ("role", "expected"),
    [
        ("driver", ["--deploy-mode client", "--conf spark.driver.bindAddress=10.1.2.3", "job.py /lake/job.yaml"]),
        ("executor", ["-Da=b -Dc=d -Xms1g -Xmx1g", "KubernetesExecutorBackend", "--executor-id 7", "--cores 1"]),
        ("mqgate", ["mqgate pipeline --help"]),
    ],
)
def test_the_image_starts_what_kubernetes_asks_for(tmp_path: Path, role: str, expected: list[str]) -> None:
    for name in ("bin/spark-submit", "java", "mqgate"):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(f'#!/bin/sh\necho {file.name} "$@"\n')
        file.chmod(0o755)
    told = {
        "SPARK_DRIVER_BIND_ADDRESS": "10.1.2.3",
        "SPARK_DRIVER_URL": "spark://d:1",
        "SPARK_APPLICATION_ID": "app",
        "SPARK_EXECUTOR_ID": "7",
        "SPARK_EXECUTOR_CORES": "1",
        "SPARK_EXECUTOR_MEMORY": "1g",
        "SPARK_EXECUTOR_POD_IP": "h",
        "SPARK_EXECUTOR_POD_NAME": "p",
        "SPARK_RESOURCE_PROFILE_ID": "0",
        "SPARK_JAVA_OPT_0": "-Da=b",
        "SPARK_JAVA_OPT_1": "-Dc=d",
    }
    more = ["local:///opt/mqgate/job.py", "/lake/job.yaml"] if role == "driver" else ["pipeline", "--help"]
    environment = {**os.environ, **told, "SPARK_HOME": str(tmp_path), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = ["sh", str(SPARK / "entrypoint.sh"), role, *more]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert [part for part in expected if part not in done.stdout] == [], done.stdout


class ApiServer(BaseHTTPRequestHandler):
    """Takes what is created and says it is there; knows nothing else."""

    created: list[dict[str, Any]]

    def do_POST(self) -> None:
        given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.created.append({**given, "path": self.path})
        self.reply(201, {**given, "metadata": {**given["metadata"], "uid": "0", "resourceVersion": "1"}})

    def do_PATCH(self) -> None:
        self.do_POST()

    def do_GET(self) -> None:
        self.reply(404, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404, "reason": "NotFound"})

    def reply(self, status: int, value: dict[str, Any]) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def api() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    created: list[dict[str, Any]] = []
    server = ThreadingHTTPServer(("127.0.0.1", free_port()), type("Api", (ApiServer,), {"created": created}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"k8s://http://127.0.0.1:{server.server_port}", created
    server.shutdown()
    server.server_close()


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_spark_submit_makes_the_drivers_pod(tmp_path: Path, api: tuple[str, list[dict[str, Any]]]) -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed: pip install '.[spark]'")
    from gateway.pipeline.errors import JavaMissing
    from gateway.pipeline.jobs.spark.java import find_java

    try:
        java = find_java(os.environ, tmp_path)
    except JavaMissing as missing:
        pytest.skip(str(missing))
    address, created = api
    (tmp_path / "spark-submit").write_text(
        f'#!/bin/sh\nexec "{Path(sys.executable).parent}/spark-submit" --conf {DO_NOT_WAIT} "$@"\n'
    )
    (tmp_path / "spark-submit").chmod(0o755)
    environment = {**os.environ, "MASTER": address, "NAMESPACE": "plant", "JAVA_HOME": str(java), "EXECUTORS": "3"}
    environment |= {"PATH": f"{tmp_path}:{os.environ['PATH']}", "KUBECONFIG": "/dev/null", "HOME": str(tmp_path)}
    environment |= {"STORAGE_SECRET": "lake-storage", "AWS_REGION": "eu-south-2"}
    environment.pop("AWS_ENDPOINT_URL", None)
    command = ["sh", str(SPARK / "submit.sh"), "/lake/jobs/telemetry.yaml", "--once"]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, cwd=tmp_path, timeout=280, check=False
    )
    pods = [each for each in created if each["kind"] == "Pod"]
    assert len(pods) == 1, done.stdout + done.stderr
    spec = pods[0]["spec"]
    (container,) = spec["containers"]
    assert "/namespaces/plant/pods" in pods[0]["path"]
    assert spec["serviceAccountName"] == "spark"
    assert container["image"] == "mqgate-spark:latest"
    assert container["args"][0] == "driver"
    assert container["args"][-3:] == ["local:///opt/mqgate/job.py", "/lake/jobs/telemetry.yaml", "--once"]
    mounts = {each["mountPath"] for each in container["volumeMounts"]}
    assert {"/lake", "/etc/mqgate/token"} <= mounts
    assert "mqgate-lake" in json.dumps(spec["volumes"])
    properties = next(
        each["data"]["spark.properties"] for each in created if each["kind"] == "ConfigMap" and "data" in each
    )
    variables = {each["name"]: each for each in container["env"]}
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        assert variables[name]["valueFrom"]["secretKeyRef"] == {"name": "lake-storage", "key": name}
        assert f"spark.kubernetes.executor.secretKeyRef.{name}=lake-storage\\:{name}" in properties
    assert variables["AWS_REGION"]["value"] == "eu-south-2"
    assert "AWS_ENDPOINT_URL" not in variables
    for line in (
        "spark.executorEnv.AWS_REGION=eu-south-2",
        "spark.executor.instances=3",
        "spark.task.maxFailures=8",
        "secrets.mqgate-credentials",
    ):
        assert line in properties
