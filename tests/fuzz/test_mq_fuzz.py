"""Any bytes: a decoded chain or one documented error with offset and field; nothing else, in bounded time.

Half of the inputs are golden headers with bytes changed, so that the fuzzer gets past the first check.
"""

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies_mq import messages

from gateway.errors import HeaderError, MQError
from gateway.mq import conversion, mqmd, pcf, propctl, properties, situations
from gateway.mq.headers import chain, dh, rfh, rfh2
from gateway.mq.headers.header import STRUCTURE_OF_FORMAT
from gateway.mq.headers.rfh2_folder import parse_folder

GOLDEN = [
    bytes.fromhex(each["hex"])
    for each in json.loads((Path(__file__).parents[1] / "golden" / "mq" / "headers.json").read_text())
]
FORMATS = st.sampled_from([*STRUCTURE_OF_FORMAT, b"MQSTR   ", b"MQIMSVS "])


@st.composite
def spoiled(draw):
    """A message with bytes overwritten, cut or added."""
    if draw(st.booleans()):
        md, data = draw(messages())[:2]
    else:
        ccsid, encoding = (
            draw(st.sampled_from([0, 37, 500, 819, 1200, 1208, 60000])),
            draw(st.sampled_from([0, 273, 546, 785])),
        )
        md = mqmd.build(format=draw(FORMATS), encoding=encoding, coded_char_set_id=ccsid)
        data = draw(st.one_of(st.binary(max_size=600), st.sampled_from(GOLDEN)))
    raw = bytearray(data)
    for _ in range(draw(st.integers(0, 4))):
        if raw:
            raw[draw(st.integers(0, len(raw) - 1))] = draw(st.sampled_from([0, 1, 2, 4, 16, 127, 128, 255, 60, 62]))
    return md, bytes(raw[: draw(st.integers(0, len(raw)))] if draw(st.booleans()) else raw)


@given(spoiled())
def test_walk(message):
    found, wrong = chain.walk_far(*message)
    assert b"".join(each.raw for each in found) + found.payload == message[1]
    if wrong:
        assert wrong.structure
        assert wrong.field
        assert 0 <= wrong.offset <= len(message[1])
        with pytest.raises(HeaderError):
            chain.walk(*message)
    else:
        assert chain.walk(*message).headers == found.headers


@given(spoiled())
def test_describe_never_fails(message):
    json.dumps(chain.describe(*message))


@given(spoiled(), st.sampled_from([(273, 500), (546, 1208), (785, 1200), (546, 943)]))
def test_convert_never_fails(message, target):
    made = conversion.convert(*message, encoding=target[0], ccsid=target[1])
    assert made.reason in {0, 2110, 2111, 2115, 2119, 2190}
    assert made.reason == 0 or made.text


@given(spoiled())
def test_properties(message):
    with contextlib.suppress(MQError, HeaderError):
        properties.properties_of(*message)
        propctl.as_got(*message, options=0x4000000)


@given(spoiled())
def test_situations(message):
    for undo in (situations.from_transmission, situations.from_dead_letter):
        with contextlib.suppress(HeaderError):
            undo(*message)
    situations.absorb_extension(*message)


@given(st.binary(max_size=300))
def test_parsers_alone(raw):
    for parse in (pcf.parse, dh.parse, rfh.parse, rfh2.parse):
        for order in "<>":
            with contextlib.suppress(HeaderError):
                parse(raw, order=order)


@given(st.text("<>/ab='\" &;#x\0", max_size=60))
def test_folders(text):
    with contextlib.suppress(HeaderError):
        parse_folder(text)


def test_hostile_sizes_cost_little():
    """Announced counts and lengths beyond the data are refused before anything is made of them."""
    for text in (
        "<a>" * 100000,
        "<a " + "b='c' " * 50000,
        "<a>" + "<b></b>" * 50000,
        "<a" + " " * 100000,
        "<a x=" + "'" * 99999,
    ):
        with contextlib.suppress(HeaderError):
            parse_folder(text)
    huge = pcf.build(pcf.Message(parameters=[pcf.integers(1, [2])])).replace(
        b"\1\0\0\0\2\0\0\0", b"\xff\xff\xff\x7f\2\0\0\0"
    )
    with contextlib.suppress(HeaderError):
        pcf.parse(huge)
