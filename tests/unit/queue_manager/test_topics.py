"""gateway.queue_manager.objects.topics: what copies of a publication have in common is made once."""

from __future__ import annotations

import pytest
from embedded_rig import md
from schedulers import ManualScheduler

from gateway.mq import properties
from gateway.mq.headers import rfh2
from gateway.ports.mqi import ObjectDescriptor, PutOptions
from gateway.queue_manager.embedded import EmbeddedQueueManager

MOST = 40
EXTRAS = "", "USERDATA('mine')", "PSPROP(NONE)"
QUEUES = "".join(f"DEFINE QLOCAL(Q{n})\n" for n in range(MOST))


@pytest.mark.parametrize("has_headers", [True, False])
def test_headers_of_a_publication_are_read_once(has_headers, monkeypatch):
    """Once however many subscriptions there are, and once more for those with user data and with PSPROP(NONE)."""
    read, parse = [0], rfh2.parse

    def counted(*given, **named):
        read[0] += 1
        return parse(*given, **named)

    monkeypatch.setattr(rfh2, "parse", counted)
    message, data = md(), b"text"
    if has_headers:
        message, data = properties.with_properties(message, data, [properties.Property("a", "b")])
    costs = []
    for many in (3, MOST):
        subscriptions = "".join(
            f"DEFINE SUB(S{n}) TOPICSTR('news/1') DEST(Q{n}) "
            f"{EXTRAS[n % 3]}\n" for n in range(many)
        )  # fmt: skip
        manager = EmbeddedQueueManager.open(None, "QM1", ManualScheduler(), QUEUES + subscriptions)
        program = manager.connect(application="test", user="ana")
        before = read[0]
        program.put1(ObjectDescriptor("", object_type=8, object_string="news/1"), message, PutOptions(4), data)
        costs.append(read[0] - before)
        bodies = [manager.fetch(f"Q{n}", b"", 2) for n in range(many)]
        for n, (one,) in enumerate(bodies):
            held = {each.name: each.value for each in properties.properties_of(one.md, one.data)}
            assert held.get("mqps.Top") == (None if n % 3 == 2 else "news/1")
            assert held.get("mqps.Sud") == ("mine" if n % 3 == 1 else None)
            assert held.get("a") == ("b" if has_headers else None)
        assert len({one.md[48:72] for (one,) in bodies}) == many
        manager.close()
    assert costs[0] == costs[1]
