"""Golden headers: bytes written at the published offsets by an independent writer, both byte orders, ASCII and EBCDIC.

`headers.json` was made from `layouts.txt` alone; `messages.txt` are whole messages written out by hand.
"""

import json
from pathlib import Path

import pytest

from gateway.mq import layout, mqmd
from gateway.mq.headers import chain
from gateway.mq.headers.header import FORMAT_OF_STRUCTURE

GOLDEN = Path(__file__).parent / "mq"
HEADERS = json.loads((GOLDEN / "headers.json").read_text())
CHAINED = [each for each in HEADERS if each["structure"] not in {"MQMD", "MQTM"}]


def _name(case):
    return f"{case['structure']} v{case['version']} {case['order']} {case['charset']}"


def _values(case):
    """Field values as the codec has them."""
    binary = {field.name for field in layout.STRUCTURES[case["structure"]].fields if not field.is_text}
    fields = case["fields"].items()
    return {
        name: bytes.fromhex(value) if name in binary and isinstance(value, str) else value for name, value in fields
    }


@pytest.mark.parametrize("case", HEADERS, ids=_name)
def test_written(case):
    made = layout.pack(
        case["structure"], _values(case), version=case["version"], order=case["order"], charset=case["charset"]
    )
    assert made.hex() == case["hex"]


@pytest.mark.parametrize("case", HEADERS, ids=_name)
def test_read(case):
    raw = bytes.fromhex(case["hex"])
    found = layout.unpack(case["structure"], raw, version=case["version"], order=case["order"])
    text = {field.name for field in layout.STRUCTURES[case["structure"]].fields if field.is_text}
    read = {name: value.decode(case["charset"]).rstrip() if name in text else value for name, value in found.items()}
    assert read == _values(case)


@pytest.mark.parametrize("case", CHAINED, ids=_name)
def test_walked(case):
    raw = bytes.fromhex(case["hex"])
    encoding = 546 if case["order"] == "<" else 273
    ccsid = 1208 if case["charset"] == "ascii" else 500
    md = mqmd.build(format=FORMAT_OF_STRUCTURE[case["structure"]], encoding=encoding, coded_char_set_id=ccsid)
    found = chain.walk(md, raw + b"payload")
    assert [(each.name, each.raw) for each in found] == [(case["structure"], raw)]
    assert (found.payload, found.body) == (b"payload", (273, 500, b"MQSTR   "))


MESSAGES = [
    block.split("\n", 1) for block in (GOLDEN / "messages.txt").read_text().split("\n\n") if not block.startswith("#")
]


@pytest.mark.parametrize(("title", "text"), MESSAGES, ids=lambda value: value if len(value) < 60 else "")
def test_messages(title, text):
    """Title: format encoding ccsid -> header names, payload as text."""
    said, _, expected = title.partition(" -> ")
    form, encoding, ccsid = said.split(" ")
    names, _, payload = expected.partition(": ")
    lines = [line.partition("#")[0] for line in text.splitlines()]
    data = bytes.fromhex("".join(lines))
    md = mqmd.build(format=form, encoding=int(encoding), coded_char_set_id=int(ccsid))
    found = chain.walk(md, data)
    assert ([each.name for each in found], found.payload.decode()) == (names.split(" "), payload)
    assert b"".join(each.raw for each in found) + found.payload == data
