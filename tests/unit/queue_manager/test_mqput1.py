"""MQPUT1: what it opens."""

from __future__ import annotations

import re

import pytest
from embedded_rig import MqiRig, md, refused

from gateway.errors import MQError
from gateway.mq import constants as mq
from gateway.ports.mqi import ObjectDescriptor, PutOptions


@pytest.mark.parametrize(
    ("name", "fix"),
    [("GONE.Q", "DEFINE QLOCAL('GONE.Q') makes one"), ("TELEMETRY.{site}", "no queue can have this name")],
)
def test_how_a_queue_that_is_not_there_is_made(name: str, fix: str) -> None:
    """The dead letter of a rule that gave no name has its template for a destination."""
    rig = MqiRig(None, "")
    try:
        with pytest.raises(MQError, match=re.escape(f"no queue {name!r}: {fix}")):
            rig.connection.put1(ObjectDescriptor(name), md(), PutOptions(4), b"x")
    finally:
        rig.queue_manager.close()


@pytest.mark.parametrize("kind", [mq.MQOT_NAMELIST, mq.MQOT_PROCESS, mq.MQOT_Q_MGR, 9999])
def test_an_object_that_is_no_queue(kind: int) -> None:
    """2043: the options of MQOPEN, about which 2045 is, are not the program's."""
    rig = MqiRig(None, "DEFINE NAMELIST(N) NAMES(A)\nDEFINE PROCESS(N)")
    try:
        with refused(mq.MQRC_OBJECT_TYPE_ERROR):
            rig.connection.put1(ObjectDescriptor("N", object_type=kind), md(), PutOptions(4), b"x")
    finally:
        rig.queue_manager.close()
