"""The exception tree of mqgate, shown whole first. Imports nothing of ours.

MqgateError
├── ConfigurationError          settings or mappings are wrong: every finding at once
├── ProtocolError               the MQTT peer broke the protocol; carries the MQTT 5 reason code
│   ├── MalformedPacket         0x81
│   └── PacketTooLarge          0x95
├── Refused                     a message cannot go where its rule says; carries the feedback code
├── MQError                     an MQI completion code and reason
├── HeaderError                 bytes are not the MQ structure they claim to be; offset and field
├── StoreError                  the embedded queue manager's journal
│   ├── StoreInUse              another process owns the directory
│   ├── StoreCorrupt            damage was found; says where and what can be saved
│   └── StoreUnavailable        disk full, read-only or failing: nothing was acknowledged
└── DriverUnavailable           no IBM MQ client library can be loaded here
"""

from __future__ import annotations

from dataclasses import dataclass


class MqgateError(Exception):
    """Everything mqgate raises on purpose derives from this."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing wrong in a configuration file, where it is, and what to write instead."""

    file: str
    """Or an environment variable, or an option."""
    line: int
    """From 1; 0: all of it is meant, as it cannot be read."""
    column: int
    what: str
    fix: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        text = f"{place}: {_shown(self.what)}"
        return f"{text}: {_shown(self.fix)}" if self.fix else text


MAX_SHOWN = 1000


def _shown(text: str) -> str:
    """What a finding quotes comes from files of others: it moves no cursor, begins no line and fills no screen."""
    return printable(text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]} ...")


def printable(text: str) -> str:
    """What a terminal would obey, and what turns the order of characters around, as escapes; the rest as it is."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def emptied(file: str, what: str, fix: str) -> Finding:
    """A file that a reload finds without any content, though `what` is in force from it."""
    return Finding(
        file, 0, 0, f"the file is empty, and what is in force has {what} of it", f"restore it, or write {fix}"
    )


class ConfigurationError(MqgateError):
    """Settings or mappings are wrong. Carries every finding, not only the first."""

    def __init__(self, findings: list[Finding]) -> None:
        super().__init__("\n".join(str(finding) for finding in findings))
        self.findings = findings


class ProtocolError(MqgateError):
    """The MQTT peer broke a rule; `reason` is the MQTT 5 reason code to close with."""

    reason = 0x82  # Protocol Error

    def __init__(self, text: str, reason: int | None = None) -> None:
        super().__init__(text)
        if reason is not None:
            self.reason = reason


class MalformedPacket(ProtocolError):
    """Bytes that are not a packet of the announced protocol version."""

    reason = 0x81


class PacketTooLarge(ProtocolError):
    """A packet announced to be larger than the configured maximum; refused from its header alone."""

    reason = 0x95


class Refused(MqgateError):
    """A message cannot go where its rule says; `feedback` is the reason a dead-letter header or report carries."""

    def __init__(self, text: str, feedback: int) -> None:
        super().__init__(text)
        self.feedback = feedback


class MQError(MqgateError):
    """An MQI call did not end with MQCC_OK."""

    def __init__(self, reason: int, text: str = "", comp_code: int = 2) -> None:
        text = text.removeprefix(f"MQRC {reason}: ")  # that of another error, told again
        super().__init__(f"MQRC {reason}{': ' + text if text else ''}")
        self.reason = reason
        self.comp_code = comp_code


class HeaderError(MqgateError):
    """Bytes are not the MQ structure they were announced to be."""

    def __init__(self, structure: str, field: str, offset: int, text: str) -> None:
        super().__init__(f"{structure}.{field} at offset {offset}: {text}")
        self.structure = structure
        self.field = field
        self.offset = offset


class StoreError(MqgateError):
    """The journal of the embedded queue manager cannot do what was asked."""


class StoreInUse(StoreError):
    """Another process owns the data directory; `whose` says so without advice, for those who wait for it to end."""

    def __init__(self, whose: str, advice: str = "") -> None:
        super().__init__(f"{whose}; {advice}" if advice else whose)
        self.whose = whose


class StoreCorrupt(StoreError):
    """Recovery found damage that is not a torn tail."""


class StoreUnavailable(StoreError):
    """The disk is full, read-only or failing; nothing of the frame was acknowledged."""


class NewerState(MqgateError, ValueError):
    """A record of the gateway's state that a newer release has written."""


class DriverUnavailable(MqgateError):
    """Neither ibmmq nor pymqi can be imported here; the text says what is missing."""
