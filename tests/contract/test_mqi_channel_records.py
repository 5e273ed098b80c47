"""MQSC and PCF say the same of channel authentication records, and set the same: each type is walked."""

from __future__ import annotations

import re

import pytest

from gateway.mq import pcf
from gateway.queue_manager.commands.channel_commands import LISTS, SELECTORS, WORDS

SET, INQUIRE, ACTION, MATCH = 203, 204, 1086, 1637
RECORDS = {
    "BLOCKUSER": {"USERLIST": ["ana", "*MQADMIN"], "WARN": "YES"},
    "BLOCKADDR": {"ADDRLIST": ["10.0.0.1", "10.1.*"], "WARN": "NO"},
    "SSLPEERMAP": {"SSLPEER": "CN=x,O=Plant", "SSLCERTI": "CN=ca", "ADDRESS": "10.*", "USERSRC": "NOACCESS", "WARN":
                   "YES"},
    "ADDRESSMAP": {"ADDRESS": "10.0.0.1-9", "USERSRC": "CHANNEL", "CHCKCLNT": "REQUIRED", "CUSTOM": "x"},
    "USERMAP": {"CLNTUSER": "ana", "USERSRC": "MAP", "MCAUSER": "anna", "CHCKCLNT": "REQDADM", "ADDRESS": "10.*"},
    "QMGRMAP": {"QMNAME": "QM*", "USERSRC": "MAP", "MCAUSER": "anna"},
}  # fmt: skip


def parameters(kind, given):
    values = {"CHLAUTH": "*" if kind == "BLOCKADDR" else "OBJECT.CHL", "TYPE": kind, "DESCR": "one", **given}
    for keyword, value in values.items():
        if keyword in WORDS:
            yield pcf.integer(SELECTORS[keyword], WORDS[keyword][value])
        elif keyword in LISTS:
            yield pcf.strings(SELECTORS[keyword], value)
        else:
            yield pcf.string(SELECTORS[keyword], value)


def displayed(mqi, kind):
    lines = mqi.mqsc(f"DISPLAY CHLAUTH('*') TYPE({kind}) WHERE(DESCR EQ one) ALL")
    found = {}
    for line in (line for line in lines if re.match(r"   \S", line)):
        for item in (line[3:43], line[43:]) if len(line) > 43 and line[42] == " " else (line[3:],):
            word, _, value = item.strip().partition("(")
            found[word] = value.removesuffix(")").strip()
    return found


def in_words(keyword, value):
    if keyword in WORDS:
        return next(word for word, number in WORDS[keyword].items() if number == value)
    return ",".join(value) if isinstance(value, list) else value


@pytest.mark.parametrize("kind", RECORDS)
def test_what_pcf_sets_mqsc_displays_and_pcf_inquires(mqi, ask, kind):
    ask(SET, *parameters(kind, RECORDS[kind]))
    shown = displayed(mqi, kind)
    for keyword, value in RECORDS[kind].items():
        assert shown[keyword] == (",".join(value) if isinstance(value, list) else value)
    replies = ask(INQUIRE, pcf.string(SELECTORS["CHLAUTH"], "*"), pcf.integer(SELECTORS["TYPE"], WORDS["TYPE"][kind]))
    [reply] = [one for one in replies if one[SELECTORS["DESCR"]] == "one"]
    assert set(reply) == {SELECTORS[word] for word in shown}
    for keyword, value in shown.items():
        assert in_words(keyword, reply[SELECTORS[keyword]]) == value, keyword
    name = pcf.string(SELECTORS["CHLAUTH"], shown["CHLAUTH"])
    of_type = pcf.integer(SELECTORS["TYPE"], WORDS["TYPE"][kind])
    if kind.endswith("MAP"):
        ask(SET, *parameters(kind, RECORDS[kind]), fails=3337)
    ask(SET, name, of_type, pcf.integer(ACTION, 8))
    ask(SET, name, of_type, pcf.integer(ACTION, 8), fails=3338)


def test_a_connection_is_tried_with_pcf(mqi, ask):
    name = pcf.string(SELECTORS["CHLAUTH"], "DEV.ADMIN.SVRCONN")
    client, address = pcf.string(SELECTORS["CLNTUSER"], "ana"), pcf.string(SELECTORS["ADDRESS"], "10.0.0.1")
    [reply] = ask(INQUIRE, name, client, address, pcf.integer(MATCH, 1))
    assert reply[SELECTORS["CHCKCLNT"]] == WORDS["CHCKCLNT"]["REQUIRED"]
    ask(INQUIRE, name, client, pcf.integer(MATCH, 1), fails=3350)
    ask(INQUIRE, pcf.string(SELECTORS["CHLAUTH"], "NONE"), fails=3338)
    ask(SET, name, fails=3326)
    ask(SET, name, pcf.integer(SELECTORS["TYPE"], 9), fails=3326)
    ask(SET, name, pcf.integer(SELECTORS["TYPE"], 1), pcf.string(SELECTORS["USERLIST"], "nobody"))
    ask(SET, name, pcf.integer(9999, 1), fails=3014)
