"""What is installed is what was locked: names, versions, hashes; and what the audit says when it could ask nobody."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
LOCK = DEPLOY / "requirements.lock"


def load(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A script of the deployment, as a module."""
    monkeypatch.syspath_prepend(str(DEPLOY))
    spec = importlib.util.spec_from_file_location(name, DEPLOY / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def entries() -> list[tuple[Requirement, list[str]]]:
    """Every entry of the lock with its hashes."""
    joined = LOCK.read_text().replace("\\\n", " ")
    found = []
    for line in joined.splitlines():
        if line and not line.startswith("#"):
            what, *hashes = re.split(r"\s+--hash=", line.strip())
            found.append((Requirement(what), hashes))
    return found


def test_every_entry_is_one_version_with_the_hashes_of_its_files() -> None:
    assert len(entries()) > 100
    for requirement, hashes in entries():
        (pin,) = requirement.specifier
        assert pin.operator == "=="
        assert hashes, requirement
        assert all(re.fullmatch("sha256:[0-9a-f]{64}", each) for each in hashes), requirement
        assert requirement.url is None


@pytest.mark.parametrize("python", ["3.11.2", "3.12.0", "3.13.0"])
def test_the_lock_has_what_the_project_asks_for(python: str) -> None:
    environment = {**default_environment(), "python_full_version": python, "python_version": python[:4]}
    here = {
        re.sub(r"[-_.]+", "-", one.name).lower(): next(iter(one.specifier)).version
        for one, _ in entries()
        if one.marker is None or one.marker.evaluate(environment)
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    asked = [*project["project"]["dependencies"], *(one for some in extras.values() for one in some)]
    for text in [*asked, *project["build-system"]["requires"]]:
        wanted = Requirement(text)
        version = here.get(re.sub(r"[-_.]+", "-", wanted.name).lower())
        assert version is not None, f"{text} is not in the lock: run deploy/lock"
        assert wanted.specifier.contains(version), f"{text} is locked as {version}: run deploy/lock"


def test_nothing_is_installed_beside_the_lock() -> None:
    for path in ("tests/run", "deploy/quickstart", "deploy/container/Dockerfile", "deploy/spark/Dockerfile"):
        text = (ROOT / path).read_text()
        assert "deploy/install.py" in text, path
        for line in re.findall(r"^.*pip (?:install|wheel).*$", text, re.MULTILINE):
            assert "--no-index" in line, f"{path}: {line}"


def test_the_same_package_in_other_words(monkeypatch: pytest.MonkeyPatch) -> None:
    install = load("install", monkeypatch)
    found = install.locked(LOCK.read_text())
    assert found["pyyaml"].startswith("pyyaml==")
    assert found["numpy"].count("numpy==") >= 1
    assert install.words(["[spark,delta]"]) == install.words(["spark", "delta"]) == ["spark", "delta"]
    assert install.words([""]) == []
    with pytest.raises(SystemExit, match="no extra sparc"):
        install.wanted(["sparc"])


def test_a_file_with_another_hash_is_refused(tmp_path: Path) -> None:
    """The same command that installs, on a copy of the project whose lock has one digit changed."""
    (tmp_path / "deploy").mkdir()
    (tmp_path / "deploy/install.py").write_text((DEPLOY / "install.py").read_text())
    entry = re.compile(r"(^iniconfig==.*?)(?=^[A-Za-z0-9])", re.MULTILINE | re.DOTALL)

    def wrong(match: re.Match[str]) -> str:
        return re.sub(r"sha256:[0-9a-f]{64}", "sha256:" + "0" * 64, match[0])

    (tmp_path / "deploy/requirements.lock").write_text(entry.sub(wrong, LOCK.read_text()))
    command = [sys.executable, str(tmp_path / "deploy/install.py"), "--only", "iniconfig", "--target"]
    done = subprocess.run([*command, str(tmp_path / "t")], capture_output=True, text=True, timeout=110, check=False)
    if "DO NOT MATCH THE HASHES" not in done.stderr and "onnection" in done.stderr:
        pytest.skip("the package index cannot be reached")
    assert done.returncode == 1
    assert "DO NOT MATCH THE HASHES" in done.stderr
    assert not (tmp_path / "t" / "iniconfig").exists()


def test_an_audit_that_could_ask_nobody_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    audit = load("audit", monkeypatch)
    skipped = {"name": "a", "skip_reason": "not found"}
    clean = {"name": "b", "version": "1", "vulns": []}
    bad = {"name": "c", "version": "2", "vulns": [{"id": "PYSEC-1", "fix_versions": ["3"]}]}
    assert audit.verdict([], strict=False) == (0, audit.verdict([skipped], strict=False)[1])
    assert "NOT CHECKED" in audit.verdict([skipped], strict=False)[1][0]
    assert audit.verdict([skipped], strict=True)[0] == 3
    assert audit.verdict([clean], strict=True) == (0, ["no advisory is known about 1 packages"])
    assert audit.verdict([clean, skipped], strict=True)[0] == 3
    code, lines = audit.verdict([clean, bad], strict=False)
    assert code == 1
    assert "c 2: PYSEC-1; fixed in 3" in lines[0]
