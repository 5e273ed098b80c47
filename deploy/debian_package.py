"""The Debian package: program, units, man pages, mappings and first settings.

The program and all it needs are a virtual environment in /opt/mqgate, on Debian's own Python: the versions are those
that were tested, and no other package's libraries change. Messages in /var/lib/mqgate are never removed.
"""

from __future__ import annotations

import gzip
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

HOME = Path("opt/mqgate")
PYTHON = "/usr/bin/python3"
DATA = "/var/lib/mqgate/mqgate-data"
"""Where the unit's working directory has it when the settings do not say: there it was before they said so."""
MAPPINGS = "/usr/share/mqgate/mappings/default.yaml"
PROGRAMS = ("mqgate", "pip")
"""pip is for the binding to IBM MQ and other extras, which `mqgate doctor` names."""
_SCRIPTS = {
    "postinst": """\
#!/bin/sh
set -e
/opt/mqgate/bin/python3 -m compileall -q /opt/mqgate/lib || true
if [ "$1" = configure ] && [ -z "$2" ] && [ ! -e /etc/mqgate/mqgate.yaml ]; then
    install -D -m 644 /usr/share/mqgate/mqgate.yaml /etc/mqgate/mqgate.yaml
fi
again() {
    name=${1%.service}
    settings=/etc/mqgate/${name#mqgate[-@]}.yaml
    # A reload runs this version's `mqgate check`, with the unit's credentials.
    case $1 in
    mqgate-queue-manager.service) /opt/mqgate/bin/mqgate check "$settings" && held=0 || held=1 ;;
    *) systemctl reload "$1" && held=0 || held=1 ;;
    esac
    if [ $held = 0 ]; then
        systemctl try-restart "$1" || true
    else
        cat >&2 <<END
mqgate: WARNING: this version does not accept the settings, so $name was NOT restarted.
mqgate: The version before goes on running until it ends. What is wrong is said by:
mqgate:     mqgate check $settings     (or: journalctl -u $name -n 50)
mqgate: Correct it, then type: systemctl restart $name
END
    fi
}
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
    if [ "$1" = configure ] && [ -n "$2" ]; then
        for unit in $(systemctl list-units --plain --no-legend --state=active \\
            mqgate-queue-manager.service mqgate.service 'mqgate@*.service' | cut -d' ' -f1); do
            again "$unit"
        done
    fi
fi
if [ "$1" = configure ] && [ -z "$2" ]; then
    echo "mqgate: look at /etc/mqgate/mqgate.yaml, then type: systemctl enable --now mqgate"
fi
""",
    "prerm": """\
#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
    systemctl stop mqgate.service 'mqgate@*.service' mqgate-queue-manager.service || true
    systemctl disable mqgate.service mqgate@.service mqgate-queue-manager.service || true
fi
find /opt/mqgate -name __pycache__ -type d -prune -exec rm -rf {} + || true
""",
    "postrm": """\
#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then systemctl daemon-reload || true; fi
if [ "$1" = purge ]; then
    rm -f /etc/mqgate/mqgate.yaml
    if [ -d /etc/mqgate ]; then rmdir --ignore-fail-on-non-empty /etc/mqgate; fi
    for there in /var/lib/private/mqgate /var/lib/private/mqgate-*; do
        if [ -d "$there" ]; then echo "mqgate: $there has messages: remove it if nobody needs them"; fi
    done
fi
""",
}


_COPYRIGHT = """\
Upstream-Name: mqgate

Files: *
License: Apache-2.0
 On Debian the text is in /usr/share/common-licenses/Apache-2.0.

Files: /opt/mqgate/lib/*
License: see the METADATA of each package there, and the SBOM of the release
"""


class Unpackable(Exception):
    """The package cannot be built, and why."""


def package(tree: Path, output: Path, folder: Path, epoch: int) -> Path:
    """The package of the wheels in `output`; `folder` is for what is in between."""
    if shutil.which("dpkg-deb") is None:
        raise Unpackable("dpkg-deb is missing: build on Debian, or with --no-deb")
    version = _run(PYTHON, "-c", "import sys; print('%d.%d' % sys.version_info[:2])").strip()
    root = folder / "deb"
    environment = root / HOME
    _run(PYTHON, "-m", "venv", "--symlinks", environment)
    tag = f"cp{version.replace('.', '')}"
    own = [one for one in output.glob("mqgate-*.whl") if tag in one.name]
    if not own:
        raise Unpackable(f"there is no wheel for {PYTHON} ({version}): give --python {PYTHON}")
    pip = [environment / "bin" / "python3", "-m", "pip"]
    _run(*pip, "install", "-q", "--no-index", "--find-links", output / "wheels", "--no-compile", own[0])
    _run(*pip, "uninstall", "-q", "-y", "setuptools")
    _moved(environment, root)
    _files(tree, root, epoch)
    _pages(tree, environment, root, epoch)
    control = root / "DEBIAN"
    control.mkdir()
    release = f"{_version(own[0])}+py{version}"
    (control / "control").write_text(control_text(release, version, _kilobytes(root)), encoding="utf-8")
    for name, text in _SCRIPTS.items():
        (control / name).write_text(text, encoding="utf-8")
        (control / name).chmod(0o755)
    return _built(root, output / f"mqgate_{release}_{_architecture()}.deb", epoch)


def control_text(release: str, python: str, kilobytes: int) -> str:
    """DEBIAN/control. The environment is of one Python: the next minor version needs another package."""
    major, minor = (int(one) for one in python.split("."))
    return f"""\
Package: mqgate
Version: {release}
Architecture: {_architecture()}
Maintainer: mqgate maintainers <root@localhost>
Installed-Size: {kilobytes}
Depends: python3 (>= {python}), python3 (<< {major}.{minor + 1}), libc6, libssl3 | libssl3t64
Recommends: ca-certificates
Suggests: mosquitto-clients
Section: net
Priority: optional
Description: bridge between MQTT devices and IBM MQ
 Devices speak MQTT 3.1, 3.1.1 or 5.0 to it; YAML rules map topics to queues of
 IBM MQ, or of the queue manager inside, and queues back to topics. An
 acknowledgement means that the message is committed.
"""


def _moved(environment: Path, root: Path) -> None:
    """The environment as if it had been made where it will be: absolute names of programs, and none of this machine."""
    for script in (environment / "bin").iterdir():
        if not script.is_symlink() and script.name not in PROGRAMS:
            script.unlink()  # programs of libraries, which nobody asked for
    for name in PROGRAMS:
        program = environment / "bin" / name
        rest = program.read_bytes().split(b"\n", 1)[1]
        program.write_bytes(f"#!/{HOME}/bin/python3\n".encode() + rest)
    configuration = environment / "pyvenv.cfg"
    lines = [line for line in configuration.read_text().splitlines() if not line.startswith("command")]
    configuration.write_text("\n".join(lines) + "\n")
    for record in environment.rglob("direct_url.json"):
        record.unlink()
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin/mqgate").symlink_to(f"/{HOME}/bin/mqgate")


def _files(tree: Path, root: Path, epoch: int) -> None:
    units = root / "lib/systemd/system"
    units.parent.mkdir(parents=True)
    shutil.copytree(tree / "deploy/systemd", units)
    share = root / "usr/share"
    shutil.copytree(tree / "mappings", share / "mqgate/mappings")
    for name in ("prometheus", "grafana", "mq"):
        shutil.copytree(
            tree / "deploy" / name, share / "mqgate" / name, ignore=shutil.ignore_patterns("*.py", "tests.yaml")
        )
    doc = share / "doc/mqgate"
    shutil.copytree(tree / "docs", doc / "docs", ignore=shutil.ignore_patterns("*.py", "images"))
    (doc / "copyright").write_text(_COPYRIGHT, encoding="utf-8")
    with gzip.GzipFile(doc / "changelog.gz", "wb", mtime=epoch) as file:
        file.write((tree / "docs/changelog.md").read_bytes())


def _pages(tree: Path, environment: Path, root: Path, epoch: int) -> None:
    """Man pages, and the first settings, by the very program that is packed."""
    python = environment / "bin/python3"
    pages = root / "usr/share/man/man1"
    _run(python, tree / "deploy/manpages.py", pages, str(epoch))
    for page in list(pages.iterdir()):
        with gzip.GzipFile(f"{page}.gz", "wb", mtime=epoch) as file:
            file.write(page.read_bytes())
        page.unlink()
    # Not a conffile: it describes every setting, so that dpkg would ask at each upgrade who has edited it what to do,
    # and leave the package unconfigured where nobody answers.
    (root / "etc/mqgate").mkdir(parents=True)
    (root / "usr/share/mqgate/mqgate.yaml").write_text(first_settings(python), encoding="utf-8")
    for made in environment.rglob("__pycache__"):
        shutil.rmtree(made)


def first_settings(python: Path) -> str:
    """What /etc/mqgate/mqgate.yaml begins as, by the program in the environment of this interpreter."""
    code = "import sys; from gateway.config.starter import starter_settings as s; sys.stdout.write(s(*sys.argv[1:]))"
    return _run(python, "-c", code, DATA, MAPPINGS)


def _built(root: Path, path: Path, epoch: int) -> Path:
    for each in sorted(root.rglob("*"), reverse=True):
        if not each.is_symlink():
            each.chmod(0o755 if each.is_dir() or os.access(each, os.X_OK) else 0o644)
        os.utime(each, (epoch, epoch), follow_symlinks=False)
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch)}
    _run("dpkg-deb", "--root-owner-group", "-Zxz", "--build", root, path, env=environment)
    return path


def _version(wheel: Path) -> str:
    return re.match(r"mqgate-([^-]+)-", wheel.name)[1]  # type: ignore[index]


def _kilobytes(root: Path) -> int:
    return sum(path.lstat().st_size for path in root.rglob("*") if path.is_file()) // 1024


def _architecture() -> str:
    names = {"x86_64": "amd64", "aarch64": "arm64"}
    machine = sysconfig.get_platform().rpartition("-")[2]
    return names.get(machine, machine)


def _run(*command: str | Path, env: dict[str, str] | None = None) -> str:
    left = {key: value for key, value in (env or os.environ).items() if key not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    done = subprocess.run([str(one) for one in command], env=left, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unpackable(f"{' '.join(map(str, command))}:\n{done.stdout}{done.stderr}".rstrip())
    return done.stdout


if __name__ == "__main__":
    sys.exit("run deploy/release.py")
