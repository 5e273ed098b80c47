"""The admin site: metrics and probes; API and page are mounted beside them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from twisted.web.resource import Resource
from twisted.web.server import Request

from gateway.net.http import Answer, Page
from gateway.observe import health, metrics

if TYPE_CHECKING:
    from gateway.app.gateway import Gateway


def admin_root(gateway: Gateway) -> Resource:
    """Everything the admin port serves."""
    root = Resource()
    registry = metrics.registry_of(gateway.counters, gateway.gauges)

    def exposition(request: Request) -> Answer:
        body, content_type = metrics.render(registry, request.getHeader("accept") or "")
        return 200, body, content_type

    root.putChild(b"metrics", Page(exposition))
    for name, question in ((b"livez", health.livez), (b"readyz", health.readyz), (b"startupz", health.startupz)):
        root.putChild(name, Page(_probe(gateway, question)))
    return root


def _probe(gateway: Gateway, question: Callable[[health.Snapshot], health.Verdict]) -> Callable[[Request], Answer]:
    def answer(request: Request) -> Answer:
        del request
        verdict = question(gateway.snapshot())
        return verdict.status, verdict.text().encode(), "text/plain; charset=utf-8"

    return answer
