"""gateway.queue_manager.inspection: what is said of a queue that is not there."""

from __future__ import annotations

import pytest
from embedded_rig import MqiRig

from gateway.errors import MQError
from gateway.queue_manager.inspection import Inspection


@pytest.mark.parametrize(
    ("name", "said"),
    [("plant.in", "there is no queue 'plant.in'; 'PLANT.IN' is one"), ("PLANT.OUT", "there is no queue 'PLANT.OUT'")],
)
def test_who_writes_a_name_in_small_letters_is_told_the_queue_that_is_meant(name: str, said: str) -> None:
    rig = MqiRig(None, "DEFINE QLOCAL(PLANT.IN)")
    with pytest.raises(MQError) as raised:
        Inspection(rig.queue_manager).queue(name)
    assert raised.value.reason == 2085
    assert said in str(raised.value)
    assert (" is one" in str(raised.value)) == (" is one" in said)
    rig.queue_manager.close()
