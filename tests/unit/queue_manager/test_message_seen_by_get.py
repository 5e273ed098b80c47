"""What a getter sees: conversion and the buffer, whatever the message is."""

from __future__ import annotations

from embedded_rig import md
from hypothesis import given
from hypothesis import strategies as st

from gateway.ports.mqi import Got
from gateway.queue_manager import descriptor
from gateway.queue_manager.verbs import mqget

CCSIDS = st.sampled_from([0, 37, 500, 819, 1200, 1208, 60000])
ENCODINGS = st.sampled_from([0, 273, 546, 785])
FORMATS = st.sampled_from([b"", b"MQSTR", b"MQDEAD", b"MQHRF2", b"MQADMIN", b"MQIMSVS", b"OWNKIND"])


def described(got: Got) -> tuple[int, int]:
    return descriptor.integer(got.md, "ccsid"), descriptor.integer(got.md, "encoding")


@given(
    form=FORMATS,
    data=st.binary(max_size=60) | st.text(max_size=30).map(str.encode),
    source=st.tuples(CCSIDS, ENCODINGS),
    target=st.tuples(CCSIDS, ENCODINGS),
    room=st.integers(0, 80),
    accept=st.booleans(),
)
def test_whatever_arrives(form, data, source, target, room, accept):
    before = md(format=form, ccsid=source[0], encoding=source[1])
    got = Got(before, data, len(data), "Q")
    mqget.convert_data(got, md(ccsid=target[0], encoding=target[1]), room, 1208, accept=accept)
    taken = mqget.fit_buffer(got, room, accept=accept)
    assert len(got.data) <= room
    assert (got.comp_code == 1) == (got.reason != 0)
    assert taken is (got.reason != 2080)
    if got.reason in {2080, 2110, 2111, 2115, 2120} and form not in {b"MQDEAD", b"MQHRF2", b"MQADMIN"}:
        assert (got.data, got.length, described(got)) == (data[:room], len(data), source)
    if got.reason == 0:
        assert got.length == len(got.data)


def test_text_that_shrinks_into_the_buffer_is_whole():
    text = "größe".encode()
    got = Got(md(format=b"MQSTR", ccsid=1208), text, len(text), "Q")
    mqget.convert_data(got, md(ccsid=819), 5, 1208, accept=True)
    assert mqget.fit_buffer(got, 5, accept=True)
    assert (got.data, got.length, got.reason) == ("größe".encode("latin-1"), 5, 0)
