"""The manifest of a warehouse on object storage: a log of numbered entries, each put once, under the condition that
nothing has its name. Whoever puts entry 18 has seen entries 1 to 17, so drivers and compactors cannot both win.

`_manifest/log/000000000017.json` is what happened (a batch, a merge, an expiry, a removal); `_manifest/state/` holds,
now and then, what all entries up to a number come to, so that a start reads few of them. Entries carry a token: one
whose answer was lost is recognised when it is read back.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from gateway.pipeline.errors import PipelineError, StoreUnreachable
from gateway.pipeline.land.manifest import FOLD_KEEPS, FOLDER, ManifestRecord
from gateway.pipeline.land.objects import ObjectStore
from gateway.pipeline.land.ranges import Landed

LOG, STATE_OBJECTS = f"{FOLDER}/log", f"{FOLDER}/state"
STATE_EVERY = 64
"""So many entries after the last one the state is put."""
RECENT = 4
"""So many batches are kept as they were put."""
CONFLICTS = 20
"""A name that is refused and yet holds nothing is tried again so often: a put of it was under way."""

Entry = dict[str, Any]


@dataclass(slots=True)
class LakeState:
    """What the entries up to `number` come to."""

    number: int = 0
    landed: Landed = field(default_factory=Landed)
    last: ManifestRecord | None = None
    last_number: int = 0
    """The entry of the last batch."""
    files: dict[str, dict[str, tuple[int, float]]] = field(default_factory=dict)
    """By table: the names of its files, their bytes, and when they landed. Names are relative to the warehouse."""
    retired: dict[str, float] = field(default_factory=dict)
    """Files that were replaced and may still be read, and since when."""
    left_out: set[str] = field(default_factory=set)
    """Files that a merge left as they are, because a column has another type there."""
    removed: dict[str, int] = field(default_factory=dict)
    """Names that entries after `known_from` have given up, and the entry: no batch may name them any more."""
    known_from: int = 0

    def apply(self, entry: Entry) -> None:
        """Take in the next entry."""
        getattr(self, f"_{entry['kind']}")(entry)
        self.number = entry["number"]

    def _batch(self, entry: Entry) -> None:
        record = ManifestRecord.from_json(entry["record"])
        self.landed.add(record.pieces)
        for name, table in record.tables.items():
            files = self.files.setdefault(name, {})
            if name in entry["replaces"]:
                self._retire(name, list(files), record.landed)
            files |= {f"{table.folder}/{file}": (size, record.landed) for file, size in table.files}
        self.last, self.last_number = record, entry["number"]

    def _merge(self, entry: Entry) -> None:
        """Some files of a table became one, or were given up for their age (nothing new)."""
        table = entry["table"]
        landed = max((self.files[table][name][1] for name in entry["old"]), default=entry["written"])
        self._retire(table, entry["old"], entry["written"])
        self.files[table] |= {name: (size, landed) for name, size in entry["new"]}
        self.left_out.update(entry.get("left_out", ()))

    def _remove(self, entry: Entry) -> None:
        for name in entry["names"]:
            self.retired.pop(name, None)
            self.removed[name] = entry["number"]

    def forget_removed(self) -> None:
        """A batch that begins now knows of what was removed before, and no other one is on its way in this process."""
        self.removed, self.known_from = {}, self.number

    def _retire(self, table: str, names: list[str], when: float) -> None:
        for name in names:
            del self.files[table][name]
            self.left_out.discard(name)
            self.retired[name] = when

    def as_json(self) -> dict[str, Any]:
        """For the state object."""
        return {
            "number": self.number,
            "intervals": self.landed.intervals,
            "last": asdict(self.last) if self.last else None,
            "last_number": self.last_number,
            "files": self.files,
            "retired": self.retired,
            "left_out": sorted(self.left_out),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> LakeState:
        """What `as_json` gave."""
        spans = {name: [(low, high) for low, high in spans] for name, spans in value["intervals"].items()}
        return cls(
            value["number"],
            Landed(spans),
            ManifestRecord.from_json(value["last"]) if value["last"] else None,
            value["last_number"],
            {name: {file: tuple(about) for file, about in files.items()} for name, files in value["files"].items()},
            value["retired"],
            set(value.get("left_out", ())),
            known_from=value["number"],
        )  # fmt: skip


class ObjectManifest:
    """The log, and the state that this process has read."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self.state = LakeState()
        self._recent: list[tuple[int, ManifestRecord]] = []
        """The batches of the newest entries, so that what follows each commit need not read it back."""
        self._recent_after = 0
        """They are those of all entries after this one."""
        self.refresh()
        self._recent, self._recent_after = [], self.state.number

    @property
    def landed(self) -> Landed:
        """The message numbers that have landed."""
        return self.state.landed

    @property
    def last(self) -> ManifestRecord | None:
        """The last batch."""
        return self.state.last

    def files(self, table: str) -> list[str]:
        """The committed files of a table."""
        return sorted(self.state.files.get(table, {}))

    def now(self) -> ObjectManifest:
        """It: merges are entries too, which each batch reads."""
        return self

    def reload(self) -> None:
        """Read what was committed since."""
        self.refresh()

    def refresh(self) -> list[Entry]:
        """Take in the entries that were put since; returns them."""
        if not self.state.number:
            self._read_state()
        entries = self._after(self.state.number)
        if entries and entries[0]["number"] != self.state.number + 1:  # this process slept while old ones were removed
            self._read_state()
            entries = self._after(self.state.number)
        for entry in entries:
            if entry["number"] != self.state.number + 1:
                raise PipelineError(
                    f"{self.store.url}/{entry_name(self.state.number + 1)} is missing: restore it from a backup or an "
                    "older version of the object, or land again into another warehouse"
                )
            self._apply(entry)
        return entries

    def _apply(self, entry: Entry) -> None:
        self.state.apply(entry)
        if entry["kind"] == "batch" and self.state.last is not None:
            self._recent.append((entry["number"], self.state.last))
            if len(self._recent) > RECENT:
                self._recent_after = self._recent.pop(0)[0]

    def commit(self, kind: str, body: Entry, allowed: Callable[[], None]) -> int:
        """Put the next entry; its number. `allowed` is asked after each entry of others that came before this one, and
        raises where this one may not be put any more. The entry is there when this returns; when StoreUnreachable is
        raised it may be there, which whoever begins again will see."""
        token, conflicts = secrets.token_hex(8), 0
        while True:
            self.refresh()
            allowed()
            number = self.state.number + 1
            entry = {"number": number, "kind": kind, "token": token, "written": time.time(), **body}
            created = self.store.create(entry_name(number), encoded(entry))
            found = entry if created else self._read(number)
            if found is not None and found["token"] == token:
                self._apply(found)
                self._keep_state()
                return number
            if found is None:
                conflicts += 1
                if conflicts > CONFLICTS:
                    raise StoreUnreachable(f"{self.store.url} refuses {entry_name(number)}, and has no such object")
                time.sleep(0.05)

    def records(self, most: int = FOLD_KEEPS) -> list[ManifestRecord]:
        """The newest batches, oldest first."""
        return [record for _, record in self.numbered(max(0, self.state.number - most))]

    def numbered(self, after: int) -> list[tuple[int, ManifestRecord]]:
        """The batches of the entries after a number, with their entries' numbers."""
        if self._recent_after <= after:
            return [one for one in self._recent if one[0] > after]
        entries = self._after(after)
        return [(one["number"], ManifestRecord.from_json(one["record"])) for one in entries if one["kind"] == "batch"]

    def said_format(self) -> str:
        """What the last batch says that the tables are: a driver that is killed after its first entry has not made
        them that. Nothing where an earlier release has put it."""
        entry = self._read(self.state.last_number) if self.state.last_number else None
        return str((entry or {}).get("format", ""))

    def entries(self, after: int) -> list[Entry]:
        """The entries after a number, of all kinds."""
        return self._after(after)

    def trim(self) -> int:
        """Delete entries that the state covers, but the newest; how many."""
        until = entry_name(max(0, self._newest_state() - FOLD_KEEPS))
        old = [one.name for one in self.store.names(LOG) if one.name < until]
        self.store.delete(old)
        return len(old)

    # ---- objects

    def _after(self, number: int) -> list[Entry]:
        names = [one.name for one in self.store.names(LOG, after=entry_name(number))]
        return [self._decoded(name) for name in names]

    def _read(self, number: int) -> Entry | None:
        data = self.store.get(entry_name(number))
        return None if data is None else decoded(data)

    def _decoded(self, name: str) -> Entry:
        data = self.store.get(name)
        try:
            return decoded(data or b"")
        except (ValueError, KeyError, TypeError) as error:
            raise PipelineError(f"{self.store.url}/{name} is damaged ({error}): restore it from a backup") from error

    def _newest_state(self) -> int:
        return max((int(one.name.rpartition("/")[2][:12]) for one in self.store.names(STATE_OBJECTS)), default=0)

    def _read_state(self) -> None:
        newest = self._newest_state()
        data = self.store.get(f"{STATE_OBJECTS}/{newest:012d}.json") if newest else None
        if data is not None:
            self.state = LakeState.from_json(json.loads(data))
            self._recent, self._recent_after = [], self.state.number

    def _keep_state(self) -> None:
        """Put the state now and then, and delete those that two newer ones have replaced."""
        if self.state.number % STATE_EVERY:
            return
        self.store.put(f"{STATE_OBJECTS}/{self.state.number:012d}.json", json.dumps(self.state.as_json()).encode())
        kept = sorted(one.name for one in self.store.names(STATE_OBJECTS))
        self.store.delete(kept[:-2])


def entry_name(number: int) -> str:
    """The name of an entry."""
    return f"{LOG}/{number:012d}.json"


def encoded(entry: Entry) -> bytes:
    """An entry as it is put."""
    return json.dumps(entry, separators=(",", ":"), sort_keys=True).encode()


def decoded(data: bytes) -> Entry:
    """An entry as it was put."""
    entry: Entry = json.loads(data)
    if entry["kind"] not in ("batch", "merge", "remove"):
        raise ValueError(f"entries of kind {entry['kind']!r} are of a later version")
    return entry
