"""A proxy for the MQI socket that can lose an answer or a request on purpose, at a named call."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from gateway.mqi.wire import HEADER, Frames, outcome

FORWARD, CUT_BEFORE, CUT_AFTER = "forward", "cut before", "cut after"
"""Pass a request on; break the connection instead; pass it on, wait for its answer, and break the connection then."""
REFUSED_BEFORE, REFUSED_AFTER = "refused before", "refused after"
"""Answer 2195, an unexpected error, instead of passing it on; pass it on, and make its answer that."""
UNEXPECTED = 2, 2195


def at_call(verb: int, nth: int, decision: str) -> Callable[[int], str]:
    """Forwards everything but the nth call of this verb, about which it decides so."""
    lock, seen = threading.Lock(), [0]

    def decide(asked: int) -> str:
        if asked != verb:
            return FORWARD
        with lock:
            seen[0] += 1
            return decision if seen[0] == nth else FORWARD

    return decide


def after_call(verb: int, nth: int, decision: str) -> Callable[[int], str]:
    """Forwards everything but what follows the nth call of this verb, if it is of this verb too."""
    seen = [0]

    def decide(asked: int) -> str:
        seen[0] += asked == verb
        return decision if asked == verb and seen[0] > nth else FORWARD

    return decide


class FrameProxy:
    """Listens at `path` and forwards to `target`; `decide` is asked for each request, by verb."""

    def __init__(self, path: Path, target: Path, decide: Callable[[int], str]) -> None:
        self.path = path
        self.answered: Callable[[], None] = lambda: None
        """Called when the answer is there that is going to be lost."""
        self._target = target
        self._decide = decide
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(16)
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Break every connection there is."""
        pairs, self._pairs = self._pairs, []
        for pair in pairs:
            _close(*pair)

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._forward, args=(client,), daemon=True).start()

    def _forward(self, client: socket.socket) -> None:
        server = socket.socket(socket.AF_UNIX)
        try:
            server.connect(str(self._target))
        except OSError:
            client.close()
            return
        self._pairs.append((server, client))
        cutting, refusals = threading.Event(), list[bytes]()
        threading.Thread(target=self._answers, args=(server, client, cutting, refusals), daemon=True).start()
        frames = Frames()
        with suppress(OSError):
            while chunk := client.recv(1 << 16):
                frames.add(chunk)
                for verb, flags, tag, body in frames.take():
                    decision = self._decide(verb)
                    if decision == CUT_BEFORE:
                        raise ConnectionResetError
                    if decision == CUT_AFTER:
                        cutting.set()
                    if decision == REFUSED_BEFORE:
                        client.sendall(outcome(verb, tag, *UNEXPECTED))
                        continue
                    if decision == REFUSED_AFTER:
                        refusals.append(outcome(verb, tag, *UNEXPECTED))
                    server.sendall(HEADER.pack(len(body) + 4, verb, flags, tag) + body)
        if not cutting.is_set():
            _close(server, client)

    def _answers(
        self, server: socket.socket, client: socket.socket, cutting: threading.Event, refusals: list[bytes]
    ) -> None:
        """`refusals`: what is said in place of the next answer."""
        with suppress(OSError):
            while chunk := server.recv(1 << 16):
                if cutting.is_set():
                    self.answered()
                    break
                client.sendall(refusals.pop() if refusals else chunk)
        _close(server, client)


def _close(*sockets: socket.socket) -> None:
    for each in sockets:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()
