"""A gateway whose device takes no writes for a while, below its file system: nothing is acknowledged meanwhile, probe
and log say so, nobody is disconnected, and it goes on by itself when the device does. After a kill all that was
acknowledged is there, once, and nothing that was refused.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from small_disks import failing_device
from test_full_disk_gateway import QUOTA_EXCEEDED, device, gateway_in, is_silent, not_ready, ping, until

from gateway.errors import ProtocolError
from gateway.mqtt import writer

pytestmark = pytest.mark.timeout(240)


def test_a_device_that_fails_and_recovers(tmp_path: Path) -> None:
    with failing_device(tmp_path) as failing:
        (tmp_path / "data").symlink_to(failing.disk)
        gateway = gateway_in(tmp_path)
        gateway.start()
        try:
            new, old = device(gateway, "new", 5), device(gateway, "old", 4)
            kept = [f"kept {at}" for at in range(100)]
            for body in kept:
                new.publish("q/a", body.encode(), 1)
            for packet_id in (77, 78):  # the second time after it has recovered
                failing.fail_writes_to("*.segment")
                old._socket.sendall(writer.encode_publish(4, b"q/a", b"withheld", 1, packet_id=packet_id))
                until(lambda: "[-] spool: " in not_ready(gateway))
                for _ in range(3):
                    with pytest.raises(ProtocolError) as refused:
                        new.publish("q/a", b"refused", 1)
                    assert refused.value.reason == QUOTA_EXCEEDED
                assert is_silent(old, 1.0)
                ping(old)
                assert '"disk_full"' in gateway.log
                failing.recover()
                old._next(4)  # by itself
                until(lambda: not not_ready(gateway))
                new.publish("q/a", b"after", 1)
                kept += ["withheld", "after"]
            assert gateway.bodies("Q") == kept
            gateway.kill()
            gateway.start(port=gateway.port, admin_port=gateway.admin)
            assert gateway.bodies("Q") == kept
            assert "Traceback" not in gateway.log
            assert '"defect"' not in gateway.log
            assert gateway.stop() == 0
        finally:
            gateway.kill()
