"""Programs at an embedded queue manager whose calls are made in rounds, without sockets and without waiting."""

from __future__ import annotations

from embedded_rig import SMALL, md
from schedulers import ManualScheduler

from gateway.mqi.rounds import Rounds
from gateway.ports.group_commit import LONGEST_SECONDS
from gateway.ports.mqi import GetOptions, ObjectDescriptor, PutOptions
from gateway.queue_manager.embedded import EmbeddedQueueManager

SYNCPOINT, NO_SYNCPOINT, WAIT = 2, 4, 1
OBJECTS = "DEFINE QLOCAL(Q)\nDEFINE QLOCAL(R)"


class Program:
    """Makes one call for each chunk, and notes its outcome when it is settled."""

    def __init__(self, rig, name):
        self.connection = rig.manager.connect(user=name)
        self.handles = {queue: self.connection.open(ObjectDescriptor(queue), 2 | 8 | 16).handle for queue in "QR"}
        self.rounds, self.scheduler = rig.rounds, rig.scheduler
        self.outcomes = []
        self.cancel = lambda: None
        self.lost = False

    def receive(self, chunk):
        """`verb argument ...`, with fields of the descriptor as name=number."""
        verb, *rest = chunk.decode().split()
        fields = dict(word.split("=") for word in rest if "=" in word)
        getattr(self, verb)(
            *[word for word in rest if "=" not in word], **{name: int(value) for name, value in fields.items()}
        )

    def connection_lost(self):
        self.lost = True

    def told(self, outcome):
        settlement = self.connection.unsettled()
        if settlement is None:
            self.outcomes.append(outcome)
        else:
            settlement.then(lambda error: self.rounds.soon(lambda: self.outcomes.append(error or outcome)))

    def put(self, queue, options="4", correl="0", data="data", **fields):
        given = md(**{"persistence": 1, "correl_id": correl.encode().ljust(24, b"\0"), **fields})
        self.connection.put(self.handles[queue], given, PutOptions(int(options)), data.encode())
        self.told("put")

    def get(self, queue, options="4"):
        got = self.connection.get(self.handles[queue], md(), GetOptions(int(options)), 100)
        self.told(got.data)

    def wait(self, queue, options="4", correl="", room="100", seconds=""):
        asked = md(correl_id=correl.encode().ljust(24, b"\0"))

        def arrived(outcome):
            self.rounds.soon(lambda: self.outcomes.append(getattr(outcome, "data", outcome)))

        deadline = self.scheduler.monotonic() + float(seconds) if seconds else None
        given = GetOptions(int(options) | WAIT)
        self.cancel = self.connection.wait(self.handles[queue], asked, given, int(room), deadline, arrived)

    def commit(self):
        self.connection.commit()
        self.told("commit")

    def back(self):
        self.connection.back()
        self.outcomes.append("back")


class Rig:
    def __init__(self, path):
        self.scheduler = ManualScheduler()
        self.manager = EmbeddedQueueManager.open(path, "QM1", self.scheduler, OBJECTS, store_options=SMALL)
        self.planned, self.time = 0, 0.0
        self.meanwhile = []
        """What programs send while a round runs: each time everything has been answered, one list of chunks."""
        self.rounds = Rounds(self.manager, lambda: self.time, self._plan, self._exchange)
        self.manager.serve_through(self.rounds.soon)

    def _plan(self):
        self.planned += 1

    def _exchange(self):
        for program, chunk in self.meanwhile.pop(0) if self.meanwhile else ():
            self.rounds.receive(program, chunk)

    @property
    def frames(self):
        return self.manager.core.committer.frames

    def round(self, *chunks):
        """The frames that a round of these chunks has taken."""
        before = self.frames
        for program, chunk in chunks:
            self.rounds.receive(program, chunk)
        self.run()
        return self.frames - before

    def run(self):
        """One round, and what follows when a slow disk has written its frames."""
        self.rounds.run()
        committer = self.manager.core.committer
        while committer._writing is not None or self.rounds._planned or committer._looks_again:
            self.scheduler.run_until(lambda: committer._writing is None)
            self.rounds.run()  # a frame may end as the round has just ended
            if committer._looks_again:  # nobody else comes
                self.scheduler.advance(LONGEST_SECONDS)


def programs(rig, count):
    return [Program(rig, f"p{number}") for number in range(count)]
