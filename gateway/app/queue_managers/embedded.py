"""The embedded queue manager of the settings: in a gateway, or in a process of its own."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from gateway.app.files.directories import data_directory
from gateway.app.files.secrets import mqi_users
from gateway.app.queue_managers.mqi_library import short_name
from gateway.config.model import Settings
from gateway.config.queue_manager import Embedded
from gateway.errors import ConfigurationError, Finding
from gateway.mq.constants.md import MQMT_REPORT
from gateway.observe import logs
from gateway.ports.batch import Scheduler
from gateway.ports.counters import NO_ROUTE, Counters
from gateway.queue_manager.commands.mqsc import OBJECTS as KINDS
from gateway.queue_manager.commands.mqsc import VERBS
from gateway.queue_manager.commands.mqsc_parse import MqscSyntaxError, commands, parse
from gateway.queue_manager.descriptor import Descriptor
from gateway.queue_manager.embedded import OBJECTS, EmbeddedQueueManager
from gateway.queue_manager.journal import StoreOptions
from gateway.queue_manager.objects.placement import Lost

log = logs.get("mqgate")


def open_embedded(
    settings: Settings, directory: Path, scheduler: Scheduler, counters: Counters
) -> EmbeddedQueueManager:
    """Open its journal in `directory` and run the MQSC commands of the settings. Raises StoreError or
    ConfigurationError."""
    embedded = settings.queue_manager.embedded
    assert embedded is not None  # noqa: S101 -- the callers have looked
    name, text = objects_of(settings)
    try:
        opened = EmbeddedQueueManager.open(
            directory, embedded.name, scheduler, text, users=mqi_users(settings),
            administrators=embedded.administrators, check_client=embedded.check_client,
            max_uncommitted=embedded.max_uncommitted, store_options=store_options(settings),
        )  # fmt: skip
    except ConfigurationError as error:
        raise _in_file(name, error) from error
    opened.placer.on_lost = partial(_tell_lost, counters)
    _tell_ending(opened)
    _tell_short(opened, settings.mqtt.max_packet)
    return opened


def _tell_lost(counters: Counters, lost: Lost) -> None:
    """Log and count a message of the queue manager, such as a report, that no queue took."""
    counters.messages_dropped[NO_ROUTE, "undelivered"] += 1
    about = Descriptor(lost.md)
    what = f"a report (Feedback {about.feedback})" if about.type == MQMT_REPORT else "a message of the queue manager"
    log.warning(
        "message.undelivered",
        f"{what} is lost: {lost.queue} refuses it ({lost.reason}), and so does the dead-letter queue: {lost.why}",
        queue=lost.queue,
        reason=lost.reason,
        msg_id=about.msg_id.hex().upper(),
        correl_id=about.correl_id.hex().upper(),
    )


def store_options(settings: Settings) -> StoreOptions:
    """Returns how large the journal and its segments may be. A command that makes the journal has to respect this like
    the gateway, or the gateway would find it full."""
    embedded = settings.queue_manager.embedded
    if embedded is None:  # the buffer, which counts for itself
        return StoreOptions()
    return StoreOptions(embedded.name, segment_bytes=embedded.segment_bytes or 0, max_bytes=embedded.max_bytes)


def _tell_ending(queue_manager: EmbeddedQueueManager) -> None:
    """Log where the store that is continued ends, if the last process did not close it. After a power cut an incomplete
    frame was never acknowledged, but it may as well have been damaged since."""
    ending, left_out = queue_manager.ending
    if left_out:
        text = "a power cut during a write leaves this; if there was none, the file was damaged"
        log.warning("store_ending", f"the last process did not close the store: {ending}; {text}")
    elif ending:
        log.info("store_ending", f"the last process did not close the store: {ending}")


def _tell_short(queue_manager: EmbeddedQueueManager, longest: int) -> None:
    """Warn if what devices may send is too long to be kept whole, even as a dead letter."""
    name = queue_manager.dead_letter_queue
    limit = queue_manager.max_length(name) if name else longest
    if limit < longest:
        log.warning(
            "advice",
            f"dead letters: {name} takes {limit} bytes, `mqtt.max_packet` allows {longest}: a longer publication is "
            f"acknowledged and cut. Raise MAXMSGL, of the queue manager too (ALTER QMGR MAXMSGL), or lower "
            "`mqtt.max_packet`, or give rules `too_long: segment` or `reject`",
            queue=name,
        )


def objects_of(settings: Settings) -> tuple[str, str]:
    """Returns the file of MQSC commands that the settings name, and its text; both are empty if they name none."""
    embedded = settings.queue_manager.embedded
    if embedded is None or embedded.objects is None:
        return "", ""
    name = settings.resolve(embedded.objects, "queue_manager.embedded.objects")
    return name, Path(name).read_text(encoding="utf-8-sig")


def first_start(settings: Settings, scheduler: Scheduler) -> EmbeddedQueueManager:
    """Returns a queue manager in memory with what the first start makes: default objects, and those of the settings.
    Raises ConfigurationError if that start would fail because of them."""
    embedded = settings.queue_manager.embedded
    name, text = objects_of(settings)
    try:
        return EmbeddedQueueManager.open(None, embedded.name if embedded is not None else "MQGATE", scheduler, text)
    except ConfigurationError as error:
        raise _in_file(name, error) from error


def wrong_objects(settings: Settings, scheduler: Scheduler) -> list[Finding]:
    """Returns what is wrong with the MQSC commands of the settings. If there is a store already, the objects in it are
    not looked at: only whether the commands can be read."""
    try:
        _, text = objects_of(settings)
        if text:
            first_start(settings, scheduler).close()
    except ConfigurationError as error:
        fresh = not data_directory(settings).is_dir()
        return [one for one in error.findings if fresh or _SYNTAX in one.what]
    except (OSError, UnicodeDecodeError):  # reported where files are looked for
        pass
    return []


_SYNTAX = "AMQ8405I"


def queues_of_objects(name: str, text: str) -> frozenset[str]:
    """Returns the queues that a text of MQSC commands defines. Raises ConfigurationError if a command cannot be
    read."""
    found, wrong = set[str](), list[Finding]()
    for line, one in commands(text):
        try:
            command = parse(line, one)
        except MqscSyntaxError as error:
            wrong.append(Finding(name, line, 1, str(error).removeprefix(f"line {line}: ")))
            continue
        kind = KINDS.get(command.object, command.object)
        if VERBS.get(command.verb, command.verb) == "DEFINE" and kind in {"QLOCAL", "QALIAS", "QREMOTE"}:
            found.add(command.name)
    if wrong:
        raise ConfigurationError(wrong)
    return frozenset(found)


def _in_file(name: str, error: ConfigurationError) -> ConfigurationError:
    """Returns what is wrong with a text of MQSC, located in its file."""
    return ConfigurationError([replace(one, file=name) if one.file == OBJECTS else one for one in error.findings])


def mqi_socket(settings: Settings, embedded: Embedded, directory: Path) -> Path:
    """Returns the socket through which programs with the MQI library reach the queue manager."""
    if embedded.socket is None:
        return short_name(directory / "mqi.sock")
    return short_name(Path(settings.resolve(embedded.socket, "queue_manager.embedded.socket")))
