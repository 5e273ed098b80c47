"""How commands reach a queue manager: through the running gateway's API, or by opening a stopped one's store."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urlsplit

import click

from gateway.app.files.data_directory import owner_kept
from gateway.app.files.directories import data_directory
from gateway.cli.denied import DATA_DIRECTORY
from gateway.config.counting import counted
from gateway.config.load import examine_settings, load_settings
from gateway.config.model import Settings
from gateway.errors import ConfigurationError, DriverUnavailable, Finding, MQError, StoreError, StoreInUse
from gateway.ports import state_queues

if TYPE_CHECKING:
    import ssl

    from gateway.app.queue_managers.inquiries import Inquiries
    from gateway.backends.ibm.inspection import IbmInspection
    from gateway.ports.inspection import Inspects
    from gateway.queue_manager.embedded import EmbeddedQueueManager
    from gateway.queue_manager.thread_scheduler import ThreadScheduler

MQI_SOCKET = "mqi.sock"
"""The name, in its directory, of the socket through which programs reach a queue manager."""
_AUTHORITY = "gateway.cli.reach.authority"
"""The key under which the context of a command keeps the file of `--ca`."""
Apart = Callable[[Callable[[], tuple[int, Any]], bool], Any]
"""Asks a question, which may change something, and waits for its answer."""

PATIENCE_SECONDS = 60.0
"""How long to wait for an answer of the running gateway."""
_UNKNOWN = 401
_MISSING = 404
_OF_ANOTHER_RELEASE = ("there is no parameter", "there is nothing at")
"""How a gateway's refusal begins if only another release knows what was asked for."""


class Refused(click.ClickException):
    """The API refused: exit code 1 (refused) or 3 (not reached)."""

    def __init__(self, text: str, code: int = 1, *, missing: bool = False) -> None:
        super().__init__(text)
        vars(self)["exit_code"] = code
        self.missing = missing
        """Whether what was asked for does not exist."""


class Reach:
    """Asks one question at a time, in the terms of the API."""

    def __init__(self, ask: Callable[[str, str, dict[str, str], dict[str, Any]], Any], running: bool) -> None:
        self._ask = ask
        self.running = running

    def get(self, path: str, **query: object) -> Any:
        """GET."""
        return self._ask("GET", path, {key: str(value) for key, value in query.items() if value is not None}, {})

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """POST."""
        return self._ask("POST", path, {}, body)

    def put(self, path: str, body: dict[str, Any]) -> Any:
        """PUT."""
        return self._ask("PUT", path, {}, body)

    def delete(self, path: str, **query: object) -> Any:
        """DELETE."""
        return self._ask("DELETE", path, {key: str(value) for key, value in query.items()}, {})


class LocalClock:
    """The scheduler of a store that a command has opened: commits are written in the caller's thread."""

    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)

    def __init__(self) -> None:
        self._thread = threading.get_ident()

    def later(self, seconds: float, call: Callable[[], None]) -> Callable[[], None]:
        """Never calls: nothing in a command waits."""
        del seconds, call
        return lambda: None

    def soon(self, call: Callable[[], None]) -> None:
        """Call at once. In the journal's thread nothing is called: the caller waits for that thread, and checks
        itself."""
        if threading.get_ident() == self._thread:
            call()


SERVICE_SETTINGS = Path("/etc/mqgate/mqgate.yaml")
"""The settings of the service that the package installs."""


def settings_file(config: str | None, data: str | None) -> str | None:
    """Returns the file of settings for a command. If neither a file nor a directory is given, and there is no file
    here, it is that of the service, so that its commands need no options."""
    if config is not None or data is not None or not SERVICE_SETTINGS.is_file():
        return config
    settings, _ = examine_settings(None, os.environ, {})
    here = False
    with suppress(PermissionError):  # the working directory may be somebody else's, as after `sudo -u mqgate`
        here = settings is not None and data_directory(settings).is_dir()
    return None if here else str(SERVICE_SETTINGS)


def confirm(question: str, config: str | None, data: str | None) -> None:
    """Go on only if a person agrees, who is told if the service is meant without having been named."""
    named = config is not None or settings_file(config, data) is None
    click.confirm(f"{question}{'' if named else f' (of the service, {SERVICE_SETTINGS})'}?", abort=True)


def read_settings(config: str | None, data: str | None) -> Settings:
    """Returns the settings for a command; wrong ones end it with all findings."""
    config = settings_file(config, data)
    overrides = {"queue_manager.embedded.path": data} if data else {}
    try:
        return load_settings(config, os.environ, overrides)
    except ConfigurationError as error:
        for finding in error.findings:
            click.echo(str(finding), err=True)
        sys.exit(1)


@contextmanager
def reach(config: str | None, data: str | None) -> Iterator[Reach]:
    """Yields the running gateway of this data directory, or its store, opened here."""
    config = settings_file(config, data)
    settings = read_settings(config, data)
    directory = Path(data) if data else data_directory(settings)
    if settings.queue_manager.ibm is not None:
        with _ibm(settings, directory) as opened:
            yield opened
        return
    if not directory.is_dir():
        remedy = "name the settings (-c FILE) or the data directory (--data)"
        if config:
            remedy = "a gateway with these settings creates it when it starts (mqgate run -c FILE)"
        raise Refused(f"{directory} does not exist: {remedy}", 3)
    with _opened(settings, directory) as opened:
        yield opened


@contextmanager
def _ibm(settings: Settings, directory: Path) -> Iterator[Reach]:
    """Yields the running gateway, which counts what is replayed; or IBM MQ itself, if no gateway is running."""
    from gateway.app.queue_managers.inspection import ibm_inspection, inquiries_of
    from gateway.net.calls import Problem
    from gateway.queue_manager.thread_scheduler import ThreadScheduler

    try:
        there = remote(directory, StoreInUse("the gateway on IBM MQ"))
        there.get("/me")
    except Refused as refused:
        if vars(refused).get("exit_code") != 3:
            raise
    else:
        yield there
        return
    shown: list[str] = []
    try:
        inspection = ibm_inspection(settings, lambda: shown)
    except (DriverUnavailable, ConfigurationError) as error:
        raise Refused(str(error), 3) from error
    with ThreadScheduler() as scheduler:
        inquiries = inquiries_of(settings, scheduler, inspection)
        patient = _patient(scheduler, inquiries)
        try:
            dead = patient(lambda: (200, _dead_letters_of(inspection)), False)
            shown += [dead, *_named_by_rules(settings), *state_queues.ALL]
            yield Reach(_asking(inspection, dead, patient), running=False)
        except (MQError, Problem) as error:
            raise Refused(str(error), 3) from error
        finally:
            inquiries.close()


def _dead_letters_of(inspection: IbmInspection) -> str:
    """Returns the dead-letter queue. Raises MQError if the queue manager is not reached, so that nothing is known about
    it."""
    inspection.connect()
    return inspection.dead_letter_queue()


def _named_by_rules(settings: Settings) -> list[str]:
    """Returns the queues that a list shows in addition to the gateway's own. If rules cannot be read, `check` says
    more."""
    from gateway.app.mappings import read_table
    from gateway.app.queue_managers.inspection import names_of

    with suppress(ConfigurationError):
        return names_of(read_table(settings))
    return []


def _patient(scheduler: ThreadScheduler, inquiries: Inquiries) -> Apart:
    """Returns a function that asks a queue manager that may hang, and waits as long as it answers at all. It raises
    what the question raised."""

    def wait(question: Callable[[], tuple[int, Any]], changes: bool) -> Any:
        found: Future[Any] = Future()

        def answered(answer: tuple[int, object] | Exception) -> None:
            if isinstance(answer, Exception):
                found.set_exception(answer)
            else:
                found.set_result(answer[1])

        scheduler.soon(lambda: inquiries.ask(question, answered, changes=changes))
        return found.result()

    return wait


@contextmanager
def _opened(settings: Settings, directory: Path) -> Iterator[Reach]:
    with gateway_or_store(settings, directory) as found:
        yield found if isinstance(found, Reach) else Reach(_local(found), running=False)


@contextmanager
def gateway_or_store(settings: Settings, directory: Path) -> Iterator[Reach | EmbeddedQueueManager]:
    """Yields the running gateway, or the store of a stopped one."""
    there = _answering(directory)
    if there is not None:  # then nothing of a queue manager has to be loaded
        yield there
        return
    from gateway.app.queue_managers.embedded import store_options
    from gateway.queue_manager.embedded import EmbeddedQueueManager

    embedded = settings.queue_manager.embedded
    name = embedded.name if embedded is not None else "MQGATE"
    with owner_kept(directory):
        try:
            queue_manager = EmbeddedQueueManager.open(
                directory, name, LocalClock(), store_options=store_options(settings)
            )
        except StoreInUse as busy:
            yield remote(directory, busy)
            return
        except StoreError as error:
            raise Refused(str(error), 3) from error
        try:
            yield queue_manager
        finally:
            queue_manager.close()


@contextmanager
def before_first_start(settings: Settings) -> Iterator[Reach]:
    """Yields what a gateway with these settings will find when it has made its data directory. Raises
    ConfigurationError if its objects prevent it from starting."""
    from gateway.app.queue_managers.embedded import first_start

    queue_manager = first_start(settings, LocalClock())
    try:
        yield Reach(_local(queue_manager), running=False)
    finally:
        queue_manager.close()


def _answering(directory: Path) -> Reach | None:
    """Returns the gateway of this directory, if one answers."""
    try:
        there = remote(directory, StoreInUse(str(directory)))
        there.get("/me")
    except Refused:
        return None
    return there


def running_gateway(config: str | None, data: str | None) -> Reach:
    """Returns the running gateway, even if its settings have become invalid since it read them, provided that what says
    where it runs is valid: otherwise another gateway could be in that place. Raises Refused if none is running."""
    config = settings_file(config, data)
    settings, wrong = examine_settings(config, os.environ, {})
    if settings is None or (wrong and data is None and not settings.is_whole("queue_manager")):
        settings = read_settings(config, data)  # reports what is wrong, and ends the command
    if wrong:
        where = config or "the environment"
        click.echo(f"{where}: {counted(len(wrong), 'thing')} wrong in it, as `mqgate check` says; "
                   "the gateway that runs has read it before", err=True)  # fmt: skip
    directory = Path(data) if data else data_directory(settings)
    try:
        there = remote(directory, StoreInUse(f"no gateway is found in {directory}"))
        there.get("/me")
    except Refused as refused:
        if vars(refused)["exit_code"] != 3:  # it is running
            raise
        hint = "start it with `mqgate run`, or name its settings (-c FILE) or directory (--data)"
        raise Refused(f"{refused.message}: {hint}", 3) from refused
    return there


def _local(queue_manager: Any) -> Callable[[str, str, dict[str, str], dict[str, Any]], Any]:
    from gateway.queue_manager.inspection import Inspection

    dead = getattr(queue_manager, "dead_letter_queue", "SYSTEM.DEAD.LETTER.QUEUE")
    return _asking(Inspection(queue_manager), dead)


def _at_once(question: Callable[[], tuple[int, Any]], changes: bool) -> Any:
    del changes
    return question()[1]


def _asking(
    inspection: Inspects, dead: str, apart: Apart = _at_once
) -> Callable[[str, str, dict[str, str], dict[str, Any]], Any]:
    """Calls of the API's endpoints without a gateway."""
    from gateway.app.api.queues import queue_endpoints
    from gateway.net.calls import Call, Endpoint, Problem
    from gateway.ports.people import ADMINISTRATOR

    offered: list[Endpoint] = queue_endpoints(inspection)
    queues = len(offered)

    def ask(method: str, path: str, query: dict[str, str], body: dict[str, Any]) -> Any:
        from urllib.parse import unquote

        if path.startswith("/dlq") and len(offered) == queues:
            from gateway.app.api.dead_letters import dead_letter_endpoints

            offered.extend(dead_letter_endpoints(inspection, lambda: dead))
        for one in offered:
            match = one.pattern.match(path)
            if match is not None and one.method == method:
                arguments = {name: unquote(value) for name, value in match.groupdict().items()}
                call = Call(arguments, query, body, ADMINISTRATOR)
                try:
                    return apart(partial(one.handle, call), method != "GET")
                except Problem as problem:
                    raise Refused(str(problem), _code(problem.status), missing=problem.status == _MISSING) from problem
        raise Refused("this needs a running gateway: start mqgate run", 3)

    return ask


def _shared(directory: Path) -> str:
    """Returns how to ask a queue manager that does not belong to a gateway."""
    connection = f'"unix:{(directory / MQI_SOCKET).resolve()}"'
    settings = f"queue_manager: {{ibm: {{name: NAME, connection: {connection}, driver: ibmmq}}}}"
    return f"To ask a queue manager without a gateway (mqgate mqi serve), use -c FILE with `{settings}` in FILE"


def remote(directory: Path, busy: StoreInUse) -> Reach:
    """Returns the API of the gateway that has the directory open."""
    try:
        record = json.loads((directory / "gateway.json").read_text(encoding="utf-8"))
        if not _is_address(record):
            raise ValueError(f"{directory / 'gateway.json'} is not what a gateway writes: restart it")  # noqa: TRY301
        file = Path(record.get("token_file") or directory / "admin.token")
        token = file.read_text(encoding="utf-8-sig").split("\n", 1)[0].strip()
        base = record.get("admin")
        if not base:
            raise Refused(f"{busy}; its administration port is switched off", 3)
        tls = _trusting(base, record["certificate"]) if "certificate" in record else None
    except PermissionError:  # this is what is wrong, and not that there is no gateway
        raise
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, FileNotFoundError) and (directory / MQI_SOCKET).is_socket():
            raise Refused(f"{busy}. {_shared(directory)}", 3) from error
        raise Refused(f"{busy}; its administration port cannot be found ({error})", 3) from error

    # A proxy of the environment must not see what is on this machine, nor its token.
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=tls)
    )  # fmt: skip

    def ask(method: str, path: str, query: dict[str, str], body: dict[str, Any]) -> Any:
        url = f"{base}/api/v1{path}" + (f"?{urlencode(query)}" if query else "")
        data = json.dumps(body).encode() if method in {"POST", "PUT"} else None
        try:
            request = urllib.request.Request(url, data, {"Authorization": f"Bearer {token}"}, method=method)  # noqa: S310
            with opener.open(request, timeout=PATIENCE_SECONDS) as answer:  # the address is of our own file
                text = answer.read()
            return _object(text) if text else None
        except urllib.error.HTTPError as error:
            if error.code == _UNKNOWN:
                why = "if it was changed, SIGHUP makes the gateway read it again (systemctl reload mqgate)"
                raise Refused(f"the gateway at {base} does not accept the token in {file}: {why}") from error
            raise Refused(_detail(error), _code(error.code), missing=error.code == _MISSING) from error
        except TimeoutError as error:  # it has been asked
            more = "" if method == "GET" else "; it may still be carrying out the request: check before you try again"
            raise Refused(f"the gateway at {base} has not answered for {PATIENCE_SECONDS:.0f} s{more}", 3) from error
        except OSError as error:
            raise Refused(f"the gateway at {base} does not answer: {error}", 3) from error
        except (HTTPException, ValueError, RecursionError) as error:
            raise Refused(f"what answers at {base} is not a gateway ({type(error).__name__})", 3) from error

    return Reach(ask, running=True)


def _object(text: bytes) -> dict[str, Any]:
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError(f"it answers {text[:100]!r}")  # noqa: TRY004
    return found


def _is_address(record: Any) -> bool:
    """Whether a record is what a gateway writes into gateway.json."""
    if not isinstance(record, dict) or not isinstance(record.get("certificate", ""), str):
        return False
    admin, token = record.get("admin"), record.get("token_file")
    known = admin is None or (isinstance(admin, str) and admin.isprintable() and admin.startswith(("http:", "https:")))
    return known and (token is None or isinstance(token, str))


def _trusting(base: str, certificate: str) -> ssl.SSLContext:
    """Returns a TLS context that trusts the certificate which the gateway has recorded as its own, and no other, so its
    name and issuer do not matter. With an authority (`--ca`) it trusts what that has signed for this address; for the
    machine itself, which nobody else can answer for, under any name."""
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority = click.get_current_context().meta.get(_AUTHORITY)
    if authority is None:
        context.check_hostname = False
        context.load_verify_locations(cadata=certificate)
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        return context
    try:
        context.load_verify_locations(authority)
    except (OSError, ssl.SSLError) as error:
        raise Refused(f"--ca: {authority} has no certificates in PEM form ({error})", 2) from error
    context.check_hostname = urlsplit(base).hostname not in {"127.0.0.1", "::1", "localhost"}
    return context


def _code(status: int) -> int:
    """Returns the exit code for an HTTP status: 3 if the queue manager is away or silent."""
    return 3 if status in {503, 504} else 1


def _detail(error: urllib.error.HTTPError) -> str:
    try:
        answer = json.loads(error.read())
        found = [str(Finding(**one)) for one in answer.get("findings") or ()]
        detail = str(answer["detail"])
        if detail.startswith(_OF_ANOTHER_RELEASE):
            detail = f"the running gateway is of another release than this command: restart it ({detail})"
        return "\n".join([detail, *found])
    except (ValueError, KeyError, TypeError, AttributeError, OSError, HTTPException, RecursionError):
        return f"HTTP {error.code}"


def segment(text: str) -> str:
    """Returns the text percent-encoded as one segment of a path; also `.` and `..`, so that no proxy takes them for a
    folder."""
    return f";{text}" if text in {".", ".."} else quote(text, safe="")


def _keep_authority(context: click.Context, _option: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.meta[_AUTHORITY] = value


def authority_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option for the certificate authority that a command on the admin port trusts."""
    return click.option(
        "--ca", type=click.Path(dir_okay=False, exists=True), envvar="MQGATE_CA", expose_value=False,
        callback=_keep_authority,
        help="Certificate authority (PEM) of the admin port's certificate; without it, the running gateway's own "
        "certificate is trusted. Environment: MQGATE_CA.",
    )(command)  # fmt: skip


def common(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that every command on a queue manager has."""
    command = click.option("--json", "as_json", is_flag=True, help="Output as JSON.")(authority_option(command))
    command = click.option("--data", type=DATA_DIRECTORY, help="Directory of the embedded queue manager.")(command)
    return click.option("-c", "--config", type=click.Path(dir_okay=False), help="File of settings.")(command)


def json_text(value: object) -> str:
    """Returns a value as JSON, for programs."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def show_json(value: object) -> None:
    """Write a value as JSON."""
    click.echo(json_text(value))
