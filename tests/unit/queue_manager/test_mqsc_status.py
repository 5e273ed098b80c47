"""DISPLAY of what is running: handles, connections, topics, subscriptions, authority."""

from __future__ import annotations

import re

import pytest
from embedded_rig import MqiRig, md, refused

from gateway.mq import constants as mq
from gateway.ports.mqi import GetOptions, ObjectDescriptor, SubscriptionDescriptor

OBJECTS = """
DEFINE QLOCAL(A)
DEFINE QLOCAL(B)
DEFINE TOPIC(T) TOPICSTR('plant')
DEFINE SUB(S1) TOPICSTR('a/+') DEST(A)
SET AUTHREC PROFILE(X.ONE) OBJTYPE(QUEUE) PRINCIPAL('bob') AUTHADD(GET,PUT)
SET AUTHREC PROFILE(X.**) OBJTYPE(QUEUE) GROUP('apps') AUTHADD(INQ)
"""


@pytest.fixture
def rig():
    rig = MqiRig(None, OBJECTS)
    yield rig
    rig.queue_manager.close()


def fields(lines):
    """Returns keyword and value of everything shown."""
    text = " ".join(line for line in lines if line.startswith("   ") and " : " not in line)
    pairs = (item.partition("(") for item in text.replace(")", ")\n").split("\n"))
    return {word.strip(): value.rstrip(")") for word, _, value in pairs if word.strip()}


def shown(rig, command):
    return fields(rig.mqsc(command))


def test_handles_of_a_queue(rig):
    rig.open("A", 4 | 16)
    found = shown(rig, "DISPLAY QSTATUS(*) TYPE(HANDLE) ALL")
    expected = {"QUEUE": "A", "TYPE": "HANDLE", "APPLTAG": "tests", "INPUT": "EXCL", "OUTPUT": "YES", "BROWSE": "NO"}
    assert expected.items() <= found.items()
    assert not rig.queue_manager.mqsc("DISPLAY QSTATUS(B) TYPE(HANDLE)").ok


@pytest.mark.parametrize(
    "command", ["DIS QS(B) TYPE(HANDLE)", "DIS QS(*) TYPE(HANDLE)", "DIS QS(B*) WHERE(CURDEPTH GT 0)",
                "DIS QS(A) OPENTYPE(INPUT)", "DIS QS(A) TYPE(HANDLE) WHERE(APPLTAG EQ 'x')"],
)  # fmt: skip
def test_a_queue_without_what_was_asked_for_is_not_said_to_be_unknown(rig, command):
    assert rig.queue_manager.mqsc(command).lines[-1] == "AMQ8565I: Queue Status not found."


@pytest.mark.parametrize("command", ["DIS QS(C)", "DIS QS(C) TYPE(HANDLE)", "DIS QS(C*) TYPE(HANDLE)"])
def test_a_queue_that_is_not_there_has_no_status(rig, command):
    name = command.split("(")[1].split(")")[0]
    assert rig.queue_manager.mqsc(command).lines[-1] == f"AMQ8147E: IBM MQ object {name} not found."


@pytest.mark.parametrize("command", [
    "DISPLAY QSTATUS(A) CURDPTH", "DISPLAY QSTATUS(A) ALL FROG", "DISPLAY QSTATUS(A) TYPE(HANDEL)",
    "DISPLAY QSTATUS(A) TYPE(HANDLE) FROG", "DISPLAY QSTATUS(A) WHERE(FROG GT 1)", "DISPLAY QSTATUS(A) CURDEPTH(5)",
    "DISPLAY CONN(*) FROG", "DISPLAY CONN(*) TYPE(HANDEL)", "DISPLAY CONN(*) WHERE(FROG EQ 1)",
    "DISPLAY QMSTATUS FROG", "DISPLAY TPSTATUS('a') FROG", "DISPLAY SBSTATUS(*) FROG", "DISPLAY PUBSUB FROG",
    "DISPLAY AUTHREC FROG(1)", "DISPLAY AUTHREC OBJTYPE(QEUE)", "DISPLAY CHLAUTH(*) FROG", "DISPLAY CHLAUTH(*) FROG(1)",
    "DISPLAY ENTAUTH PRINCIPAL('bob') OBJTYPE(QEUE) OBJNAME(A)", "RESET QSTATS(A) FROG", "CLEAR TOPICSTR('x') FROG",
    "SET AUTHREC PROFILE(Y) OBJTYPE(QUEUE) PRINCIPAL('bob') AUTHAD(GET)",
    "SET AUTHREC PROFILE(Y) OBJTYPE(QUEUE) PRINCIPAL('bob')", "STOP CONN(12) FROG",
    "DELETE AUTHREC PROFILE(X.ONE) OBJTYPE(QUEUE) PRINCIPAL('bob') FROG", "REFRESH SECURITY FROG",
])  # fmt: skip
def test_words_that_are_not_known_are_syntax_errors(rig, command):
    """They were left out of the answer, and SET AUTHREC made a record without rights, which keeps everybody out."""
    report = rig.queue_manager.mqsc(command)
    assert (report.syntax_errors, report.failed) == (1, 0), report.lines
    assert "PROFILE(Y)" not in "".join(rig.mqsc("DISPLAY AUTHREC"))


@pytest.mark.parametrize("security", ["SECURITY", "SECURITY(*)", "SECURITY TYPE(AUTHSERV)"])
def test_security_is_refreshed(rig, security):
    assert "AMQ8560I" in "".join(rig.mqsc(f"REFRESH {security}"))
    assert rig.queue_manager.mqsc("REFRESH CLUSTER(X)").failed == 1


def test_status_of_a_queue_is_shown_whole_when_no_attribute_is_named(rig):
    assert shown(rig, "DISPLAY QSTATUS(A) TYPE(QUEUE)").items() >= {"CURDEPTH": "0", "UNCOM": "NO"}.items()
    assert shown(rig, "DISPLAY QSTATUS(A) TYPE(QUEUE) CURDEPTH") == {"QUEUE": "A", "TYPE": "QUEUE", "CURDEPTH": "0"}


def test_status_is_selected_by_how_a_queue_is_open_and_by_subscription(rig):
    rig.open("A", 16)
    assert shown(rig, "DISPLAY QSTATUS(*) OPENTYPE(OUTPUT)")["QUEUE"] == "A"
    assert shown(rig, "DISPLAY QSTATUS(*) TYPE(HANDLE) OPENTYPE(OUTPUT)")["OUTPUT"] == "YES"
    for kind in ("QUEUE", "HANDLE"):
        assert rig.queue_manager.mqsc(f"DISPLAY QSTATUS(A) TYPE({kind}) OPENTYPE(INPUT)").failed == 1
    assert not rig.queue_manager.mqsc("DISPLAY SBSTATUS(*) DURABLE(NO)").ok
    assert shown(rig, "DISPLAY SBSTATUS(S1) SUBTYPE(ADMIN)")["SUBTYPE"] == "ADMIN"


def test_a_handle_of_a_queue_that_has_gone_is_none_of_the_next_of_its_name(rig):
    rig.mqsc("DEFINE QMODEL(M) DEFTYPE(PERMDYN)")
    made = rig.connection.open(ObjectDescriptor("M", dynamic_name="MADE"), 2).handle
    rig.open("MADE", 16)
    rig.connection.close(made, 1)
    rig.connection.open(ObjectDescriptor("M", dynamic_name="MADE"), 2)
    lines = "".join(rig.mqsc("DISPLAY QSTATUS(MADE) TYPE(HANDLE) OUTPUT"))
    assert re.findall(r"OUTPUT\((\w+)\)", lines) == ["NO"]


def test_open_objects_of_a_connection(rig):
    rig.open("A", 2 | 8192)
    found = shown(rig, "DISPLAY CONN(*) TYPE(HANDLE)")
    assert (found["OBJNAME"], found["OPENOPTS"]) == ("A", "MQOO_INPUT_SHARED,MQOO_FAIL_IF_QUIESCING")
    both = rig.mqsc("DISPLAY CONN(*) TYPE(ALL) WHERE(USERID EQ 'ana')")
    assert sum(line.startswith("AMQ8276I") for line in both) == 2


def test_a_connection_is_shown_with_what_it_has_open(rig):
    """TYPE(ALL): the connection, then each handle, with the same identifiers."""
    waiting = rig.open("A", 2)
    rig.connection.wait(waiting, md(), GetOptions(4 | 1), 100, None, lambda _outcome: None)
    asked = SubscriptionDescriptor(2 | 8 | 32, name="OWN", object_string="below", topic_object="T")
    rig.connection.subscribe(asked)
    lines = rig.mqsc("DISPLAY CONN(*) TYPE(ALL) ALL")
    starts = [at for at, line in enumerate(lines) if line.startswith("AMQ8276I")]
    rows = [fields(lines[at + 1 : end]) for at, end in zip(starts, [*starts[1:], len(lines)], strict=True)]
    assert [row["TYPE"] for row in rows] == ["CONN", "HANDLE", "HANDLE", "HANDLE"]
    assert len({(row["CONN"], row["EXTCONN"]) for row in rows}) == 1
    assert (rows[1]["OBJNAME"], rows[1]["HSTATE"]) == ("A", "ACTIVE")
    assert (rows[2]["OBJTYPE"], rows[2]["HSTATE"]) == ("QUEUE", "INACTIVE")
    assert (rows[3]["OBJTYPE"], rows[3]["SUBNAME"], rows[3]["TOPICSTR"]) == ("SUB", "OWN", "plant/below")
    assert rows[3]["DEST"] == rows[2]["OBJNAME"]
    extended = rows[0]["EXTCONN"]
    assert shown(rig, f"DISPLAY CONN(*) EXTCONN({extended}) APPLTAG")["APPLTAG"] == "tests"
    assert not rig.queue_manager.mqsc("DISPLAY CONN(*) EXTCONN(ABC)").ok


def test_a_connection_is_stopped(rig):
    other = rig.queue_manager.connect(application="other", user="ana")
    identifier = other.connection_id[-8:].hex().upper()
    assert rig.mqsc(f"STOP CONN({identifier})")[-1] == "AMQ8457I: IBM MQ connection stopped."
    with refused(2009):
        other.commit()
    other.disconnect()
    with refused(2009):
        other.open(ObjectDescriptor("A"), 16)
    assert not rig.queue_manager.mqsc(f"STOP CONN({identifier})").ok


def test_only_what_is_asked_for_is_shown_unless_it_is_all(rig):
    assert set(shown(rig, "DISPLAY CONN(*) APPLTAG")) == {"CONN", "EXTCONN", "TYPE", "APPLTAG"}
    assert "USERID" in shown(rig, "DISPLAY CONN(*) APPLTAG ALL")
    assert "MAXDEPTH" in shown(rig, "DISPLAY QLOCAL(A) ALL CURDEPTH")


def test_subscriptions_of_a_topic_and_of_a_type(rig):
    found = shown(rig, "DISPLAY TPSTATUS('a/b') TYPE(SUB)")
    assert (found["TOPICSTR"], found["SUBTYPE"], found["DURABLE"]) == ("a/b", "ADMIN", "YES")
    assert shown(rig, "DISPLAY SUB(S1) SUBTYPE(USER)")["SUB"] == "S1"
    assert not rig.queue_manager.mqsc("DISPLAY SUB(*) SUBTYPE(API)").ok
    assert not rig.queue_manager.mqsc("DISPLAY SUB(S1) DURABLE(NO)").ok
    assert shown(rig, "DISPLAY PUBSUB")["STATUS"] == "ACTIVE"


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("#", ["n", "n/1", "n/1/x", "n/2"]),
        ("n/#", ["n", "n/1", "n/1/x", "n/2"]),
        ("n/+", ["n/1", "n/2"]),
        ("n/1", ["n/1"]),
        ("+/+/x", ["n/1/x"]),
        ("n/1*", ["n/1", "n/1/x"]),
    ],
)
def test_the_status_of_topics_by_wildcards(rig, pattern, expected):
    for topic in ("n", "n/1", "n/1/x", "n/2"):
        rig.put(rig.connection.open(ObjectDescriptor(object_type=8, object_string=topic), 16).handle, b"")
    lines = "".join(rig.mqsc(f"DISPLAY TPSTATUS('{pattern}') TYPE(TOPIC)"))
    assert [topic for topic in re.findall(r"TOPICSTR\(([^)]*)\)", lines) if topic.startswith("n")] == expected


@pytest.mark.parametrize("verb", ["SET", "DELETE"])
def test_a_type_of_object_that_has_no_records_is_named(rig, verb):
    lines = rig.queue_manager.mqsc(f"{verb} AUTHREC PROFILE(X) OBJTYPE(LISTENER) PRINCIPAL('bob')").lines
    assert "(OBJTYPE must be one of QUEUE, QMGR, TOPIC, NAMELIST, PROCESS, CHANNEL, AUTHINFO)" in lines


def test_the_pattern_of_subscriptions_is_not_counted_as_one(rig):
    before = int(shown(rig, "DISPLAY PUBSUB")["SUBCOUNT"])
    rig.connection.subscribe(SubscriptionDescriptor(2 | 32, object_string="n/#"))
    assert (before, int(shown(rig, "DISPLAY PUBSUB")["SUBCOUNT"])) == (1, 2)


def test_a_subscription_is_named_by_its_identifier(rig):
    identifier = shown(rig, "DISPLAY SUB(S1)")["SUBID"]
    assert shown(rig, f"DISPLAY SUB SUBID({identifier}) USERDATA")["SUB"] == "S1"
    assert rig.queue_manager.mqsc(f"ALTER SUB SUBID({identifier}) USERDATA('x')").ok
    assert shown(rig, "DISPLAY SUB(S1)")["USERDATA"] == "x"
    assert rig.queue_manager.mqsc(f"DELETE SUB SUBID('{identifier.lower()}')").ok
    assert (
        rig.queue_manager.mqsc(f"DISPLAY SUB SUBID({identifier})").lines[-1]
        == f"AMQ8147E: IBM MQ object {identifier} not found."
    )


@pytest.mark.parametrize("command", ["DISPLAY QLOCAL", "DISPLAY SUB", "DISPLAY QSTATUS", "DISPLAY TOPIC TOPICSTR"])
def test_what_is_displayed_has_a_name(rig, command):
    assert rig.queue_manager.mqsc(command).syntax_errors == 1


def test_topics_are_those_of_this_queue_manager(rig):
    assert shown(rig, "DISPLAY TOPIC(T) TYPE(LOCAL) TOPICSTR")["TOPICSTR"] == "plant"
    assert not rig.queue_manager.mqsc("DISPLAY TOPIC(T) TYPE(CLUSTER)").ok


def test_authority_records_by_profile_object_and_entity(rig):
    assert shown(rig, "DISPLAY AUTHREC PROFILE(X.ONE) OBJTYPE(QUEUE)")["ENTITY"] == "bob"
    assert shown(rig, "DISPLAY AUTHREC GROUP('apps')")["PROFILE"] == "X.**"
    assert (
        rig.queue_manager.mqsc("DISPLAY AUTHREC PRINCIPAL('eve')").lines[-1]
        == "AMQ8147E: IBM MQ object AUTHREC not found."
    )
    found = shown(rig, "DISPLAY ENTAUTH PRINCIPAL('apps') OBJTYPE(QUEUE) OBJNAME(X.TWO)")
    assert (found["ENTTYPE"], found["AUTHLIST"]) == ("PRINCIPAL", "INQ")
    assert not rig.queue_manager.mqsc("DISPLAY ENTAUTH OBJTYPE(QUEUE)").ok


def test_channels_have_no_status(rig):
    for command in ("DISPLAY CHSTATUS(*)", "DIS CHS(*)", "DIS CHS(A*) ALL"):
        assert rig.queue_manager.mqsc(command).lines[-1] == "AMQ8420I: Channel Status not found."


def test_status_of_the_queue_is_still_that(rig):
    rig.put("A", b"x", descriptor=md(persistence=1))
    assert shown(rig, "DISPLAY QSTATUS(A) TYPE(QUEUE) CURDEPTH")["CURDEPTH"] == "1"


def test_programs_are_told_that_there_are_no_distribution_lists(rig):
    """MQOPEN in the library answers 2154 for them."""
    assert shown(rig, "DISPLAY QMGR DISTL")["DISTL"] == "NO"
    handle = rig.connection.open(ObjectDescriptor(object_type=mq.MQOT_Q_MGR), mq.MQOO_INQUIRE).handle
    assert rig.connection.inquire(handle, [mq.MQIA_DIST_LISTS]).integers == [0]
