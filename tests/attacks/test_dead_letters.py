"""Dead letters by the ten thousand, which a device can cause: whoever looks at them, or has them replayed, keeps no
device waiting."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from stall_attacks import LONG, Attacked, acknowledged, publish

COUNT = 50_000 if LONG else 6_000
MAPPING = """
version: 1
to_mq:
  - {name: lost, topic: "lost/#", queue: NO.SUCH.QUEUE, on_failure: {retry: {times: 0}, then: dead_letter}}
"""
SETTINGS = "mappings: [lost.yaml]\nmqtt: {max_inflight: 1000}\nlisteners: [{name: plain, port: 0}]\n"


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    directory = tmp_path_factory.mktemp("dead")
    (directory / "lost.yaml").write_text(MAPPING)
    with Attacked(directory, SETTINGS).serve() as one:
        yield one


@pytest.fixture
def filled(attacked: Attacked) -> Attacked:
    """With so many dead letters, whatever other tests have left."""
    api = attacked.running.api
    if api("GET", "/dlq?limit=1")["total"] != COUNT:
        api("POST", "/dlq/purge", {"limit": 1_000_000})
        with attacked.online("sender") as sock:
            for start in range(0, COUNT, 500):
                some = range(start, start + 500)
                sock.sendall(b"".join(publish(f"lost/{n % 50}", b"x" * 200, 1, n % 500 + 1) for n in some))
                acknowledged(sock, 500)
    return attacked


def test_a_listing_of_all(filled: Attacked) -> None:
    with filled.budget():
        found = filled.running.api("GET", "/dlq?limit=500")
        assert found["total"] == COUNT
        assert len(found["items"]) == 500
        assert found["summary"][0]["count"] == COUNT
        again = filled.running.api("GET", f"/dlq?limit=10&after={found['next']}")
        assert len(again["items"]) == 10
        assert filled.running.api("GET", "/dlq?destination=ELSEWHERE")["total"] == 0


def test_a_thousand_are_moved_and_moved_back(filled: Attacked) -> None:
    api = filled.running.api
    places = (api("GET", "/dlq?limit=1")["items"][0]["queue"], "MQGATE.DEFAULT")
    for name, to in (places, places[::-1]):
        first = api("GET", f"/queues/{name}/messages?limit=500")
        items = first["items"] + api("GET", f"/queues/{name}/messages?limit=500&after={first['next']}")["items"]
        with filled.budget():
            moved = api("POST", f"/queues/{name}/move", {"to": to, "tokens": [one["token"] for one in items]})
        assert (moved["done"], moved["failed"]) == (1000, [])


def test_a_replay_and_a_purge_of_all(filled: Attacked) -> None:
    with filled.budget():
        found = filled.running.api("POST", "/dlq/replay", {"limit": 300, "to": "MQGATE.DEFAULT"})
        assert found["done"] == 300
        assert filled.running.api("POST", "/dlq/replay", {"dry_run": True})["matched"] == COUNT - 300
        assert filled.running.api("POST", "/dlq/purge", {"limit": 1_000_000})["done"] == COUNT - 300
        cleared = filled.running.api("DELETE", "/queues/MQGATE.DEFAULT/messages?confirm=MQGATE.DEFAULT")
        assert cleared["removed"] == 300


def test_a_browse_of_long_messages(attacked: Attacked) -> None:
    with attacked.online("long") as sock:
        for number in range(40):
            sock.sendall(publish("lost/long", b"x" * 1_000_000, 1, number + 1))
        acknowledged(sock, 40)
    with attacked.budget():
        queue = attacked.running.api("GET", "/dlq?limit=1")["items"][0]["queue"]
        seen, after = 0, ""
        while True:
            page = attacked.running.api("GET", f"/queues/{queue}/messages?limit=500{after}")
            seen += len(page["items"])
            if page["next"] is None:
                break
            after = f"&after={page['next']}"
        assert seen >= 40
