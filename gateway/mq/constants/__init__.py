"""The MQ constants this gateway uses, under IBM's names, and the words for a reason code.

A named subset: what the calls, headers, PCF commands and reason handling need. Holds no behaviour beyond the lookup.
"""

from __future__ import annotations

from gateway.mq.constants import mqrc
from gateway.mq.constants.events import *  # noqa: F403
from gateway.mq.constants.md import *  # noqa: F403  one namespace for callers, several files for readers
from gateway.mq.constants.mqi import *  # noqa: F403
from gateway.mq.constants.mqrc import *  # noqa: F403
from gateway.mq.constants.pcf import *  # noqa: F403

_REASONS: dict[int, str] = {code: name for name, code in vars(mqrc).items() if name.startswith("MQRC_")}


def name_of_reason(code: int) -> str:
    """`2053` -> `MQRC_Q_FULL`; a code without a name here comes back as `MQRC 9999`."""
    return _REASONS.get(code) or f"MQRC {code}"


def name_of(prefix: str, value: int | bytes) -> str:
    """Returns the constant of one family with this value: `name_of("MQMT_", 8)` is `MQMT_DATAGRAM`; or the value as
    text."""
    return _family(prefix).get(value) or (value.decode("latin-1") if isinstance(value, bytes) else str(value))


_FAMILIES: dict[str, dict[int | bytes, str]] = {}


def _family(prefix: str) -> dict[int | bytes, str]:
    if prefix not in _FAMILIES:
        found: dict[int | bytes, str] = {}
        for name, value in globals().items():
            if name.startswith(prefix) and isinstance(value, int | bytes):
                found.setdefault(value, name)
        _FAMILIES[prefix] = found
    return _FAMILIES[prefix]
