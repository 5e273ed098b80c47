"""Whatever is done to the headers of a message, its payload stays, and every header describes what follows it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.mq import conversion, mqmd, propctl
from gateway.mq.character_sets.ccsid import codec_of
from gateway.mq.headers import chain, rfh2
from gateway.mq.headers.header import FORMAT_OF_STRUCTURE, INHERIT, build

FORMS = st.sampled_from([(546, 1208), (546, 819), (273, 819), (785, 500), (546, 37), (273, 1208)])
"""Encoding and character set of a header or payload."""
FOLDERS = st.lists(
    st.sampled_from(["<usr><a>1</a></usr>", "<mcd><Msd>jms_text</Msd></mcd>", "<own><x>y</x></own>", "<o2><z/></o2>"]),
    max_size=3,
    unique=True,
)
TEXT = "payload, 12 [x]"
STRING = b"MQSTR   "


@st.composite
def headers(draw):
    """The name of a header, its form, its folders, and whether what follows inherits its character set."""
    name = draw(st.sampled_from(["MQRFH2", "MQRFH2", "MQDLH", "MQWIH", "MQXQH"]))
    return name, draw(FORMS), draw(FOLDERS), draw(st.booleans())


def in_front(md, data, header):
    name, (encoding, ccsid), folders, inherits = header
    follows = chain.described_by(md)
    order = ">" if encoding & 15 == 1 else "<"
    said = INHERIT if inherits and follows.ccsid == ccsid and name != "MQXQH" else follows.ccsid
    describing = {"Encoding": follows.encoding, "CodedCharSetId": said, "Format": follows.format.decode()}
    place = mqmd.with_described(md, encoding, ccsid, FORMAT_OF_STRUCTURE[name])
    if name == "MQXQH":
        return chain.prepend(md, data, name, {"RemoteQName": "Q"})
    if name == "MQRFH2":
        raw = rfh2.build(folders, order=order, encoding=follows.encoding, coded_char_set_id=said)
        codec = codec_of(ccsid)
        raw = "RFH ".encode(codec) + raw[4:20] + follows.format.decode().encode(codec) + raw[28:]
        return place, raw + data
    return place, build(name, describing, order=order, charset=codec_of(ccsid)) + data


@st.composite
def messages(draw):
    encoding, ccsid = draw(FORMS)
    md = mqmd.with_described(mqmd.build(persistence=1), encoding, ccsid, STRING)
    data = TEXT.encode(codec_of(ccsid))
    for header in draw(st.lists(headers(), max_size=4)):
        md, data = in_front(md, data, header)
    return md, data


def told(walked):
    """The payload as a reader has it."""
    assert walked.body.format == STRING
    return walked.payload.decode(codec_of(walked.body.ccsid))


@given(messages())
def test_a_message_says_what_it_is(message):
    assert told(chain.walk(*message)) == TEXT


@given(messages())
def test_without_its_properties(message):
    before = chain.walk(*message)
    after = chain.walk(*propctl.without_properties(*message))
    assert told(after) == TEXT
    assert after.body == before.body
    assert after.payload == before.payload
    assert [one.name for one in after if one.name != "MQRFH2"] == [one.name for one in before if one.name != "MQRFH2"]


@given(messages(), st.data())
def test_without_one_of_its_headers(message, data):
    before = chain.walk(*message)
    if not before.headers:
        return
    index = data.draw(st.integers(0, len(before.headers) - 1))
    after = chain.walk(*chain.remove(*message, index))
    assert told(after) == TEXT
    names = [one.name for one in before]
    assert [one.name for one in after] == names[:index] + names[index + 1 :]


@given(messages(), FORMS)
def test_converted(message, form):
    encoding, ccsid = form
    made = conversion.convert(*message, encoding=encoding, ccsid=ccsid)
    after = chain.walk(made.md, made.data)
    assert [one.name for one in after] == [one.name for one in chain.walk(*message)]
    assert told(after) == TEXT
    if not made.reason and chain.described_by(message[0])[:2] != form:  # else nothing is converted, as in MQ
        assert after.body[:2] == form


@given(messages(), headers(), st.data())
def test_with_another_header_anywhere(message, header, data):
    before = chain.walk(*message)
    index = data.draw(st.integers(0, len(before.headers)))
    name = header[0]
    after = chain.walk(*chain.insert(*message, index, name))
    names = [one.name for one in before]
    assert [one.name for one in after] == [*names[:index], name, *names[index:]]
    assert told(after) == TEXT
