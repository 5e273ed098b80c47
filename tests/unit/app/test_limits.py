"""Settings become the broker's limits; a listener's own stand in the place of the common ones."""

from __future__ import annotations

import pytest

from gateway.app.limits import LEVELS, OVERRIDES, limits_of
from gateway.config.model import Listener, Settings


def settings(**listener) -> Settings:
    return Settings.model_validate({
        "listeners": [{"name": "plain", "port": 1883}, {"name": "own", "port": 1884, **listener}],
        "mqtt": {"max_inflight": 50, "retry_versions": ["3.1", "3.1.1"], "server_reference": "b:1883"},
    })  # fmt: skip


@pytest.mark.parametrize("key", OVERRIDES)
def test_a_listener_has_its_own(key):
    limits = limits_of(settings(**{key: 333}))
    assert getattr(limits.at("own"), key) == 333
    assert getattr(limits.at("plain"), key) == getattr(limits, key) != 333
    assert key in Listener.model_fields


def test_the_window_is_announced():
    limits = limits_of(settings(max_inflight=7))
    assert (limits.at("own").max_inflight, limits.at("own").receive_maximum) == (7, 7)
    assert (limits.max_inflight, limits.receive_maximum) == (50, 50)


def test_versions_of_a_listener():
    limits = limits_of(settings(versions=["5.0"]))
    assert limits.at("own").versions == {5}
    assert limits.versions == set(LEVELS.values())


def test_a_listener_without_any_shares_the_common_ones():
    limits = limits_of(settings())
    assert limits.at("own") is limits
    assert limits.retry_versions == {3, 4}
    assert limits.server_reference == "b:1883"


@pytest.mark.parametrize("wrong", [{"max_inflight": 0}, {"max_packet": 1}, {"max_topic_levels": 0}, {"versions": [6]}])
def test_values_that_cannot_be(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        settings(**wrong)
