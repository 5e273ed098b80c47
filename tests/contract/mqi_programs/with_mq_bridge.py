"""A program of a user of `mq-bridge`: batches put and got through the MQI. Prints what worked as JSON."""

import json
import sys
import traceback

from mq_bridge import Consumer, Message, Publisher

CONFIG = {
    "ibmmq": {
        "url": "localhost(1414)", "queue_manager": "QM1", "channel": "DEV.APP.SVRCONN", "queue": "APP.Q",
        "username": "app", "password": "pw", "wait_timeout_ms": 50,
    }
}  # fmt: skip


def batches():
    publisher = Publisher.from_config(CONFIG)
    publisher.send_batch([Message(b"%d" % number) for number in range(512)])
    consumer = Consumer.from_config(CONFIG)
    got = []
    for _ in range(4):  # it delivers whole batches of 256
        got += consumer.poll(timeout_ms=5000)
        consumer.commit()
        if len(got) >= 512:
            break
    consumer.close()
    assert len(got) == 512, len(got)


def main():
    try:
        batches()
        results = {"batches": "ok"}
    except Exception:  # noqa: BLE001  reported to the test
        results = {"batches": traceback.format_exc()}
    json.dump(results, sys.stdout)


main()
