"""Answers of the administration API with something of everything, for looking at the page in states that are hard to
bring about: a queue manager that is away, dead letters, a refused reload. They are in page_answers.json, each with the
schema of openapi.json it obeys (a test says so); only the clock is added here.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

STATIC = Path(__file__).resolve().parents[2] / "gateway" / "net" / "static"
POLICY = "default-src 'self'; connect-src 'self' ws: wss:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
TOKEN = "letmein"
KINDS = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
RECORDED: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("page_answers.json").read_text())
TRACE = RECORDED["trace"]["body"]
MSG_ID = TRACE["msg_id"]
STARTED = time.time() - 86_400
SHARES = {"received": 1.0, "put": 0.93, "fetched": 0.2, "sent": 0.2, "acknowledged": 0.9, "unrouted": 0.07,
          "bytes_in": 90.0, "bytes_out": 40.0, "connects": 0.01, "disconnects": 0.01, "dropped": 0,
          "dead_lettered": 0, "failed": 0,
          "auth_failures": 0}  # fmt: skip


def overview(body: dict[str, Any]) -> dict[str, Any]:
    now = time.time()
    totals = {name: int(now % 10_000 * 1000 * share) for name, share in SHARES.items()}
    totals["dropped"] = sum(each["count"] for each in body["dropped"])
    reload = body["last_reload"] | {"time": now - 600}
    rates = {name: SHARES[name] * 1000 for name in ("received", "put", "sent", "dropped", "dead_lettered")}
    return body | {"rates": rates, "time": now, "started": STARTED, "totals": totals, "last_reload": reload}


def series(*columns: str) -> dict[str, Any]:
    now = time.time()
    wave = [30 + 20 * math.sin(n / 9) for n in range(120)]
    return {"step_seconds": 5, "time": [now - 595 + 5 * n for n in range(120)], **dict.fromkeys(columns, wave)}


def history() -> dict[str, Any]:
    now = time.time()
    wave = [900 + 300 * math.sin(n / 9) + 40 * math.sin(n) for n in range(120)]
    return {
        "step_seconds": 5,
        "time": [now - 595 + 5 * n for n in range(120)],
        "received": wave,
        "put": [value * 0.93 for value in wave],
        "sent": [value * 0.2 for value in wave],
        "dropped": [0.0] * 120,
        "dead_lettered": [0.0] * 120,
        "connections": [700 + n / 3 for n in range(120)],
        "spool_bytes": [812_000] * 120,
        "latency_p99_ms": [None if 40 < n < 50 else 5 + 2 * math.sin(n / 5) for n in range(120)],
    }


def answers(*, well: bool = True) -> dict[str, tuple[str, Any]]:
    """By `METHOD path`: the name of the schema and the body."""
    found = {request: (each["schema"], each["body"]) for request, each in RECORDED.items()}
    state = found.pop("GET /overview (troubled)") if not well else found["GET /overview"]
    found["GET /overview"] = ("Overview", overview(state[1]))
    for one in found["GET /gateways"][1]["items"]:
        if one["started"]:
            one |= {"started": STARTED, "heard": time.time() - 3}
    found |= {f"GET /rules/{rule['name']}": ("Rule", rule) for rule in found["GET /rules"][1]["items"]}
    found["GET /history"] = ("History", history())
    found["GET /history/queues/TELEMETRY.LIMA"] = ("QueueHistory", series("put", "got", "depth"))
    found["GET /history/rules/commands"] = ("RuleHistory", series("matched", "failed"))
    found["GET /history/rules/line temperature"] = ("RuleHistory", series("matched", "failed"))
    found["GET /history/clients/line-001"] = ("ClientRates", series("received", "sent"))
    return {request: each for request, each in found.items() if " /" in request and "(" not in request}


class _Handler(BaseHTTPRequestHandler):
    well: ClassVar[bool] = True
    asked: ClassVar[list[tuple[str, str, Any]]]

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if path.startswith("/api/v1"):
            self.api(unquote(path.removeprefix("/api/v1")))
            return
        file = STATIC / (path.lstrip("/") or "index.html")
        if not file.is_file():
            self.answer(404, "text/plain", b"")
            return
        self.answer(200, KINDS[file.suffix], file.read_bytes())

    def do_POST(self) -> None:
        self.do_GET()

    do_PUT = do_DELETE = do_POST

    def api(self, path: str) -> None:
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self.answer(
                401,
                "application/problem+json",
                b'{"title": "Unauthorized", "status": 401, "detail": "Send the token."}',
            )
            return
        sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.command != "GET":
            self.asked.append((self.command, unquote(self.path), json.loads(sent) if sent else None))
        if path == "/trace":
            told = f"event: trace\ndata: {json.dumps(TRACE)}\n\nevent: missed\ndata: {json.dumps({'count': 3})}\n\n"
            self.answer(200, "text/event-stream", f": hello\n\n{told}".encode())
            return
        known = answers(well=self.well).get(f"{self.command} {path}")
        if known is None:
            self.answer(
                404, "application/problem+json", b'{"title": "Not found", "status": 404, "detail": "No such thing."}'
            )
        elif known[1] is None:
            self.answer(204, "", b"")
        else:
            self.answer(200, "application/json", json.dumps(known[1]).encode())

    def answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Security-Policy", POLICY)
        if kind:
            self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(*, well: bool = True) -> Iterator[tuple[str, list[tuple[str, str, Any]]]]:
    """The page with these answers: its address, and the changing requests it made."""
    asked: list[tuple[str, str, Any]] = []
    handler = type("Handler", (_Handler,), {"well": well, "asked": asked})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
