"""A queue for each of very many devices, and an operator's page that lists them, searches them for a message and clears
them: nobody waits for it, whatever lies on them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from stall_attacks import LONG, Attacked, publish, read

MANY = 3000 if LONG else 600
RULES = "".join(f"  - {{name: r{n}, topic: 'own/{n}', queue: EACH.D{n}}}\n" for n in range(MANY))
MAPPING = f"""
version: 1
to_mq:
  - {{name: each, topic: "each/{{device}}", queue: "EACH.{{device:upper}}"}}
{RULES}
"""
SETTINGS = "mappings: [each.yaml]\nmqtt: {max_inflight: 1000}\nlisteners: [{name: plain, port: 0}]\n"


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    directory = tmp_path_factory.mktemp("each")
    (directory / "each.yaml").write_text(MAPPING)
    with Attacked(directory, SETTINGS).serve() as one:
        one.running.api("POST", "/mqsc", {"text": "".join(f"DEFINE QLOCAL(EACH.D{n})\n" for n in range(MANY))})
        with one.online("device") as sock:
            for number in range(MANY):  # each in a frame of its own, which is read for it
                sock.sendall(publish(f"each/d{number}", b"x" * 100_000, 1, number % 1000 + 1))
                read(sock, 4)
        one.running.kill()
        one.running.start()  # nothing of it is in memory
        yield one


def test_they_are_listed_and_searched(attacked: Attacked) -> None:
    with attacked.budget():
        for _ in range(2):
            page = attacked.running.api("GET", "/queues?search=each.&limit=500")
            assert page["total"] == MANY
            assert all(one["depth"] == 1 and one["oldest_seconds"] is not None for one in page["items"])
        assert attacked.running.api("GET", f"/journey?msg_id={'4D' * 24}") == {"items": []}


def one_more(attacked: Attacked) -> None:
    with attacked.online("device") as sock:
        sock.sendall(publish("each/d1", b"y", 1, 1))
        read(sock, 4)


def test_the_oldest_is_that_of_now(attacked: Attacked) -> None:
    one_more(attacked)
    path = "/queues/EACH.D1/messages"
    before = attacked.running.api("GET", "/queues/EACH.D1")["oldest_seconds"]
    (first, second) = attacked.running.api("GET", path)["items"]
    attacked.running.api("DELETE", f"{path}/{first['token']}")
    assert attacked.running.api("GET", "/queues/EACH.D1")["oldest_seconds"] < before
    assert attacked.running.api("DELETE", f"{path}?confirm=EACH.D1") == {"removed": 1}, second
    assert attacked.running.api("GET", "/queues/EACH.D1")["oldest_seconds"] is None
    one_more(attacked)  # as others expect it


def test_they_are_written_as_commands(attacked: Attacked) -> None:
    with attacked.budget():
        assert attacked.running.api("GET", "/definitions")["objects"] >= MANY


def test_they_are_scraped(attacked: Attacked) -> None:
    with attacked.budget():
        for _ in range(2):
            lines = attacked.running.get("/metrics").splitlines()
            assert len([line for line in lines if line.startswith("mqgate_queue_depth{")]) == MANY
