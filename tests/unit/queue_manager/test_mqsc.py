"""MQSC commands carried out, and answered in the words of runmqsc."""

from __future__ import annotations

import pytest
from embedded_rig import MqiRig, md, refused

from gateway.errors import ConfigurationError, StoreUnavailable
from gateway.ports.mqi import ObjectDescriptor, PutOptions
from gateway.queue_manager.commands.mqsc import MOST_TOGETHER
from gateway.queue_manager.commands.mqsc_report import MqscReport
from gateway.queue_manager.objects.catalogue import Catalogue, Definition, decode_definition, defaults


@pytest.fixture
def rig():
    return MqiRig(None)


def run(rig, text):
    report = rig.queue_manager.mqsc(text)
    return [line for line in report.lines if not line.startswith("     ")], report


def test_define_alter_delete(rig):
    lines, report = run(
        rig,
        "DEFINE QLOCAL(Q) MAXDEPTH(7)\nDEFINE QLOCAL(Q)\nALTER QL(Q) MAXDEPTH(8)\nDELETE QLOCAL(Q)\nDELETE QLOCAL(Q)",
    )
    assert lines == [
        "AMQ8006I: IBM MQ queue created.",
        "AMQ8150E: IBM MQ object already exists: Q.",
        "AMQ8008I: IBM MQ queue changed.",
        "AMQ8007I: IBM MQ queue deleted.",
        "AMQ8147E: IBM MQ object Q not found.",
    ]
    assert report.summary() == [
        "5 MQSC commands read.",
        "No commands have a syntax error.",
        "2 valid MQSC commands could not be processed.",
    ]


def test_defaults_like_and_replace(rig):
    run(rig, "ALTER QLOCAL(SYSTEM.DEFAULT.LOCAL.QUEUE) MAXDEPTH(11)\nDEFINE QLOCAL(A) DESCR(X)")
    run(rig, "DEFINE QLOCAL(B) LIKE(A)")
    assert "DESCR(X)" in " ".join(run(rig, "DISPLAY QLOCAL(B) DESCR")[0])
    rig.put("B", b"kept")
    run(rig, "DEFINE QLOCAL(B) REPLACE MAXMSGL(99)")
    lines, _ = run(rig, "DISPLAY QLOCAL(B) MAXDEPTH MAXMSGL CURDEPTH DESCR")
    assert lines[0] == "AMQ8409I: Display Queue details."
    assert all(word in " ".join(lines) for word in ("MAXDEPTH(11)", "MAXMSGL(99)", "CURDEPTH(1)", "DESCR( )"))


def test_display_selects_by_name_type_and_where(rig):
    run(rig, "DEFINE QLOCAL(APP.ONE) MAXDEPTH(10)\nDEFINE QLOCAL(APP.TWO) MAXDEPTH(20)")
    run(rig, "DEFINE QALIAS(APP.ALIAS) TARGET(APP.ONE)")
    names = [line.split("(")[1].split(")")[0] for line in run(rig, "DIS Q(APP.*)")[0] if "QUEUE(" in line]
    assert names == ["APP.ALIAS", "APP.ONE", "APP.TWO"]
    lines, _ = run(rig, "DIS QL(APP.*) WHERE(MAXDEPTH GT 15) MAXDEPTH")
    assert lines == [
        "AMQ8409I: Display Queue details.",
        "   QUEUE(APP.TWO)                          TYPE(QLOCAL)",
        "   MAXDEPTH(20)",
    ]
    for number in ("--15", "15-", "\u00b2", "1" * 5000):
        assert "syntax" not in run(rig, f"DIS QL(APP.*) WHERE(MAXDEPTH GT '{number}') MAXDEPTH")[0][0]
    assert run(rig, "DIS Q(APP.*) TYPE(QALIAS) TARGET")[0][-1] == "   TARGET(APP.ONE)"
    generic = run(rig, "DIS QL(APP.T*)")[0]
    assert generic == ["AMQ8409I: Display Queue details.", f"   {'QUEUE(APP.TWO)':<40}TYPE(QLOCAL)"], "as runmqsc does"
    assert run(rig, "DIS QL(APP.T*) WHERE(MAXDEPTH GT 15)")[0] == [*generic, "   MAXDEPTH(20)"]
    whole = run(rig, "DIS QL(APP.T*) ALL")[0]
    assert run(rig, "DIS QL(APP.TWO)")[0] == whole
    assert {"NOTRIGGER", "SHARE", "HARDENBO"} <= set(" ".join(whole).split())
    assert run(rig, "DIS Q(NONE*)")[0] == ["AMQ8147E: IBM MQ object NONE* not found."]
    assert "QMNAME(QM1)" in run(rig, "DIS QMGR")[0][1]


def test_values_beyond_their_range_are_errors_of_syntax(rig):
    lines, report = run(rig, "DEFINE QLOCAL(A) MAXDEPTH(9999999999)\nDEFINE QLOCAL(A)\nALTER QL(A) MAXMSGL(-1)")
    assert lines[0].startswith("AMQ8405E: 9999999999")
    assert report.summary() == [
        "3 MQSC commands read.", "2 commands have a syntax error.", "All valid MQSC commands were processed.",
    ]  # fmt: skip
    assert not report.ok
    assert [line for line, _ in report.problems] == [1, 3]


@pytest.mark.parametrize(
    "command",
    ["DELETE QALIAS(A)", "ALTER QR(A) DESCR(X)", "DEFINE QALIAS(A) TARGET(B) REPLACE", "CLEAR QL(AL)",
     "DEFINE QMODEL(M) LIKE(A)"],
)  # fmt: skip
def test_queues_of_another_type_are_not_unknown(rig, command):
    run(rig, "DEFINE QLOCAL(A)\nDEFINE QALIAS(AL) TARGET(A)")
    ((line,), report) = run(rig, command)
    assert "has different type: it is a Q" in line
    assert line.startswith("AMQ8152E: Source" if "LIKE" in command else "AMQ8151E: IBM MQ object A")
    assert report.failed == 1
    assert "DESCR( )" in " ".join(run(rig, "DIS QL(A) DESCR")[0])


def test_what_z_os_says_of_where_a_command_is_carried_out(rig):
    text = "DEFINE QLOCAL(A) CMDSCOPE(' ') QSGDISP(QMGR)\nCLEAR QL(A) CMDSCOPE(*)\nDIS QS(A) CMDSCOPE(QM1) CURDEPTH"
    lines, report = run(rig, text)
    assert report.ok
    assert lines[-1] == "   CURDEPTH(0)"
    assert run(rig, "DELETE QLOCAL(A) QSGDISP(SHARED)")[1].syntax_errors == 1
    assert run(rig, "CLEAR QLOCAL(A) CMDSCOPE")[1].syntax_errors == 1


def test_monitor_stands_for_what_is_monitored(rig):
    run(rig, "DEFINE QLOCAL(A)")
    rig.put("A", b"1")
    lines, report = run(rig, "DIS QS(A) MONITOR")
    assert report.ok
    assert "LPUTDATE(" in " ".join(lines)
    assert "CURDEPTH" not in " ".join(lines)


def test_clear_and_in_use(rig):
    run(rig, "DEFINE QLOCAL(Q)")
    handle = rig.open("Q")
    rig.put(handle, b"1", 2)
    assert run(rig, "CLEAR QLOCAL(Q)")[0] == ["AMQ8148E: IBM MQ object Q in use."]
    assert run(rig, "DELETE QLOCAL(Q)")[0] == ["AMQ8148E: IBM MQ object Q in use."]
    rig.connection.disconnect()
    rig.connection = rig.queue_manager.connect()
    assert run(rig, "DELETE QLOCAL(Q)")[0] == ["AMQ8143E: IBM MQ queue Q not empty."]
    assert run(rig, "CLEAR QLOCAL(Q)")[0] == ["AMQ8022I: IBM MQ queue cleared."]
    rig.put("Q", b"1")
    assert run(rig, "DELETE QLOCAL(Q) PURGE")[0] == ["AMQ8007I: IBM MQ queue deleted."]


def test_a_queue_that_a_rule_takes_from_is_neither_cleared_nor_deleted(rig):
    run(rig, "DEFINE QLOCAL(Q)")
    rig.put("Q", b"1")
    rig.queue_manager.consume("Q", lambda: None)
    for command in ("CLEAR QLOCAL(Q)", "DELETE QLOCAL(Q) PURGE"):
        [line] = run(rig, command)[0]
        assert line == "AMQ8148E: IBM MQ object Q in use: a rule of the gateway takes from it."
    rig.queue_manager.stop_consuming("Q")
    assert run(rig, "CLEAR QLOCAL(Q)")[0] == ["AMQ8022I: IBM MQ queue cleared."]


@pytest.mark.parametrize(
    "text",
    [
        "DEFINE QLOCAL(Q) NONSENSE(1)",
        "DEFINE QLOCAL(Q) MAXDEPTH(many)",
        "DEFINE NOTHING(Q)",
        "CLEAR QALIAS(Q)",
        "DISPLAY QLOCAL(*) WHERE(A B)",
        "FROBNICATE QLOCAL(Q)",
        "DEFINE QLOCAL",
        "DEFINE QLOCAL(Q) DESCR(two words)",
        "DEFINE QLOCAL(Q) MAXDEPTH(5,6)",
        "DEFINE QLOCAL(Q) MAXDEPTH(5) MAXDEPTH(6)",
        "DEFINE QLOCAL(Q) TRIGGER NOTRIGGER",
        "DEFINE QALIAS(Q) TARGET(A) TARGQ(B)",
        "DEFINE QLOCAL(Q) NOREPLACE REPLACE",
        "DELETE QLOCAL(Q) NOPURGE PURGE",
        "DISPLAY QMGR NONSENSE",
        "DISPLAY QUEUE(*) CURDEPTH NONSENSE",
        "DISPLAY QLOCAL(*) WHERE(NONSENSE EQ 1)",
        "DELETE QLOCAL(A) NONSENSE",
        "CLEAR QLOCAL(A) NONSENSE",
        "PING QMGR NONSENSE",
    ],
)
def test_syntax_errors(rig, text):
    lines, report = run(rig, text)
    assert (report.syntax_errors, report.failed) == (1, 0)
    assert lines[0].startswith("AMQ8405I: Syntax error")
    assert f"below:- {lines[1]} {lines[2]}" in report.problems[0][1], "the third line says what is wrong"


def test_values_out_of_range(rig):
    lines, report = run(rig, "DEFINE QLOCAL(Q) DEFPRTY(10)\nDEFINE QLOCAL('a b')")
    assert (report.syntax_errors, report.failed) == (1, 1)
    assert lines[0] == "AMQ8405E: 10 is not a valid value for DEFPRTY."


def test_status(rig):
    run(rig, "DEFINE QLOCAL(Q)")
    rig.put("Q", b"1")
    rig.scheduler.advance(5)
    text = " ".join(run(rig, "DIS QSTATUS(Q) ALL")[0])
    assert all(word in text for word in ("CURDEPTH(1)", "MSGAGE(5)", "UNCOM(NO)", "LPUTDATE(2027-01-15)"))
    assert "QUEUE(Q)" not in " ".join(run(rig, "DIS QSTATUS(Q) WHERE(UNCOM GT 0)")[0])
    assert "APPLTAG(tests)" in " ".join(run(rig, "DIS CONN(*) ALL")[0])
    assert "STATUS(RUNNING)" in " ".join(run(rig, "DIS QMSTATUS")[0])
    assert "MSGSIN(1)" in " ".join(run(rig, "RESET QSTATS(Q)")[0])
    assert "MSGSIN(0)" in " ".join(run(rig, "RESET QSTATS(Q)")[0])


def test_authority_records(rig):
    run(rig, "DEFINE QLOCAL(Q)")
    lines, _ = run(rig, "SET AUTHREC PROFILE(Q) OBJTYPE(QUEUE) PRINCIPAL('eva') AUTHADD(PUT,INQ)")
    assert lines == ["AMQ8862I: IBM MQ authority record set."]
    assert "AUTHLIST(INQ,PUT)" in " ".join(run(rig, "DIS AUTHREC PROFILE(Q)")[0])
    run(rig, "SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('eva') AUTHADD(CONNECT)")
    eva = rig.queue_manager.connect(user="eva")
    with pytest.raises(Exception, match="2035"):
        eva.open(_descriptor("Q"), 1)
    eva.open(_descriptor("Q"), 16)


def _descriptor(name):
    from gateway.ports.mqi import ObjectDescriptor

    return ObjectDescriptor(name)


def test_a_file_of_objects_that_is_wrong_stops_the_start():
    text = "* objects\nDEFINE QLOCAL(A)\nDEFINE QLOCAL(B) NONSENSE(1)\nDEFINE QLOCAL(A)"
    with pytest.raises(ConfigurationError) as caught:
        MqiRig(None, text)
    found = [(finding.line, finding.fix) for finding in caught.value.findings]
    assert found == [(3, ""), (4, "it is defined twice in this text: keep one of them")]
    assert "objects:3:1: AMQ8405I" in str(caught.value)


def test_objects_that_are_there_stay_as_they_were_altered(tmp_path):
    text = "DEFINE QLOCAL(A) MAXDEPTH(5)\nDEFINE QLOCAL(B) MAXDEPTH(5) REPLACE"
    first = MqiRig(tmp_path, text)
    run(first, "ALTER QLOCAL(A) MAXDEPTH(50)\nALTER QLOCAL(B) MAXDEPTH(50)")
    first.queue_manager.close()
    again = MqiRig(tmp_path, text)
    assert "MAXDEPTH(50)" in " ".join(run(again, "DIS QLOCAL(A) MAXDEPTH")[0])
    assert "MAXDEPTH(5)" in " ".join(run(again, "DIS QLOCAL(B) MAXDEPTH")[0]), "REPLACE says so"
    again.queue_manager.close()


def test_what_is_replaced_by_what_it_is_already_is_not_written(tmp_path):
    """A gateway starts although nothing can be written any more, even with objects that say REPLACE."""
    text = "DEFINE QLOCAL(A) MAXDEPTH(5) REPLACE"
    opened = MqiRig(tmp_path, text).queue_manager
    pace = opened.core.store.ring.pace
    before = pace.placed
    assert opened.mqsc(text).ok
    assert pace.placed == before
    assert opened.mqsc(f"{text} DESCR(other)").ok
    assert pace.placed > before
    opened.close()


def test_names_in_a_file_of_objects_are_alike_only_for_objects_of_one_kind(tmp_path):
    """This also holds at the next start, when all of them exist."""
    text = "DEFINE QLOCAL(PLANT)\nDEFINE TOPIC('plant') TOPICSTR('plant')\nDEFINE TOPIC(plant) TOPICSTR('PLANT')"
    for _ in range(2):
        MqiRig(tmp_path, text).queue_manager.close()


def test_what_a_comment_or_a_description_defines_is_not_defined_twice(tmp_path):
    text = "* DEFINE QLOCAL(PLANT) MAXDEPTH(5000)\nDEFINE QLOCAL(PLANT) +\n* DEFINE QLOCAL(PLANT)\n"
    text += " DESCR('see DEFINE QLOCAL(PLANT)')\nEND\nDEFINE QLOCAL(PLANT)"
    for _ in range(2):
        MqiRig(tmp_path, text).queue_manager.close()


@pytest.mark.parametrize("digits", ["DESTCORL('zz')", "DESTCORL('abc')", "PUBACCT('zz')"])
def test_what_are_no_hexadecimal_digits_is_refused(rig, digits):
    """A queue manager that had accepted them could not be started any more."""
    assert run(rig, f"DEFINE SUB(S) TOPICSTR('a') DEST(A) {digits}")[1].syntax_errors == 1
    assert not run(rig, "DISPLAY SUB(S)")[1].ok
    run(rig, "DEFINE SUB(S) TOPICSTR('a') DEST(A) DESTCORL('ABcd')")
    assert run(rig, f"ALTER SUB(S) {digits}")[1].syntax_errors == 1
    assert "DESTCORL(ABcd)" in " ".join(run(rig, "DISPLAY SUB(S)")[0])


def test_a_definition_with_digits_that_are_none_is_read_without_them():
    taken = Definition("SUB", "S", defaults("SUB") | {"TOPICSTR": "a", "DESTCORL": "zz", "PUBACCT": "z"}, "", "")
    read = decode_definition(taken.encode())
    assert [read.text(word) for word in ("TOPICSTR", "DESTCORL", "PUBACCT")] == ["a", "", ""]


def test_users_and_passwords():
    rig = MqiRig(None, users={"ana": "secret"})
    rig.queue_manager.connect(user="ana", password="secret")
    for user, password in (("ana", "wrong"), ("eva", "secret"), ("", "secret")):
        with pytest.raises(Exception, match="2035"):
            rig.queue_manager.connect(user=user, password=password)
    rig.queue_manager.connect(user="anyone")
    rig.mqsc("ALTER AUTHINFO(SYSTEM.DEFAULT.AUTHINFO.IDPWOS) CHCKCLNT(REQUIRED)")
    with pytest.raises(Exception, match="2035"):
        rig.queue_manager.connect(user="anyone")
    rig.mqsc("ALTER AUTHINFO(SYSTEM.DEFAULT.AUTHINFO.IDPWOS) CHCKCLNT(NONE)")
    rig.queue_manager.connect(user="eva", password="whatever")


def test_every_attribute_is_in_the_reference():
    from pathlib import Path

    from gateway.queue_manager.objects.attributes import TABLES

    text = (Path(__file__).parents[3] / "docs/reference/mqsc.md").read_text()
    for kind, table in TABLES.items():
        section = next(part for part in text.split("\n### ")[1:] if f"({kind})" in part.splitlines()[0])
        missing = [one.keyword for one in table if f"| {one.keyword} |" not in section]
        assert not missing, (kind, missing)


def test_what_the_queue_manager_cannot_do_without(rig):
    for text, code in (("DELETE TOPIC(SYSTEM.BASE.TOPIC)", "AMQ8148E"), ("ALTER QMGR CCSID(5)", "AMQ8405E")):
        report = rig.queue_manager.mqsc(text)
        assert not report.ok
        assert code in "\n".join(report.lines)
    assert rig.queue_manager.mqsc("ALTER QMGR CCSID(819)").ok


def test_uncommitted_messages_are_there_or_not(rig):
    """YES or NO is shown; a comparison with a number is made with how many there are."""
    run(rig, "DEFINE QLOCAL(Q)")
    assert "QUEUE(Q)" in " ".join(run(rig, "DIS QSTATUS(Q) WHERE(UNCOM NE YES)")[0])
    rig.put("Q", b"1", 2)
    for command in ("ALL", "WHERE(UNCOM GT 0)", "WHERE(UNCOM EQ YES)", "WHERE(UNCOM EQ 'yes')", "UNCOM"):
        assert "UNCOM(YES)" in " ".join(run(rig, f"DIS QSTATUS(Q) {command}")[0])
    rig.connection.commit()
    assert "UNCOM(NO)" in " ".join(run(rig, "DIS QSTATUS(Q) UNCOM")[0])
    rig.get(rig.open("Q"), 2)
    assert "UNCOM(YES)" in " ".join(run(rig, "DIS QSTATUS(Q) UNCOM")[0])


@pytest.mark.parametrize("end", ["END", "end", "QUIT;", "  exit"])
def test_what_follows_the_end_is_not_read(rig, end):
    _, report = run(rig, f"DEFINE QLOCAL(A)\n{end}\nDEFINE QLOCAL(B)")
    assert report.ok
    assert report.read == 1
    assert not run(rig, "DISPLAY QLOCAL(B)")[1].ok
    assert run(rig, f"DEFINE QLOCAL(B)\n{end}")[1].read == 1


@pytest.mark.parametrize(
    "command",
    ["DIS CLUSQMGR(*)", "DISPLAY LISTENER(*)", "START LISTENER(L)", "SUSPEND QMGR CLUSTER(C)", "MOVE QLOCAL(A)"],
)
def test_what_is_right_and_not_offered_is_no_error_of_syntax(rig, command):
    lines, report = run(rig, command)
    assert (report.syntax_errors, report.failed) == (0, 1)
    assert lines[0].startswith("not supported here: ")
    assert ("no channels, listeners or services" in lines[0]) == ("LISTENER" in command)


def test_a_command_has_a_most_of_characters(rig):
    lines, report = run(rig, "DEFINE QLOCAL(Q) DESCR('" + "x" * 40_000 + "')\nPING QMGR")
    assert report.syntax_errors == 1
    assert "at most 32762 characters" in report.problems[0][1]
    assert lines[-1] == "AMQ8415I: Ping IBM MQ Queue Manager command complete."


def test_a_text_is_carried_out_a_little_at_a_time(rig):
    text = "*\n" * 50 + "DEFINE QLOCAL(ONE)\nDEFINE QLOCAL(TWO)\nDISPLAY QLOCAL(*) MAXDEPTH\n" + "PING QMGR\n" * 20
    report = MqscReport()
    steps = 0
    for _ in rig.queue_manager.mqsc_steps(text, report):
        steps += 1
        if report.read == 3 and "TWO" in str(report.lines):
            rig.queue_manager.mqsc("DELETE QLOCAL(TWO)")  # others go on meanwhile
    whole = rig.queue_manager.mqsc("DISPLAY QLOCAL(*) MAXDEPTH")
    assert steps > 50 + len(whole.lines) + 20
    assert report.ok
    assert report.read == 23


def test_what_is_answered_has_a_bound(rig):
    report = MqscReport(most=10_000)
    for _ in rig.queue_manager.mqsc_steps("DISPLAY QUEUE(*)\n" * 30 + "DEFINE QLOCAL(LAST)", report):
        pass
    assert report.read == 31
    assert sum(map(len, report.lines)) < 10_200
    assert "more lines are left out" in report.lines[-1]
    assert "LAST" in str(rig.queue_manager.mqsc("DISPLAY QLOCAL(LAST)").lines)


EXPORTED = """
ALTER QMGR +
   ACCTCONO(DISABLED) ACTIVREC(MSG) ACTVTRC(OFF) CERTVPOL(ANY) CLWLDATA(' ') CLWLUSEQ(LOCAL) CHADEXIT(' ') +
   CMDEV(DISABLED) DEADQ('SYSTEM.DEAD.LETTER.QUEUE') DEFCLXQ(SCTQ) IMGINTVL(60) IPADDRV(IPV4) MONACLS(QMGR) +
   PSNPMSG(DISCARD) PSCLUS(ENABLED) REVDNS(ENABLED) ROUTEREC(MSG) SCHINIT(QMGR) SSLFIPS(NO) STATCHL(OFF) SUITEB(NONE) +
   FORCE
DEFINE QLOCAL('DEV.QUEUE.1') CLCHNAME(' ') CAPEXPRY(NOLIMIT) MAXDEPTH(7) REPLACE
DEFINE TOPIC('DEV.BASE.TOPIC') TYPE(LOCAL) TOPICSTR('dev/') WILDCARD(PASSTHRU) REPLACE
DEFINE NAMELIST('NL') NLTYPE(NONE) NAMES('DEV.QUEUE.1') REPLACE
DEFINE AUTHINFO('DEV.AUTHINFO') AUTHTYPE(IDPWOS) AUTHENMD(OS) CHCKCLNT(REQDADM) FAILDLAY(1) ADOPTCTX(YES) REPLACE
DEFINE CHANNEL('SYSTEM.DEF.CLUSRCVR') CHLTYPE(CLUSRCVR) BATCHHB(0) COMPHDR(NONE) CONVERT(NO) LONGRTY(999999999) REPLACE
DEFINE CHANNEL('DEV.APP.SVRCONN') CHLTYPE(SVRCONN) CERTLABL(' ') COMPMSG(NONE) DISCINT(0) KAINT(AUTO) MCAUSER('app') +
   MAXINSTC(999999999) MONCHL(QMGR) RCVDATA(' ') SCYEXIT(' ') SSLCAUTH(OPTIONAL) SSLCIPH('ANY_TLS12_OR_HIGHER') REPLACE
DEFINE SUB('S.1') TOPICSTR('dev/x') DEST('DEV.QUEUE.1') SELTYPE(NONE) WSCHEMA(TOPIC) REPLACE
"""


def test_what_ibm_mq_writes_of_its_objects_is_taken(rig):
    """The words that dmpmqcfg writes."""
    report = rig.queue_manager.mqsc(EXPORTED)
    assert not report.problems
    assert "MAXDEPTH(7)" in " ".join(run(rig, "DISPLAY QLOCAL(DEV.QUEUE.1) MAXDEPTH")[0])


@pytest.mark.parametrize("command", ["ALTER QMGR SSLFIPZ(NO)", "ALTER QMGR SSLFIPS", "ALTER QLOCAL(DEV.Q) CONVERT(NO)"])
def test_what_ibm_mq_does_not_know_is_not_taken(rig, command):
    rig.mqsc("DEFINE QLOCAL(DEV.Q)")
    assert rig.queue_manager.mqsc(command).syntax_errors == 1


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("DISPLAY QALIAS(AL) TARGQ", "TARGET(A)"),
        ("DISPLAY QALIAS(*) WHERE(TARGQ EQ A)", "TARGET(A)"),
        ("DISPLAY QMODEL(M) DEFINITION", "DEFTYPE(PERMDYN)"),
        ("DISPLAY QLOCAL(A) NOTRIGGER", "NOTRIGGER"),
    ],
)
def test_display_knows_the_words_that_define_takes(rig, command, shown):
    """For the other name of an attribute nothing was shown, as if it had no value."""
    rig.mqsc("DEFINE QLOCAL(A)\nDEFINE QALIAS(AL) TARGQ(A)\nDEFINE QMODEL(M) DEFTYPE(PERMDYN)")
    assert shown in " ".join(run(rig, command)[0])


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("DEFINE QLOCAL(N) NPMCLASS(HIGH)", "NPMCLASS(HIGH) has no effect here: messages that are not persistent are"),
        ("DEFINE QLOCAL(N) CAPEXPRY(600)", "CAPEXPRY(600) has no effect here: messages expire when they say so"),
        ("ALTER TOPIC(SYSTEM.BASE.TOPIC) CAPEXPRY(600)", "CAPEXPRY(600) has no effect here"),
        ("DEFINE QLOCAL(N) CLUSTER(C) CLUSNL(' ')", "CLUSTER(C) has no effect here: there are no clusters"),
        ("DEFINE CHANNEL(C) CHLTYPE(SDR)", "CHLTYPE(SDR) has no effect here: channels to other queue managers are not"),
        ("DEFINE CHANNEL(C) CHLTYPE(SVRCONN)", ""),
        ("DEFINE QLOCAL(N) DISTL(YES)", "DISTL(YES) has no effect here: there are no distribution lists"),
        ("DEFINE QLOCAL(N) CAPEXPRY(NOLIMIT) NPMCLASS(NORMAL) CLUSTER(' ')", ""),
    ],
)
def test_who_asks_for_what_is_not_done_here_is_told(rig, command, said):
    report = rig.queue_manager.mqsc(command)
    assert report.ok
    told = [line for line in report.lines if "no effect" in line]
    assert len(told) == bool(said)
    assert said in "".join(told)


def test_empty_parentheses_are_a_value(rig):
    """They were ignored, and the answer was that the queue had been changed."""
    lines, _ = run(
        rig,
        "DEFINE QLOCAL(Q) DESCR('old') BOQNAME(BO)\nALTER QLOCAL(Q) DESCR() BOQNAME( )\n"
        "DISPLAY QLOCAL(Q) DESCR BOQNAME",
    )
    assert [line.split() for line in lines[3:]] == [["QUEUE(Q)", "TYPE(QLOCAL)"], ["BOQNAME(", ")", "DESCR(", ")"]]
    for command in ("ALTER QLOCAL(Q) MAXDEPTH()", "ALTER QLOCAL(Q) DEFPSIST()"):
        lines, report = run(rig, command)
        assert lines[-1].startswith("('' is not a valid value for")
        assert report.syntax_errors == 1


@pytest.mark.parametrize(
    ("command", "said"),
    [("PING QMGR", "AMQ8415I"), ("PING CHANNEL(C)", "not supported here: PING CHANNEL"), ("PING", "AMQ8405I")],
)
def test_only_the_queue_manager_is_pinged(rig, command, said):
    assert run(rig, command)[0][0].startswith(said)


def test_a_topic_object_has_a_topic_string(rig):
    assert run(rig, "DEFINE TOPIC(T) PUB(DISABLED)")[0] == ["AMQ8405E: A topic object needs TOPICSTR."]
    assert rig.mqsc("ALTER TOPIC(SYSTEM.BASE.TOPIC) PUB(ENABLED)\nDEFINE TOPIC(SYSTEM.DEFAULT.TOPIC) REPLACE")


def test_one_object_is_displayed_without_looking_at_all_others(rig, monkeypatch):
    run(rig, "\n".join(f"DEFINE QLOCAL(Q{number})" for number in range(200)))
    asked, catalogue = 0, rig.queue_manager.core.catalogue

    class Counted(dict):
        def get(self, key, default=None):
            nonlocal asked
            asked += 1
            return super().get(key, default)

    monkeypatch.setitem(catalogue._objects, "QUEUE", Counted(catalogue._objects["QUEUE"]))
    assert "QUEUE(Q7)" in " ".join(run(rig, "DISPLAY QUEUE(Q7) TYPE")[0])
    assert asked < 50
    assert [one.name for one in catalogue.matching(("QLOCAL", "QALIAS"), "Q7")] == ["Q7"]
    assert list(catalogue.matching(("QALIAS",), "Q7")) == []
    assert len(list(catalogue.matching(("QLOCAL",), "Q1*"))) == 111


def test_topic_objects_and_subscriptions_are_not_all_looked_at_for_each_other(rig, monkeypatch):
    """A program that publishes to a topic string, and one that subscribes."""
    run(rig, "\n".join(f"DEFINE TOPIC(T{number}) TOPICSTR('t/{number}') PUB(DISABLED)" for number in range(200)))
    run(
        rig,
        "\n".join(
            f"DEFINE SUB('s{number}') TOPICSTR('s/{number}') DEST(SYSTEM.DEFAULT.LOCAL.QUEUE)" for number in range(200)
        ),
    )
    topics, asked = rig.queue_manager.topics, 0
    assert topics.over("t/7/x") == ["T7", "SYSTEM.BASE.TOPIC"]
    assert topics.over("t/77x") == ["SYSTEM.BASE.TOPIC"]
    matching = Catalogue.matching

    def counted(self, kinds, pattern="*"):
        nonlocal asked
        for one in matching(self, kinds, pattern):
            asked += 1
            yield one

    monkeypatch.setattr(Catalogue, "matching", counted)
    descriptor = ObjectDescriptor("", object_type=8, object_string="u/1")
    for _ in range(20):
        rig.connection.put1(descriptor, md(), PutOptions(4), b"x")
    assert asked == 0
    with refused(2051):
        rig.connection.put1(ObjectDescriptor("", object_type=8, object_string="t/7/x"), md(), PutOptions(4), b"x")
    run(rig, "ALTER TOPIC(T7) PUB(ENABLED)")
    rig.connection.put1(ObjectDescriptor("", object_type=8, object_string="t/7/x"), md(), PutOptions(4), b"x")


QUEUES = "".join(f"DEFINE QLOCAL(Q{number})\n" for number in range(2 * MOST_TOGETHER))


def test_queues_are_defined_some_in_a_frame(rig, monkeypatch):
    commit, commits = rig.queue_manager.core.commit, []
    monkeypatch.setattr(rig.queue_manager.core, "commit", lambda unit: commits.append(unit) or commit(unit))
    text = QUEUES + "DEFINE QLOCAL(Q1)\nDEFINE QLOCAL(A) NONE\nDEFINE QALIAS(B) TARGET(Q1)\nDISPLAY QALIAS(B) TARGET\n"
    lines, report = run(rig, text)
    assert len(commits) == 3
    assert lines[len(commits[0].state) * 2 :] == [
        "AMQ8150E: IBM MQ object already exists: Q1.",
        "AMQ8405I: Syntax error detected at or near end of command segment below:-",
        "DEFINE QLOCAL(A) NONE",
        "(NONE is not an attribute of QLOCAL)",
        "AMQ8006I: IBM MQ queue created.",
        "AMQ8409I: Display Queue details.",
        "   QUEUE(B)                                TYPE(QALIAS)",
        "   TARGET(Q1)",
    ]
    assert [line.split(" :")[0].strip() for line in report.lines if " : " in line] == [
        str(number) for number in range(1, 2 * MOST_TOGETHER + 5)
    ]
    assert (report.read, report.failed, report.syntax_errors) == (2 * MOST_TOGETHER + 4, 1, 1)


def test_queues_that_cannot_be_saved_are_as_they_were_and_each_is_told_why(rig, monkeypatch):
    core, written = rig.queue_manager.core, []
    run(rig, "DEFINE QLOCAL(Q1) MAXDEPTH(7)\nDEFINE QLOCAL(Q2) MAXDEPTH(8)")
    rig.put("Q1", b"kept")

    def full(frame):
        written.append(frame)
        if len(frame.state) > 1 or any(key.endswith(b"Q2") for key in frame.state):
            raise StoreUnavailable("no space left on device")

    monkeypatch.setattr(core.store, "write", full)
    lines, report = run(rig, "".join(f"DEFINE QLOCAL(Q{number}) REPLACE MAXDEPTH(9)\n" for number in range(4)))
    monkeypatch.undo()
    assert [len(frame.state) for frame in written] == [4, 4, 1, 1, 1, 1, 1], "what cannot be written is tried once more"
    assert [line.partition(":")[0] for line in lines] == ["AMQ8006I", "AMQ8006I", "AMQ8101S", "AMQ8006I"]
    assert "no space left on device" in lines[2]
    assert (report.read, report.failed) == (4, 1)
    shown = " ".join(run(rig, "DISPLAY QLOCAL(Q*) MAXDEPTH CURDEPTH")[0])
    assert [shown.count(text) for text in ("MAXDEPTH(9)", "MAXDEPTH(8)", "CURDEPTH(1)")] == [3, 1, 1]


def test_new_queues_that_cannot_be_saved_are_not_there(rig, monkeypatch):
    def full(_frame):
        raise StoreUnavailable("no space left on device")

    monkeypatch.setattr(rig.queue_manager.core.store, "write", full)
    _, report = run(rig, QUEUES)
    monkeypatch.undo()
    assert report.failed == 2 * MOST_TOGETHER
    assert run(rig, "DISPLAY QLOCAL(Q*)")[0] == ["AMQ8147E: IBM MQ object Q* not found."]
    assert not [name for name in rig.queue_manager.core.queues if name.startswith("Q")]
    assert run(rig, QUEUES)[1].ok


def test_what_is_on_its_way_is_told_before_queues_are_there_that_are_not_saved(rig, monkeypatch):
    """Whoever is told may put to the queues at once: that would be durable before the queue is."""
    core = rig.queue_manager.core
    settle, there = core.committer.settle, []
    monkeypatch.setattr(core.committer, "settle", lambda: there.append("Q0" in core.queues) or settle())
    assert run(rig, QUEUES)[1].ok
    assert there[0] is False
