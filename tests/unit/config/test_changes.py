"""Differences of settings: keys, masked secrets, and what waits for a restart."""

from __future__ import annotations

from gateway.config import load_settings
from gateway.config.changes import changes


def test_equal_settings_have_no_changes():
    assert changes(load_settings(), load_settings()) == []


def test_every_difference_is_named_and_says_whether_a_reload_is_enough():
    before = load_settings(overrides={"mappings": ["a.yaml"]})
    after = load_settings(
        overrides={"mappings": ["a.yaml", "b.yaml"], "mqtt.max_qos": 1, "security.password_file": "users"}
    )
    assert [str(one) for one in changes(before, after)] == [
        "mqtt.max_qos: 2 -> 1 (after a restart)",
        "security.password_file: None -> 'users'",
        "mappings.1: None -> 'b.yaml'",
    ]


def test_a_changed_secret_is_a_change_that_shows_nothing():
    key = "MQGATE_SECURITY__USERS__BOB__PASSWORD"
    found = changes(load_settings(environ={key: "old"}), load_settings(environ={key: "new"}))
    assert [str(one) for one in found] == ["security.users.bob.password: '********' -> '********'"]
    assert "old" not in repr(found)
