"""The backends the contract suites run over."""

from __future__ import annotations

import pytest
from strategies_embedded import MqiRig


@pytest.fixture(params=["memory", "embedded"])
def mqi(request, tmp_path):
    """A queue manager behind the MQI port."""
    rig = MqiRig(None if request.param == "memory" else tmp_path / "data", "DEFINE QLOCAL(A)\nDEFINE QLOCAL(B)")
    yield rig
    rig.queue_manager.close()
