"""A device with paho-mqtt: readings of QoS 1, each acknowledged when it is committed; commands come back.

pip install paho-mqtt
python device.py --host gateway.plant.example [--port 8883 --ca ca.pem] [--user line-7 --password-file line-7.pw]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt

SITE, LINE = "lima", "7"


def client_of(given: argparse.Namespace) -> mqtt.Client:
    """A client that keeps its session: commands wait on the gateway while it is away."""
    client = mqtt.Client(
        mqtt.CallbackAPIVersion.VERSION2, client_id=f"line-{LINE}", protocol=mqtt.MQTTv311, clean_session=False
    )
    if given.user:
        client.username_pw_set(given.user, Path(given.password_file).read_text(encoding="utf-8").splitlines()[0])
    if given.ca:
        client.tls_set(given.ca)
    client.on_connect = connected
    client.on_message = commanded
    return client


def connected(client: mqtt.Client, _data: Any, _flags: Any, reason: Any, _properties: Any) -> None:
    """Subscribe again after each connection: what is there already is not harmed."""
    if reason.is_failure:
        sys.exit(f"the gateway refuses the connection: {reason}")
    client.subscribe(f"plant/{SITE}/cmd", qos=1)


def commanded(_client: mqtt.Client, _data: Any, message: mqtt.MQTTMessage) -> None:
    """What an application has put on the queue COMMANDS."""
    say(f"command on {message.topic}: {message.payload.decode()}")


def say(text: str) -> None:
    """A line in one piece: callbacks come on a thread of the library's own."""
    print(f"{text}\n", end="", flush=True)


def main() -> None:
    """Send the readings and end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=1883)
    parser.add_argument("--count", type=int, default=3, help="readings to send")
    parser.add_argument("--ca", help="PEM file of the authority that signed the gateway's certificate")
    parser.add_argument("--user")
    parser.add_argument("--password-file")
    given = parser.parse_args()
    client = client_of(given)
    client.connect(given.host, given.port)
    client.loop_start()
    for number in range(given.count):
        sent = client.publish(f"plant/{SITE}/line/{LINE}/temperature", f"{20 + number}.5", qos=1)
        sent.wait_for_publish(60)  # returns when PUBACK has come: the message is on its queue, on disk
        say(f"committed {20 + number}.5")
    client.disconnect()
    client.loop_stop()


if __name__ == "__main__":
    main()
