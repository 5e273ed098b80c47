"""Requests that nobody answers are forgotten in time, and not before."""

from __future__ import annotations

from datetime import UTC, datetime

from broker_harness import Harness

from gateway.bridge.request import Request
from gateway.mq import mqmd

QUEUE = "MQGATE.REQUESTS"


def asked(bench: Harness, name: str, ago: float, expiry: int = 0) -> bytes:
    """A request as it was stored so long ago."""
    request = Request(name, f"answers/{name}", b"", expiry)
    put = datetime.fromtimestamp(bench.clock.now() - ago, UTC)
    md = mqmd.build(put_date=put.strftime("%Y%m%d"), put_time=put.strftime("%H%M%S00"))
    token = next(bench.queues._tokens)
    bench.queues._priorities[token] = 0
    bench.queues.rows.setdefault(QUEUE, {})[token] = (0, request.token, md, request.encode())
    return request.token


def test_only_those_whose_time_is_over_go() -> None:
    bench = Harness()
    asked(bench, "short", 200, 60)
    young = asked(bench, "patient", 200, 600)
    asked(bench, "long ago", 8 * 86_400)
    last = asked(bench, "last week", 6 * 86_400)
    asked(bench, "capped", 8 * 86_400, 99_999_999)
    bench.advance(1)
    assert {key for key, _ in bench.queues.load(QUEUE)} == {young, last}
    bench.clock.advance(3600)
    bench.engine.tick()
    assert {key for key, _ in bench.queues.load(QUEUE)} == {last}
