"""Several gateways whose clocks jump by an hour, each its own way: leases hold, sessions stay where they are, and who
is lost is taken over from as soon as ever.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from gateways import RunningGateway
from ibm_fleet import LEASE, Fleet, fleet_in, stay, until

pytestmark = [pytest.mark.mqi, pytest.mark.timeout(240)]
HOUR = 3600


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with fleet_in(tmp_path) as made:
        made.program, made.lease = [str(Path(__file__).parent / "clock_gateway.py")], 2 * LEASE
        for number in range(2):
            (tmp_path / f"g{number}").mkdir()
            (tmp_path / f"g{number}" / "clock").write_text("0")
        yield made


def set_clock(gateway: RunningGateway, seconds: int) -> None:
    staged = gateway.directory / "clock.new"
    staged.write_text(str(seconds))
    staged.replace(gateway.directory / "clock")


def test_leases_hold_while_clocks_jump_and_end_in_time_afterwards(fleet: Fleet) -> None:
    first, second = fleet.start(), fleet.start()
    stored, publisher = stay("stored", first), stay("publisher", second)
    stored.subscribe("news/#")
    until(lambda: len(set(fleet.sessions().values())) == 2)
    owners = fleet.sessions()
    count = 0
    for clocks in ((HOUR, 0), (-HOUR, HOUR), (0, -HOUR)):
        for gateway, seconds in zip((first, second), clocks, strict=True):
            set_clock(gateway, seconds)
        ends = time.monotonic() + 1.3 * fleet.lease
        while time.monotonic() < ends:
            publisher.publish("news/x", b"%d" % count, 2)
            assert stored.receive()[1] == b"%d" % count
            count += 1
            time.sleep(0.5)
        assert fleet.sessions() == owners
    first.kill()
    publisher.publish("news/x", b"stored", 2)
    again = stay("stored", second)
    assert again.connack.session_present
    assert again.receive()[1] == b"stored"
    for gateway in (first, second):
        assert "Traceback" not in gateway.log
        assert '"defect"' not in gateway.log
