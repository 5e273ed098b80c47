"""What `deploy/release.py` makes: a wheel that runs in a bare environment, a package, man pages, SBOM, checksums.

The wheel is built and run here; the whole, with all wheels that are needed, in the long form.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
from gateways import RunningGateway
from ops_machine import DEPLOY, ROOT, program
from patient_device import Device

from gateway.cli.main import COMMANDS
from gateway.config.load import load_settings

pytestmark = [pytest.mark.ops, pytest.mark.xdist_group("release"), pytest.mark.timeout(400)]  # it compiles
LONG = pytest.mark.skipif(not os.environ.get("MQGATE_LONG"), reason="fetches every wheel; with tests/run --long")


@pytest.fixture(scope="module", autouse=True)
def _deploy_on_the_path() -> Iterator[None]:
    sys.path.insert(0, str(DEPLOY))
    yield
    sys.path.remove(str(DEPLOY))


def tool(name: str) -> ModuleType:
    """A module of `deploy`, which is no package."""
    spec = spec_from_file_location(f"mqgate_deploy_{name}", DEPLOY / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program in an environment of its own that has what it needs, but neither this tree nor pip."""
    if not Path(sysconfig.get_path("include"), "Python.h").exists() or shutil.which("cc") is None:
        pytest.skip("no compiler or no headers of Python")
    folder = tmp_path_factory.mktemp("wheel")
    left_out = shutil.ignore_patterns("*.so", "build", "__pycache__", ".venv", ".git", "tests", "docs", ".cache")
    shutil.copytree(ROOT, folder / "source", ignore=left_out)
    project = folder / "source" / "pyproject.toml"
    project.write_text(project.read_text().replace('"-O2"', '"-O0"'))  # a quarter of the time, and the same parts
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(folder)]
    subprocess.run([*command, str(folder / "source")], check=True, cwd=folder)
    (wheel,) = folder.glob("mqgate-*.whl")
    tool("release").complete(wheel, folder / "source")
    venv.create(folder / "venv", symlinks=True)
    (purelib,) = (folder / "venv").glob("lib/python3*/site-packages")
    target = ["--target", str(purelib)]
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", "--no-deps", *target, str(wheel)], check=True, cwd=folder
    )
    (purelib / "needed.pth").write_text(sysconfig.get_path("purelib") + "\n")  # its own .pth files do not count there
    shutil.rmtree(folder / "source")
    return folder / "venv"


def test_the_wheel_runs_in_a_bare_environment_with_its_extensions(bare: Path) -> None:
    code = (
        "import gateway, gateway.net._wire, gateway.net._tls, gateway.net._frames, gateway.session._copies;"
        "import gateway.broker.publish._fast, gateway.queue_manager.store._rows, gateway.backends.ibm._calls;"
        "import gateway.pipeline.decode._parts;"
        "import gateway.mqi._sockets;"
        "print(gateway.__file__, gateway.net._wire.__file__)"
    )
    left = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [str(bare / "bin" / "python"), "-c", code], check=True, capture_output=True, text=True, env=left, cwd=bare
    )
    assert all(word.startswith(str(bare)) for word in done.stdout.split())


def test_a_message_goes_through_the_gateway_of_the_wheel(bare: Path, tmp_path: Path) -> None:
    gateway = RunningGateway(tmp_path)

    def launch(command: list[str], **more: object) -> subprocess.Popen[bytes]:
        more["env"] = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        return subprocess.Popen([str(bare / "bin" / "python"), *command[1:]], **more)  # type: ignore[call-overload]

    gateway.launch = launch
    with gateway:
        with Device("127.0.0.1", gateway.port, "d1") as device:
            assert device.connect() == 0
            device.publish("plant/lima", b"21.5", qos=1)
        assert gateway.bodies("MQGATE.DEFAULT") == ["21.5"]


def test_a_wheel_without_an_extension_is_refused(tmp_path: Path) -> None:
    release = tool("release")
    with zipfile.ZipFile(tmp_path / "mqgate-0-py3-none-any.whl", "w") as archive:
        archive.writestr("gateway/net/_wire.cpython-311-x86_64-linux-gnu.so", b"")
    with pytest.raises(release.Failed, match=r"lacks gateway\.broker\.publish\._fast.*: install gcc and python3-dev"):
        release.complete(tmp_path / "mqgate-0-py3-none-any.whl", ROOT)


def test_every_command_has_its_man_page_and_roff_takes_it(tmp_path: Path) -> None:
    pages = tool("manpages").write(tmp_path, 0)
    assert {path.name for path in pages} == {"mqgate.1", *(f"mqgate-{name}.1" for name in COMMANDS)}
    text = (tmp_path / "mqgate-import.1").read_text()
    assert "1970\\-01\\-01" in text or '"1970-01-01"' in text
    assert ".B \\-o, \\-\\-output DIRECTORY" in text
    groff = program("groff")
    for path in pages:
        done = subprocess.run(
            [groff, "-man", "-ww", "-Tascii", "-z", str(path)], capture_output=True, text=True, check=True
        )
        assert done.stderr == "", path.name


def test_text_of_a_man_page_is_never_a_request() -> None:
    manpages = tool("manpages")
    assert manpages._text(".so /etc/passwd\n'x -y \\fB") == "\\&.so /etc/passwd\n\\&\\(aqx \\-y \\efB"


def test_the_bill_of_materials_names_every_wheel_with_its_hash(tmp_path: Path) -> None:
    sbom = tool("sbom")
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    for name, more in [("alpha", "Requires-Dist: Beta_x>=1; python_version > '3'\n"), ("beta_x", "")]:
        with zipfile.ZipFile(wheels / f"{name}-1.0-py3-none-any.whl", "w") as archive:
            about = f"Metadata-Version: 2.4\nName: {name}\nVersion: 1.0\nLicense-Expression: MIT\n{more}"
            archive.writestr(f"{name}-1.0.dist-info/METADATA", about)
    document = json.loads(sbom.write(ROOT, tmp_path, 0).read_text())
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.5")
    alpha, beta = document["components"]
    assert (alpha["purl"], beta["purl"]) == ("pkg:pypi/alpha@1.0", "pkg:pypi/beta-x@1.0")
    digest = hashlib.sha256((wheels / "alpha-1.0-py3-none-any.whl").read_bytes()).hexdigest()
    assert alpha["hashes"] == [{"alg": "SHA-256", "content": digest}]
    needs = {one["ref"]: one["dependsOn"] for one in document["dependencies"]}
    assert needs["pkg:pypi/alpha@1.0"] == ["pkg:pypi/beta-x@1.0"]
    assert document["metadata"]["timestamp"] == "1970-01-01T00:00:00Z"
    assert json.loads(sbom.write(ROOT, tmp_path, 0).read_text()) == document


def test_checksums_are_what_sha256sum_reads(tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / "a.whl").write_bytes(b"a")
    tool("release").checksums(tmp_path)
    subprocess.run(["sha256sum", "-c", "--strict", "SHA256SUMS"], cwd=tmp_path, check=True, capture_output=True)


def test_the_package_is_for_one_minor_version_of_python() -> None:
    text = tool("debian_package").control_text("0.1.0+py3.11", "3.11", 70_000)
    assert "Depends: python3 (>= 3.11), python3 (<< 3.12)," in text


def test_the_first_settings_of_the_package(tmp_path: Path) -> None:
    text = tool("debian_package").first_settings(Path(sys.executable))
    settings = tmp_path / "mqgate.yaml"
    settings.write_text(text.replace("/usr/share/mqgate/mappings", str(ROOT / "mappings")))
    read = load_settings(settings, {})
    assert read.mappings == [str(ROOT / "mappings/default.yaml")]
    assert read.queue_manager.embedded is not None
    assert str(read.queue_manager.embedded.path) == "/var/lib/mqgate/mqgate-data"


def upgraded(tmp_path: Path, running: str, *, accepted: bool) -> tuple[list[str], str]:
    """What an upgrade has asked of systemd, and what it says."""
    calls, systemctl, mqgate = tmp_path / "calls", tmp_path / "systemctl", tmp_path / "mqgate"
    systemctl.write_text(
        f'#!/bin/sh\nif [ $1 = list-units ]; then printf "{running}"; else echo "$@" >> {calls}; fi\n'
        f"if [ $1 = reload ]; then exit {int(not accepted)}; fi\n"
    )
    mqgate.write_text(f'#!/bin/sh\necho "$@" >> {calls}\nexit {int(not accepted)}\n')
    for one in (systemctl, mqgate):
        one.chmod(0o755)
    script = tool("debian_package")._SCRIPTS["postinst"].replace("/run/systemd/system", str(tmp_path))
    done = subprocess.run(
        ["/bin/sh", "-c", script.replace("/opt/mqgate/bin/mqgate", str(mqgate)), "postinst", "configure", "0.0.1"],
        check=True, capture_output=True, text=True, env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
    )  # fmt: skip
    return calls.read_text().splitlines()[1:], done.stderr


ACTIVE = " loaded active running one\\n"


def test_an_upgrade_restarts_what_runs_if_its_settings_hold(tmp_path: Path) -> None:
    running = f"mqgate-queue-manager.service{ACTIVE}mqgate.service{ACTIVE}mqgate@1.service{ACTIVE}"
    called, said = upgraded(tmp_path, running, accepted=True)
    assert called == [
        "check /etc/mqgate/queue-manager.yaml", "try-restart mqgate-queue-manager.service",
        "reload mqgate.service", "try-restart mqgate.service",
        "reload mqgate@1.service", "try-restart mqgate@1.service",
    ]  # fmt: skip
    assert "WARNING" not in said


@pytest.mark.parametrize(("unit", "settings", "asked"), [
    ("mqgate-queue-manager", "queue-manager", "check /etc/mqgate/queue-manager.yaml"),
    ("mqgate", "mqgate", "reload mqgate.service"), ("mqgate@1", "1", "reload mqgate@1.service"),
])  # fmt: skip
def test_an_upgrade_leaves_running_what_it_would_end(tmp_path: Path, unit: str, settings: str, asked: str) -> None:
    called, said = upgraded(tmp_path, f"{unit}.service{ACTIVE}", accepted=False)
    assert called == [asked]
    assert f"systemctl restart {unit}\n" in said
    assert f"mqgate check /etc/mqgate/{settings}.yaml " in said


def test_an_upgrade_starts_nothing_that_does_not_run(tmp_path: Path) -> None:
    called, said = upgraded(tmp_path, "", accepted=True)
    assert called == []
    assert "mqgate: " not in said


def configured(tmp_path: Path, script: str, *arguments: str) -> Path:
    """Where the settings are after a script of the package, which has been given these arguments."""
    shipped, settings = tmp_path / "shipped.yaml", tmp_path / "etc" / "mqgate.yaml"
    shipped.write_text("of this release\n")
    text = tool("debian_package")._SCRIPTS[script].replace("/run/systemd/system", str(tmp_path / "none"))
    text = text.replace("/usr/share/mqgate/mqgate.yaml", str(shipped)).replace("/etc/mqgate", str(settings.parent))
    text = text.replace("/opt/mqgate", str(tmp_path / "none"))
    subprocess.run(["/bin/sh", "-c", text, script, *arguments], check=True, capture_output=True)
    return settings


def test_an_upgrade_asks_nothing_about_settings_that_were_edited(tmp_path: Path) -> None:
    """dpkg asks about its conffiles, and fails where nobody answers, whenever a release describes a setting anew."""
    assert configured(tmp_path, "postinst", "configure", "").read_text() == "of this release\n"
    (tmp_path / "etc" / "mqgate.yaml").write_text("edited\n")
    for known in ("", "0.0.1"):  # after a purge that was interrupted, too
        assert configured(tmp_path, "postinst", "configure", known).read_text() == "edited\n"


def test_settings_that_were_removed_do_not_come_back_with_an_upgrade(tmp_path: Path) -> None:
    assert not configured(tmp_path, "postinst", "configure", "0.0.1").exists()


def test_a_purge_removes_the_settings_of_the_package_alone(tmp_path: Path) -> None:
    settings = configured(tmp_path, "postinst", "configure", "")
    configured(tmp_path, "postrm", "remove")
    assert settings.exists()
    (settings.parent / "plant.yaml").write_text("own\n")
    configured(tmp_path, "postrm", "purge")
    assert [path.name for path in settings.parent.iterdir()] == ["plant.yaml"]
    (settings.parent / "plant.yaml").unlink()
    configured(tmp_path, "postrm", "purge")
    assert not settings.parent.exists()
    configured(tmp_path, "postrm", "purge")


@LONG
@pytest.mark.timeout(900)
def test_the_whole_release(tmp_path: Path) -> None:
    if not (ROOT / ".git").exists() or not Path("/usr/include/python3.11/Python.h").exists():
        pytest.skip("needs a clone and Debian's python3-dev")
    left = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    output = tmp_path / "dist"
    subprocess.run(
        ["/usr/bin/python3", str(DEPLOY / "release.py"), "--output", str(output)], check=True, env=left, timeout=800
    )
    subprocess.run(["sha256sum", "-c", "--strict", "--quiet", "SHA256SUMS"], cwd=output, check=True)
    (package,) = output.glob("mqgate_*.deb")
    root = tmp_path / "root"
    subprocess.run(["dpkg-deb", "-x", str(package), str(root)], check=True)
    for unit in ("mqgate", "mqgate@", "mqgate-queue-manager"):
        text = (root / f"lib/systemd/system/{unit}.service").read_text()
        assert "ExecStart=/opt/mqgate/bin/mqgate " in text
    assert (root / "opt/mqgate/bin/mqgate").read_text().startswith("#!/opt/mqgate/bin/python3\n")
    listed = subprocess.run(["dpkg-deb", "--ctrl-tarfile", str(package)], check=True, capture_output=True).stdout
    assert b"conffiles" not in listed
    assert (root / "etc/mqgate").is_dir()
    assert "/var/lib/mqgate/mqgate-data" in (root / "usr/share/mqgate/mqgate.yaml").read_text()
    python = [str(root / "opt/mqgate/bin/python3"), "-m", "gateway"]
    done = subprocess.run([*python, "version"], check=True, capture_output=True, text=True, env=left, cwd=root)
    assert "mqgate" in done.stdout


def others() -> list[str]:
    """Interpreters of other versions that are to be had here, with their headers."""
    found = []
    for version in ("3.12", "3.13", "3.14"):
        there = [
            shutil.which(f"python{version}"),
            *map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}")),
        ]
        for python in filter(None, there):
            code = "import sysconfig, pathlib; print(pathlib.Path(sysconfig.get_path('include'), 'Python.h').exists())"
            if "True" in subprocess.run([python, "-c", code], capture_output=True, text=True, check=False).stdout:
                found.append(python)
                break
    return found


@LONG
@pytest.mark.timeout(900)
def test_the_wheel_of_each_other_python_that_is_here_takes_a_message(tmp_path: Path) -> None:
    pythons = others()
    if not pythons or not (ROOT / ".git").exists():
        pytest.skip("no CPython 3.12 to 3.14 with headers on this machine, or no clone")
    left = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [sys.executable, str(DEPLOY / "release.py"), "--no-deb", "--output", str(tmp_path / "dist")]
    subprocess.run([*command, *(f"--python={one}" for one in pythons)], check=True, env=left, timeout=800)
    for python in pythons:
        version = Path(python).name.removeprefix("python").replace(".", "")
        (wheel,) = (tmp_path / "dist").glob(f"mqgate-*-cp{version}-*.whl")
        folder = tmp_path / version
        subprocess.run([python, "-m", "venv", str(folder)], check=True, env=left)
        subprocess.run([str(folder / "bin" / "pip"), "install", "-q", str(wheel)], check=True, env=left, cwd=tmp_path)
        test_the_wheel_runs_in_a_bare_environment_with_its_extensions(folder)
        (tmp_path / f"gateway {version}").mkdir()
        test_a_message_goes_through_the_gateway_of_the_wheel(folder, tmp_path / f"gateway {version}")
