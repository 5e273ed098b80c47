"""The two Python bindings of IBM MQ behind one set of raw calls: `ibmmq` and `pymqi`, imported only when asked for.

Connecting uses a binding's own classes (it happens rarely, and they know TLS, CCDT and pointers). Everything else goes
to the extension's functions with packed structures, at a thirtieth of the cost. The extensions write into the bytes
they are given: every MQMD, MQPMO and MQGMO handed over here must be a new object.
"""

from __future__ import annotations

import ctypes
import importlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from gateway.errors import DriverUnavailable, MQError
from gateway.mq import constants as mq
from gateway.mq.reason_policy import Action, action_for

_BOTH_MISSING = """\
no IBM MQ client library can be loaded:
{reasons}
The bindings need IBM's client library libmqm_r.so. Install the IBM MQ redistributable client (or a full MQ client),
then put its lib64 directory in LD_LIBRARY_PATH before the gateway starts; `pip install ibmmq` brings the
binding.
For a connection `unix:PATH` (`mqgate mqi serve`) the binding is enough: the library is mqgate's own.
To try without IBM MQ use the embedded queue manager."""
_NO_TOKENS = """\
`token_file`: {name} cannot send a token. It takes ibmmq with the client library of IBM MQ 9.3.4 or later
(MQCSP version 3); pymqi cannot. Install that, write `driver: ibmmq`, or give `user` and `password_file`."""
_LONGEST_TOKEN = 8192


@dataclass(frozen=True, slots=True)
class ConnectSettings:
    """How to reach a queue manager; the texts are as in the settings file."""

    name: str = ""
    connection: str = ""
    channel: str = ""
    user: str = ""
    password: str = ""
    token_file: str = ""
    """File with a JSON Web Token, instead of user and password."""
    ccdt: str = ""
    cipher: str = ""
    key_repository: str = ""
    certificate_label: str = ""
    peer_name: str = ""
    application: str = "mqgate"
    max_message_length: int = 104_857_600


class Call(Protocol):
    """A function of an extension: packed structures in, a tuple out that ends with completion code and reason."""

    def __call__(self, *arguments: Any) -> Sequence[Any]:
        """Call it."""


class Session:
    """One connection handle with the raw calls. Usable from any thread, one call at a time."""

    def __init__(self, driver: Driver, owner: Any) -> None:
        self._owner = owner  # the binding's QueueManager; kept because its deletion disconnects
        self._driver = driver
        extension = driver.extension
        self.handle: int = owner.get_handle()
        self.mqput: Call = extension.MQPUT
        self.mqget: Call = extension.MQGET
        self._open: Call = extension.MQOPEN
        self._close: Call = extension.MQCLOSE
        self._commit: Call = extension.MQCMIT
        self._back: Call = extension.MQBACK

    def open(self, descriptor: bytes, options: int) -> int:
        """MQOPEN; returns the object handle."""
        answer = self._open(self.handle, descriptor, options)
        _check(answer, "MQOPEN")
        return int(answer[0])

    def open_named(self, descriptor: bytes, options: int) -> tuple[int, bytes]:
        """MQOPEN; returns the object handle, and the descriptor with the names that the queue manager has given."""
        answer = self._open(self.handle, descriptor, options)
        _check(answer, "MQOPEN")
        return int(answer[0]), bytes(answer[1])

    def close(self, handle: int) -> None:
        """MQCLOSE."""
        _check(self._close(self.handle, handle, mq.MQCO_NONE), "MQCLOSE")

    def commit(self) -> None:
        """MQCMIT."""
        _check(self._commit(self.handle), "MQCMIT")

    def back(self) -> None:
        """MQBACK."""
        _check(self._back(self.handle), "MQBACK")

    def asynchronous_failures(self) -> int:
        """MQSTAT: returns how many asynchronous puts have failed since it was last asked. Needs a binding that has the
        call."""
        return self.asynchronous_status()[0]

    def asynchronous_status(self) -> tuple[int, int, str]:
        """Returns the same, with the reason of the first failure and the queue it was for."""
        try:
            found = self._owner.stat(mq.MQSTAT_TYPE_ASYNC_ERROR)
        except self._driver.error as error:
            raise MQError(error.reason, "MQSTAT", error.comp) from None
        return int(found.PutFailureCount), int(found.Reason), bytes(found.ObjectName).decode("latin-1").rstrip(" \0")

    def inquire(self, queue: str, selector: int) -> int | str:
        """Returns one attribute of a queue, or of the queue manager if `queue` is empty."""
        module = self._driver.module
        try:
            if not queue:
                value = self._owner.inquire(selector)
            else:
                opened = module.Queue(self._owner, queue, mq.MQOO_INQUIRE | mq.MQOO_FAIL_IF_QUIESCING)
                try:
                    value = opened.inquire(selector)
                finally:
                    opened.close()
        except self._driver.error as error:
            raise MQError(error.reason, f"MQINQ of {queue or 'the queue manager'}", error.comp) from None
        return value.decode().rstrip(" \0") if isinstance(value, bytes) else int(value)

    def subscribe(self, name: str, topic: str, queue: int, correl_id: bytes, *, how: int) -> int:
        """MQSUB of a durable subscription that puts to an open queue; returns its handle. `how`: create or resume."""
        descriptor = self._driver.module.SD()
        descriptor["Options"] = how | mq.MQSO_DURABLE | mq.MQSO_FAIL_IF_QUIESCING | mq.MQSO_SET_CORREL_ID
        descriptor.set_vs("SubName", name.encode())
        if topic:
            descriptor.set_vs("ObjectString", topic.encode())
        descriptor["SubCorrelId"] = correl_id
        answer = self._driver.extension.MQSUB(self.handle, descriptor.pack(), queue)
        _check(answer, "MQSUB")
        return int(answer[2])

    def unsubscribe(self, handle: int, *, remove: bool) -> None:
        """MQCLOSE of a subscription; a durable one stays unless `remove`."""
        how = mq.MQCO_REMOVE_SUB if remove else mq.MQCO_KEEP_SUB
        _check(self._close(self.handle, handle, how), "MQCLOSE")

    def leave(self) -> None:
        """Back out what is open, and disconnect, because MQDISC would commit it. If MQBACK fails although the
        connection works, only the end of the process without MQDISC is known to have it backed out."""
        try:
            self.back()
        except MQError as error:
            if action_for(error.reason) is not Action.RECONNECT:
                self._driver.left_open.append(self)  # kept: deleting it would disconnect
                self._driver.on_left_open(
                    f"MQBACK failed with reason {error.reason} and MQDISC would commit half a unit"
                )
                return
        self.disconnect()

    def disconnect(self) -> None:
        """MQDISC; a connection that is broken already is only dropped."""
        try:
            self._owner.disconnect()
        except (self._driver.error, self._driver.usage_error):
            return


def _check(answer: Sequence[Any], call: str) -> None:
    if answer[-2] == mq.MQCC_FAILED:
        raise MQError(int(answer[-1]), call)


class Driver:
    """A binding that could be loaded."""

    def __init__(self, name: str, module: ModuleType, extension: ModuleType, can_status: bool) -> None:
        self.name = name
        self.module: Any = module
        self.extension: Any = extension
        self.can_status = can_status
        """Whether there is MQSTAT: without it the failure of a non-persistent asynchronous put could go unnoticed."""
        self._peer_name: Any = None
        self.left_open: list[Session] = []
        self.on_left_open: Callable[[str], None] = lambda _text: None
        """A unit of work is open that cannot be backed out: the process has to end. Called in any thread."""
        self.error: Any = module.MQMIError
        self.usage_error: Any = module.PYIFError

    def noting(self, heard: Callable[[], None]) -> Driver:
        """Returns the same binding; `heard` is called whenever a call has returned, in its thread."""
        noted: Any = _Noted(self.extension, heard)
        driver = Driver(self.name, self.module, noted, self.can_status)
        driver.left_open = self.left_open
        driver.on_left_open = self._end
        return driver

    def _end(self, text: str) -> None:
        self.on_left_open(text)

    def check(self, settings: ConnectSettings) -> None:
        """Raise DriverUnavailable if this binding cannot do what is required of it."""
        if settings.token_file and not hasattr(getattr(self.module, "CSP", None) and self.module.CSP(), "Token"):
            raise DriverUnavailable(_NO_TOKENS.format(name=self.name))

    def connect(self, settings: ConnectSettings) -> Session:
        """MQCONNX with a shared handle. Raises MQError with the reason."""
        self.check(settings)
        owner = self.module.QueueManager(None)
        arguments: dict[str, Any] = {"opts": mq.MQCNO_HANDLE_SHARE_BLOCK | mq.MQCNO_RECONNECT_DISABLED}
        if settings.user:
            arguments |= {"user": settings.user.encode(), "password": settings.password.encode()}  # ibmmq: str is ASCII
        elif settings.token_file:
            arguments["token"] = _token(settings.token_file)
        if settings.ccdt:
            os.environ["MQCCDTURL"] = settings.ccdt  # the only way that works with both bindings and every client level
        else:
            arguments["cd"] = self._channel(settings)
        if settings.key_repository or settings.certificate_label:
            arguments["sco"] = self._tls(settings)
        try:
            owner.connect_with_options(settings.name, **arguments)
        except self.error as error:
            where = settings.connection or settings.ccdt
            raise MQError(error.reason, f"connecting to {settings.name or 'the queue manager'} at {where}") from None
        return Session(self, owner)

    def _channel(self, settings: ConnectSettings) -> Any:
        channel = self.module.CD()
        channel.ChannelName = settings.channel.encode()
        channel.ConnectionName = settings.connection.encode()
        channel.ChannelType = 6  # client connection
        channel.TransportType = 2  # TCP
        channel.MaxMsgLength = settings.max_message_length
        if settings.cipher:
            channel.SSLCipherSpec = settings.cipher.encode()
        if settings.peer_name:
            self._name_peer(channel, settings.peer_name.encode())
        return channel

    def _name_peer(self, channel: Any, name: bytes) -> None:
        """Set the distinguished name that the queue manager must show. ibmmq makes the pointer itself, pymqi does
        not."""
        if self.name == "ibmmq":
            channel.SSLPeerNamePtr = name
            return
        self._peer_name = ctypes.create_string_buffer(name)  # kept: the call reads it by its address
        channel.SSLPeerNamePtr = ctypes.addressof(self._peer_name)
        channel.SSLPeerNameLength = len(name)

    def _tls(self, settings: ConnectSettings) -> Any:
        options = self.module.SCO()
        if settings.key_repository:
            options.KeyRepository = settings.key_repository.encode()
        if settings.certificate_label:
            options.CertificateLabel = settings.certificate_label.encode()
        return options


def _token(name: str) -> bytes:
    """Returns the token in a file as it is now. Raises MQError if there is none yet."""
    try:
        token = Path(name).read_bytes().strip()
    except OSError as error:
        raise MQError(mq.MQRC_NOT_AUTHORIZED, f"the token file cannot be read: {error}") from None
    if not token or len(token) > _LONGEST_TOKEN:
        what = f"has {len(token)} bytes" if token else "is empty"
        raise MQError(mq.MQRC_NOT_AUTHORIZED, f"the token file {name} {what}: a token has 1 to {_LONGEST_TOKEN}")
    return token


class _Noted:
    """An extension whose calls are noted when they return, whatever they answer."""

    def __init__(self, extension: ModuleType, heard: Callable[[], None]) -> None:
        self._extension = extension
        self._heard = heard

    def __getattr__(self, name: str) -> Call:
        call = getattr(self._extension, name)

        def noted(*arguments: Any) -> Sequence[Any]:
            answer: Sequence[Any] = call(*arguments)
            self._heard()
            return answer

        return noted


def _load_ibmmq() -> Driver:
    return Driver("ibmmq", importlib.import_module("ibmmq"), importlib.import_module("ibmmq.ibmmqc"), can_status=True)


def _load_pymqi() -> Driver:
    return Driver("pymqi", importlib.import_module("pymqi"), importlib.import_module("pymqi.pymqe"), can_status=False)


_LOADERS: dict[str, Callable[[], Driver]] = {"ibmmq": _load_ibmmq, "pymqi": _load_pymqi}


def load(wanted: str = "auto") -> Driver:
    """Returns the binding asked for, or with `auto` the first of ibmmq and pymqi that loads. Raises DriverUnavailable,
    which says why none does."""
    names = list(_LOADERS) if wanted == "auto" else [wanted]
    reasons = []
    for name in names:
        try:
            return _LOADERS[name]()
        except ImportError as error:
            reasons.append(f"  {name}: {_why(error)}")
    raise DriverUnavailable(_BOTH_MISSING.format(reasons="\n".join(reasons)))


def _why(error: ImportError) -> str:
    """Returns why a binding cannot be imported. ibmmq hides the loader's message behind «No module named 'ibmmqc'»."""
    text = str(error)
    if "ibmmqc" in text:
        return "installed, but libmqm_r.so was not found by the loader (LD_LIBRARY_PATH is read at process start)"
    if isinstance(error, ModuleNotFoundError):
        return "not installed"
    return text
