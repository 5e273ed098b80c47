"""`mqgate explain --as`: which entry lets a user publish or subscribe, as text and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gateway.cli.main import main

SETTINGS = """
security:
  anonymous: true
  acl:
    - {user: "sensor-*", publish: ["plant/{client}/#"], subscribe: ["plant/#"], deny_subscribe: ["plant/+/secret"]}
    - {anonymous: true, publish: ["open/#"]}
"""


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    path = tmp_path / "mqgate.yaml"
    path.write_text(SETTINGS)
    return path


def explain(settings: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["explain", *arguments, "-c", str(settings)])


@pytest.mark.parametrize(("arguments", "code", "said"), [
    (["plant/d1/a", "--as", "sensor-1", "--client", "d1"], 0, "entry 1 allows publish on plant/{client}/# (here plant"),
    (["plant/d2/a", "--as", "sensor-1", "--client", "d1"], 1, "no entry of the list says anything about publish"),
    (["open/a"], 0, "entry 2 allows publish on open/#"),
    (["plant/#", "--subscribe", "--as", "sensor-1"], 0, "each message is checked before it is delivered"),
    (["plant/x/secret", "--subscribe", "--as", "sensor-1"], 1, "entry 1 denies subscribe on plant/+/secret"),
    (["$share/g/plant/a", "--subscribe", "--as", "sensor-1"], 0, "entry 1 allows subscribe on plant/#"),
    (["plant/#", "--subscribe"], 1, "no entry of the list says anything about subscribe"),
    (["plant/#"], 2, "wildcard"),
    (["plant/#/a", "--subscribe"], 2, "#"),
])  # fmt: skip
def test_the_entry_that_decides_is_named(settings: Path, arguments: list[str], code: int, said: str) -> None:
    result = explain(settings, *arguments)
    assert said in result.output
    if code == 0 and "--subscribe" not in arguments:
        assert "access: " in result.output  # what the rules do, and the exit code, is another matter
    else:
        assert result.exit_code == code


def test_for_programs(settings: Path) -> None:
    answer = json.loads(explain(settings, "plant/#", "--subscribe", "--as", "sensor-1", "--json").output)
    assert answer["access"] == {
        "allowed": True, "why": "entry 1 allows subscribe on plant/#", "deliveries_checked": True
    }  # fmt: skip


@pytest.mark.parametrize("acl", ["", "\n  acl: [{user: other, publish: [b]}]"])
@pytest.mark.parametrize(("more", "giving"), [
    ("managed: true", "managed"),
    ("webhook: {url: 'http://127.0.0.1:8090/login'}", "webhook"),
    ("jwt: {jwks_file: keys.json, topics_claim: mqtt}", "jwt"),
])  # fmt: skip
def test_where_the_list_says_nothing_what_a_login_gives_is_not_kept_quiet(
    tmp_path: Path, acl: str, more: str, giving: str
) -> None:
    """The settings do not know it: only the running gateway does."""
    settings, hint = tmp_path / "mqgate.yaml", f"unless {giving} says otherwise"
    settings.write_text(f"security:\n  anonymous: false\n  {more}{acl}\n")
    assert hint in explain(settings, "a/b", "--as", "alice").output
    assert hint in explain(settings, "a/#", "--subscribe", "--as", "alice").output
    assert hint not in explain(settings, "a/b").output  # nobody gives an anonymous client anything


def test_an_entry_comes_before_what_a_login_gives(tmp_path: Path) -> None:
    settings = tmp_path / "mqgate.yaml"
    settings.write_text("security:\n  anonymous: false\n  managed: true\n  acl: [{user: alice, publish: ['a/#']}]\n")
    assert "unless" not in explain(settings, "a/b", "--as", "alice").output
