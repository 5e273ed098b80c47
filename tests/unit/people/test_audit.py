"""Records of the audit trail: no secret, no payload, bounded."""

from __future__ import annotations

import json

import pytest

from gateway.mq import mqmd
from gateway.people.audit import MOST_WAITING, REFUSED_A_MINUTE, Waiting, message_of, record
from gateway.ports.people import Caller

ANN = Caller("ann", "password", "operator")


def test_a_record_says_who_what_and_how_much() -> None:
    place, arguments = {"queue": "A.Q"}, {"confirm": "A.Q", "dry_run": False}
    found = record(ANN, "10.0.0.1", "DELETE /queues/{queue}/messages", place, arguments, 200, {"removed": 7}, 0.0)
    assert found == {
        "time": "1970-01-01T00:00:00.000Z", "user": "ann", "method": "password", "role": "operator",
        "address": "10.0.0.1", "action": "DELETE /queues/{queue}/messages", "on": place, "arguments": arguments,
        "status": 200, "succeeded": True, "count": {"removed": 7},
    }  # fmt: skip


@pytest.mark.parametrize("key", ["password", "token", "text", "base64", "properties", "code", "yaml"])
def test_secrets_and_payloads_are_not_kept(key: str) -> None:
    for value in ("hush-hush", {"a": "hush-hush"}, ["hush-hush"]):
        found = record(ANN, "", "POST /x", {}, {key: value}, 400, {"detail": "no", "other": "hush-hush"}, 0.0)
        assert "hush" not in json.dumps(found)
    assert found["why"] == "no"


def test_of_commands_the_beginnings_are_kept() -> None:
    text = "DEFINE QLOCAL(A.B) DESCR('hush')\n* a remark\n alter qmgr deadq(HUSH)\nDEFINE CHANNEL(X) PASSWORD('hush')\n"
    found = record(ANN, "", "POST /api/v1/mqsc", {}, {"text": text}, 200, {}, 0.0)
    assert found["arguments"] == {"text": ["DEFINE QLOCAL(A.B)", "alter qmgr", "DEFINE CHANNEL(X)"]}


def test_a_message_ends_by_itself_and_is_json_whatever_was_sent() -> None:
    md, body = message_of(record(ANN, "", "POST /\udcff", {}, {"a": "\ud800"}, 400, None, 0.0), 3600.0)
    assert mqmd.number(md, mqmd.AT_EXPIRY) == 36_000
    assert json.loads(body)["user"] == "ann"
    assert len(md) == 364


def test_refused_ones_are_thinned_and_counted_and_all_are_bounded() -> None:
    waiting = Waiting()
    refused = record(ANN, "", "GET /x", {}, {}, 401, None, 0.0)
    done = record(ANN, "", "POST /x", {}, {}, 200, None, 0.0)
    for _ in range(REFUSED_A_MINUTE + 5):
        waiting.add(refused, 100.0)
    assert len(waiting) == REFUSED_A_MINUTE
    waiting.add(done, 100.0)
    assert waiting.take()[-1]["thinned"] == 5
    waiting.add(refused, 161.0)
    assert waiting.take() == [refused]
    for _ in range(MOST_WAITING + 5):
        waiting.add(done, 200.0)
    assert len(waiting) == MOST_WAITING
