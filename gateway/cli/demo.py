"""`mqgate demo`: simulated devices on a gateway, with a live summary; it ends by itself."""

from __future__ import annotations

import contextlib
import http.client
import json
import math
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import click
from rich.console import Console
from rich.live import Live
from rich.table import Table

from gateway.cli.numbers import PORT, SECONDS
from gateway.errors import MqgateError
from gateway.net.device import Device

SITES = ("lima", "oslo", "pune", "turin")


@dataclass
class Tally:
    """What the devices have observed; lists are only appended to."""

    acknowledged: dict[int, int] = field(default_factory=lambda: {0: 0, 1: 0, 2: 0})
    latencies: list[float] = field(default_factory=list)
    commands: int = 0
    errors: list[str] = field(default_factory=list)


@click.command()
@click.option("--devices", default=20, show_default=True, type=click.IntRange(1, 500), help="Simulated devices.")
@click.option("--seconds", type=SECONDS, default=10.0, show_default=True, help="Duration in seconds.")
@click.option("--port", type=PORT, help="Use the gateway that listens on this port, instead of starting one.")
@click.option("--admin-port", type=PORT, default=9160, show_default=True, help="Its admin port, with --port.")
@click.option("--stay", is_flag=True, help="Keep the gateway with its queues until Ctrl-C, for a look at its page.")
def demo(devices: int, seconds: float, port: int | None, admin_port: int, stay: bool) -> None:
    """Run simulated devices with a live summary of messages, queues and latencies."""
    console = Console()
    if port is not None:
        show(console, port, admin_port, devices, seconds)
        return
    with tempfile.TemporaryDirectory(prefix="mqgate-demo-") as directory, gateway_at(directory) as (mqtt, admin):
        console.print(f"A gateway with its embedded queue manager is up: MQTT on {mqtt}, admin on {admin}.")
        token = Path(directory, "admin.token").read_text(encoding="utf-8").strip()
        console.print(f"Its page: http://127.0.0.1:{admin}/admin/   token: {token}", soft_wrap=True)
        show(console, mqtt, admin, devices, seconds)
        if stay:
            console.print(f"It keeps running until Ctrl-C. mqgate queue list --data {directory}", soft_wrap=True)
            with contextlib.suppress(KeyboardInterrupt):
                threading.Event().wait()


@contextmanager
def gateway_at(directory: str) -> Iterator[tuple[int, int]]:
    """Run a gateway on free ports for as long as the demonstration takes; yields the ports."""
    command = [sys.executable, "-m", "gateway", "run", "--port", "0", "--admin-port", "0", "--data", directory]
    with Path(directory, "log").open("w+") as log:
        process = subprocess.Popen(command, stderr=log, stdout=log)  # noqa: S603 -- our own program
        try:
            yield wait_for_ports(process, Path(directory, "log"))
        finally:
            process.terminate()
            process.wait(20)


def wait_for_ports(process: subprocess.Popen[bytes], log: Path) -> tuple[int, int]:
    """Returns the ports on which the gateway says it listens."""
    for _ in range(600):
        text = log.read_text()
        mqtt = re.search(r"MQTT on [^\"]*?:(\d+)", text)
        admin = re.search(r"admin on [^\"]*?:(\d+)", text)
        if mqtt and admin and '"started"' in text:
            return int(mqtt[1]), int(admin[1])
        if process.poll() is not None:
            break
        time.sleep(0.1)
    raise click.ClickException(f"the gateway did not start:\n{log.read_text()[-2000:]}")


def show(console: Console, port: int, admin_port: int, devices: int, seconds: float) -> None:
    """Run the devices, keep the summary up to date, and end with it."""
    tally, until = Tally(), time.monotonic() + seconds
    threads = [
        threading.Thread(target=run_device, args=(port, number, until, tally), daemon=True) for number in range(devices)
    ]
    for thread in threads:
        thread.start()
    with Live(console=console, refresh_per_second=4, transient=False) as live:
        while any(thread.is_alive() for thread in threads):
            live.update(summary(tally, admin_port, max(0.0, until - time.monotonic())))
            time.sleep(0.25)
        live.update(summary(tally, admin_port, 0.0))
    for error in sorted(set(tally.errors)):
        console.print(f"[red]{error}[/red]")
    if tally.errors:
        sys.exit(1)
    console.print("\nEvery QoS 1 and 2 message above was committed before its acknowledgement.")


def run_device(port: int, number: int, until: float, tally: Tally) -> None:
    """Run one device: a line of a plant that reports its temperature, at QoS 0, 1 and 2 in turn."""
    site = SITES[number % len(SITES)]
    topic = f"plant/{site}/line/{number}/temperature"
    try:
        with Device("127.0.0.1", port, f"demo-{site}-{number}", version=(3, 4, 5)[number % 3]) as device:
            refused = device.connect()
            if refused:
                tally.errors.append(f"device {number}: the gateway refused the connection ({refused})")
                return
            sent = 0
            while time.monotonic() < until:
                qos = (1, 1, 2, 0)[sent % 4]
                value = 20 + 5 * math.sin(sent / 20 + number)
                took = device.publish(topic, json.dumps({"celsius": round(value, 2), "n": sent}).encode(), qos)
                tally.acknowledged[qos] += 1
                if qos:
                    tally.latencies.append(took)
                sent += 1
                time.sleep(0.005)
    except (OSError, MqgateError) as error:
        tally.errors.append(f"device {number}: {error}")


def summary(tally: Tally, admin_port: int, left: float) -> Table:
    """Returns the summary as a table."""
    recent = sorted(tally.latencies[-2000:])
    table = Table(title=f"simulated devices, {left:.0f} s left" if left else "simulated devices: done")
    table.add_column("what")
    table.add_column("figure", justify="right")
    for qos in (0, 1, 2):
        table.add_row(f"QoS {qos} {'sent' if not qos else 'acknowledged'}", f"{tally.acknowledged[qos]:,}")
    if recent:
        for name, share in (("median", 0.5), ("99 %", 0.99)):
            table.add_row(f"acknowledged within ({name})", f"{recent[int(share * (len(recent) - 1))] * 1000:.2f} ms")
    for queue, depth in depths(admin_port):
        table.add_row(f"on queue {queue}", f"{depth:,}")
    return table


def depths(admin_port: int) -> list[tuple[str, int]]:
    """Returns queue depths from the gateway's own metrics."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # no proxy is between this machine and itself
    try:
        with opener.open(f"http://127.0.0.1:{admin_port}/metrics", timeout=2) as answer:
            text = answer.read().decode()
    except (OSError, http.client.HTTPException):  # no admin port, or one with TLS
        return []
    found = re.findall(r'^mqgate_queue_depth\{queue="([^"]+)"\} (\S+)', text, re.MULTILINE)
    return [(name, int(float(value))) for name, value in found]
