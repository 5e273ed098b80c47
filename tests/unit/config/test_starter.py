"""The starter configuration: valid as it is, and every key in it is one that settings have."""

from __future__ import annotations

import re

from gateway.config.load import load_settings
from gateway.config.model import Settings
from gateway.config.source import read_yaml
from gateway.config.starter import starter_settings
from gateway.config.tls import Tls


def test_it_is_valid_as_it_is(tmp_path):
    path = tmp_path / "mqgate.yaml"
    path.write_text(starter_settings())
    settings = load_settings(path)
    assert [one.name for one in settings.listeners] == ["plain"]
    assert settings.mappings == ["mappings/*.yaml"]


def test_without_the_marks_it_holds_every_key_with_its_default(tmp_path):
    """Everything switched on at once is too much (two queue managers), but every key must be known."""
    lines = []
    for line in starter_settings().splitlines():
        plain = re.sub(r"^( *)# (?=\s*[a-z_]+:( |$))", r"\1", line)
        if not plain.lstrip().startswith("#") and not re.search(r": \.\.\.( |$)", plain):
            lines.append(plain)
    document = read_yaml("starter", "\n".join(lines))
    assert not document.findings
    assert set(document.value) == set(Settings.model_fields)
    manager = document.value["queue_manager"]
    assert manager.pop("ibm")["connections"] == 4
    assert manager["embedded"].pop("path").startswith("/var/lib/")  # an example: see below
    del (
        manager["buffer"],
        document.value["security"]["jwt"],
        document.value["security"]["ldap"],
        document.value["security"]["webhook"],
        document.value["admin"]["tls"],
        document.value["admin"]["oidc"],
        document.value["admin"]["ldap"],
    )
    for listener in document.value["listeners"]:
        assert Tls(certificate="c", key="k", **listener.pop("tls")) == Tls(certificate="c", key="k")
        listener.pop("websocket")
    settings = Settings.model_validate(document.value)
    assert settings.mqtt == Settings().mqtt
    assert settings.limits == Settings().limits
    assert settings.queue_manager == Settings().queue_manager


def test_the_directory_of_the_journal_may_be_written(tmp_path):
    path = tmp_path / "mqgate.yaml"
    text = starter_settings(data="/srv/a b")
    path.write_text(text)
    assert load_settings(path).queue_manager.embedded.path == "/srv/a b"
    plain = starter_settings()
    assert [line.lstrip("# ").partition(":")[0] for line in text.splitlines()] == [
        line.lstrip("# ").partition(":")[0] for line in plain.splitlines()
    ]
    path.write_text(text.replace("#     name: MQGATE", "    name: QM2"))
    assert load_settings(path).queue_manager.embedded.name == "QM2", "what else is there is uncommented as elsewhere"


def test_taking_a_mark_away_moves_no_data(tmp_path):
    """A default that is relative to the working directory would be relative to the file once it is written there."""
    text = starter_settings()
    assert not re.search(r"path: \./", text)
    assert "path: /var/lib/mqgate/data" in text
