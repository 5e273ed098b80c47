"""The systemd unit, the Dockerfile and the compose file: clean by their linters; in the long form the image is built
and run for real (buildah on a base made by debootstrap)."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from free_ports import free_port
from ops_machine import CACHE, DEPLOY, ROOT, program, run

from gateway.config.load import load_settings
from gateway.config.units import parse_duration
from gateway.pipeline.jobs.spark.stopping import PATIENCE

pytestmark = pytest.mark.ops

UNIT = DEPLOY / "systemd" / "mqgate.service"
UNITS = [UNIT, UNIT.with_name("mqgate-queue-manager.service"), UNIT.with_name("mqgate@.service")]
COMPOSE = DEPLOY / "compose"
DOCKERFILE = DEPLOY / "container" / "Dockerfile"
DOCKERFILES = [DOCKERFILE, DEPLOY / "spark" / "Dockerfile"]
each_dockerfile = pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.parent.name)
LONG = pytest.mark.skipif(not os.environ.get("MQGATE_LONG"), reason="builds an image; with tests/run --long")


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_systemd_finds_nothing_to_complain_of_in_the_unit(tmp_path: Path, path: Path) -> None:
    """`verify` exits 0 on unknown keys, so what it prints decides; the program is only absent here."""
    unit = tmp_path / path.name.replace("@", "@1")
    unit.write_text(path.read_text().replace("/opt/mqgate/bin/mqgate", "/bin/true"))
    done = subprocess.run(
        [program("systemd-analyze"), "verify", "--man=no", str(unit)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stdout + done.stderr == ""
    assert done.returncode == 0


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_the_unit_is_hardened(path: Path) -> None:
    done = run(program("systemd-analyze"), "security", "--offline=true", "--threshold=25", str(path))
    score = re.search(r"exposure level for mqgate\S*\.service: ([\d.]+)", done.stdout)
    assert score is not None
    assert float(score[1]) <= 2.5


def test_the_unit_checks_before_start_and_before_reload() -> None:
    text = UNIT.read_text()
    for line in ("Type=notify", "WatchdogSec=30", "ExecReload=/bin/kill -HUP $MAINPID"):
        assert line in text
    assert text.count("mqgate check /etc/mqgate/mqgate.yaml") == 2
    assert text.index("ExecReload=/opt/mqgate/bin/mqgate check") < text.index("ExecReload=/bin/kill")


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_the_unit_is_started_again_however_long_it_cannot_start(path: Path) -> None:
    """A gateway that starts while IBM MQ is away ends with code 3, each time."""
    text = path.read_text()
    for line in ("StartLimitIntervalSec=0", "Restart=on-failure", "RestartSec=5"):
        assert f"\n{line}\n" in text
    assert "StartLimitBurst" not in text


@each_dockerfile
def test_hadolint_finds_nothing_to_complain_of(path: Path) -> None:
    run(program("hadolint"), str(path))


@each_dockerfile
def test_an_image_stays_on_the_debian_that_has_its_packages(path: Path) -> None:
    """`python:3.12-slim` has moved on to Debian 13, which has no Java 17: the image could not be built any more."""
    text = path.read_text()
    assert re.findall(r"^ARG BASE_IMAGE=\S+-(\w+)$", text, re.MULTILINE) == ["bookworm"]
    assert set(re.findall(r"^FROM (\S+)", text, re.MULTILINE)) <= {"${BASE_IMAGE}", "runtime"}


@each_dockerfile
def test_the_wheel_of_an_image_has_its_licence_and_its_compiled_parts(path: Path) -> None:
    built = path.read_text().split("\nFROM ")[1]
    named = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (copied,) = re.findall(r"^COPY (pyproject.+) \./$", built, re.MULTILINE)
    assert set(copied.split()) == {"pyproject.toml", named["readme"], *named["license-files"]}
    assert built.index("gcc libc6-dev") < built.index("deploy/install.py")


def test_the_user_of_the_image_has_a_name_and_a_home() -> None:
    """Spark ended at once (`basedir must be absolute: ?/.ivy2.5.2/local`): Java takes both from /etc/passwd."""
    made, _, _ = DOCKERFILE.read_text().partition("USER 10001:10001")
    assert re.search(r"useradd --uid 10001 --gid 10001 --home-dir /var/lib/mqgate\b.* mqgate\b", made)


def test_process_1_passes_on_an_early_signal_and_collects_what_is_left_behind() -> None:
    """The gateway as process 1 lost SIGTERM while it was being imported, and orphans stayed as defunct processes."""
    (said,) = re.findall(r"^ENTRYPOINT (.+)$", DOCKERFILE.read_text(), re.MULTILINE)
    first, *entry = json.loads(said)
    assert entry == ["--", "mqgate"]
    begin = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", program(Path(first).name), "--"]
    if subprocess.run([*begin, "true"], check=False, capture_output=True).returncode:
        pytest.skip("needs the right to make process namespaces")
    with subprocess.Popen([*begin, sys.executable, "-c", _SLOW_TO_IMPORT], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"0\n"  # orphans that nobody has collected
        (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(child), signal.SIGTERM)
        assert process.wait(20) == 128 + signal.SIGTERM


_SLOW_TO_IMPORT = """
import subprocess, time
left = int(subprocess.check_output(["sh", "-c", "sleep 0.1 >/dev/null & echo $!"]))
until = time.monotonic() + 10
def defunct():
    try:
        return "Z" in open(f"/proc/{left}/stat").read()
    except FileNotFoundError:
        return None
while defunct() is False or defunct() and time.monotonic() < until:
    time.sleep(0.01)
print(int(bool(defunct())), flush=True)
time.sleep(60)
"""
"""As process 1 it has no handler of SIGTERM, like the gateway before it has come to that."""


@each_dockerfile
def test_what_the_dockerfile_copies_is_in_the_build_context(path: Path) -> None:
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    for line in re.findall(r"^COPY (?!--from)(?:--\S+ )?(.+)$", path.read_text(), re.MULTILINE):
        for source in line.split()[:-1]:
            assert (ROOT / source).exists(), source
            assert any(source.removeprefix("./").startswith(each) for each in kept), source


@pytest.mark.parametrize(
    "path", [DEPLOY / "container" / "mqgate.yaml", COMPOSE / "mqgate.yaml"], ids=lambda p: p.parent.name
)
def test_shipped_settings_are_accepted(path: Path) -> None:
    accepted = load_settings(path, {})
    assert accepted.admin.port == 9160
    assert all(listener.bind == "0.0.0.0" for listener in accepted.listeners)


def test_compose_mounts_files_that_exist_and_publishes_ports_that_are_listened_on() -> None:
    compose: dict[str, Any] = yaml.safe_load((COMPOSE / "compose.yaml").read_text())
    for service in compose["services"].values():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert source in compose["volumes"] or (COMPOSE / source).exists(), volume
    settings = load_settings(COMPOSE / "mqgate.yaml", {})
    listened = {listener.port for listener in settings.listeners} | {settings.admin.port}
    published = {int(each.rsplit(":", 1)[1]) for each in compose["services"]["gateway"]["ports"]}
    assert published == listened
    assert all(
        each.startswith("127.0.0.1:") for service in compose["services"].values() for each in service.get("ports", [])
    )


def test_compose_waits_until_what_is_on_its_way_is_done() -> None:
    services: dict[str, Any] = yaml.safe_load((COMPOSE / "compose.yaml").read_text())["services"]
    patience = {name: parse_duration(services[name]["stop_grace_period"]) for name in ("gateway", "pipeline")}
    assert patience["gateway"] > load_settings(COMPOSE / "mqgate.yaml", {}).process.drain_timeout
    assert patience["pipeline"] > PATIENCE


def test_compose_uses_the_rules_dashboard_and_job_that_are_tested_here() -> None:
    promtool = program("promtool")
    text = (COMPOSE / "prometheus.yml").read_text()
    folder = DEPLOY / "prometheus"
    mounted = folder / ".compose-check.yml"
    try:
        mounted.write_text(text)
        run(promtool, "check", "config", str(mounted))
    finally:
        mounted.unlink()
    job = pytest.importorskip("gateway.pipeline.jobs.job")
    job.parse_job("pipeline.yaml", (COMPOSE / "pipeline.yaml").read_text())


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    """The image, built from the Dockerfile on a local base: registries of images are not needed."""
    base = CACHE / "base"
    if not (base / "usr" / "bin" / "python3").exists():
        include = "--include=python3,python3-venv,ca-certificates"
        run(program("debootstrap"), "--variant=minbase", include, "bookworm", str(base), *_mirror())
    os.environ["BUILDAH_ISOLATION"] = "chroot"
    container = run("buildah", "from", "scratch").stdout.strip()
    run("buildah", "add", "-q", container, str(base), "/")
    run("buildah", "commit", "-q", container, "mqgate-base")
    run("buildah", "rm", container)
    volumes = [
        f"--volume={each}:{each}:ro"
        for each in ("/etc/pip.conf", "/etc/ssl/certs", "/root/.config/pip")
        if Path(each).exists()
    ]
    environment = [f"--build-arg={key}={value}" for key, value in os.environ.items() if key.startswith("PIP_")]
    command = [
        "buildah",
        "bud",
        "-q",
        "--network=host",
        *volumes,
        *environment,
        "--build-arg=BASE_IMAGE=localhost/mqgate-base",
    ]
    run(*command, "-f", str(DOCKERFILE), "--target", "runtime", "-t", "mqgate-test", str(ROOT))
    yield "mqgate-test"
    run("buildah", "rmi", "--force", "mqgate-test", "mqgate-base")


def _mirror() -> list[str]:
    for line in Path("/etc/apt").rglob("*.sources"):
        if match := re.search(r"^URIs: (\S+)", line.read_text(), re.MULTILINE):
            return [match[1]]
    for line in [Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*.list")]:
        if line.exists() and (match := re.search(r"^deb (?:\[[^\]]*\] )?(\S+)", line.read_text(), re.MULTILINE)):
            return [match[1]]
    return []


@LONG
@pytest.mark.timeout(900)
def test_the_image_runs_as_nobody_and_serves(image: str) -> None:
    program("buildah")
    config = json.loads(run("buildah", "inspect", "--type", "image", image).stdout)["OCIv1"]["config"]
    assert config["User"] == "10001:10001"
    container = run("buildah", "from", image).stdout.strip()
    port, admin = free_port(), free_port()
    try:
        assert "uid=10001(mqgate)" in run("buildah", "run", "--isolation=chroot", container, "id").stdout
        version = run("buildah", "run", "--isolation=chroot", container, "--", "mqgate", "version").stdout
        assert version.strip()
        command = [
            "buildah",
            "run",
            "--isolation=chroot",
            "--network=host",
            container,
            "--",
            "mqgate",
            "run",
            "--data",
            "/tmp/data",
        ]
        with subprocess.Popen([*command, "--port", str(port), "--admin-port", str(admin)]) as running:
            try:
                assert _answers(f"http://127.0.0.1:{admin}/readyz")
            finally:
                running.terminate()
    finally:
        run("buildah", "rm", container)


def _answers(url: str) -> bool:
    for _ in range(60):
        try:
            with urllib.request.urlopen(url, timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            time.sleep(0.5)
    return False
