"""Group sequences: a message's descriptor says what the message itself says about its place in a group."""

from __future__ import annotations

import pytest

from gateway.bridge.inbound import Origin, plan
from gateway.bridge.payload import Body
from gateway.errors import ConfigurationError, Refused
from gateway.mq import mqmd
from gateway.routing.table import compile_mappings
from gateway.rules.feedback import Feedback
from gateway.rules.parse import parse_mappings

BY_PROPERTY = "group_by: '{client}', group_sequence: '{property.part}', group_last: '{property.last}'"
BY_FIELD = "group_by: '{json.upload}', group_sequence: '{json.n}', group_last: '{json.last}'"
IN_GROUP, LAST = 8, 16


def table(text: str):
    return compile_mappings(parse_mappings([("m.yaml", f"to_mq: [{{name: r, topic: '#', queue: Q, {text}}}]\n")]))


def md_of(text: str, users: list[tuple[str, str]], payload: bytes = b"{}") -> mqmd.Mqmd:
    [prepared] = plan(table(text), Origin("dev", "", "t", 1), {0x26: users} if users else {}).prepared
    return mqmd.unpack(prepared.build(1, Body(payload), 0.0).head)


def test_parts_of_an_upload_are_one_group_in_order() -> None:
    parts = [md_of(BY_PROPERTY, [("part", str(n)), *([("last", "true")] if n == 3 else [])]) for n in (1, 2, 3)]
    assert len({part.group_id for part in parts}) == 1
    assert [part.msg_seq_number for part in parts] == [1, 2, 3]
    assert [part.msg_flags for part in parts] == [IN_GROUP, IN_GROUP, IN_GROUP | LAST]


def test_fields_of_the_payload_number_too() -> None:
    first = md_of(BY_FIELD, [], b'{"upload": "a", "n": 1, "last": false}')
    last = md_of(BY_FIELD, [], b'{"upload": "a", "n": 2, "last": true}')
    other = md_of(BY_FIELD, [], b'{"upload": "b", "n": 1}')
    assert first.group_id == last.group_id != other.group_id
    assert (first.msg_seq_number, first.msg_flags) == (1, IN_GROUP)
    assert (last.msg_seq_number, last.msg_flags) == (2, IN_GROUP | LAST)


@pytest.mark.parametrize("number", ["0", "-1", "x", "", "1.5", "1000000000", "٣"])
def test_what_is_no_sequence_number_is_refused(number: str) -> None:
    with pytest.raises(Refused) as caught:
        md_of(BY_PROPERTY, [("part", number)])
    assert caught.value.feedback == Feedback.VALUE_NOT_VALID


def test_a_message_without_its_number_is_refused() -> None:
    with pytest.raises(Refused) as caught:
        md_of(BY_PROPERTY, [])
    assert caught.value.feedback == Feedback.VALUE_MISSING


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("group_sequence: '{property.n}'", "give `group_by`"),
        ("group_by: a, group_last: 'true'", "give `group_sequence`"),
    ],
)
def test_half_a_group_is_an_error(text: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        table(text)
