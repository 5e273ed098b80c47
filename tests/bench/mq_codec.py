"""What MQ headers cost, as ratios: `python tests/bench/mq_codec.py [--ibmmq]`.

Building is compared with `struct.pack` of the same bytes; reading, with --ibmmq, with the structure classes of IBM's
package, which is installed into a cache and loaded beside the MQI library of this checkout on first use.
"""

from __future__ import annotations

import argparse
import struct
import sys
import timeit
from collections.abc import Callable
from pathlib import Path

from gateway.mq import conversion, mqmd
from gateway.mq.headers import chain, rfh2, xqh
from gateway.mq.properties import properties_of

VALUES = {"site": "lima", "line": 7, "unit": "C", "on": True, "value": 21.5}
MD = mqmd.build(format="MQHRF2", coded_char_set_id=1208, persistence=1, put_appl_name="mqgate", msg_id=b"i" * 24)
FOLDERS = [rfh2.folder("mcd", {"Msd": "jms_bytes"}), rfh2.folder("usr", VALUES)]
RFH2 = rfh2.build(FOLDERS, format_name=b"MQSTR   ")
DATA = RFH2 + b"payload"
ON_QUEUE = mqmd.build(format="MQXMIT", coded_char_set_id=1208), xqh.build("REMOTE.Q", "QM2", MD) + DATA


def side_by_side(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    """The best of thirty short runs of each, in turn: the machine is shared, ratios of one round are fair."""
    numbers = {
        name: max(1, int(0.004 / max(timeit.timeit(call, number=20) / 20, 1e-8))) for name, call in calls.items()
    }
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(30):
        for name, call in calls.items():
            best[name] = min(best[name], timeit.timeit(call, number=numbers[name]) / numbers[name] * 1e6)
    return best


def show(calls: dict[str, Callable[[], object]]) -> None:
    """A table; 1 x is the first row."""
    costs = side_by_side(calls)
    base = next(iter(costs.values()))
    for name, cost in costs.items():
        print(f"{name:36}{cost:9.3f} us{cost / base:9.3f} x{base / cost:9.1f} times faster")
    print()


def against_struct() -> None:
    """Templates and builders against one struct.pack of all the fields they stand for."""
    descriptor = struct.Struct("<4siiiiiii8sii24s24si48s48s12s32s32si28s8s8s4s24siiii")
    fields = descriptor.unpack(MD)
    head, tail = mqmd.split(MD, mqmd.MSG_ID)
    new_id = b"n" * 24
    header = struct.Struct(f"<4siiii8siii{len(RFH2) - 40}s")
    header_fields = header.unpack(RFH2)
    template = rfh2.build_template(FOLDERS[:1], "usr", dict(list(VALUES.items())[:4]), "n", format_name=b"MQSTR   ")
    show({
        "MQMD struct.pack": lambda: descriptor.pack(*fields),
        "MQMD template, new MsgId": lambda: head + new_id + tail,
        "MQMD with_expiry": lambda: mqmd.with_expiry(MD, 50),
        "MQMD build(3 fields)": lambda: mqmd.build(format=b"MQSTR", expiry=5, persistence=1),
    })  # fmt: skip
    show({
        "MQRFH2 struct.pack": lambda: header.pack(*header_fields),
        "MQRFH2 template, one of 5 varies": lambda: template.head + template.tails[77],
        "MQRFH2 build from values": lambda: rfh2.build([FOLDERS[0], rfh2.folder("usr", VALUES)]),
    })  # fmt: skip


def reading(*, with_ibmmq: bool) -> None:
    """MQXQH and MQRFH2 of one message read."""
    first = {"MQXQH+MQRFH2, ibmmq classes": _ibmmq()} if with_ibmmq else {}
    show({
        **first,
        "MQXQH+MQRFH2, chain.walk": lambda: chain.walk(*ON_QUEUE),
        "MQXQH+MQRFH2, xqh and rfh2": lambda: (xqh.parse(ON_QUEUE[1]), rfh2.parse(ON_QUEUE[1], 428)),
        "MQMD, all fields": lambda: mqmd.unpack(MD),
        "6 properties": lambda: properties_of(MD, DATA),
        "message in words": lambda: chain.describe(*ON_QUEUE),
        "message to CCSID 500, 0x311": lambda: conversion.convert(*ON_QUEUE, encoding=785, ccsid=500),
    })  # fmt: skip


def _ibmmq() -> Callable[[], object]:
    sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
    import mqi_clients

    mqi_clients.load_bindings()
    import ibmmq

    data = ON_QUEUE[1]

    def read() -> object:
        ibmmq.XQH().get_header(data)
        embedded = ibmmq.XQH().get_embedded_md(data)
        header = ibmmq.RFH2()
        header.unpack(data[428:], embedded.Encoding)
        return header

    return read


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--ibmmq", action="store_true")
    against_struct()
    reading(with_ibmmq=arguments.parse_args().ibmmq)
