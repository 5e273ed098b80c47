"""mqtt.js, which npm installs into a cache directory."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

MQTT_JS = "5.10.4"


@pytest.fixture(scope="module")
def mqtt_js() -> Path:
    """The directory that has mqtt.js in its node_modules."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node and npm are needed: apt-get install nodejs npm")
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    directory = home / "mqgate-tests" / f"mqtt.js-{MQTT_JS}"
    if not (directory / "node_modules" / "mqtt" / "package.json").exists():
        directory.mkdir(parents=True, exist_ok=True)
        command = [
            "npm",
            "install",
            "--silent",
            "--no-audit",
            "--no-fund",
            "--prefix",
            str(directory),
            f"mqtt@{MQTT_JS}",
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
        if done.returncode:
            pytest.skip(f"npm cannot install mqtt.js here: {done.stderr[-200:]}")
    return directory
