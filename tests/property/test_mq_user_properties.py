"""Any list of MQTT 5 user properties survives the way through MQ message properties."""

from hypothesis import example, given
from hypothesis import strategies as st

from gateway.mq import mqmd, property_names, user_properties
from gateway.mq.properties import properties_of, with_properties

NASTY = st.sampled_from(
    ["_x", "_x0041_", "__x_2", "_x_", "NULL", "like", "JMSType", "a.b", "1a", "ñ", "ab", " ", "_", "x_2", "Root", "𝒳"]
)
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
NAMES = st.one_of(NASTY, TEXT, st.lists(NASTY, max_size=3).map("".join))


@given(NAMES)
@example("x" * 5000)
def test_names_come_back_and_can_be_used(name):
    escaped = user_properties.escape_name(name)
    assert user_properties.unescape_name(escaped) == name
    if len(escaped) <= 4095:
        property_names.check(escaped)


@given(NAMES, NAMES)
def test_different_names_stay_different(one, other):
    same = user_properties.escape_name(one) == user_properties.escape_name(other)
    assert same == (one == other)


@given(st.lists(st.tuples(NAMES, st.one_of(TEXT, NAMES)), max_size=6))
@example([("a", "1"), ("b", "2"), ("a", ""), ("a__x_2", "3"), ("", ""), ("", "x")])
@example([("n" * 5000, "v:w"), ("n" * 5000, ""), ("short", "\x01\r")])
def test_pairs_survive_the_message(pairs):
    properties = user_properties.encode(pairs)
    md, data = with_properties(mqmd.build(format="MQSTR"), b"body", properties)
    assert user_properties.decode(properties_of(md, data)) == pairs


@given(st.lists(st.tuples(NAMES, TEXT), max_size=6), st.randoms())
def test_pairs_survive_disorder(pairs, random):
    properties = user_properties.encode(pairs)
    random.shuffle(properties)
    assert user_properties.decode(properties) == pairs
