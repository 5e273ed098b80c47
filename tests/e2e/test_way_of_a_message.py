"""One PUBLISH of QoS 1 on a warm route is traced from the socket to its PUBACK: it runs through few files, among them
those that docs/explanation/way-of-a-message.md names, in their order."""

from __future__ import annotations

import json
import re
import signal
import socket
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from gateways import RunningGateway

from gateway.broker.publish import fast

ROOT = Path(__file__).parents[2]
MOST_FILES, MOST_CHANGES = 24, 60
ASKED_BEFORE = {"look", "storage_full"}
"""Whether the disk is full, which is asked before anything is taken in: no part of a message's way."""
TRACED = """
import json, os, signal, sys
from collections import deque

PACKAGE = os.path.join(ROOT, "gateway") + os.sep
rounds, calls = deque(maxlen=200), []


def note(frame, event, argument):
    global calls
    if event == "call":
        name = frame.f_code.co_filename
        if name.startswith(PACKAGE):
            calls.append((name[len(PACKAGE):], frame.f_code.co_name))
    elif event == "c_call":
        module, name = getattr(argument, "__module__", None) or "", getattr(argument, "__name__", "")
        if name == "poll":  # the hub's epoll: a round ends and the next begins
            rounds.append(calls)
            calls = []
        elif module.startswith("gateway."):
            calls.append((module[len("gateway."):].replace(".", "/") + ".c", name))


def end(*_):
    with open(OUT, "w") as file:
        json.dump([each for each in rounds if each], file)
    os._exit(0)


from gateway.queue_manager.batch import commit

commit.INLINE_BELOW = commit.THREAD_ABOVE = 1e9  # however slow this disk is, the frame is written in the round itself
signal.signal(signal.SIGUSR1, end)
sys.setprofile(note)
from gateway.cli import main

main()
"""


def traced(directory: Path) -> list[tuple[str, str]]:
    """File and function of each call from the epoll that brings a PUBLISH to the write of its PUBACK; the usual one of
    many."""
    out = directory / "rounds.json"
    program = directory / "traced.py"
    program.write_text(f"ROOT, OUT = {str(ROOT)!r}, {str(out)!r}\n{TRACED}")
    gateway = RunningGateway(directory)
    gateway.program = [str(program)]
    topic = b"plant/lima/line/7/temperature"
    with gateway, gateway.connect() as device:
        device.sendall(b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01x")
        assert read(device, 4)[3] == 0
        for number in range(60):
            packet = len(topic).to_bytes(2, "big") + topic + (number % 20 + 1).to_bytes(2, "big") + b"21.5"
            device.sendall(bytes([0x32, len(packet)]) + packet)
            assert read(device, 4)[0] == 0x40
        assert gateway.process is not None
        gateway.process.send_signal(signal.SIGUSR1)
        gateway.process.wait(20)
    rounds = [to_the_write(each) for each in json.loads(out.read_text())]
    return Counter(each for each in rounds if each).most_common(1)[0][0]


def read(device: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += device.recv(size - len(data))
    return data


def to_the_write(calls: list[list[str]]) -> tuple[tuple[str, str], ...]:
    """Up to the last call that hands bytes to a socket; nothing where none does."""
    ends = [number for number, (file, name) in enumerate(calls) if file == "net/_wire.c" and name == "write"]
    return tuple((file, name) for file, name in calls[: ends[-1] + 1]) if ends else ()


@pytest.fixture(scope="module")
def way(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The files in the order of their calls."""
    if not fast.compiled():
        pytest.skip("the way through the compiled parts is counted")
    return [file for file, name in traced(tmp_path_factory.mktemp("way")) if name not in ASKED_BEFORE]


def test_one_publication_runs_through_few_files(way: list[str]) -> None:
    changes = sum(before != after for before, after in pairwise(way))
    assert len(set(way)) <= MOST_FILES, sorted(set(way))
    assert changes <= MOST_CHANGES, way


def test_the_page_names_the_files_of_the_way_in_their_order(way: list[str]) -> None:
    page = (ROOT / "docs/explanation/way-of-a-message.md").read_text()
    named = re.findall(r"^\| \d \| `([\w/]+\.py)`", page, re.MULTILINE)
    assert len(named) == 8
    met = list(dict.fromkeys(way))
    assert [name for name in named if name not in met] == []
    assert sorted(named, key=met.index) == named
