"""The contract of the command server: PCF over the MQI port."""

from __future__ import annotations

import pytest
from embedded_rig import md, refused

from gateway.mq import pcf, situations
from gateway.ports.mqi import ObjectDescriptor, PutOptions, SubscriptionDescriptor
from gateway.queue_manager.descriptor import Descriptor

Q_NAME, Q_TYPE, MAX_DEPTH, DESCRIPTION, CURRENT_DEPTH = 2016, 20, 15, 2013, 3
REPLACE, PURGE, Q_ATTRS, ALL = 1006, 1007, 1002, 1009
CREATE, CHANGE, COPY, DELETE, CLEAR, INQUIRE, NAMES, STATUS = 11, 8, 10, 12, 9, 13, 18, 41


def name(text):
    return pcf.string(Q_NAME, text)


def test_queues_are_created_changed_copied_and_deleted(mqi, ask):
    ask(CREATE, name("P.ONE"), pcf.integer(Q_TYPE, 1), pcf.integer(MAX_DEPTH, 77), pcf.string(DESCRIPTION, "first"))
    ask(CREATE, name("P.ONE"), pcf.integer(Q_TYPE, 1), fails=4001)
    ask(CREATE, name("P.ONE"), pcf.integer(Q_TYPE, 1), pcf.integer(MAX_DEPTH, 78), pcf.integer(REPLACE, 1))
    ask(CHANGE, name("P.ONE"), pcf.integer(Q_TYPE, 1), pcf.string(DESCRIPTION, "changed"))
    ask(COPY, pcf.string(3001, "P.ONE"), pcf.string(3002, "P.TWO"), pcf.integer(Q_TYPE, 1))
    found = ask(INQUIRE, name("P.*"), pcf.integers(Q_ATTRS, [MAX_DEPTH, DESCRIPTION]))
    assert found == [
        {Q_NAME: "P.ONE", Q_TYPE: 1, MAX_DEPTH: 78, DESCRIPTION: "changed"},
        {Q_NAME: "P.TWO", Q_TYPE: 1, MAX_DEPTH: 78, DESCRIPTION: "changed"},
    ]
    mqi.put("P.ONE", b"1")
    ask(DELETE, name("P.ONE"), fails=2055)
    ask(DELETE, name("P.ONE"), pcf.integer(PURGE, 1))
    ask(DELETE, name("P.ONE"), fails=2085)
    mqi.put("P.TWO", b"1")
    ask(CLEAR, name("P.TWO"))
    assert mqi.depth("P.TWO") == 0


def test_filters(mqi, ask):
    mqi.put("A", b"1")
    found = ask(INQUIRE, name("*"), pcf.integer(Q_TYPE, 1), pcf.integer_filter(CURRENT_DEPTH, 4, 0))
    # The command being carried out is still on its queue, as with the product's server.
    assert [one[Q_NAME] for one in found] == ["A", "SYSTEM.ADMIN.COMMAND.QUEUE"]
    mqi.mqsc("ALTER QLOCAL(B) DESCR('Plant 7')")
    assert [one[Q_NAME] for one in ask(INQUIRE, name("*"), pcf.string_filter(DESCRIPTION, 18, "Plant*"))] == ["B"]
    ask(INQUIRE, name("*"), pcf.string_filter(DESCRIPTION, 18, "Nothing*"), fails=2085)
    shown = ask(INQUIRE, name("A"), pcf.integers(Q_ATTRS, [DESCRIPTION]), pcf.integer_filter(CURRENT_DEPTH, 4, 0))
    assert shown[0][CURRENT_DEPTH] == 1  # what is filtered by is shown
    assert ask(NAMES, name("*"), pcf.integer(Q_TYPE, 1))[0][3011][:2] == ["A", "B"]


def test_every_attribute_of_a_queue_and_of_the_queue_manager(mqi, ask):
    found = ask(INQUIRE, name("A"), pcf.integers(Q_ATTRS, [ALL]))[0]
    assert {CURRENT_DEPTH, MAX_DEPTH, 2004, 2027, 16, 17, 18, 2019, 22} <= found.keys()
    manager = ask(2)[0]
    assert (manager[2015], manager[31], manager[2006]) == ("QM1", 940, "SYSTEM.DEAD.LETTER.QUEUE")
    ask(1, pcf.string(2014, "ours"), pcf.integer(33, 500))
    assert ask(2, pcf.integers(1001, [2014, 33])) == [{2015: "QM1", 2014: "ours", 33: 500}]


def test_what_mqsc_passes_over_pcf_passes_over_too(mqi, ask):
    """CMDEV, ACTIVREC, SSLCRYP of the queue manager and CAPEXPRY of a queue, beside what is kept."""
    ask(1, pcf.integer(99, 2), pcf.integer(138, 1), pcf.string(2051, ""), pcf.string(2014, "ours"))
    ask(CREATE, name("P.ONE"), pcf.integer(Q_TYPE, 1), pcf.integer(276, -1), pcf.string(DESCRIPTION, "kept"))
    assert ask(2, pcf.integers(1001, [2014]))[0][2014] == "ours"
    assert ask(INQUIRE, name("P.ONE"), pcf.integers(Q_ATTRS, [DESCRIPTION]))[0][DESCRIPTION] == "kept"
    ask(1, pcf.integer(CURRENT_DEPTH, 1), fails=3014)


def test_queue_status(mqi, ask):
    handle = mqi.open("A")
    mqi.put(handle, b"1", 2)
    mqi.put(handle, b"2")
    found = ask(STATUS, name("A"))[0]
    assert (found[CURRENT_DEPTH], found[17], found[18], found[1027]) == (2, 1, 1, 1)
    assert found[3128] == "2027-01-15"


def test_namelists(mqi, ask):
    ask(34, pcf.string(2010, "NL"), pcf.strings(2020, ["One", "Two"]))
    found = ask(36, pcf.string(2010, "NL"), pcf.integers(1004, [2020, 19]))[0]
    assert (found[2020], found[19]) == (["One", "Two"], 2)
    ask(34, pcf.string(2010, "NL"), pcf.strings(2020, []), pcf.integer(REPLACE, 1))
    assert ask(36, pcf.string(2010, "NL"), pcf.integers(1004, [2020, 19]))[0][19] == 0
    ask(35, pcf.string(2010, "NL"))


def test_topics_and_subscriptions(mqi, ask):
    ask(172, pcf.string(2092, "T"), pcf.string(2094, "a/b"))
    assert ask(174, pcf.string(2092, "T"))[0][2094] == "a/b"
    ask(177, pcf.string(3152, "S"), pcf.string(2092, "T"), pcf.string(3154, "A"))
    found = ask(176, pcf.string(3152, "S"))[0]
    assert (found[3154], len(found[7016])) == ("A", 24)
    ask(179, pcf.string(3152, "S"))
    ask(176, pcf.string(3152, "S"), fails=2428)


def test_managed_subscriptions_of_administrators(mqi, ask):
    ask(177, pcf.string(3152, "S"), pcf.string(2094, "a/b"), pcf.integer(1273, 1))
    found = ask(176, pcf.string(3152, "S"))[0]
    queue = found[3154]
    made = mqi.connection.subscribe(SubscriptionDescriptor(4, name="S"))
    publisher = mqi.connection.open(ObjectDescriptor(object_type=8, object_string="a/b"), 16).handle
    mqi.put(publisher, b"1")
    assert mqi.get(made.queue_handle).data == b"1"
    ask(179, pcf.byte_string(7016, found[7016]), fails=4004)
    mqi.connection.close(made.subscription_handle)
    mqi.connection.close(made.queue_handle)
    assert mqi.depth(queue) == 0
    ask(179, pcf.byte_string(7016, found[7016]))
    with refused(2085):
        mqi.open(queue)


def test_connections(mqi, ask):
    mqi.queue_manager.connect(application="app", user="u", channel="DEV.APP", connection_name="10.0.0.1", process=42)
    found = ask(85, pcf.byte_string(7007, b""), pcf.integer_filter(1, 2, 25))
    assert {"app", "tests"} == {one[3058] for one in found}
    assert {one[3501] for one in found} == {"DEV.APP", ""}
    assert {one[1024] for one in found} == {42, 0}


def test_wrong_commands(mqi, ask):
    ask(9999, fails=3007)
    ask(CREATE, name("X"), fails=3228)
    ask(CREATE, name("X"), pcf.integer(Q_TYPE, 1), pcf.integer(199, 1), fails=3014)
    ask(CREATE, name("not a name"), pcf.integer(Q_TYPE, 1), fails=4008)
    ask(CHANGE, name("A"), pcf.integer(Q_TYPE, 1), pcf.integer(10, 7), fails=4005)
    assert ask(40) == [{}]


def test_authority_records(mqi, ask):
    for words in ("OBJTYPE(QMGR)", "PROFILE('**') OBJTYPE(QUEUE)"):
        mqi.mqsc(f"SET AUTHREC {words} PRINCIPAL('ana') AUTHADD(ALL)")
    ask(90, pcf.string(3067, "A"), pcf.integer(1016, 1), pcf.strings(3065, ["eva"]), pcf.integers(1116, [10, 11]))
    ask(90, pcf.string(3067, "**"), pcf.integer(1016, 5), pcf.strings(3065, ["eva"]), pcf.integers(1116, [5]))
    # Neither to add nor to remove: the record without rights would have kept the user out of everything else.
    ask(90, pcf.string(3067, "B"), pcf.integer(1016, 1), pcf.strings(3065, ["bob"]), fails=3172)
    eva = mqi.queue_manager.connect(user="eva")
    eva.open(ObjectDescriptor("A"), 16)
    for queue, options in (("A", 2), ("B", 16)):
        with pytest.raises(Exception, match="2035"):
            eva.open(ObjectDescriptor(queue), options)
    mqi.open("B")


def test_filters_hold_for_whatever_is_inquired(mqi, ask):
    """They were left out of account for channel authentication, authority records and the status of topics."""
    mqi.mqsc(
        "DEFINE SUB(F.ONE) TOPICSTR('f/1') DEST(A)\nDEFINE SUB(F.TWO) TOPICSTR('f/2') DEST(B)\n"
        "SET AUTHREC PROFILE('**') OBJTYPE(QUEUE) PRINCIPAL('ana') AUTHADD(ALL)\n"
        "SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('ana') AUTHADD(ALL)\n"
        "SET AUTHREC PROFILE('**') OBJTYPE(TOPIC) PRINCIPAL('ana') AUTHADD(ALL)\n"
        "SET AUTHREC PROFILE('**') OBJTYPE(QUEUE) PRINCIPAL('bob') AUTHADD(GET)\n"
    )
    equal, like = 2, 18
    found = ask(204, pcf.string(3501, "*"), pcf.integer_filter(1352, equal, 1))
    assert {one[1352] for one in found} == {1}
    found = ask(87, pcf.string(3067, "**"), pcf.string_filter(3068, equal, "bob"))
    assert [one[3068] for one in found] == ["bob"]
    assert [one[2094] for one in ask(183, pcf.string(2094, "*"), pcf.string_filter(2094, like, "f/2*"))] == ["f/2"]
    assert [one[3152] for one in ask(182, pcf.string(3152, "*"), pcf.string_filter(2094, equal, "f/1"))] == ["F.ONE"]
    identifier = ask(176, pcf.string(3152, "F.TWO"))[0][7016]
    for command in (176, 182):
        found = ask(command, pcf.string(3152, "*"), pcf.byte_string_filter(7016, equal, identifier))
        assert [one[3152] for one in found] == ["F.TWO"]
    [program] = ask(85, pcf.string_filter(3025, equal, "ana"))
    found = ask(85, pcf.byte_string_filter(7006, equal, program[7006]))
    assert found == [program]


def test_a_filter_has_an_operator(ask):
    for command, *name_of in ((13, pcf.string(2016, "*")), (41, pcf.string(2016, "*")), (204, pcf.string(3501, "*"))):
        ask(command, *name_of, pcf.integer_filter(3, 99, 1), fails=3242)
        ask(command, *name_of, pcf.string_filter(2013, 7, "x"), fails=3246)
        ask(command, *name_of, pcf.byte_string_filter(7016, 0, b"x"), fails=3266)


def test_what_is_inquired_needs_dsp(mqi, ask):
    """Of a generic name what may be displayed is; another user learnt of every object, and reset its statistics."""
    mqi.mqsc(
        "DEFINE TOPIC(OTHERS) TOPICSTR('others')\nDEFINE SUB(THEIRS) TOPICSTR('others/x') DEST(B)\n"
        "SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('ana') AUTHADD(ALLMQI)\n"
        "SET AUTHREC PROFILE(A) OBJTYPE(QUEUE) PRINCIPAL('ana') AUTHADD(ALLMQI,DSP)\n"
        "SET AUTHREC PROFILE('SYSTEM.**') OBJTYPE(QUEUE) PRINCIPAL('ana') AUTHADD(ALLMQI)\n"
    )
    everything = pcf.string(2016, "*")
    assert [one[2016] for one in ask(13, everything)] == ["A"]
    assert [one[2016] for one in ask(41, everything)] == ["A"]
    assert ask(18, everything)[0][3011] == ["A"]
    ask(17, name("A"), fails=2035)
    for command in (13, 18, 41, 17):
        ask(command, name("B"), fails=2035)
    for command, *parameters in (
        (2,), (85,), (161,), (204, pcf.string(3501, "*")),
        (87, pcf.string(3067, "**")),
        (185,), (174, pcf.string(2092, "OTHERS")), (176, pcf.string(3152, "THEIRS")), (182, pcf.string(3152, "THEIRS")),
    ):  # fmt: skip
        ask(command, *parameters, fails=2035)
    ask(183, pcf.string(2094, "others/x"), fails=3308)
    mqi.mqsc(
        "SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('ana') AUTHADD(DSP)\n"
        "SET AUTHREC PROFILE(OTHERS) OBJTYPE(TOPIC) PRINCIPAL('ana') AUTHADD(DSP)\n"
        "SET AUTHREC PROFILE(A) OBJTYPE(QUEUE) PRINCIPAL('ana') AUTHADD(CHG)\n"
    )
    assert ask(2)[0][2015] == "QM1"
    assert ask(183, pcf.string(2094, "others/x"))[0][2094] == "others/x"
    assert ask(176, pcf.string(3152, "*"))[0][3152] == "THEIRS"
    assert ask(17, everything)[0][2016] == "A"


def test_commands_need_the_authority_of_who_sends_them(mqi, ask):
    mqi.mqsc(
        "SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('ana') AUTHADD(ALLMQI)\n"
        "SET AUTHREC PROFILE('**') OBJTYPE(QUEUE) PRINCIPAL('ana') AUTHADD(ALLMQI)\n"
    )
    grant = [pcf.string(3067, "**"), pcf.integer(1016, 1), pcf.strings(3065, ["ana"]), pcf.integers(1116, [-1])]
    ask(90, *grant, fails=2035)
    ask(38, pcf.integer(1017, 1), pcf.string(3014, "DEFINE QLOCAL(ESC)"), fails=2035)
    ask(1, fails=2035)
    ask(CREATE, name("ESC"), pcf.integer(Q_TYPE, 1), fails=2035)
    ask(9, name("A"), fails=2035)
    assert ask(40) == [{}]
    mqi.mqsc("SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('ana') AUTHADD(CHG,DSP)")
    ask(90, *grant)
    ask(CREATE, name("ESC"), pcf.integer(Q_TYPE, 1))


def test_mqsc_inside_pcf(mqi, ask):
    lines = ask(38, pcf.integer(1017, 1), pcf.string(3014, "DEFINE QLOCAL(ESC)"))
    assert "AMQ8006I" in lines[0][3014]
    assert mqi.depth("ESC") == 0


def test_who_has_a_queue_open(mqi, ask):
    mqi.mqsc("DEFINE QLOCAL(HELD)")
    handle = mqi.open("HELD", 2 | 8)
    (found,) = ask(STATUS, name("HELD"), pcf.integer(1103, 1104))
    assert (found[Q_NAME], found[1103], found[1098], found[1102], found[1099]) == ("HELD", 1104, 1, 1, 0)
    assert (found[3058], found[3025]) == ("tests", "ana")
    mqi.connection.close(handle)
    ask(STATUS, name("HELD"), pcf.integer(1103, 1104), fails=4091)


def test_a_connection_is_stopped_and_its_unit_of_work_backed_out(mqi, ask):
    mqi.mqsc("DEFINE QLOCAL(HELD)")
    other = mqi.queue_manager.connect(application="stopped", user="bob")
    other.put1(ObjectDescriptor("HELD"), md(), PutOptions(2), b"uncommitted")
    ask(86, pcf.byte_string(7006, other.connection_id))
    with refused(2009):
        other.commit()
    assert mqi.depth("HELD") == 0
    ask(86, pcf.byte_string(7006, other.connection_id), fails=3174)


def test_status_of_topics_and_subscriptions(mqi, ask):
    mqi.mqsc("DEFINE QLOCAL(HELD)\nDEFINE SUB(PCF.SUB) TOPICSTR('p/+') DEST(HELD)")
    topic = mqi.connection.open(ObjectDescriptor(object_type=8, object_string="p/one"), 16).handle
    mqi.put(topic, b"kept", options=4 | 0x200000)  # MQPMO_RETAIN
    (found,) = ask(183, pcf.string(2094, "p/one"))
    assert (found[2094], found[1300], found[204]) == ("p/one", 1, 1)
    (found,) = ask(183, pcf.string(2094, "p/one"), pcf.integer(1302, 1296))
    (status,) = ask(182, pcf.string(3152, "PCF.*"))
    assert found[7016] == status[7016]
    assert (status[3152], status[2094], status[1289]) == ("PCF.SUB", "p/+", 2)
    ask(184, pcf.string(2094, "p/one"))
    (found,) = ask(183, pcf.string(2094, "p/one"))
    assert found[1300] == 0
    ask(184, pcf.string(2094, "p/one"), fails=3308)


def test_authority_records_are_inquired_and_deleted(mqi, ask):
    mqi.mqsc("SET AUTHREC PROFILE(PCF.Q) OBJTYPE(QUEUE) PRINCIPAL('bob') AUTHADD(GET,PUT)")
    mqi.mqsc("SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('ana') AUTHADD(CONNECT,CHG,DSP)")
    mqi.mqsc("SET AUTHREC PROFILE(SYSTEM.**) OBJTYPE(QUEUE) PRINCIPAL('ana') AUTHADD(ALL)")
    (found,) = ask(87, pcf.string(3067, "PCF.*"), pcf.integer(1016, 1), pcf.string(3068, ""))
    assert (found[3067], found[1016], found[3068], found[1115]) == ("PCF.Q", 1, "bob", (9, 11))
    (found,) = ask(88, pcf.string(3068, "bob"), pcf.integer(1016, 1), pcf.string(3046, "PCF.Q"), pcf.integer(1118, 1))
    assert found[1115] == (9, 11)
    ask(89, pcf.string(3067, "PCF.Q"), pcf.integer(1016, 1), pcf.strings(3065, ["bob"]))
    ask(87, pcf.string(3067, "PCF.*"), pcf.integer(1016, 1), fails=3200)
    ask(89, pcf.string(3067, "PCF.Q"), pcf.integer(1016, 1), fails=3170)


def test_what_monitors_ask_about_channels_is_answered(mqi, ask):
    ask(42, pcf.string(3501, "*"), fails=3065)
    assert {one[1352] for one in ask(204, pcf.string(3501, "*"))} == {1, 4}, "the records of a new queue manager"
    (found,) = ask(185)
    assert (found[2015], found[1314], found[1311]) == ("QM1", 1, 3)


@pytest.mark.parametrize(
    ("command", "parameters", "reason"),
    [
        (13, [], 3228),  # every queue, because the name was left out or not understood
        (13, [pcf.integer(2016, 5)], 3014),
        (12, [pcf.integer(2016, 5)], 3014),
        (11, [pcf.string(2016, "MADE"), pcf.string(20, "1")], 3015),
        (13, [pcf.string(2016, "A"), pcf.string(2016, "B")], 3018),
        (13, [pcf.string(2016, "A"), pcf.integer(20, 1), pcf.integer(20, 3)], 3017),
        (18, [], 3228),
        (174, [], 3228),
        (176, [], 3228),
    ],
)
def test_parameters_that_are_missing_twice_there_or_of_another_type(mqi, ask, command, parameters, reason):
    ask(command, *parameters, fails=reason)


@pytest.mark.parametrize(("header", "reason"), [((9, 1, 1), 3003), ((1, 2, 1), 3004), ((1, 1, 0), 3005)])
def test_a_command_is_one_message(mqi, header, reason):
    request = pcf.build(pcf.Message(1, 13, [pcf.string(2016, "A")], *header))
    reply = mqi.connection.open(ObjectDescriptor("SYSTEM.DEFAULT.MODEL.QUEUE", dynamic_name="R.*"), 1)
    names = [one.name for one in mqi.queue_manager.core.catalogue.matching(("QLOCAL",), "R.*")]
    mqi.put("SYSTEM.ADMIN.COMMAND.QUEUE", request, 4, md(type=1, format=b"MQADMIN", reply_to_q=names[0].encode()))
    assert pcf.parse(mqi.get(reply.handle).data).reason == reason


DEAD = "SYSTEM.DEAD.LETTER.QUEUE"


def dead_letters(mqi):
    """(reason, destination, descriptor, data) of each."""
    handle = mqi.open(DEAD, 2)
    found = []
    while mqi.depth(DEAD):
        got = mqi.get(handle, length=100 << 20)
        revived = situations.from_dead_letter(got.md, got.data)
        found.append((revived.header.reason, revived.header.dest_q_name.strip(), Descriptor(revived.md), revived.data))
    return found


@pytest.mark.parametrize(
    ("data", "descriptor", "reason"),
    [
        (b"hello", md(format=b"MQSTR"), 3023),
        (b"hello" * (1 << 20), md(format=b"MQSTR"), 3023),
        (b"hello", md(format=b"MQADMIN"), 3002),
        (pcf.build(pcf.Message(1, 9999, [])), md(format=b"MQADMIN"), 3007),
    ],
)
def test_what_is_no_command_and_cannot_be_answered_is_a_dead_letter(mqi, data, descriptor, reason):
    mqi.mqsc("ALTER QLOCAL(SYSTEM.ADMIN.COMMAND.QUEUE) MAXMSGL(104857600)\nALTER QMGR MAXMSGL(104857600)")
    mqi.mqsc(f"ALTER QLOCAL({DEAD}) MAXMSGL(104857600)")
    sent = mqi.put("SYSTEM.ADMIN.COMMAND.QUEUE", data, descriptor=descriptor)
    [(said, destination, found, content)] = dead_letters(mqi)
    assert (said, destination) == (reason, "SYSTEM.ADMIN.COMMAND.QUEUE")
    assert (found.msg_id, found.format) == (sent.md[48:72], descriptor[32:40])
    assert len(content) == len(data)
    assert content[:100] == data[:100]


def test_what_is_no_command_is_answered_where_it_can_be(mqi):
    mqi.put("SYSTEM.ADMIN.COMMAND.QUEUE", b"hello", descriptor=md(type=1, format=b"MQSTR", reply_to_q=b"A"))
    assert pcf.parse(mqi.get(mqi.open("A")).data).reason == 3023
    assert mqi.depth(DEAD) == 0


def test_a_reply_that_cannot_be_put_is_a_dead_letter(mqi):
    request = pcf.build(pcf.Message(1, 40, []))
    command = md(type=1, format=b"MQADMIN", reply_to_q=b"NOWHERE", msg_id=b"m" * 24)
    mqi.put("SYSTEM.ADMIN.COMMAND.QUEUE", request, descriptor=command)
    [(reason, destination, found, content)] = dead_letters(mqi)
    assert (reason, destination, found.type, found.correl_id) == (2085, "NOWHERE", 2, b"m" * 24)
    assert (found.format, pcf.parse(content).command) == (b"MQADMIN ", 40)


def test_a_reply_that_may_be_discarded_is(mqi):
    discard, pass_on = 0x8000000, 0x4000
    request = pcf.build(pcf.Message(1, 40, []))
    command = md(type=1, format=b"MQADMIN", reply_to_q=b"NOWHERE", report=discard | pass_on)
    mqi.put("SYSTEM.ADMIN.COMMAND.QUEUE", request, descriptor=command)
    assert mqi.depth(DEAD) == 0
