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

from gateway.mq import chain, conversion, mqmd, rfh2, xqh
from gateway.mq.properties import properties_of

VALUES = {"site": "lima", "line": 7, "unit": "C", "on": True, "value": 21.5}
MD = mqmd.build(format="MQHRF2", coded_char_set_id=1208, persistence=1, put_appl_name="mqgate", msg_id=b"i" * 24)
FOLDERS = [rfh2.folder("mcd", {"Msd": "jms_bytes"}), rfh2.folder("usr", VALUES)]
RFH2 = rfh2.build(FOLDERS, format_name=b"MQSTR   ")
DATA = RFH2 + b"payload"
ON_QUEUE = mqmd.build(format="MQXMIT", coded_char_set_id=1208), xqh.build("REMOTE.Q", "QM2", MD) + DATA


def microseconds(call: Callable[[], object]) -> float:
    """The best of nine runs of 20 ms or so: the machine is shared."""
    number = max(1, int(0.02 / max(timeit.timeit(call, number=20) / 20, 1e-8)))
    return min(timeit.repeat(call, number=number, repeat=9)) / number * 1e6


def against_struct() -> None:
    """Templates and builders against one struct.pack of all the fields they stand for."""
    descriptor = struct.Struct("<4siiiiiii8sii24s24si48s48s12s32s32si28s8s8s4s24siiii")
    fields = descriptor.unpack(MD)
    head, tail = mqmd.split(MD, mqmd.MSG_ID)
    new_id = b"n" * 24
    header = struct.Struct(f"<4siiii8siii{len(RFH2) - 40}s")
    header_fields = header.unpack(RFH2)
    template = rfh2.build_template(FOLDERS[:1], "usr", dict(list(VALUES.items())[:4]), "n", format_name=b"MQSTR   ")
    names = [("site", "string"), ("line", "i4"), ("unit", "string"), ("on", "boolean"), ("value", "r8")]
    rows = rfh2.RowTemplate(FOLDERS[:1], "usr", names, format_name=b"MQSTR   ")
    packed_md, packed_rfh2 = (
        microseconds(lambda: descriptor.pack(*fields)),
        microseconds(lambda: header.pack(*header_fields)),
    )
    _row("MQMD struct.pack", packed_md, packed_md)
    _row("MQMD template, new MsgId", microseconds(lambda: head + new_id + tail), packed_md)
    _row("MQMD with_expiry", microseconds(lambda: mqmd.with_expiry(MD, 50)), packed_md)
    _row("MQMD build(5 fields)", microseconds(lambda: mqmd.build(format=b"MQSTR", expiry=5, persistence=1)), packed_md)
    _row("MQRFH2 struct.pack", packed_rfh2, packed_rfh2)
    _row("MQRFH2 template, one of 5 varies", microseconds(lambda: template.head + template.tails[77]), packed_rfh2)
    _row("MQRFH2 template, all 5 vary", microseconds(lambda: rows.build(b"lima", 7, b"C", 1, b"21.5")), packed_rfh2)
    _row(
        "MQRFH2 build from values",
        microseconds(lambda: rfh2.build([FOLDERS[0], rfh2.folder("usr", VALUES)])),
        packed_rfh2,
    )


def _row(name: str, cost: float, base: float) -> None:
    print(f"{name:36}{cost:9.3f} us{cost / base:9.2f} x")


def reading(*, with_ibmmq: bool) -> None:
    """MQXQH and MQRFH2 of one message read; 1 x is the structure classes of ibmmq."""
    base = microseconds(_ibmmq()) if with_ibmmq else float("nan")
    _row("read MQXQH+MQRFH2, ibmmq classes", base, base)
    _row("read MQXQH+MQRFH2, chain.walk", cost := microseconds(lambda: chain.walk(*ON_QUEUE)), base)
    print(f"{'':36}{base / cost:9.1f} times faster")
    _row(
        "read MQXQH+MQRFH2, xqh and rfh2",
        microseconds(lambda: (xqh.parse(ON_QUEUE[1]), rfh2.parse(ON_QUEUE[1], 428))),
        base,
    )
    _row("read MQMD, all fields", microseconds(lambda: mqmd.unpack(MD)), base)
    _row("read 6 properties", microseconds(lambda: properties_of(MD, DATA)), base)
    _row("describe the message", microseconds(lambda: chain.describe(*ON_QUEUE)), base)
    _row(
        "convert it to CCSID 500, 0x311",
        microseconds(lambda: conversion.convert(*ON_QUEUE, encoding=785, ccsid=500)),
        base,
    )


def _ibmmq() -> Callable[[], object]:
    sys.path.insert(0, str(Path(__file__).parents[1]))
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
