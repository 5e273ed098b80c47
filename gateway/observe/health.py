"""The three probes, as pure functions of what is known at this moment. They answer three different questions:

`startupz`: has it come up?   `livez`: would a restart help?   `readyz`: should new devices be sent here?

A queue manager that is away is never a reason to restart: `livez` does not look at it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gateway.observe.disk_reports import full_in_words
from gateway.ports.batch import StorageFull

HEARTBEAT_SECONDS = 15.0
"""A reactor that has not ticked for this long is stuck."""
HIGH_WATER = 0.9
"""Share of the spool's limit above which the gateway is not ready for new devices."""


@dataclass(slots=True)
class Snapshot:
    """The state from which the probes are answered; the composition root fills it in."""

    configured: bool = False
    """Settings and mappings were valid at start."""
    recovered: bool = False
    """Durable state has been read: journal replayed, sessions and retained messages loaded."""
    listening: Mapping[str, bool] = field(default_factory=dict)
    """Listeners by name: bound or not."""
    draining: bool = False
    heartbeat_ages: Mapping[str, float] = field(default_factory=dict)
    """Seconds since each worker's reactor last ticked."""
    queue_managers: Mapping[str, bool] = field(default_factory=dict)
    """Queue managers by name: connected (or, embedded, its journal writable)."""
    silence: float = 0.0
    """For how many seconds a connected queue manager has answered nothing, if that is too long; otherwise 0."""
    targets: Mapping[str, str] = field(default_factory=dict)
    """Targets by name, with why each is away; empty if it is not."""
    consumed: Mapping[str, str] = field(default_factory=dict)
    """Consumed queues of targets, with what prevents each from being consumed; empty if nothing does."""
    refusal: str = ""
    """What a connected queue manager says when it refuses messages, for instance that its disk is full."""
    buffered: bool = False
    """Whether a buffer takes messages while the queue manager is away."""
    buffering: str = ""
    """Why the buffer takes messages now; empty if it does not."""
    set_aside: str = ""
    """What met a defect of the gateway and is set aside, in words."""
    spool_bytes: float = 0
    spool_limit_bytes: float = 0
    storage_full: StorageFull | None = None
    """Why the gateway's own disk takes no new messages, and since when."""
    buffer_hangs: str = ""
    """Why nothing can be committed in the buffer, although its disk is neither full nor failing."""


@dataclass(frozen=True, slots=True)
class Check:
    """One condition and, if it does not hold, why."""

    name: str
    ok: bool
    why: str = ""
    note: str = ""
    """What an operator should know although the condition holds."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer to one probe."""

    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether every condition holds."""
        return all(check.ok for check in self.checks)

    @property
    def status(self) -> int:
        """The HTTP status."""
        return 200 if self.ok else 503

    def text(self) -> str:
        """Returns one line for each check, as people read it with curl and in the events of a pod."""
        lines = [
            f"[+] {check.name}{': ' if check.note else ''}{check.note}"
            if check.ok
            else f"[-] {check.name}: {check.why}"
            for check in self.checks
        ]
        return "\n".join((*lines, "ok" if self.ok else "not ok", ""))


def startupz(now: Snapshot) -> Verdict:
    """Checks that the configuration is valid, state is recovered, and listeners are bound."""
    return Verdict(
        (
            Check("configuration", now.configured, "settings are still being read"),
            Check("recovery", now.recovered, "durable state is still being read"),
            _listeners(now),
        )
    )


def livez(now: Snapshot) -> Verdict:
    """Checks that every worker's reactor ticks."""
    stuck = {worker: age for worker, age in now.heartbeat_ages.items() if age > HEARTBEAT_SECONDS}
    why = ", ".join(f"worker {worker} has not ticked for {age:.0f} s" for worker, age in stuck.items())
    return Verdict((Check("reactor", not stuck, why),))


def readyz(now: Snapshot) -> Verdict:
    """Checks that the gateway is started, listening, not draining, and has somewhere to put messages."""
    return Verdict(
        (
            Check("started", now.configured and now.recovered, "still starting"),
            _listeners(now),
            Check("accepting", not now.draining, "draining: connections are being handed back"),
            _spool(now),
            queue_manager(now),
            *targets(now),
            *(Check(name, ok=True, note=why) for name, why in sorted(now.consumed.items())),
            Check("defects", ok=True, note=now.set_aside),  # everything else goes on
        )
    )


def _listeners(now: Snapshot) -> Check:
    closed = sorted(name for name, bound in now.listening.items() if not bound)
    why = f"not bound: {', '.join(closed)}" if closed else "no listener is configured"
    return Check("listeners", bool(now.listening) and not closed, why)


def _spool(now: Snapshot) -> Check:
    if now.buffer_hangs:
        return Check("spool", ok=False, why=now.buffer_hangs)
    if now.storage_full is not None:
        return Check("spool", ok=False, why=full_in_words(now.storage_full))
    share = now.spool_bytes / now.spool_limit_bytes if now.spool_limit_bytes > 0 else 0.0
    return Check("spool", share < HIGH_WATER, f"{share:.0%} full, new devices are taken below {HIGH_WATER:.0%}")


def targets(now: Snapshot) -> list[Check]:
    """Returns a check for each target. One that is away holds back only what goes to it, so the gateway is ready all
    the same."""
    notes = {name: f"away, and messages to it wait: {why}" if why else "" for name, why in now.targets.items()}
    return [Check(f"target {name}", ok=True, note=note) for name, note in sorted(notes.items())]


def queue_manager(now: Snapshot) -> Check:
    """Returns the check of the queue manager. One that is away does not matter while a buffer takes messages."""
    away = sorted(name for name, connected in now.queue_managers.items() if not connected)
    why = now.refusal or f"no connection to {', '.join(away)} and no buffer is set"
    if now.silence and not away:
        return Check("queue manager", now.buffered, f"it has not answered for {now.silence:.0f} s")
    note = f"away, and messages go to the buffer: {now.buffering}" if now.buffering else ""
    return Check("queue manager", not away or now.buffered, why, note)
