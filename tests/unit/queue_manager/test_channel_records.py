"""Channel authentication records: which one counts, whom it lets in and as which user, and the commands on them."""

from __future__ import annotations

import getpass

import pytest
from embedded_rig import MqiRig

from gateway.errors import ConfigurationError, MQError
from gateway.queue_manager.objects.channel_records import is_address_like, is_address_pattern, is_like

USERS = {"ana": "secret", "boss": "chief"}


@pytest.fixture
def rig():
    made = MqiRig(None, users=USERS)
    made.queue_manager.authority.set_users(USERS, None, ["boss"])
    yield made
    made.queue_manager.close()


def run(rig, text):
    report = rig.queue_manager.mqsc(text)
    return [line for line in report.lines if not line.startswith("     ")]


def connected_as(rig, channel="APP.SVRCONN", user="ana", password=None):
    """Returns the user that a program runs as; None: refused with 2035."""
    try:
        connection = rig.queue_manager.connect(user=user, password=password, channel=channel)
    except MQError as error:
        if error.reason != 2035:
            raise
        return None
    found = connection.state.user
    connection.disconnect()
    return found


def test_a_new_queue_manager_lets_nobody_administer_unproved(rig):
    """CHCKCLNT(OPTIONAL) here too: only channels of programs do without a password."""
    for channel in ("SYSTEM.ADMIN.SVRCONN", "DEV.ADMIN.SVRCONN", "PLANT.ADMIN.SVRCONN"):
        assert connected_as(rig, channel) is None, channel
        assert connected_as(rig, channel, "boss") is None
        assert connected_as(rig, channel, "ana", "wrong") is None
        assert connected_as(rig, channel, "ana", "secret") == "ana"
    assert connected_as(rig, "SYSTEM.ADMIN.SVRCONN", "boss", "chief") is None, "*MQADMIN"
    assert connected_as(rig, "DEV.ADMIN.SVRCONN", "boss", "chief") == "boss"
    assert connected_as(rig, "SYSTEM.DEF.SVRCONN", "ana", "secret") is None
    assert connected_as(rig, "APP.SVRCONN") == "ana"
    assert connected_as(rig, "APP.SVRCONN", "boss") is None, "*MQADMIN is blocked on every channel"
    assert connected_as(rig, "APP.SVRCONN", "boss", "chief") is None
    assert connected_as(rig, "APP.SVRCONN", "mqgate") is None, "the queue manager's own user"
    assert connected_as(rig, "", "boss") == "boss", "no channel: no record is asked"
    run(rig, "ALTER QMGR CHLAUTH(DISABLED)")
    assert connected_as(rig, "DEV.ADMIN.SVRCONN") == "ana"


def test_the_user_of_the_process_is_no_privileged_user_of_channels(rig):
    """The socket and the journal belong to the user of the process: programs that it runs come through channels without
    a password, except through those for administrators."""
    own = getpass.getuser()
    assert connected_as(rig, "APP.SVRCONN", own) == own
    assert connected_as(rig, "DEV.ADMIN.SVRCONN", own) is None
    assert connected_as(rig, "SYSTEM.ADMIN.SVRCONN", own) is None
    rig.queue_manager.authority.set_users(USERS, None, [own])
    assert connected_as(rig, "APP.SVRCONN", own) is None, "but when the settings name it"


def test_a_refused_program_may_come_again_and_the_refusal_names_the_record(rig):
    with pytest.raises(MQError, match=r"SYSTEM\.DEF\.SVRCONN .* CHLAUTH\('SYSTEM\.\*'\) TYPE\(ADDRESSMAP\)"):
        rig.queue_manager.connect(user="ana", channel="SYSTEM.DEF.SVRCONN")
    assert connected_as(rig, "DEV.ADMIN.SVRCONN") is None
    assert connected_as(rig, "DEV.ADMIN.SVRCONN", "ana", "secret") == "ana"


RULES = """
SET CHLAUTH('*') TYPE(ADDRESSMAP) ADDRESS('*') USERSRC(NOACCESS)
SET CHLAUTH('APP.*') TYPE(ADDRESSMAP) ADDRESS('127.*') USERSRC(MAP) MCAUSER('local')
SET CHLAUTH('APP.*') TYPE(USERMAP) CLNTUSER('ana') USERSRC(MAP) MCAUSER('anna')
SET CHLAUTH('APP.ONE') TYPE(ADDRESSMAP) ADDRESS('*') USERSRC(CHANNEL)
SET CHLAUTH('APP.TWO') TYPE(ADDRESSMAP) ADDRESS('127.0.0.1') USERSRC(MAP) MCAUSER('exact')
SET CHLAUTH('APP.TWO') TYPE(ADDRESSMAP) ADDRESS('127.0.0.*') USERSRC(NOACCESS)
SET CHLAUTH('APP.TWO') TYPE(SSLPEERMAP) SSLPEER('CN=x*') USERSRC(MAP) MCAUSER('certified')
"""


@pytest.mark.parametrize(("channel", "user", "expected"), [
    ("OTHER", "ana", None), ("APP.X", "bob", "local"), ("APP.X", "ana", "anna"), ("APP.ONE", "ana", "ana"),
    ("APP.TWO", "ana", "exact"),
])  # fmt: skip
def test_the_most_specific_record_counts(rig, channel, user, expected):
    """First the channel decides, then the certificate, then the user, then the address."""
    assert set(run(rig, RULES)) == {"AMQ8877I: IBM MQ channel authentication record set."}
    assert connected_as(rig, channel, user) == expected


@pytest.mark.parametrize(("given", "expected"), [
    ("'APP.X') MATCH(RUNCHECK) CLNTUSER('bob') ADDRESS('127.0.0.9'", "MCAUSER(local)"),
    ("'APP.X') MATCH(RUNCHECK) CLNTUSER('bob') ADDRESS('10.0.0.9'", "USERSRC(NOACCESS)"),
    ("'APP.TWO') MATCH(RUNCHECK) CLNTUSER('b') ADDRESS('10.1.1.1') SSLPEER('CN=xyz, O=Plant'", "MCAUSER(certified)"),
    ("'APP.TWO') MATCH(RUNCHECK) CLNTUSER('ana') ADDRESS('10.1.1.1') SSLPEER('CN=abc'", "MCAUSER(anna)"),
    ("'X.ADMIN.SVRCONN') MATCH(RUNCHECK) CLNTUSER('b') ADDRESS('1.2.3.4'", "CHCKCLNT(REQUIRED)"),
    ("'SYSTEM.ADMIN.SVRCONN') MATCH(RUNCHECK) CLNTUSER('boss') ADDRESS('1.2.3.4'", "TYPE(BLOCKUSER)"),
])  # fmt: skip
def test_a_connection_can_be_tried(rig, given, expected):
    run(rig, RULES)
    shown = run(rig, f"DISPLAY CHLAUTH({given}) ALL")
    assert shown.count("AMQ8878I: Display channel authentication record details.") == 1
    assert expected in " ".join(shown)


def test_users_and_addresses_are_blocked(rig):
    run(rig, "SET CHLAUTH('APP.*') TYPE(BLOCKUSER) USERLIST('ana','*MQADMIN')")
    assert connected_as(rig, "APP.X", "ana", "secret") is None
    assert connected_as(rig, "APP.X", "boss", "chief") is None
    assert connected_as(rig, "APP.X", "bob") == "bob"
    assert connected_as(rig, "OTHER", "boss", "chief") is None, "as on every channel"
    run(rig, "SET CHLAUTH('APP.X') TYPE(BLOCKUSER) USERLIST('nobody')")
    assert connected_as(rig, "APP.X", "boss", "chief") == "boss", "the list of the more specific name alone counts"
    run(rig, "SET CHLAUTH('APP.*') TYPE(BLOCKUSER) USERLIST('ana') ACTION(REMOVE)")
    assert connected_as(rig, "APP.Y", "ana") == "ana"
    run(rig, "SET CHLAUTH('APP.*') TYPE(BLOCKUSER) USERLIST('ana') WARN(YES) ACTION(REPLACE)")
    assert connected_as(rig, "APP.Y", "ana") == "ana", "only a warning"
    run(rig, "SET CHLAUTH('*') TYPE(BLOCKADDR) ADDRLIST('10.0.0.1','127.0.0.1-3')")
    assert connected_as(rig, "APP.Y", "bob") is None
    assert connected_as(rig, "", "bob") == "bob"


def test_who_a_user_becomes_is_what_is_blocked(rig):
    run(rig, "SET CHLAUTH('APP.X') TYPE(USERMAP) CLNTUSER('ana') USERSRC(MAP) MCAUSER('boss')")
    assert connected_as(rig, "APP.X") is None
    run(rig, "SET CHLAUTH('APP.X') TYPE(BLOCKUSER) USERLIST('nobody')")
    assert connected_as(rig, "APP.X") == "boss"


def test_channels_have_users_of_their_own(rig):
    run(rig, "DEFINE CHANNEL(APP.OWN) CHLTYPE(SVRCONN) MCAUSER('guest')")
    assert connected_as(rig, "APP.OWN", "ana") == "guest"
    assert connected_as(rig, "APP.OWN", "ana", "secret") == "ana", "who proves who he is runs as that"


@pytest.mark.parametrize(("check", "record", "user", "password", "expected"), [
    ("OPTIONAL", "ASQMGR", "ana", None, "ana"), ("OPTIONAL", "REQUIRED", "ana", None, None),
    ("OPTIONAL", "REQDADM", "ana", None, "ana"), ("OPTIONAL", "REQDADM", "boss", None, None),
    ("REQDADM", "ASQMGR", "boss", None, None), ("REQDADM", "ASQMGR", "ana", None, "ana"),
    ("REQDADM", "ASQMGR", "boss", "chief", "boss"), ("REQUIRED", "ASQMGR", "ana", None, None),
    ("NONE", "ASQMGR", "ana", "wrong", "ana"), ("NONE", "REQUIRED", "ana", None, None),
    ("", "REQUIRED", "ana", None, "ana"),
])  # fmt: skip
def test_a_record_may_want_more_than_the_queue_manager(rig, check, record, user, password, expected):
    if check:
        run(rig, f"ALTER AUTHINFO(SYSTEM.DEFAULT.AUTHINFO.IDPWOS) CHCKCLNT({check})")
    else:
        run(rig, "ALTER QMGR CONNAUTH(' ')")
    run(rig, "SET CHLAUTH('APP.X') TYPE(BLOCKUSER) USERLIST('nobody')")
    run(rig, f"SET CHLAUTH('APP.X') TYPE(ADDRESSMAP) ADDRESS('*') USERSRC(CHANNEL) CHCKCLNT({record})")
    assert connected_as(rig, "APP.X", user, password) == expected


def test_records_are_added_replaced_and_removed(rig):
    one = "SET CHLAUTH('A.*') TYPE(USERMAP) CLNTUSER('ana') USERSRC(MAP) MCAUSER('b')"
    assert run(rig, one)[0].startswith("AMQ8877I")
    assert run(rig, one)[0].startswith("AMQ8882E"), "it is there"
    assert run(rig, f"{one} ACTION(REPLACE)")[0].startswith("AMQ8877I")
    gone = "SET CHLAUTH('A.*') TYPE(USERMAP) CLNTUSER('ana') ACTION(REMOVE)"
    assert run(rig, gone)[0].startswith("AMQ8877I")
    assert run(rig, gone)[0].startswith("AMQ8884E")
    run(rig, one)
    assert run(rig, "SET CHLAUTH('A.*') TYPE(USERMAP) ACTION(REMOVEALL)")[0].startswith("AMQ8877I")
    assert run(rig, "DIS CHLAUTH('A.*')")[0].startswith("AMQ8884E")


@pytest.mark.parametrize("text", [
    "('A')", "('A') TYPE(NONE)", "('A') TYPE(ADDRESSMAP) USERSRC(CHANNEL)", "('A') TYPE(USERMAP) USERSRC(CHANNEL)",
    "('A') TYPE(ADDRESSMAP) ADDRESS('*')", "('A') TYPE(ADDRESSMAP) ADDRESS('*') USERSRC(NOACCESS) MCAUSER('x')",
    "('A') TYPE(ADDRESSMAP) ADDRESS('*') USERSRC(ALL)", "('A') TYPE(ADDRESSMAP) ADDRESS('300.1.1.1') USERSRC(CHANNEL)",
    "('A') TYPE(ADDRESSMAP) ADDRESS('9-1.*') USERSRC(CHANNEL)", "('A') TYPE(BLOCKADDR) ADDRLIST('10.0.0.1')",
    "('A') TYPE(BLOCKUSER)", "('A') TYPE(BLOCKUSER) USERLIST('x') ADDRESS('*')", "TYPE(BLOCKUSER) USERLIST('x')",
    "('A') TYPE(USERMAP) CLNTUSER('x') USERSRC(CHANNEL) COLOUR(RED)",
    "('A') TYPE(USERMAP) CLNTUSER('x') USERSRC(CHANNEL) CHCKCLNT(MAYBE)",
    "('A') TYPE(BLOCKUSER) USERLIST('x') ACTION(FORGET)",
])  # fmt: skip
def test_what_is_no_record_is_refused(rig, text):
    before = list(rig.queue_manager.channels.records)
    assert not rig.queue_manager.mqsc(f"SET CHLAUTH{text}").ok
    assert rig.queue_manager.channels.records == before


@pytest.mark.parametrize("text", [
    "('A.*') MATCH(RUNCHECK) CLNTUSER('x') ADDRESS('1.1.1.1')", "('A') MATCH(RUNCHECK) CLNTUSER('x')",
    "('A') MATCH(RUNCHECK) ADDRESS('1.1.1.1')", "('A') MATCH(SOME)", "('A') TYPE(SOME)", "('NONE')",
])  # fmt: skip
def test_what_cannot_be_displayed(rig, text):
    assert not rig.queue_manager.mqsc(f"DISPLAY CHLAUTH{text}").ok


def test_records_are_kept_and_what_was_removed_stays_away(tmp_path):
    text = "SET CHLAUTH('APP.X') TYPE(USERMAP) CLNTUSER('ana') USERSRC(MAP) MCAUSER('b')"
    first = MqiRig(tmp_path, text)
    first.mqsc("SET CHLAUTH('*.ADMIN.SVRCONN') TYPE(ADDRESSMAP) ADDRESS('*') ACTION(REMOVE)")
    shown = run(first, "DISPLAY CHLAUTH('*') ALL")
    first.queue_manager.close()
    again = MqiRig(tmp_path, text)
    assert run(again, "DISPLAY CHLAUTH('*') ALL") == shown, "the text of the settings adds nothing that is there"
    assert connected_as(again, "APP.X") == "b"
    assert connected_as(again, "DEV.ADMIN.SVRCONN") == "ana"
    again.queue_manager.close()


def test_a_wrong_record_among_the_objects_stops_the_start():
    with pytest.raises(ConfigurationError, match="BLOCKADDR"):
        MqiRig(None, "SET CHLAUTH('A') TYPE(BLOCKADDR) ADDRLIST('10.0.0.1')")


@pytest.mark.parametrize(("pattern", "address", "fits"), [
    ("*", "10.1.2.3", True), ("10.1.2.3", "10.1.2.3", True), ("10.*", "10.1.2.3", True), ("10.*.2.3", "10.9.2.3", True),
    ("10.1-5.2.3", "10.5.2.3", True), ("10.1-5.2.3", "10.6.2.3", False), ("10.1", "10.1.2.3", False),
    ("2001:db8:*", "2001:db8::1", True), ("2001:0-f:*", "2001:db8::1", False), ("::1", "::1", True),
    ("10.1.2.3", "2001:db8::1", False), ("10.*", "2001:db8::1", False),
])  # fmt: skip
def test_addresses(pattern, address, fits):
    assert is_address_like(pattern, address) is fits


@pytest.mark.parametrize(
    "pattern", ["", "a", "1.2.3", "1.2.3.4.5", "1.2.3.256", "-1.2.3.4", "2-1.*", "1.2.3.4/8", "::zz"]
)
def test_what_is_no_address(pattern):
    assert not is_address_pattern(pattern)


def test_names_of_channels():
    assert is_like("*.ADMIN.SVRCONN", "DEV.ADMIN.SVRCONN")
    assert is_like("A*C", "ABC")
    assert not is_like("A.C", "ABC")
    assert not is_like("A*C", "ABCD")
