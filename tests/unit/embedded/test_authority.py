"""Authority records: which profile covers a name, which counts, what MQOPEN needs."""

from __future__ import annotations

import pytest
from strategies_embedded import MqiRig, refused

from gateway.backends.embedded.authority import RIGHTS, _covers, expanded
from gateway.ports.mqi import ObjectDescriptor


@pytest.mark.parametrize(
    ("profile", "name", "expected"),
    [
        ("A.B", "A.B", True),
        ("A.B", "A.C", False),
        ("A.*", "A.B", True),
        ("A.*", "A.B.C", False),
        ("A.**", "A.B.C", True),
        ("A.**", "A", True),
        ("A.**", "AB.C", False),
        ("**", "ANY.THING", True),
        ("A.B*", "A.BCD", True),
        ("A.B?", "A.BC", True),
        ("A.B?", "A.B", False),
    ],
)
def test_profiles(profile, name, expected):
    assert _covers(profile, name) is expected


def test_names_for_several_rights():
    assert expanded(["ALL"]) == RIGHTS
    assert expanded(["ALLADM", "PUT"]) == {"CHG", "CLR", "CRT", "DLT", "DSP", "CTRL", "CTRLX", "PUT"}
    assert expanded(["NONE"]) == frozenset()


def test_the_most_specific_profile_counts_and_survives_a_restart(tmp_path):
    rig = MqiRig(tmp_path / "data", "DEFINE QLOCAL(APP.ONE)\nDEFINE QLOCAL(APP.TWO)")
    rig.mqsc(
        "SET AUTHREC OBJTYPE(QMGR) PRINCIPAL('eva') AUTHADD(CONNECT)\n"
        "SET AUTHREC PROFILE('APP.**') OBJTYPE(QUEUE) PRINCIPAL('eva') AUTHADD(ALLMQI)\n"
        "SET AUTHREC PROFILE(APP.TWO) OBJTYPE(QUEUE) PRINCIPAL('eva') AUTHADD(BROWSE)\n"
    )
    rig.restart()
    eva = rig.queue_manager.connect(user="eva")
    eva.open(ObjectDescriptor("APP.ONE"), 1 | 16 | 32)
    eva.open(ObjectDescriptor("APP.TWO"), 8)
    for name, options in (("APP.TWO", 16), ("SYSTEM.DEAD.LETTER.QUEUE", 8)):
        with refused(2035):
            eva.open(ObjectDescriptor(name), options)
    rig.mqsc("DELETE AUTHREC PROFILE(APP.TWO) OBJTYPE(QUEUE) PRINCIPAL('eva')")
    eva.open(ObjectDescriptor("APP.TWO"), 16)
    rig.queue_manager.close()
