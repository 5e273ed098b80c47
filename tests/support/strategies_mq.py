"""Hypothesis strategies of MQ structures: any header with any values, chains, PCF, folders."""

import mq_builders
from hypothesis import strategies as st

from gateway.mq import layout, mqmd, pcf
from gateway.mq.headers import dh, header, rfh2
from gateway.mq.headers.header import FORMAT_OF_STRUCTURE
from gateway.mq.headers.rfh2_folder import Typed, folder

PLACES = {  # encoding and character set of a place in a chain -> byte order and codec
    (546, 1208): ("<", "utf-8"), (546, 819): ("<", "iso8859-1"), (273, 819): (">", "iso8859-1"),
    (785, 500): (">", "cp500"), (785, 1047): (">", "ebcdic_1047"), (0x112, 37): ("<", "cp037"),
}  # fmt: skip
NAMES = st.text("ABCXYZ.019_/%", max_size=8)
NUMBERS = st.integers(-(1 << 31), (1 << 31) - 1)
PLAIN = ["MQCIH", "MQDLH", "MQIIH", "MQMDE", "MQWIH"]
_SKIPPED = {"StrucId", "Version", "StrucLength", "Encoding", "CodedCharSetId", "Format"}


@st.composite
def _fields(draw, name):
    values = {}
    for field in layout.STRUCTURES[name].fields:
        if field.name in _SKIPPED:
            continue
        if field.is_text:
            values[field.name] = draw(st.text("ABCabc019 ", max_size=field.size))
        elif field.code == "i":
            values[field.name] = draw(NUMBERS)
        else:
            values[field.name] = draw(st.binary(min_size=field.size, max_size=field.size))
    return values


@st.composite
def headers(draw, place, following):
    """Bytes and structure name of a header lying in `place` and describing `following` and a Format."""
    (order, codec), (encoding, ccsid), form = PLACES[place], following[0], following[1]
    said = {"encoding": encoding, "coded_char_set_id": ccsid, "format_name": form}
    kind = draw(st.sampled_from([*PLAIN, "MQRFH", "MQRFH2", "MQDH", "MQXQH"]))
    fixed = {"Encoding": encoding, "CodedCharSetId": ccsid, "Format": form.decode()}
    if kind == "MQRFH2":
        raw = rfh2.build(draw(st.lists(folders(), max_size=3)), order=order, **said)
        return kind, "RFH ".encode(codec) + raw[4:20] + form.decode().encode(codec) + raw[28:]
    if kind == "MQRFH":
        pairs = draw(st.lists(st.tuples(NAMES, st.text("ab \"'", max_size=6)), max_size=3))
        return kind, mq_builders.rfh(pairs, order=order, codec=codec, **said)
    if kind == "MQDH":
        raw = dh.build(
            draw(st.lists(destinations(), max_size=3)), put_msg_rec_fields=draw(st.integers(0, 31)), order=order, **said
        )
        return kind, "DH  ".encode(codec) + raw[4:20] + form.decode().encode(codec) + raw[28:]
    if kind == "MQXQH":
        embedded = layout.pack("MQMD", fixed, version=1, order=order, charset=codec)
        fields = {"RemoteQName": draw(NAMES), "MsgDesc": embedded}
        return kind, header.build("MQXQH", fields, order=order, charset=codec)
    return kind, header.build(kind, draw(_fields(kind)) | fixed, order=order, charset=codec)


@st.composite
def destinations(draw):
    """One destination of a distribution list, every field there."""
    ids = st.binary(min_size=24, max_size=24)
    return dh.Destination(
        draw(NAMES),
        draw(NAMES),
        draw(ids),
        draw(ids),
        draw(ids),
        draw(NUMBERS),
        draw(st.binary(min_size=32, max_size=32)),
    )


@st.composite
def messages(draw, places=tuple(PLACES)):
    """Descriptor, data, names of the headers, payload."""
    body = draw(st.binary(max_size=20))
    place = draw(st.sampled_from(places))
    form, names, data = draw(st.sampled_from([b"        ", b"MQSTR   ", b"MYFMT   "])), [], body
    for _ in range(draw(st.integers(0, 4))):
        own = draw(st.sampled_from(places))
        name, raw = draw(headers(own, (place, form)))
        place, form, data = own, FORMAT_OF_STRUCTURE[name], raw + data
        names.insert(0, name)
    md = mqmd.build(format=form, encoding=place[0], coded_char_set_id=place[1])
    return md, data, names, body


_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
VALUES = st.one_of(
    _TEXT, st.booleans(), st.integers(-(1 << 63), (1 << 63) - 1), st.binary(max_size=6), st.none(),
    st.floats(allow_nan=False), st.integers(-128, 127).map(lambda n: Typed("i1", n)),
)  # fmt: skip


def folders():
    """The text of a folder of typed values."""
    elements = st.dictionaries(st.sampled_from(["a", "b", "größe", "_x"]), VALUES, max_size=4)
    return st.builds(folder, st.sampled_from(["usr", "mcd", "mine", "mqps"]), elements)


def parameters():
    """PCF parameters of every type."""
    identifier, operator = st.integers(1, 9000), st.integers(1, 30)
    longs = st.integers(-(1 << 63), (1 << 63) - 1)
    single = st.one_of(
        st.builds(pcf.integer, identifier, NUMBERS),
        st.builds(pcf.integer64, identifier, longs),
        st.builds(pcf.string, identifier, _TEXT, size=st.sampled_from([0, 48])),
        st.builds(pcf.integers, identifier, st.lists(NUMBERS, max_size=4)),
        st.builds(pcf.integers64, identifier, st.lists(longs, max_size=4)),
        st.builds(pcf.strings, identifier, st.lists(_TEXT.filter(bool), max_size=4)),
        st.builds(pcf.byte_string, identifier, st.binary(max_size=9)),
        st.builds(pcf.integer_filter, identifier, operator, NUMBERS),
        st.builds(pcf.string_filter, identifier, operator, _TEXT),
        st.builds(pcf.byte_string_filter, identifier, operator, st.binary(max_size=9)),
    )
    return st.recursive(
        single, lambda inner: st.builds(pcf.group, identifier, st.lists(inner, max_size=3)), max_leaves=6
    )
