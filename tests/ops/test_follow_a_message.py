"""From a device's packet identifier to its MsgId and back: by the log, by the API, and live in both directions."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from patient_device import Device
from running_gateway import TOKEN, Running, publish, running, until

pytestmark = pytest.mark.ops
TOPIC = "plant/lima/line/7/temperature"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("follow")
    with running(folder, more='log: {clients: ["line-00*"]}\n') as found:
        yield found


def lines(gateway: Running, event: str, client: str) -> list[dict[str, Any]]:
    whole = (gateway.folder / "log.1").read_text().split("\n")[:-1]  # another is perhaps just being written
    found = [json.loads(each) for each in whole if each.startswith("{")]
    return [each for each in found if each["event"] == event and each.get("client_id") == client]


def get(gateway: Running, path: str) -> Any:
    return json.loads(gateway.text(f"/api/v1{path}", TOKEN))


def test_the_log_leads_from_the_packet_to_the_message_and_the_api_back(gateway: Running) -> None:
    publish(gateway, TOPIC, "-273.15", client_id="line-007")  # no part of any time or number that is logged
    publish(gateway, TOPIC, "-273.15", client_id="other")
    (put,) = until(lambda: lines(gateway, "message.put", "line-007"))
    (received,) = [each for each in lines(gateway, "message.received", "line-007") if each["msg"] == "PUBLISH"]
    assert (put["packet_id"], put["route"], put["queue"]) == (received["packet_id"], "readings", "MQGATE.DEFAULT")
    (answer,) = until(lambda: [each for each in lines(gateway, "message.sent", "line-007") if each["msg"] == "PUBACK"])
    assert answer["packet_id"] == put["packet_id"]
    assert "-273.15" not in json.dumps(lines(gateway, "message.received", "line-007")), "payloads are never logged"
    assert lines(gateway, "message.put", "other") == [], "nobody asked for this one"

    (found,) = get(gateway, f"/journey?msg_id={put['msg_id']}")["items"]
    assert (found["client_id"], found["packet_id"], found["rule"]) == ("line-007", put["packet_id"], "readings")
    assert [each["msg_id"] for each in get(gateway, "/journey?client_id=line-007")["items"]] == [put["msg_id"]]


def test_a_message_that_nobody_followed_says_itself_where_it_came_from(gateway: Running) -> None:
    publish(gateway, TOPIC, "22", client_id="unseen")
    listed = get(gateway, "/queues/MQGATE.DEFAULT/messages?limit=500")["items"]
    (found,) = get(gateway, f"/journey?msg_id={listed[-1]['msg_id']}")["items"]
    assert (found["client_id"], found["packet_id"], found["topic"]) == ("unseen", 1, TOPIC)
    assert (found["queue"], found["rule"]) == ("MQGATE.DEFAULT", "readings")
    assert get(gateway, f"/journey?msg_id={'0' * 48}")["items"] == []


def test_a_trace_shows_both_directions(gateway: Running) -> None:
    request = urllib.request.Request(
        f"http://127.0.0.1:{gateway.admin}/api/v1/trace?client=both&seconds=20",
        headers={"Authorization": f"Bearer {TOKEN}"},
    )
    with urllib.request.urlopen(request, timeout=60) as stream:
        assert stream.readline().startswith(b":")
        with Device("127.0.0.1", gateway.port, "both", version=5) as device:
            assert device.connect() == 0
            device.subscribe(TOPIC, 1)
            device.publish(TOPIC, b"1", 1)
        seen: list[tuple[str, str]] = []
        wanted = {("out", "SUBACK"), ("in", "PUBLISH"), ("mq", "PUT"), ("out", "PUBACK"), ("out", "PUBLISH")}
        while not wanted <= set(seen):
            line = stream.readline()
            assert line, seen
            if line.startswith(b"data: "):
                event = json.loads(line[6:])
                seen.append((event["direction"], event["kind"]))


def test_a_reload_follows_others(gateway: Running) -> None:
    path = gateway.folder / "settings.yaml"
    settings = path.read_text()

    def use(text: str) -> None:
        path.write_text(text)
        request = urllib.request.Request(f"http://127.0.0.1:{gateway.admin}/api/v1/reload", b"", method="POST")
        request.add_header("Authorization", f"Bearer {TOKEN}")
        urllib.request.urlopen(request, timeout=60).close()

    use(settings.replace("line-00*", "pump-*"))
    before = len(lines(gateway, "message.put", "line-007"))
    publish(gateway, TOPIC, "23", client_id="line-007")
    publish(gateway, TOPIC, "23", client_id="pump-1")
    until(lambda: lines(gateway, "message.put", "pump-1"))
    assert len(lines(gateway, "message.put", "line-007")) == before
    use(settings)
