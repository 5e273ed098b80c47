"""The gateway's counters and the catalogue of everything it measures.

Plain integers that the broker and the network edge add to once per batch; `observe.metrics` reads them when it is
scraped. Pure: no metrics library, no lock, no clock. Only the reactor thread adds (other threads hand their figures
back with the result of their batch), so a scrape in that thread sees whole batches.

    counters.mqtt_publish_received["line temperature", 1] += len(batch)
    counters.mqtt_puback_seconds[1].observe_many(seconds, len(batch))
    counters.mq_errors["QM1", "put", mqrc_label(failure.reason)] += 1

Every label has a closed set of values; a value outside of it is shown as `other`, never as a new series. Labels never
hold a client identifier, a topic or a message identifier.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal, NamedTuple, get_args

from gateway.ports.examples import Examples

PREFIX = "mqgate_"
NO_ROUTE = "_none"
"""The route of publications that only reached local subscribers."""
OTHER_ROUTE = "_other"
MAX_ROUTES = 500
"""Routes beyond this number share one series (`_other`), so that a generated mapping cannot swamp Prometheus."""

Protocol = Literal["3.1", "3.1.1", "5.0"]
Direction = Literal["in", "out"]
Result = Literal["ok", "failed"]
SessionState = Literal["connected", "disconnected"]
ConnectResult = Literal["accepted", "bad_protocol", "bad_client_id", "unavailable", "bad_credentials", "not_authorized",
                        "banned", "too_many", "malformed", "timeout", "other"]  # fmt: skip
AuthReason = Literal["credentials", "guessing", "certificate", "acl_publish", "acl_subscribe"]
DeviceEventKind = Literal["connected", "disconnected", "refused", "denied"]
DeviceEventResult = Literal["put", "thinned", "lost"]
IdentityMethod = Literal["jwt", "ldap", "webhook"]
"""Methods that ask a provider of identities."""
LoginMethod = Literal["certificate", "scram", "jwt", "users", "password_file", "managed", "ldap", "webhook",
                      "authenticator", "anonymous"]  # fmt: skip
DisconnectReason = Literal["normal", "keepalive", "protocol_error", "packet_too_large", "taken_over", "slow_consumer",
                           "buffers_full", "not_authorized", "refused", "administrative", "draining", "io_error",
                           "defect", "other"]  # fmt: skip
HandshakeResult = Literal["full", "resumed", "failed"]
SubscribeReason = Literal["quota", "topic_filter", "not_authorized", "shared", "defect"]
DropReason = Literal["qos0_overload", "queue_full", "spool_full", "too_large", "expired", "denied", "oversized_header",
                     "session_full", "undelivered", "away", "payload_format", "other"]  # fmt: skip
UnitKind = Literal["publication", "will", "session", "retained", "staged", "stored", "queue_message", "connection",
                   "subscription", "call"]  # fmt: skip
"""What is handled, and may fail, without affecting anything else: a record, a message, the end of a connection, a
timer's call."""
SpoolState = Literal["connected", "buffering", "draining"]
SpanResult = Literal["exported", "refused", "queue_full"]
TransformReason = Literal["template", "payload", "schema", "header", "other"]
DeadLetterReason = Literal["queue_full", "unknown_queue", "put_inhibited", "not_authorized", "too_long", "backed_out",
                           "transform", "unmatched", "other"]  # fmt: skip
MqCall = Literal["connect", "open", "put", "get", "commit", "other"]
PauseCause = Literal["batch_full", "queue_full", "mq_down", "spool_full", "client_rate"]
Level = Literal["debug", "info", "warning", "error", "critical"]

PACKET_TYPES = ("reserved", "connect", "connack", "publish", "puback", "pubrec", "pubrel", "pubcomp", "subscribe",
                "suback", "unsubscribe", "unsuback", "pingreq", "pingresp", "disconnect", "auth")  # fmt: skip
"""By MQTT packet type number; type 0 is malformed and counts as `reserved`."""

MQRC_LABELS = {
    2003: "MQRC_BACKED_OUT", 2009: "MQRC_CONNECTION_BROKEN", 2016: "MQRC_GET_INHIBITED",
    2017: "MQRC_HANDLE_NOT_AVAILABLE",
    2024: "MQRC_SYNCPOINT_LIMIT_REACHED", 2030: "MQRC_MSG_TOO_BIG_FOR_Q", 2031: "MQRC_MSG_TOO_BIG_FOR_Q_MGR",
    2035: "MQRC_NOT_AUTHORIZED", 2051: "MQRC_PUT_INHIBITED", 2053: "MQRC_Q_FULL", 2056: "MQRC_Q_SPACE_NOT_AVAILABLE",
    2058: "MQRC_Q_MGR_NAME_ERROR", 2059: "MQRC_Q_MGR_NOT_AVAILABLE", 2063: "MQRC_SECURITY_ERROR",
    2071: "MQRC_STORAGE_NOT_AVAILABLE", 2082: "MQRC_UNKNOWN_ALIAS_BASE_Q", 2085: "MQRC_UNKNOWN_OBJECT_NAME",
    2087: "MQRC_UNKNOWN_REMOTE_Q_MGR", 2102: "MQRC_RESOURCE_PROBLEM", 2161: "MQRC_Q_MGR_QUIESCING",
    2162: "MQRC_Q_MGR_STOPPING", 2195: "MQRC_UNEXPECTED_ERROR", 2202: "MQRC_CONNECTION_QUIESCING",
    2192: "MQRC_STORAGE_MEDIUM_FULL", 2537: "MQRC_CHANNEL_NOT_AVAILABLE", 2538: "MQRC_HOST_NOT_AVAILABLE",
}  # fmt: skip
"""The reasons that have a series of their own; all others count as `other`."""


def mqrc_label(reason: int) -> str:
    """The label value of an MQRC."""
    return MQRC_LABELS.get(reason, "other")


LATENCY_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SYNC_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
STALL_BUCKETS = (0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
LAG_BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
BATCH_BUCKETS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0)


class Histogram:
    """Values counted in fixed buckets. `buckets[i]` counts values above `bounds[i - 1]` and up to `bounds[i]`; the last
    one counts the rest."""

    __slots__ = ("bounds", "buckets", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.buckets = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self.buckets[bisect_left(self.bounds, value)] += 1
        self.total += value

    def observe_many(self, value: float, times: int) -> None:
        """Count the same value `times` times: for a batch whose messages all waited for one commit."""
        self.buckets[bisect_left(self.bounds, value)] += times
        self.total += value * times

    def observe_each(self, values: Iterable[float]) -> None:
        """Count several values."""
        for value in values:
            self.observe(value)

    def cumulative(self) -> Iterator[tuple[str, int]]:
        """Yield (`le`, count) as Prometheus wants them, ending with +Inf."""
        so_far = 0
        for bound, count in zip((*map(repr, self.bounds), "+Inf"), self.buckets, strict=True):
            so_far += count
            yield bound, so_far


LabelValues = tuple[Any, ...]


class Label(NamedTuple):
    """A label: `values` is its closed set; if that is empty, the configured names of `kind` are."""

    name: str
    values: tuple[object, ...] = ()
    configured: str = ""


def _closed(name: str, literal: object) -> Label:
    return Label(name, get_args(literal))


LISTENER = Label("listener", configured="listeners")
ROUTE = Label("route", configured="routes")
QMGR = Label("qmgr", configured="queue_managers")
WORKER = Label("worker", configured="workers")
QUEUE = Label("queue", configured="queues")
QOS = Label("qos", (0, 1, 2))
ACKNOWLEDGED = Label("qos", (1, 2))
PROTOCOL = _closed("protocol", Protocol)
DIRECTION = _closed("direction", Direction)
RESULT = _closed("result", Result)
CALL = _closed("call", MqCall)
MQRC = Label("reason", (*MQRC_LABELS.values(), "other"))

Kind = Literal["counter", "gauge", "histogram"]


class Metric(NamedTuple):
    """One entry of the catalogue; `name` is also the attribute of `Counters` (or of `Gauges`) that holds it."""

    name: str
    kind: Kind
    labels: tuple[Label, ...]
    text: str
    bounds: tuple[float, ...] = ()

    @property
    def exposed_name(self) -> str:
        """The metric's name in a query."""
        return f"{PREFIX}{self.name}{'_total' if self.kind == 'counter' else ''}"


def _counter(name: str, labels: tuple[Label, ...], text: str) -> Metric:
    return Metric(name, "counter", labels, text)


def _gauge(name: str, labels: tuple[Label, ...], text: str) -> Metric:
    return Metric(name, "gauge", labels, text)


def _histogram(name: str, labels: tuple[Label, ...], bounds: tuple[float, ...], text: str) -> Metric:
    return Metric(name, "histogram", labels, text, bounds)


_DROP = _closed("reason", DropReason)
_INFO = (Label("version"), Label("python"), Label("backend"), Label("gateway"))

CATALOGUE: tuple[Metric, ...] = (
    _gauge("build_info", _INFO, "Always 1; the labels say what is running, and which of several gateways."),
    _gauge("route_info", (ROUTE, QMGR, QUEUE, DIRECTION), "Always 1 for each rule; joins a route to its queue."),
    _gauge("config_last_reload_successful", (), "1 if the last reload of settings and mappings took effect, else 0."),
    _gauge("config_last_reload_timestamp_seconds", (), "When settings and mappings last took effect."),
    _counter("config_reloads", (RESULT,), "Reloads asked for by SIGHUP, by the API or by changed files."),
    _gauge("worker_up", (WORKER,), "1 while the worker's reactor answers."),
    _gauge("mqtt_connections", (LISTENER, PROTOCOL), "Connected MQTT clients."),
    _gauge("mqtt_connections_limit", (LISTENER,), "The highest number of connections that the listener accepts."),
    _gauge("mqtt_listener_sessions", (LISTENER,), "Sessions of clients that last connected through the listener."),
    _gauge("mqtt_sessions_limit", (LISTENER,), "The highest number of sessions that clients of the listener may have."),
    _gauge("mqtt_sessions", (_closed("state", SessionState),), "Sessions with stored state, connected or not."),
    _counter("mqtt_sessions_taken_over", (), "Sessions that came from other gateways on the same queue manager."),
    _counter("mqtt_sessions_signed_over", (), "Sessions that went to other gateways, where their clients connected."),
    _counter("mqtt_connects", (LISTENER, PROTOCOL, _closed("result", ConnectResult)), "CONNECTs, by answer."),
    _counter("mqtt_auth_failures", (LISTENER, _closed("reason", AuthReason)),
             "Refusals because of bad credentials, tokens or certificates, or by the access list."),
    _counter("identity_requests", (_closed("method", IdentityMethod), RESULT),
             "Requests to providers of identities: key sets for tokens, logins of a directory."),
    _counter("mqtt_logins", (_closed("method", LoginMethod),), "Clients that were let in, by what identified them."),
    _counter("device_events", (_closed("kind", DeviceEventKind), _closed("result", DeviceEventResult)),
             "Device events: `put`, `thinned` (only counted, in the message of another event), `lost`."),
    _gauge("token_keys_age_seconds", (), "Age of the oldest fetched keys for tokens."),
    _counter("mqtt_subscriptions_refused", (LISTENER, _closed("reason", SubscribeReason)),
             "Subscriptions refused in SUBACK, by cause."),
    _counter("mqtt_disconnects", (LISTENER, _closed("reason", DisconnectReason)), "Connections that ended, by cause."),
    _counter("mqtt_packets", (DIRECTION, Label("type", PACKET_TYPES)), "MQTT control packets."),
    _counter("mqtt_bytes", (DIRECTION,), "Bytes of MQTT on the wire, after TLS and WebSocket framing."),
    _counter("mqtt_publish_received", (ROUTE, QOS),
             "Publications from devices, by each rule that took them: put + dead-lettered + dropped + held. Where a "
             "rule sets the persistence, `qos` goes by that: 1 is persistent, 0 is not."),
    _counter("mqtt_publish_sent", (ROUTE, QOS),
             "Publications to devices, one for each session that gets it; from local publishers as route `_none`."),
    _gauge("mqtt_inflight_messages", (), "QoS 1 and 2 messages on the wire and not acknowledged yet, both directions."),
    _gauge("mqtt_subscriptions", (), "Subscriptions of all sessions."),
    _gauge("mqtt_retained_messages", (), "Retained messages."),
    _histogram("mqtt_puback_seconds", (ACKNOWLEDGED,), LATENCY_BUCKETS, "PUBLISH read until PUBACK or PUBREC written."),
    _counter("route_matched", (ROUTE,), "Publications and queue messages a rule matched."),
    _counter("transform_errors", (ROUTE, _closed("reason", TransformReason)), "Messages a rule could not build."),
    _counter("messages_unrouted", (), "Publications that no rule matched."),
    _counter("messages_dropped", (ROUTE, _DROP), "Messages lost: the only counter of loss."),
    _counter("messages_returned", (ROUTE,),
             "Publications of this gateway's devices that came back from MQ: known, and not published again."),
    _gauge("messages_held", (ROUTE,), "Messages that wait because their queue refuses: neither put nor acknowledged."),
    _counter("dlq_messages", (ROUTE, _closed("reason", DeadLetterReason)), "Messages put on a dead-letter queue."),
    _counter("dlq_replayed", (ROUTE, RESULT), "Dead letters put back on their destination."),
    _counter("set_aside", (_closed("what", UnitKind), RESULT),
             "Units that met a defect: `ok` is on the queue MQGATE.SET.ASIDE, `failed` could not be put there."),
    _gauge("set_aside_messages", (), "Messages on the queue MQGATE.SET.ASIDE."),
    _gauge("dlq_depth", (QUEUE,), "Messages on the dead-letter queue."),
    _gauge("spool_messages", (), "Messages on the gateway's own disk: embedded queue manager or buffer."),
    _gauge("spool_bytes", (), "Bytes of the messages on the gateway's own disk."),
    _gauge("spool_limit_bytes", (), "Bytes there is room for: the setting, or what the file system has left."),
    _gauge("spool_oldest_message_age_seconds", (ROUTE,), "Age of the oldest message the buffer still owes to IBM MQ."),
    _gauge("spool_full_since_seconds", (), "Since when the gateway's own disk is full (Unix time); 0: it is not."),
    _histogram("spool_sync_seconds", (), SYNC_BUCKETS, "One group commit to disk."),
    _counter("spool_recovered_messages", (), "Messages found again at start."),
    _counter("spool_corrupt_records", (),
             "Messages in the gateway's own store that could not be read, because the disk has damaged them. The log "
             "names the queue (`message.damaged`)."),
    _counter("spool_drained_messages", (), "Messages of the buffer that have been put on IBM MQ."),
    _gauge("spool_state", (_closed("state", SpoolState),), "1 for the state the buffer is in, 0 for the others."),
    _gauge("queue_depth", (QUEUE,), "Messages on a queue that a rule names."),
    _gauge("queue_max_depth", (QUEUE,), "MAXDEPTH of such a queue, and of the dead-letter queue."),
    _gauge("queue_high_depth", (QUEUE,), "Depth at which it is nearly full: QDEPTHHI per cent of its MAXDEPTH."),
    _gauge("queue_oldest_message_age_seconds", (QUEUE,), "Age of the oldest message on a queue that a rule names."),
    _gauge("queue_incomplete_messages", (QUEUE,),
           "Messages in segments, and groups that a rule wants whole, that stay because parts have not arrived."),
    _gauge("mq_connections", (QMGR, WORKER), "Open connections to the queue manager; 0 is down."),
    _counter("mq_connect_attempts", (QMGR, RESULT), "Attempts to connect to the queue manager."),
    _counter("mq_put_messages", (QMGR, ROUTE), "Messages put and committed."),
    _counter("mq_put_bytes", (QMGR, ROUTE), "Bytes of message data put and committed, headers included."),
    _counter("mq_get_messages", (QMGR, ROUTE), "Messages taken from queues and committed."),
    _counter("mq_gone_messages", (QMGR,),
             "Messages on queues of IBM MQ that had gone when they were to be taken: devices here and whoever took "
             "them may both have them. The log names the queue (`message.gone`)."),
    _counter("mq_errors", (QMGR, CALL, MQRC), "MQI calls that did not end with MQCC_OK, by reason."),
    _counter("mq_backouts", (QMGR, ROUTE), "Units of work backed out."),
    _histogram("mq_call_seconds", (QMGR, CALL), LATENCY_BUCKETS, "Time of one MQI call, or one batch of them."),
    _histogram("mq_batch_messages", (QMGR,), BATCH_BUCKETS, "Messages in one unit of work."),
    _histogram("bridge_latency_seconds", (DIRECTION,), LATENCY_BUCKETS,
               "`in`: PUBLISH read until the commit returned; `out`: message fetched until the commit "
               "returned and it was given to the devices."),
    _gauge("backpressure_paused_connections", (), "Connections whose reading is paused."),
    _counter("backpressure_events", (_closed("cause", PauseCause),), "Times reading was paused."),
    _histogram("reactor_lag_seconds", (WORKER,), LAG_BUCKETS, "How late a timer of the reactor ran."),
    _histogram("reactor_stall_seconds", (), STALL_BUCKETS,
               "Turns of the reactor of more than 250 ms: everybody waits as long as one lasts."),
    _counter("tls_handshakes", (LISTENER, _closed("result", HandshakeResult)),
             "TLS handshakes: done in full, done with the ticket of an earlier session, or failed."),
    _gauge("tls_handshakes_waiting", (), "Steps of TLS handshakes that wait for a thread."),
    _gauge("tls_certificate_not_after_timestamp_seconds", (LISTENER,), "When the listener's certificate expires."),
    _gauge("tls_crl_next_update_timestamp_seconds", (LISTENER,),
           "When the listener's revocation list expires: no client certificate is accepted after that."),
    _counter("spans", (_closed("result", SpanResult),),
             "Spans for the collector of traces: sent; lost as it did not take them; lost as too many waited for it."),
    _counter("log_events", (_closed("level", Level),), "Log lines by level, suppressed ones included."),
    _counter("log_suppressed", (_closed("level", Level),),
             "Log lines not written: they repeated others, or nobody read the log."),
)  # fmt: skip
"""Everything on /metrics (beside the process's own series), in the order it is shown."""

_LABELS = frozenset(label for metric in CATALOGUE for label in metric.labels)
BY_NAME: Mapping[str, Metric] = {metric.name: metric for metric in CATALOGUE}


@dataclass(slots=True)
class Names:
    """The configured names that labels may take."""

    listeners: tuple[str, ...] = ()
    routes: tuple[str, ...] = ()
    queue_managers: tuple[str, ...] = ()
    workers: tuple[str, ...] = ("0",)
    queues: tuple[str, ...] = ()

    def values(self, label: Label) -> tuple[object, ...]:
        """The closed set of values of `label`."""
        if not label.configured:
            return label.values
        names: tuple[str, ...] = getattr(self, label.configured)
        return (*names, NO_ROUTE) if label is ROUTE else names

    def with_series(self, label: Label) -> tuple[object, ...]:
        """The values that have a series of their own from the start, and the series that the other rules share, if
        there are any."""
        if label is not ROUTE or len(self.routes) < MAX_ROUTES:
            return self.values(label)
        return *self.routes[: MAX_ROUTES - 1], NO_ROUTE, OTHER_ROUTE


class Counters:
    """Everything that only grows, with every series present from the start (a counter that appears late hides its first
    increase from `increase()`). With one label, keys are its values; with several, tuples in the order of the
    catalogue."""

    __slots__ = (
        "backpressure_events", "bridge_latency_seconds", "bytes_in", "bytes_out", "config_reloads", "device_events",
        "dlq_messages", "dlq_replayed", "examples", "identity_requests", "log_events", "log_suppressed",
        "messages_dropped", "messages_returned", "messages_unrouted", "mq_backouts",
        "mq_batch_messages", "mq_call_seconds", "mq_connect_attempts", "mq_errors", "mq_get_messages",
        "mq_gone_messages", "mq_put_bytes",
        "mq_put_messages", "mqtt_auth_failures", "mqtt_connects", "mqtt_disconnects", "mqtt_logins",
        "mqtt_puback_seconds",
        "mqtt_publish_received", "mqtt_publish_sent", "mqtt_sessions_signed_over", "mqtt_sessions_taken_over",
        "mqtt_subscriptions_refused", "names", "packets_in", "packets_out", "reactor_lag_seconds",
        "reactor_stall_seconds", "route_matched", "set_aside", "spans",
        "spool_corrupt_records", "spool_drained_messages", "spool_recovered_messages", "spool_sync_seconds",
        "tls_handshakes", "transform_errors",
    )  # fmt: skip

    def __init__(self, names: Names | None = None) -> None:
        self.examples = Examples()
        self.packets_in = [0] * 16
        self.packets_out = [0] * 16
        self.bytes_in = 0
        self.bytes_out = 0
        self.messages_unrouted = 0
        self.mqtt_sessions_taken_over = 0
        self.mqtt_sessions_signed_over = 0
        self.spool_recovered_messages = 0
        self.spool_corrupt_records = 0
        self.spool_drained_messages = 0
        self.spool_sync_seconds = Histogram(SYNC_BUCKETS)
        self.config_reloads: dict[Result, int] = _Counts()
        self.mqtt_connects: dict[tuple[str, Protocol, ConnectResult], int] = _Counts()
        self.mqtt_auth_failures: dict[tuple[str, AuthReason], int] = _Counts()
        self.mqtt_logins: dict[LoginMethod, int] = _Counts()
        self.identity_requests: dict[tuple[IdentityMethod, Result], int] = _Counts()
        self.device_events: dict[tuple[DeviceEventKind, DeviceEventResult], int] = _Counts()
        self.mqtt_subscriptions_refused: dict[tuple[str, SubscribeReason], int] = _Counts()
        self.mqtt_disconnects: dict[tuple[str, DisconnectReason], int] = _Counts()
        self.mqtt_publish_received: dict[tuple[str, int], int] = _Counts()
        self.mqtt_publish_sent: dict[tuple[str, int], int] = _Counts()
        self.mqtt_puback_seconds: dict[int, Histogram] = _Histograms(LATENCY_BUCKETS)
        self.route_matched: dict[str, int] = _Counts()
        self.transform_errors: dict[tuple[str, TransformReason], int] = _Counts()
        self.messages_dropped: dict[tuple[str, DropReason], int] = _Counts()
        self.messages_returned: dict[str, int] = _Counts()
        self.dlq_messages: dict[tuple[str, DeadLetterReason], int] = _Counts()
        self.dlq_replayed: dict[tuple[str, Result], int] = _Counts()
        self.set_aside: dict[tuple[UnitKind, Result], int] = _Counts()
        self.mq_connect_attempts: dict[tuple[str, Result], int] = _Counts()
        self.mq_put_messages: dict[tuple[str, str], int] = _Counts()
        self.mq_put_bytes: dict[tuple[str, str], int] = _Counts()
        self.mq_get_messages: dict[tuple[str, str], int] = _Counts()
        self.mq_gone_messages: dict[str, int] = _Counts()
        self.mq_errors: dict[tuple[str, MqCall, str], int] = _Counts()
        self.mq_backouts: dict[tuple[str, str], int] = _Counts()
        self.mq_call_seconds: dict[tuple[str, MqCall], Histogram] = _Histograms(LATENCY_BUCKETS)
        self.mq_batch_messages: dict[str, Histogram] = _Histograms(BATCH_BUCKETS)
        self.bridge_latency_seconds: dict[Direction, Histogram] = _Histograms(LATENCY_BUCKETS)
        self.backpressure_events: dict[PauseCause, int] = _Counts()
        self.reactor_lag_seconds: dict[str, Histogram] = _Histograms(LAG_BUCKETS)
        self.reactor_stall_seconds = Histogram(STALL_BUCKETS)
        self.tls_handshakes: dict[tuple[str, HandshakeResult], int] = _Counts()
        self.spans: dict[SpanResult, int] = _Counts()
        self.log_events: dict[Level, int] = _Counts()
        self.log_suppressed: dict[Level, int] = _Counts()
        self.names = names or Names()
        self._touch({})

    def declare(self, names: Names) -> None:
        """Create what is missing for these names, after a reload; counts so far stay."""
        before, self.names = self.names, names
        self._touch({label: set(before.with_series(label)) for label in _LABELS})

    def _touch(self, there: Mapping[Label, set[object]]) -> None:
        """Create the series of label values that are new."""
        values = {label: self.names.with_series(label) for label in _LABELS}
        fresh = {label: [one for one in values[label] if one not in there.get(label, ())] for label in _LABELS}
        for metric in CATALOGUE:
            family = getattr(self, metric.name, None)
            if not isinstance(family, _Counts | _Histograms):
                continue
            every = [values[label] for label in metric.labels]
            for at, label in enumerate(metric.labels):
                for found in product(*every[:at], fresh[label], *every[at + 1 :]):
                    family.touch(found if len(found) > 1 else found[0])

    def series(self, metric: Metric) -> Mapping[Any, Any]:
        """A counter or histogram with all its series: numbers or `Histogram`s by tuples of label values."""
        if metric.name == "mqtt_packets":
            keys = product(get_args(Direction), PACKET_TYPES)
            return dict(zip(keys, (*self.packets_in, *self.packets_out), strict=True))
        if metric.name == "mqtt_bytes":
            return {("in",): self.bytes_in, ("out",): self.bytes_out}
        value = getattr(self, metric.name)
        if not metric.labels:
            return {(): value}
        return dict(value) if len(metric.labels) > 1 else {(key,): count for key, count in value.items()}


class _Counts(dict[Any, int]):
    """Counts by label values; a key that was not declared starts at 0."""

    def __missing__(self, key: object) -> int:
        return 0

    def touch(self, key: object) -> None:
        self.setdefault(key, 0)


class _Histograms(dict[Any, Histogram]):
    """Histograms by label values; a key that was not declared gets one when it is first used."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        super().__init__()
        self.bounds = bounds

    def __missing__(self, key: object) -> Histogram:
        return self.setdefault(key, Histogram(self.bounds))

    def touch(self, key: object) -> None:
        self[key]
