"""Differences between settings: keys, masked secrets, and what waits for a restart."""

from __future__ import annotations

from gateway.config.changes import changes
from gateway.config.load import load_settings


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


def test_rates_shares_and_numbers_of_connections_and_sessions_need_no_restart():
    listener = {"name": "plain", "port": 1883}
    now = {"max_connections": 5, "max_sessions": 6, "limits": {"publishes_per_second": 7}, "max_packet": 4096}
    before = load_settings(overrides={"listeners": [listener]})
    after = load_settings(
        overrides={
            "listeners": [listener | now],
            "limits.bytes_per_second": 8,
            "mqtt.max_sessions": 9,
            "mqtt.max_buffered_bytes": 1,
        }
    )
    assert [one.key for one in changes(before, after) if one.live] == [
        "listeners.0.max_connections",
        "listeners.0.max_sessions",
        "listeners.0.limits.publishes_per_second",
        "mqtt.max_sessions",
        "mqtt.max_buffered_bytes",
        "limits.bytes_per_second",
    ]
    assert [one.key for one in changes(before, after) if not one.live] == ["listeners.0.max_packet"]


def test_all_of_the_log_but_its_format_needs_no_restart():
    after = {"log.level": "debug", "log.connections": True, "log.clients": ["a"], "log.format": "json"}
    found = changes(load_settings(), load_settings(overrides=after))
    assert [one.key for one in found if not one.live] == ["log.format"]


def test_whether_users_are_managed_is_decided_at_the_start():
    on = load_settings(overrides={"security.managed": True})
    assert [one.live for one in changes(load_settings(), on)] == [False]


def test_a_changed_secret_is_a_change_that_shows_nothing():
    key = "MQGATE_SECURITY__USERS__BOB__PASSWORD"
    found = changes(load_settings(environ={key: "old"}), load_settings(environ={key: "new"}))
    assert [str(one) for one in found] == ["security.users.bob.password: '********' -> '********'"]
    assert "old" not in repr(found)
