"""Any message: walked and put together again byte for byte, edited and restored, converted there and back."""

from hypothesis import assume, given
from hypothesis import strategies as st
from strategies_mq import PLACES, VALUES, folders, messages, parameters

from gateway.mq import mqmd, pcf, propctl, properties, situations
from gateway.mq.conversion import convert
from gateway.mq.headers import chain, rfh2
from gateway.mq.headers.rfh2_folder import element, parse_folder, render, typed
from gateway.mq.situations import Putter

PUTTER = Putter("u", "QM", 7, "20260102", "03040506")


@given(messages())
def test_walk_finds_every_header_and_keeps_every_byte(message):
    md, data, names, body = message
    found = chain.walk(md, data)
    assert ([each.name for each in found], found.payload) == (names, body)
    assert b"".join(each.raw for each in found) + found.payload == data


@given(messages(), st.data(), st.sampled_from(["MQWIH", "MQRFH2", "MQDLH", "MQIIH"]))
def test_insert_and_remove(message, data, name):
    index = data.draw(st.integers(0, len(message[2])))
    longer = chain.insert(*message[:2], index, name)
    assert chain.walk(*longer).headers[index].name == name
    assert chain.remove(*longer, index) == message[:2]


@given(messages(), st.integers(0, 1))
def test_situations_are_undone(message, grouped):
    md, data = message[:2]
    assume(md[mqmd.FORMAT] != b"MQHMDE  ")  # an MQMDE of the program's own is absorbed on arrival
    md = mqmd.patch(md, group_id=b"g" * 24 * grouped, msg_id=b"m" * 24)
    on_queue = situations.to_transmission(md, data, "Q", "M", msg_id=b"n" * 24, putter=PUTTER)
    dead = situations.to_dead_letter(*on_queue, 2053, "Q", "M", putter=PUTTER)
    alive = situations.from_dead_letter(dead.md, dead.data)
    assert alive[1:] == on_queue
    assert situations.from_transmission(alive.md, alive.data) == ("Q", "M", md, data)


@given(messages(), st.integers(0, 2000))
def test_cut_dead_letters_come_back_cut(message, size):
    md, data = message[:2]
    dead = situations.to_dead_letter(md, data, 2030, "Q", "M", putter=PUTTER, max_length=172 + size)
    alive = situations.from_dead_letter(dead.md, dead.data)
    assert alive[1:] == (md, data[:size])
    assert dead.truncated == (len(data) > size)


SINGLE_BYTE = [place for place in PLACES if place[1] != 1208]


@given(st.sampled_from(SINGLE_BYTE).flatmap(lambda place: messages(places=(place,))), st.sampled_from(SINGLE_BYTE))
def test_conversion_there_and_back(message, target):
    md, data, names, _ = message
    source = chain.described_by(md)
    made = convert(md, data, encoding=target[0], ccsid=target[1])
    assert [each.name for each in chain.walk(made.md, made.data)] == names
    back = convert(made.md, made.data, encoding=source.encoding, ccsid=source.ccsid)
    if not made.reason:
        before, after = chain.walk(md, data), chain.walk(back.md, back.data)
        assert [each.raw for each in after] == [each.raw for each in before]


@given(st.lists(parameters(), max_size=5), st.sampled_from("<>"))
def test_pcf(given_parameters, order):
    raw = pcf.build(pcf.Message(parameters=given_parameters), order=order)
    back = pcf.parse(raw, order=order)
    assert list(back.parameters) == given_parameters
    assert pcf.build(back, order=order) == raw


@given(VALUES)
def test_typed_values(value):
    found = parse_folder(f"<f>{element('x', value)}</f>").children[0]
    expected = typed(value)
    assert (found.dt, found.value) == (expected.dt if expected.value is not None else "string", expected.value)


@given(folders())
def test_folders_are_rendered_as_written(text):
    assert render(parse_folder(text)) == text


@given(st.lists(folders(), max_size=4), st.sampled_from("<>"), st.sampled_from(rfh2.UNICODE_CCSIDS))
def test_rfh2(texts, order, ccsid):
    raw = rfh2.build(texts, order=order, name_value_ccsid=ccsid)
    assert rfh2.parse(raw, order=order).texts() == tuple(texts)


@given(messages(), st.dictionaries(st.sampled_from(["a", "mqps.Top", "mine.x", "mq_usr.g.y"]), VALUES, min_size=1))
def test_properties_put_on_are_read_and_taken_off(message, values):
    md, data = message[:2]
    assume(md[mqmd.FORMAT] != rfh2.FORMAT)
    given_properties = [properties.new(name, value) for name, value in values.items()]
    longer = properties.with_properties(md, data, given_properties)
    assert {each.name: each for each in properties.properties_of(*longer)} == {
        each.name: each for each in given_properties
    }
    assert propctl.without_properties(*longer) == (md, data)
