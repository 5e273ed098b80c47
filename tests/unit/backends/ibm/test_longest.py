"""How long a message may be, according to the definitions that a queue manager reports."""

from __future__ import annotations

import pytest

from gateway.backends.ibm.longest import limit_of, longest_on
from gateway.errors import MQError
from gateway.mq import constants as mq

LONGEST, BASE, XMITQ, MANAGER = (
    mq.MQIA_MAX_MSG_LENGTH, mq.MQCA_BASE_Q_NAME, mq.MQCA_XMIT_Q_NAME, mq.MQCA_REMOTE_Q_MGR_NAME,
)  # fmt: skip
KNOWN = {
    ("", LONGEST): 1_000_000,
    ("LOCAL", LONGEST): 5000,
    ("HUGE", LONGEST): 2_000_000,
    ("ALIAS", BASE): "LOCAL".ljust(48),
    ("TWICE", BASE): "ALIAS",
    ("FAR", XMITQ): "LOCAL",
    ("FAR", MANAGER): "QM2",
    ("AT.QM2", XMITQ): " " * 48,
    ("AT.QM2", MANAGER): "QM2",
    ("QM2", LONGEST): 3000,
    ("TINY", LONGEST): 100,
    ("THROUGH.TINY", XMITQ): "TINY",
    ("AS.BEFORE", LONGEST): -1,
}


def inquire(queue: str, selector: int) -> int | str:
    if (queue, selector) not in KNOWN:
        raise MQError(2085 if queue == "MISSING" else 2068, "not of this kind")
    return KNOWN[queue, selector]


@pytest.mark.parametrize(
    ("queue", "own", "whole"),
    [
        ("LOCAL", 5000, 5000), ("HUGE", 2_000_000, 1_000_000), ("ALIAS", 5000, 5000), ("FAR", 4500, 4500),
        ("AT.QM2", 2500, 2500), ("THROUGH.TINY", 0, 0), ("TWICE", None, 1_000_000), ("MISSING", None, 1_000_000),
        ("AS.BEFORE", None, 1_000_000),
    ],
)  # fmt: skip
def test_each_kind_of_queue(queue: str, own: int | None, whole: int) -> None:
    assert (limit_of(inquire, queue), longest_on(inquire, queue)) == (own, whole)


def test_a_queue_manager_that_is_away_is_an_error() -> None:
    def away(_queue: str, _selector: int) -> int | str:
        raise MQError(2009, "connection broken")

    with pytest.raises(MQError):
        longest_on(away, "LOCAL")


def test_nothing_that_may_be_asked() -> None:
    def refused(_queue: str, _selector: int) -> int | str:
        raise MQError(2035, "not authorized")

    assert longest_on(refused, "LOCAL") is None
