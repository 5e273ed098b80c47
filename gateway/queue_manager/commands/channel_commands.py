"""SET CHLAUTH and DISPLAY CHLAUTH, in MQSC and PCF from one table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from gateway.errors import MQError
from gateway.mq import constants as mq
from gateway.mq import pcf
from gateway.queue_manager.commands.display_rows import Row
from gateway.queue_manager.commands.mqsc import chosen, columns, condition_of
from gateway.queue_manager.commands.mqsc_parse import Command
from gateway.queue_manager.commands.pcf_objects import FILTERS, filtered
from gateway.queue_manager.objects.administration import AdministrationError
from gateway.queue_manager.objects.channel_authority import ChannelAuthority
from gateway.queue_manager.objects.channel_records import (
    BLOCKS,
    MAPS,
    ChannelRecord,
    Program,
    is_address_pattern,
    is_like,
)

TYPES = {
    "BLOCKUSER": 1, "BLOCKADDR": 2, "SSLPEERMAP": 3, "ADDRESSMAP": 4, "USERMAP": 5, "QMGRMAP": 6,
}  # fmt: skip
SOURCES = {"MAP": 0, "NOACCESS": 1, "CHANNEL": 2}
CHECKS = {"REQDADM": 2, "REQUIRED": 3, "ASQMGR": 4}
WARNS = {"NO": 0, "YES": 1}
ACTIONS = {"ADD": 5, "REPLACE": 6, "REMOVE": 7, "REMOVEALL": 8}
MATCHES = {"GENERIC": 0, "RUNCHECK": 1, "EXACT": 2, "ALL": 3}
SELECTORS = {
    "CHLAUTH": 3501, "TYPE": 1352, "DESCR": 2118, "CUSTOM": 2119, "SSLPEER": 3545, "SSLCERTI": 3550, "CLNTUSER": 3567,
    "QMNAME": 2017, "ADDRESS": 3506, "USERSRC": 1638, "MCAUSER": 3527, "CHCKCLNT": 258, "WARN": 1639, "USERLIST": 3568,
    "ADDRLIST": 3566, "ALTDATE": 2027, "ALTTIME": 2028,
}  # fmt: skip
"""MQSC keywords, and the identifiers of the PCF parameters."""
WORDS = {"TYPE": TYPES, "USERSRC": SOURCES, "CHCKCLNT": CHECKS, "WARN": WARNS, "ACTION": ACTIONS, "MATCH": MATCHES}
LISTS = {"USERLIST", "ADDRLIST"}
SIZES = {"CHLAUTH": 20, "DESCR": 64, "QMNAME": 48, "MCAUSER": 64, "ALTDATE": 12, "ALTTIME": 8}
ACTION, MATCH, ATTRIBUTES = 1086, 1637, 1355
_NEEDS = {
    "ADDRESSMAP": "ADDRESS", "USERMAP": "CLNTUSER", "SSLPEERMAP": "SSLPEER", "QMGRMAP": "QMNAME", "BLOCKUSER":
    "USERLIST", "BLOCKADDR": "ADDRLIST",
}  # fmt: skip
_ONLY_OF = {
    "CLNTUSER": {"USERMAP"}, "SSLPEER": {"SSLPEERMAP"}, "SSLCERTI": {"SSLPEERMAP"}, "QMNAME": {"QMGRMAP"},
    "USERLIST": {"BLOCKUSER"}, "ADDRLIST": {"BLOCKADDR"}, "ADDRESS": set(MAPS), "USERSRC": set(MAPS),
    "MCAUSER": set(MAPS), "CHCKCLNT": {"ADDRESSMAP", "USERMAP", "SSLPEERMAP"},
}  # fmt: skip
_NOT_FOUND = AdministrationError(3338, "AMQ8884E: Channel authentication record not found.")
Given = Mapping[str, list[str]]


def _wrong(reason: int, what: str) -> AdministrationError:
    return AdministrationError(reason, f"AMQ8405E: {what}")


def record_of(given: Given) -> tuple[str, ChannelRecord]:
    """Returns the action and the record of a SET CHLAUTH. Raises AdministrationError for one that IBM MQ would
    refuse."""
    one = {keyword: values[0] if values else "" for keyword, values in given.items()}
    for keyword, words in WORDS.items():
        if keyword in one and one[keyword] not in words:
            raise _wrong(_REASONS[keyword], f"{one[keyword]!r} is not a valid value for {keyword}: {', '.join(words)}.")
    unknown = given.keys() - SELECTORS.keys() - {"ACTION"}
    if unknown:
        raise _wrong(mq.MQRCCF_CFH_COMMAND_ERROR, f"{min(unknown)} is not an attribute of CHLAUTH.")
    if not one.get("CHLAUTH"):
        raise _wrong(3347, "the name of a channel, or a pattern of names, is required.")
    if "TYPE" not in one:
        raise _wrong(3326, f"TYPE is required: {', '.join(TYPES)}.")
    kind, action = one["TYPE"], one.get("ACTION", "ADD")
    for keyword in given:
        if kind not in _ONLY_OF.get(keyword, {kind}):
            raise _wrong(3336, f"{keyword} is not allowed with TYPE({kind}).")
    if action != "REMOVEALL" and not given.get(_NEEDS[kind]):
        raise _wrong(3228, f"TYPE({kind}) needs {_NEEDS[kind]}.")
    if kind == "BLOCKADDR" and one["CHLAUTH"] != "*":
        raise _wrong(3349, "TYPE(BLOCKADDR) holds for all channels: write CHLAUTH('*').")
    _check_addresses([*given.get("ADDRLIST", []), *([one["ADDRESS"]] if one.get("ADDRESS") else [])])
    source = one.get("USERSRC", "MAP")
    if kind in MAPS and action in {"ADD", "REPLACE"} and (source == "MAP") != bool(one.get("MCAUSER")):
        raise _wrong(3340, "USERSRC(MAP) needs MCAUSER; the other values of USERSRC do not take it.")
    return action, ChannelRecord(
        one["CHLAUTH"], kind, one.get("ADDRESS", ""), one.get("CLNTUSER", ""), one.get("SSLPEER", ""),
        one.get("SSLCERTI", ""), one.get("QMNAME", ""), source, one.get("MCAUSER", ""), one.get("CHCKCLNT", "ASQMGR"),
        one.get("WARN", "NO") == "YES", tuple(given.get("USERLIST", ())), tuple(given.get("ADDRLIST", ())),
        one.get("DESCR", ""), one.get("CUSTOM", ""),
    )  # fmt: skip


_REASONS = {"TYPE": 3326, "USERSRC": 3335, "CHCKCLNT": 3370, "WARN": 3341, "ACTION": 3327, "MATCH": 3342}


def _check_addresses(patterns: Iterable[str]) -> None:
    for pattern in patterns:
        if not is_address_pattern(pattern):
            raise _wrong(3345, f"{pattern!r} is not an address: numbers, ranges (1-5) and *, no host names.")


def row_of(record: ChannelRecord) -> Row:
    """Returns a record as DISPLAY shows it."""
    kind = record.type
    row = {"CHLAUTH": record.channel, "TYPE": kind, "DESCR": record.description, "CUSTOM": record.custom}
    if kind in BLOCKS:
        listed = record.users if kind == "BLOCKUSER" else record.addresses
        row[_NEEDS[kind]] = ",".join(listed)
        row["WARN"] = "YES" if record.warn else "NO"
    else:
        if kind == "SSLPEERMAP":
            row |= {"SSLPEER": record.ssl_peer, "SSLCERTI": record.ssl_issuer}
        if kind == "USERMAP":
            row["CLNTUSER"] = record.client_user
        if kind == "QMGRMAP":
            row["QMNAME"] = record.partner
        row |= {"ADDRESS": record.address, "USERSRC": record.user_source}
        if record.user_source == "MAP":
            row["MCAUSER"] = record.user
        if record.user_source == "NOACCESS":
            row["WARN"] = "YES" if record.warn else "NO"
        elif kind != "QMGRMAP":
            row["CHCKCLNT"] = record.check
    day, _, time = record.altered.partition(" ")
    return row | {"ALTDATE": day, "ALTTIME": time}


def selected(channels: ChannelAuthority, given: Given) -> list[ChannelRecord]:
    """Returns the records that a DISPLAY CHLAUTH is about."""
    one = {keyword: values[0] if values else "" for keyword, values in given.items()}
    match, name = one.get("MATCH", "GENERIC"), one.get("CHLAUTH") or "*"
    for keyword in ("MATCH", "TYPE"):
        if keyword in one and one[keyword] not in {*WORDS[keyword], *({"ALL"} if keyword == "TYPE" else ())}:
            raise _wrong(_REASONS[keyword], f"{one[keyword]!r} is not a valid value for {keyword}.")
    if match == "RUNCHECK":
        return _run_check(channels, name, one)
    fits: dict[str, Callable[[ChannelRecord], bool]] = {
        "GENERIC": lambda record: is_like(name, record.channel), "EXACT": lambda record: record.channel == name,
        "ALL": lambda record: is_like(record.channel, name) or is_like(name, record.channel),
    }  # fmt: skip
    fields = {"ADDRESS": "address", "CLNTUSER": "client_user", "SSLPEER": "ssl_peer", "QMNAME": "partner",
              "SSLCERTI": "ssl_issuer"}  # fmt: skip
    return [
        record
        for record in sorted(channels.records)
        if fits[match](record)
        and one.get("TYPE", "ALL") in {"ALL", record.type}
        and all(getattr(record, field) == one[word] for word, field in fields.items() if one.get(word))
    ]


def _run_check(channels: ChannelAuthority, name: str, one: Mapping[str, str]) -> list[ChannelRecord]:
    if "*" in name or not one.get("ADDRESS") or bool(one.get("CLNTUSER")) == bool(one.get("QMNAME")):
        what = "MATCH(RUNCHECK) needs the full name of a channel, ADDRESS, and CLNTUSER or QMNAME."
        raise _wrong(3350, what)
    program = Program(
        name, one["ADDRESS"], one.get("CLNTUSER", ""), one.get("SSLPEER", ""), one.get("SSLCERTI", ""),
        one.get("QMNAME", ""),
    )  # fmt: skip
    return channels.checked(program)


class ChannelCommands:
    """Carries out the MQSC commands."""

    def __init__(self, channels: ChannelAuthority) -> None:
        self._channels = channels

    def __call__(self, command: Command) -> Iterable[str] | None:
        """Returns the lines of the answer; None if the command is none of these."""
        if command.object != "CHLAUTH" or command.verb not in {"SET", "DISPLAY"}:
            return None
        return self._set(command) if command.verb == "SET" else self._display(command)

    def _set(self, command: Command) -> list[str]:
        given = {one.keyword: one.values or [] for one in command.parameters}
        self._channels.set(*record_of({"CHLAUTH": [command.name], **given}))
        return ["AMQ8877I: IBM MQ channel authentication record set."]

    def _display(self, command: Command) -> list[str]:
        given = {one.keyword: one.values for one in command.parameters if one.values is not None}
        where = given.pop("WHERE", None)
        holds = condition_of(command, where) if where is not None else None
        wanted = {one.keyword for one in command.parameters if one.values is None}
        wanted = set() if "ALL" in wanted else wanted
        lines: list[str] = []
        for record in selected(self._channels, {"CHLAUTH": [command.name], **given}):
            row = row_of(record)
            if holds is None or holds(row):
                lines.append("AMQ8878I: Display channel authentication record details.")
                lines += columns(chosen(row, wanted, ("CHLAUTH", "TYPE", _NEEDS[record.type])))
        if not lines:
            raise _NOT_FOUND
        return lines


# PCF

_KEYWORDS = {selector: keyword for keyword, selector in SELECTORS.items()} | {ACTION: "ACTION", MATCH: "MATCH"}


def _given(message: pcf.Message) -> dict[str, list[str]]:
    """Returns the parameters of a PCF command as those of MQSC."""
    given: dict[str, list[str]] = {}
    for parameter in message.parameters:
        if parameter.type in FILTERS:
            continue
        keyword = _KEYWORDS.get(parameter.parameter)
        if keyword is None:
            if parameter.parameter == ATTRIBUTES:
                continue
            raise _wrong(3014, f"parameter {parameter.parameter} is not one of CHLAUTH.")
        if isinstance(parameter.value, int):
            words = {number: word for word, number in WORDS.get(keyword, {}).items()}
            words |= {0: "ALL"} if keyword == "TYPE" else {}
            given[keyword] = [words.get(parameter.value, str(parameter.value))]
        elif isinstance(parameter.value, tuple):
            given[keyword] = [text for text in parameter.texts() if text]
        else:
            given[keyword] = [parameter.text()] if parameter.text() else []
    return given


def set_record(channels: ChannelAuthority, message: pcf.Message) -> Iterable[list[pcf.Parameter]]:
    """Carries out SET_CHLAUTH_REC."""
    channels.set(*record_of(_given(message)))
    return [[]]


def inquire(channels: ChannelAuthority, message: pcf.Message) -> Iterable[list[pcf.Parameter]]:
    """Carries out INQUIRE_CHLAUTH_RECS."""
    found = filtered(message, (_described(row_of(record)) for record in selected(channels, _given(message))))
    if not found:
        raise MQError(_NOT_FOUND.reason, _NOT_FOUND.message)
    return found


def _described(row: Row) -> list[pcf.Parameter]:
    reply = []
    for keyword, value in row.items():
        if keyword in WORDS:
            reply.append(pcf.integer(SELECTORS[keyword], WORDS[keyword][value]))
        elif keyword in LISTS:
            reply.append(pcf.strings(SELECTORS[keyword], value.split(",")))
        else:
            reply.append(pcf.string(SELECTORS[keyword], value, size=SIZES.get(keyword, 0)))
    return reply
