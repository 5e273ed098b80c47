from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from gateway.cli.main import main

TEXT = '{"t":"hot"}'
RULES = """version: 1
to_mq:
  - name: hot
    topic: a
    when: {payload: {at_most: 11}, json: {t: hot}}
    queue: HOT
"""


@pytest.mark.parametrize("words", [["--payload", TEXT], ["--payload-file", "body"], ["--payload-file", "-"]])
def test_the_payload_is_text_a_file_or_the_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("body").write_bytes(TEXT.encode())
    Path("rules.yaml").write_text(RULES)
    done = CliRunner().invoke(main, ["explain", "a", "-m", "rules.yaml", *words], input=TEXT.encode())
    assert done.exit_code == 0, done.output
    assert "rule hot: to queue HOT" in done.output
    assert "11 bytes" in done.output


def test_two_payloads_are_refused(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["explain", "a", "--payload", "x", "--payload-file", "-"], input="y")
    assert done.exit_code == 2
    assert "give one of them" in done.output
