"""The chart, rendered by real Helm 3 and 4: valid for several Kubernetes versions, whole in its references, safe."""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from chart_rendering import (
    CHART,
    SCENARIOS,
    gateway,
    of_kind,
    pods,
    refused,
    rendered,
    settings,
    template,
    without_secrets,
    workload,
    write,
)
from free_ports import free_port
from long_form import LONG, in_long_form, only_long
from ops_machine import CACHE, DEPLOY, helm, run

from gateway.cli.probe import probe as probe_command
from gateway.config.load import load_settings

pytestmark = [pytest.mark.ops, pytest.mark.xdist_group("helm")]

each_scenario = pytest.mark.parametrize("scenario", SCENARIOS)
each_helm = pytest.mark.parametrize("major", [3, 4])
each_refusal_by_helm = pytest.mark.parametrize("major", [4, *in_long_form(3)])
"""Helm 3 refuses by the same templates and the same schema; one of each kind is in the short form."""


@each_helm
def test_lint_is_strict_and_silent(major: int) -> None:
    done = run(helm(major), "lint", "--strict", str(CHART))
    assert "[WARNING]" not in done.stdout
    assert "[ERROR]" not in done.stdout


@each_scenario
def test_helm_3_and_4_render_the_same(scenario: str) -> None:
    assert without_secrets(rendered(scenario, major=3)) == without_secrets(rendered(scenario, major=4))


@pytest.fixture(scope="module")
def validate() -> Iterator[Any]:
    """What checks manifests; it would read more than a megabyte of schemas for each of them."""
    module = pytest.importorskip("kubernetes_validate")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module.utils, "schema_contents", functools.cache(module.utils.schema_contents))
        yield module


@each_scenario
def test_manifests_are_valid_for_kubernetes(validate: Any, scenario: str) -> None:
    latest = ".".join(validate.latest_version().split(".")[:2])
    for version in ("1.25", *(["1.31"] if LONG else []), latest):
        for manifest in rendered(scenario, kube=f"{version}.0"):
            if manifest["apiVersion"].split("/")[0] in {"monitoring.coreos.com", "cert-manager.io"}:
                continue
            validate.validate(manifest, version, strict=True)


@each_scenario
def test_the_settings_file_is_accepted_by_the_gateway(scenario: str, tmp_path: Path) -> None:
    manifests = rendered(scenario)
    path = tmp_path / "mqgate.yaml"
    path.write_text(settings(manifests))
    environment = {each["name"]: each["value"] for each in gateway(manifests).get("env", []) if "value" in each}
    accepted = load_settings(path, environment)
    assert accepted.admin.port == 9160
    ports = {each["containerPort"] for each in gateway(manifests)["ports"]}
    assert {listener.port for listener in accepted.listeners} | {9160} == ports
    assert all(listener.bind == "0.0.0.0" for listener in accepted.listeners)


@each_scenario
def test_files_the_settings_name_are_mounted(scenario: str) -> None:
    manifests = rendered(scenario)
    mounts = {each["mountPath"] for each in gateway(manifests)["volumeMounts"]}
    for file in re.findall(r"/etc/mqgate/[\w./*-]+|/var/lib/mqgate[\w/]*", settings(manifests)):
        assert any(file.startswith(mount + "/") or file == mount for mount in mounts), file


@each_scenario
def test_the_working_directory_of_the_image_can_be_written_to(scenario: str) -> None:
    """In front of IBM MQ nothing was mounted there, and CRI-O makes no volume for an image's `VOLUME`: no pod started
    (`Read-only file system: 'mqgate-data'`)."""
    (place,) = re.findall(r"^WORKDIR (/var.*)$", (DEPLOY / "container" / "Dockerfile").read_text(), re.MULTILINE)
    (mount,) = [each for each in gateway(rendered(scenario))["volumeMounts"] if each["mountPath"] == place]
    assert not mount.get("readOnly")


def test_a_directory_that_somebody_mounts_there_is_the_one() -> None:
    """As where it was missing: two of one place are refused by Kubernetes."""
    values = ("extraVolumes[0].name=state", "extraVolumes[0].emptyDir.sizeLimit=1Gi")
    manifests = rendered(
        "ibm", *values, "extraVolumeMounts[0].name=state", "extraVolumeMounts[0].mountPath=/var/lib/mqgate"
    )
    mounts = [each["mountPath"] for each in gateway(manifests)["volumeMounts"]]
    assert mounts.count("/var/lib/mqgate") == 1
    (pod,) = [spec for _, spec in pods([workload(manifests)])]
    assert [each["emptyDir"] for each in pod["volumes"] if each["name"] == "state"] == [{"sizeLimit": "1Gi"}]


@each_scenario
def test_selectors_match_the_pods_and_nothing_of_the_version(scenario: str) -> None:
    manifests = rendered(scenario)
    labels = workload(manifests)["spec"]["template"]["metadata"]["labels"]
    assert workload(manifests)["spec"]["selector"]["matchLabels"].items() <= labels.items()
    selectors = [each["spec"]["selector"] for each in of_kind(manifests, "Service")]
    selectors += [each["spec"]["selector"]["matchLabels"] for each in of_kind(manifests, "PodDisruptionBudget")]
    selectors += [each["spec"]["podSelector"]["matchLabels"] for each in of_kind(manifests, "NetworkPolicy")]
    assert len(selectors) >= 3
    for selector in selectors:
        assert selector.items() <= labels.items()
        assert not any("version" in key or "chart" in key for key in selector)
    (probe,) = of_kind(manifests, "Pod")
    assert not selectors[0].items() <= probe["metadata"]["labels"].items()


@each_scenario
def test_every_named_port_exists_where_it_is_used(scenario: str) -> None:
    manifests = rendered(scenario)
    container = {each["name"] for each in gateway(manifests)["ports"]}
    for service in of_kind(manifests, "Service"):
        assert {each["targetPort"] for each in service["spec"]["ports"]} <= container
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert gateway(manifests)[probe]["httpGet"]["port"] in container
    for policy in of_kind(manifests, "NetworkPolicy"):
        named = {
            port["port"]
            for rule in policy["spec"]["ingress"]
            for port in rule["ports"]
            if isinstance(port["port"], str)
        }
        assert named == container
    services = {name["metadata"]["name"]: name for name in of_kind(manifests, "Service")}
    for monitor in of_kind(manifests, "ServiceMonitor"):
        chosen = monitor["spec"]["selector"]["matchLabels"].items()
        (service,) = [each for each in services.values() if chosen <= each["metadata"]["labels"].items()]
        assert {each["port"] for each in monitor["spec"]["endpoints"]} <= {
            each["name"] for each in service["spec"]["ports"]
        }
    if workload(manifests)["kind"] == "StatefulSet":
        assert services[workload(manifests)["spec"]["serviceName"]]["spec"]["clusterIP"] == "None"


@each_scenario
def test_every_secret_config_map_and_volume_is_made_here_or_is_a_value(scenario: str) -> None:
    manifests = rendered(scenario)
    made = {each["metadata"]["name"] for each in of_kind(manifests, "Secret", "ConfigMap")}
    made |= {each["spec"]["secretName"] for each in of_kind(manifests, "Certificate")}
    values = SCENARIOS[scenario].read_text()
    for _, spec in pods(manifests):
        volumes = {each["name"] for each in spec["volumes"]}
        volumes |= {each["metadata"]["name"] for each in workload(manifests)["spec"].get("volumeClaimTemplates", [])}
        mounted = {
            mount["name"]
            for each in [*spec["containers"], *spec.get("initContainers", [])]
            for mount in each.get("volumeMounts", [])
        }
        assert mounted <= volumes
        for volume in spec["volumes"]:
            optional = volume.get("configMap", {}).get("optional", False)
            name = volume.get("secret", {}).get("secretName") or volume.get("configMap", {}).get("name")
            assert name is None or optional or name in made or name in values, name


@each_scenario
def test_pods_are_at_the_restricted_level(scenario: str) -> None:
    for _, spec in pods(rendered(scenario)):
        pod = spec["securityContext"]
        assert pod["runAsNonRoot"] is True
        assert pod["runAsUser"] >= 10000
        assert pod["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["automountServiceAccountToken"] is False
        ours = [
            each for each in [*spec["containers"], *spec.get("initContainers", [])] if "busybox" not in each["image"]
        ]
        for container in ours:
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"] is True
            assert security["allowPrivilegeEscalation"] is False
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert container["resources"]["limits"]["memory"]
    assert of_kind(rendered(scenario), "Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding") == []


@each_scenario
def test_no_password_is_in_a_config_map_or_in_the_environment(scenario: str) -> None:
    manifests = rendered(scenario)
    for each in of_kind(manifests, "ConfigMap"):
        assert not re.search(r"password: *\S|token: *\S", json.dumps(each["data"]).replace("password_file", ""))
    assert not [each for each in gateway(manifests).get("env", []) if "secretKeyRef" in str(each)]


def test_where_messages_are_kept_there_is_a_stateful_set_with_a_volume() -> None:
    spec = workload(rendered("default"))["spec"]
    assert spec["podManagementPolicy"] == "Parallel"
    assert spec["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Retain", "whenScaled": "Retain"}
    assert spec["volumeClaimTemplates"][0]["metadata"]["name"] == "spool"
    assert workload(rendered("ibm"))["kind"] == "Deployment"
    assert workload(rendered("hpa"))["kind"] == "StatefulSet"


def test_without_persistence_an_empty_dir_is_bounded_and_the_notes_warn(tmp_path: Path) -> None:
    spec = workload(rendered("no-persistence"))["spec"]
    assert "volumeClaimTemplates" not in spec
    assert {"name": "spool", "emptyDir": {"sizeLimit": "512Mi"}} in spec["template"]["spec"]["volumes"]
    assert "does not outlive the pod" in notes("no-persistence", tmp_path)


@pytest.mark.parametrize(
    ("size", "room"), [("512Mi", 384 << 20), ("2Gi", 1536 << 20), ("1.5G", 1_125_000_000), ("40Gi", 30 << 30)]
)
def test_an_empty_dir_is_full_before_its_pod_is_evicted(size: str, room: int) -> None:
    """The journal saw the room of the node's disk: beyond the limit of the emptyDir the pod goes, with all messages."""
    shown = yaml.safe_load(settings(rendered("no-persistence", f"persistence.emptyDirSize={size}")))
    assert shown["queue_manager"]["embedded"]["max_bytes"] == room
    assert "max_bytes" not in settings(rendered("default"))


def test_a_buffer_has_room_in_an_empty_dir() -> None:
    bare = ("queueManager.buffer.enabled=true", "persistence.enabled=false")
    rendered("ibm", *bare)
    for wrong in ("persistence.emptyDirSize=1Gi", "queueManager.buffer.maxBytes=1600MiB"):
        assert "may be three quarters" in refused("ibm", *bare, wrong)


@pytest.mark.parametrize(
    ("scenario", "sets", "said"),
    [
        ("default", ("tls.existingSecret=device-tls",), "neither is enabled: devices would connect without TLS"),
        ("tls", ("tls.certManager.enabled=true", "tls.certManager.issuerRef.name=ca"), "exclude each other"),
        ("ibm", ("queueManager.buffer.enabled=true", "queueManager.buffer.maxBytes=12GiB"), "(12GiB) is more than"),
    ],
    ids=["no listener", "two certificates", "buffer"],
)
def test_contradictions_are_refused_where_nothing_runs_with_them_yet(
    scenario: str, sets: tuple[str, ...], said: str
) -> None:
    """They were passed over; what has been installed with them can still be upgraded, and NOTES.txt warns."""
    assert said in refused(scenario, *sets)
    assert template(4, scenario, *sets, upgrade=True).returncode == 0


def test_the_probe_of_a_release_with_tls_is_given_its_authority() -> None:
    """`helm test` trusted no authority of one's own, and there was no way to tell it of one."""
    manifests = rendered(
        "tls",
        "tests.extraVolumes[0].name=authority",
        "tests.extraVolumes[0].secret.secretName=device-tls",
        "tests.extraVolumeMounts[0].name=authority",
        "tests.extraVolumeMounts[0].mountPath=/authority",
        "tests.extraArgs={--ca-file=/authority/ca.crt}",
    )
    (pod,) = of_kind(manifests, "Pod")
    assert {"name": "authority", "secret": {"secretName": "device-tls"}} in pod["spec"]["volumes"]
    assert {"name": "authority", "mountPath": "/authority"} in pod["spec"]["containers"][0]["volumeMounts"]
    assert pod["spec"]["containers"][0]["args"][-1] == "--ca-file=/authority/ca.crt"


def test_the_notes_name_a_test_where_there_is_one(tmp_path: Path) -> None:
    assert "helm -n edge test gate" in notes("default", tmp_path)
    assert "tests.extraVolumes" not in notes("default", tmp_path)
    assert "test gate" not in notes("default", tmp_path, "--set=tests.enabled=false")
    only_tls = ("--set=listeners.mqtt.enabled=false,listeners.mqtts.enabled=true,tls.existingSecret=a",)
    assert "tests.extraVolumes" in notes("default", tmp_path, *only_tls)


def test_the_notes_say_that_the_test_has_no_user(tmp_path: Path) -> None:
    assert "It has no user" in notes("default", tmp_path, "--set=auth.user=,auth.passwordFileSecret=users")
    assert "It has no user" not in notes("default", tmp_path) + notes("no-persistence", tmp_path)


def notes(scenario: str, folder: Path, *more: str) -> str:
    """NOTES.txt, by an installation that goes nowhere."""
    (folder / "releases").write_text("[]")
    memory = {"HELM_DRIVER": "memory", "HELM_MEMORY_DRIVER_DATA": str(folder / "releases")}
    environment = os.environ | memory | {"KUBECONFIG": str(folder / "none")}
    command = [helm(4), "install", "gate", str(CHART), "--dry-run=client", "-n", "edge", "-f", str(SCENARIOS[scenario])]
    command += more
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, timeout=60)
    return done.stdout.split("NOTES:")[1]


def test_notes_say_how_to_reach_it_and_where_the_passwords_are(tmp_path: Path) -> None:
    text = notes("default", tmp_path)
    assert "mqtt://gate-mqgate.edge.svc:1883" in text
    assert "get secret gate-mqgate-credentials -o jsonpath='{.data.token}'" in text
    assert "helm -n edge test gate" in text
    assert "WARNING" not in text
    assert "IBM MQ client" in notes("ibm", tmp_path) or "client.image" not in notes("ibm", tmp_path)


def test_probes_ask_three_questions_and_startup_is_patient() -> None:
    container = gateway(rendered("default"))
    paths = [container[probe]["httpGet"]["path"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")]
    assert paths == ["/startupz", "/livez", "/readyz"]
    assert {container[probe]["httpGet"]["scheme"] for probe in ("startupProbe", "livenessProbe")} == {"HTTP"}
    startup = container["startupProbe"]
    assert startup["failureThreshold"] * startup["periodSeconds"] >= 600


def test_probes_and_prometheus_speak_tls_where_the_admin_port_does() -> None:
    manifests = rendered("tls")
    container = gateway(manifests)
    assert {container[f"{probe}Probe"]["httpGet"]["scheme"] for probe in ("startup", "liveness", "readiness")} == {
        "HTTPS"
    }
    ((endpoint,),) = (each["spec"]["endpoints"] for each in of_kind(manifests, "ServiceMonitor"))
    assert endpoint["scheme"] == "https"
    assert endpoint["tlsConfig"]["ca"] == {"secret": {"name": "admin-tls", "key": "ca.crt"}}
    (service,) = (each for each in of_kind(manifests, "Service") if each["metadata"]["name"].endswith("-admin"))
    name = f"{service['metadata']['name']}.{service['metadata']['namespace']}.svc"
    assert endpoint["tlsConfig"]["serverName"] == name
    assert name in settings(manifests)
    assert "insecure" not in settings(manifests)
    assert "insecure: true" in settings(rendered("default"))


def test_each_pod_says_where_its_own_page_is() -> None:
    pages = "admin.page=https://$(POD_NAME).plant.example/admin/"
    env = gateway(rendered("default", pages))["env"]
    assert [each["name"] for each in env[:2]] == ["POD_NAME", "MQGATE_ADMIN__PAGE"]  # only earlier ones are put in
    assert env[0]["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    assert env[1]["value"] == "https://$(POD_NAME).plant.example/admin/"
    written = {"MQGATE_ADMIN__PAGE": env[1]["value"].replace("$(POD_NAME)", "gate-0")}
    assert load_settings(None, written).admin.page == "https://gate-0.plant.example/admin/"
    assert "POD_NAME" not in json.dumps(gateway(rendered("default")))


def test_the_grace_period_outlasts_the_drain() -> None:
    spec = workload(rendered("default"))["spec"]["template"]["spec"]
    assert "time.sleep(10)" in gateway(rendered("default"))["lifecycle"]["preStop"]["exec"]["command"][-1]
    assert spec["terminationGracePeriodSeconds"] == 90
    assert "must be longer than drain.preStopSeconds" in refused("default", "drain.timeoutSeconds=85")


@pytest.mark.parametrize("seconds", [30, 60])
def test_the_process_drains_as_long_as_the_pod_may(seconds: int) -> None:
    manifests = rendered("default", f"drain.timeoutSeconds={seconds}")
    assert yaml.safe_load(settings(manifests))["process"] == {"drain_timeout": f"{seconds}s"}


def test_disruption_budget_and_spread_with_more_than_one_pod() -> None:
    assert of_kind(rendered("default"), "PodDisruptionBudget") == []
    (budget,) = of_kind(rendered("ibm"), "PodDisruptionBudget")
    assert budget["spec"]["maxUnavailable"] == 1
    command = [helm(4), "template", "gate", str(CHART), "-f", str(SCENARIOS["ibm"])]
    assert "maxUnavailable: 2\n" in run(*command, "--set-string", "podDisruptionBudget.maxUnavailable=2").stdout
    assert budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow", "nodes are drained while IBM MQ is away"
    spread = workload(rendered("ibm"))["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert {each["topologyKey"] for each in spread} == {"kubernetes.io/hostname", "topology.kubernetes.io/zone"}


def test_the_probe_of_a_release_is_let_in_where_only_some_clients_are() -> None:
    """`helm test` failed in each release with `networkPolicy.clients`."""
    from_ingress = "networkPolicy.clients[0].podSelector.matchLabels.role=proxy"
    manifests = rendered("default", from_ingress)
    (policy,), (probe,) = of_kind(manifests, "NetworkPolicy"), of_kind(manifests, "Pod")
    admitted = [each["podSelector"]["matchLabels"] for each in policy["spec"]["ingress"][0]["from"]]
    assert [each.items() <= probe["metadata"]["labels"].items() for each in admitted] == [False, True]
    (policy,) = of_kind(rendered("default", from_ingress, "tests.enabled=false"), "NetworkPolicy")
    assert len(policy["spec"]["ingress"][0]["from"]) == 1


def test_files_that_mappings_name_lie_beside_them() -> None:
    rendered("watch", "mappings.files.temperature\\.json.type=number")


def test_mappings_that_further_settings_name_have_any_name() -> None:
    rendered("watch", "mappings.files.plant\\.yml.version=1", "settings.mappings={/etc/mqgate/mappings/plant.yml}")


def test_what_the_environment_or_further_listeners_use_is_not_without_effect() -> None:
    of_environment = ("extraEnv[0].name=MQGATE_QUEUE_MANAGER__IBM__USER", "extraEnv[0].value=app")
    rendered("ibm", "queueManager.ibm.user=", *of_environment)
    rendered("ibm", "queueManager.ibm.tls.cipher=", *of_environment)
    own = ("settings.listeners[0].port=8883", "settings.listeners[0].tls.client_ca=/etc/mqgate/client-ca/ca.crt")
    rendered("default", "tls.clientCertificates=required", "tls.clientCaSecret=a", *own)


def test_who_may_connect_can_be_said_by_further_settings() -> None:
    rendered("default", "auth.user=", "settings.security.managed=true")
    rendered("default", "auth.user=", "auth.passwordFileSecret=users")


def test_autoscaling_leaves_replicas_alone_and_scales_down_slowly() -> None:
    manifests = rendered("hpa")
    assert "replicas" not in workload(manifests)["spec"]
    (scaler,) = of_kind(manifests, "HorizontalPodAutoscaler")
    assert scaler["spec"]["scaleTargetRef"]["kind"] == workload(manifests)["kind"]
    assert scaler["spec"]["behavior"]["scaleDown"]["stabilizationWindowSeconds"] == 1800
    assert [each["type"] for each in scaler["spec"]["metrics"]] == ["Resource", "Pods"]


def test_the_network_policy_lets_devices_monitoring_and_the_queue_manager_through() -> None:
    (policy,) = of_kind(rendered("ibm"), "NetworkPolicy")
    devices, admin = policy["spec"]["ingress"]
    assert "from" not in devices
    assert admin["from"] == [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]
    dns, mq = policy["spec"]["egress"]
    assert {each["port"] for each in dns["ports"]} == {53, 5353}
    assert mq["ports"] == [{"port": 1414, "protocol": "TCP"}]
    assert len(of_kind(rendered("default"), "NetworkPolicy")[0]["spec"]["egress"]) == 1


def test_rules_are_the_ones_promtool_tests_with_the_runbooks_of_the_values() -> None:
    (rule,) = of_kind(rendered("monitoring"), "PrometheusRule")
    text = (CHART / "files" / "alerts.yaml").read_text()
    text = re.sub(r"docs/runbooks/([a-z0-9-]+)\.md", r"https://wiki.example/mqgate/\1/", text)
    alerts = yaml.safe_load(text)["groups"]
    assert rule["spec"]["groups"][: len(alerts)] == alerts
    (dashboard,) = [
        each for each in of_kind(rendered("monitoring"), "ConfigMap") if "dashboard" in each["metadata"]["name"]
    ]
    assert json.loads(dashboard["data"]["mqgate.json"])["uid"] == "mqgate"
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"


def test_a_gateway_of_another_name_is_missed_too() -> None:
    """Its job, which is the name of the service, has no `mqgate` in it."""
    manifests = rendered("monitoring", "fullnameOverride=edge")
    (rule,) = of_kind(manifests, "PrometheusRule")
    assert "edge-admin" in {each["metadata"]["name"] for each in of_kind(manifests, "Service")}
    down = rule["spec"]["groups"][0]["rules"][0]
    assert down["alert"] == "MqgateTargetDown"
    assert down["expr"].count('job=~".*mqgate.*|edge-admin"') == 2


@pytest.mark.parametrize(
    ("scenario", "sets", "says"),
    [
        ("default", ("replicaCount=2",), "An embedded queue manager belongs to one pod"),
        ("default", ("autoscaling.enabled=true",), "An embedded queue manager belongs to one pod"),
        ("default", ("queueManager.buffer.enabled=true",), "the embedded queue manager is never away"),
        ("default", ("queueManager.backend=ibm",), "set queueManager.ibm.connection"),
        ("ibm", ("queueManager.ibm.existingSecret=",), "needs queueManager.ibm.existingSecret"),
        ("default", ("listeners.mqtts.enabled=true",), "The TLS listeners need a certificate"),
        ("default", ("listeners.mqtt.enabled=false",), "No listener is enabled"),
        ("default", ("tls.clientCertificates=required",), "needs tls.clientCaSecret"),
        ("default", ("listeners.proxyProtocol=v2",), "needs listeners.proxyFrom"),
        (
            "default",
            ("listeners.websocketAddressHeader=X-Real-IP", "listeners.ws.enabled=true"),
            "the ingress controllers",
        ),
        (
            "default",
            ("listeners.websocketAddressHeader=X-Real-IP", "listeners.proxyFrom[0]=10.0.0.7"),
            "neither is enabled",
        ),
        ("ibm", ("queueManager.ibm.user=",), "is the password of queueManager.ibm.user"),
        ("ibm", ("queueManager.ibm.tls.cipher=",), "set it to the channel's SSLCIPH"),
        (
            "default",
            ("tls.clientCertificates=required", "tls.clientCaSecret=a"),
            "nobody would be asked for a certificate",
        ),
        ("default", ("auth.user=",), "Nobody could connect"),
        ("default", ("mappings.files.plant\\.yml.version=1",), "name it `plant.yaml`"),
        ("default", ("mappings.files.plant.version=1",), "name it `plant.yaml`"),
        ("default", ("service.externalTrafficPolicy=Local",), "no traffic from outside comes to a ClusterIP"),
        ("default", ("service.loadBalancerSourceRanges[0]=10.0.0.0/8",), "is for service.type: LoadBalancer"),
    ],
)
@each_refusal_by_helm
def test_mistakes_are_refused_with_what_to_do(major: int, scenario: str, sets: tuple[str, ...], says: str) -> None:
    assert says in refused(scenario, *sets, major=major)


@pytest.mark.parametrize(
    "wrong",
    [
        "queueManager.backend=rabbit",
        "queueManager.ibm.channel=A.CHANNEL.NAME.THAT.IS.TOO.LONG",
        "queueManager.embedded.name=has blank",
        "queueManager.ibm.connection=mq1:1414",
        "listeners.mqtt.port=0",
        "unknown=1",
        "podLabels.critical=true",
        "service.annotations.weight=10",
        "queueManager.ibm.chanel=X",
        "queueManager.ibm.lease=100ms",
        "mappings.reload=sometimes",
        "auth.clientIds=everybody",
        "auth.guesses.perUser=-1",
        "auth.guesses.within=soon",
        "queueManager.buffer.maxBytes=1Gi",
        "drain.rate=-1",
        "persistence.retention.whenDeleted=Keep",
        "podDisruptionBudget.maxUnavailable=half",
        "settings.mqqt.max_qos=1",
        "settings.mqtt.max_qoss=1",
        "settings.mqtt.max_qos=high",
        "settings.listeners[0].prt=1883",
        "settings.queue_manager.embedded.data=elsewhere",
    ],
)
@each_refusal_by_helm
def test_wrong_values_are_refused_by_the_schema(major: int, wrong: str) -> None:
    text = refused("default", wrong, major=major)
    assert "schema" in text


def test_helm_3_refuses_too() -> None:
    assert "An embedded queue manager belongs to one pod" in refused("default", "replicaCount=2", major=3)
    assert "schema" in refused("default", "unknown=1", major=3)


FURTHER = """
settings:
  mqtt: {max_qos: 1, session_expiry_max: 7d, versions: ["3.1.1", "5.0"], max_packet: 2MiB, keep_alive_max: 90}
  security: {acl: [{user: "*", allow: ["#"]}], guesses: {per_user: 5}, ldap: null}
  log: {level: debug, clients: [a]}
  queue_manager: {embedded: {max_uncommitted: 5}}
  admin: {tls: {client_ca: /etc/ca.pem}}
"""


@each_helm
def test_parts_of_the_gateways_settings_are_taken(major: int, tmp_path: Path) -> None:
    (tmp_path / "values.yaml").write_text(FURTHER)
    command = [helm(major), "template", "gate", str(CHART), "-f", str(tmp_path / "values.yaml")]
    run(*command)


@pytest.mark.parametrize("scenario", ["monitoring", "everything"])
def test_operators_that_are_absent_are_named(scenario: str) -> None:
    assert "which this cluster does not have" in refused(scenario, apis=False)


@pytest.mark.parametrize(
    ("change", "rolls"),
    [
        ("settings.log.level=debug", True),
        ("queueManager.embedded.objects=DEFINE QLOCAL(A)", True),
        ("service.type=NodePort", False),
    ],
)
def test_changed_settings_roll_the_pods_and_nothing_else_does(change: str, rolls: bool) -> None:
    def checksum(*sets: str) -> Any:
        return workload(rendered("default", *sets))["spec"]["template"]["metadata"]["annotations"]["checksum/config"]

    assert (checksum() != checksum(change)) == rolls


def test_manual_reload_leaves_the_pods_alone_and_mounts_whole_directories() -> None:
    manifests = rendered("everything")
    assert "checksum/config" not in workload(manifests)["spec"]["template"]["metadata"]["annotations"]
    assert not [each for each in gateway(manifests)["volumeMounts"] if "subPath" in each]


def test_watched_mappings_leave_the_pods_alone_and_changed_settings_do_not() -> None:
    def annotations(*sets: str) -> Any:
        return workload(rendered("watch", *sets))["spec"]["template"]["metadata"]["annotations"]

    assert "checksum/config" not in annotations()
    assert yaml.safe_load(settings(rendered("watch")))["process"]["watch_interval"] == "10s"
    plain = annotations()["checksum/settings"]
    assert annotations("mappings.files.plant\\.yaml.version=2")["checksum/settings"] == plain
    assert annotations("settings.mqtt.max_qos=1")["checksum/settings"] != plain
    assert annotations("queueManager.embedded.objects=DEFINE QLOCAL(A)")["checksum/settings"] != plain


def test_everything_that_is_passed_on_arrives_and_templates_are_filled_in() -> None:
    manifests = rendered("everything")
    template_ = workload(manifests)["spec"]["template"]
    assert template_["metadata"]["labels"]["team"] == "gate"
    assert template_["metadata"]["annotations"]["note"] == "mqgate"
    assert {"name": "MQGATE_LOG__LEVEL", "value": "warning"} in gateway(manifests)["env"]
    assert gateway(manifests)["image"].startswith("mirror.example/mqgate@sha256:0123")
    assert [each["name"] for each in template_["spec"]["containers"]] == ["mqgate", "second"]
    assert [each for each in manifests if each["metadata"]["name"] == "gate-more"]
    assert template_["spec"]["imagePullSecrets"] == [{"name": "mirror"}]


def test_the_lease_of_sessions_is_a_value() -> None:
    for sets, lease in ((), "10s"), (("queueManager.ibm.lease=1m",), "1m"):
        assert yaml.safe_load(settings(rendered("ibm", *sets)))["queue_manager"]["ibm"]["lease"] == lease


def test_guesses_and_client_identifiers_are_values() -> None:
    found = yaml.safe_load(settings(rendered("default")))["security"]
    assert (found["client_ids"], found["guesses"]) == ("any", {"per_user": 20, "per_address": 200, "within": "10m"})
    sets = ("auth.clientIds=equals_user", "auth.guesses.perAddress=0", "auth.guesses.within=1h")
    found = yaml.safe_load(settings(rendered("default", *sets)))["security"]
    assert (found["client_ids"], found["guesses"]["per_address"]) == ("equals_user", 0)
    assert found["guesses"]["within"] == "1h"


def test_an_ingress_controller_says_in_http_who_its_clients_are_and_a_balancer_in_its_own_header() -> None:
    found = yaml.safe_load(settings(rendered("everything", "listeners.websocketAddressHeader=X-Forwarded-For")))
    by_name = {one["name"]: one for one in found["listeners"]}
    assert {name: one.get("proxy_protocol") for name, one in by_name.items()} == {
        "mqtt": "v2", "mqtts": "v2", "ws": None, "wss": None,
    }  # fmt: skip
    assert by_name["wss"]["websocket"]["address_header"] == "X-Forwarded-For"
    assert all(one["proxy_from"] == ["10.0.0.0/24"] for one in by_name.values())
    plain = yaml.safe_load(settings(rendered("default", "listeners.ws.enabled=true")))
    assert not any("proxy_from" in one or "address_header" in one.get("websocket", {}) for one in plain["listeners"])


def test_the_test_hook_probes_the_service_that_exists() -> None:
    manifests = rendered("default")
    (hook,) = of_kind(manifests, "Pod")
    assert hook["metadata"]["annotations"]["helm.sh/hook"] == "test"
    arguments = hook["spec"]["containers"][0]["args"]
    (service,) = [each for each in of_kind(manifests, "Service") if each["metadata"]["name"] == "gate-mqgate"]
    assert arguments[:3] == ["probe", "--host=gate-mqgate", f"--port={service['spec']['ports'][0]['port']}"]
    for scenario in ("default", "tls"):
        (hook,) = of_kind(rendered(scenario), "Pod")
        with pytest.raises(SystemExit) as ended:
            probe_command.main([*_local(hook["spec"]["containers"][0]["args"][1:]), "--timeout=0.2"])
        assert ended.value.code in {1, 3}, "the probe does not understand its arguments"


def _local(arguments: list[str]) -> list[str]:
    """The same arguments for a gateway that is not there."""
    nowhere = ["--host=127.0.0.1", f"--port={free_port()}"]
    return nowhere + [each for each in arguments if not each.startswith(("--host", "--port", "--password"))]


def test_the_packaged_chart_is_whole(tmp_path: Path) -> None:
    run(helm(4), "package", str(CHART), "-d", str(tmp_path))
    done = run(helm(4), "template", "gate", str(next(tmp_path.glob("*.tgz"))), "-n", "edge")
    assert len([each for each in yaml.safe_load_all(done.stdout) if each]) == len(rendered("default"))


@only_long  # 290 MB
def test_checkov_finds_nothing(tmp_path: Path) -> None:
    environment = CACHE / "checkov"
    if not (environment / "bin" / "checkov").exists():
        venv.create(environment, with_pip=True)
        run(str(environment / "bin" / "pip"), "install", "-q", "checkov==3.3.30")
    manifests = rendered("default") + rendered("ibm")  # the hook runs once: it has no use for probes
    path = write([each for each in manifests if each["kind"] != "Pod"], tmp_path)
    # digest and Always are the installer's choice; the namespace is the release's; no CPU limit is meant
    skipped = "CKV_K8S_43,CKV_K8S_15,CKV_K8S_21,CKV_K8S_11,CKV2_K8S_6"
    run(
        str(environment / "bin" / "checkov"),
        "-f",
        str(path),
        "--framework",
        "kubernetes",
        "--compact",
        "--quiet",
        "--skip-check",
        skipped,
    )
