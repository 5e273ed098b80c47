"""The gateway's own spans, sent to an OpenTelemetry collector: an extra, off unless `tracing.endpoint` is set.

This is the only module that imports opentelemetry, and only if there is something to export. A message costs nothing
here unless its trace is sampled. Spans are queued in memory, up to a limit, and sent in batches by a thread of the
exporter. If the collector is away, spans are lost, but never messages.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from gateway.config.extras import how_to_install
from gateway.errors import ConfigurationError, Finding
from gateway.version import VERSION

if TYPE_CHECKING:
    from gateway.broker.books import Hop
    from gateway.ports.counters import Counters

QUEUE = 8192
"""Spans that wait for the collector; beyond it the newest are lost."""
LAST_SECONDS = 2.0
"""That the end of the process waits for the collector."""
_WHOLE = 1 << 56


class Spans:
    """Makes a span for each hop and hands it to the exporter."""

    def __init__(self, endpoint: str, share: float, service: str, queue_manager: str, counters: Counters) -> None:
        """`share` of the sampled traces is exported. The trace identifier decides, so that all parties decide alike."""
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import ReadableSpan
            from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
            from opentelemetry.sdk.util.instrumentation import InstrumentationScope
            from opentelemetry.trace import SpanContext, SpanKind, TraceFlags
        except ImportError as error:
            what = f"spans cannot be exported: {error}"
            fix = f"{how_to_install('otel')}, or remove the key"
            raise ConfigurationError([Finding("tracing.endpoint", 1, 1, what, fix)]) from error
        about = {"service.name": service, "service.version": VERSION, "service.instance.id": socket.gethostname()}
        self._resource = Resource.create(about)
        self._scope = InstrumentationScope("mqgate", VERSION)
        self._span, self._context, self._flags, self._kind = ReadableSpan, SpanContext, TraceFlags, SpanKind
        self._below = int(share * _WHOLE)
        self._queue_manager = queue_manager
        self._counters, self._ended = counters, 0
        exporter = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces", session=_session())
        self._exporter = _CountedExporter(exporter, counters, SpanExportResult.SUCCESS)
        self._processor = BatchSpanProcessor(self._exporter, max_queue_size=QUEUE)

    def begin(self, hop: Hop) -> Callable[[], None]:
        """Begin a span; returns what ends it."""
        _, trace, parent, _ = hop.received.split("-")[:4]
        if int(trace[-14:], 16) >= self._below:  # the random part of a trace identifier: its last seven bytes
            return lambda: None
        started = time.time_ns()
        return lambda: self._end(hop, int(trace, 16), int(parent, 16), started)

    def _end(self, hop: Hop, trace: int, parent: int, started: int) -> None:
        if self._ended - self._exporter.taken >= QUEUE:  # the library would drop one, and tell nobody how many
            self._counters.spans["queue_full"] += 1
            return
        self._ended += 1
        flags = self._flags(self._flags.SAMPLED)
        into = hop.direction == "in"
        span = self._span(
            name=f"{hop.rule or 'publish'} {'to queue' if into else 'to devices'}",
            context=self._context(trace, int(hop.sent.split("-")[2], 16), is_remote=False, trace_flags=flags),
            parent=self._context(trace, parent, is_remote=True, trace_flags=flags),
            resource=self._resource,
            attributes=self._attributes(hop),
            kind=self._kind.PRODUCER if into else self._kind.CONSUMER,
            start_time=started,
            end_time=time.time_ns(),
            instrumentation_scope=self._scope,
        )
        self._processor.on_end(span)

    def _attributes(self, hop: Hop) -> dict[str, Any]:
        """Returns the attributes, named according to the semantic conventions for messaging where these have a name."""
        return {
            "messaging.system": "mqtt" if hop.direction == "in" else "ibmmq",
            "messaging.operation.type": "send" if hop.direction == "in" else "receive",
            "messaging.destination.name": hop.topic,
            "messaging.client.id": hop.client_id,
            "messaging.message.body.size": hop.length,
            "mqgate.rule": hop.rule,
            "mqgate.qos": hop.qos,
            "mqgate.queue_manager": self._queue_manager,
        }

    def close(self) -> None:
        """Send what is queued; waits two seconds at most for a collector that does not answer, and tries no more. The
        library would wait as long as for an answer to each batch, whatever it is told."""
        ending = threading.Thread(target=self._processor.shutdown, name="spans", daemon=True)
        ending.start()
        ending.join(LAST_SECONDS)
        self._exporter.shutdown()


class _CountedExporter:
    """Counts what an exporter takes and what becomes of it, in the thread that sends."""

    def __init__(self, exporter: Any, counters: Counters, success: object) -> None:
        self._exporter, self._counters, self._success = exporter, counters, success
        self._closed = False
        self.taken = 0
        """Spans that do not wait any more."""

    def export(self, spans: Sequence[Any]) -> Any:
        """Send them."""
        self.taken += len(spans)
        done: Any = None
        try:
            done = None if self._closed else self._exporter.export(spans)
        finally:
            self._counters.spans["exported" if done is self._success else "refused"] += len(spans)
        return done

    def shutdown(self) -> None:
        """Wait for nothing any more, send nothing more: a batch that waits for its next attempt ends at once."""
        if not self._closed:
            self._closed = True
            self._exporter.shutdown()


def _session() -> Any:
    """Reads no further than the head of an answer: what follows is not looked at, and may be endless. None: that of a
    provider of credentials, which the environment names."""
    import requests  # comes with the exporter

    if any(f"OTEL_PYTHON_EXPORTER_OTLP_HTTP_{of}CREDENTIAL_PROVIDER" in os.environ for of in ("", "TRACES_")):
        return None
    session = requests.Session()
    session.stream = True
    session.hooks["response"] = [lambda response, **_: response.close()]
    return session
