"""MQPUT1: what it opens."""

from __future__ import annotations

import re
from contextlib import nullcontext

import pytest
from embedded_rig import MqiRig, md, refused

from gateway.errors import MQError
from gateway.mq import constants as mq
from gateway.mq import situations
from gateway.ports.mqi import ObjectDescriptor, PutOptions


@pytest.mark.parametrize(
    ("name", "fix"),
    [("GONE.Q", "DEFINE QLOCAL('GONE.Q') makes one"), ("TELEMETRY.{site}", "no queue can have this name")],
)
def test_how_a_queue_that_is_not_there_is_made(name: str, fix: str) -> None:
    """If a rule could not fill in its template, that is the destination of the dead letter."""
    rig = MqiRig(None, "")
    try:
        with pytest.raises(MQError, match=re.escape(f"no queue {name!r}: {fix}")):
            rig.connection.put1(ObjectDescriptor(name), md(), PutOptions(4), b"x")
    finally:
        rig.queue_manager.close()


@pytest.mark.parametrize("kind", [mq.MQOT_NAMELIST, mq.MQOT_PROCESS, mq.MQOT_Q_MGR, 9999])
def test_an_object_that_is_no_queue(kind: int) -> None:
    """2043, not 2045: the latter is about the options of MQOPEN, which the program has not given."""
    rig = MqiRig(None, "DEFINE NAMELIST(N) NAMES(A)\nDEFINE PROCESS(N)")
    try:
        with refused(mq.MQRC_OBJECT_TYPE_ERROR):
            rig.connection.put1(ObjectDescriptor("N", object_type=kind), md(), PutOptions(4), b"x")
    finally:
        rig.queue_manager.close()


def test_a_model_queue() -> None:
    """2057: otherwise a temporary queue would be made, and deleted with the message once the call is answered."""
    rig = MqiRig(None, "DEFINE QMODEL(M)\nDEFINE QLOCAL(A)")
    try:
        with refused(mq.MQRC_Q_TYPE_ERROR):
            rig.connection.put1(ObjectDescriptor("M"), md(), PutOptions(4), b"x")
        asking = md(report=mq.MQRO_COA, reply_to_q=b"M")
        rig.connection.put1(ObjectDescriptor("A"), asking, PutOptions(4), b"x")
        dead = rig.get(rig.open("SYSTEM.DEAD.LETTER.QUEUE"))
        assert situations.from_dead_letter(dead.md, dead.data).header.reason == mq.MQRC_Q_TYPE_ERROR
    finally:
        rig.queue_manager.close()


@pytest.mark.parametrize(
    ("flags", "length", "said"),
    [
        (mq.MQMF_SEGMENT, 0, "one"), (mq.MQMF_SEGMENT, -1, "one"), (mq.MQMF_LAST_SEGMENT, -1, ""),
        (mq.MQMF_LAST_SEGMENT, 2, "three"), (mq.MQMF_SEGMENT, 3, "three"), (mq.MQMF_LAST_SEGMENT, 0, ""),
    ],
)  # fmt: skip
def test_the_original_length_of_a_report_about_a_segment(flags: int, length: int, said: str) -> None:
    rig = MqiRig(None, "DEFINE QLOCAL(A)")
    fits = length >= len(said) and length >= 0
    try:
        for kind in (mq.MQMT_REPORT, mq.MQMT_DATAGRAM):
            put = md(type=kind, flags=flags, original_length=length, version=2, group_id=b"G" * 24)
            with nullcontext() if fits or kind == mq.MQMT_DATAGRAM else refused(mq.MQRC_ORIGINAL_LENGTH_ERROR):
                rig.connection.put1(ObjectDescriptor("A"), put, PutOptions(4), said.encode())
    finally:
        rig.queue_manager.close()
