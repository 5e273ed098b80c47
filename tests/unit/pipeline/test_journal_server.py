"""A drainer's journal over HTTP and HTTPS: for whoever has the token, and nobody else. A silent client holds
nobody up.
"""

from __future__ import annotations

import json
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, nullcontext
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from certificates import Authority
from click.testing import CliRunner
from device_fleet import write_journal
from free_ports import free_port

from gateway.pipeline.commands import pipeline
from gateway.pipeline.drain.journal_server import MAX_BODY, open_journal, serve
from gateway.pipeline.errors import LeaseHeld, QueueUnreachable, WrongOption
from gateway.pipeline.jobs.job import parse_job
from gateway.pipeline.jobs.leases import journals_of
from gateway.pipeline.journal.groups import ConsumerGroup
from gateway.pipeline.journal.owner import Owner
from gateway.pipeline.journal.service import PipelineService, Reply
from gateway.pipeline.source.http_access import HttpAccess
from gateway.pipeline.source.options import Options

Started = Callable[..., str]
JOB = """
version: 1
name: plant
source: {{queue: "TELEMETRY.*", path: "{path}", url: "{url}", token_file: "{folder}/token"}}
warehouse: {folder}/lake
"""
SOURCES = """
version: 1
name: plant
sources:
  - {{name: one, queue: "TELEMETRY.*", url: "{one}", token_file: "{folder}/token", group: one}}
  - {{name: two, queue: "{queue}", url: "{two}", token_file: "{folder}/token", group: {group}}}
warehouse: {folder}/lake
"""
TWO = r"other and http://127.0.0.1:\d+ are two queue managers"


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    write_journal(tmp_path / "j", 100)
    with ExitStack() as ending:
        journal = open_journal(tmp_path / "j")
        ending.callback(journal.store.close)

        def start(certificate: tuple[Path, Path] | None = None) -> str:
            handle = journal.guarded(PipelineService(Owner(journal), tmp_path / "j").handle)
            server = serve("127.0.0.1", free_port(), handle, "secret", lambda: "figures 1\n", certificate)
            ending.callback(server.server_close)
            ending.callback(server.shutdown)
            return f"{'https' if certificate else 'http'}://127.0.0.1:{server.server_port}"

        yield start


def access(url: str, **more: Any) -> HttpAccess:
    return HttpAccess(Options(url=url, token=more.pop("token", "secret"), queue="TELEMETRY.*", **more))


def test_groups_and_counts(started: Started) -> None:
    there = access(started())
    group = there.acquire(ConsumerGroup("g", "TELEMETRY.*"), "one:1", 60.0)
    assert there.extent("TELEMETRY.*", group.cursor, None).messages == 100
    with pytest.raises(LeaseHeld):
        there.acquire(ConsumerGroup("g", "TELEMETRY.*"), "two:2", 60.0)
    there.release("g", group.epoch)


def test_a_stream_goes_on_at_queues_that_have_been_emptied(started: Started) -> None:
    """The number to which the queue manager has come is not that of the last message that is there."""
    pytest.importorskip("pyspark", reason="pyspark is not installed: pip install '.[spark]'")
    from gateway.pipeline.source.source import MqQueueDataSource, ReadMaxRows

    url, end = started(), {"messages": 100, "next": 101}
    there = access(url)
    group = there.acquire(ConsumerGroup("g", "TELEMETRY.*", delay=0.0), "one:1", 60.0)
    assert there.next_number("TELEMETRY.*") == 101
    for cursor in (20, 40, 60, 80, 101, 101):
        there.acknowledge("g", group.epoch, cursor, 60.0)
    there.release("g", group.epoch)
    assert there.extent("TELEMETRY.*", 0, None) == (0, 0)
    source = MqQueueDataSource({"url": url, "token": "secret", "queue": "TELEMETRY.*", "consumerGroup": "g"})
    reader = source.streamReader(source.schema())
    assert reader.latestOffset(end, ReadMaxRows(1000)) == end
    reader.stop()
    assert there.next_number("NO.SUCH.QUEUE") == 101
    assert len(there.journal("TELEMETRY.*") or "") == 32


def test_an_address_and_a_folder_of_two_journals(started: Started, tmp_path: Path) -> None:
    """The numbers of one would be acknowledged to the other, whose messages were purged and never read."""
    pytest.importorskip("pyspark", reason="pyspark is not installed: pip install '.[spark]'")
    from gateway.pipeline.source.source import MqQueueDataSource

    url = started()
    (tmp_path / "token").write_text("secret")
    write_journal(tmp_path / "other", 500)
    for folder, refused in ((tmp_path / "j", False), (tmp_path / "other", True)):
        options = {"url": url, "tokenFile": str(tmp_path / "token"), "path": str(folder), "queue": "TELEMETRY.*"}
        source = MqQueueDataSource(options)
        reader = source.streamReader(source.schema())
        text = JOB.format(path=folder, url=url, folder=tmp_path)
        inputs, output = parse_job("job.yaml", text).inputs, tmp_path / f"{folder.name}.yaml"
        with pytest.raises(WrongOption, match=TWO) if refused else nullcontext():
            reader.initialOffset()
        with pytest.raises(WrongOption, match=TWO) if refused else nullcontext():
            journals_of(inputs)
        words = ["TELEMETRY.*", "--url", url, "--token-file", str(tmp_path / "token"), "--path", str(folder)]
        done = CliRunner().invoke(pipeline, ["init", *words, "-o", str(output)])
        assert (done.exit_code, output.exists()) == ((1, False) if refused else (0, True)), done.output
        assert not refused or "are two queue managers" in done.output
        reader.stop()


@pytest.mark.parametrize(
    ("queue", "group", "says"),
    [
        ("TELEMETRY.A", "two", r"sources 'one' and 'two' both read TELEMETRY.\* \(TELEMETRY.A\) of one"),
        ("OTHER", "one", r"have the same consumer group 'one'"),
        ("OTHER", "two", ""),
    ],
)
def test_one_journal_under_two_addresses(started: Started, tmp_path: Path, queue: str, group: str, says: str) -> None:
    """Each message was landed twice, once for each source."""
    url = started()
    (tmp_path / "token").write_text("secret")
    text = SOURCES.format(one=url, two=url.replace("127.0.0.1", "localhost"), folder=tmp_path, queue=queue, group=group)
    inputs = parse_job("job.yaml", text).inputs
    match = rf"^http://127.0.0.1:\d+ is http://localhost:\d+: .*{says}"
    with pytest.raises(WrongOption, match=match) if says else nullcontext():
        journals_of(inputs)


def test_https(started: Started, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    url = started(authority.issue("127.0.0.1"))
    with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))):  # connects and says nothing
        assert access(url, ca_file=str(authority.path)).extent("TELEMETRY.*", 0, None).messages == 100
    with pytest.raises(QueueUnreachable, match=r"certificate of https.* is not trusted here .*: name the file"):
        access(url).extent("TELEMETRY.*", 0, None)
    with pytest.raises(QueueUnreachable, match=r"nowhere\.pem .*: give a PEM file"):
        access(url, ca_file="nowhere.pem").extent("TELEMETRY.*", 0, None)


def test_messages_of_a_drainer_that_ends_meanwhile(tmp_path: Path) -> None:
    """Its reply has no length: the end of its connection looks like that of the messages."""
    write_journal(tmp_path / "j", 40_000, frame=10_000)
    journal = open_journal(tmp_path / "j")
    service = PipelineService(Owner(journal), tmp_path / "j")

    def breaks_off(method: str, path: str, query: Mapping[str, str], body: bytes) -> Reply:
        reply = service.handle(method, path, query, body)
        return reply if path != "messages" else reply._replace(body=islice(reply.body, 1))

    server = serve("127.0.0.1", 0, breaks_off, "secret", lambda: "")
    try:
        there = access(f"http://127.0.0.1:{server.server_port}")
        end = there.extent("TELEMETRY.*", 0, None).next
        (piece,) = there.pieces("TELEMETRY.*", 0, end, 1)
        with pytest.raises(QueueUnreachable, match="broke off"):
            list(piece.chunks(1000))
    finally:
        server.shutdown()
        server.server_close()
        journal.store.close()


def status_of(url: str, token: str = "secret", **headers: str) -> int:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}", **headers})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return int(error.code) if json.load(error)["error"] else 0


def test_who_gets_what(started: Started) -> None:
    url = started()
    assert status_of(f"{url}/api/pipeline/groups") == 200
    assert status_of(f"{url}/api/pipeline/groups", "guessed") == 401
    assert status_of(f"{url}/api/pipeline/nothing") == 404
    assert status_of(f"{url}/elsewhere") == 404
    assert status_of(f"{url}/metrics", "") == 200
    assert status_of(f"{url}/api/pipeline/groups", **{"Content-Length": str(MAX_BODY + 1)}) == 413


def test_a_proxy_of_the_environment_is_passed_over(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would get the token."""
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
    monkeypatch.delenv("no_proxy", raising=False)
    assert HttpAccess(Options(url=started(), token="secret")).count("TELEMETRY.A", 0, 1000) == 100


def test_nobody_is_sent_elsewhere_with_the_token() -> None:
    """By whatever answers at the address."""
    asked: list[str] = []

    class Elsewhere(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path.partition("?")[0])
            self.send_response(302)
            self.send_header("Location", f"http://127.0.0.1:{self.server.server_port}/other")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Nothing is logged."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(QueueUnreachable, match="answers 302 Found: is this a gateway's administration port"):
            access(f"http://127.0.0.1:{server.server_port}").count("TELEMETRY.A", 0, 1000)
        server.shutdown()
    assert asked == ["/api/pipeline/count"]
