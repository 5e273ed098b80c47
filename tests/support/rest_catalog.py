"""A REST catalog of Iceberg on loopback, over pyiceberg's SQL catalog: the calls that clients make of one."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from kept_connections import EndingServer


@dataclass
class RestCatalog:
    """What the server knows."""

    catalog: Any
    token: str = ""
    answers: list[str] = field(default_factory=list)
    """What becomes of the next commits: `lost` after they were done, or a status instead of doing them."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def answer(self, method: str, path: list[str], body: dict[str, Any]) -> tuple[int, Any]:
        from pyiceberg import exceptions as wrong

        with self.lock:
            try:
                return self._answer(method, path, body)
            except (wrong.NoSuchTableError, wrong.NoSuchNamespaceError) as error:
                return 404, error
            except (
                wrong.NamespaceAlreadyExistsError,
                wrong.TableAlreadyExistsError,
                wrong.CommitFailedException,
            ) as no:
                return 409, no

    def _answer(self, method: str, path: list[str], body: dict[str, Any]) -> tuple[int, Any]:
        if path == ["config"]:
            return 200, {"defaults": {}, "overrides": {}}
        if path == ["namespaces"]:
            self.catalog.create_namespace(tuple(body["namespace"]))
            return 200, {"namespace": body["namespace"], "properties": {}}
        if len(path) == 2:
            return 200, {"namespace": path[1:], "properties": {}}
        if path[2:] == ["tables"]:
            return 200, self._staged(path[1], body)
        name = (path[1], path[3])
        return 200, _loaded(self.catalog.load_table(name)) if method == "GET" else self._commit(name, body)

    def _staged(self, namespace: str, body: dict[str, Any]) -> dict[str, Any]:
        from pyiceberg.schema import Schema

        staged = self.catalog._create_staged_table(
            (namespace, body["name"]), Schema.model_validate(body["schema"]), location=body["location"],
            properties=body["properties"],
        )  # fmt: skip
        return _loaded(staged)

    def _commit(self, name: tuple[str, str], body: dict[str, Any]) -> dict[str, Any]:
        from pyiceberg.exceptions import NoSuchTableError
        from pyiceberg.table import CommitTableRequest

        request = CommitTableRequest.model_validate({"identifier": {"namespace": [name[0]], "name": name[1]}} | body)
        try:
            found = self.catalog.load_table(name)
        except NoSuchTableError:
            first = next(one for one in request.updates if one.action == "set-location")
            found = self.catalog._create_staged_table(name, _schema_of(request), location=first.location)
        done = self.catalog.commit_table(found, request.requirements, request.updates)
        return {"metadata-location": done.metadata_location, "metadata": json.loads(done.metadata.model_dump_json())}


def _schema_of(request: Any) -> Any:
    return next(one.schema_ for one in request.updates if one.action == "add-schema")


def _loaded(table: Any) -> dict[str, Any]:
    metadata = json.loads(table.metadata.model_dump_json())
    return {"metadata-location": table.metadata_location, "metadata": metadata, "config": {}}


def _handler(server: RestCatalog) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # a body would wait 40 ms for the acknowledgement of its headers

        def serve(self) -> None:
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            path = self.path.partition("?")[0].strip("/").split("/")[1:]
            if server.token and self.headers.get("Authorization") != f"Bearer {server.token}":
                self._send(401, PermissionError("no such token"))
                return
            commit = self.command == "POST" and len(path) == 4
            fault = server.answers.pop(0) if commit and server.answers else ""
            if fault.isdigit():
                self._send(int(fault), OSError("a fault"))
                return
            status, answer = server.answer(self.command, path, json.loads(data or b"{}"))
            if fault == "lost":
                self.close_connection = True
                return
            self._send(status, answer)

        do_GET = do_POST = do_HEAD = serve

        def _send(self, status: int, answer: Any) -> None:
            if isinstance(answer, Exception):
                answer = {"error": {"message": str(answer), "type": type(answer).__name__, "code": status}}
            body = json.dumps(answer).encode()
            self.send_response_only(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            """Requests are not logged."""

    return Handler


@contextmanager
def rest_catalog(folder: Path, **io: str) -> Iterator[RestCatalog]:
    """A server whose catalog is a SQLite file in a folder."""
    from pyiceberg.catalog.sql import SqlCatalog

    server = RestCatalog(SqlCatalog("rest", uri=f"sqlite:///{folder}/rest.db", **io))
    front = EndingServer(("127.0.0.1", 0), _handler(server))
    server.port = front.server_port
    threading.Thread(target=front.serve_forever, name="rest-catalog", daemon=True).start()
    try:
        yield server
    finally:
        front.shutdown()
        front.server_close()
