"""Channel authentication records: which programs that name a channel may connect, as which user, and whether they have
to give a password. Pure: the records, and which of them counts.

Of several records that match, the one that is most specific about the channel counts; among those the one that is most
specific about the certificate, then about its issuer, the user or queue manager, and the address.
"""

from __future__ import annotations

import fnmatch
import ipaddress
import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

MAPS = ("ADDRESSMAP", "USERMAP", "SSLPEERMAP", "QMGRMAP")
BLOCKS = ("BLOCKUSER", "BLOCKADDR")
ADMINISTRATORS = "*MQADMIN"
"""In a list of users: everybody who is an administrator by name."""
MAX_LISTED = 100
_ATTRIBUTE = re.compile(r"\s*([A-Za-z]+)\s*=\s*(?:\"([^\"]*)\"|([^,;]*))\s*(?:[,;]|$)")


class ChannelRecord(NamedTuple):
    """One record. An empty field says nothing."""

    channel: str
    type: str
    address: str = ""
    client_user: str = ""
    ssl_peer: str = ""
    ssl_issuer: str = ""
    partner: str = ""
    user_source: str = "MAP"
    user: str = ""
    """MCAUSER: with the source MAP, the user that the program runs as."""
    check: str = "ASQMGR"
    warn: bool = False
    """Whether a program that would be refused is let in all the same."""
    users: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    description: str = ""
    custom: str = ""
    altered: str = ""

    @property
    def key(self) -> tuple[str, ...]:
        """Returns the fields that distinguish a record from others."""
        return self.channel, self.type, self.address, self.client_user, self.ssl_peer, self.ssl_issuer, self.partner


class Program(NamedTuple):
    """What is known about a program that connects through a channel."""

    channel: str
    address: str
    user: str = ""
    ssl_peer: str = ""
    ssl_issuer: str = ""
    partner: str = ""


def mapping(records: Iterable[ChannelRecord], program: Program) -> ChannelRecord | None:
    """Returns the record that says which user a program runs as, if there is one."""
    fitting = (one for one in records if one.type in MAPS and _fits(one, program))
    return max(fitting, key=_specific, default=None)


def blocked_users(records: Iterable[ChannelRecord], channel: str) -> ChannelRecord | None:
    """Returns the list of users that holds for a channel: only the one whose channel name is most specific."""
    fitting = (one for one in records if one.type == "BLOCKUSER" and is_like(one.channel, channel))
    return max(fitting, key=lambda one: _of_name(one.channel), default=None)


def blocked_address(records: Iterable[ChannelRecord], address: str) -> ChannelRecord | None:
    """Returns a record that keeps an address out of all channels, if there is one."""
    lists = (one for one in records if one.type == "BLOCKADDR")
    return next((one for one in lists if any(is_address_like(each, address) for each in one.addresses)), None)


def blocks(record: ChannelRecord | None, user: str, *, privileged: bool) -> bool:
    """Whether a list of users contains this user."""
    return record is not None and (user in record.users or (privileged and ADMINISTRATORS in record.users))


def _fits(record: ChannelRecord, program: Program) -> bool:
    if not is_like(record.channel, program.channel) or not is_address_like(record.address or "*", program.address):
        return False
    if record.type == "USERMAP" and record.client_user != program.user:
        return False
    if record.type == "QMGRMAP" and (not program.partner or not is_like(record.partner, program.partner)):
        return False
    if record.type == "SSLPEERMAP" and not _is_peer_like(record.ssl_peer, program.ssl_peer):
        return False
    return not record.ssl_issuer or _is_peer_like(record.ssl_issuer, program.ssl_issuer)


def _specific(record: ChannelRecord) -> tuple[object, ...]:
    identity = record.client_user or record.partner
    return (
        _of_name(record.channel), record.ssl_peer != "", len(record.ssl_peer), record.ssl_issuer != "",
        len(record.ssl_issuer), identity != "", _of_name(identity), _of_address(record.address),
    )  # fmt: skip


def _of_name(name: str) -> tuple[bool, int]:
    return "*" not in name, len(name.replace("*", ""))


def _of_address(pattern: str) -> tuple[bool, bool, int]:
    exact = "*" not in pattern and "-" not in pattern and pattern != ""
    return exact, "-" in pattern, len(pattern.replace("*", ""))


def is_like(pattern: str, name: str) -> bool:
    """Whether a name matches a pattern in which `*` stands for any characters."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name, re.DOTALL) is not None


def is_address_like(pattern: str, address: str) -> bool:
    """Whether an address matches a pattern, whose parts are numbers, ranges (`1-5`) or `*`; a `*` at the end stands for
    all parts that follow."""
    if pattern in {"*", address}:
        return True
    separator = ":" if ":" in address else "."
    wanted, given = pattern.split(separator), address.split(separator)
    if separator == ":":
        try:
            given = ipaddress.ip_address(address).exploded.split(":")
        except ValueError:
            return fnmatch.fnmatchcase(address, pattern)
    if len(wanted) > len(given) or (len(wanted) < len(given) and wanted[-1] != "*"):
        return False
    base = 16 if separator == ":" else 10
    return all(_is_part(one, other, base) for one, other in zip(wanted, given, strict=False))


def _is_part(pattern: str, part: str, base: int) -> bool:
    if pattern == "*":
        return True
    low, _, high = pattern.partition("-")
    try:
        return int(low, base) <= int(part, base) <= int(high or low, base)
    except ValueError:
        return False


def is_address_pattern(pattern: str) -> bool:
    """Whether a text can be a pattern of addresses."""
    if pattern == "*":
        return True
    separator = ":" if ":" in pattern else "."
    parts = pattern.split(separator)
    base, most, count = (16, 0xFFFF, 8) if separator == ":" else (10, 255, 4)
    if len(parts) > count or (len(parts) < count and parts[-1] != "*"):
        return False
    return all(_is_pattern_part(one, base, most) for one in parts)


def _is_pattern_part(part: str, base: int, most: int) -> bool:
    if part == "*":
        return True
    low, dash, high = part.partition("-")
    try:
        numbers = [int(low, base), int(high, base)] if dash else [int(low, base)]
    except ValueError:
        return False
    return 0 <= numbers[0] <= numbers[-1] <= most


def _is_peer_like(pattern: str, name: str) -> bool:
    """Whether a distinguished name has every attribute of a pattern; a `*` at the end of a value stands for
    anything."""
    given: dict[str, list[str]] = {}
    for word, value in _attributes(name):
        given.setdefault(word, []).append(value)
    wanted = _attributes(pattern)
    return bool(wanted) and all(any(is_like(value, one) for one in given.get(word, [])) for word, value in wanted)


def _attributes(name: str) -> list[tuple[str, str]]:
    found = _ATTRIBUTE.findall(name)
    return [(word.upper(), (quoted or bare).strip()) for word, quoted, bare in found]


def changed(
    records: Sequence[ChannelRecord], action: str, given: ChannelRecord, refused: Callable[[str], Exception]
) -> list[ChannelRecord]:
    """Returns the records after a SET CHLAUTH. `refused` makes the exception for `exists` or `absent`."""
    old = next((one for one in records if one.key == given.key), None)
    others = [one for one in records if one is not old]
    if action == "REMOVEALL":
        left = [one for one in records if (one.channel, one.type) != (given.channel, given.type)]
        if len(left) == len(records):
            raise refused("absent")
        return left
    if action == "REMOVE":
        if old is None:
            raise refused("absent")
        return [*others, *_without(old, given)]
    if old is not None and action == "ADD":
        if given.type in MAPS:
            raise refused("exists")
        users, addresses = (*old.users, *given.users), (*old.addresses, *given.addresses)
        given = given._replace(users=tuple(dict.fromkeys(users)), addresses=tuple(dict.fromkeys(addresses)))
    if max(len(given.users), len(given.addresses)) > MAX_LISTED:
        raise refused("many")
    return [*others, given]


def _without(old: ChannelRecord, given: ChannelRecord) -> list[ChannelRecord]:
    """Returns what is left of a record when the given users and addresses are removed: nothing of one that maps, or
    whose lists are empty now."""
    if old.type in MAPS:
        return []
    users = tuple(one for one in old.users if one not in given.users)
    addresses = tuple(one for one in old.addresses if one not in given.addresses)
    return [old._replace(users=users, addresses=addresses)] if users or addresses else []
