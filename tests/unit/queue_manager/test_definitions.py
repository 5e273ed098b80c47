"""The objects as MQSC commands that define them anew."""

from __future__ import annotations

from dataclasses import replace

from embedded_rig import MqiRig

from gateway.queue_manager.commands.definitions import script

OBJECTS = """
DEFINE QLOCAL('it.s') DESCR('the shift''s') MAXDEPTH(7) NOSHARE PUT(DISABLED) BOQNAME(BACK) BOTHRESH(3)
DEFINE QALIAS(A) TARGET('it.s')
DEFINE QREMOTE(R) RNAME(X) RQMNAME(QM2) XMITQ(OUT)
DEFINE QMODEL(M) DEFTYPE(PERMDYN)
DEFINE TOPIC(T) TOPICSTR('plant/lima')
DEFINE SUB('every shift') TOPICSTR('plant/+') DEST('it.s')
DEFINE NAMELIST(N) NAMES(A,R)
DEFINE PROCESS(P) APPLICID('run me')
"""


def test_what_is_exported_makes_the_same_objects_elsewhere() -> None:
    first, second = MqiRig(None).queue_manager, MqiRig(None).queue_manager
    assert first.mqsc(OBJECTS).ok
    commands = list(script(first.core.catalogue))
    assert len(commands) == 8
    report = second.mqsc("\n".join(commands))
    assert report.ok, report.lines
    assert list(script(second.core.catalogue)) == commands
    assert second.mqsc("\n".join(commands)).ok, "what is there already is replaced"


def test_a_topic_object_without_a_topic_string_is_left_out_and_named() -> None:
    """Earlier releases made such objects; an export with one could not be carried out any more."""
    first, second = MqiRig(None).queue_manager, MqiRig(None).queue_manager
    assert first.mqsc(OBJECTS).ok
    kept = first.core.catalogue.get("TOPIC", "T")
    assert kept is not None
    first.core.catalogue.add(replace(kept, name="EMPTY", attributes={**kept.attributes, "TOPICSTR": ""}))
    commands = list(script(first.core.catalogue))
    said = "* TOPIC 'EMPTY' is left out: it has no TOPICSTR, without which it cannot be defined"
    assert [one for one in commands if "EMPTY" in one] == [said]
    assert second.mqsc("\n".join(commands)).ok


def test_what_mqsc_cannot_say_is_left_out_and_named() -> None:
    """Programs name and describe subscriptions: a line end in the name or the text would begin a command of their
    own."""
    first, second = MqiRig(None).queue_manager, MqiRig(None).queue_manager
    assert first.mqsc(OBJECTS).ok
    kept = first.core.catalogue.get("SUB", "every shift")
    assert kept is not None
    name = "mine')\nDELETE QLOCAL('it.s')"
    first.core.catalogue.add(replace(kept, name=name))
    first.core.catalogue.add(replace(kept, name="other", attributes={**kept.attributes, "USERDATA": "a\rb"}))
    commands = list(script(first.core.catalogue))
    assert commands[-2:] == [
        f"* SUB {one!a} is left out: a value has a line end, which MQSC cannot express" for one in (name, "other")
    ]
    report = second.mqsc("\n".join(commands))
    assert report.ok, report.lines
    assert second.core.catalogue.get("QLOCAL", "it.s") is not None
