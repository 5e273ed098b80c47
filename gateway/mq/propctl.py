"""What a getter sees of a message's properties, according to the queue's PROPCTL and the options of the MQGET.

A pure function over a message whose properties are the MQRFH2 folders in front of its data (properties.py).
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import NamedTuple

from gateway.errors import MQError
from gateway.mq import mqmd, property_names
from gateway.mq.constants import (
    MQGMO_NO_PROPERTIES,
    MQGMO_PROPERTIES_COMPATIBILITY,
    MQGMO_PROPERTIES_FORCE_MQRFH2,
    MQGMO_PROPERTIES_IN_HANDLE,
    MQPROP_ALL,
    MQPROP_COMPATIBILITY,
    MQPROP_FORCE_MQRFH2,
    MQPROP_NONE,
)
from gateway.mq.headers import rfh2
from gateway.mq.headers.header import Header, redescribed
from gateway.mq.properties import Property, is_property_folder, leading_folders, leading_headers, properties_of

_HANDLE, _NOTHING, _RFH2, _COMPATIBLE = "handle", "nothing", "rfh2", "compatible"
_BY_OPTION = {
    MQGMO_PROPERTIES_IN_HANDLE: _HANDLE,
    MQGMO_NO_PROPERTIES: _NOTHING,
    MQGMO_PROPERTIES_FORCE_MQRFH2: _RFH2,
    MQGMO_PROPERTIES_COMPATIBILITY: _COMPATIBLE,
}
_BY_QUEUE = {
    MQPROP_NONE: _NOTHING,
    MQPROP_ALL: _RFH2,
    MQPROP_FORCE_MQRFH2: _RFH2,
    MQPROP_COMPATIBILITY: _COMPATIBLE,
}
_OPTIONS = sum(_BY_OPTION)
_NOT_EMPTY = re.compile(rb"<(\w+)(?:\s[^>]*)?>\s*<[^/]")


class Seen(NamedTuple):
    """A message as a getter gets it, and the properties that go into its message handle."""

    md: bytes
    data: bytes
    properties: list[Property]


def as_got(
    md: bytes, data: bytes, *, propctl: int = MQPROP_COMPATIBILITY, options: int = 0, handle: bool = False
) -> Seen:
    """Returns what MQGET with these MQGMO `options` gives on a queue with this PROPCTL (MQPROP_ values).

    `handle`: the call has a message handle. Asking for PROPERTIES_IN_HANDLE without one has to be refused with 2460 by
    the caller. An MQRFH2 whose folders cannot be read is message data: it is delivered as it is.
    """
    if md[mqmd.FORMAT] != rfh2.FORMAT:
        return Seen(md, data, [])
    form = _form(propctl, options & _OPTIONS, handle=handle)
    try:
        if form == _RFH2 or (form == _COMPATIBLE and is_compatible(md, data)):
            return Seen(md, data, [])
        held = properties_of(md, data) if form == _HANDLE else []
        return Seen(*without_properties(md, data), held)
    except MQError:
        return Seen(md, data, [])


def _form(propctl: int, option: int, *, handle: bool) -> str:
    if option:
        return _BY_OPTION[option]
    # As the queue says; a handle takes precedence over all but FORCE.
    return _HANDLE if handle and propctl != MQPROP_FORCE_MQRFH2 else _BY_QUEUE.get(propctl, _COMPATIBLE)


def for_version_6(md: bytes, data: bytes, *, propctl: int = MQPROP_COMPATIBILITY) -> tuple[bytes, bytes]:
    """Returns what a channel with this PROPCTL sends to a queue manager before version 7, where properties are message
    data."""
    seen = as_got(md, data, propctl=propctl)
    return seen.md, seen.data


def is_compatible(md: bytes, data: bytes) -> bool:
    """Whether a property is in mcd, jms, usr or mqext, so that old getters keep seeing the MQRFH2."""
    return any(_compatible(raw, header) for header in leading_headers(md, data) for raw in header.folders)


def _compatible(raw: bytes, header: rfh2.Rfh2) -> bool:
    """The same for one header, without parsing it: this is asked for every message got from a queue with the default
    PROPCTL."""
    if header.name_value_ccsid in {1200, 13488, 17584}:
        raw = raw.decode(rfh2.name_value_codec(header.name_value_ccsid, header.order), "replace").encode()
    match = _NOT_EMPTY.match(raw)
    return match is not None and match[1].decode("ascii", "replace") in property_names.COMPATIBLE_FOLDERS


def without_properties(md: bytes, data: bytes) -> tuple[bytes, bytes]:
    """Returns the message without its property folders. An MQRFH2 that held nothing else is removed from the chain, and
    what described it describes what followed it, each in its own byte order and character set."""
    folders = leading_folders(md, data)
    kept: list[Header] = []
    at = 0
    for whole, header, roots in zip(folders.chain, folders.headers, folders.roots, strict=True):
        at += header.length
        names = [is_property_folder(root) for root in roots]
        if names and all(names):
            if kept:
                kept[-1] = replace(kept[-1], raw=redescribed(kept[-1], whole.follows))
            else:
                md = mqmd.with_described(md, *whole.follows)
            continue
        others = [raw for raw, root in zip(_nonblank(header), roots, strict=True) if not is_property_folder(root)]
        kept.append(replace(whole, raw=rfh2.rebuilt(data, header, others)) if any(names) else whole)
    return md, b"".join([header.raw for header in kept]) + data[at:]


def _nonblank(header: rfh2.Rfh2) -> list[bytes]:
    codec = rfh2.name_value_codec(header.name_value_ccsid, header.order)
    return [raw for raw in header.folders if raw.decode(codec).rstrip(" \0")]
