"""gateway.cli.check counts as a person does."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from gateway.cli.check import check

ONE = """
version: 1
to_mq:
  - {name: up, topic: up, queue: Q}
tests:
  - {publish: {topic: up, payload: x}, expect: [{queue: Q}]}
"""


def test_check_counts_as_a_person_does(tmp_path: Path) -> None:
    file = tmp_path / "map.yaml"
    file.write_text(ONE)
    assert CliRunner().invoke(check, [str(file)]).output == "all is well: 1 file, 1 test passed\n"
