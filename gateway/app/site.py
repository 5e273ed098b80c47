"""The admin site: metrics and probes; API and page are mounted beside them."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from twisted.web.resource import Resource
from twisted.web.server import Request
from twisted.web.util import Redirect

from gateway.app.api import endpoints
from gateway.net.api import OPERATOR, READ_ONLY, Api, Guard, Static
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
    guard = guard_of(gateway)
    versions = Resource()
    versions.putChild(b"v1", Api(endpoints(gateway), guard))
    root.putChild(b"api", versions)
    root.putChild(b"admin", Static(guard))
    root.putChild(b"", Redirect(b"/admin/"))
    return root


def guard_of(gateway: Gateway) -> Guard:
    """Tokens and host names: the settings' files, or a token made for this data directory."""
    settings = gateway.settings
    admin = settings.admin
    tokens: dict[str, str] = {}
    for name, key, role in (
        (admin.token_file, "admin.token_file", OPERATOR),
        (admin.read_token_file, "admin.read_token_file", READ_ONLY),
    ):
        if name is not None:
            tokens[Path(settings.resolve(name, key)).read_text(encoding="utf-8").split("\n", 1)[0].strip()] = role
    if OPERATOR not in tokens.values():
        tokens[own_token(gateway.directory)] = OPERATOR
    local = admin.bind in {"127.0.0.1", "::1", "localhost"}
    names = {"127.0.0.1", "localhost", "[::1]", admin.bind, *admin.hosts}
    return Guard(tokens, frozenset(names) if local or admin.hosts else frozenset(), gateway.audit)


def own_token(directory: Path) -> str:
    """The token in the data directory, made at the first start; only its owner can read it."""
    path = directory / "admin.token"
    if not path.exists():
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_urlsafe(24) + "\n")
    return path.read_text(encoding="utf-8").strip()


def _probe(gateway: Gateway, question: Callable[[health.Snapshot], health.Verdict]) -> Callable[[Request], Answer]:
    def answer(request: Request) -> Answer:
        del request
        verdict = question(gateway.snapshot())
        return verdict.status, verdict.text().encode(), "text/plain; charset=utf-8"

    return answer
