"""A sampled trace through the gateway, both ways: its own span reaches a collector and is the parent of what it put."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.client import CallbackAPIVersion, Client, MQTTv5
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from running_gateway import MAPPING, TOKEN, Running, running

from gateway.ports.counters import Counters

pytest.importorskip("opentelemetry.sdk", reason="the extra `otel` is not installed; tests/run installs it")
pytestmark = pytest.mark.ops

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
OBJECTS = "DEFINE QLOCAL(COMMANDS)\n"
COMMANDS = """
to_mqtt:
  - {name: commands, queue: COMMANDS, topic: "plant/cmd"}
"""


class Collector:
    """Takes what an OTLP exporter sends over HTTP."""

    def __init__(self) -> None:
        self.spans: list[tuple[dict[str, str], Any]] = []
        taken = self.spans

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

                request = ExportTraceServiceRequest()
                request.ParseFromString(self.rfile.read(int(self.headers["Content-Length"])))
                for of in request.resource_spans:
                    about = {each.key: each.value.string_value for each in of.resource.attributes}
                    taken.extend((about, span) for scope in of.scope_spans for span in scope.spans)
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"


@pytest.fixture
def traced(tmp_path: Path) -> Iterator[tuple[Running, Collector]]:
    collector = Collector()
    (tmp_path / "objects.mqsc").write_text(OBJECTS)
    environment = {
        "MQGATE_QUEUE_MANAGER__EMBEDDED__OBJECTS": str(tmp_path / "objects.mqsc"),
        "OTEL_BSP_SCHEDULE_DELAY": "200",
    }
    more = f"tracing: {{endpoint: {collector.address}, service: plant-gateway}}\n"
    with running(tmp_path, environment=environment, more=more, mapping=MAPPING + COMMANDS) as gateway:
        yield gateway, collector
    collector.server.shutdown()
    collector.server.server_close()


def with_context(flags: str, span: str = PARENT) -> Properties:
    properties = Properties(PacketTypes.PUBLISH)
    properties.UserProperty = [("traceparent", f"00-{TRACE}-{span}-{flags}"), ("tracestate", "vendor=1")]
    return properties


def until(check: Any) -> Any:
    deadline = time.monotonic() + 60
    while not (found := check()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return found


def test_a_sampled_trace_gets_a_span_of_the_gateway_each_way(traced: tuple[Running, Collector]) -> None:
    gateway, collector = traced
    heard: list[Any] = []
    device = Client(CallbackAPIVersion.VERSION2, client_id="line-007", protocol=MQTTv5)
    device.on_message = lambda _client, _data, message: heard.append(message)
    device.connect("127.0.0.1", gateway.port)
    device.loop_start()
    device.subscribe("plant/cmd", 1)
    topic = "plant/lima/line/7/temperature"
    for flags in ("00", "01"):
        device.publish(topic, "21.5", 1, properties=with_context(flags)).wait_for_publish(60)
    (resource, span), *others = until(lambda: list(collector.spans))
    assert others == [], "what is not sampled has no span"
    assert resource["service.name"] == "plant-gateway"
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, PARENT)
    assert span.name == "readings to queue"
    attributes = {each.key: each.value for each in span.attributes}
    assert attributes["messaging.destination.name"].string_value == topic
    assert attributes["messaging.client.id"].string_value == "line-007"
    assert attributes["mqgate.qos"].int_value == 1
    assert span.start_time_unix_nano <= span.end_time_unix_nano

    listed = json.loads(gateway.text("/api/v1/queues/MQGATE.DEFAULT/messages", TOKEN))["items"]
    path = f"/api/v1/queues/MQGATE.DEFAULT/messages/{listed[-1]['token']}"
    message = json.loads(gateway.text(path, TOKEN))
    put = next(value for name, value in message["properties"].items() if name.endswith("traceparent"))
    assert put == f"00-{TRACE}-{span.span_id.hex()}-01", "the span is the parent of what follows"

    command = {"text": "open", "properties": {"traceparent": f"00-{TRACE}-{PARENT}-01"}}
    post(gateway, "/queues/COMMANDS/messages", command)
    (message,) = until(lambda: heard)
    ((_, span),) = until(lambda: collector.spans[1:])
    assert span.name == "commands to devices"
    assert dict(message.properties.UserProperty)["traceparent"] == f"00-{TRACE}-{span.span_id.hex()}-01"
    device.disconnect()
    device.loop_stop()


def post(gateway: Running, path: str, body: object) -> None:
    import urllib.request

    request = urllib.request.Request(f"http://127.0.0.1:{gateway.admin}/api/v1{path}", json.dumps(body).encode())
    request.add_header("Authorization", f"Bearer {TOKEN}")
    request.add_header("Content-Type", "application/json")
    urllib.request.urlopen(request, timeout=60).close()


def test_a_share_of_the_traces_is_chosen_by_their_identifier() -> None:
    from gateway.broker.books import Hop
    from gateway.observe.tracing import Spans

    collector = Collector()
    counters = Counters()
    spans = Spans(collector.address, 0.5, "mqgate", "QM1", counters)
    for half in (0, 1 << 63):
        trace = f"{1:016x}" + struct.pack("!Q", half >> 8 | 1).hex()
        given = f"00-{trace}-{PARENT}-01"
        spans.begin(Hop(given, given.replace(PARENT, "1" * 16), "in", "r", "t", "c", 1, 1))()
    spans.close()
    assert len(collector.spans) == 1
    assert counters.spans == {"exported": 1, "refused": 0, "queue_full": 0}
    collector.server.shutdown()
    collector.server.server_close()


def test_a_collector_that_is_away_costs_spans_and_no_messages(tmp_path: Path) -> None:
    more = "tracing: {endpoint: 'http://127.0.0.1:9'}\n"
    with running(tmp_path, more=more, environment={"OTEL_BSP_SCHEDULE_DELAY": "100"}) as gateway:
        device = Client(CallbackAPIVersion.VERSION2, client_id="line-007", protocol=MQTTv5)
        device.connect("127.0.0.1", gateway.port)
        device.loop_start()
        for _ in range(3):
            sent = device.publish("plant/lima/line/7/temperature", "21.5", 1, properties=with_context("01"))
            sent.wait_for_publish(60)
            assert sent.is_published()
        device.disconnect()
        device.loop_stop()
        assert "ok" in gateway.text("/readyz")


@contextmanager
def listening(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """The address of a collector that does this with each connection. At the end nobody waits for it any more."""
    before, taken = set(threading.enumerate()), list[socket.socket]()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            with suppress(OSError):
                while True:
                    taken.append(server.accept()[0])
                    threading.Thread(target=serve, args=(taken[-1],), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
    for connection in taken:
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        connection.close()
    for thread in set(threading.enumerate()) - before:
        thread.join(60)
        assert not thread.is_alive(), thread


def leave(_: socket.socket) -> None:
    """Answers nothing."""


def spans_to(address: str, count: int, counters: Counters | None = None) -> Any:
    from gateway.broker.books import Hop
    from gateway.observe.tracing import Spans

    spans = Spans(address, 1.0, "mqgate", "QM1", counters or Counters())
    given = f"00-{TRACE}-{PARENT}-01"
    for _ in range(count):
        spans.begin(Hop(given, given, "in", "r", "t", "c", 1, 1))()
    return spans


def test_the_end_does_not_wait_for_a_collector_that_never_answers() -> None:
    with listening(leave) as address:
        spans = spans_to(address, 600)
        begun = time.monotonic()
        spans.close()
        assert time.monotonic() - begun < 8.0, "less than it waits for one answer"


def test_spans_that_are_lost_are_counted() -> None:
    counters = Counters()
    with listening(leave) as address:
        spans = spans_to(address, 10_000, counters)
        assert 10_000 - 8192 - 512 <= counters.spans["queue_full"] <= 10_000 - 8192
        assert counters.spans["exported"] == 0
        spans.close()


def test_the_end_tries_no_more_where_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
    counters = Counters()
    with listening(leave):  # it looks for what is left running
        spans = spans_to(address, 1200, counters)
        begun = time.monotonic()
        spans.close()
    assert time.monotonic() - begun < 8.0, "less than the attempts for one batch take"
    assert counters.spans == {"exported": 0, "refused": 1200, "queue_full": 0}


def test_so_are_those_that_the_collector_refuses() -> None:
    def serve(connection: socket.socket) -> None:
        connection.recv(1 << 16)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

    counters = Counters()
    with listening(serve) as address:
        spans_to(address, 3, counters).close()
    assert counters.spans == {"exported": 0, "refused": 3, "queue_full": 0}


def test_of_an_endless_answer_nothing_is_kept() -> None:
    sent, over = [0], threading.Event()

    def serve(connection: socket.socket) -> None:
        connection.recv(1 << 16)
        with suppress(OSError):
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
            while sent[0] < 100_000_000:
                connection.sendall(bytes(1_000_000))
                sent[0] += 1_000_000
        over.set()

    with listening(serve) as address:
        spans_to(address, 1).close()
        assert over.wait(60)
        assert sent[0] < 50_000_000
