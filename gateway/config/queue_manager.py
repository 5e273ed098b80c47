"""The settings of the queue manager: the embedded one, IBM MQ, and the buffer in front of that.

A part of the field list in `gateway.config.model`. Opens no file and knows no environment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field, SecretStr, model_validator

from gateway.config.findings import Part, contradictions
from gateway.config.security import Password
from gateway.config.units import Duration, Positive, Size, Wrong, show_size


def _queue_manager_name(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9./_%]{1,48}", value):
        raise Wrong(f"`{value}` is not a queue manager name", "write 1 to 48 of A-Z a-z 0-9 . / _ %")
    return value


QueueManagerName = Annotated[str, AfterValidator(_queue_manager_name)]


SOCKET = "unix:"
"""How the connection begins if it is the MQI socket of an embedded queue manager."""


def _connection_names(value: str) -> str:
    for one in [] if value.startswith(SOCKET) else value.split(","):
        if colon := re.fullmatch(r"\s*([^:()\s]+):(\d{1,5})\s*", one):
            raise Wrong(f"`{one.strip()}` is a host of this name to IBM MQ", f"write {colon[1]}({colon[2]})")
    return value


Connection = Annotated[str, AfterValidator(_connection_names)]
"""CONNAME of a channel."""


class Embedded(Part):
    """The queue manager inside the gateway."""

    other_names: ClassVar[dict[str, str]] = {"data": "path"}

    name: QueueManagerName = Field(default="MQGATE", description="Queue manager name.")
    path: str = Field(
        default="./mqgate-data",
        description="Directory of its journal. Unless it is written, mqgate-data in the working directory; what is "
        "written here is relative to this file.",
    )
    objects: str | None = Field(default=None, description="MQSC file, run at start.")
    socket: str | None = Field(
        default=None, description="Unix socket for programs that use the MQI library; `PATH/mqi.sock` unless given."
    )
    users: dict[str, Password] = Field(default={}, description="Users of programs that come through the MQI library.")
    administrators: list[str] = Field(default=[], description="Users that need no authority records (`SET AUTHREC`).")
    check_client: Literal["none", "optional", "required"] | None = Field(
        default=None,
        description="Whether those programs must give user and password. Without it what MQSC has said (CHCKCLNT), "
        "`optional` in a new queue manager.",
    )
    segment_bytes: Size | None = Field(
        default=None,
        ge=2**20,
        description="Size of a journal segment; five are on disk from the start. Without it a thirty-second of "
        "the room there is, from 1MiB to 64MiB.",
    )
    max_bytes: Size | None = Field(
        default=None,
        description="Limit of the journal, at least six segments; beyond it nothing persistent is taken. Without it "
        "the disk is the limit.",
    )
    max_uncommitted: Positive | None = Field(
        default=None,
        description="Messages in one unit of work (MAXUMSGS). Without it what MQSC has said, 10000 in a new queue "
        "manager.",
    )

    @contradictions
    def _short(self) -> Iterator[Wrong]:
        size = self.segment_bytes or 2**20
        if self.max_bytes is not None and self.max_bytes < 6 * size:
            what = f"`max_bytes` leaves no room for six segments of {show_size(size)}"
            fix = f"give at least {show_size(6 * size)}"
            fix = fix if self.segment_bytes is None else f"{fix}, or smaller `segment_bytes`"
            yield Wrong(what, fix, ("max_bytes",))


class IbmTls(Part):
    """TLS towards IBM MQ."""

    cipher: str = Field(default="ANY_TLS12_OR_HIGHER", max_length=32, description="CipherSpec.")
    key_repository: str | None = Field(
        default=None, max_length=256, description="Key repository (without .kdb for a kdb)."
    )
    certificate_label: str | None = Field(
        default=None, max_length=64, description="Label of the gateway's certificate."
    )
    peer_name: str | None = Field(
        default=None, max_length=1024, description="Distinguished name that the queue manager must have."
    )


Channel = Annotated[
    str | None, Field(max_length=20, description="Server-connection channel; an MQI socket needs none.")
]
TokenFile = Annotated[
    str | None,
    Field(
        description="File with a JSON Web Token that the queue manager accepts (`AuthToken` in its `qm.ini`), instead "
        "of user and password. Read at each connect: what renews it replaces the file. Needs the driver `ibmmq`.",
    ),
]


class Ibm(Part):
    """A queue manager of IBM MQ, over a client channel."""

    name: str = Field(default="", max_length=48, description="Queue manager name; empty takes the one that answers.")
    connection: Connection | None = Field(
        default=None,
        max_length=264,
        description="`host(port)`, several separated by commas; `unix:PATH` is the MQI socket of an embedded queue "
        "manager on this machine (`mqgate mqi serve`).",
    )
    channel: Channel = None
    ccdt: str | None = Field(default=None, description="Client channel definition table, instead of the two above.")
    user: str | None = Field(default=None, max_length=1024, description="User.")
    password_file: str | None = Field(default=None, description="File whose first line is the password.")
    password: SecretStr | None = Field(default=None, description="From the environment only.")
    token_file: TokenFile = None
    driver: Literal["auto", "ibmmq", "pymqi"] = Field(default="auto", description="Python binding to use.")
    tls: IbmTls | None = Field(default=None, description="TLS.")
    connections: Annotated[int, Field(ge=1, le=64)] = Field(default=4, description="Connections (one thread each).")
    reconnect_from: Duration = Field(default=1.0, description="First wait before connecting again.")
    reconnect_to: Duration = Field(default=30.0, description="Longest wait.")
    lease: Annotated[Duration, Field(ge=1)] = Field(
        default=10.0,
        description="When a gateway on the same queue manager has not renewed its lease for this long, the others "
        "take over its sessions. Leases are renewed three times as often.",
    )

    @property
    def socket(self) -> str:
        """The MQI socket of an embedded queue manager that `connection` names; empty: it names hosts of IBM MQ."""
        connection = self.connection or ""
        return connection.removeprefix(SOCKET) if connection.startswith(SOCKET) else ""

    @contradictions
    def _unfit(self) -> Iterator[Wrong]:
        yield from _two_identities(self)
        if self.token_file is not None and self.driver == "pymqi":
            yield Wrong("pymqi cannot send a token", "write `driver: ibmmq`, or give user and password")
        if (self.connection or "").startswith(SOCKET):
            if not self.socket:
                yield Wrong(f"`{SOCKET}` names no socket", f"write its path, as in {SOCKET}/run/mqgate/mqi.sock")
            if self.tls is not None or self.ccdt is not None:
                yield Wrong("an MQI socket has neither TLS nor a CCDT", "remove `tls` and `ccdt`")
        elif self.ccdt is None and (self.connection is None or self.channel is None):
            yield Wrong("nothing says how to reach the queue manager", "give `connection` and `channel`, or `ccdt`")


class Target(Part):
    """A queue manager of IBM MQ besides that of the state, to which rules put directly."""

    connection: Connection = Field(
        max_length=264,
        description="`host(port)`, several separated by commas; `unix:PATH` is the MQI socket of an embedded queue "
        "manager on this machine.",
    )
    channel: Channel = None
    user: str | None = Field(default=None, max_length=1024, description="User.")
    password_file: str | None = Field(default=None, description="File whose first line is the password.")
    password: SecretStr | None = Field(default=None, description="From the environment only.")
    token_file: TokenFile = None
    tls: IbmTls | None = Field(default=None, description="TLS.")
    reconnect_from: Duration = Field(default=1.0, description="First wait before connecting again.")
    reconnect_to: Duration = Field(default=30.0, description="Longest wait.")

    @contradictions
    def _unfit(self) -> Iterator[Wrong]:
        yield from _two_identities(self)
        local = self.connection.startswith(SOCKET)
        if local and self.tls is not None:
            yield Wrong("an MQI socket has no TLS", "remove `tls`")
        if not local and self.channel is None:
            yield Wrong("nothing says which channel to use", "give `channel`")

    def as_ibm(self, name: str) -> Ibm:
        """The same as the settings of a queue manager with this name."""
        return Ibm(
            name=name, connection=self.connection, channel=self.channel, user=self.user, tls=self.tls,
            password_file=self.password_file, password=self.password, token_file=self.token_file,
        )  # fmt: skip


def _two_identities(given: Ibm | Target) -> Iterator[Wrong]:
    if given.token_file is not None and (given.user or given.password_file or given.password):
        yield Wrong("a token and a user or password are given", "the token says who the gateway is: remove the others")


class Buffer(Part):
    """Store and forward while IBM MQ is away."""

    path: str = Field(
        default="./mqgate-buffer",
        description="Directory; it holds the gateway's state too. Unless it is written, mqgate-buffer in the working "
        "directory; what is written here is relative to this file.",
    )
    max_bytes: Size = Field(
        default=2**30, ge=2**14, description="Limit of what waits for IBM MQ; beyond it acknowledgements are withheld."
    )


class QueueManager(Part):
    """Which queue manager the gateway works with: `embedded` (the default) or `ibm`."""

    embedded: Embedded | None = Field(default=None, description="The queue manager inside the gateway.")
    ibm: Ibm | None = Field(default=None, description="A queue manager of IBM MQ.")
    buffer: Buffer | None = Field(default=None, description="Store and forward; only with `ibm`.")

    @model_validator(mode="before")
    @classmethod
    def _default(cls, value: object) -> object:
        if isinstance(value, dict) and value.get("ibm") is None and value.get("embedded") is None:
            return {**value, "embedded": {}}
        return value

    @contradictions
    def _unfit(self) -> Iterator[Wrong]:
        if self.ibm is not None and self.embedded is not None:
            yield Wrong("a gateway works with one queue manager", "keep either `embedded` or `ibm`")
        if self.buffer is not None and self.ibm is None:
            yield Wrong("`buffer` is for `ibm`: the embedded queue manager is never away", "remove it")
