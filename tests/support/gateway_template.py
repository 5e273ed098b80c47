"""Gateways and commands that begin as copies of a process that has imported their modules: `launch` takes what `Popen`
takes, `run` waits for the end.

Most of what a start costs is the import of a thousand modules, a second of processor time, and the tests start some
thousand gateways. What a copy runs is what `python -m gateway` runs, from its first line, or a test's own program that
changes the gateway's modules after they are loaded. What a process reads before that, its own environment has to be
equal in: for each `BEFORE` there is a template of its own, from the second start.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

TREE = str(Path(__file__).parents[2])
"""The tree whose gateway is started, whatever package is installed."""
BEFORE = ("PYTHON", "LD_", "MALLOC_", "GLIBC_", "OPENSSL_", "SSL_")
"""What the loader, the interpreter and modules read while they are loaded."""
FAILPOINTS = ("gateway.queue_manager.journal.failpoint", "gateway.pipeline.failpoint")
"""Modules that read the environment while they are loaded, and only they refer to what they have read."""
MOST_TEMPLATES = 3
MODULES = (
    "gateway.cli.main", "gateway.cli.run", "gateway.app.files.named_files", "gateway.app.gateway",
    "gateway.app.mappings", "gateway.app.queue_managers.ibm", "gateway.observe.logs", "twisted.internet.task",
)  # fmt: skip
Key = tuple[tuple[str, str], ...]


def _may_watch() -> bool:
    """Whether the end of a process that is not a child can be waited for: some containers do not allow it."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        return False
    return True


POSSIBLE = _may_watch()
_templates: dict[Key, Template] = {}
_starts: Counter[Key] = Counter()
_lock = threading.Lock()


def of_this_tree(env: Mapping[str, str]) -> dict[str, str]:
    """The environment with the tree in front, written as in all others: they share a template."""
    others = [one for one in env.get("PYTHONPATH", "").split(os.pathsep) if one and one != TREE]
    return {**env, "PYTHONPATH": os.pathsep.join([TREE, *others])}


def run(
    *words: str | Path, text: str = "", env: Mapping[str, str] | None = None, cwd: Path | None = None,
    timeout: float = 120,
) -> subprocess.CompletedProcess[str]:  # fmt: skip
    """`mqgate ...` to its end, which reads `text`, with what it wrote."""
    command = [sys.executable, "-m", "gateway", *map(str, words)]
    with TemporaryFile() as stdin, TemporaryFile() as stdout, TemporaryFile() as stderr:
        stdin.write(text.encode())
        stdin.seek(0)
        environ, folder = of_this_tree(os.environ if env is None else env), Path.cwd() if cwd is None else cwd
        process = launch(command, stdin=stdin, stdout=stdout, stderr=stderr, env=environ, cwd=folder)
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        said = []
        for file in (stdout, stderr):
            file.seek(0)
            said.append(file.read().decode())
    return subprocess.CompletedProcess(command, code, *said)


def launch(
    command: list[str], *, stdout: IO[bytes], stderr: IO[bytes], env: Mapping[str, str], cwd: Path,
    stdin: IO[bytes] | None = None,
) -> subprocess.Popen[bytes]:  # fmt: skip
    """`python -m gateway ...` or `python program.py ...`, its output in these files."""
    key = tuple(sorted(one for one in env.items() if one[0].startswith(BEFORE)))
    with _lock:
        _starts[key] += 1
        ours = command[1:3] == ["-m", "gateway"] or command[1].endswith(".py")
        usual = POSSIBLE and ours and command[0] == sys.executable
        if usual and _starts[key] > 1 and (key in _templates or len(_templates) < MOST_TEMPLATES):
            if key not in _templates:
                _templates[key] = Template(env)
            return _templates[key].copy(command, [stdout, stderr, *([stdin] if stdin else [])], env, cwd)
    return subprocess.Popen(command, stdin=stdin, stdout=stdout, stderr=stderr, env=env, cwd=cwd)


class Template:
    """The process that is copied. It ends when the one that made it has ended."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, __file__, str(theirs.fileno())]
            self._process = subprocess.Popen(command, env=dict(env), pass_fds=[theirs.fileno()])
        atexit.register(self.close)

    def close(self) -> None:
        """End it; what it has made goes on."""
        self._socket.close()
        self._process.wait()

    def copy(self, command: list[str], files: list[IO[bytes]], env: Mapping[str, str], cwd: Path) -> Copy:
        """A gateway, or another command."""
        ended, tell = os.pipe()
        asked = json.dumps({"words": command[1:], "environment": dict(env), "folder": str(cwd)})
        socket.send_fds(self._socket, [asked.encode()], [*(file.fileno() for file in files), tell])
        os.close(tell)
        return Copy(command, int(self._socket.recv(100)), ended)


class Copy(subprocess.Popen[bytes]):
    """A process that is not our child: the template waits for it, and says how it has ended."""

    def __init__(self, command: list[str], pid: int, ended: int) -> None:
        self.args, self.pid = command, pid
        self.returncode = None  # type: ignore[assignment]
        self.stdin = self.stdout = self.stderr = None
        self._ended = selectors.PollSelector()
        self._status = os.fdopen(ended, "rb", buffering=0)
        self._ended.register(self._status, selectors.EVENT_READ)
        self._one = threading.Lock()

    def poll(self) -> int | None:
        return self._after(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._after(timeout)
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        return code

    def _after(self, seconds: float | None) -> int | None:
        with self._one:
            if self.returncode is None and self._ended.select(seconds):
                self.returncode = os.waitstatus_to_exitcode(int(self._status.read() or b"9"))
                self._ended.close()
                self._status.close()
            return self.returncode

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, sig)

    def __del__(self, *_: Any) -> None:
        if self.returncode is None:
            self._ended.close()
            self._status.close()


def serve(asking: socket.socket) -> list[str] | None:
    """Make copies until nobody asks any more (None). In a copy: its words."""
    waiting = selectors.DefaultSelector()
    waiting.register(asking, selectors.EVENT_READ)
    while True:
        for key, _ in waiting.select():
            if key.fileobj is not asking:
                _tell(key, waiting)
                continue
            message, files, _, _ = socket.recv_fds(asking, 1 << 20, 4)
            if not message:
                return None
            pid = os.fork()
            if not pid:
                waiting.close()
                asking.close()
                return _become(json.loads(message), files[:-1])
            asking.send(b"%d" % pid)
            *others, tell = files
            for file in others:
                os.close(file)
            waiting.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, tell))


def _tell(key: selectors.SelectorKey, waiting: selectors.BaseSelector) -> None:
    pid, told = key.data
    waiting.unregister(key.fileobj)
    os.close(key.fd)
    status = os.waitpid(pid, 0)[1]
    with suppress(BrokenPipeError):  # nobody wants to know
        os.write(told, b"%d" % status)
    os.close(told)


def _become(asked: dict[str, Any], files: list[int]) -> list[str]:
    """What a new process has: its output, what it reads, its folder, its environment, no other file."""
    for number, file in zip((1, 2, 0), files, strict=False):
        os.dup2(file, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    for name in FAILPOINTS:
        importlib.reload(sys.modules[name])
    time.tzset()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return list(asked["words"])


def main() -> None:
    """The template, and in a copy the gateway."""
    from importlib import import_module
    from runpy import run_module, run_path

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asking = socket.socket(fileno=int(sys.argv[1]))
    for module in MODULES:
        import_module(module)
    settings = import_module("gateway.config.load").load_settings(None, {}, {})
    import_module("gateway.app.mappings").read_table(settings)
    gc.collect()
    gc.freeze()  # what a copy's collector looks at becomes its own, page by page
    assert threading.active_count() == 1
    words = serve(asking)
    if words is None:
        return
    if words[0] == "-m":
        sys.argv = words[1:]
        sys.path[0] = str(Path.cwd())
        run_module("gateway", run_name="__main__", alter_sys=True)
    else:
        sys.argv = words
        sys.path[0] = str(Path(words[0]).parent)
        run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    main()
