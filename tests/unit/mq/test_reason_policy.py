"""The table of reason codes."""

from __future__ import annotations

from typing import get_args

import pytest

from gateway.mq.constants import name_of_reason
from gateway.mq.reason_policy import (
    TABLE,
    TOO_LONG,
    UNKNOWN,
    Action,
    ReasonPolicy,
    action_for,
    concerns_destination,
    explain,
    policy_for,
)
from gateway.ports.counters import DeadLetterReason, DropReason

NO_CODE = 9999


def test_every_code_has_a_name() -> None:
    assert [code for code in TABLE if str(code) in name_of_reason(code)] == []


def test_an_operator_is_told_what_to_do_about_every_code_that_is_an_error() -> None:
    assert [code for code, policy in TABLE.items() if not policy.advice and policy.action is not Action.NORMAL] == []


def test_who_is_not_let_in_looks_at_the_password_first() -> None:
    """For a wrong password the advice was about missing authorities."""
    told = explain(2035, "connecting to QM1")
    assert told.index("password") < told.index("authorities.sh")


def test_the_labels_are_those_of_the_metrics() -> None:
    assert {policy.dead_letter for policy in TABLE.values()} <= {*get_args(DeadLetterReason)}
    assert {policy.drop for policy in TABLE.values()} <= {*get_args(DropReason)}


def test_an_unknown_code_loses_nothing_and_holds_up_nothing() -> None:
    assert policy_for(NO_CODE) == UNKNOWN == ReasonPolicy(Action.RETRY, "")
    assert concerns_destination(NO_CODE)


def test_an_explanation_names_the_code_and_what_to_do() -> None:
    assert explain(2053, "putting to Q") == (
        "putting to Q: MQRC_Q_FULL (2053): the queue is at MAXDEPTH: consume from it or raise MAXDEPTH"
    )
    assert explain(2033) == "MQRC_NO_MSG_AVAILABLE (2033)"


@pytest.mark.parametrize("code", [2009, 2025, 2059, 2161, 2203, 2537, 2538])
def test_broken_connections_are_made_again(code: int) -> None:
    assert action_for(code) is Action.RECONNECT


@pytest.mark.parametrize("code", [2110, 2111, 2115, 2119, 2120, 2190, 2141, 2260, 2010, 2030, 2031, 2218, 2425, 2478])
def test_a_message_that_can_never_be_put_is_dead_lettered(code: int) -> None:
    assert action_for(code) is Action.DEAD_LETTER
    assert concerns_destination(code)


@pytest.mark.parametrize("code", [2003, 2102, 2192, 2195, 2219])
def test_what_the_queue_manager_cannot_do_at_all_is_held(code: int) -> None:
    assert action_for(code) is Action.HOLD
    assert not concerns_destination(code)


@pytest.mark.parametrize("code", [2017, 2019, 2041, 2051, 2053, 2479])
def test_what_one_destination_cannot_take_now_is_retried(code: int) -> None:
    assert action_for(code) is Action.RETRY
    assert concerns_destination(code)


@pytest.mark.parametrize("code", [2001, 2035, 2082, 2085, 2198, 2199])
def test_what_an_operator_has_to_correct_concerns_its_destination_alone(code: int) -> None:
    assert action_for(code) is Action.CONFIGURATION
    assert concerns_destination(code)


def test_only_what_is_longer_than_a_queue_takes_is_cut() -> None:
    assert {2030, 2031} == TOO_LONG
    assert 2218 not in TOO_LONG  # segments of the queue's length would be as long as the channel's limit, or longer
