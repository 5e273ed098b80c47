"""A gateway on what `mqgate import` made of a mosquitto.conf: same passwords, same rights, the bridge's queue."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
from collections.abc import Iterator

import pytest
from gateways import RunningGateway
from patient_device import Device

CONF = """\
listener 1883 127.0.0.1
password_file passwd
acl_file acl
connection hq
address hq.example
topic sensors/# out
"""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    old, new = tmp_path_factory.mktemp("mosquitto"), tmp_path_factory.mktemp("mqgate") / "imported"
    salt = b"twelve bytes"
    digest = hashlib.pbkdf2_hmac("sha512", b"open sesame", salt, 101)
    stored = f"$7$101${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}"
    (old / "mosquitto.conf").write_text(CONF)
    (old / "passwd").write_text(f"alice:{stored}\n")
    (old / "acl").write_text("user alice\ntopic write sensors/#\ntopic deny sensors/secret\ntopic read sensors/+\n")
    command = [sys.executable, "-m", "gateway", "import", str(old / "mosquitto.conf"), "-o", str(new)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with RunningGateway(new, settings=(new / "mqgate.yaml").read_text()) as running:
        yield running


def test_users_log_in_with_their_old_passwords_and_nobody_else(gateway: RunningGateway) -> None:
    for user, password, reason in [("alice", b"open sesame", 0), ("alice", b"open", 5), (None, None, 5)]:
        with Device("127.0.0.1", gateway.port, "c1") as device:
            assert device.connect(user, password) == reason


def test_what_the_bridge_carried_out_is_on_its_queue(gateway: RunningGateway) -> None:
    with Device("127.0.0.1", gateway.port, "c2") as device:
        assert device.connect("alice", b"open sesame") == 0
        device.publish("sensors/secret", b"denied", qos=1)
        device.publish("sensors/1", b"21.5", qos=1)
    assert gateway.bodies("BRIDGE.HQ") == ["21.5"]


def test_a_subscription_that_is_wider_than_the_list_brings_what_may_be_read(gateway: RunningGateway) -> None:
    with Device("127.0.0.1", gateway.port, "c3") as dashboard, Device("127.0.0.1", gateway.port, "c4") as device:
        for one in (dashboard, device):
            assert one.connect("alice", b"open sesame") == 0
        assert dashboard.subscribe("#", qos=1) == 1
        for topic in ("sensors/deep/1", "sensors/2"):
            device.publish(topic, topic.encode(), qos=1)
        assert dashboard.receive() == ("sensors/2", b"sensors/2")
        assert dashboard.subscribe("office/#", qos=1) == 0x80, "nothing of it may be read"
