"""Defines, alters, deletes and clears objects, for MQSC and PCF alike. A refusal has the reason code of PCF and the
message of MQSC."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from gateway.errors import MQError
from gateway.mq import constants as mq
from gateway.mq.character_sets.ccsid import codec_of
from gateway.ports import state_queues
from gateway.queue_manager.core import Core
from gateway.queue_manager.objects import clearing
from gateway.queue_manager.objects.attributes import BY_KEYWORD, QUEUE_KINDS, Value
from gateway.queue_manager.objects.authority import Authority
from gateway.queue_manager.objects.catalogue import Catalogue, Definition, checked, defaults, valid_name
from gateway.queue_manager.objects.local_queue import LocalQueue
from gateway.queue_manager.objects.selectors import compile_selector
from gateway.queue_manager.objects.topic_names import block
from gateway.queue_manager.store.unit import LaneTakes, StoreUnit

DEFAULT_OBJECTS = {
    "QLOCAL": "SYSTEM.DEFAULT.LOCAL.QUEUE", "QMODEL": "SYSTEM.DEFAULT.MODEL.QUEUE", "QALIAS":
    "SYSTEM.DEFAULT.ALIAS.QUEUE", "QREMOTE": "SYSTEM.DEFAULT.REMOTE.QUEUE", "TOPIC": "SYSTEM.DEFAULT.TOPIC", "SUB":
    "SYSTEM.DEFAULT.SUB", "NAMELIST": "SYSTEM.DEFAULT.NAMELIST", "PROCESS": "SYSTEM.DEFAULT.PROCESS",
    "AUTHINFO": "SYSTEM.DEFAULT.AUTHINFO.IDPWOS", "CHANNEL": "SYSTEM.DEF.SVRCONN",
}  # fmt: skip
"""The objects from which a DEFINE takes the attributes that it does not give."""

MQRCCF_TOPICSTR_ALREADY_EXISTS = 3300
MQRCCF_STREAMQ_DEST_NOT_SUPP = 3384
MQRCCF_STREAMQ_DEST_CONFLICT = 3385
MQRCCF_STREAMQ_NOT_SUPPORTED = 3386
MQRCCF_STREAMQ_CONFLICT = 3387
MQRCCF_ATTR_VALUE_ERROR = 4005
MQRCCF_OBJECT_NAME_ERROR = 4008
MQRCCF_OBJECT_WRONG_TYPE = 4002
MQRCCF_LIKE_OBJECT_WRONG_TYPE = 4003
MQRCCF_PARM_SYNTAX_ERROR = 4055
OF_ANOTHER_TYPE = (MQRCCF_OBJECT_WRONG_TYPE, "AMQ8151E: IBM MQ object {} has different type")
LIKE_OF_ANOTHER_TYPE = (MQRCCF_LIKE_OBJECT_WRONG_TYPE, "AMQ8152E: Source IBM MQ object {} has different type")
NO_SUCH_VALUE = frozenset({MQRCCF_ATTR_VALUE_ERROR, MQRCCF_PARM_SYNTAX_ERROR})
"""Refusals that MQSC counts as syntax errors."""
FIXED = {"TOPIC": ("TOPICSTR",), "SUB": ("TOPICSTR", "TOPICOBJ")}
"""Attributes that ALTER does not change."""
_STREAMED_SYSTEM = re.compile(
    r"SYSTEM\.(DEFAULT\.LOCAL\.QUEUE|DEFAULT\.MODEL\.QUEUE|JMS\.TEMPQ\.MODEL"
    r"|ADMIN\.(ACCOUNTING\.QUEUE|ACTIVITY\.QUEUE|STATISTICS\.QUEUE|[A-Z]+\.EVENT))\Z"
)
"""The queues of SYSTEM.* that can have a STREAMQ."""
BASE_TOPIC = ("TOPIC", "SYSTEM.BASE.TOPIC")
"""The root of the topic tree. It cannot be deleted."""


class AdministrationError(MQError):
    """A command was refused: `reason` is for PCF, the message for people."""

    def __init__(self, reason: int, message: str) -> None:
        super().__init__(reason, message)
        self.message = message


def already_exists(name: str) -> AdministrationError:
    """Returns the refusal of a DEFINE without REPLACE of an object that exists."""
    return AdministrationError(mq.MQRCCF_OBJECT_ALREADY_EXISTS, f"AMQ8150E: IBM MQ object already exists: {name}.")


def not_found(kind: str, name: str) -> AdministrationError:
    """Returns the refusal of a command on an object that does not exist."""
    reason = mq.MQRC_NO_SUBSCRIPTION if kind == "SUB" else mq.MQRC_UNKNOWN_OBJECT_NAME
    return AdministrationError(reason, f"AMQ8147E: IBM MQ object {name or kind} not found.")


def wrong_type(
    kind: str, found: Definition, otherwise: tuple[int, str] = OF_ANOTHER_TYPE
) -> AdministrationError:  # fmt: skip
    """Returns the refusal of a command on a queue of another type."""
    reason, text = otherwise
    return AdministrationError(reason, f"{text.format(found.name)}: it is a {found.kind}, not a {kind}.")


def no_status(name: str, *, exists: bool) -> AdministrationError:
    """Returns the answer to a command on the status of queues that has nothing to show: nobody has the queue open, or
    no queue matches."""
    if not exists:
        return not_found("QLOCAL", name)
    return AdministrationError(mq.MQRCCF_Q_STATUS_NOT_FOUND, "AMQ8565I: Queue Status not found.")


def in_use(name: str) -> AdministrationError:
    """Returns the refusal of a command on an object that is open."""
    return AdministrationError(mq.MQRCCF_OBJECT_OPEN, f"AMQ8148E: IBM MQ object {name} in use.")


def consumed(name: str) -> AdministrationError:
    """The same for a queue that a rule consumes, which the gateway therefore has open for input."""
    text = f"AMQ8148E: IBM MQ object {name} in use: a rule of the gateway takes from it."
    return AdministrationError(mq.MQRCCF_OBJECT_OPEN, text)


def not_empty(name: str) -> AdministrationError:
    """Returns the refusal of a command on a queue that holds messages, or has uncommitted ones."""
    return AdministrationError(mq.MQRC_Q_NOT_EMPTY, f"AMQ8143E: IBM MQ queue {name} not empty.")


def wrong_value(keyword: str, value: object) -> AdministrationError:
    """Returns the refusal of a value that the attribute does not take."""
    return AdministrationError(MQRCCF_ATTR_VALUE_ERROR, f"AMQ8405E: {value!r} is not a valid value for {keyword}.")


def too_long(keyword: str, most: int, value: str) -> AdministrationError:
    """Returns the refusal of a text that is longer than the attribute takes, in bytes: characters beyond ASCII have
    several."""
    text = f"AMQ8405E: {keyword} takes up to {most} bytes, and {value[:80]!r} has {len(value.encode())}."
    return AdministrationError(MQRCCF_ATTR_VALUE_ERROR, text)


def _check_selector(text: str) -> None:
    """Refuse an invalid selector: a subscription with it would get nothing."""
    try:
        compile_selector(text)
    except MQError as error:
        raise AdministrationError(error.reason, f"AMQ8405E: {error.args[0].partition(': ')[2]}.") from error


def _check_stream(catalogue: Catalogue, definition: Definition) -> None:
    """Refuse a STREAMQ that IBM MQ refuses (Streaming queue restrictions in its manual): one on a transmission queue or
    on a queue manager's own queue, one that names such a queue or a model, and streams that would form a chain."""
    name, stream = definition.name, definition.text("STREAMQ")
    to = catalogue.get("QUEUE", stream)
    if to is not None and to.kind == "QALIAS":
        to = catalogue.get("QUEUE", to.text("TARGET"))
    if definition.number("USAGE") == mq.MQUS_TRANSMISSION or (_is_system(name) and not _STREAMED_SYSTEM.match(name)):
        refused = MQRCCF_STREAMQ_NOT_SUPPORTED, f"{name} cannot have a STREAMQ"
    elif (to is not None and to.kind == "QMODEL") or (_is_system(stream) and stream != DEFAULT_OBJECTS["QLOCAL"]):
        refused = MQRCCF_STREAMQ_DEST_NOT_SUPP, f"{stream} cannot be a STREAMQ"
    elif stream == name or (to is not None and (to.name == name or to.attributes.get("STREAMQ"))):
        refused = MQRCCF_STREAMQ_DEST_CONFLICT, f"{stream} has a STREAMQ itself: copies are not copied again"
    elif any(other.text("STREAMQ") == name for other in catalogue.matching(("QLOCAL",)) if other.name != name):
        refused = MQRCCF_STREAMQ_CONFLICT, f"{name} is the STREAMQ of another queue: copies are not copied again"
    else:
        return
    raise AdministrationError(refused[0], f"AMQ8405E: {refused[1]}.")


def _is_system(name: str) -> bool:
    """Whether a queue belongs to the queue manager itself, or holds the gateway's state."""
    return name.startswith("SYSTEM.") or (name.startswith(state_queues.PREFIX) and name != state_queues.DEFAULT)


class Administration:
    """Carries out commands on objects. Its methods are called with the queue manager's lock held."""

    def __init__(self, core: Core, authority: Authority) -> None:
        self._core = core
        self._authority = authority
        self.make_managed_queue: Callable[[str, str], Definition] | None = None
        """Makes the queue of a managed subscription. Set after the topics have been made."""
        self.in_use: Callable[[str], bool] = lambda _name: False
        """Whether a program has a handle of this subscription."""

    def define(
        self, kind: str, name: str, given: Mapping[str, Value], *, replace: bool = False, like: str = ""
    ) -> Definition:
        """DEFINE. With `replace` an existing object takes the new attributes and keeps its messages. Nothing is written
        if it has these attributes already, so that a gateway whose disk is full starts with its file of objects."""
        if not valid_name(kind, name):
            raise AdministrationError(MQRCCF_OBJECT_NAME_ERROR, f"AMQ8141E: {name!r} is not a valid object name.")
        old = self._core.catalogue.get(kind, name)
        if old is not None and not replace:
            raise already_exists(name)
        if old is not None and old.kind != kind:
            raise wrong_type(kind, old)
        base = dict(self._template(kind, like).attributes)
        if kind == "SUB":
            base["DEST"] = old.text("DEST") if old is not None else ""
        now = self._core.timestamp()
        definition = Definition(kind, name, base | self._checked(kind, given), now if old is None else old.created, now)
        if kind == "TOPIC":
            self._check_topic_string(name, definition.text("TOPICSTR"))
        if definition.attributes.get("STREAMQ"):
            _check_stream(self._core.catalogue, definition)
        if old is not None:
            definition.extra = old.extra
            if kind != "SUB" and old.attributes == definition.attributes:
                return old
        elif kind == "SUB":
            self._complete_subscription(definition)
            definition.extra = {"SUBID": self._core.new_identifier().hex().upper()}
        if kind == "SUB" and (old is None or any(old.text(one) != definition.text(one) for one in FIXED["SUB"])):
            block(self._core.catalogue, definition)
        if kind == "SUB":
            definition.begin_expiry(self._core.now())
        self._save(definition)
        return definition

    def _check_topic_string(self, name: str, topic_string: str) -> None:
        """Refuse an empty topic string (DEFINE TOPIC in IBM MQ's manual), and one that another topic object has: it
        would be undecided which object's attributes hold for it."""
        if not topic_string and name not in {BASE_TOPIC[1], DEFAULT_OBJECTS["TOPIC"]}:
            raise AdministrationError(MQRCCF_PARM_SYNTAX_ERROR, "AMQ8405E: A topic object needs TOPICSTR.")
        for other in self._core.catalogue.matching(("TOPIC",)):
            if topic_string and other.name != name and other.text("TOPICSTR") == topic_string:
                text = f"AMQ8405E: The topic string {topic_string!r} belongs to topic object {other.name}."
                raise AdministrationError(MQRCCF_TOPICSTR_ALREADY_EXISTS, text)

    def _complete_subscription(self, definition: Definition) -> None:
        """Check that a subscription has a topic and a destination; make the queue of a managed one."""
        topic_object = definition.text("TOPICOBJ")
        if topic_object and self._core.catalogue.get("TOPIC", topic_object) is None:
            raise not_found("TOPIC", topic_object)
        if definition.name in DEFAULT_OBJECTS.values():
            return
        if not topic_object and not definition.text("TOPICSTR"):
            raise AdministrationError(MQRCCF_PARM_SYNTAX_ERROR, "AMQ8405E: A subscription needs TOPICSTR or TOPICOBJ.")
        if definition.number("DESTCLAS") == mq.MQDC_MANAGED and self.make_managed_queue is not None:
            made = self.make_managed_queue(topic_object, definition.text("TOPICSTR"))
            definition.attributes["DEST"] = made.name
        elif not definition.text("DEST"):
            raise AdministrationError(
                MQRCCF_PARM_SYNTAX_ERROR, "AMQ8405E: A subscription needs DEST or DESTCLAS(MANAGED)."
            )

    def alter(self, kind: str, name: str, given: Mapping[str, Value]) -> Definition:
        """ALTER."""
        definition = self.find(kind, name)
        for keyword in FIXED.get(definition.kind, ()):
            if given.get(keyword, definition.attributes[keyword]) != definition.attributes[keyword]:
                text = f"AMQ8405E: {keyword} of a {definition.kind} cannot be altered: delete and redefine it."
                raise AdministrationError(mq.MQRC_TOPIC_NOT_ALTERABLE, text)
        changed = definition.attributes | self._checked(definition.kind, given)
        altered = Definition(
            definition.kind,
            name,
            changed,
            definition.created,
            self._core.timestamp(),
            definition.dynamic,
            definition.extra,
        )
        if altered.attributes.get("STREAMQ") and not given.keys().isdisjoint({"STREAMQ", "USAGE"}):
            _check_stream(self._core.catalogue, altered)
        if definition.kind == "SUB" and "EXPIRY" in given:
            altered.begin_expiry(self._core.now())
        self._save(altered)
        return definition

    def delete(self, kind: str, name: str, *, purge: bool = False, records: bool = True) -> Iterator[None]:
        """DELETE, step by step. A queue must be closed, consumed by no rule, and empty unless `purge`. `records`:
        delete the authority records of its name as well."""
        definition = self.find(kind, name)
        if definition.kind == "QLOCAL":
            queue = self._core.queues[name]
            self._check_delete(queue, purge=purge)
            while self._core.store.depth(name) > clearing.CLEARED_AT_ONCE:  # messages that have come meanwhile go too
                yield from self._emptied(queue)
                self._check_delete(queue, purge=purge)
            for _ in self._emptied(queue):
                pass
        if (definition.kind == "SUB" and self.in_use(name)) or (definition.kind, name) == BASE_TOPIC:
            raise in_use(name)
        self._core.save((), (definition,))
        self._core.uninstall(definition)
        if records:
            self._authority.forget("QUEUE" if definition.kind in QUEUE_KINDS else definition.kind, name)

    def _check_delete(self, queue: LocalQueue, *, purge: bool) -> None:
        if self._core.queues.get(queue.name) is not queue:
            raise not_found("QLOCAL", queue.name)
        if queue.open_count or queue.locked or queue.emptied:
            raise in_use(queue.name)
        if queue.consumers:
            raise consumed(queue.name)
        if queue.uncommitted_puts or (self._core.store.depth(queue.name) and not purge):
            raise not_empty(queue.name)

    def clear(self, name: str) -> Iterator[None]:
        """CLEAR QLOCAL, step by step: removes what is on the queue now. Messages that come meanwhile stay."""
        self.find("QLOCAL", name)
        queue = self._core.queues[name]
        if queue.open_count or queue.emptied:
            raise in_use(name)
        if queue.consumers:
            raise consumed(name)
        if queue.uncommitted_puts or queue.locked:
            raise not_empty(name)
        yield from self._emptied(queue)

    def find(self, kind: str, name: str, otherwise: tuple[int, str] = OF_ANOTHER_TYPE) -> Definition:
        """Returns the object, which must be of exactly this type (`QUEUE`: of any type of queue). Raises
        AdministrationError, with `otherwise` if it is of another type."""
        definition = self._core.catalogue.get(kind, name)
        if definition is None:
            raise not_found(kind, name)
        if kind in QUEUE_KINDS and definition.kind != kind:
            raise wrong_type(kind, definition, otherwise)
        return definition

    def select(self, kinds: tuple[str, ...], pattern: str) -> Iterator[Definition]:
        """For DISPLAY: yields the objects of these types that match a generic name."""
        return self._core.catalogue.matching(kinds, pattern)

    def _template(self, kind: str, like: str) -> Definition:
        if like:
            definition = self.find(kind, like, LIKE_OF_ANOTHER_TYPE)
        else:
            found = self._core.catalogue.get(kind, DEFAULT_OBJECTS.get(kind, ""))
            definition = found if found is not None and found.kind == kind else Definition(kind, "", defaults(kind))
        return definition

    def _checked(self, kind: str, given: Mapping[str, Value]) -> dict[str, Value]:
        table = BY_KEYWORD[kind]
        for keyword, value in given.items():
            if keyword not in table:
                raise AdministrationError(MQRCCF_PARM_SYNTAX_ERROR, f"AMQ8405E: {keyword} is not a {kind} attribute.")
            most = table[keyword].length
            if table[keyword].is_text and isinstance(value, str) and len(value.encode()) > most:
                raise too_long(keyword, most, value)
            if checked(table[keyword], value) is None or (keyword == "CCSID" and codec_of(int(value)) is None):
                raise wrong_value(keyword, value)
            if keyword == "SELECTOR" and value:
                _check_selector(str(value))
        return dict(given)

    def _save(self, definition: Definition) -> None:
        if definition.dynamic != mq.MQQDT_TEMPORARY_DYNAMIC:
            self._core.save((definition,))
        self._core.install(definition)

    def _emptied(self, queue: LocalQueue) -> Iterator[None]:
        """Remove every message of the queue, in bounded steps, without reading them. Between two steps no program can
        open the queue, as while IBM MQ clears it; a rule may begin to consume it, and keeps what it has got."""
        queue.emptied = True
        try:
            for tokens in clearing.pieces(self._core, queue.name):
                free = [token for token in tokens if token not in queue.locked]
                self._core.commit(StoreUnit(takes=[LaneTakes(queue.name, b"", free)]))
                yield
        finally:
            queue.emptied = False
