"""Rules that consume queues of other queue managers: real ones on loopback."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from bridge_estate import Talker, wait
from gateways import RunningGateway
from target_estate import Estate

from gateway.mqtt import packets as p
from gateway.mqtt import writer

pytestmark = [pytest.mark.mqi, pytest.mark.timeout(300)]
LONG = pytest.mark.skipif(not os.environ.get("MQGATE_LONG"), reason="takes its time; with tests/run --long")
MAPPING = """
version: 1
to_mqtt:
  - {name: there, queue: THERE, queue_manager: QM2, topic: news/there, qos: 2}
  - {name: here, queue: HERE, topic: news/here, qos: 1}
to_mq:
  - {name: into, topic: "into/#", queue: HERE, headers: []}
"""


@contextmanager
def estate_of(place: Path, manager: str, more: str = "") -> Iterator[Estate]:
    made = Estate(place, manager, more, mapping=MAPPING)
    try:
        yield made
    finally:
        made.end()


class Reader:
    """A session that is kept, through whichever gateway; what it has had at QoS 2 it knows again."""

    def __init__(self) -> None:
        self.found: list[bytes] = []
        self._open = set[int]()
        self._talker: Talker | None = None

    def connect(self, gateway: RunningGateway, *filters: str) -> None:
        self.leave()
        self._talker = Talker(gateway.port, "reader", clean=False)
        for one in filters:
            self._talker.subscribe(one, 2)

    def leave(self) -> None:
        if self._talker is not None:
            self._talker.socket.close()

    @property
    def talker(self) -> Talker:
        assert self._talker is not None
        return self._talker

    def read(self, count: int) -> list[bytes]:
        """So many more, each acknowledged as it has to be."""
        before = len(self.found)
        while len(self.found) < before + count:
            packet = self.talker.next(p.PUBLISH, 60)
            qos, packet_id = packet[0] >> 1 & 3, packet[2]
            if packet_id not in self._open:
                self.found.append(bytes(packet[4]))
            self.talker.socket.sendall(writer.encode_acks(p.PUBACK if qos == 1 else p.PUBREC, [packet_id]))
            if qos == 2:
                self._open.add(packet_id)
                self.talker.next(p.PUBREL, 60)
                self.talker.socket.sendall(writer.encode_acks(p.PUBCOMP, [packet_id]))
                self._open.discard(packet_id)
        return self.found[before:]


@pytest.mark.parametrize("manager", ["embedded", pytest.param("ibm", marks=LONG)])
def test_a_queue_of_a_target_reaches_devices_and_waits_while_the_target_is_away(tmp_path: Path, manager: str) -> None:
    with estate_of(tmp_path, manager) as estate:
        estate.start()
        reader = Reader()
        reader.connect(estate.gateway, "news/there", "news/here")
        estate.there.put("THERE", *(b"%d" % number for number in range(300)))
        assert reader.read(300) == [b"%d" % number for number in range(300)]
        wait(lambda: not estate.there.bodies("THERE"), 60)
        estate.there.kill()
        wait(lambda: "queue THERE at QM2: it cannot be consumed" in estate.ready(), 60)
        assert reader.talker.publish("into/a", b"own", 1) == 0
        assert reader.read(1)[0].endswith(b"own"), "only what comes from there stands"
        estate.there.start()
        estate.there.put("THERE", b"after")
        assert reader.read(1) == [b"after"]
        wait(lambda: "queue THERE at QM2\n" in estate.ready(), 60)
        reader.leave()
        metrics = estate.gateway.get("/metrics")
        assert 'mqgate_mq_get_messages_total{qmgr="QM2",route="there"} 301.0' in metrics


@pytest.mark.parametrize("place", ["target.dealt-with", pytest.param("target.taken", marks=LONG)])
def test_a_gateway_killed_between_the_two_commits_delivers_each_message_once(tmp_path: Path, place: str) -> None:
    with estate_of(tmp_path, "embedded") as estate:
        estate.start(f"{place}:2")
        reader = Reader()
        reader.connect(estate.gateway, "news/there")
        sent = [b"%d" % number for number in range(500)]
        estate.there.put("THERE", *sent)
        estate.gateway.wait_killed()
        assert estate.there.bodies("THERE")
        estate.start()
        reader.connect(estate.gateway)
        reader.read(500)
        wait(lambda: not estate.there.bodies("THERE"), 60)
        estate.there.put("THERE", b"last")
        reader.read(1)
        assert Counter(reader.found) == Counter([*sent, b"last"])
        reader.leave()


def test_another_gateway_takes_over_what_is_between_the_two_commits(tmp_path: Path) -> None:
    with estate_of(tmp_path, "ibm", "lease: 1s, ") as estate:
        heir = estate.add_gateway("heir")
        try:
            estate.start("target.dealt-with:2")
            reader = Reader()
            reader.connect(estate.gateway, "news/there")
            first = [b"%d" % number for number in range(500)]
            estate.there.put("THERE", *first)
            estate.gateway.wait_killed()
            heir.start()
            reader.connect(heir)
            reader.read(500)
            wait(lambda: not estate.there.bodies("THERE"), 60)
            estate.there.put("THERE", b"last")
            reader.read(1)
            assert Counter(reader.found) == Counter([*first, b"last"])
            reader.leave()
        finally:
            heir.kill()


@LONG
def test_two_gateways_share_a_queue_and_each_message_comes_once(tmp_path: Path) -> None:
    """One of them is killed in the middle of it, and the target now and then."""
    with estate_of(tmp_path, "ibm", "lease: 6s, ") as estate:
        other = estate.add_gateway("other")
        try:
            estate.start("target.dealt-with:4")
            other.start()
            reader = Reader()
            reader.connect(other, "news/there")
            sent = [b"%d" % number for number in range(4000)]
            for at in range(0, len(sent), 100):
                estate.there.put("THERE", *sent[at : at + 100])
            reader.read(len(sent) // 4)
            estate.there.kill()
            estate.there.start()
            reader.read(len(sent) - len(reader.found))
            wait(lambda: not estate.there.bodies("THERE"), 120)
            estate.there.put("THERE", b"last")
            reader.read(1)
            assert Counter(reader.found) == Counter([*sent, b"last"])
            reader.leave()
        finally:
            other.kill()
