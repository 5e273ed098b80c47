"""What a client costs that is connected and says nothing, or is away: ten thousands of them are on one gateway."""

from __future__ import annotations

import gc
import tracemalloc

import pytest
from broker_harness import Device, Harness

from gateway.session.outflow import Outflow

MANY = 200


@pytest.mark.parametrize(("away", "most"), [(False, 3000), (True, 1500)])
def test_memory(away: bool, most: int) -> None:
    bench, devices = Harness(), list[Device]()

    def come(count: int) -> None:
        for number in range(count):
            device = bench.device(5, f"{count}-{number}").connect(clean=False)
            device.take()
            if away:
                device.drop()
            else:
                devices.append(device)

    come(20)
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.take_snapshot()
        come(MANY)
        gc.collect()
        after = tracemalloc.take_snapshot()
    finally:
        tracemalloc.stop()
    ours = [tracemalloc.Filter(True, "*/gateway/*")]
    found = after.filter_traces(ours).compare_to(before.filter_traces(ours), "filename")
    assert sum(one.size_diff for one in found) < most * MANY


def test_nothing_is_put_where_all_are_of_whom_nothing_waits() -> None:
    one, other = Outflow(), Outflow()
    assert one.pending is other.pending
    with pytest.raises(TypeError):
        one.pending.append(None)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        one.pending.extendleft([])
    assert one.line() is one.pending is not other.pending
