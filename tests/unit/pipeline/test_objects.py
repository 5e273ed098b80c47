"""A store that is asked for the first time: what does not get better is refused at once, the rest is waited for."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
from certificates import Authority
from s3_server import BUCKET, CREDENTIALS, Fault, Proxy, s3_found

from gateway.pipeline.errors import StoreRefuses, StoreUnreachable
from gateway.pipeline.land.objects import ObjectStore, StoreSettings

pytest.importorskip("obstore", reason="obstore is not installed: pip install '.[lake]'")
pytest.importorskip("moto", reason="moto is not installed: pip install '.[test]'")

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.timeout(300)]


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    with s3_found(monkeypatch) as server:
        yield server


class Quiet(ThreadingHTTPServer):
    """Clients that hang up are what it is for."""

    daemon_threads = False  # server_close() waits until each has closed its connection

    def handle_error(self, request: object, client_address: object) -> None:
        pass


def test_what_does_not_get_better_is_refused_when_a_job_begins(
    proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the store would be waited for: at once, and nobody is told to wait."""

    def why(endpoint: str) -> str:
        told: list[str] = []
        with pytest.raises(StoreRefuses) as caught:
            ObjectStore(f"s3://{BUCKET}/x", StoreSettings(endpoint, patience=600)).check(told.append, once=True)
        assert told == []
        return str(caught.value)

    plain = proxy.url.replace("http:", "https:")
    assert f"no TLS is spoken at {plain}: write http://" in why(plain)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*Authority(tmp_path).issue("store"))
    server = Quiet(("127.0.0.1", 0), BaseHTTPRequestHandler)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        assert "is not trusted here, or has another name: SSL_CERT_FILE" in why(
            f"https://127.0.0.1:{server.server_port}"
        )
    finally:
        server.shutdown()
        server.server_close()
    proxy.faults.append(Fault("GET", "list-type", "403 InvalidAccessKeyId"))
    assert "(InvalidAccessKeyId): check the credentials" in why(proxy.url)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:9")
    assert "there are no credentials in the environment" in why(proxy.url)


@pytest.mark.parametrize("does", ["503 SlowDown", "500", "lost"])
def test_a_store_that_answers_later_is_waited_for(proxy: Proxy, does: str) -> None:
    told: list[str] = []
    proxy.faults.append(Fault("GET", "list-type", does, times=3))
    ObjectStore(f"s3://{BUCKET}/x", StoreSettings(patience=60)).check(told.append)
    assert proxy.unspent() == []
    (said,) = told
    assert "cannot list _manifest/probe" in said
    assert said.endswith("(asked again for 60 s)")


def test_a_host_may_come_with_its_container(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in Compose. Who has mistaken its name is told so at once all the same."""
    told: list[str] = []
    store = ObjectStore(f"s3://{BUCKET}/x", StoreSettings("http://store.invalid:1", patience=0.5))
    with pytest.raises(StoreUnreachable, match=r"there is no host of the name in http://store.invalid:1: correct it"):
        store.check(told.append)
    (said,) = told
    assert said.endswith("(asked again for 0.5 s)")


class Identity(BaseHTTPRequestHandler):
    """The identity of a host, as EC2 tells it, which is there from the third request on."""

    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        keys = {"AccessKeyId": "tests", "SecretAccessKey": "any", "Token": "any", "Expiration": "2999-01-01T00:00:00Z"}
        data = json.dumps(keys).encode() if self.path.endswith("/lake") else b"lake"
        self.send_response(404 if len(self.asked) < 3 else 200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_PUT = do_GET

    def log_message(self, *_: object) -> None:
        pass


def test_an_identity_may_come_after_the_pod(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has forgotten the credentials is told so at once all the same."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    server = Quiet(("127.0.0.1", 0), Identity)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    told: list[str] = []
    try:
        ObjectStore(f"s3://{BUCKET}/x", StoreSettings(patience=60)).check(told.append)
    finally:
        server.shutdown()
        server.server_close()
    (said,) = told
    assert "there are no credentials in the environment" in said
    assert said.endswith("(asked again for 60 s)")


def test_a_command_does_not_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(StoreUnreachable, match="is the endpoint right"):
        ObjectStore("s3://lake/x", StoreSettings("http://127.0.0.1:9", patience=600)).check()


def test_an_endpoint_that_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a container is given a variable that has no value: the library panicked."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "")
    with pytest.raises(StoreRefuses, match=r"^AWS_ENDPOINT_URL is there and empty: unset it"):
        ObjectStore("s3://lake/x", StoreSettings())
    ObjectStore("s3://lake/x", StoreSettings("http://127.0.0.1:9"))
