"""The pipeline's part of the administration API: consumer groups, extents, and messages as an Arrow stream.

It uses no HTTP library: a gateway's administration port or a drainer's server authenticates the request, calls `handle`
and sends the reply. Long replies are iterators, so that a slow reader costs memory for one chunk only.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from gateway.errors import MqgateError
from gateway.pipeline.errors import LeaseHeld, LeaseLost, PipelineError, QueueRefuses, WrongOption
from gateway.pipeline.journal.groups import ConsumerGroup, shown
from gateway.pipeline.journal.job_reports import JobReports
from gateway.pipeline.journal.lookup import first_since
from gateway.pipeline.journal.owner import Owner
from gateway.pipeline.journal.pieces import JournalPiece
from gateway.pipeline.journal.segments import Segments

JSON = "application/json"
ARROW = "application/vnd.apache.arrow.stream"
CHUNK_ROWS = 20_000
PURGE_AT_ONCE = 100_000
"""Messages purged with each acknowledgement: two batches' worth, so that purging keeps up and devices are not kept
waiting."""
PREFIX = "/api/pipeline/"


class Reply(NamedTuple):
    """An HTTP reply; its body may be generated while it is sent."""

    status: int
    content_type: str
    body: Iterator[bytes]


Query = Mapping[str, str]


class PipelineService:
    """Answers requests to a journal in `folder`."""

    def __init__(self, owner: Owner, folder: Path, reports: JobReports | None = None) -> None:
        self.owner = owner
        self.reports = reports or JobReports()
        self.folder = folder
        self._calls: dict[tuple[str, str], Callable[[Query, bytes], Any]] = {
            ("POST", "acquire"): self._acquire,
            ("POST", "acknowledge"): self._acknowledge,
            ("POST", "release"): self._release,
            ("POST", "remove"): self._remove,
            ("POST", "cursor"): self._cursor,
            ("POST", "put"): self._put,
            ("POST", "report"): self._report,
            ("GET", "groups"): lambda _query, _body: self.groups(),
            ("GET", "extent"): self._extent,
            ("GET", "count"): self._count,
            ("GET", "since"): self._since,
        }

    def handle(self, method: str, path: str, query: Query, body: bytes) -> Reply:
        """Answer one request; `path` is what follows /api/pipeline/."""
        try:
            if (method, path) == ("GET", "messages"):
                return Reply(200, ARROW, self._messages(query))
            call = self._calls.get((method, path))
            if call is None:
                return _reply(404, {"error": f"there is no {method} {PREFIX}{path}"})
            return _reply(200, call(query, body))
        except (LeaseHeld, LeaseLost, QueueRefuses) as error:
            return _reply(409, {"error": str(error), "kind": type(error).__name__})
        except (KeyError, TypeError, ValueError, WrongOption) as error:
            return _reply(400, {"error": str(error), "kind": type(error).__name__})
        except PipelineError as error:
            return _reply(410, {"error": str(error), "kind": type(error).__name__})
        except MqgateError as error:
            return _reply(503, {"error": str(error), "kind": type(error).__name__})

    def groups(self) -> list[dict[str, Any]]:
        """All groups with their lag."""
        now = self.owner.clock()
        return [shown(group, self.owner.lookup, now) for group in self.owner.groups()]

    def _acquire(self, _query: Query, body: bytes) -> Any:
        given = json.loads(body)
        wanted = ConsumerGroup(given["name"], given["queues"], bool(given["consume"]), float(given["delay"]))
        return asdict(self.owner.acquire(wanted, str(given["owner"]), float(given["ttl"])))

    def _acknowledge(self, _query: Query, body: bytes) -> Any:
        given = json.loads(body)
        name, epoch, cursor = str(given["name"]), int(given["epoch"]), int(given["cursor"])
        group = self.owner.acknowledge(name, epoch, cursor, float(given["ttl"]))
        self.owner.purge(PURGE_AT_ONCE)
        return asdict(group)

    def _release(self, _query: Query, body: bytes) -> Any:
        given = json.loads(body)
        return asdict(self.owner.release(str(given["name"]), int(given["epoch"])))

    def _remove(self, _query: Query, body: bytes) -> Any:
        return {"removed": self.owner.remove(str(json.loads(body)["name"]))}

    def _cursor(self, _query: Query, body: bytes) -> Any:
        given = json.loads(body)
        return asdict(self.owner.set_cursor(str(given["name"]), int(given["cursor"])))

    def _report(self, _query: Query, body: bytes) -> Any:
        self.reports.take(json.loads(body))
        return {}

    def _put(self, query: Query, body: bytes) -> Any:
        from gateway.pipeline.journal.puts import PutTarget, read_parts

        target = PutTarget(
            query["queue"], int(query["priority"]), float(query["expiry"]), query["persistent"] == "true"
        )
        done = self.owner.put(target, read_parts([body]), query.get("txn", ""), int(query.get("batch", "0")))
        return {"messages": done}

    def _extent(self, query: Query, _body: bytes) -> Any:
        low, rows = int(query.get("from", "0")), int(query.get("rows", "0"))
        lookup = self.owner.lookup
        runs = lookup.runs(query["queues"], low, None, rows or None)
        if size := int(query.get("bytes", "0")):
            runs = lookup.within(runs, size)
        messages = sum(run.rows for run in runs)
        end = runs[-1].first + runs[-1].rows if runs else low
        return {
            "next": end,
            "messages": messages,
            "number": self.owner.journal.next_number,
            "journal": self.owner.journal.name,
        }

    def _since(self, query: Query, _body: bytes) -> Any:
        runs = self.owner.lookup.runs(query["queues"], 0)
        uses = self.owner.journal.uses(runs)
        found = first_since(Segments(self.folder), runs, uses, int(query["micros"]))
        return {"next": (runs[-1].first + runs[-1].rows if runs else 0) if found is None else found}

    def _count(self, query: Query, _body: bytes) -> Any:
        return {"messages": self.owner.lookup.count(query["queues"], int(query["from"]), int(query["to"]))}

    def _messages(self, query: Query) -> Iterator[bytes]:
        """The messages between two numbers: looked up now, read from the files while they are sent."""
        from gateway.pipeline.journal.chunks import stream_bytes

        low, high = int(query.get("from", "0")), int(query["to"])
        runs = self.owner.lookup.runs(query["queues"], low, high)
        uses, backouts = self.owner.journal.uses(runs), self.owner.lookup.backouts(low, high)
        piece = JournalPiece(str(self.folder), runs, uses, backouts, query["queues"])
        return stream_bytes(piece.chunks(CHUNK_ROWS))


def _reply(status: int, value: Any) -> Reply:
    return Reply(status, JSON, iter([json.dumps(value).encode()]))
