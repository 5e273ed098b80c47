"""`mqgate run`: the gateway, until a signal ends it."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gateway.cli.denied import DATA_DIRECTORY, denied
from gateway.cli.examples import examples
from gateway.cli.numbers import OWN_PORT
from gateway.config.load import examine_settings, load_settings
from gateway.config.model import Settings
from gateway.errors import ConfigurationError, DriverUnavailable, Finding, MQError, StoreError

if TYPE_CHECKING:
    from gateway.app.gateway import Gateway
    from gateway.observe.logs import LogHandler


@examples(
    "mqgate run",
    "mqgate run -c mqgate.yaml",
    "mqgate run --port 1884 --admin-port 9161 --data ./second",
)
@click.command()
@click.option("-c", "--config", type=click.Path(dir_okay=False), help="File of settings (YAML).")
@click.option("--port", type=OWN_PORT, help="MQTT port of the first listener (1883); 0 takes a free one.")
@click.option("--admin-port", type=OWN_PORT, help="Port for metrics, probes and the admin page (9160).")
@click.option("--data", type=DATA_DIRECTORY, help="Directory of the embedded queue manager.")
@click.option("--bind", help="Address on which the first listener listens (127.0.0.1).")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="Lowest level written.")
def run(
    config: str | None,
    port: int | None,
    admin_port: int | None,
    data: str | None,
    bind: str | None,
    log_level: str | None,
) -> None:
    """Run the gateway. Without a file: embedded queue manager in ./mqgate-data, MQTT on 127.0.0.1:1883."""
    overrides = {
        "listeners.0.port": port,
        "listeners.0.bind": bind,
        "admin.port": admin_port,
        "queue_manager.embedded.path": data,
        "log.level": log_level,
    }
    given = {key: value for key, value in overrides.items() if value is not None}

    def settings() -> Settings:
        return load_settings(config, os.environ, given)

    try:
        serve(settings)
    except ConfigurationError as error:
        everything = _all_that_is_wrong(*examine_settings(config, os.environ, given))
        for finding in dict.fromkeys([*everything, *error.findings]):
            click.echo(str(finding), err=True)
        sys.exit(1)
    except (StoreError, DriverUnavailable, MQError, OSError) as error:
        click.echo(f"mqgate: {_said(error)}", err=True)
        sys.exit(3)


def _all_that_is_wrong(settings: Settings | None, wrong: list[Finding]) -> list[Finding]:
    """Returns everything that is wrong with the settings' files: a start ends with the first file that cannot be used,
    so the others are checked as well."""
    if settings is None:
        return wrong
    from gateway.app.files.named_files import wrong_files
    from gateway.app.mappings import wrong_mappings
    from gateway.app.queue_managers.embedded import wrong_objects
    from gateway.cli.reach import LocalClock

    return [*wrong, *wrong_files(settings), *wrong_objects(settings, LocalClock()), *wrong_mappings(settings)]


def end_at_once(number: int, _: object) -> None:
    """End as without a handler. Process 1, that of a container, does not get signals for which it has no handler."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    os._exit(128 + number)


def serve(read: Callable[[], Settings]) -> None:
    """Run until SIGTERM or SIGINT; SIGHUP reads settings and mappings again."""
    signal.signal(signal.SIGTERM, end_at_once)
    early: list[int] = []
    signal.signal(signal.SIGHUP, lambda number, _: early.append(number))  # its default action would end the process
    settings = read()
    from gateway.app.files.named_files import wrong_files
    from gateway.net.reactor import install

    wrong = wrong_files(settings)
    if wrong:
        raise ConfigurationError(wrong)
    running = install()
    from twisted.internet.error import CannotListenError
    from twisted.internet.task import LoopingCall

    from gateway.app.gateway import Gateway
    from gateway.app.memory import end_without_a_look
    from gateway.observe import logs

    terminal = sys.stderr.isatty()
    form = "human" if settings.log.format == "text" or (settings.log.format == "auto" and terminal) else "json"
    handler = logs.configure(form, settings.log.level, priorities=logs.to_journal())  # type: ignore[arg-type]
    _raise_descriptor_limit()
    sys.setswitchinterval(0.001)  # a busy reactor thread would keep the journal's thread waiting for 5 ms
    gateway = Gateway(settings, running)
    gateway.reread = read
    handler.count_into(gateway.parts.counters)
    LoopingCall(lambda: _look_after_log(handler, gateway.parts.engine.context.problems)).start(5.0, now=False)
    gateway.on_stopped = lambda: running.stop() if running.running else None
    try:
        gateway.start()
    except (CannotListenError, OSError) as error:
        gateway.stop()
        raise OSError(str(error)) from error
    if terminal and form == "human":
        click.echo(banner(gateway), err=True)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: running.callFromThread(gateway.drain))
    signal.signal(signal.SIGHUP, lambda *_: running.callFromThread(gateway.reload))
    if early:
        running.callFromThread(gateway.reload)
    running.run(installSignalHandlers=False)
    end_without_a_look()


def banner(gateway: Gateway) -> str:
    """Returns the last lines of a start on a terminal: where devices connect, the page, and its token."""
    parts = gateway.parts
    lines = ["", "mqgate is ready (Ctrl-C ends it)"]
    lines += [f"  devices   {one.address}  ({name})" for name, one in parts.listeners.all.items()]
    if gateway.admin_number:
        admin = parts.settings.admin
        named = admin.token_file
        file = parts.settings.resolve(named, "admin.token_file") if named else parts.directory / "admin.token"
        lines += [f"  page      {gateway.page('127.0.0.1')}", f"  token     in {file}"]
        if named is None:
            with contextlib.suppress(OSError):
                lines[-1] = f"  token     {Path(file).read_text(encoding='utf-8').strip()}"
    return "\n".join([*lines, ""])


def _look_after_log(handler: LogHandler, problems: dict[str, str]) -> None:
    """Check every few seconds whether the log is read: a log that nobody reads cannot say so itself."""
    handler.sweep(time.monotonic())
    problems.pop("log", None)
    if handler.unread:
        problems["log"] = (
            f"nobody has read the gateway's standard error for {handler.unread:.0f} s: lines wait, and the next ones "
            "may be lost; look at what collects the log (journald, the container's runtime, a program behind a pipe)"
        )


def _raise_descriptor_limit() -> None:
    """Raise the limit on open files as far as the system allows: each device needs one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _said(error: Exception) -> str:
    return denied(error) if isinstance(error, PermissionError) and error.filename is not None else str(error)
