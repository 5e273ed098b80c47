"""An empty retained publication takes the retained one off an MQ topic as it does off the MQTT topic. Pure.

MQ has no put for that. It is the command CLEAR TOPICSTR, here in PCF for the command server, in the unit of work of the
publication: the gateway's user needs +put on the command queue and +clr on the topic.
"""

from __future__ import annotations

from gateway.broker.publish.route import REPORT
from gateway.broker.turn import Run, Turn
from gateway.mq import mqmd, pcf

COMMANDS = "SYSTEM.ADMIN.COMMAND.QUEUE"
_CLEAR_TOPIC_STRING = 184
_TOPIC_STRING, _CLEAR_TYPE, _CLEAR_SCOPE = 2094, 1305, 1306
_RETAINED, _LOCAL = 1, 1
_RUN: Run = (COMMANDS, "", 0, True, b"", True, False)


def clear_retained(turn: Turn, topic: str) -> None:
    """The command; what the queue refuses is dead-lettered, where it can be seen and replayed."""
    turn.aim(_RUN, REPORT)
    turn.put(_RUN, mqmd.with_described(mqmd.build(persistence=1), 546, 1208, b"MQADMIN "), command(topic))


def command(topic: str) -> bytes:
    """CLEAR TOPICSTR(topic) CLRTYPE(RETAINED) SCOPE(LOCAL)."""
    wanted = [pcf.string(_TOPIC_STRING, topic), pcf.integer(_CLEAR_TYPE, _RETAINED), pcf.integer(_CLEAR_SCOPE, _LOCAL)]
    return pcf.build(pcf.Message(1, _CLEAR_TOPIC_STRING, wanted))
