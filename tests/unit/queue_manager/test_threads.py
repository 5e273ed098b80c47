"""Programs on many threads and the batch port at once: nothing is lost, nothing comes twice."""

from __future__ import annotations

import threading
import time
from collections import Counter

import pytest
from embedded_rig import SMALL, md

from gateway.errors import MQError
from gateway.ports.batch import Puts, Unit
from gateway.ports.mqi import GetOptions, ObjectDescriptor, PutOptions
from gateway.queue_manager.embedded import EmbeddedQueueManager
from gateway.queue_manager.thread_scheduler import ThreadScheduler

PRODUCERS, EACH = 4, 60


@pytest.mark.parametrize("kind", ["memory", "journal"])
def test_producers_consumers_and_the_batch_port(kind, tmp_path):
    path = None if kind == "memory" else tmp_path / "data"
    with ThreadScheduler() as scheduler:
        queue_manager = EmbeddedQueueManager.open(
            path, "QM1", scheduler, "DEFINE QLOCAL(Q) MAXDEPTH(100000)", store_options=SMALL
        )
        found, errors = Counter(), []
        total = PRODUCERS * EACH * 2
        reached = threading.Event()
        guard = threading.Lock()

        def note(data):
            with guard:
                found[data] += 1
                if sum(found.values()) == total:
                    reached.set()

        def guarded(run):
            def body(*arguments):
                try:
                    run(*arguments)
                except BaseException as error:  # noqa: BLE001
                    errors.append(error)
                    reached.set()

            return body

        def produce(name):
            connection = queue_manager.connect(user=name)
            handle = connection.open(ObjectDescriptor("Q"), 16).handle
            for number in range(EACH):
                connection.put(handle, md(persistence=1), PutOptions(2), f"{name}-{number}".encode())
                if number % 5 == 4:
                    connection.commit()
            connection.disconnect()

        def submit(name):
            for number in range(EACH):
                queue_manager.submit(
                    Unit(puts=[Puts("Q", heads=[md()], bodies=[f"{name}-{number}".encode()])]), _ignore
                )

        def consume(index):
            connection = queue_manager.connect(user=f"c{index}")
            handle = connection.open(ObjectDescriptor("Q"), 2).handle
            got_in_unit = []
            while not reached.is_set():
                try:
                    got_in_unit.append(connection.get(handle, md(), GetOptions(2), 1000).data)
                except MQError as error:
                    if error.reason != 2033:
                        raise
                    arrived = threading.Event()
                    cancel = connection.wait(
                        handle, md(), GetOptions(2 | 1), 1000, time.monotonic() + 0.2, _into(got_in_unit, arrived)
                    )
                    arrived.wait(5)
                    cancel()
                if len(got_in_unit) % 7 == 3:
                    connection.back()
                else:
                    connection.commit()
                    for data in got_in_unit:
                        note(data)
                got_in_unit.clear()
            connection.disconnect()

        threads = [threading.Thread(target=guarded(produce), args=(f"p{i}",)) for i in range(PRODUCERS)]
        threads += [threading.Thread(target=guarded(submit), args=(f"b{i}",)) for i in range(PRODUCERS)]
        threads += [threading.Thread(target=guarded(consume), args=(i,)) for i in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not errors
        assert len(found) == total
        assert set(found.values()) == {1}
        assert queue_manager.depth("Q") == 0
        queue_manager.close()


def _ignore(_unit, outcome):
    assert not outcome.failures


def _into(target, event):
    def arrived(outcome):
        if not isinstance(outcome, MQError):
            target.append(outcome.data)
        event.set()

    return arrived
