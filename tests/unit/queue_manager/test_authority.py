"""Authority records: which profile covers a name, which record counts, and what MQOPEN needs."""

from __future__ import annotations

import os
import pwd

import pytest
from embedded_rig import MqiRig, md, refused

from gateway.errors import MQError
from gateway.ports.mqi import GetOptions, ObjectDescriptor, PutOptions, SubscriptionDescriptor
from gateway.queue_manager.objects.authority import RIGHTS, _covers, expanded


@pytest.mark.parametrize(
    ("profile", "name", "expected"),
    [
        ("A.B", "A.B", True),
        ("A.B", "A.C", False),
        ("A.*", "A.B", True),
        ("A.*", "A.B.C", False),
        ("A.**", "A.B.C", True),
        ("A.**", "A", True),
        ("A.**", "AB.C", False),
        ("**", "ANY.THING", True),
        ("A.B*", "A.BCD", True),
        ("A.B?", "A.BC", True),
        ("A.B?", "A.B", False),
    ],
)
def test_profiles(profile, name, expected):
    assert _covers(profile, name) is expected


def test_names_for_several_rights():
    assert expanded(["ALL"]) == RIGHTS
    assert expanded(["ALLADM", "PUT"]) == {"CHG", "CLR", "CRT", "DLT", "DSP", "CTRL", "CTRLX", "PUT"}
    assert expanded(["NONE"]) == frozenset()


def test_records_go_with_the_object_of_their_name(tmp_path):
    """DELETE QLOCAL with AUTHREC: YES is the default. Otherwise a queue defined later would have the records of this
    one."""
    rig = MqiRig(
        tmp_path / "data",
        "DEFINE QLOCAL(APP.ONE)\nDEFINE QALIAS(APP.TWO) TARGET(APP.ONE)\nDEFINE TOPIC(APP.ONE) TOPICSTR(a)",
    )
    for profile, kind in (("APP.ONE", "QUEUE"), ("APP.TWO", "QUEUE"), ("APP.*", "QUEUE"), ("APP.ONE", "TOPIC")):
        rig.mqsc(f"SET AUTHREC PROFILE('{profile}') OBJTYPE({kind}) PRINCIPAL('eva') AUTHADD(DSP)")
    assert not rig.queue_manager.mqsc("DELETE QALIAS(APP.TWO) AUTHREC(MAYBE)").ok
    rig.mqsc("DELETE QALIAS(APP.TWO) AUTHREC(NO)\nDELETE QLOCAL(APP.ONE)")
    rig.restart()
    found = set(rig.queue_manager.authority.records)
    assert found == {("QUEUE", "APP.TWO", "eva"), ("QUEUE", "APP.*", "eva"), ("TOPIC", "APP.ONE", "eva")}
    rig.mqsc("DELETE TOPIC(APP.ONE)")
    assert set(rig.queue_manager.authority.records) == found - {("TOPIC", "APP.ONE", "eva")}
    rig.queue_manager.close()


def test_the_most_specific_profile_counts_and_survives_a_restart(tmp_path):
    rig = MqiRig(tmp_path / "data", "DEFINE QLOCAL(APP.ONE)\nDEFINE QLOCAL(APP.TWO)")
    rig.mqsc(
        "SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('eva') AUTHADD(CONNECT)\n"
        "SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('ana') AUTHADD(CONNECT)\n"
        "SET AUTHREC PROFILE('APP.**') OBJTYPE(QUEUE) PRINCIPAL('eva') AUTHADD(ALLMQI)\n"
        "SET AUTHREC PROFILE(APP.TWO) OBJTYPE(QUEUE) PRINCIPAL('eva') AUTHADD(BROWSE)\n"
    )
    rig.restart()
    eva = rig.queue_manager.connect(user="eva")
    eva.open(ObjectDescriptor("APP.ONE"), 1 | 16 | 32)
    eva.open(ObjectDescriptor("APP.TWO"), 8)
    for name, options in (("APP.TWO", 16), ("SYSTEM.DEAD.LETTER.QUEUE", 8)):
        with refused(2035):
            eva.open(ObjectDescriptor(name), options)
    rig.mqsc("DELETE AUTHREC PROFILE(APP.TWO) OBJTYPE(QUEUE) PRINCIPAL('eva')")
    eva.open(ObjectDescriptor("APP.TWO"), 16)
    rig.queue_manager.close()


PUT, GET = 16, 1


def outcome(connection, name, options=PUT):
    """Returns the reason code of MQOPEN; 0 if it works."""
    try:
        connection.open(ObjectDescriptor(name), options)
    except MQError as error:
        return error.reason
    return 0


@pytest.fixture
def rig():
    """Three queues, no records."""
    rig = MqiRig(None, "DEFINE QLOCAL(APP.ONE)\nDEFINE QLOCAL(APP.TWO)\nDEFINE QLOCAL(FREE)")
    yield rig
    rig.queue_manager.close()


def connect(rig, user):
    return rig.queue_manager.connect(user=user)


def test_without_records_everybody_may_do_everything(rig):
    assert [outcome(connect(rig, user), "APP.ONE") for user in ("eva", "bob", "")] == [0, 0, 0]
    assert rig.queue_manager.authority.rights("bob", "QMGR", "QM1") == RIGHTS


def test_what_records_cover_is_closed_to_everybody_they_do_not_name(rig):
    rig.mqsc("SET AUTHREC PROFILE('APP.*') OBJTYPE(QUEUE) PRINCIPAL('eva') AUTHADD(PUT)")
    bob = connect(rig, "bob")
    assert [outcome(bob, name) for name in ("APP.ONE", "APP.TWO", "FREE")] == [2035, 2035, 0]
    assert outcome(connect(rig, ""), "APP.ONE") == 2035
    with refused(2035):
        bob.put1(ObjectDescriptor("APP.ONE"), md(), PutOptions(4), b"x")
    with refused(2035):  # named somewhere: needs a record for everything, CONNECT included
        connect(rig, "eva")
    rig.mqsc("SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('eva') AUTHADD(CONNECT)")
    with refused(2035):  # now there is a record of the queue manager, and it does not name bob
        connect(rig, "bob")
    eva = connect(rig, "eva")
    assert [outcome(eva, *what) for what in (("APP.ONE", PUT), ("APP.ONE", GET), ("FREE", PUT))] == [0, 2035, 2035]


def test_the_last_record_gone_opens_everything_again(rig):
    rig.mqsc("SET AUTHREC PROFILE(APP.ONE) OBJTYPE(QUEUE) PRINCIPAL('eva') AUTHADD(PUT)")
    bob = connect(rig, "bob")
    assert outcome(bob, "APP.ONE") == 2035
    rig.mqsc("DELETE AUTHREC PROFILE(APP.ONE) OBJTYPE(QUEUE) PRINCIPAL('eva')")
    assert outcome(bob, "APP.ONE") == 0


def test_a_record_of_another_type_of_object_covers_nothing_here(rig):
    rig.mqsc("SET AUTHREC PROFILE('**') OBJTYPE(TOPIC) PRINCIPAL('eva') AUTHADD(PUB)")
    bob = connect(rig, "bob")
    assert outcome(bob, "APP.ONE") == 0
    with refused(2035):
        bob.open(ObjectDescriptor(object_type=8, object_string="plant"), PUT)


def test_administrators_may_always_do_everything(rig):
    rig.mqsc("SET AUTHREC PROFILE('**') OBJTYPE(QUEUE) PRINCIPAL('eva') AUTHADD(PUT)")
    rig.mqsc("SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('eva') AUTHADD(CONNECT)")
    own = next((one.pw_name for one in pwd.getpwall() if one.pw_uid == os.geteuid()), str(os.geteuid()))
    rig.mqsc(f"SET AUTHREC PROFILE(FREE) OBJTYPE(QUEUE) PRINCIPAL('{own}') AUTHADD(NONE)")
    for user in (own, "mqgate"):
        assert [outcome(connect(rig, user), name) for name in ("APP.ONE", "FREE")] == [0, 0]
        assert rig.queue_manager.authority.rights(user, "QMGR", "QM1") == RIGHTS


def test_administering_needs_a_record_as_soon_as_there_is_any(rig):
    rig.mqsc("SET AUTHREC PROFILE(APP.ONE) OBJTYPE(QUEUE) PRINCIPAL('eva') AUTHADD(PUT)")
    found = rig.queue_manager.authority.rights("bob", "QUEUE", "FREE")
    assert {"CHG", "CLR", "CRT", "CTRL", "CTRLX", "DLT"} == RIGHTS - found


def test_subscribing_needs_rights_on_the_topic_and_none_on_the_managed_queue(rig):
    rig.mqsc("DEFINE TOPIC(NEWS) TOPICSTR('news')")
    rig.mqsc(
        "SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('eva') AUTHADD(CONNECT)\n"
        "SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('bob') AUTHADD(CONNECT)\n"
        "SET AUTHREC PROFILE(NEWS) OBJTYPE(TOPIC) PRINCIPAL('eva') AUTHADD(SUB,RESUME)\n"
        "SET AUTHREC PROFILE(NEWS) OBJTYPE(TOPIC) PRINCIPAL('bob') AUTHADD(PUB)\n"
    )
    eva, bob = connect(rig, "eva"), connect(rig, "bob")
    create, resume, durable, managed = 2, 4, 8, 32
    made = eva.subscribe(SubscriptionDescriptor(create | durable | managed, topic_object="NEWS", name="S"), 0)
    topic = bob.open(ObjectDescriptor("NEWS", object_type=8), PUT).handle
    bob.put(topic, md(), PutOptions(4), b"first")
    assert eva.get(made.queue_handle, md(), GetOptions(4), 100).data == b"first"
    eva.close(made.subscription_handle)
    with refused(2035):
        bob.subscribe(SubscriptionDescriptor(create | managed, topic_object="NEWS"), 0)
    with refused(2035):
        bob.subscribe(SubscriptionDescriptor(resume, name="S"), 0)
    eva.subscribe(SubscriptionDescriptor(resume, name="S"), 0)


@pytest.fixture
def made(rig):
    """Returns the handle with which eva has made a permanent dynamic queue."""
    rig.mqsc("DEFINE QMODEL(M) DEFTYPE(PERMDYN)")
    for user in ("eva", "bob"):
        rig.mqsc(f"SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('{user}') AUTHADD(CONNECT)")
        rig.mqsc(f"SET AUTHREC PROFILE(M) OBJTYPE(QUEUE) PRINCIPAL('{user}') AUTHADD(GET,DSP)")
        rig.mqsc(f"SET AUTHREC PROFILE(MADE) OBJTYPE(QUEUE) PRINCIPAL('{user}') AUTHADD(GET,PUT)")
    eva = connect(rig, "eva")
    return eva, eva.open(ObjectDescriptor("M", dynamic_name="MADE"), GET).handle


def test_deleting_a_queue_that_another_program_made_needs_the_right_to(rig, made):
    bob = connect(rig, "bob")
    handle = bob.open(ObjectDescriptor("MADE"), GET).handle
    with refused(2035):
        bob.close(handle, 1)
    rig.mqsc("SET AUTHREC PROFILE(MADE) OBJTYPE(QUEUE) PRINCIPAL('bob') AUTHADD(DLT)")
    bob.close(handle, 1)
    assert "MADE" not in rig.queue_manager.local_queues()


def test_who_made_a_queue_deletes_it_through_another_handle_too(rig, made):
    eva, handle = made
    eva.close(handle)
    rig.mqsc("SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('ana') AUTHADD(CONNECT)")
    rig.restart()
    again = connect(rig, "eva")
    again.close(again.open(ObjectDescriptor("MADE"), GET).handle, 1)
    assert "MADE" not in rig.queue_manager.local_queues()


def test_the_maker_of_a_queue_deletes_it_and_the_records_of_its_name_go_with_it(rig, made):
    eva, handle = made
    eva.close(handle, 2)
    assert {profile for kind, profile, _ in rig.queue_manager.authority.records if kind == "QUEUE"} == {"M"}


ALTERNATE_USER, ALTERNATE_SUBSCRIBER, SET_ALL_CONTEXT = 0x1000, 0x40000, 0x800


@pytest.fixture
def substitute(rig):
    """A program of bob, who may do nothing except act for eva."""
    rig.mqsc(
        "DEFINE TOPIC(NEWS) TOPICSTR('news')\n"
        "SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('bob') AUTHADD(CONNECT,ALTUSR)\n"
        "SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('eva') AUTHADD(CONNECT)\n"
        "SET AUTHREC PROFILE('APP.*') OBJTYPE(QUEUE) PRINCIPAL('eva') AUTHADD(PUT)\n"
        "SET AUTHREC PROFILE(NEWS) OBJTYPE(TOPIC) PRINCIPAL('eva') AUTHADD(PUB,SUB)\n"
    )
    return connect(rig, "bob")


@pytest.mark.parametrize("kind", [1, 8])
def test_a_program_acts_with_the_authority_of_another_user(substitute, kind):
    def wanted(user):
        name = {1: "APP.ONE", 8: "NEWS"}[kind]
        return ObjectDescriptor(name, object_type=kind, alternate_user=user)

    substitute.open(wanted("eva"), PUT | ALTERNATE_USER)
    substitute.put1(wanted("eva"), md(), PutOptions(4 | ALTERNATE_USER), b"x")
    for user, options in (("eva", 0), ("bob", ALTERNATE_USER), ("", ALTERNATE_USER), ("zoe", ALTERNATE_USER)):
        with refused(2035):
            substitute.open(wanted(user), PUT | options)
        with refused(2035):
            substitute.put1(wanted(user), md(), PutOptions(4 | options), b"x")


def test_a_program_subscribes_with_the_authority_of_another_user(rig, substitute):
    create_managed = 2 | 32
    wanted = SubscriptionDescriptor(create_managed | ALTERNATE_SUBSCRIBER, topic_object="NEWS", alternate_user="eva")
    substitute.subscribe(wanted, 0)
    assert " SUBUSER(eva)" in "".join(rig.mqsc("DISPLAY SUB(*) SUBUSER"))
    with refused(2035):
        substitute.subscribe(SubscriptionDescriptor(create_managed, topic_object="NEWS", alternate_user="eva"), 0)


def test_whoever_a_program_acts_for_its_own_rights_to_the_context_count(rig, substitute):
    """A server does this when it answers a user with the context of the request."""
    answers = ObjectDescriptor("APP.ONE", alternate_user="eva")
    with refused(2035):
        substitute.open(answers, PUT | ALTERNATE_USER | SET_ALL_CONTEXT)
    rig.mqsc("SET AUTHREC PROFILE('APP.*') OBJTYPE(QUEUE) PRINCIPAL('bob') AUTHADD(SETALL)")
    substitute.open(answers, PUT | ALTERNATE_USER | SET_ALL_CONTEXT)


def test_to_act_for_another_user_is_a_right_on_the_queue_manager(rig, substitute):
    rig.mqsc("SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('bob') AUTHRMV(ALTUSR)")
    rig.mqsc("SET AUTHREC PROFILE('APP.*') OBJTYPE(QUEUE) PRINCIPAL('bob') AUTHADD(ALTUSR)")
    with refused(2035):
        substitute.open(ObjectDescriptor("APP.ONE", alternate_user="eva"), PUT | ALTERNATE_USER)


def test_the_user_that_mqopen_was_authorised_for_may_delete_the_queue(rig, made):
    eva, handle = made
    eva.close(handle)
    rig.mqsc("SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('bob') AUTHADD(ALTUSR)")
    bob = connect(rig, "bob")
    with refused(2035):
        bob.close(bob.open(ObjectDescriptor("MADE", alternate_user="eva"), GET).handle, 1)
    bob.close(bob.open(ObjectDescriptor("MADE", alternate_user="eva"), GET | ALTERNATE_USER).handle, 1)
    assert "MADE" not in rig.queue_manager.local_queues()


def test_options_of_mqconnx_that_there_are_not_are_refused(rig):
    for options in (0x20000, 0x400000, 1 << 30):
        with refused(2046):
            rig.queue_manager.connect(user="ana", options=options)
    rig.queue_manager.connect(user="ana", options=64 | 2048 | 0x2000000).disconnect()
