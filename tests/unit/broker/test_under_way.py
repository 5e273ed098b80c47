"""gateway.broker.deliver.under_way: what goes along with a publication, and what they have in common."""

from __future__ import annotations

from gateway.broker.deliver import under_way
from gateway.broker.deliver.under_way import UnderWay
from gateway.session.publication import Publication


def of(topic: bytes = b"a", client_id: str = "c", payload: bytes = b"12") -> UnderWay:
    return UnderWay(Publication(topic, payload, 1, False, client_id=client_id), "_none", None, lambda _: None, iter(()))


def test_so_many_publications_and_bytes_go_along() -> None:
    first = of()
    first.others = [of() for _ in range(under_way.MOST_JOINED - 1)]
    so_far = 2 * under_way.MOST_JOINED
    assert first.has_room(under_way.MOST_JOINED_BYTES - so_far)
    assert not first.has_room(under_way.MOST_JOINED_BYTES - so_far + 1)
    first.others.append(of())
    assert not first.has_room(0)


def test_what_they_have_in_common() -> None:
    first = of()
    first.others = [of(client_id="d"), of(b"b")]
    together = first.set_out()
    assert (together.topics, together.several) == (["a", "a", "b"], {"a", "b"})
    assert together.publishers == {"c", "d"}
    first.others.pop()
    assert first.set_out().several == frozenset()


def test_one_alone_keeps_its_properties_and_expiry() -> None:
    alone = of()
    alone.publication.properties, alone.publication.expires = b"\x01\x01", 7.0
    like = alone.set_out().runs.part(0, 1).like
    assert (like.properties, like.expires, like.payload) == (b"\x01\x01", 7.0, b"")
