"""The calls that most programs make most of the time, read from a chunk in one step; in C (`_sockets.c`) where there
was a compiler at installation.

A program waits for each answer, so that a chunk nearly always is one whole frame: an MQPUT without message properties,
an MQGET or an MQCMIT. Whatever else a chunk is, is left to `wire.py`. The Python below gives the same answers; the
tests compare the two.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import Any

from gateway.mqi.wire import HEADER, LONGEST_FRAME, Verb

UsualCall = tuple[int, int, tuple[Any, ...]]
"""Verb, tag and fields. Fields of a put: handle, options, context, level, MQMD, data. Of a get: handle, options,
WaitInterval, MatchOptions, whether there is a message handle, length of the buffer, MsgToken, MQMD. A commit has
none."""
_PUT = struct.Struct("<4i364s2i")
_GET = struct.Struct("<7i16s364s")
_PUT_DATA = HEADER.size + _PUT.size
_GET_SIZE = HEADER.size + _GET.size


def usual_call_in_python(chunk: bytes, /) -> UsualCall | None:
    """Returns the call; None if the chunk is not exactly one whole frame of such a call."""
    size = len(chunk)
    if size < HEADER.size:
        return None
    length, verb, flags, tag = HEADER.unpack_from(chunk)
    if flags or length + 4 != size or length > LONGEST_FRAME:
        return None
    if verb == Verb.PUT and size >= _PUT_DATA:
        *fields, properties, data = _PUT.unpack_from(chunk, HEADER.size)
        if properties or data != size - _PUT_DATA:
            return None
        return verb, tag, (*fields, chunk[_PUT_DATA:])
    if verb == Verb.GET and size == _GET_SIZE:
        handle, options, wait, match, has_handle, _version, room, token, md = _GET.unpack_from(chunk, HEADER.size)
        return None if room < 0 else (verb, tag, (handle, options, wait, match, has_handle, room, token, md))
    if verb == Verb.COMMIT and size == HEADER.size:
        return verb, tag, ()
    return None


usual_call = usual_call_in_python
with suppress(ModuleNotFoundError):
    import gateway.mqi._sockets as compiled_sockets

    usual_call = compiled_sockets.usual_call
