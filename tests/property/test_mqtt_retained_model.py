"""Retained messages found by a filter are those a plain comparison of levels finds, whatever was kept or expired."""

from __future__ import annotations

from broker_harness import Harness
from hypothesis import given
from hypothesis import strategies as st

from gateway.session.publication import Publication

levels = st.sampled_from(["", "a", "b", "$x"])
topics = st.lists(levels, min_size=1, max_size=4).map("/".join).filter(bool)
filters = (
    st.lists(st.sampled_from(["", "a", "b", "$x", "+"]), min_size=1, max_size=4)
    .flatmap(lambda parts: st.sampled_from(["/".join(parts), "/".join([*parts, "#"]), "#"]))
    .filter(bool)
)


def matches(filter_: str, topic: str) -> bool:
    """Section 4.7, level by level."""
    wanted, given_ = filter_.split("/"), topic.split("/")
    if topic.startswith("$") and wanted[0] in {"+", "#"}:
        return False
    for place, level in enumerate(wanted):
        if level == "#":
            return len(given_) >= place
        if place >= len(given_) or level not in {"+", given_[place]}:
            return False
    return len(wanted) == len(given_)


@given(st.lists(st.tuples(topics, st.booleans(), st.sampled_from([0.0, 5.0])), max_size=25), filters, st.booleans())
def test_matching(changes, filter_, later):
    bench = Harness()
    kept: dict[str, float] = {}
    for topic, clear, expiry in changes:
        expires = bench.clock.time + expiry if expiry else 0.0
        payload = b"" if clear else b"x"
        bench.engine.retained.keep(Publication(topic.encode(), payload, 1, retain=True, expires=expires))
        kept.pop(topic, None)
        if not clear:
            kept[topic] = expires
    now = bench.clock.time + (10 if later else 0)
    if later:
        list(bench.engine.retained.sweep(now))
    alive = {topic for topic, expires in kept.items() if not expires or expires > now}
    found = [one.topic.decode() for one in bench.engine.retained.matching(filter_, now)]
    assert sorted(found) == sorted(topic for topic in alive if matches(filter_, topic))
    assert bench.engine.retained.count == (len(alive) if later else len(kept))
    bench.engine.flush()
    bench.kill()
    assert sorted(one.topic.decode() for one in bench.engine.retained.matching(filter_, now)) == sorted(found)
