"""Completion in a real bash, as a person gets it who types a word and Tab; the scripts of the other shells."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from gateway.cli.main import main

COMPLETE = """
eval "$({mqgate} completion bash)"
COMP_WORDS=(mqgate {words}) COMP_CWORD={at}
_mqgate_completion mqgate
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("words", "offers"),
    [("dlq re", {"replay"}), ("run --log-level w", {"warning"})],
)
def test_bash_completes_commands_options_and_values(words: str, offers: set[str], tmp_path: Path) -> None:
    mqgate = tmp_path / "mqgate"  # by its name on the path, as it is installed
    root = Path(__file__).resolve().parents[2]
    start = "import sys; sys.argv[0] = 'mqgate'; from gateway.cli import main; main()"
    mqgate.write_text(f'#!/bin/sh\nPYTHONPATH="{root}" exec "{sys.executable}" -c "{start}" "$@"\n')
    mqgate.chmod(0o755)
    script = COMPLETE.format(mqgate="mqgate", words=words, at=len(words.split()))
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, env=environment)
    assert set(done.stdout.split()) == offers, done.stderr


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_other_shells_have_a_script(shell: str) -> None:
    done = CliRunner().invoke(main, ["completion", shell])
    assert done.exit_code == 0
    assert "_MQGATE_COMPLETE" in done.output
