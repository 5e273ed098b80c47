"""The site of the admin port: metrics, probes, the API, the page, and the endpoints of the data pipeline."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from itertools import count
from pathlib import Path

from twisted.web.resource import Resource
from twisted.web.server import Request
from twisted.web.util import Redirect

from gateway.app.files.data_directory import own_token
from gateway.app.parts import Parts
from gateway.app.pipeline import pipeline_answers, pipeline_of
from gateway.app.reports.gauges import gauges_of
from gateway.config.model import Settings
from gateway.errors import ConfigurationError, Finding
from gateway.net.api import Api, Static
from gateway.net.calls import Endpoint
from gateway.net.guard import Guard
from gateway.net.http import Answer, Folder, LongPage, Page
from gateway.net.streamed_answers import StreamedAnswers
from gateway.observe import health, metrics
from gateway.ports.people import ADMINISTRATOR, VIEWER, Caller


def admin_root(parts: Parts, api: list[Endpoint], guard: Guard) -> Resource:
    """Returns the root of the site; `api` is served below /api/v1."""
    root = Folder()
    registry = metrics.registry_of(parts.counters, gauges_of(parts))

    scrapes = count(1)

    def exposition(request: Request) -> Generator[None, None, Answer]:
        yield from parts.engine.sys_topics.session_counts.steps()
        body, content_type = yield from metrics.render(registry, request.getHeader("accept") or "")
        return 200, body, content_type

    def run(steps: Iterator[None]) -> None:
        parts.engine.context.slices.run(f"scrape {next(scrapes)}", lambda: steps)

    root.putChild(b"metrics", LongPage(exposition, run))
    for name, question in ((b"livez", health.livez), (b"readyz", health.readyz), (b"startupz", health.startupz)):
        root.putChild(name, Page(_probe(parts, question)))
    versions = Folder()
    versions.putChild(b"v1", Api(api, guard))
    pipeline = pipeline_of(parts.queue_manager, parts.directory, parts.job_reports)
    if pipeline is not None:
        versions.putChild(b"pipeline", StreamedAnswers(pipeline_answers(pipeline), guard))
    root.putChild(b"api", versions)
    root.putChild(b"admin", Static(guard))
    root.putChild(b"", Redirect(b"/admin/"))
    return root


def guard_of(directory: Path, settings: Settings) -> Guard:
    """Returns the tokens and host names that are accepted. Without `admin.token_file` the token is in the data
    directory."""
    admin = settings.admin
    tokens: dict[str, Caller] = {}
    for name, key, role in (
        (admin.read_token_file, "admin.read_token_file", VIEWER),
        (admin.token_file, "admin.token_file", ADMINISTRATOR),
    ):
        if name is not None:
            tokens[_read_token(Path(settings.resolve(name, key)), key)] = Caller(key, "token file", role)
    if admin.token_file is None:
        tokens[own_token(directory)] = Caller("admin.token", "token file", ADMINISTRATOR)
    local = admin.bind in {"127.0.0.1", "::1", "localhost"}
    names = {"127.0.0.1", "localhost", "[::1]", admin.bind, *admin.hosts}
    return Guard(tokens, frozenset(names) if local or admin.hosts else frozenset())


def _read_token(path: Path, key: str) -> str:
    try:
        token = path.read_text(encoding="utf-8-sig").split("\n", 1)[0].strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError([Finding(str(path), 1, 1, f"cannot be read: {error}", "check the name")]) from error
    if not token:
        what = f"the token of {key} is empty: anybody could send it"
        raise ConfigurationError([Finding(str(path), 1, 1, what, "write one, as of `openssl rand -base64 24`")])
    return token


def _probe(parts: Parts, question: Callable[[health.Snapshot], health.Verdict]) -> Callable[[Request], Answer]:
    def answer(request: Request) -> Answer:
        del request
        verdict = question(parts.snapshot())
        return verdict.status, verdict.text().encode(), "text/plain; charset=utf-8"

    return answer
