"""The command server: carries out the PCF commands on SYSTEM.ADMIN.COMMAND.QUEUE and answers them.

Each object gets one reply, and the last reply has Control MQCFC_LAST. An error is one reply with CompCode 2 and the
reason. See section 5 of the MQI reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial

from gateway.errors import HeaderError, MQError, StoreCorrupt
from gateway.mq import constants as mq
from gateway.mq import pcf
from gateway.ports.mqi import GetOptions, Got, ObjectDescriptor, PutOptions
from gateway.ports.state_queues import COMMANDS
from gateway.queue_manager.commands import channel_commands, pcf_status
from gateway.queue_manager.commands import pcf_objects as objects
from gateway.queue_manager.commands.display_rows import queue_status
from gateway.queue_manager.commands.mqsc_report import MqscReport
from gateway.queue_manager.commands.pcf_objects import Answer, Handler, Reply, number_of, refuse, text_of
from gateway.queue_manager.commands.pcf_status import KIND_OF_MQOT, MQAT_USER, RIGHT_OF_MQAUTH
from gateway.queue_manager.descriptor import Descriptor, default_descriptor, text
from gateway.queue_manager.objects.administration import no_status, not_found
from gateway.queue_manager.objects.authority import OWN_USER
from gateway.queue_manager.objects.channel_authority import ChannelAuthority
from gateway.queue_manager.objects.placement import Lost
from gateway.queue_manager.store.unit import StoreUnit
from gateway.queue_manager.verbs.connection import MqiConnection
from gateway.queue_manager.verbs.connection_state import ConnectionState
from gateway.queue_manager.verbs.search import message_token

TURN_SECONDS, PAUSE_SECONDS = 0.01, 0.005
"""How long commands are carried out at a time, and how long others then have their turn."""
RETRY_SECONDS = 5.0
"""How long to wait before a command is carried out again whose outcome could not be stored."""
LONGEST = 100 << 20
"""The most bytes of a command that are read, whatever MAXMSGL says."""
INQUIRE_CHLAUTH_RECS = 204
MQRCCF_CFH_TYPE_ERROR, MQRCCF_CFH_LENGTH_ERROR = 3001, 3002
MQRCCF_CFH_VERSION_ERROR, MQRCCF_CFH_MSG_SEQ_NUMBER_ERR, MQRCCF_CFH_CONTROL_ERROR = 3003, 3004, 3005
MQRCCF_MD_FORMAT_ERROR = 3023
MQRCCF_CFIN_DUPLICATE_PARM, MQRCCF_CFST_DUPLICATE_PARM = 3017, 3018
MQRCCF_ENTITY_NAME_MISSING, MQRCCF_AUTH_VALUE_ERROR, MQRCCF_AUTH_VALUE_MISSING = 3169, 3171, 3172
MQIACF_Q_HANDLE, MQIACF_CONN_INFO_HANDLE = 1104, 1112
STATUS_TEXTS = {"LPUTDATE": 3128, "LPUTTIME": 3129, "LGETDATE": 3130, "LGETTIME": 3131}
STATUS_NUMBERS = {
    "CURDEPTH": mq.MQIA_CURRENT_Q_DEPTH, "IPPROCS": mq.MQIA_OPEN_INPUT_COUNT, "OPPROCS": mq.MQIA_OPEN_OUTPUT_COUNT,
    "MSGAGE": 1227, "UNCOM": 1027,
}  # fmt: skip
_CHANGING = {38, 78, mq.MQCMD_SET_AUTH_REC, mq.MQCMD_SET_CHLAUTH_REC, mq.MQCMD_CHANGE_Q_MGR}
"""Commands that need CHG on the queue manager; MQSC in an Escape (38) may be any of them."""
_DISPLAYING = {
    161, mq.MQCMD_INQUIRE_Q_MGR, mq.MQCMD_INQUIRE_CONNECTION, INQUIRE_CHLAUTH_RECS, *pcf_status.OF_THE_QUEUE_MANAGER
}  # fmt: skip
"""Commands that need DSP on the queue manager."""


def _check(message: pcf.Message) -> None:
    """Refuse a header that does not belong to one whole command, and a parameter that is given twice."""
    if not 1 <= message.version <= 3:
        raise refuse(MQRCCF_CFH_VERSION_ERROR, f"MQCFH.Version {message.version} is not 1, 2 or 3")
    if message.msg_seq_number != 1:
        raise refuse(MQRCCF_CFH_MSG_SEQ_NUMBER_ERR, "a command is one message: MsgSeqNumber is 1")
    if message.control != mq.MQCFC_LAST:
        raise refuse(MQRCCF_CFH_CONTROL_ERROR, "a command is one message: Control is MQCFC_LAST")
    seen: set[tuple[int, int]] = set()
    for parameter in message.parameters:
        if (parameter.type, parameter.parameter) in seen and parameter.type in {pcf.INTEGER, pcf.STRING}:
            number = parameter.type == pcf.INTEGER
            reason = MQRCCF_CFIN_DUPLICATE_PARM if number else MQRCCF_CFST_DUPLICATE_PARM
            raise refuse(reason, f"parameter {parameter.parameter} is given twice")
        seen.add((parameter.type, parameter.parameter))


class CommandServer:
    """Reads commands and answers them through a connection of its own."""

    def __init__(
        self,
        connection: MqiConnection,
        mqsc_steps: Callable[[str, MqscReport], Iterable[None]],
        channels: ChannelAuthority,
    ) -> None:
        self._connection = connection
        self._channels = channels
        self._state = connection.state
        self._mqsc_steps = mqsc_steps
        self._work: Iterator[float] | None = None
        """The remaining steps of the commands that are being carried out."""
        self._started = connection.state.core.now()
        self._handle = connection.open(ObjectDescriptor(COMMANDS), mq.MQOO_INPUT_SHARED).handle
        connection.state.core.queues[COMMANDS].served = self._serve
        self._serve()

    def _serve(self) -> None:
        """Carry out every command on the queue. Each is got under syncpoint and committed when it has been answered. If
        the disk refuses the commit, the command is back on the queue, and is tried again only after RETRY_SECONDS."""
        core = self._state.core
        with core.entered():
            if self._work is None and not core.closed:
                self._work = self._steps()
                self._go_on()

    def _go_on(self) -> None:
        """Work for some milliseconds at a time: a queue that is cleared may have millions of messages."""
        core = self._state.core
        with core.entered():
            until = core.scheduler.monotonic() + TURN_SECONDS
            while self._work is not None and not core.closed:
                wait: float | None = None
                try:
                    wait = next(self._work, None)
                finally:
                    if wait is None:
                        self._work = None
                if wait is not None and (wait or core.scheduler.monotonic() >= until):
                    core.scheduler.later(wait or PAUSE_SECONDS, self._go_on)
                    return

    def _steps(self) -> Iterator[float]:
        """Yields how many seconds the next step has to wait."""
        while (got := self._next()) is not None:
            for _ in self._answer(got):
                yield 0.0
            try:
                self._connection.commit()
            except MQError:  # the store cannot be written
                yield RETRY_SECONDS
            else:
                yield 0.0

    def _next(self) -> Got | None:
        try:
            return self._get()
        except MQError:
            return None
        except StoreCorrupt:
            return self._around_damage()

    def _get(self, token: int | None = None) -> Got:
        """Get the next command, or the one with this token."""
        options = GetOptions(mq.MQGMO_SYNCPOINT | mq.MQGMO_ACCEPT_TRUNCATED_MSG | mq.MQGMO_NO_PROPERTIES, match=0)
        if token is not None:
            options.match, options.message_token = mq.MQMO_MATCH_MSG_TOKEN, message_token(token)
        return self._connection.get(self._handle, default_descriptor(), options, LONGEST)

    def _around_damage(self) -> Got | None:
        """Get the next command that can be read. One that cannot be read stays where it is and is logged."""
        after = None
        while found := self._state.core.damage.fetch(COMMANDS, b"", 1, after):
            after = found[-1].token
            with suppress(MQError):  # in a unit of work, or expired
                return self._get(after)
        return None

    def _answer(self, got: Got) -> Iterator[None]:
        request = Descriptor(got.md)
        command, version, replies, comp_code, reason = 0, 1, [], 0, 0  # type: int, int, list[Reply], int, int
        try:
            order = ">" if request.encoding & 15 == 1 else "<"
            if request.format != mq.MQFMT_ADMIN:
                raise refuse(MQRCCF_MD_FORMAT_ERROR, "the Format of a command is MQADMIN")
            message = pcf.parse(got.data, order=order)
            command, version = message.command, message.version
            if message.type not in {mq.MQCFT_COMMAND, mq.MQCFT_COMMAND_XR}:
                raise refuse(MQRCCF_CFH_TYPE_ERROR, "not a command")
            _check(message)
            for reply in self._run(message, text(request.user)):
                if reply is None:
                    yield
                else:
                    replies.append(reply)
        except MQError as error:
            comp_code, reason = mq.MQCC_FAILED, error.reason
        except HeaderError as error:
            few = error.field == "ParameterCount"
            comp_code, reason = mq.MQCC_FAILED, mq.MQRCCF_PARM_COUNT_TOO_SMALL if few else MQRCCF_CFH_LENGTH_ERROR
        finally:
            self._state.user = OWN_USER
        if text(request.reply_to_q):
            self._reply(request, command, version, replies or [[]], comp_code, reason)
        elif reason:  # nobody can be told
            self._give_up(got.md, got.data, reason, COMMANDS, self._state.core.name)

    def _run(self, message: pcf.Message, user: str) -> Answer:
        """Carry out a command with the authority of the user who sent it, and return its replies."""
        connection = self._state
        connection.user = user
        if message.command in _DISPLAYING:
            connection.authorise("QMGR", connection.core.name, "DSP")
        handler = _COMMANDS.get(message.command)
        if handler is None:
            commands: dict[int, Callable[[pcf.Message], Answer]] = {
                mq.MQCMD_PING_Q_MGR: self._ping, 161: self._queue_manager_status,
                mq.MQCMD_INQUIRE_CONNECTION: self._connections, 38: self._escape,
                mq.MQCMD_SET_AUTH_REC: self._set_authority, 78: self._accept,
                mq.MQCMD_CHANGE_Q_MGR: self._change_queue_manager,
                mq.MQCMD_SET_CHLAUTH_REC: partial(channel_commands.set_record, self._channels),
                INQUIRE_CHLAUTH_RECS: partial(channel_commands.inquire, self._channels),
            }  # fmt: skip
            own = commands.get(message.command)
            if own is None:
                raise refuse(mq.MQRCCF_CFH_COMMAND_ERROR, f"command {message.command} is not offered")
            if message.command in _CHANGING:
                connection.authorise("QMGR", connection.core.name, "CHG")
            return own(message)
        return handler(connection, message)

    def _reply(
        self, request: Descriptor, command: int, version: int, replies: list[Reply], comp_code: int, reason: int
    ) -> None:
        """Put replies outside the unit of work, in which the command itself is not committed yet."""
        to = ObjectDescriptor(text(request.reply_to_q), text(request.reply_to_qmgr))
        correl_id = request.correl_id if request.report & mq.MQRO_PASS_CORREL_ID else request.msg_id
        md = default_descriptor(
            type=mq.MQMT_REPLY, format=mq.MQFMT_ADMIN, correl_id=correl_id, persistence=request.persistence,
            priority=request.priority, **_passed_on(request),
        )  # fmt: skip
        for number, parameters in enumerate(replies, 1):
            message = pcf.Message(
                mq.MQCFT_RESPONSE, command, parameters, version, number, int(number == len(replies)), comp_code, reason
            )
            options, data = PutOptions(mq.MQPMO_NO_SYNCPOINT | mq.MQPMO_NEW_MSG_ID), pcf.build(message)
            try:
                self._connection.put1(to, md, options, data)
            except MQError as error:
                self._give_up(self._stamped(md), data, error.reason, to.name, to.queue_manager)

    def _stamped(self, md: bytes) -> bytes:
        """Returns the descriptor of a reply that MQPUT1 has not completed."""
        stamped = Descriptor(md)
        stamped.msg_id, stamped.ccsid = self._state.core.new_identifier(), self._state.core.attribute("CCSID")
        self._state.placer.stamp_as_queue_manager(stamped)
        return stamped.pack()

    def _give_up(self, md: bytes, data: bytes, reason: int, queue: str, queue_manager: str) -> None:
        """Put a command that cannot be answered, or its answer, on the dead-letter queue."""
        placer, unit = self._state.placer, StoreUnit()
        placer.give_up(md, data, reason, queue, queue_manager, unit)
        try:
            self._state.core.commit(unit)
        except MQError as error:
            placer.on_lost(Lost(md, queue, reason, str(error)))

    # Commands about the queue manager

    def _ping(self, _message: pcf.Message) -> Iterable[Reply]:
        return [[]]

    def _accept(self, _message: pcf.Message) -> Iterable[Reply]:
        """Carry out REFRESH SECURITY, which has nothing to read again."""
        return [[]]

    def _change_queue_manager(self, message: pcf.Message) -> Iterable[Reply]:
        given = objects.given_attributes(message, objects.QUEUES, "QMGR")
        self._state.administration.alter("QMGR", "", given)
        return [[]]

    def _queue_manager_status(self, _message: pcf.Message) -> Iterable[Reply]:
        core = self._state.core
        started = datetime.fromtimestamp(self._started, UTC)
        return [[
            pcf.string(mq.MQCA_Q_MGR_NAME, core.name, size=48), pcf.integer(1149, 3 if core.quiescing else 2),
            pcf.integer(1233, 2), pcf.integer(1230, len(self._state.connections)),
            pcf.string(3175, f"{started:%Y-%m-%d}", size=12), pcf.string(3176, f"{started:%H.%M.%S}", size=8),
        ]]  # fmt: skip

    def _connections(self, message: pcf.Message) -> Iterable[Reply]:
        wanted = b""
        given = message.find(mq.MQBACF_CONNECTION_ID)
        if given is not None and isinstance(given.value, bytes):
            wanted = given.value
        kind = number_of(message, mq.MQIACF_CONN_INFO_TYPE, mq.MQIACF_CONN_INFO_CONN)
        replies = []
        for one in self._state.connections:
            if wanted and one.connection_id != wanted.ljust(24, b"\0"):
                continue
            found = [] if kind == MQIACF_CONN_INFO_HANDLE else [_connection(one)]
            if kind != mq.MQIACF_CONN_INFO_CONN:
                found += pcf_status.open_objects(one)
            replies += objects.filtered(message, found)
        if not replies:
            raise refuse(3174, "no connection matches")
        return replies

    def _escape(self, message: pcf.Message) -> Answer:
        """Carry out ESCAPE: MQSC commands in PCF."""
        report = MqscReport()
        yield from self._mqsc_steps(text_of(message, 3014), report)
        answers = [line for line in report.lines if not line.startswith(" " * 5)]  # without the command itself
        yield from ([pcf.integer(1017, 1), pcf.string(3014, line)] for line in answers)

    def _set_authority(self, message: pcf.Message) -> Iterable[Reply]:
        profile = text_of(message, 3067)
        kind = KIND_OF_MQOT.get(number_of(message, 1016, 0))
        if kind is None:
            raise refuse(3173, "ObjectType is missing")
        entities = _texts(message, 3065) + _texts(message, 3066)
        if not entities:
            raise refuse(MQRCCF_ENTITY_NAME_MISSING, "PrincipalEntityNames or GroupEntityNames is required")
        if message.find(1116) is None and message.find(1117) is None:
            raise refuse(MQRCCF_AUTH_VALUE_MISSING, "AuthorityAdd or AuthorityRemove is required")
        add, remove = _rights(message, 1116), _rights(message, 1117)
        for entity in entities:
            self._state.authority.set_record(kind, profile, entity, add, remove)
        return [[]]


def _texts(message: pcf.Message, identifier: int) -> list[str]:
    found = message.find(identifier)
    if found is None:
        return []
    return found.texts() if isinstance(found.value, tuple) else [found.text()]


def _rights(message: pcf.Message, identifier: int) -> list[str]:
    found = message.find(identifier)
    values = found.value if found is not None and isinstance(found.value, tuple) else ()
    unknown = [value for value in values if value not in RIGHT_OF_MQAUTH]
    if unknown:
        raise refuse(MQRCCF_AUTH_VALUE_ERROR, f"authority {unknown[0]!r} is not known")
    return [RIGHT_OF_MQAUTH[value] for value in values if isinstance(value, int)]


def _passed_on(request: Descriptor) -> dict[str, int]:
    """Returns the fields that a reply takes over from its request by MQRO_PASS_DISCARD_AND_EXPIRY."""
    if not request.report & mq.MQRO_PASS_DISCARD_AND_EXPIRY:
        return {}
    return {"report": request.report & mq.MQRO_DISCARD_MSG, "expiry": request.expiry}


def _connection(one: ConnectionState) -> Reply:
    since = datetime.fromtimestamp(one.since, UTC)
    return [
        pcf.byte_string(mq.MQBACF_CONNECTION_ID, one.connection_id),
        pcf.integer(mq.MQIACF_CONN_INFO_TYPE, mq.MQIACF_CONN_INFO_CONN),
        pcf.integer(mq.MQIACF_PROCESS_ID, one.process),
        pcf.integer(mq.MQIA_APPL_TYPE, MQAT_USER),
        pcf.string(3058, one.application, size=28),
        pcf.string(3025, one.user, size=12),
        pcf.string(mq.MQCACH_CHANNEL_NAME, one.channel, size=20),
        pcf.string(mq.MQCACH_CONNECTION_NAME, one.connection_name, size=264),
        pcf.integer(1128, 1 if one.work.open else 0),
        pcf.integer(1132, 0),
        pcf.string(3132, f"{since:%Y-%m-%d}", size=12),
    ]


# Commands about queues


def _clear(connection: ConnectionState, message: pcf.Message) -> Answer:
    name = text_of(message, mq.MQCA_Q_NAME)
    connection.authorise("QUEUE", name, "CLR")
    yield from connection.administration.clear(name)
    yield []


def _queue_status(connection: ConnectionState, message: pcf.Message) -> Iterable[Reply]:
    replies: list[Reply] = []
    pattern = text_of(message, mq.MQCA_Q_NAME)
    if objects.number_of(message, 1103, 1105) == MQIACF_Q_HANDLE:
        return _of_queues(connection, message, pcf_status.queue_handles(connection, pattern))
    for definition in objects.displayed(connection, ("QLOCAL",), pattern):
        status = queue_status(connection.core, definition.name)
        reply = [pcf.string(mq.MQCA_Q_NAME, definition.name, size=48), pcf.integer(1103, 1105)]
        reply += [pcf.integer(number, int(status[word])) for word, number in STATUS_NUMBERS.items()]
        reply += [pcf.string(number, str(status[word]), size=12) for word, number in STATUS_TEXTS.items()]
        replies.append(reply)
    return _of_queues(connection, message, replies)


def _of_queues(connection: ConnectionState, message: pcf.Message, replies: Iterable[Reply]) -> list[Reply]:
    """Returns the replies that the filter accepts. Raises AdministrationError if there are none."""
    found = objects.filtered(message, replies)
    if not found:
        pattern = text_of(message, mq.MQCA_Q_NAME)
        raise no_status(pattern, exists=any(objects.displayed(connection, ("QLOCAL",), pattern)))
    return found


def _reset_statistics(connection: ConnectionState, message: pcf.Message) -> Iterable[Reply]:
    core = connection.core
    pattern = text_of(message, mq.MQCA_Q_NAME)
    replies: list[Reply] = []
    found = objects.displayed(connection, ("QLOCAL",), pattern)
    for definition in found:
        connection.authorise("QUEUE", definition.name, "CHG")
    for definition in found:
        queue = core.queues[definition.name]
        replies.append([
            pcf.string(mq.MQCA_Q_NAME, queue.name, size=48), pcf.integer(37, queue.puts), pcf.integer(38, queue.gets),
            pcf.integer(36, queue.high_depth), pcf.integer(35, int(core.now() - queue.since)),
        ])  # fmt: skip
        queue.puts = queue.gets = 0
        queue.high_depth, queue.since = core.depth(queue), core.now()
    if not replies:
        raise not_found("QLOCAL", pattern)
    return replies


def _inquire_queue_manager(connection: ConnectionState, message: pcf.Message) -> Iterable[Reply]:
    wanted = message.find(mq.MQIACF_Q_MGR_ATTRS)
    numbers = (
        [one for one in wanted.value if isinstance(one, int)] if wanted and isinstance(wanted.value, tuple) else []
    )
    name = pcf.string(mq.MQCA_Q_MGR_NAME, connection.core.name, size=48)
    attributes = objects.described(connection, connection.core.catalogue.queue_manager, numbers)
    return [[name, *(one for one in attributes if one.parameter != mq.MQCA_Q_MGR_NAME)]]


def _family(
    of: objects.ObjectType, change: int, copy: int, create: int, delete: int, inquire: int, names: int
) -> dict[int, Handler]:
    made = {
        change: objects.change(of), copy: objects.copy(of), create: objects.create(of), delete: objects.delete(of),
        inquire: objects.inquire(of), names: objects.names(of),
    }  # fmt: skip
    made.pop(0, None)
    return made


_COMMANDS: dict[int, Handler] = {
    mq.MQCMD_INQUIRE_Q_MGR: _inquire_queue_manager,
    mq.MQCMD_CLEAR_Q: _clear,
    mq.MQCMD_INQUIRE_Q_STATUS: _queue_status,
    mq.MQCMD_RESET_Q_STATS: _reset_statistics,
    **pcf_status.COMMANDS,
    **_family(objects.QUEUES, 8, 10, 11, 12, 13, 18),
    **_family(objects.NAMELISTS, 32, 33, 34, 35, 36, 37),
    **_family(objects.PROCESSES, 3, 4, 5, 6, 7, 19),
    **_family(objects.AUTHINFOS, 79, 80, 81, 82, 83, 84),
    **_family(objects.TOPICS, 170, 171, 172, 173, 174, 175),
    **_family(objects.SUBSCRIPTIONS, 178, 181, 177, 179, 176, 0),
    **_family(objects.CHANNELS, 21, 22, 23, 24, 25, 20),
}
