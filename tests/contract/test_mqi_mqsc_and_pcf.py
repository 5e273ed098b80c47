"""MQSC and PCF say the same of every attribute of every object: both tables are walked."""

from __future__ import annotations

import re

import pytest

from gateway.mq import pcf
from gateway.queue_manager.commands.pcf_objects import BYTE_STRINGS, QUEUES
from gateway.queue_manager.objects.attributes import FLAGS, QUEUE_KINDS, TABLES, in_words

OBJECTS = """
DEFINE QLOCAL(OBJECT.QLOCAL)
DEFINE QMODEL(OBJECT.QMODEL)
DEFINE QALIAS(OBJECT.QALIAS) TARGET(OBJECT.QLOCAL)
DEFINE QREMOTE(OBJECT.QREMOTE) RNAME(THERE) RQMNAME(OTHER)
DEFINE TOPIC(OBJECT.TOPIC) TOPICSTR('plant')
DEFINE SUB(OBJECT.SUB) TOPICOBJ(OBJECT.TOPIC) TOPICSTR('line') DEST(OBJECT.QLOCAL) DESTCORL('00FF')
DEFINE NAMELIST(OBJECT.NAMELIST) NAMES(A,B)
DEFINE AUTHINFO(OBJECT.AUTHINFO) AUTHTYPE(IDPWOS)
DEFINE CHANNEL(OBJECT.CHANNEL) CHLTYPE(SVRCONN)
DEFINE PROCESS(OBJECT.PROCESS)
"""
INQUIRE = {"TOPIC": 174, "SUB": 176, "NAMELIST": 36, "AUTHINFO": 83, "CHANNEL": 25, "PROCESS": 7, "QMGR": 2}
CHANGE = {"TOPIC": 170, "SUB": 178, "NAMELIST": 32, "AUTHINFO": 79, "CHANNEL": 21, "PROCESS": 3, "QMGR": 1}
NAME = {"TOPIC": 2092, "SUB": 3152, "NAMELIST": 2010, "AUTHINFO": 2045, "CHANNEL": 3501, "PROCESS": 2012}
TITLES = {
    "QUEUE": 2016, "TYPE": 20, "QMNAME": 2015, "SUBID": 7016, "CURDEPTH": 3, "IPPROCS": 17, "OPPROCS": 18,
    "DEFTYPE": 7, "NAMCOUNT": 19, "CRDATE": 2004, "CRTIME": 2005, "ALTDATE": 2027, "ALTTIME": 2028, "CMDLEVEL": 31,
    "VERSION": 2120, "PLATFORM": 32, "COMMANDQ": 2003, "MAXPRTY": 14, "SYNCPT": 30, "DISTL": 34, "QMID": 2032,
}  # fmt: skip
"""What is shown beside the attributes that commands set."""
WORDS = {
    "TYPE": {1: "QLOCAL", 2: "QMODEL", 3: "QALIAS", 6: "QREMOTE"}, "PLATFORM": {3: "UNIX"}, "SYNCPT": {1: ""},
    "DISTL": {0: "NO", 1: "YES"}, "DEFTYPE": {1: "PREDEFINED", 2: "PERMDYN", 3: "TEMPDYN"},
}  # fmt: skip
FIXED = {
    "SUB": {"TOPICSTR", "TOPICOBJ", "DESTCLAS", "DURABLE", "SUBTYPE", "WSCHEMA", "SELECTOR", "SUBSCOPE", "EXPIRY"},
    "TOPIC": {"TOPICSTR"}, "QMGR": {"CCSID"}, "CHANNEL": {"CHLTYPE"}, "AUTHINFO": {"AUTHTYPE"},
}  # fmt: skip
"""What is not changed here: it cannot be, or it has to name something that is there."""


def command_of(kind):
    return ("ALTER QMGR", "DISPLAY QMGR") if kind == "QMGR" else (
        f"ALTER {kind}(OBJECT.{kind})", f"DISPLAY {kind}(OBJECT.{kind})"
    )  # fmt: skip


def displayed(mqi, kind):
    """Keyword to value, as `DISPLAY ... ALL` shows it."""
    lines = [line for line in mqi.mqsc(f"{command_of(kind)[1]} ALL") if re.match(r"   \S", line)]
    found = {}
    for line in lines:
        for item in (line[3:43], line[43:]) if len(line) > 43 and line[42] == " " else (line[3:],):
            word, _, value = item.strip().partition("(")
            if not value and word in FLAGS:
                word, value = FLAGS[word][0], word
            found[word] = value.removesuffix(")").strip()
    return found


def inquired(ask, kind):
    """Selector to value, as an Inquire command answers."""
    parameters = [] if kind == "QMGR" else [pcf.string(NAME.get(kind, QUEUES.name), f"OBJECT.{kind}")]
    [reply] = ask(INQUIRE.get(kind, 13), *parameters)
    return reply


def in_mqsc(kind, keyword, value):
    """A value of PCF as MQSC shows it."""
    attribute = next((one for one in TABLES[kind] if one.keyword == keyword), None)
    if isinstance(value, list):
        return ",".join(value)
    if isinstance(value, bytes):
        return value.hex().upper()
    if attribute is not None and isinstance(value, int):
        return in_words(attribute, value)
    return str(WORDS.get(keyword, {}).get(value, value))


def compare(kind, shown, answered):
    """Nothing is said in one and not in the other, and the values are the same."""
    selectors = {one.keyword: one.selector for one in TABLES[kind]}
    known = {**TITLES, "CHANNEL": 3501, "TOPIC": 2092, "SUB": 3152, "NAMELIST": 2010, "AUTHINFO": 2045, "PROCESS": 2012}
    by_selector = {selectors.get(word, known.get(word)): (word, value) for word, value in shown.items()}
    assert by_selector.keys() == answered.keys()
    for selector, (keyword, value) in by_selector.items():
        said = in_mqsc(kind, keyword, answered[selector])
        if selector in BYTE_STRINGS:
            said, value = said.ljust(64, "0"), value.upper().ljust(64, "0")
        assert said == value, (kind, keyword)


@pytest.mark.parametrize("kind", TABLES)
def test_display_and_inquire_say_the_same(mqi, ask, kind):
    mqi.mqsc(OBJECTS)
    compare(kind, displayed(mqi, kind), inquired(ask, kind))


def another(kind, attribute, now):
    """A value that is not the one it has, as (number or text)."""
    if attribute.is_text:
        if attribute.selector in BYTE_STRINGS:
            return "0A" * BYTE_STRINGS[attribute.selector]
        return "OTHER.NAME" if attribute.keyword != "NAMES" else "C,D,E"
    words = sorted(set(attribute.words.values())) if attribute.words else []
    low = max(attribute.low, 0)
    numbers = words if len(words) > 1 else [one for one in (low, low + 3, low + 4) if one <= attribute.high]
    return next(one for one in numbers if one != now)


def changeable(kind):
    """One after another on the same object; a queue has USAGE(XMITQ) or a STREAMQ (test_mqi_streams)."""
    return [one for one in TABLES[kind] if one.keyword not in {*FIXED.get(kind, ()), "STREAMQ"}]


def current(mqi, kind, attribute):
    found = mqi.queue_manager.core.catalogue
    family = "QUEUE" if kind in QUEUE_KINDS else kind
    return (found.queue_manager if kind == "QMGR" else found.get(family, f"OBJECT.{kind}")).attributes[
        attribute.keyword
    ]


@pytest.mark.parametrize("kind", TABLES)
def test_what_alter_sets_is_inquired(mqi, ask, kind):
    mqi.mqsc(OBJECTS)
    for attribute in changeable(kind):
        value = another(kind, attribute, current(mqi, kind, attribute))
        flag = next((word for word, pair in FLAGS.items() if pair == (attribute.keyword, value)), None)
        said = in_words(attribute, value)
        given = flag or (f"NAMES({said})" if attribute.keyword == "NAMES" else f"{attribute.keyword}('{said}')")
        mqi.mqsc(f"{command_of(kind)[0]} {given}")
        answered = inquired(ask, kind)
        assert in_mqsc(kind, attribute.keyword, answered[attribute.selector]) == said, (kind, attribute.keyword)
    compare(kind, displayed(mqi, kind), inquired(ask, kind))


@pytest.mark.parametrize("kind", TABLES)
def test_what_change_sets_is_displayed(mqi, ask, kind):
    mqi.mqsc(OBJECTS)
    title = [] if kind == "QMGR" else [pcf.string(NAME.get(kind, QUEUES.name), f"OBJECT.{kind}")]
    if kind in QUEUE_KINDS:
        title.append(pcf.integer(20, QUEUE_KINDS[kind]))
    if kind == "CHANNEL":
        title.append(pcf.integer(1511, 7))
    for attribute in changeable(kind):
        value = another(kind, attribute, current(mqi, kind, attribute))
        if attribute.keyword == "NAMES":
            given = pcf.strings(attribute.selector, value.split(","), size=48)
        elif attribute.selector in BYTE_STRINGS:
            given = pcf.byte_string(attribute.selector, bytes.fromhex(value))
        elif attribute.is_text:
            given = pcf.string(attribute.selector, value)
        else:
            given = pcf.integer(attribute.selector, value)
        ask(CHANGE.get(kind, 8), *title, given)
        assert displayed(mqi, kind)[attribute.keyword].upper() == in_words(attribute, value), (kind, attribute.keyword)
    compare(kind, displayed(mqi, kind), inquired(ask, kind))


def test_a_subscription_is_shown_with_its_whole_topic_string(mqi, ask):
    mqi.mqsc(OBJECTS)
    assert displayed(mqi, "SUB")["TOPICSTR"] == "plant/line"
    assert inquired(ask, "SUB")[2094] == "plant/line"
    mqi.mqsc("ALTER TOPIC(OBJECT.TOPIC) DESCR('changed')")
    assert displayed(mqi, "SUB")["TOPICOBJ"] == "OBJECT.TOPIC"
    assert any("OBJECT.SUB" in line for line in mqi.mqsc("DISPLAY SUB(*) WHERE(TOPICSTR EQ 'plant/line')"))


def test_what_connections_have_open_is_inquired(mqi, ask):
    mqi.open("A")
    kind, name, options = 1110, 3046, 1022
    assert {one[kind] for one in ask(85)} == {1111}
    handles = ask(85, pcf.integer(kind, 1112))
    assert [one[options] for one in handles if one[name] == "A"] == [2 | 8 | 16 | 32 | 64]
    assert {one[kind] for one in ask(85, pcf.integer(kind, 1113))} == {1111, 1112}


def test_a_topic_string_has_one_topic_object(mqi, ask):
    for made in ("ONE) TOPICSTR('plant/line')", "ONE) REPLACE TOPICSTR('plant/line')", "TWO) TOPICSTR('plant')"):
        mqi.mqsc(f"DEFINE TOPIC({made}")
    command = "DEFINE TOPIC(THREE) TOPICSTR('plant/line')"
    assert any("topic object ONE" in line for line in mqi.queue_manager.mqsc(command).lines)
    ask(172, pcf.string(2092, "THREE"), pcf.string(2094, "plant/line"), fails=3300)


@pytest.mark.parametrize(
    ("kind", "made", "altered"),
    [
        ("TOPIC(T)", "TOPICSTR('plant')", "TOPICSTR('line')"),
        ("SUB(S)", "TOPICSTR('plant') DEST(A)", "TOPICSTR('line')"),
        ("SUB(S)", "TOPICSTR('plant') DEST(A)", "TOPICOBJ(SYSTEM.BASE.TOPIC)"),
    ],
)
def test_what_an_object_is_about_is_not_altered(mqi, kind, made, altered):
    mqi.mqsc(f"DEFINE {kind} {made}")
    report = mqi.queue_manager.mqsc(f"ALTER {kind} {altered}")
    assert not report.ok
    assert "cannot be altered" in report.lines[1]
    mqi.mqsc(f"ALTER {kind} TOPICSTR('plant')")


def test_a_subscription_whose_selector_is_none_is_refused(mqi, ask):
    """It would be there, and get nothing."""
    mqi.mqsc("DEFINE SUB(S) TOPICSTR('plant') DEST(A) SELECTOR('line > 6')")
    for command in ("DEFINE SUB(T) TOPICSTR('plant') DEST(A)", "ALTER SUB(S)"):
        report = mqi.queue_manager.mqsc(f"{command} SELECTOR('line = = 7')")
        assert not report.ok
        assert "cannot be parsed at '='" in report.lines[1]
    ask(
        177,
        pcf.string(3152, "T"),
        pcf.string(2094, "plant"),
        pcf.string(3154, "A"),
        pcf.string(3160, "line ="),
        fails=2459,
    )
