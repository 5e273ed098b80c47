"""Decides, and says as text, whether a message is put within the unit of work that is acknowledged or by itself, and
what becomes of one that is longer than its queue takes."""

from __future__ import annotations

from gateway.bridge.inbound import Prepared
from gateway.rules.model import ToMq


def why_within(prepared: Prepared, *, persistent: bool, joined: bool = False) -> str:
    """Why a message is put under syncpoint; empty: it is not. All are, except for QoS 0 that is not persistent, unless
    something else requires it. `joined`: it has several destinations, or is put together with what is stored."""
    spec = prepared.rule.spec
    if prepared.origin.qos:
        return "QoS 1 and 2 are acknowledged after the commit"
    if joined:
        return "several destinations are one unit of work"
    if persistent:
        return "it is persistent"
    if spec.syncpoint == "always":
        return "the rule says `syncpoint: always`"
    if spec.too_long == "segment":
        return "the segments of a message are one unit of work"
    return "the answer needs what is stored with the request" if prepared.request is not None else ""


_THEN = {
    "dead_letter": "dead-lettered (2030)", "hold": "held and not acknowledged", "drop": "dropped and counted",
    "disconnect": "refused, and the device loses its connection",
}  # fmt: skip


def when_too_long(spec: ToMq) -> str:
    """What becomes of a message that is longer than its queue takes."""
    if spec.too_long == "segment":
        return "cut into segments"
    if spec.too_long == "reject":
        return "refused before it is put (MQTT 5: reason code 0x97)"
    return _THEN[spec.on_failure.then]
