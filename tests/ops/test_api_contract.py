"""The running gateway answers as openapi.json says: every operation, its schema, its errors, its roles."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gateway_template
import jsonschema_rs
import pytest
from ops_machine import ROOT
from patient_device import Device
from running_gateway import TOKEN, Running, publish, running, until

from gateway.mqtt import writer

pytestmark = [pytest.mark.ops, pytest.mark.xdist_group("gateway-api")]

DOCUMENT: dict[str, Any] = json.loads((ROOT / "gateway/net/static/openapi.json").read_text())
OPERATIONS = {
    f"{method.upper()} {path}": operation
    for path, item in DOCUMENT["paths"].items()
    for method, operation in item.items()
    if method in {"get", "put", "post", "delete"}
}
CALLED: set[str] = set()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("gateway"), more="security: {managed: true}\n") as found:
        publish(found, "plant/lima/line/7/temperature", "21.5", 3)
        publish(found, "lost/x", "1", 2)
        yield found


class Answer:
    """Status and body of a call."""

    def __init__(self, status: int, body: Any) -> None:
        self.status = status
        self.body = body


def call(
    gateway: Running, name: str, /, body: Any = None, query: str = "", bearer: str = TOKEN, **path: str
) -> Answer:  # fmt: skip
    """Make a call of the document; what comes back must be as the document says."""
    CALLED.add(name)
    method, template = name.split(" ")
    address = template.format(**{key: urllib.parse.quote(value, safe="") for key, value in path.items()})
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{gateway.admin}/api/v1{address}{query}",
        data,
        {"Authorization": f"Bearer {bearer}"},
        method=method,
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            found = Answer(answer.status, answer.read())
    except urllib.error.HTTPError as error:
        found = Answer(error.code, error.read())
    check(name, found)
    return found


def check(name: str, answer: Answer) -> None:
    responses = OPERATIONS[name]["responses"]
    assert str(answer.status) in responses, f"{name}: {answer.status} is not described: {answer.body!r}"
    described = responses[str(answer.status)]
    if "$ref" in described:
        described = DOCUMENT["components"]["responses"][described["$ref"].rsplit("/", 1)[1]]
    content = described.get("content", {})
    kind = next((each for each in content if each.endswith("json")), None)
    if kind is None:
        return
    answer.body = json.loads(answer.body)
    schema = {"components": DOCUMENT["components"], **content[kind]["schema"]}
    errors = [
        f"{list(error.instance_path)}: {error.message}"
        for error in jsonschema_rs.validator_for(schema).iter_errors(answer.body)
    ]
    assert errors == [], f"{name} {answer.status}: {errors[:5]}"


@pytest.mark.parametrize(
    "name",
    [
        "/me",
        "/overview",
        "/history",
        "/settings",
        "/log",
        "/rules",
        "/clients",
        "/gateways",
        "/queues",
        "/dlq",
        "/pipeline",
    ],
)
def test_what_is_read_is_as_described(gateway: Running, name: str) -> None:
    assert call(gateway, f"GET {name}").status == 200


def test_overview_counts_what_was_published(gateway: Running) -> None:
    totals = call(gateway, "GET /overview").body["totals"]
    assert totals["received"] == 5
    assert totals["put"] == 5  # the dead-letter queue is a queue
    assert totals["dead_lettered"] == 2


def test_a_queue_is_browsed_put_to_and_cleared(gateway: Running) -> None:
    queue = "MQGATE.DEFAULT"
    assert call(gateway, "GET /queues/{queue}", queue=queue).body["depth"] == 3
    body = {"text": "hello", "properties": {"site": "lima"}, "priority": 3, "expiry_seconds": 60}
    put = call(gateway, "POST /queues/{queue}/messages", body, queue=queue)
    assert put.status == 201
    listed = call(gateway, "GET /queues/{queue}/messages", query="?limit=2", queue=queue).body
    assert len(listed["items"]) == 2
    after = call(gateway, "GET /queues/{queue}/messages", query=f"?limit=2&after={listed['next']}", queue=queue).body
    tokens = [each["token"] for each in (*listed["items"], *after["items"])]
    assert len(set(tokens)) == 4
    whole = call(gateway, "GET /queues/{queue}/messages", query="?decoded=true&limit=3", queue=queue).body
    assert [each["body"]["text"] for each in whole["items"]] == ["hello", "21.5", "21.5"]
    assert whole["next"] == tokens[2]
    message = call(gateway, "GET /queues/{queue}/messages/{token}", queue=queue, token=tokens[0]).body
    assert message["headers"][0]["structure"] == "MQRFH2"
    assert call(gateway, "DELETE /queues/{queue}/messages/{token}", queue=queue, token=tokens[0]).status == 204
    assert call(gateway, "GET /queues/{queue}/messages/{token}", queue=queue, token=tokens[0]).status == 404
    some = {"tokens": tokens[:2]}
    assert call(gateway, "POST /queues/{queue}/remove", some, queue=queue).body == {"removed": 1}
    assert call(gateway, "POST /queues/{queue}/remove", some, queue="MQGATE.AUDIT").status == 403
    assert call(gateway, "DELETE /queues/{queue}/messages", query="?confirm=OTHER", queue=queue).status == 400
    cleared = call(gateway, "DELETE /queues/{queue}/messages", query=f"?confirm={queue}", queue=queue)
    assert cleared.body == {"removed": 2}


def test_a_message_as_long_as_a_queue_takes_is_put_by_command(gateway: Running, tmp_path: Path) -> None:
    """MAXMSGL is 4 MiB unless somebody says otherwise."""

    def put(length: int) -> subprocess.CompletedProcess[str]:
        (tmp_path / "body").write_bytes(bytes(length))
        words = ["queue", "put", "MQGATE.DEFAULT", "--file", str(tmp_path / "body"), "--data", str(data)]
        return gateway_template.run(*words, cwd=ROOT)

    data = gateway.folder / "data"
    longest = put(4 << 20)
    assert longest.returncode == 0, longest.stderr
    too_long = put(5 << 20)
    assert (too_long.returncode, "has at most 4 MiB" in too_long.stderr) == (1, True), too_long.stderr
    cleared = call(gateway, "DELETE /queues/{queue}/messages", query="?confirm=MQGATE.DEFAULT", queue="MQGATE.DEFAULT")
    assert cleared.body["removed"] >= 1


def test_rules_come_in_pages_are_searched_and_are_shown_one_by_one(gateway: Running) -> None:
    everything = call(gateway, "GET /rules").body
    names = [one["name"] for one in everything["items"]]
    assert everything["total"] == len(names) >= 2
    assert everything["next"] is None
    found, after = list[str](), "0"
    while after is not None:
        page = call(gateway, "GET /rules", query=f"?limit=1&after={after}").body
        found += [one["name"] for one in page["items"]]
        after = page["next"]
        assert (page["total"], page["files"]) == (len(names), everything["files"])
    assert found == names
    for text in (names[1], everything["items"][1]["topic"], everything["items"][1]["queue"]):
        page = call(gateway, "GET /rules", query=f"?search={urllib.parse.quote(text.upper())}").body
        assert names[1] in [one["name"] for one in page["items"]]
        assert page["total"] == len(page["items"])
    assert call(gateway, "GET /rules", query="?search=nowhere").body["items"] == []
    assert call(gateway, "GET /rules", query="?after=nowhere").status == 400
    one = call(gateway, "GET /rules/{rule}", rule=names[1]).body
    assert one["name"] == names[1]
    assert one.keys() == everything["items"][1].keys()
    assert call(gateway, "GET /rules/{rule}", rule="nowhere").status == 404


def test_the_mapping_is_checked_changed_and_taken_back(gateway: Running) -> None:
    (file,) = call(gateway, "GET /mapping").body["files"]
    text = file["text"].replace('topic: "lost/#"', 'topic: "missing/#"')
    wrong = call(gateway, "POST /mapping/check", {"file": file["file"], "text": text + "oops: 1\n"}).body
    assert wrong["findings"]
    asked = {"topic": "missing/x", "mapping": text, "file": file["file"]}
    assert [one["rule"] for one in call(gateway, "POST /explain", asked).body["puts"]] == ["lost"]
    assert call(gateway, "PUT /mapping", {"file": file["file"], "text": text + "oops: 1\n"}).status == 422
    number = call(gateway, "PUT /mapping", {"file": file["file"], "text": text, "what": "elsewhere"}).body["number"]
    topics = [each["topic"] for each in call(gateway, "GET /rules").body["items"]]
    assert "missing/#" in topics
    assert call(gateway, "POST /mapping/undo", {"number": 999}).status == 404
    assert call(gateway, "POST /mapping/undo", {"number": number}).status == 200
    found = call(gateway, "GET /mapping").body
    assert found["files"][0]["text"] == file["text"]
    assert [each["what"] for each in found["history"]] == [f"takes change {number} back", "elsewhere"]


def test_retained_messages_are_found_level_by_level_and_cleared(gateway: Running) -> None:
    with Device("127.0.0.1", gateway.port, "keeper") as device:
        device.connect()
        for topic, payload in (("hall/1/state", b"open"), ("hall/2/state", b"\xff"), ("hall", b"two")):
            device.publish(topic, payload, 1, retain=True)
    hall = next(each for each in call(gateway, "GET /topics").body["items"] if each["name"] == "hall")
    assert (hall["below"], hall["retained"]["preview"], hall["retained"]["client_id"]) == (2, "two", "keeper")
    first = call(gateway, "GET /topics", query="?under=hall/&limit=1").body
    rest = call(gateway, "GET /topics", query=f"?under=hall/&after={first['next']}").body
    assert [each["topic"] for each in (*first["items"], *rest["items"])] == ["hall/1", "hall/2"]
    assert call(gateway, "GET /topics", query="?under=hall").status == 400
    found = call(gateway, "GET /retained", query="?search=HALL/&limit=1").body
    assert (len(found["items"]), found["more"]) == (1, True)
    assert call(gateway, "GET /retained/{topic}", topic="hall/2/state").body["base64"] == "/w=="
    assert call(gateway, "DELETE /retained/{topic}", topic="$SYS/broker/version").status == 409
    assert call(gateway, "DELETE /retained/{topic}", topic="hall/1/state").status == 204
    assert call(gateway, "DELETE /retained/{topic}", topic="hall/1/state").status == 404
    assert call(gateway, "GET /retained/{topic}", topic="hall/1/state").status == 404
    levels = call(gateway, "GET /topics", query="?under=hall/").body["items"]
    assert [each["topic"] for each in levels] == ["hall/2"]


def test_definitions_are_commands_that_the_queue_manager_takes(gateway: Running) -> None:
    assert call(gateway, "POST /mqsc", {"text": "DEFINE QLOCAL(TAKEN.ALONG) MAXDEPTH(3)"}).body["ok"]
    found = call(gateway, "GET /definitions").body
    assert "DEFINE QLOCAL('TAKEN.ALONG') REPLACE +\n  MAXDEPTH(3)\n" in found["mqsc"]
    assert call(gateway, "POST /mqsc", {"text": found["mqsc"]}).body["ok"]


def test_messages_are_searched_by_text_and_property_and_moved(gateway: Running) -> None:
    queue, there = "SEARCHED", "GET /queues/{queue}/messages"
    assert call(gateway, "POST /mqsc", {"text": "DEFINE QLOCAL(SEARCHED)\nDEFINE QLOCAL(MOVED)"}).body["ok"]
    for site, text in (("lima", "first"), ("oslo", "SECOND"), ("lima", "third")):
        call(gateway, "POST /queues/{queue}/messages", {"text": text, "properties": {"site": site}}, queue=queue)
    assert [each["preview"] for each in call(gateway, there, query="?text=second", queue=queue).body["items"]] == [
        "SECOND"
    ]
    assert len(call(gateway, there, query="?property=usr.site%3Dlima", queue=queue).body["items"]) == 2
    assert len(call(gateway, there, query="?property=site", queue=queue).body["items"]) == 3
    assert call(gateway, there, query="?property=site%3Dlima&text=second", queue=queue).body["items"] == []
    first = call(gateway, there, query="?property=site%3Dlima&limit=1", queue=queue).body
    rest = call(gateway, there, query=f"?property=site%3Dlima&after={first['next']}", queue=queue).body
    assert [each["preview"] for each in (*first["items"], *rest["items"])] == ["first", "third"]
    assert rest["next"] is None
    tokens = [first["items"][0]["token"]]
    moved = call(gateway, "POST /queues/{queue}/move", {"to": "MOVED", "tokens": tokens}, queue=queue)
    assert (moved.body["done"], moved.body["failed"]) == (1, [])
    (found,) = call(gateway, there, query="?property=site%3Dlima", queue="MOVED").body["items"]
    assert found["preview"] == "first"
    assert found["msg_id"] == first["items"][0]["msg_id"]
    assert call(gateway, "POST /queues/{queue}/move", {"to": "MOVED"}, queue=queue).body["done"] == 2
    assert (
        call(gateway, "POST /queues/{queue}/move", {"to": "NOWHERE"}, queue="MOVED").body["failed"][0]["reason"] == 2085
    )
    assert call(gateway, "POST /queues/{queue}/move", {"to": "MQGATE.SESSIONS"}, queue="MOVED").status == 409
    token = call(gateway, there, queue="MOVED").body["items"][0]["token"]
    whole = call(gateway, "GET /queues/{queue}/messages/{token}", query="?whole=true", queue="MOVED", token=token)
    assert whole.body["body"]["truncated"] is False


def test_what_was_published_is_in_the_histories_of_queue_rule_and_client(gateway: Running) -> None:
    histories = [
        ("queues", "MQGATE.DEFAULT", "put"),
        ("rules", "readings", "matched"),
        ("clients", "often", "received"),
    ]
    with Device("127.0.0.1", gateway.port, "often") as device:
        device.connect()
        for kind, name, column in histories:

            def seen(kind: str = kind, name: str = name, column: str = column) -> bool:
                device.publish("plant/lima/line/7/temperature", b"1")
                return any(call(gateway, f"GET /history/{kind}/{{key}}", key=name).body[column])

            until(seen)
    assert any(call(gateway, "GET /history", query="?seconds=600").body["received"])
    assert call(gateway, "GET /history", query="?seconds=5").status == 400
    call(gateway, "DELETE /queues/{queue}/messages", query="?confirm=MQGATE.DEFAULT", queue="MQGATE.DEFAULT")


def test_dead_letters_are_listed_replayed_and_purged(gateway: Running) -> None:
    listed = call(gateway, "GET /dlq").body
    assert [each["count"] for each in listed["summary"]] == [2]
    letter = listed["items"][0]
    assert letter["reason_name"] == "MQRC_UNKNOWN_OBJECT_NAME"
    assert letter["rule"] == "lost"
    call(gateway, "GET /queues/{queue}/messages/{token}", queue=letter["queue"], token=letter["token"])
    assert call(gateway, "GET /dlq", query="?text=LOST/").body["total"] == 2
    assert call(gateway, "GET /dlq", query="?text=plant").body["total"] == 0
    dry = call(gateway, "POST /dlq/replay", {"dry_run": True}).body
    assert (dry["matched"], dry["done"]) == (2, 0)
    replayed = call(gateway, "POST /dlq/replay", {"tokens": [letter["token"]], "to": "MQGATE.DEFAULT"}).body
    assert replayed["done"] == 1, replayed
    assert 'mqgate_dlq_replayed_total{result="ok",route="lost"} 1.0' in gateway.text("/metrics").replace(
        'route="lost",result="ok"', 'result="ok",route="lost"'
    )
    assert call(gateway, "POST /dlq/purge", {"reason": letter["reason"]}).body["done"] == 1
    assert call(gateway, "GET /dlq").body["total"] == 0


def test_an_explanation_names_the_rule_the_queue_and_the_message(gateway: Running) -> None:
    body = {"topic": "plant/lima/line/7/temperature", "text": "21.5", "qos": 1}
    explained = call(gateway, "POST /explain", body).body
    assert [(each["rule"], each["queue"]) for each in explained["puts"]] == [("readings", "MQGATE.DEFAULT")]
    assert explained["puts"][0]["properties"]["usr.site"] == "lima"
    assert [each["rule"] for each in explained["others"]] == ["lost"]
    assert explained["missing_queues"] == []
    lost = {"topic": "lost/x", "listener": "plain"}
    assert call(gateway, "POST /explain", lost).body["missing_queues"] == ["NO.SUCH.PLAIN"]
    wrong = call(gateway, "POST /explain", {"topic": "a", "mapping": "version: 1\nto_mq: [{quue: X}]"})
    assert wrong.status == 400 or wrong.body["findings"]


def test_what_a_queue_refuses_is_seen_at_its_rule_its_queue_and_its_client(gateway: Running) -> None:
    name = "MQGATE.DEFAULT"
    assert "readings" in call(gateway, "GET /queues/{queue}", queue=name).body["rules"]
    (listed,) = [one for one in call(gateway, "GET /queues", query="?all=true").body["items"] if one["name"] == name]
    assert "readings" in listed["rules"]
    call(gateway, "POST /mqsc", {"text": f"ALTER QLOCAL({name}) PUT(DISABLED)"})
    with Device("127.0.0.1", gateway.port, "waits") as device:
        assert device.connect() == 0
        device._socket.sendall(writer.encode_publish(4, b"plant/lima/line/7/temperature", b"1", 1, packet_id=1))
        until = time.monotonic() + 60
        while not (shown := call(gateway, "GET /clients/{client_id}", client_id="waits").body)["paused"]:
            assert time.monotonic() < until
            time.sleep(0.02)
        assert shown["in_doubt_in"] == 1
        assert call(gateway, "GET /overview").body["inflight"] == 1
        held = {one["name"]: one["held"] for one in call(gateway, "GET /rules").body["items"]}
        assert held["readings"] == 1
        call(gateway, "POST /mqsc", {"text": f"ALTER QLOCAL({name}) PUT(ENABLED)"})
        assert device._socket.recv(4) == b"\x40\x02\x00\x01"


def test_a_client_is_shown_disconnected_and_purged(gateway: Running) -> None:
    from paho.mqtt.client import CallbackAPIVersion, Client

    device = Client(CallbackAPIVersion.VERSION2, client_id="a/b c", clean_session=False, reconnect_on_failure=False)
    device.connect("127.0.0.1", gateway.port)
    device.loop_start()
    device.subscribe("plant/#", 1)
    for qos in (0, 1, 2):
        device.publish("plant/lima/line/7/temperature", "21.5", qos).wait_for_publish(60)
    shown = call(gateway, "GET /clients/{client_id}", client_id="a/b c").body
    events = call(gateway, "GET /clients/{client_id}/history", client_id="a/b c").body["items"]
    assert events[0]["event"] == "connected"
    assert call(gateway, "GET /clients/{client_id}/history", client_id="nobody").status == 404
    assert shown["connected"] is True
    assert shown["received"] == 3
    assert shown["ends"] is None
    (plain,) = [one for one in call(gateway, "GET /overview").body["listeners"] if one["name"] == "plain"]
    assert (plain["sessions"], plain["session_limit"]) == (1, 100_000)
    left = time.time()
    assert call(gateway, "DELETE /clients/{client_id}/connection", client_id="a/b c").status == 204
    device.loop_stop()
    device.disconnect()
    away = call(gateway, "GET /clients/{client_id}", client_id="a/b c").body
    assert away["connected"] is False
    assert left - 60 < away["since"] < time.time() + 60, "when it was last seen"
    assert away["ends"] == pytest.approx(away["since"] + away["session_expiry_seconds"], abs=1)
    assert call(gateway, "DELETE /clients/{client_id}", client_id="a/b c").status == 204
    assert call(gateway, "GET /clients/{client_id}", client_id="a/b c").status == 404


def test_a_reload_with_errors_changes_nothing_and_names_them(gateway: Running) -> None:
    good = (gateway.folder / "plant.yaml").read_text()
    (gateway.folder / "plant.yaml").write_text(good.replace("queue:", "quue:", 1))
    refused = call(gateway, "POST /reload")
    assert refused.status == 422
    assert refused.body["findings"][0]["file"].endswith("plant.yaml")
    assert call(gateway, "GET /overview").body["last_reload"]["ok"] is False
    (gateway.folder / "plant.yaml").write_text(good.replace("name: readings", "name: temperatures"))
    changed = call(gateway, "POST /reload").body
    assert changed["ok"] is True
    assert "temperatures" in changed["changed"]
    (gateway.folder / "plant.yaml").write_text(good)
    assert call(gateway, "POST /reload").status == 200


def test_mqsc_is_run(gateway: Running) -> None:
    assert call(gateway, "POST /mqsc", {"text": "DISPLAY QLOCAL(MQGATE.DEFAULT) MAXDEPTH"}).body["ok"] is True


def test_connections_are_evened_out_over_the_gateways(gateway: Running) -> None:
    name = "POST /gateways/rebalance"
    until(lambda: call(gateway, name, {"dry_run": True}).status == 200)  # not before it has told what it has
    answer = call(gateway, name, {"rate": 5}).body
    assert [(one["own"], one["hands_back"]) for one in answer["items"]] == [(True, 0)]
    assert call(gateway, name, {"rate": 5.0, "dry_run": True}).status == 200  # an integer, to JSON Schema
    for wrong in ({"rate": 0}, {"rate": "5"}, {"rate": True}, {"dry_run": 1}, {"other": 1}):
        assert call(gateway, name, wrong).status == 400
    assert call(gateway, "DELETE /gateways/rebalance").status == 204


def test_the_log_level_is_changed_while_it_runs(gateway: Running) -> None:
    assert call(gateway, "PUT /log", {"level": "debug"}).body == {"level": "debug"}
    assert call(gateway, "GET /log").body == {"level": "debug"}
    assert call(gateway, "PUT /log", {"level": "loud"}).status == 400
    call(gateway, "PUT /log", {"level": "info"})


def test_a_message_in_the_trace_is_found_by_its_packet_identifier(gateway: Running) -> None:
    request = urllib.request.Request(
        f"http://127.0.0.1:{gateway.admin}/api/v1/trace?client=line-008&seconds=100",
        headers={"Authorization": f"Bearer {TOKEN}"},
    )
    CALLED.add("GET /trace")
    validator = jsonschema_rs.validator_for(
        {"components": DOCUMENT["components"], "$ref": "#/components/schemas/TraceEvent"}
    )
    with urllib.request.urlopen(request, timeout=60) as stream:
        assert stream.readline().startswith(b":")
        publish(gateway, "plant/lima/line/7/temperature", "1", client_id="line-008")
        seen: dict[str, dict[str, Any]] = {}
        while "PUT" not in seen:
            line = stream.readline()
            assert line, seen
            if line.startswith(b"data: "):
                event = json.loads(line[6:])
                assert [str(error.message) for error in validator.iter_errors(event)] == [], event
                seen[event["kind"]] = event
    assert seen["PUBLISH"]["packet_id"] == seen["PUT"]["packet_id"] == 1
    assert (seen["PUT"]["rule"], seen["PUT"]["queue"]) == ("readings", "MQGATE.DEFAULT")
    identifier = seen["PUT"]["msg_id"]
    (found,) = call(gateway, "GET /journey", query="?client_id=line-008&packet_id=1").body["items"]
    assert found["msg_id"] == identifier
    (back,) = call(gateway, "GET /journey", query=f"?msg_id={identifier}").body["items"]
    assert (back["client_id"], back["packet_id"]) == ("line-008", 1)
    listed = call(gateway, "GET /queues/{queue}/messages", query="?limit=500", queue="MQGATE.DEFAULT").body["items"]
    assert identifier.upper() in {each["msg_id"].upper() for each in listed}


def test_users_and_roles_are_made_changed_and_removed(gateway: Running) -> None:
    lists = {"publish": ["plant/#"], "subscribe": []}
    assert call(gateway, "PUT /device-roles/{role}", lists, role="lines").body["publish"] == ["plant/#"]
    assert call(gateway, "PUT /device-roles/{role}", {"publish": ["a/#/b"]}, role="lines").status == 422
    (made,) = call(gateway, "POST /device-users", {"users": [{"user": "line7", "role": "lines"}]}).body["items"]
    assert len(made["password"]) >= 32
    assert call(gateway, "POST /device-users", {"users": [{"user": "line7"}]}).status == 409
    assert call(gateway, "POST /device-users", {"mode": "change", "users": [{"user": "none"}]}).status == 404
    assert call(gateway, "POST /device-users", {"users": [{"user": "a", "hash": "b"}]}).status == 422
    assert call(gateway, "GET /device-users", query="?search=line").body["total"] == 1
    assert call(gateway, "GET /device-users/{user}", user="line7").body["role"] == "lines"
    assert [one["role"] for one in call(gateway, "GET /device-roles").body["items"]] == ["lines"]
    assert call(gateway, "DELETE /device-roles/{role}", role="lines").status == 409
    assert call(gateway, "DELETE /device-users/{user}", user="line7").status == 204
    assert call(gateway, "DELETE /device-users/{user}", user="line7").status == 404
    assert call(gateway, "DELETE /device-roles/{role}", role="lines").status == 204
    assert call(gateway, "DELETE /device-roles/{role}", role="lines").status == 404


def test_without_a_token_nothing_is_said_and_foreign_pages_change_nothing(gateway: Running) -> None:
    assert call(gateway, "GET /me", bearer="wrong").status == 401
    request = urllib.request.Request(
        f"http://127.0.0.1:{gateway.admin}/api/v1/reload",
        b"",
        {"Authorization": f"Bearer {TOKEN}", "Origin": "http://evil.example"},
    )
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=60)
    check("POST /reload", Answer(refused.value.code, refused.value.read()))
    assert refused.value.code == 403


def test_users_sign_in_and_have_tokens(gateway: Running) -> None:
    user = {"name": "ann", "role": "operator", "password": "correct horse"}
    assert call(gateway, "POST /users", user).status == 201
    assert call(gateway, "POST /users", user).status == 409
    assert call(gateway, "POST /session", {"user": "ann", "password": "correct horse"}).body["role"] == "operator"
    assert call(gateway, "POST /session", {"user": "ann", "password": "wrong horse"}).status == 401
    made = call(gateway, "POST /users/{name}/tokens", {"scope": "viewer", "days": 1}, name="ann")
    assert made.status == 201
    assert [each["name"] for each in call(gateway, "GET /users").body["items"]] == ["ann"]
    removed = call(gateway, "DELETE /users/{name}/tokens/{token}", name="ann", token=made.body["id"])
    assert removed.status == 204
    assert call(gateway, "PUT /users/{name}", {"role": "viewer"}, name="ann").body["role"] == "viewer"
    assert call(gateway, "DELETE /users/{name}", name="ann").status == 204
    assert call(gateway, "DELETE /users/{name}", name="ann").status == 404
    assert call(gateway, "DELETE /session").status == 204
    assert call(gateway, "GET /sign-in").body == {"openid": None}
    assert call(gateway, "GET /sign-in/begin").status == 404
    assert call(gateway, "GET /sign-in/answer").status == 404


def test_what_was_done_is_in_the_audit_trail(gateway: Running) -> None:
    call(gateway, "PUT /log", {"level": "info"})
    until = time.monotonic() + 60
    while time.monotonic() < until:
        found = call(gateway, "GET /audit").body["items"]
        if any(one["action"] == "PUT /api/v1/log" for one in found):
            break
        time.sleep(0.05)
    assert any(one["arguments"] == {"level": "info"} for one in found)


def test_every_operation_was_called() -> None:
    assert set(OPERATIONS) - CALLED == {"POST /drain"}
