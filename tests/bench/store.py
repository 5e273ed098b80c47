"""The store against SQLite and against a bare loop, side by side in one run: `python tests/bench/store.py [--seconds
1] [--dir D]`.

Rows are a full MQMD (364 bytes), an MQRFH2 (200 bytes) and a payload of 64 bytes. SQLite: WAL, synchronous=FULL, one
row a message, one executemany a batch. Bare: join the same bytes, write them over blocks that exist, fdatasync. Each
figure is messages a second; ratios travel better than rates.
"""

from __future__ import annotations

import argparse
import gc
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter, process_time, thread_time

from gateway.app.memory import COLLECTED
from gateway.queue_manager.journal import Store, StoreOptions
from gateway.queue_manager.store.unit import LanePuts, LaneTakes, StoreUnit

HEAD = b"MD  " + b"m" * 360 + b"RFH " + b"r" * 196
BODY = 64


class Figures:
    """Times of commits of one kind."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.times: list[float] = []
        self.cpu = 0.0

    def run(self, seconds: float, commit: Callable[[], None]) -> Figures:
        gc.collect()
        end = perf_counter() + seconds
        before = perf_counter()
        cpu = thread_time()
        while before < end:
            commit()
            after = perf_counter()
            self.times.append(after - before)
            before = after
        self.cpu += thread_time() - cpu
        return self

    @property
    def cost(self) -> float:
        """Processor time of a message, microseconds: the figure to trust on a machine that does other work."""
        return self.cpu * 1e6 / (self.rows * len(self.times))

    @property
    def rate(self) -> float:
        return self.rows * len(self.times) / sum(self.times)

    def percentile(self, share: float) -> float:
        return sorted(self.times)[min(len(self.times) - 1, int(len(self.times) * share))] * 1e6

    def __str__(self) -> str:
        middle, tail = self.percentile(0.5), self.percentile(0.99)
        return f"{self.rate:>10,.0f}/s  cpu {self.cost:>6.2f} us  p50 {middle:>6,.0f} us  p99 {tail:>7,.0f} us"


class OurStore:
    """The journal."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store = Store.open(path, clock=time.time)
        self.queue = "Q"

    def commit(self, unit: StoreUnit) -> None:
        prepared = self.store.prepare(unit, time.time())
        self.store.write(prepared)
        self.store.apply(prepared)
        step = self.store.maintain(time.time())
        if step is not None:
            self.store.write(step)
            self.store.apply(step)

    def put(self, rows: int) -> None:
        bodies = [b"%064d" % number for number in range(rows)]
        self.commit(StoreUnit(puts=[LanePuts(self.queue, heads=[HEAD] * rows, bodies=bodies)]))

    def get(self, rows: int) -> None:
        messages = self.store.fetch(self.queue, limit=rows)
        self.commit(StoreUnit(takes=[LaneTakes(self.queue, tokens=[message.token for message in messages])]))

    def mixed(self, rows: int) -> None:
        self.put(rows)
        self.get(rows)

    def fill(self, depth: int, rows: int = 1000) -> None:
        while self.store.depth(self.queue) < depth:
            self.put(rows)


class Sqlite:
    """A row a message."""

    def __init__(self, path: Path) -> None:
        self.database = sqlite3.connect(path, isolation_level=None)
        self.database.executescript(
            "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"
            "CREATE TABLE q (seq INTEGER PRIMARY KEY, queue TEXT, md BLOB, data BLOB)"
        )

    def put(self, rows: int) -> None:
        batch = [("Q", HEAD[:364], HEAD[364:] + b"%064d" % number) for number in range(rows)]
        self.database.execute("BEGIN")
        self.database.executemany("INSERT INTO q (queue, md, data) VALUES (?, ?, ?)", batch)
        self.database.execute("COMMIT")

    def get(self, rows: int) -> None:
        self.database.execute("BEGIN")
        found = self.database.execute("SELECT seq, md, data FROM q ORDER BY seq LIMIT ?", (rows,)).fetchall()
        self.database.executemany("DELETE FROM q WHERE seq = ?", [(row[0],) for row in found])
        self.database.execute("COMMIT")

    def fill(self, depth: int) -> None:
        while self.database.execute("SELECT COUNT(*) FROM q").fetchone()[0] < depth:
            self.put(1000)


class Bare:
    """Join, write, sync, over blocks that exist."""

    SIZE = 64 << 20

    def __init__(self, path: Path) -> None:
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
        for at in range(0, self.SIZE, 1 << 20):
            os.pwrite(self.descriptor, b"\0" * (1 << 20), at)
        os.fsync(self.descriptor)
        self.at = 0

    def put(self, rows: int) -> None:
        data = b"".join([HEAD + b"%064d" % number for number in range(rows)])
        if self.at + len(data) > self.SIZE:
            self.at = 0
        os.pwrite(self.descriptor, data, self.at)
        os.fdatasync(self.descriptor)
        self.at += len(data)


SLICES = 5


def side_by_side(rows: int, seconds: float, commits: Sequence[Callable[[int], None]]) -> list[Figures]:
    """Each in turn, a slice at a time, so that whatever else the machine does meets all of them."""
    figures = [Figures(rows) for _ in commits]
    for _ in range(SLICES):
        for figure, commit in zip(figures, commits, strict=True):
            figure.run(seconds / SLICES, partial(commit, rows))
    return figures


def ratios(ours: Figures, theirs: Figures, name: str) -> str:
    return (
        f"{ours.rate / theirs.rate:.1f} x {name} (by medians {theirs.percentile(0.5) / ours.percentile(0.5):.1f} x, "
        f"by cpu {theirs.cost / ours.cost:.1f} x, p99 {theirs.percentile(0.99) / ours.percentile(0.99):.1f} x)"
    )


def resident() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024
    return 0


def rates(place: Path, seconds: float, sizes: Sequence[int]) -> None:
    ours, sqlite, bare = OurStore(place / "journal"), Sqlite(place / "sqlite"), Bare(place / "bare")
    for rows in sizes:
        ours.queue = f"Q{rows}"  # gets take what was put in batches of the same size
        put, theirs, floor = side_by_side(rows, 3 * seconds, (ours.put, sqlite.put, bare.put))
        print(f"put {rows:>5}: store  {put}\n           sqlite {theirs}\n           bare   {floor}")
        print(f"           {ratios(put, theirs, 'sqlite')}, {ratios(put, floor, 'bare')}")
        if rows >= 100:
            ours.fill(rows * 6000, rows)
            sqlite.fill(rows * 1500)
            got, theirs = side_by_side(rows, seconds, (ours.get, sqlite.get))
            print(f"get {rows:>5}: store  {got}\n           sqlite {theirs}")
            print(f"           {ratios(got, theirs, 'sqlite')}")
    ours.store.close()


def depth(place: Path, seconds: float) -> None:
    shallow, deep = OurStore(place / "shallow"), OurStore(place / "deep")
    shallow.fill(1000)
    deep.fill(1_000_000)
    for rows in (100, 400):
        low, high = side_by_side(rows, 3 * seconds, (shallow.mixed, deep.mixed))
        print(f"put and get {rows:>4} at depth 1,000: {low}\n           at 1,000,000: {high}")
        print(f"           {ratios(high, low, 'the shallow queue')}")
    shallow.store.close()
    deep.store.close()


def recovery(place: Path) -> None:
    for count in (1_000_000, 5_000_000):
        ours = OurStore(place / "recovery")
        while ours.store.depth("Q") < count:
            ours.put(100)
        for ended in ("a kill", "a close"):
            if ended == "a kill":
                ours.store.ring.close()
                ours.store._lock.release()
            else:
                ours.store.close()
            cpu, begin = process_time(), perf_counter()
            ours = OurStore(place / "recovery")
            took, cpu = perf_counter() - begin, process_time() - cpu
            print(f"recovery of {ours.store.depth('Q'):,} messages after {ended}: {took:.2f} s, cpu {cpu:.2f} s")
        ours.store.close()


def memory(place: Path) -> None:
    store = Store.open(place / "memory", clock=time.time, options=StoreOptions(cache_bytes=0))
    for rows, correlated in ((400, False), (1, False), (400, True)):
        queue = f"M{rows}{correlated}"
        gc.collect()
        before = resident()
        count = 1_000_000 if rows > 1 else 20_000
        for number in range(count // rows):
            ids = [os.urandom(24) for _ in range(rows)] if correlated else None
            puts = LanePuts(queue, heads=[HEAD] * rows, bodies=[b"%064d" % number] * rows, correl_ids=ids)
            prepared = store.prepare(StoreUnit(puts=[puts]), 1.0)
            store.write(prepared)
            store.apply(prepared)
        if correlated:
            list(store.find(queue, correl_id=b"?" * 24))
        gc.collect()
        kind = "with an index of CorrelIds" if correlated else f"in batches of {rows}"
        print(f"memory, {count:,} messages {kind}: {(resident() - before) / count:.1f} bytes a message")
    gc.collect()
    before = resident()
    for number in range(100):
        puts = [
            LanePuts("S", key=b"client-%08d" % (number * 1000 + at), heads=[HEAD], bodies=[b"x"]) for at in range(1000)
        ]
        prepared = store.prepare(StoreUnit(puts=puts), 1.0)
        store.write(prepared)
        store.apply(prepared)
        del puts, prepared
    gc.collect()
    print(f"memory, 100,000 sub-queues of one message: {(resident() - before) / 100_000:.0f} bytes each")
    store.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--dir", type=Path, default=None, help="where to put the files (a real disk)")
    parser.add_argument("--only", choices=["rates", "depth", "recovery", "memory"])
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 10, 100, 400, 1000], help="batch sizes")
    arguments = parser.parse_args()
    gc.freeze()
    gc.set_threshold(*COLLECTED)
    place = Path(tempfile.mkdtemp(prefix="store-bench-", dir=arguments.dir or Path.cwd()))
    try:
        if arguments.only in {None, "rates"}:
            rates(place, arguments.seconds, arguments.rows)
        if arguments.only in {None, "depth"}:
            depth(place, arguments.seconds)
        if arguments.only in {None, "recovery"}:
            recovery(place)
        if arguments.only in {None, "memory"}:
            memory(place)
    finally:
        shutil.rmtree(place)


if __name__ == "__main__":
    main()
