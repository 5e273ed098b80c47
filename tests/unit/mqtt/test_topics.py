"""gateway.mqtt.topics: which names and filters are valid, shared subscriptions, levels."""

from __future__ import annotations

import pytest

from gateway.mqtt import topics


@pytest.mark.parametrize("name", ["a", "/", "//", "a/b", "$SYS/x", " ", "a b/é", "a" * 65535, "/" * 199])
def test_names(name):
    assert topics.topic_name_error(name.encode()) is None


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "at least one"),
        (b"a/+", "wildcards"),
        (b"#", "wildcards"),
        (b"a#b", "wildcards"),
        (b"a\0b", "U\\+0000"),
        (b"\xff", "UTF-8"),
        (b"\xed\xa0\x80", "UTF-8"),
    ],
)
def test_names_refused_mqtt_3_3_2_2(raw, says):
    problem = topics.topic_name_error(raw)
    assert problem is not None
    assert problem.replace("U+0000", "U\\+0000").find(says) >= 0


@pytest.mark.parametrize(
    "filter_", ["a", "+", "#", "/", "+/+", "a/#", "+/a/#", "/+", "a/+/b", "$SYS/#", "$share", "$shared/x", "a//#"]
)
def test_filters(filter_):
    assert topics.filter_error(filter_) is None


@pytest.mark.parametrize("filter_", ["", "a#", "a/#/b", "#/", "##", "a+", "+a", "a/b+/c", "a/+b", "a\0", "a" * 65536])
def test_filters_refused_mqtt_4_7_1(filter_):
    assert topics.filter_error(filter_)


@pytest.mark.parametrize("filter_", ["$share/g/a", "$share/g/#", "$share/g//", "$share/g/+/a", "$share/é/$SYS/a"])
def test_shared(filter_):
    assert topics.filter_error(filter_) is None
    group, rest = topics.split_shared(filter_)
    assert f"$share/{group}/{rest}" == filter_


@pytest.mark.parametrize(
    "filter_", ["$share/", "$share//a", "$share/g", "$share/g/", "$share/+/a", "$share/g#/a", "$share/g/a#"]
)
def test_shared_refused_mqtt_4_8_2(filter_):
    assert topics.filter_error(filter_)


def test_ordinary_filters_have_no_group():
    assert topics.split_shared("a/b") == ("", "a/b")


def test_levels_are_limited_only_where_asked():
    deep = "/".join("x" * 200)
    assert topics.name_error(deep) is None
    assert topics.name_error(deep, 200) is None
    assert "199" in (topics.name_error(deep, 199) or "")
    assert "at most 3 levels" in (topics.filter_error("$share/g/a/b/c/+", 3) or "")


def test_length_counts_bytes_mqtt_4_7_3_3():
    assert topics.name_error("é" * 32767) is None
    assert topics.name_error("é" * 32768)
