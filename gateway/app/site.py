"""The admin site: metrics and probes; API and page are mounted beside them."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from twisted.web.resource import Resource
from twisted.web.server import Request
from twisted.web.util import Redirect

from gateway.app.api import endpoints
from gateway.app.data import pipeline_answers, pipeline_of
from gateway.config.model import Listener, Settings
from gateway.errors import ConfigurationError, Finding
from gateway.net.api import OPERATOR, READ_ONLY, Api, Guard, Static
from gateway.net.http import Answer, Page
from gateway.net.streaming import Streaming
from gateway.observe import health, logs, metrics

if TYPE_CHECKING:
    from gateway.app.gateway import Gateway

log = logs.get("mqgate")


def admin_root(gateway: Gateway, guard: Guard) -> Resource:
    """Everything the admin port serves."""
    root = Resource()
    registry = metrics.registry_of(gateway.counters, gateway.gauges)

    def exposition(request: Request) -> Answer:
        body, content_type = metrics.render(registry, request.getHeader("accept") or "")
        return 200, body, content_type

    root.putChild(b"metrics", Page(exposition))
    for name, question in ((b"livez", health.livez), (b"readyz", health.readyz), (b"startupz", health.startupz)):
        root.putChild(name, Page(_probe(gateway, question)))
    versions = Resource()
    versions.putChild(b"v1", Api(endpoints(gateway), guard))
    pipeline = pipeline_of(gateway)
    if pipeline is not None:
        versions.putChild(b"pipeline", Streaming(pipeline_answers(pipeline), guard))
    root.putChild(b"api", versions)
    root.putChild(b"admin", Static(guard))
    root.putChild(b"", Redirect(b"/admin/"))
    return root


def guard_of(directory: Path, settings: Settings) -> Guard:
    """Tokens and host names: the settings' files, or a token made for this data directory."""
    admin = settings.admin
    tokens: dict[str, str] = {}
    for name, key, role in (
        (admin.read_token_file, "admin.read_token_file", READ_ONLY),
        (admin.token_file, "admin.token_file", OPERATOR),
    ):
        if name is not None:
            tokens[_read_token(Path(settings.resolve(name, key)), key)] = role
    if OPERATOR not in tokens.values():
        tokens[own_token(directory)] = OPERATOR
    local = admin.bind in {"127.0.0.1", "::1", "localhost"}
    names = {"127.0.0.1", "localhost", "[::1]", admin.bind, *admin.hosts}
    return Guard(tokens, frozenset(names) if local or admin.hosts else frozenset())


def _read_token(path: Path, key: str) -> str:
    try:
        token = path.read_text(encoding="utf-8").split("\n", 1)[0].strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError([Finding(str(path), 1, 1, f"cannot be read: {error}", "check the name")]) from error
    if not token:
        what = f"the token of {key} is empty: everybody would have it"
        raise ConfigurationError([Finding(str(path), 1, 1, what, "write one, as of `openssl rand -base64 24`")])
    return token


def warnings_about(listener: Listener, settings: Settings) -> list[str]:
    """What an operator should know of a listener that other hosts reach."""
    if listener.local:
        return []
    found = []
    if listener.tls is None:
        found.append(f"passwords and messages on {listener.bind} can be read on the way: give the listener `tls`")
    if settings.anonymous_on(listener):
        found.append(f"whoever reaches {listener.bind} may connect without credentials")
    return found


def private(directory: Path) -> None:
    """The data directory is its owner's alone; what is made in it too. A mounted volume may not let itself be changed:
    then what others may do with it is said."""
    os.umask(os.umask(0o077) | 0o077)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if directory.stat().st_mode & 0o077:
        try:
            directory.chmod(0o700)
        except OSError as error:
            log.warning("data_directory", f"{directory} can be read by others and cannot be changed: {error}")


def write_address(directory: Path, settings: Settings, number: int) -> None:
    """Where the command line finds this process and its token; 0: it has no admin port."""
    path, admin = directory / "gateway.json", settings.admin
    host = "127.0.0.1" if admin.bind in {"0.0.0.0", "::"} else admin.bind
    named = settings.resolve(admin.token_file, "admin.token_file") if admin.token_file is not None else None
    record = {
        "pid": os.getpid(),
        "admin": f"http://{host}:{number}" if number else None,
        "token_file": str(Path(named or directory / "admin.token").absolute()),
    }
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(record))
    fresh.chmod(0o600)
    fresh.replace(path)


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
