"""Ten minutes at full load: `python tests/bench/soak.py [--seconds 600]`, needs the load generator in C.

Ten publishers at QoS 1 with a hundred messages in flight each fill a queue as fast as they are let; a rule takes the
messages off again to a subscriber. Prints the gateway's memory (its own, and the journal's pages it has mapped, which
are the kernel's to take back), descriptors and disk as they go, and at the end by how much its own memory in the last
third exceeds that in the second: flat is 1.00.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

from gateways import RunningGateway  # noqa: E402
from servers import load_generator  # noqa: E402

FILES = {
    "map.yaml": """
version: 1
to_mq:
  - {name: in, topic: "dev/{device}/{kind}", queue: SOAK, properties: {device: "{device}", kind: "{kind}"},
     on_failure: {then: hold}}
to_mqtt:
  - {name: out, queue: SOAK, topic: "out/{usr.device}", qos: 0}
""",
    "objects.mqsc": "DEFINE QLOCAL(SOAK) MAXDEPTH(100000) REPLACE\n",
}
SETTINGS = """
mappings: [map.yaml]
mqtt: {max_inflight: 65535}
queue_manager: {embedded: {objects: objects.mqsc}}

"""


def state_of(gateway: RunningGateway) -> dict[str, float]:
    """Memory, descriptors, what is on disk and what has been taken in, now."""
    assert gateway.process
    process = Path("/proc") / str(gateway.process.pid)
    with urllib.request.urlopen(f"http://127.0.0.1:{gateway.admin}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    received = re.findall(r"^mqgate_mqtt_publish_received_total\S* (\S+)", text, re.MULTILINE)
    return {
        "own_mib": int(re.findall(r"RssAnon:\s+(\d+)", (process / "status").read_text())[0]) / 2**10,
        "mapped_mib": int(re.findall(r"RssFile:\s+(\d+)", (process / "status").read_text())[0]) / 2**10,
        "descriptors": len(list((process / "fd").iterdir())),
        "disk_mib": sum(path.stat().st_blocks for path in (gateway.directory / "data").rglob("*")) / 2**11,
        "received": sum(map(float, received)),
    }


def main() -> None:
    """Load, look, say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--every", type=int, default=10)
    given = parser.parse_args()
    tool = load_generator()
    if tool is None:
        raise SystemExit("the load generator in C is needed: set MQTTLOAD")
    with tempfile.TemporaryDirectory(prefix="mqgate-soak-", dir=os.environ.get("MQGATE_BENCH_DIR")) as name:
        gateway = RunningGateway(Path(name), settings=SETTINGS)
        for file, text in FILES.items():
            (gateway.directory / file).write_text(text)
        gateway.start()
        at = ["--port", str(gateway.port), "--seconds", str(given.seconds), "--max-seconds", str(given.seconds + 60)]
        load = [
            subprocess.Popen([tool, *words.split(), *at], stdout=subprocess.PIPE, text=True)
            for words in ("sub --subs 1 --filter out/# --qos 0", "pub --qos 1 --pubs 10 --window 100 --size 64")
        ]
        seen = []
        began = time.monotonic()
        while load[1].poll() is None and time.monotonic() - began < given.seconds - given.every:
            time.sleep(given.every)
            seen.append({"at": round(time.monotonic() - began), **state_of(gateway)})
            print(" ".join(f"{key}={value:,.0f}" for key, value in seen[-1].items()), flush=True)
        told = [process.communicate(timeout=120)[0] for process in load]
        gateway.kill()
    own = [one["own_mib"] for one in seen]
    third = len(own) // 3
    growth = statistics.mean(own[-third:]) / statistics.mean(own[third : 2 * third]) if third else 0.0
    print(json.dumps({"growth": round(growth, 3), "seen": seen[-1], "load": [json.loads(one) for one in told]}))


if __name__ == "__main__":
    main()
