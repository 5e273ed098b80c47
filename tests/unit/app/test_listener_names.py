from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from gateway.cli.main import main


@pytest.mark.parametrize(
    ("acl", "place"),
    [
        ("[{listener: plian, allow: ['#']}]", "settings.yaml:2:29"),
        ("acl.yaml", "acl.yaml:2:13"),
    ],
)
def test_an_entry_for_no_listener_is_doubted_without_a_mapping_too(tmp_path: Path, acl: str, place: str) -> None:
    file = tmp_path / "settings.yaml"
    (tmp_path / "acl.yaml").write_text("- {user: a, allow: ['a']}\n- listener: plian\n  allow: ['#']\n")
    file.write_text(f"listeners: [{{name: plain, port: 0}}]\nsecurity: {{acl: {acl}}}\nmappings: []\n")
    done = CliRunner().invoke(main, ["check", str(file)])
    assert done.exit_code == 0
    said = "no listener is called `plian`: the entry applies to nobody: did you mean `plain`? (warning)"
    assert f"{tmp_path}/{place}: {said}" in done.output.splitlines()
