"""Access lists against a model that asks entry by entry, and filter algebra against topics."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from gateway.config.security import AclEntry
from gateway.routing.acl import Acl, Subject, covers, overlaps

LEVEL = st.sampled_from(["a", "b", "$SYS", "{client}", "{user}"])
PLAIN = st.sampled_from(["", "a", "b", "c1", "$SYS"])
TOPICS = st.lists(PLAIN, min_size=1, max_size=4).map("/".join).filter(bool)


def filters(level):
    return st.builds(
        lambda levels, rest: "/".join([*levels, "#"] if rest else levels or ["+"]),
        st.lists(st.one_of(level, st.just("+")), max_size=3),
        st.booleans(),
    ).filter(bool)


def matches(filter_, topic):
    wanted, levels = filter_.split("/"), topic.split("/")
    if topic.startswith("$") and wanted[0] in ("+", "#"):
        return False
    for index, level in enumerate(wanted):
        if level == "#":
            return True
        if index == len(levels) or level not in ("+", levels[index]):
            return index == len(levels) and wanted[index:] == ["#"]
    return len(wanted) == len(levels)


ALL_TOPICS = [
    "/".join(levels)
    for count in (1, 2, 3)
    for levels in __import__("itertools").product(["", "a", "b", "$SYS"], repeat=count)
]


@given(filters(PLAIN), filters(PLAIN))
def test_covering_and_overlapping_say_what_matching_topics_say(one, other):
    mine = {topic for topic in ALL_TOPICS if matches(one, topic)}
    theirs = {topic for topic in ALL_TOPICS if matches(other, topic)}
    if covers(one, other):
        assert theirs <= mine
    if mine & theirs:
        assert overlaps(one, other)
    assert covers(one, one) == (not one.startswith("$")) or covers(one, one)
    assume(theirs)
    if overlaps(one, other) and len(one.split("/")) < 4 and len(other.split("/")) < 4 and "c1" not in one + other:
        assert mine & theirs


def entry(**said):
    """An entry; one for a user and anonymous clients, which fits nobody, is refused."""
    return AclEntry(**said | ({"user": None} if said["anonymous"] else {}))


ENTRIES = st.lists(
    st.builds(
        entry,
        user=st.sampled_from([None, "u*", "*", "u1"]),
        client=st.sampled_from([None, "c1"]),
        anonymous=st.sampled_from([None, True, False]),
        listener=st.sampled_from([None, "tls"]),
        publish=st.lists(filters(LEVEL), max_size=2),
        allow=st.lists(filters(LEVEL), max_size=1),
        deny_publish=st.lists(filters(LEVEL), max_size=1),
        deny=st.lists(filters(LEVEL), max_size=1),
    ),
    max_size=4,
)
SUBJECTS = st.builds(
    Subject,
    st.sampled_from(["c1", "c2", "#", "a/b"]),
    st.sampled_from(["", "u1", "+"]),
    st.sampled_from(["tls", "plain"]),
)


def fill(written, subject, allows):
    names = {"{client}": subject.client_id, "{user}": subject.username}
    for placeholder, value in names.items():
        if placeholder in written and (not value or set(value) & set("/+#")):
            if allows:
                return None
            written = written.replace(placeholder, "+")
    for placeholder, value in names.items():
        written = written.replace(placeholder, value)
    return written


def model(entries, subject, topic):
    for entry in entries:
        if entry.anonymous is not None and entry.anonymous != (not subject.username):
            continue
        if entry.user == "*" and not subject.username:
            continue
        if entry.user == "u*" and not subject.username.startswith("u"):
            continue
        if entry.user == "u1" and subject.username != "u1":
            continue
        if entry.client is not None and entry.client != subject.client_id:
            continue
        if entry.listener is not None and entry.listener != subject.listener:
            continue
        for allows, written in ((False, entry.deny_publish + entry.deny), (True, entry.publish + entry.allow)):
            filled = [fill(one, subject, allows) for one in written]
            if any(one is not None and matches(one, topic) for one in filled):
                return allows
    return False


@given(ENTRIES, SUBJECTS, st.lists(TOPICS, min_size=1, max_size=5))
def test_the_first_entry_that_says_something_decides(entries, subject, topics):
    acl = Acl(entries)
    rights = acl.of(subject)
    for topic in topics * 2:
        wanted = model(entries, subject, topic)
        assert rights.publish(topic) == wanted
        assert rights.why("publish", topic).allowed == wanted
        assert acl.may_publish(subject.listener, subject.client_id, subject.username or None, topic) == wanted


@given(ENTRIES, SUBJECTS, filters(PLAIN), TOPICS, st.booleans())
def test_an_allowed_subscription_delivers_nothing_that_is_denied(entries, subject, filter_, topic, partly):
    rights = Acl(entries, partly=partly).of(subject)
    verdict = rights.subscribe(filter_)
    assert rights.why("subscribe", filter_).allowed == verdict.allowed
    if verdict.allowed and matches(filter_, topic) and not rights.deliver(topic):
        assert verdict.check_deliveries


@given(ENTRIES, SUBJECTS, filters(PLAIN), TOPICS)
def test_a_subscription_is_granted_where_something_of_it_may_be_received(entries, subject, filter_, topic):
    rights = Acl(entries, partly=True).of(subject)
    if matches(filter_, topic) and rights.deliver(topic):
        assert rights.subscribe(filter_).allowed
    assert rights.subscribe(filter_).allowed >= Acl(entries).of(subject).subscribe(filter_).allowed
