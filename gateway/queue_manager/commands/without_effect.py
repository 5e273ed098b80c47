"""Attributes that a DEFINE or ALTER accepts and that do nothing here, although IBM MQ keeps or discards messages by
them. The answer says so."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gateway.queue_manager.commands.mqsc_parse import Command

_CLUSTERS = re.compile(r" *\S.*"), "there are no clusters"
_WITHOUT_EFFECT = {
    "NPMCLASS": (re.compile("HIGH"), "messages that are not persistent are gone after a restart"),
    "CAPEXPRY": (re.compile("[0-9]+"), "messages expire when they say so, or never"),
    "DISTL": (re.compile("YES"), "there are no distribution lists"),
    "CHLTYPE": (
        re.compile("SDR|SVR|RCVR|RQSTR|CLUSSDR|CLUSRCVR|MQTT|AMQP"),
        "channels to other queue managers are not started, and devices come to the listeners of the settings",
    ),
    "CLUSTER": _CLUSTERS,
    "CLUSNL": _CLUSTERS,
}
"""By attribute: the values that ask for something, and what is the case here instead."""


def without_effect(command: Command) -> Iterator[str]:
    """Yields a line for each attribute of a DEFINE or ALTER that is accepted and does nothing here."""
    for parameter in command.parameters:
        asks, instead = _WITHOUT_EFFECT.get(parameter.keyword, (None, ""))
        value = ",".join(parameter.values or ())
        if asks is not None and asks.fullmatch(value.upper()):
            yield f"{parameter.keyword}({value}) has no effect here: {instead}."
