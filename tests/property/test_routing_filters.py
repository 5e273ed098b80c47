"""Subscriptions against a model that compares level by level, as the specification describes it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.routing.filters import Interest, Subscriptions, merged
from gateway.routing.trie import FilterTrie

LEVEL = st.sampled_from(["", "a", "b", "$SYS"])
TOPICS = st.lists(LEVEL, min_size=1, max_size=5).map("/".join)
FILTERS = st.builds(
    lambda levels, rest: "/".join([*levels, "#"] if rest else levels or ["+"]),
    st.lists(st.one_of(LEVEL, st.just("+")), max_size=4),
    st.booleans(),
)
SHARED = st.one_of(FILTERS, st.builds("$share/{}/{}".format, st.sampled_from(["g", "h"]), FILTERS))
CLIENTS = st.sampled_from(["c1", "c2", "c3"])


def matches(filter_, topic):
    """Section 4.7 of the specification, word by word."""
    wanted, levels = filter_.split("/"), topic.split("/")
    if topic.startswith("$") and wanted[0] in ("+", "#"):
        return False
    for index, level in enumerate(wanted):
        if level == "#":
            return True
        if index == len(levels):
            return False
        if level not in ("+", levels[index]):
            return False
    return len(wanted) == len(levels)


def parent_matches(filter_, topic):
    return matches(filter_, topic) or (filter_.endswith("/#") and matches(filter_[:-2], topic))


@given(st.sets(FILTERS), TOPICS)
def test_the_trie_finds_exactly_the_filters_that_match(filters, topic):
    trie = FilterTrie()
    for filter_ in filters:
        trie.put(filter_.split("/"), filter_)
    found = sorted(one for one in filters if parent_matches(one, topic))
    assert sorted(trie.match(topic)) == found
    assert sorted(one for one in trie.walk(topic) if one is not None) == found
    few = trie.match_among(topic, 3)
    assert few is None or sorted(few) == found
    assert {"/".join(levels) for levels, _ in trie.items()} == filters


@given(st.lists(FILTERS, unique=True), st.data())
def test_what_is_taken_out_leaves_nothing_behind(filters, data):
    trie = FilterTrie()
    for filter_ in filters:
        trie.put(filter_.split("/"), filter_)
    for filter_ in data.draw(st.permutations(filters)):
        assert trie.pop(filter_.split("/")) == filter_
        assert trie.pop(filter_.split("/")) is None
    assert trie.root.empty


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), CLIENTS, SHARED, st.integers(0, 2)),
        st.tuples(st.just("remove"), CLIENTS, SHARED, st.just(0)),
        st.tuples(st.just("remove_all"), CLIENTS, st.just(""), st.just(0)),
    ),
    max_size=25,
)


@given(STEPS, TOPICS)
def test_subscriptions_behave_like_a_dictionary_searched_from_end_to_end(steps, topic):
    subscriptions, model = Subscriptions(), {}
    for action, client, filter_, qos in steps:
        if action == "add":
            assert subscriptions.add(client, filter_, Interest(qos)) == ((client, filter_) not in model)
            model[client, filter_] = Interest(qos)
        elif action == "remove":
            assert subscriptions.remove(client, filter_) == (model.pop((client, filter_), None) is not None)
        else:
            gone = [key for key in model if key[0] == client]
            assert subscriptions.remove_all(client) == len(gone)
            model = {key: value for key, value in model.items() if key not in gone}
    assert {(client, filter_): interest for client, filter_, interest in subscriptions} == model
    assert len(subscriptions) == len(model)
    check(subscriptions.match(topic), model, topic)


def together(interests):
    """What a subscriber gets that asked for a topic with several filters."""
    every = Interest(
        max(one.qos for one in interests),
        all(one.no_local for one in interests),
        any(one.retain_as_published for one in interests),
        min(one.retain_handling for one in interests),
        tuple(number for one in interests for number in one.identifiers),
    )
    echoing = [one for one in interests if not one.no_local]
    some = 0 < len(echoing) < len(interests)
    return every._replace(echoed=together(echoing)) if some else every


def in_order(interest):
    """In which order identifiers come does not matter."""
    echoed = in_order(interest.echoed) if interest.echoed else None
    return (*interest[:4], sorted(interest.identifiers), echoed)


def check(matched, model, topic):
    direct, groups = {}, {}
    for (client, filter_), interest in model.items():
        share, inner = filter_.removeprefix("$share/").split("/", 1) if filter_.startswith("$share/") else ("", filter_)
        if not parent_matches(inner, topic):
            continue
        if share:
            groups.setdefault((share, inner), {})[client] = interest
        else:
            direct.setdefault(client, []).append(interest)
    assert {client: in_order(one) for client, one in matched.direct.items()} == {
        client: in_order(together(interests)) for client, interests in direct.items()
    }
    assert {(group.name, group.filter): group.members for group in matched.groups} == groups


@given(
    st.builds(Interest, st.integers(0, 2), st.booleans(), st.booleans(), st.integers(0, 2), st.just((1,)), st.none())
)
def test_merging_takes_the_highest_quality_and_every_identifier(one):
    other = Interest(1, no_local=True, identifiers=(2,))
    both = merged([one, other])
    assert both.qos == max(one.qos, 1)
    assert both.identifiers == (1, 2)
    assert both.no_local == one.no_local
    assert merged([one, one]) == one._replace(identifiers=(1, 1)), "3.3.4: multiple identical identifiers"
    own = both.echoed or both
    assert one.no_local or own == one, "what is No Local has no part in a subscriber's own publications"


def test_the_version_changes_only_when_a_subscription_does():
    subscriptions = Subscriptions()
    subscriptions.add("c", "a", Interest(0))
    before = subscriptions.version
    subscriptions.remove("c", "b")
    subscriptions.remove_all("d")
    assert subscriptions.version == before
    assert subscriptions.of("c") == {"a": Interest(0)}
    assert subscriptions.of("d") == {}
