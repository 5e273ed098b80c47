"""The bench's queue manager with moves: what the broker stages in runs of QoS 2 is moved to its queue."""

from __future__ import annotations

from dataclasses import replace

from broker_harness import Harness, Queues

from gateway.ports.batch import Failure, Outcome, Unit


class MovingQueues(Queues):
    """See the module."""

    moved = 0

    def movable(self, queue: str, queue_manager: str) -> bool:
        return not queue_manager and queue != "FAR"

    def commit(self) -> bool:
        refused = self.waiting and [m for m in self.waiting[0][0].moves if m.to_queue in self.refusing]
        if not refused:
            return super().commit()
        unit, done = self.waiting.pop(0)
        done(unit, Outcome([Failure(-1, self.refusing[refused[0].to_queue], "a move is refused by the bench")]))
        return True

    def _apply(self, unit: Unit) -> None:
        without = replace(unit, moves=[])
        super()._apply(without)
        for moves in unit.moves:
            target = self.rows.setdefault(moves.to_queue, {})
            for token in moves.tokens:
                _, key, md, data = self.rows[moves.queue].pop(token)  # a KeyError is a message moved twice
                assert key == moves.key
                assert len(md) + len(data) <= moves.longest
                priority = moves.to_priority if moves.to_priority is not None else 0
                new = next(self._tokens)
                self._priorities[new] = priority
                target[new] = (priority, moves.to_key, md, data)
                self.moved += 1


class MovingBench(Harness):
    """A bench with it."""

    queues: MovingQueues

    def start(self) -> None:
        if not isinstance(self.queues, MovingQueues):
            self.queues = MovingQueues()
        super().start()
