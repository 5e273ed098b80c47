"""The bundled load generator: publishers in plain sockets, for machines without the one in C.

Slower than the gateway it measures at many messages in flight, so its rates are lower bounds."""

from __future__ import annotations

import argparse
import json
import selectors
import socket
import time

from run import FILES, calibration
from servers import gateway

from gateway.mqtt import client, writer


def publisher(port: int, number: int) -> socket.socket:
    """A connected device."""
    sock = socket.create_connection(("127.0.0.1", port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.sendall(client.encode_connect(client.connect(4, f"load-{number}")))
    assert sock.recv(4) == b"\x20\x02\x00\x00"
    sock.setblocking(False)
    return sock


def run(port: int, publishers: int, window: int, size: int, seconds: float, rate: float = 0) -> dict[str, float]:
    """QoS 1, `window` messages in flight each: acknowledged a second, and the time of a whole window. With a rate, that
    many a second of all together at most."""
    chooser = selectors.DefaultSelector()
    pause = publishers * window / rate if rate else 0.0
    batches, waiting, sent_at, due, resting = {}, {}, {}, {}, {}
    for number in range(publishers):
        sock = publisher(port, number)
        topic = f"dev/{number}/temp".encode()
        batches[sock] = b"".join(
            writer.encode_publish(4, topic, bytes(size), 1, packet_id=packet_id) for packet_id in range(1, window + 1)
        )
        waiting[sock] = 0
        due[sock] = time.perf_counter() + pause * number / publishers
        chooser.register(sock, selectors.EVENT_READ)
    acknowledged, times, until = 0, [], time.perf_counter() + seconds
    while (now := time.perf_counter()) < until:
        for sock in [each for each, when in due.items() if when <= now]:
            sock.setblocking(True)
            sock.sendall(batches[sock])
            sock.setblocking(False)
            waiting[sock], sent_at[sock] = 4 * window, now
            resting[sock] = due.pop(sock) + pause if pause else now
        for key, _ in chooser.select(max(0.0, min(due.values(), default=now + 1) - now)):
            sock = key.fileobj
            waiting[sock] -= len(sock.recv(1 << 16))
            if waiting[sock] == 0:
                times.append(time.perf_counter() - sent_at[sock])
                acknowledged += window
                due[sock] = resting.pop(sock)
    for sock in batches:
        sock.close()
    times.sort()
    return {"acked_per_s": acknowledged / seconds, "window_ms_p50": times[len(times) // 2] * 1000,
            "window_ms_p99": times[int(len(times) * 0.99)] * 1000}  # fmt: skip


def main() -> None:
    """Measure three cases."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=3.0)
    given, _ = parser.parse_known_args()
    speed = calibration()
    with gateway(FILES, pin=False) as running:
        port = running.ports["mqtt"]
        for publishers, window in ((10, 100), (100, 1), (1, 1)):
            result = run(port, publishers, window, 64, given.seconds)
            result["acked_per_calibration_turn"] = result["acked_per_s"] / (speed * 1e6)
            print(f"{publishers} x {window}:", json.dumps({name: round(value, 4) for name, value in result.items()}))


if __name__ == "__main__":
    main()
