"""One connection of a program: its handles, its unit of work, and the verbs of the MQI. Implements `ports.mqi`.

Every verb enters the queue manager's lock; nothing waits inside it. Waiting gets are parked on their queue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from gateway.errors import MQError
from gateway.mq import constants as mq
from gateway.ports.mqi import (
    Arrived,
    Cancel,
    GetOptions,
    Got,
    Inquired,
    ObjectDescriptor,
    Opened,
    PutOptions,
    PutResult,
    Status,
    Subscribed,
    SubscriptionDescriptor,
)
from gateway.queue_manager.core import Core
from gateway.queue_manager.descriptor import Descriptor
from gateway.queue_manager.objects.administration import Administration
from gateway.queue_manager.objects.authority import Authority
from gateway.queue_manager.objects.name_resolution import Target, refreshed, resolve
from gateway.queue_manager.objects.placement import Placer
from gateway.queue_manager.objects.topics import Topics
from gateway.queue_manager.store.unit import StoreUnit
from gateway.queue_manager.verbs import async_puts, mqcmit, mqget, mqinq, mqopen, mqput, mqsub
from gateway.queue_manager.verbs.distribution_lists import put_to_list
from gateway.queue_manager.verbs.handles import Handle, UnitOfWork, note
from gateway.queue_manager.verbs.waiting_gets import Parked, park

MQRC_ACTION_ERROR = 2535
PutCall = Callable[[], PutResult]


class Connection:
    """See the module."""

    def __init__(
        self,
        core: Core,
        placer: Placer,
        topics: Topics,
        administration: Administration,
        authority: Authority,
        *,
        application: str,
        user: str,
        channel: str = "",
        connection_name: str = "",
    ) -> None:
        self.core = core
        self.placer = placer
        self.topics = topics
        self.administration = administration
        self.authority = authority
        self.application = application
        self.user = user
        self.channel = channel
        self.connection_name = connection_name
        self.queue_manager = core.name
        self.connection_id = core.new_identifier()
        self.since = core.now()
        self.work = UnitOfWork()
        self.gone = False
        self._handles: dict[int, Handle] = {}
        self._next_handle = 1
        self.parked: set[Parked] = set()
        """The gets that wait."""
        self._status = Status()

    # Objects

    def open(self, descriptor: ObjectDescriptor, options: int) -> Opened:
        """MQOPEN."""
        with self.core.entered():
            self._check()
            if options & mq.MQOO_FAIL_IF_QUIESCING:
                self._check_quiescing()
            return Opened(self._keep(mqopen.open_object(self, descriptor, options)))

    def close(self, handle: int, options: int = 0) -> None:
        """MQCLOSE."""
        with self.core.entered():
            self._check()
            known = self._handle(handle)
            for parked in [one for one in self.parked if one.handle is known]:
                parked.end(MQError(mq.MQRC_HOBJ_ERROR, "the queue was closed while the get waited"))
            if known.subscription:
                mqsub.close_subscription(self, known, options)
            elif known.object_type == mq.MQOT_Q and not known.records:
                mqopen.close_queue(self, known, options)
            elif options != mq.MQCO_NONE:
                raise MQError(
                    mq.MQRC_OPTION_NOT_VALID_FOR_TYPE, "close options are for dynamic queues and subscriptions"
                )
            del self._handles[handle]

    def _keep(self, handle: Handle) -> int:
        if len(self._handles) >= self.core.attribute("MAXHANDS"):
            raise MQError(mq.MQRC_HANDLE_NOT_AVAILABLE, "MAXHANDS objects are open: close some")
        handle.number = self._next_handle
        self._next_handle += 1
        self._handles[handle.number] = handle
        return handle.number

    def _handle(self, number: int) -> Handle:
        handle = self._handles.get(number)
        if handle is None:
            raise MQError(mq.MQRC_HOBJ_ERROR, f"{number} is no handle of an open object")
        return handle

    def _check(self) -> None:
        if self.gone or self.core.closed:
            raise MQError(mq.MQRC_HCONN_ERROR if self.gone else mq.MQRC_CONNECTION_BROKEN, "connect again")

    def _check_quiescing(self) -> None:
        if self.core.quiescing:
            raise MQError(mq.MQRC_Q_MGR_QUIESCING, "the queue manager is being stopped: disconnect")

    def handles(self) -> list[Handle]:
        """What is open."""
        return list(self._handles.values())

    def resolve_for_output(self, name: str, queue_manager: str) -> Target:
        """A destination of a distribution list."""
        self.authorise_open(name, queue_manager, mq.MQOO_OUTPUT)
        return resolve(self.core, name, queue_manager)

    # Authority

    def authorise(self, kind: str, name: str, right: str) -> None:
        """2035 unless the user may do this with the object."""
        self.authority.check(self.user, kind, name, right)

    def authorise_topic(self, topic: str, right: str) -> None:
        """The same for a topic string: what is over it counts."""
        self.authority.check_topic(self.user, self.topics.over(topic), right)

    def authorise_open(self, name: str, queue_manager: str, options: int) -> None:
        """The rights the options of MQOPEN ask for."""
        remote = queue_manager not in {"", self.core.name}
        self.authority.check_open(self.user, queue_manager if remote else name, options)

    # Putting

    def put(self, handle: int, md: bytes, options: PutOptions, data: bytes) -> PutResult:
        """MQPUT."""
        with self.core.entered():
            self._check()
            known = self._handle(handle)
            known.needs(mq.MQOO_OUTPUT, mq.MQRC_NOT_OPEN_FOR_OUTPUT, "MQOO_OUTPUT")
            return self._counted(options, known, lambda: self._put(known, md, options, data))

    def put_run(self, handle: int, mds: Sequence[bytes], options: PutOptions, bodies: Sequence[bytes]) -> None:
        """Asynchronous MQPUTs with the same options, whose outcome nobody waits for: MQSTAT and MQCMIT tell it."""
        with self.core.entered():
            self._check()
            known = self._handle(handle)
            refused = not known.options & mq.MQOO_OUTPUT or self.core.quiescing
            if not refused and async_puts.put_run(self, known, mds, options, bodies):
                self._status.successes += len(bodies)
                return
        for md, body in zip(mds, bodies, strict=True):
            with suppress(MQError):
                self.put(handle, md, options, body)

    def put1(self, descriptor: ObjectDescriptor, md: bytes, options: PutOptions, data: bytes) -> PutResult:
        """MQPUT1."""
        with self.core.entered():
            self._check()
            contexts = options.options & (
                mq.MQPMO_PASS_IDENTITY_CONTEXT
                | mq.MQPMO_PASS_ALL_CONTEXT
                | mq.MQPMO_SET_IDENTITY_CONTEXT
                | mq.MQPMO_SET_ALL_CONTEXT
            )
            # The context options of MQPMO and of MQOPEN have the same values.
            handle = mqopen.open_object(self, descriptor, mq.MQOO_OUTPUT | contexts)
            try:
                return self._counted(options, handle, lambda: self._put(handle, md, options, data))
            finally:
                if not handle.records and handle.object_type == mq.MQOT_Q:
                    mqopen.close_queue(self, handle, mq.MQCO_NONE)

    def _put(self, handle: Handle, md: bytes, options: PutOptions, data: bytes) -> PutResult:
        mqput.check_options(options)
        if options.options & mq.MQPMO_FAIL_IF_QUIESCING:
            self._check_quiescing()
        if handle.records:
            return put_to_list(self, handle, md, options, data)
        if handle.topic:
            return self._publish(handle, md, options, data)
        target = handle.target
        if target is None:
            raise MQError(mq.MQRC_NOT_OPEN_FOR_OUTPUT, "the object is not one messages are put to")
        if target.queue is not None and target.queue.deleted:
            raise MQError(mq.MQRC_Q_DELETED, f"{target.queue.name} has been deleted")
        target = handle.target = refreshed(self.core, target)
        return mqput.put(self, handle, target, md, options, data)

    def _publish(self, handle: Handle, md: bytes, options: PutOptions, data: bytes) -> PutResult:
        message = mqput.prepared(self, handle, md, options)
        md, data = mqput.with_message_properties(self.core, message.pack(), data, options.properties)
        own = StoreUnit()
        reached = self.topics.publish("", handle.topic, md, data, options.options, own)
        self.accept(own, options.options)
        if not reached and options.options & mq.MQPMO_WARN_IF_NO_SUBS_MATCHED:
            return PutResult(md, "", self.core.name, 1, mq.MQRC_NO_SUBS_MATCHED)
        return PutResult(md, "", self.core.name)

    def give_context(self, message: Descriptor, handle: Handle | None, options: PutOptions) -> None:
        """The context of a message, as the options ask."""
        saved = None
        if options.options & (mq.MQPMO_PASS_ALL_CONTEXT | mq.MQPMO_PASS_IDENTITY_CONTEXT):
            source = self._handles.get(options.context)
            if source is None or not source.options & mq.MQOO_SAVE_ALL_CONTEXT:
                raise MQError(
                    mq.MQRC_CONTEXT_HANDLE_ERROR, "MQPMO.Context is no handle opened with MQOO_SAVE_ALL_CONTEXT"
                )
            saved = source.saved_context
        mqput.context(self, message, handle, options, saved)

    def accept(self, own: StoreUnit, options: int) -> None:
        """What a put became: into the unit of work, or committed now."""
        if not options & mq.MQPMO_SYNCPOINT:
            self.core.commit_call(own)
            return
        rows = sum(len(puts.heads) for puts in own.puts)
        self.check_room(rows)
        for puts in own.puts:
            queue = self.core.queues[puts.queue]
            queue.uncommitted_puts += len(puts.heads)
            self.work.puts[queue] = self.work.puts.get(queue, 0) + len(puts.heads)
        self.work.unit.puts += own.puts
        self.work.unit.state.update(own.state)

    def _counted(self, options: PutOptions, handle: Handle, put: PutCall) -> PutResult:
        """Asynchronous puts report through MQSTAT; a persistent one that failed in a unit of work spoils it."""
        if not options.options & mq.MQPMO_ASYNC_RESPONSE:
            return put()
        status = self._status
        try:
            result = put()
        except MQError as error:
            status.failures += 1
            if options.options & mq.MQPMO_SYNCPOINT:
                self.work.failed += 1
            note(status, self.core.name, error.comp_code, error.reason, handle)
            raise
        if result.comp_code:
            status.warnings += 1
            note(status, self.core.name, result.comp_code, result.reason, handle)
        else:
            status.successes += 1
        return result

    # Getting

    def get(self, handle: int, md: bytes, options: GetOptions, buffer_length: int) -> Got:
        """MQGET without the wait."""
        with self.core.entered():
            self._check()
            if options.options & mq.MQGMO_FAIL_IF_QUIESCING:
                self._check_quiescing()
            return mqget.get(self, self._handle(handle), md, options, buffer_length)

    def wait(
        self, handle: int, md: bytes, options: GetOptions, buffer_length: int, deadline: float | None, arrived: Arrived
    ) -> Cancel:
        """MQGET with the wait."""
        with self.core.entered():
            self._check()
            known = self._handle(handle)
            mqget.check_options(options)
            return park(Parked(self, known, md, options, buffer_length, arrived), deadline)

    # Units of work

    def check_room(self, messages: int) -> None:
        """2024 when the unit of work would hold more than MAXUMSGS."""
        limit = self.core.attribute("MAXUMSGS")
        if self.work.messages + messages > limit:
            raise MQError(
                mq.MQRC_SYNCPOINT_LIMIT_REACHED, f"the unit of work holds MAXUMSGS({limit}) messages: commit it"
            )

    def begin(self) -> None:
        """MQBEGIN."""
        with self.core.entered():
            self._check()
            if self.work.open:
                raise MQError(mq.MQRC_UOW_IN_PROGRESS, "a unit of work is open: commit it or back it out")
            raise MQError(mq.MQRC_NO_EXTERNAL_PARTICIPANTS, "no other resource managers take part", 1)

    def commit(self) -> None:
        """MQCMIT."""
        with self.core.entered():
            self._check()
            mqcmit.commit(self)

    def back(self) -> None:
        """MQBACK."""
        with self.core.entered():
            self._check()
            mqcmit.back(self)

    # Attributes, subscriptions, status

    def inquire(self, handle: int, selectors: Sequence[int]) -> Inquired:
        """MQINQ."""
        with self.core.entered():
            self._check()
            return mqinq.inquire(self, self._handle(handle), selectors)

    def set(self, handle: int, selectors: Sequence[int], integers: Sequence[int], characters: Sequence[bytes]) -> None:
        """MQSET."""
        with self.core.entered():
            self._check()
            mqinq.set_attributes(self, self._handle(handle), selectors, integers, characters)

    def subscribe(self, descriptor: SubscriptionDescriptor, queue_handle: int = 0) -> Subscribed:
        """MQSUB."""
        with self.core.entered():
            self._check()
            own = self._handles.get(queue_handle)
            managed, subscription = mqsub.subscribe(self, descriptor, own)
            queue_number = queue_handle if managed is None else self._keep(managed)
            number = self._keep(subscription)
            if managed is not None:
                managed.managed_by = number
            return Subscribed(queue_number, number)

    def subscription_request(self, handle: int, action: int = 1, options: int = 0) -> int:
        """MQSUBRQ."""
        with self.core.entered():
            self._check()
            known = self._handle(handle)
            if not known.subscription or action != mq.MQSR_ACTION_PUBLICATION or options & ~mq.MQSO_FAIL_IF_QUIESCING:
                raise MQError(
                    MQRC_ACTION_ERROR if known.subscription else mq.MQRC_HOBJ_ERROR,
                    "not a request on a subscription",
                )
            sent = mqsub.request(self, known.subscription)
            if not sent:
                raise MQError(mq.MQRC_NO_RETAINED_MSG, "nothing is retained on the topics of the subscription")
            return sent

    def status(self, kind: int = 0) -> Status:
        """MQSTAT."""
        with self.core.entered():
            self._check()
            if kind not in {mq.MQSTAT_TYPE_ASYNC_ERROR, mq.MQSTAT_TYPE_RECONNECTION, mq.MQSTAT_TYPE_RECONNECTION_ERROR}:
                raise MQError(mq.MQRC_STAT_TYPE_ERROR, f"{kind} is no type of status")
            status, self._status = self._status, Status()
            return status

    # The end

    def disconnect(self, *, commit: bool = True) -> None:
        """MQDISC, or the connection was lost."""
        with self.core.entered():
            if self.gone:
                return
            failure: MQError | None = None
            try:
                if commit:
                    mqcmit.commit(self)
                else:
                    mqcmit.back(self)
            except MQError as error:
                failure = error
            self.gone = True
            for parked in list(self.parked):
                parked.attempt()
            self._close_all()
            self.authority.connections.discard(self)
            if failure is not None and commit:
                raise failure

    def _close_all(self) -> None:
        # Subscriptions first: a managed queue of one that ends goes with its own handle.
        for handle in sorted(self._handles.values(), key=lambda one: not one.subscription):
            try:
                if handle.subscription:
                    mqsub.close_subscription(self, handle, mq.MQCO_NONE)
                elif handle.object_type == mq.MQOT_Q and not handle.records:
                    mqopen.close_queue(self, handle, mq.MQCO_NONE)
            except MQError:  # the store is away: the restart will clear up
                continue
        self._handles.clear()
