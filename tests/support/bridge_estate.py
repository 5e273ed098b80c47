"""A gateway on either backend, an MQ application beside it, and MQTT 5 devices: what the end-to-end tests share.

The application is the real `ibmmq` extension over our MQI library, on both backends; it reads raw descriptors and data.
"""

from __future__ import annotations

import json
import os
import socket
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import mqi_clients
from gateways import RunningGateway

from gateway.backends.ibm.connection import Connection
from gateway.backends.ibm.driver import ConnectSettings, load
from gateway.backends.ibm.identifiers import MessageIds
from gateway.backends.ibm.reader import Reader
from gateway.bridge.message import Message, read_message
from gateway.errors import MQError
from gateway.mq import constants as mq
from gateway.mq import mqmd
from gateway.mq.headers import rfh2
from gateway.mq.headers.rfh2_folder import folder
from gateway.mqtt import client, writer
from gateway.mqtt import packets as p
from gateway.mqtt import properties as prop
from gateway.mqtt.client import server_reader
from gateway.ports.batch import Puts, Stored

ROOT = Path(__file__).parents[2]
BACKENDS = ["embedded", "ibm"]
_IBM = """
queue_manager:
  ibm: {name: MQGATE, connection: "localhost(1414)", channel: DEV.APP.SVRCONN, driver: ibmmq, connections: 2,
        reconnect_from: 50ms, reconnect_to: 200ms}
"""
_EMBEDDED = "queue_manager: {{embedded: {{objects: objects.mqsc, socket: {socket}}}}}\n"
SECONDS = 60.0


def wait(condition: Callable[[], Any], seconds: float = SECONDS) -> Any:
    """Until it holds; what it gave."""
    until = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < until, condition
        time.sleep(0.02)
    return found


class Application:
    """A program that puts and looks, as any MQ application would."""

    def __init__(self, where: str) -> None:
        mqi_clients.load_bindings()
        os.environ["MQGATE_MQI"] = where
        driver, settings = load("ibmmq"), ConnectSettings("MQGATE", "localhost(1414)", "DEV.APP.SVRCONN")
        self.driver = driver
        self.connection = Connection(driver.connect(settings), MessageIds(0.0, b""))
        self.reader = Reader(driver, settings, MessageIds(0.0, b""))

    def put(self, queue: str, body: bytes, **fields: Any) -> bytes:
        """One persistent message; `usr` and other folders by name; its MsgId."""
        folders = [folder(name, list(fields.pop(name).items())) for name in ("usr", "mqps", "mqtt") if name in fields]
        kind, ccsid = fields.pop("format", "MQSTR"), fields.pop("ccsid", 1208)
        persistent = bool(fields.pop("persistence", 1))
        md = mqmd.with_described(mqmd.build(persistence=int(persistent), **fields), 546, ccsid, kind.ljust(8).encode())
        if folders:
            header = rfh2.build(folders, encoding=546, coded_char_set_id=ccsid, format_name=kind.ljust(8).encode())
            md, body = mqmd.with_described(md, 546, 1208, b"MQHRF2  "), header + body
        tokens = self.connection.put_run(Puts(queue, persistent=persistent, heads=[md], bodies=[body]), False)
        self.connection.session.commit()
        token = tokens[0]
        assert isinstance(token, bytes)
        return token

    def back_out(self, queue: str, msg_id: bytes, times: int) -> None:
        """Get it and change one's mind, so often."""
        for _ in range(times):
            assert self.connection.get(self.connection.input(queue), msg_id, queue) is not None
            self.connection.session.back()

    def look(self, queue: str) -> list[Stored]:
        """What lies on a queue, first to last."""
        return self.reader.fetch(queue, b"", 2000, None)

    def messages(self, queue: str, count: int = 1) -> list[Message]:
        """Messages of a queue, as soon as there are so many, taken apart."""
        found: list[Stored] = wait(lambda: len(got := self.look(queue)) >= count and (got or [b""]))
        return [read_message(stored.md, stored.data) for stored in found if stored]

    def clear(self, *queues: str) -> None:
        for queue in queues:
            for stored in self.look(queue):
                self.connection.get(self.connection.input(queue), stored.token, queue)  # type: ignore[arg-type]
            self.connection.session.commit()

    def retained(self, topic: str) -> list[Message]:
        """What a new subscription to a topic is given."""
        module, owner = self.driver.module, self.connection.session._owner
        asked = module.SD(Options=mq.MQSO_CREATE | mq.MQSO_MANAGED | mq.MQSO_NON_DURABLE)
        asked.set_vs("ObjectString", topic.encode())
        subscription = module.Subscription(owner)
        subscription.sub(sub_desc=asked)
        found = []
        try:
            while True:
                md, options = module.MD(), module.GMO(Options=mq.MQGMO_NO_WAIT | mq.MQGMO_PROPERTIES_FORCE_MQRFH2)
                data = subscription.get(None, md, options)
                found.append(read_message(md.pack(), data))
        except self.driver.error as error:
            if error.reason != mq.MQRC_NO_MSG_AVAILABLE:
                raise
        subscription.close(sub_close_options=mq.MQCO_REMOVE_SUB, close_sub_queue=True)
        return found

    def close(self) -> None:
        self.reader.close()
        self.connection.session.disconnect()


class Talker:
    """An MQTT 5 device that shows its packets."""

    def __init__(
        self, port: int, client_id: str, *, clean: bool = True, version: int = 5, patience: float = SECONDS,
        **connect: Any,
    ) -> None:  # fmt: skip
        """`patience`: seconds for which it waits for a packet."""
        self.version, self.patience = version, patience
        self.socket = socket.create_connection(("127.0.0.1", port), SECONDS)
        self.reader = server_reader(version)
        self.packets: list[Any] = []
        asked = client.connect(version, client_id, clean_start=clean, **connect)
        if version == 5 and not clean:
            asked.properties[0x11] = 3600
        self.socket.sendall(client.encode_connect(asked))
        self.connack: p.Connack = self.next(p.CONNACK)[1]
        self._ids = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with suppress(OSError):
            self.socket.sendall(writer.encode_disconnect(self.version, p.Disconnect()))
        self.socket.close()

    def cut(self) -> None:
        """No DISCONNECT: the will is published."""
        self.socket.close()

    def next(self, kind: int, seconds: float = 0.0) -> Any:
        """The next packet of a kind."""
        until = time.monotonic() + (seconds or self.patience)
        while True:
            for at, packet in enumerate(self.packets):
                if packet[0] >> 4 == kind:
                    return self.packets.pop(at)
            self.socket.settimeout(max(0.01, until - time.monotonic()))
            data = self.socket.recv(65536)
            assert data, "the gateway closed the connection"
            self.packets += self.reader.feed(data)
            assert self.reader.error is None

    def silent(self, seconds: float = 0.4) -> bool:
        """Whether no publication comes for a moment."""
        try:
            self.packets.insert(0, self.next(p.PUBLISH, seconds))
        except TimeoutError:
            return True
        return False

    def publish(self, topic: str, payload: bytes = b"x", qos: int = 1, *, retain: bool = False, **named: Any) -> int:
        """Publish and see it through; the reason of its first acknowledgement. `properties` by number."""
        properties = prop.encode(named.get("properties", {})) if self.version == 5 else b""
        self._ids = self._ids % 0xFFFF + 1
        packet_id = self._ids if qos else 0
        self.socket.sendall(
            writer.encode_publish(
                self.version, topic.encode(), payload, qos, retain=retain, packet_id=packet_id, properties=properties
            )
        )
        if not qos:
            return 0
        reason = int(self.next(p.PUBACK if qos == 1 else p.PUBREC)[2])
        if qos == 2 and reason < 0x80:
            self.socket.sendall(writer.encode_acks(p.PUBREL, [packet_id]))
            self.next(p.PUBCOMP)
        return reason

    def subscribe(self, filter_: str, qos: int = 2) -> None:
        self.socket.sendall(client.encode_subscribe(self.version, p.Subscribe(1, [p.Subscription(filter_, qos)])))
        self.next(p.SUBACK)

    def receive(self) -> tuple[str, bytes, int, dict[int, Any]]:
        """The next publication, acknowledged: topic, payload, first byte, properties."""
        first, topic, packet_id, block, payload = self.next(p.PUBLISH)
        qos = first >> 1 & 3
        if qos == 1:
            self.socket.sendall(writer.encode_acks(p.PUBACK, [packet_id]))
        elif qos == 2:
            self.socket.sendall(writer.encode_acks(p.PUBREC, [packet_id]))
            self.next(p.PUBREL)
            self.socket.sendall(writer.encode_acks(p.PUBCOMP, [packet_id]))
        return topic.decode(), payload, first, prop.decode_publish(block) if block else {}


class Estate:
    """A gateway, its queue manager (in it, or a process of its own), and an application."""

    def __init__(self, directory: Path, backend: str, mapping: str, objects: str, more: str = "") -> None:
        """`more`: other settings of the gateway."""
        self.backend = backend
        where = directory / "s"
        host = directory / "qm"
        host.mkdir()
        (host / "objects.mqsc").write_text(objects + "\n" + (ROOT / "deploy" / "mq" / "state.mqsc").read_text())
        settings = _EMBEDDED.format(socket=where)
        if backend == "embedded":
            (host / "map.yaml").write_text(mapping)
            self.manager = self.gateway = RunningGateway(host, settings=settings + more + "mappings: [map.yaml]\n")
        else:
            self.manager = RunningGateway(host, settings=settings)
            edge = directory / "gw"
            edge.mkdir()
            (edge / "map.yaml").write_text(mapping)
            environ = mqi_clients.program_environment(str(where), *mqi_clients.BINDINGS)
            driver = "pymqi" if backend == "pymqi" else "ibmmq"
            settings = _IBM.replace("driver: ibmmq", f"driver: {driver}")
            self.gateway = RunningGateway(edge, settings=settings + more + "mappings: [map.yaml]\n", environ=environ)
        self.where = str(where)

    def start(self) -> None:
        self.manager.start()
        if self.gateway is not self.manager:
            self.gateway.start()
        self.application = Application(self.where)

    def restart(self) -> None:
        """`kill -9` of the gateway."""
        if self.gateway is self.manager:
            self.application.close()
        self.gateway.kill()
        self.gateway.start()
        if self.gateway is self.manager:
            self.application = Application(self.where)

    def stop(self) -> None:
        with suppress(MQError):
            self.application.close()
        for one in (self.gateway, self.manager):
            if one.process is not None and one.process.poll() is None:
                one.kill()

    def device(self, client_id: str, **named: Any) -> Talker:
        return Talker(self.gateway.port, client_id, **named)

    def mqsc(self, text: str) -> None:
        assert self._ask(self.manager, "/mqsc", {"text": text})["ok"], text

    def reload(self, mapping: str) -> None:
        """New rules."""
        (self.gateway.directory / "map.yaml").write_text(mapping)
        self._ask(self.gateway, "/reload", {})

    def _ask(self, process: RunningGateway, path: str, body: dict[str, Any] | None) -> Any:
        tokens = list(process.directory.rglob("admin.token"))
        headers = {"Authorization": f"Bearer {tokens[0].read_text().strip()}", "Content-Type": "application/json"}
        url = f"http://127.0.0.1:{process.admin}/api/v1{path}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, headers, method="GET" if body is None else "POST")
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def troubles(self) -> list[str]:
        """What the page tells its operator to look at."""
        found: list[str] = self._ask(self.gateway, "/overview", None)["problems"]
        return found

    def account(self) -> dict[str, dict[str, float]]:
        """Counters by rule, without the other labels."""
        found: dict[str, dict[str, float]] = {}
        for line in self.gateway.get("/metrics").splitlines():
            if 'route="' in line and not line.startswith("#"):
                rule = line.partition('route="')[2].partition('"')[0]
                name = line.partition("{")[0].removeprefix("mqgate_").removesuffix("_total")
                counts = found.setdefault(rule, {})
                counts[name] = counts.get(name, 0) + float(line.rsplit(" ", 1)[1])
        return found


@contextmanager
def estate(directory: Path, backend: str, mapping: str, objects: str, more: str = "") -> Iterator[Estate]:
    made = Estate(directory, backend, mapping, objects, more)
    made.start()
    try:
        yield made
    finally:
        made.stop()
