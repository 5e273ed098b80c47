"""`python -m gateway.mqi.serve DIR`: an embedded queue manager behind the MQI socket, no gateway.

For developing and testing MQ programs without a gateway. DIR `:memory:` keeps nothing; the socket is then given with
`--socket`. Prints one line when it is ready and ends on SIGTERM or SIGINT.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from pathlib import Path

from gateway.mqi.server import MqiServer
from gateway.mqi.threads import ThreadScheduler
from gateway.queue_manager.embedded import EmbeddedQueueManager


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m gateway.mqi.serve", description=__doc__)
    parser.add_argument("directory", help="where the queue manager keeps its messages, or :memory:")
    parser.add_argument("--name", default="MQGATE", help="the queue manager's name")
    parser.add_argument("--socket", type=Path, help="default: mqi.sock in the directory")
    parser.add_argument("--objects", type=Path, help="MQSC commands to run at start")
    parser.add_argument("--user", action="append", default=[], metavar="NAME:PASSWORD", help="accepted users")
    parser.add_argument(
        "--administrator", action="append", default=[], metavar="NAME", help="needs no authority record"
    )
    parser.add_argument("--check-client", choices=("none", "optional", "required"), help="CHCKCLNT: passwords")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Serve until told to stop."""
    given = _arguments(argv)
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    directory = None if given.directory == ":memory:" else Path(given.directory)
    path: Path = given.socket or (directory or Path()) / "mqi.sock"
    objects = given.objects.read_text() if given.objects else ""
    users = dict(pair.split(":", 1) for pair in given.user)
    with ThreadScheduler() as scheduler:
        queue_manager = EmbeddedQueueManager.open(
            directory, given.name, scheduler, objects,
            users=users, administrators=given.administrator, check_client=given.check_client,
        )  # fmt: skip
        server = MqiServer(queue_manager, path)
        try:
            server.start()
            sys.stdout.write(f"{given.name} answers at {path}\n")
            sys.stdout.flush()
            stopped.wait()
        finally:
            server.stop()
            queue_manager.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
