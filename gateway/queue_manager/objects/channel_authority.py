"""Keeps the channel authentication records, and decides by them which programs that name a channel may connect."""

from __future__ import annotations

import json
from typing import Any

from gateway.errors import MQError
from gateway.mq import constants as mq
from gateway.queue_manager.core import Core
from gateway.queue_manager.objects.administration import AdministrationError
from gateway.queue_manager.objects.authority import Authority
from gateway.queue_manager.objects.channel_records import (
    ChannelRecord,
    Program,
    blocked_address,
    blocked_users,
    blocks,
    changed,
    mapping,
)
from gateway.queue_manager.store.unit import StoreUnit

STATE = b"channel-authentication"
LOCAL_ADDRESS = "127.0.0.1"
"""Where programs come from: through a socket of this machine, whatever they say about it."""
REFUSALS = {
    "exists": (3337, "AMQ8882E: A matching channel authentication record already exists."),
    "absent": (3338, "AMQ8884E: Channel authentication record not found."),
    "many": (3344, "AMQ8880E: A list has at most 100 users or addresses."),
}
_ENABLED = 1


class ChannelAuthority:
    """The records of a queue manager. Its methods are called with the queue manager's lock held."""

    def __init__(self, core: Core, authority: Authority) -> None:
        self._core = core
        self._authority = authority
        self.records: list[ChannelRecord] = []
        kept = core.store.state().get(STATE)
        if kept is not None:
            self.records = [_restored(one) for one in json.loads(kept)]

    @property
    def enabled(self) -> bool:
        """Whether CHLAUTH of the queue manager is ENABLED."""
        return self._core.catalogue.queue_manager.number("CHLAUTH") == _ENABLED

    def set(self, action: str, given: ChannelRecord) -> None:
        """SET CHLAUTH."""
        given = given._replace(altered=self._core.timestamp())
        records = changed(self.records, action, given, lambda why: AdministrationError(*REFUSALS[why]))
        record = json.dumps([one._asdict() for one in records], separators=(",", ":")).encode()
        self._core.commit(StoreUnit(state={STATE: record}))
        self.records = records

    # Connecting

    def connect(self, channel: str, user: str, password: str | None) -> str:
        """Returns the user that a program which connects through a channel runs as. Raises 2035 if it is refused."""
        program = Program(channel, LOCAL_ADDRESS, user)
        if not self.enabled:
            admitted = self._authority.admit(user, password, through=True)
            return self._channels_own(channel, admitted, password)
        self._check_address(program)
        found = mapping(self.records, program)
        if found is not None and found.user_source == "NOACCESS" and not found.warn:
            raise refused(f"channel {channel} is closed to user {user!r}", found)
        check = "ASQMGR" if found is None else found.check
        admitted = self._authority.admit(user, password, through=True, required=self._required(check, user))
        if found is not None and found.user_source == "MAP" and found.user:
            admitted = found.user
        else:
            admitted = self._channels_own(channel, admitted, password)
        listed = blocked_users(self.records, channel)
        if listed is not None and not listed.warn and self._blocks(listed, admitted):
            raise refused(f"user {admitted!r} is blocked on channel {channel}", listed)
        return admitted

    def _check_address(self, program: Program) -> None:
        listed = blocked_address(self.records, program.address)
        if listed is not None and not listed.warn:
            raise refused(f"address {program.address} is blocked", listed)

    def _required(self, check: str, user: str) -> bool:
        """Whether a record requires a password; only where passwords are checked at all."""
        return check == "REQUIRED" or (check == "REQDADM" and self._authority.administers(user))

    def _channels_own(self, channel: str, user: str, password: str | None) -> str:
        """Returns MCAUSER of the channel if it has one and the program has not proved who it is; otherwise `user`."""
        definition = self._core.catalogue.get("CHANNEL", channel)
        own = "" if definition is None else definition.text("MCAUSER")
        return own if own and password is None else user

    def _blocks(self, listed: ChannelRecord, user: str) -> bool:
        return blocks(listed, user, privileged=self._authority.is_privileged(user))

    def checked(self, program: Program) -> list[ChannelRecord]:
        """For DISPLAY CHLAUTH MATCH(RUNCHECK): returns the record that would decide about a program: the one that
        refuses it, otherwise the one that maps it."""
        listed = blocked_address(self.records, program.address)
        if listed is not None and not listed.warn:
            return [listed]
        found = mapping(self.records, program)
        if found is not None and found.user_source == "NOACCESS" and not found.warn:
            return [found]
        user = found.user if found is not None and found.user_source == "MAP" and found.user else program.user
        listed = blocked_users(self.records, program.channel)
        if listed is not None and not listed.warn and self._blocks(listed, user):
            return [listed]
        return [] if found is None else [found]


def refused(what: str, record: ChannelRecord) -> MQError:
    """Returns 2035, naming the record that refuses."""
    text = f"{what} by the record CHLAUTH('{record.channel}') TYPE({record.type})"
    return MQError(mq.MQRC_NOT_AUTHORIZED, text)


def _restored(kept: dict[str, Any]) -> ChannelRecord:
    return ChannelRecord(**{**kept, "users": tuple(kept["users"]), "addresses": tuple(kept["addresses"])})
