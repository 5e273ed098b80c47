"""The embedded queue manager: opened from a directory, used through the batch port and through MQI connections."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from gateway.errors import ConfigurationError, Finding, MQError, StoreCorrupt
from gateway.mq import constants as mq
from gateway.mq.transmitted_segments import HEADERS_LENGTH
from gateway.ports import state_queues
from gateway.ports.batch import Done, Scheduler, StorageFull, Stored, Token, Unit
from gateway.ports.inspection import DepthLimits
from gateway.ports.mqi import SubscriptionDescriptor
from gateway.ports.sources import Backout, Incomplete, Subscribed
from gateway.queue_manager.batch import message_pages, stored_messages
from gateway.queue_manager.batch.damage import Place
from gateway.queue_manager.batch.logical_messages import LogicalMessages, QueuePass, may_be_part
from gateway.queue_manager.batch.translation import Translator
from gateway.queue_manager.commands.channel_commands import ChannelCommands
from gateway.queue_manager.commands.command_server import CommandServer
from gateway.queue_manager.commands.mqsc import Mqsc
from gateway.queue_manager.commands.mqsc_parse import commands, parse
from gateway.queue_manager.commands.mqsc_report import MqscReport
from gateway.queue_manager.commands.mqsc_status import StatusCommands
from gateway.queue_manager.commands.objects_at_start import default_commands, defined_twice, exists_already
from gateway.queue_manager.core import Core
from gateway.queue_manager.journal import Store, StoreOptions
from gateway.queue_manager.objects.administration import Administration
from gateway.queue_manager.objects.attributes import BY_KEYWORD, QUEUE_KINDS, Value
from gateway.queue_manager.objects.authority import OWN_USER, Authority
from gateway.queue_manager.objects.catalogue import Definition, defaults
from gateway.queue_manager.objects.channel_authority import ChannelAuthority
from gateway.queue_manager.objects.expired_messages import Expirer
from gateway.queue_manager.objects.local_queue import BROKER, LocalQueue
from gateway.queue_manager.objects.name_resolution import Target, unresolved
from gateway.queue_manager.objects.placement import Placer
from gateway.queue_manager.objects.topics import Topics
from gateway.queue_manager.objects.triggers import Triggers
from gateway.queue_manager.store.memory import MemoryStore
from gateway.queue_manager.store.storage import MessageStore
from gateway.queue_manager.store.unit import Message
from gateway.queue_manager.verbs import mqdisc, mqsub
from gateway.queue_manager.verbs.connection import MqiConnection
from gateway.queue_manager.verbs.connection_state import Connections, ConnectionState

OBJECTS = "objects"
"""The name that findings give to a text of MQSC commands that came without a file."""
_OWN = frozenset({*state_queues.ALL, state_queues.DEAD_LETTERS, state_queues.DEFAULT})
"""The gateway's own queues."""
_STATE_ATTRIBUTES: dict[str, Value] = {
    "MAXDEPTH": 999_999_999,
    "MAXMSGL": 104_857_600,
    "DEFPSIST": 1,
    "DESCR": "State of the gateway",
}
SECONDS_BETWEEN_PIECES = 0.01
"""Pause between the pieces in which files of the journal are made again; devices are served meanwhile."""
DAMAGE_PAUSE = 0.1
"""Seconds until more damaged messages are passed over."""
CONNECT_OPTIONS = 0x1F3DFFFF
"""The options of MQCNO that exist on any platform."""


class EmbeddedQueueManager:
    """Implements `ports.batch.BatchQueueManager` and `ports.mqi.QueueManager`."""

    mixes = True

    def __init__(self, name: str, store: MessageStore, scheduler: Scheduler) -> None:
        self.name = name
        self.core = Core(name, store, scheduler)
        self.authority = Authority(self.core)
        self._administration = Administration(self.core, self.authority)
        self._mqsc = Mqsc(self.core, self._administration)
        self.placer = Placer(self.core)
        self.topics = Topics(self.core, self.placer)
        self.channels = ChannelAuthority(self.core, self.authority)
        self.connections = Connections()
        self._translator = Translator(self.core, self.placer, self._define_state)
        self.core.committer.translator = self._translator
        self.core.on_installed.append(self._queue_defined)
        self._logical_messages = LogicalMessages(self.core)
        self._consumed: dict[str, tuple[LocalQueue, Callable[[], None]]] = {}
        """By the name that a rule uses: the queue that is consumed, and the function that is told."""
        self._told_defined: Callable[[Collection[str]], None] | None = None
        self._defined: set[str] = set()
        """Defined queues that are still to be reported."""
        self._goes_on = False
        """Whether files are being made again, with a call planned that continues it."""

    @classmethod
    def open(
        cls,
        path: Path | None,
        name: str,
        scheduler: Scheduler,
        objects_text: str = "",
        *,
        users: Mapping[str, str] | None = None,
        verify: Callable[[str, str], bool] | None = None,
        administrators: Iterable[str] = (),
        check_client: str | None = None,
        max_uncommitted: int | None = None,
        store_options: StoreOptions | None = None,
    ) -> EmbeddedQueueManager:
        """Open the store in `path` (None: in memory) and run the MQSC commands of the text. Raises StoreInUse,
        StoreCorrupt, ConfigurationError."""
        queue_manager = cls(name, open_store(path, name, scheduler, store_options), scheduler)
        try:
            queue_manager.start(objects_text, users or {}, verify, administrators)
            queue_manager.apply_settings(check_client, max_uncommitted)
        except BaseException:
            queue_manager.close()
            raise
        return queue_manager

    @property
    def ending(self) -> tuple[str, bool]:
        """Where its store ended, if the last process did not close it; and whether something was left out there."""
        return self.core.store.ending, self.core.store.left_out

    def start(
        self,
        objects_text: str = "",
        users: Mapping[str, str] | None = None,
        verify: Callable[[str, str], bool] | None = None,
        administrators: Iterable[str] = (),
    ) -> None:
        """Define the default objects that are missing and the objects of the settings; start what runs in the
        background."""
        with self.core.entered():
            with self.core.saved_together():
                made = self._define_missing()
            self.authority.set_users(users or {}, verify, administrators)
            self._administration.make_managed_queue = self._managed_queue
            self._administration.in_use = self.connections.subscription_in_use
            self._mqsc.extensions.append(StatusCommands(self.core, self.topics, self.authority, self.connections))
            self._mqsc.extensions.append(ChannelCommands(self.channels))
            if made:
                self._mqsc.run(default_commands("channel-authentication.mqsc"))
            report = self._mqsc.run(objects_text)
        repeated = defined_twice(objects_text)
        wrong = [(line, what) for line, what in report.problems if not exists_already(what, repeated)]
        if not wrong:
            self._expirer = Expirer(self.core, self.placer, self.topics)
            Triggers(self.core, self.placer, partial(self._administration.alter, "QLOCAL"))
            CommandServer(self._connection("command server", OWN_USER), self.mqsc_steps, self.channels)
        else:
            twice = "it is defined twice in this text: keep one of them"
            raise ConfigurationError(
                [
                    Finding(OBJECTS, line, 1, what.removeprefix(f"line {line}: "), twice if "AMQ8150E" in what else "")
                    for line, what in wrong
                ]
            )

    def apply_settings(self, check_client: str | None, max_uncommitted: int | None) -> None:
        """Set the queue manager's own attributes from the gateway's settings; None leaves them as they are."""
        changes = []
        queue_manager = self.core.catalogue.queue_manager
        name = queue_manager.text("CONNAUTH")
        information = self.core.catalogue.get("AUTHINFO", name)
        wanted = BY_KEYWORD["AUTHINFO"]["CHCKCLNT"].words or {}
        if check_client is not None and information and information.number("CHCKCLNT") != wanted[check_client.upper()]:
            changes.append(f"ALTER AUTHINFO('{name}') CHCKCLNT({check_client})")
        if max_uncommitted is not None and queue_manager.number("MAXUMSGS") != max_uncommitted:
            changes.append(f"ALTER QMGR MAXUMSGS({max_uncommitted})")
        if changes:
            self.mqsc("\n".join(changes))

    @property
    def storage_full(self) -> StorageFull | None:
        """Why the disk takes no new messages, and since when."""
        return self.core.store.storage_full

    @property
    def disk_silence(self) -> float:
        """For how many seconds the disk has not answered a write."""
        return self.core.committer.waits

    def damaged(self) -> dict[Place, list[int]]:
        """The messages that could not be read since the last time this was asked."""
        with self.core.entered():
            return self.core.damage.untold()

    def look_after_files(self) -> None:
        """Called every second: files of the journal that somebody removes are made again, before anything is lost with
        them."""
        with self.core.entered():
            if not (self.core.closed or self._goes_on) and self.core.store.look_after_files():
                self._goes_on = True
                self.core.scheduler.later(SECONDS_BETWEEN_PIECES, self._go_on_with_files)

    def _go_on_with_files(self) -> None:
        self._goes_on = False
        self.look_after_files()

    @property
    def dead_letter_queue(self) -> str:
        """The queue manager's DEADQ."""
        return self.core.catalogue.queue_manager.text("DEADQ")

    def _define_missing(self) -> bool:
        """Define the default objects that are missing. Returns whether the queue manager itself was, so that it is a
        new one."""
        core = self.core
        made: list[Definition] = []
        now = core.timestamp()
        if core.catalogue.get("QMGR", "") is None:
            made.append(Definition("QMGR", "", defaults("QMGR"), now, now))
            core.install(made[0])
        for line, command in commands(default_commands("defaults.mqsc")):
            parsed = parse(line, command)
            if core.catalogue.get(parsed.object, parsed.name) is None:
                self._mqsc.execute(parsed)
        if made:
            core.save(made)
        return bool(made)

    # The MQI

    def connect(
        self,
        *,
        application: str = "",
        user: str = "",
        password: str | None = None,
        channel: str = "",
        connection_name: str = "",
        process: int = 0,
        options: int = 0,
    ) -> MqiConnection:
        """MQCONNX. The connection name is a label; the options concern only the MQI library, which passes them on."""
        if options & ~CONNECT_OPTIONS:
            raise MQError(mq.MQRC_OPTIONS_ERROR, f"MQCNO.Options 0x{options:X} holds unknown options")
        core = self.core
        with core.entered():
            if core.closed:
                raise MQError(mq.MQRC_Q_MGR_NOT_AVAILABLE, f"queue manager {self.name} is closed")
            if core.quiescing:
                raise MQError(mq.MQRC_Q_MGR_QUIESCING, f"queue manager {self.name} is being stopped")
            if channel:
                admitted = self.channels.connect(channel, user, password)
            else:
                admitted = self.authority.admit(user, password)
            self.authority.check(admitted, "QMGR", self.name, "CONNECT")
            connection = self._connection(application, admitted, channel, connection_name)
            connection.state.process = process
            self.connections.add(connection.state)
            return connection

    def gathered(self) -> AbstractContextManager[Callable[[], None]]:
        """A context within which calls of several connections share one commit."""
        return self.core.gathered()

    def serve_through(self, soon: Callable[[Callable[[], None]], None] | None) -> None:
        """Have waiting gets tried, and programs told, among the calls that `soon` gathers."""
        self.core.served_through = soon

    def _managed_queue(self, topic_object: str, topic_string: str) -> Definition:
        return self.topics.make_managed_queue(self.topics.full(topic_object, topic_string), durable=True)

    def _connection(self, application: str, user: str, channel: str = "", connection_name: str = "") -> MqiConnection:
        return MqiConnection(ConnectionState(
            self.core, self.placer, self.topics, self._administration, self.authority, self.connections,
            application, user, channel, connection_name,
        ))  # fmt: skip

    def quiesce(self) -> None:
        """Refuse new connections, and calls with a FAIL_IF_QUIESCING option, from now on."""
        core = self.core
        with core.entered():
            core.quiescing = True
            for queue in list(core.queues.values()):
                core.wake(queue)

    def mqsc(self, text: str) -> MqscReport:
        """Run MQSC commands."""
        with self.core.entered():
            return self._mqsc.run(text)

    def mqsc_steps(self, text: str, report: MqscReport) -> Iterator[None]:
        """Run MQSC commands a few at a time: a text may have a hundred thousand."""
        steps = self._mqsc.steps(text, report)
        over = object()
        while True:
            with self.core.entered():
                if next(steps, over) is over:
                    return
            yield

    def close(self) -> None:
        """Disconnect every program, write what has been submitted and close the store."""
        core = self.core
        with core.entered():
            if core.closed:
                return
            for connection in self.connections:
                mqdisc.disconnect(connection, commit=False)
            core.closed = True
            core.committer.close()
            core.store.close()

    # The batch port

    def submit(self, unit: Unit, done: Done) -> None:
        """Commit a unit; `done` is told."""
        with self.core.entry:
            self.core.committer.submit(unit, done)

    def load(self, queue: str) -> Iterable[tuple[bytes, Stored]]:
        """Every message of a state queue with its key, in order, except those that cannot be read, which stay there."""
        with self.core.entered():
            self._target(queue)
            try:
                found = self.core.store.load(queue)
            except StoreCorrupt:
                found = self.core.damage.load(queue)
            return stored_messages.keyed(list(found), self.name)

    def fetch(self, queue: str, key: bytes, limit: int, after: Token | None = None) -> list[Stored]:
        """The next messages in order. They are locked for the batch port until it takes, moves or releases them."""
        core = self.core
        with core.entered():
            target = self._target(queue)
            local = target.queue
            if local is None:
                return []
            target.check_get()
            last = after if isinstance(after, int) else None
            found: list[Message] = []
            expired: list[Message] = []
            page: QueuePass | None = None
            finds = True
            applications = not key and not queue.startswith(state_queues.PREFIX)
            now = int(core.now() * 1_000_000)
            while len(found) < limit:
                try:
                    messages = core.store.fetch(local.name, key, limit - len(found), last, locked=True)
                except StoreCorrupt:
                    messages = self._around_damage(local, key, limit - len(found), last)
                if not messages:
                    break
                last = messages[-1].token
                expired += [message for message in messages if 0 < message.expiry <= now]
                locked = local.locked
                free = [
                    message
                    for message in messages
                    if not 0 < message.expiry <= now and (not locked or locked.get(message.token, BROKER) is BROKER)
                ]
                if applications and (page or any(map(may_be_part, free))):
                    finds = self._logical_messages.finds(local)
                    if not finds:
                        break
                    page = page or self._logical_messages.page(local)
                    free = page.logical(free, limit - len(found))
                found += free
            if applications:
                self._logical_messages.seen(local, page, end=finds and len(found) < limit)
                self._hand_out(local, found, page)
            if expired:
                self._expirer.discard(local.name, key, expired)
            stored = stored_messages.stored(found, self.name, core.now() if applications else 0.0)
            return page.named(stored) if page is not None else stored

    def _around_damage(self, local: LocalQueue, key: bytes, limit: int, after: int | None) -> list[Message]:
        try:
            return self.core.damage.fetch(local.name, key, limit, after)
        except MQError:
            self.core.scheduler.later(DAMAGE_PAUSE, partial(self._wake, local))
            raise

    def _wake(self, local: LocalQueue) -> None:
        with self.core.entered():
            if not self.core.closed:
                self.core.wake(local)

    def fetch_page(self, queue: str, key: bytes, limit: int) -> message_pages.Page | None:
        """The next messages as columns; None if there are none, or the first has to be fetched by `fetch`."""
        with self.core.entered():
            target = self._target(queue)
            if target.queue is None or queue.startswith(state_queues.PREFIX):
                return None
            target.check_get()
            return message_pages.next_page(self.core, target.queue, key, limit)

    def _hand_out(self, local: LocalQueue, found: list[Message], page: QueuePass | None) -> None:
        """Lock fetched messages for the batch port. Those that ask for a COD are confirmed when they are taken."""
        parts = page.parts if page is not None else {}
        locked = [part for one in found for part in parts.get(one.token, (one.token,))]
        self.core.lock_messages(local, locked, BROKER)
        self._translator.confirm_taking(local.name, found)

    def release(self, queue: str) -> int:
        """Unlock messages that were fetched and neither taken nor moved; returns how many there were."""
        with self.core.entered():
            local = self._target(queue).queue
            tokens = [] if local is None else [token for token, owner in local.locked.items() if owner is BROKER]
            if local is not None and tokens:
                self.core.unlock_messages(local, tokens)
                self.core.wake(local)
            return len(tokens)

    def tokens(self, queue: str, key: bytes) -> Sequence[Token]:
        """See `ports.batch.Listing`."""
        with self.core.entered():
            local = self._target(queue).queue
            return [] if local is None else self.core.store.tokens(local.name, key)

    def depth(self, queue: str, key: bytes = b"") -> int:
        """How many messages the queue holds. As the depths of thousands of queues are read in one turn, their names do
        not displace those that are remembered for puts."""
        with self.core.entered():
            local = self.core.queues.get(queue)
            if local is None and not self._is_to_come(queue):
                local = self._target(queue).queue
            return 0 if local is None else self.core.store.depth(local.name, key)

    @property
    def put_to(self) -> set[str]:
        """Queues that messages have named: only rules with placeholders know them."""
        with self.core.entered():
            return self._translator.watched.fullest()

    def depth_limits(self, queue: str) -> DepthLimits | None:
        """The depth limits of the local queue that a name resolves to; None if there is none."""
        with self.core.entered():
            local = self.core.queues.get(queue)
            if local is None and not self._is_to_come(queue):
                with suppress(MQError):
                    local = self._target(queue).queue
            return None if local is None else DepthLimits.of(local.max_depth, local.definition.number("QDEPTHHI"))

    def _is_to_come(self, queue: str) -> bool:
        """Whether it is one of the gateway's own queues that its first message will define: asking for its depth does
        not wait for a commit."""
        return queue.startswith(state_queues.PREFIX) and self.core.catalogue.get("QUEUE", queue) is None

    def consume(self, queue: str, arrived: Callable[[], None]) -> None:
        """Call `arrived` whenever the queue may have messages, and once now if it has."""
        with self.core.entered():
            target = self._target(queue)
            local = target.queue
            if local is None:
                raise MQError(
                    mq.MQRC_OPTION_NOT_VALID_FOR_TYPE, f"{queue!r} is not a local queue: nothing can be got from it"
                )
            local.consumers.append(arrived)
            self.core.await_through(target.chain, local)
            self._consumed[queue] = local, arrived
            self.core.inputs_changed(local, opened=True)
            if self.core.store.depth(local.name):
                self.core.wake(local)

    def stop_consuming(self, queue: str, key: bytes = b"") -> None:
        """Stop consuming a queue, which can be deleted then. It may still be consumed by another name. What has a key
        is read on demand, and is not consumed."""
        if key:
            return
        with self.core.entered():
            local, arrived = self._consumed.pop(queue)
            local.consumers.remove(arrived)
            self.core.inputs_changed(local, opened=False)

    def tell_defined(self, told: Callable[[Collection[str]], None]) -> None:
        """See `ports.sources.TellsDefined`."""
        self._told_defined = told

    def _queue_defined(self, definition: Definition) -> None:
        if self._told_defined is not None and definition.kind in QUEUE_KINDS and not definition.dynamic:
            if not self._defined:
                self.core.scheduler.soon(self._tell_defined)
            self._defined.add(definition.name)

    def _tell_defined(self) -> None:
        """Report, at once, all queues that a script has defined until now."""
        with self.core.entered():
            names, self._defined = self._defined, set()
            names |= {one.name for one in self.core.catalogue.matching(("QALIAS",)) if one.text("TARGET") in names}
        if self._told_defined is not None:
            self._told_defined(names)

    def gather(self, queue: str, *, groups: bool) -> None:
        """Fetch messages of a group only when the group is complete, or as they arrive."""
        with self.core.entered():
            local = self._target(queue).queue
            if local is not None and local.whole_groups != groups:
                local.whole_groups = groups
                self.core.wake(local)

    def incomplete(self, queue: str) -> Incomplete:
        """The groups and messages that stay on a consumed queue because parts of them are missing."""
        with self.core.entered():
            try:
                local = self._target(queue).queue
            except MQError:  # it was deleted
                return Incomplete()
            return Incomplete() if local is None else self._logical_messages.incomplete(local.name)

    def max_length(self, queue: str) -> int:
        """The longest message data that the queue takes; for a queue that does not exist, what the queue manager takes:
        the put then says what is wrong."""
        with self.core.entered():
            limit = self.core.attribute("MAXMSGL")
            try:
                target = self._target(queue)
            except MQError:
                return limit
            limit = limit if target.queue is None else min(limit, target.queue.max_length)
            return max(0, limit - HEADERS_LENGTH) if target.remote else limit

    def movable(self, queue: str, queue_manager: str) -> bool:
        """Whether staged messages can be moved to this destination: it is a queue of this queue manager, and has no
        STREAMQ."""
        with self.core.entered():
            try:
                target = self._translator.target(queue, queue_manager)
            except MQError:
                return False
            local = target.queue
            return local is not None and not (target.remote or local.temporary or local.stream)

    # What rules take messages from

    def backout(self, queue: str) -> Backout:
        """BOTHRESH and BOQNAME of the local queue that a name resolves to."""
        with self.core.entered():
            local = self._target(queue).queue
            definition = None if local is None else self.core.catalogue.get("QUEUE", local.name)
            if definition is None:
                return Backout()
            return Backout(definition.number("BOTHRESH"), definition.text("BOQNAME"))

    def subscribe(self, name: str, topic: str) -> Subscribed:
        """Make a durable subscription with a managed queue, or use the one of this name and topic."""
        with self.core.entered():
            known = self.core.catalogue.get("SUB", name)
            connection = self._connection("mqgate", OWN_USER)
            if known is not None and self.topics.topic_of(known) != topic:
                mqsub.remove(connection.state, known)
                known = None
            if known is None:
                options = mq.MQSO_CREATE | mq.MQSO_DURABLE | mq.MQSO_MANAGED
                made = connection.subscribe(SubscriptionDescriptor(options, object_string=topic, name=name))
                connection.close(made.subscription_handle)
                connection.close(made.queue_handle)
                known = self.core.catalogue.get("SUB", name)
                assert known is not None  # noqa: S101 -- it was made above
            return Subscribed(known.text("DEST"))

    def _target(self, queue: str) -> Target:
        return self._translator.target(queue, "")

    def unknown(self, queues: Collection[str], most: int) -> tuple[dict[str, str], int]:
        """What may help with the first of those names that cannot be opened, at most this many, and how many more there
        are. The gateway's own queues are made when they are used."""
        with self.core.entered():
            return unresolved(self.core, set(queues) - _OWN, most)

    def define_state_queues(self) -> None:
        """Define those of the gateway's own queues that are missing, for gateways that come through the MQI, where none
        is defined at its first use."""
        with self.core.entered(), self.core.saved_together():
            for name in (*state_queues.ALL, state_queues.DEAD_LETTERS, state_queues.DEFAULT):
                if self.core.catalogue.get("QLOCAL", name) is None:
                    self._define_state(name)

    def local_queues(self) -> list[str]:
        """The names of all local queues."""
        with self.core.entered():
            return [one.name for one in self.core.catalogue.matching(["QLOCAL"])]

    def _define_state(self, name: str) -> None:
        attributes = _STATE_ATTRIBUTES
        if name == state_queues.SET_ASIDE:
            attributes = attributes | {"MAXDEPTH": state_queues.SET_ASIDE_DEPTH, "DESCR": "What met a defect"}
        elif name == state_queues.AUDIT:
            attributes = attributes | {"MAXDEPTH": state_queues.AUDIT_DEPTH, "DESCR": "What people have done"}
        self._administration.define("QLOCAL", name, attributes)


def open_store(path: Path | None, name: str, scheduler: Scheduler, options: StoreOptions | None) -> MessageStore:
    """The journal in a directory, or a store in memory."""
    if path is None:
        return MemoryStore(name)
    return Store.open(path, clock=scheduler.now, options=replace(options or StoreOptions(), queue_manager=name))
