"""MQSC text parsed into commands."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.queue_manager.commands.mqsc_parse import MqscSyntaxError, Parameter, commands, parse


def one(text):
    return parse(*next(commands(text)))


def test_lines_comments_continuations():
    text = "* a comment\n\nDEFINE QLOCAL(A) +\n   MAXDEPTH(5)\nALTER QLOCAL(A) DESCR('one tw-\no')\n* end\nPING QMGR;\n"
    assert list(commands(text)) == [
        (3, "DEFINE QLOCAL(A) MAXDEPTH(5)"),
        (5, "ALTER QLOCAL(A) DESCR('one two')"),
        (8, "PING QMGR"),
    ]


def test_comments_behind_blanks():
    text = "  * one\nDEFINE QLOCAL(A) +\n   * of these, (\n\t*\n   MAXDEPTH(5)\nDIS QL( +\n  *) +\n* three\n DESCR\n"
    assert list(commands(text)) == [(2, "DEFINE QLOCAL(A) MAXDEPTH(5)"), (6, "DIS QL( *) DESCR")]
    assert list(commands("ALTER QL(A) DESCR('one +\n  * two')")) == [(1, "ALTER QL(A) DESCR('one * two')")]


def test_what_ends_a_line_elsewhere_may_stand_in_a_value():
    for character in "\u2028\u2029\x85\x0b\x0c\x1c":
        assert one(f"DEFINE QLOCAL(A) DESCR('one{character}DELETE QLOCAL(B)')").parameters == [
            Parameter("DESCR", [f"one{character}DELETE QLOCAL(B)"])
        ]
    assert [text for _, text in commands("PING A\r\nPING B\rPING C\n")] == ["PING A", "PING B", "PING C"]


def test_case_and_quotes():
    command = one("define qlocal('MixedCase') descr('it''s') boqname(lower) replace")
    assert (command.verb, command.object, command.name) == ("DEFINE", "QLOCAL", "MixedCase")
    assert command.parameters == [
        Parameter("DESCR", ["it's"]),
        Parameter("BOQNAME", ["LOWER"]),
        Parameter("REPLACE", None),
    ]


def test_lists_parentheses_and_filters():
    assert one("DEFINE NAMELIST(N) NAMES(A, 'b' ,C)").parameters == [Parameter("NAMES", ["A", "b", "C"])]
    assert one("ALTER CHL(C) CONNAME('h(1414)')").parameters == [Parameter("CONNAME", ["h(1414)"])]
    assert one("DIS QL(*) WHERE(DESCR LK 'x*')").parameters == [Parameter("WHERE", ["DESCR", "LK", "x*"])]
    assert one("ALTER QMGR DEADQ(' ')").parameters == [Parameter("DEADQ", [""])]


@pytest.mark.parametrize(
    "text", ["DEFINE QLOCAL(A", "DEFINE QLOCAL(A) DESCR('x", "DEFINE QLOCAL(A,B)", "DEFINE QLOCAL(A) =", "(A)"]
)
def test_what_cannot_be_read(text):
    with pytest.raises(MqscSyntaxError, match="line 1: AMQ8405I"):
        one(text)


@given(st.text(alphabet="DEFINE qlocal(A)'\"+-*;,\n ", max_size=80))
def test_any_text_is_read_or_refused(text):
    for line, command in commands(text):
        with suppress(MqscSyntaxError):
            assert parse(line, command).line == line
