"""Stored records one after the other are read as each is by itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.session.publication import Publication
from gateway.session.record import RELEASED, SHARED, Decoding, decode_publication, encode_publication

SHORT = st.sampled_from([b"", b"a", b"ab", b"b"])


@st.composite
def records(draw):
    publication = Publication(
        draw(SHORT), draw(SHORT), draw(st.integers(0, 2)), draw(st.booleans()), draw(SHORT),
        draw(st.sampled_from([0.0, 0.0, 5.0])), draw(st.sampled_from(["", "c", "d"])), draw(SHORT),
    )  # fmt: skip
    sub_ids = draw(st.sampled_from([(), (), (1,), (1, 2), (7,) * 300]))
    return encode_publication(
        publication, draw(st.integers(1, 3)), sub_ids, draw(st.sampled_from([0, RELEASED, SHARED]))
    )


def values(decoded):
    publication, *rest = decoded
    names = (
        "topic", "payload", "qos", "retain", "properties", "expires", "client_id", "report", "handed_over",
    )  # fmt: skip
    return [getattr(publication, name) for name in names], rest


@given(st.lists(records(), max_size=6))
def test_what_begins_alike_is_read_alike(several):
    decoding = Decoding()
    for data in several:
        assert values(decoding.decode(data)) == values(decode_publication(data))


def test_a_record_that_cannot_be_read_leaves_nothing_behind():
    good = encode_publication(Publication(b"t", b"p", 1, False), 7)
    decoding = Decoding()
    decoding.decode(good)
    with pytest.raises(ValueError, match="version 9"):
        decoding.decode(b"\x09" + good[1:])
    assert values(decoding.decode(good)) == values(decode_publication(good))


@pytest.mark.parametrize("count", [0, 1, 254, 255, 256, 1000])
def test_any_number_of_subscription_identifiers(count):
    sub_ids = tuple(range(1, count + 1))
    publication, packet_id, read, released = decode_publication(
        encode_publication(Publication(b"t", b"p", 1, False), 7, sub_ids)
    )
    assert (publication.payload, packet_id, read, released) == (b"p", 7, sub_ids, False)
