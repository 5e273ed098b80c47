"""WebSocket frames on the server's side (RFC 6455, section 5); compiled where there was a compiler at installation.

MQTT is a stream of bytes whatever frames it comes in [MQTT-6.0.0-2]: the payload of binary frames is passed on as it
arrives, not only when a frame or a message is complete, so that no frame is kept. Bytes in, bytes out; no I/O.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
MOST_CONTROL = 125
"""The most bytes in a control frame (section 5.5)."""
PROTOCOL_ERROR, UNSUPPORTED, NOT_UTF_8 = 1002, 1003, 1007

_HEADS = [bytes((0x80 | BINARY, length)) for length in range(126)]


def frame_of(data: bytes, kind: int = BINARY) -> bytes:
    """One frame from the server, whose frames are never masked (5.1)."""
    length = len(data)
    if length < 126:
        return (_HEADS[length] if kind == BINARY else bytes((0x80 | kind, length))) + data
    if length < 1 << 16:
        return bytes((0x80 | kind, 126)) + length.to_bytes(2, "big") + data
    return bytes((0x80 | kind, 127)) + length.to_bytes(8, "big") + data


def closing(code: int, reason: bytes = b"") -> bytes:
    """A Close frame."""
    return frame_of(code.to_bytes(2, "big") + reason, CLOSE)


class _End(Exception):
    """Raised when the connection is over; has what the Close frame says."""


class Frames(Protocol):
    """Reads the frames that one client sends."""

    @property
    def fault(self) -> str:
        """What the client did wrong, if the connection is over because of that; otherwise empty."""

    def feed(self, data: bytes, /) -> tuple[bytes, bytes, bool]:
        """(payload, frames to send, whether the connection is over). What follows the end is ignored."""

    def whole(self, data: bytes, /) -> bytes | None:
        """The payload of data that consists only of whole binary frames, as nearly all data does; None: `feed` has to
        read it."""


class PythonFrames:
    """`Frames` in Python."""

    __slots__ = ("_control", "_fragmented", "_head", "_key", "_kind", "_left", "_over", "fault")

    def __init__(self) -> None:
        self._head = b""
        """The beginning of a frame whose head is incomplete."""
        self._kind = CONTINUATION
        self._left = -1
        """How many bytes of the frame's payload are still to come; -1: its head is to come."""
        self._key = b""
        """The masking key, rotated to the position of the next byte."""
        self._control = b""
        self._fragmented = False
        self._over = False
        self.fault = ""

    def feed(self, data: bytes, /) -> tuple[bytes, bytes, bool]:
        """(payload, frames to send, whether the connection is over)."""
        payload: list[bytes] = []
        answers: list[bytes] = []
        if self._head:
            data, self._head = self._head + data, b""
        at, end = 0, len(data)
        try:
            while at < end and not self._over:
                if self._left < 0:
                    size = self._begin(data, at)
                    if not size:
                        self._head = data[at:]
                        break
                    at += size
                piece = data[at : at + self._left]
                at += len(piece)
                self._left -= len(piece)
                if self._kind >= CLOSE:
                    self._control += self._unmasked(piece)
                    if not self._left:
                        self._end_control(answers)
                elif piece:
                    payload.append(self._unmasked(piece))
                if not self._left:
                    self._left = -1
        except _End as error:
            code, self.fault = error.args
            self._over = True
            answers.append(closing(code, self.fault.encode()))
        return b"".join(payload), b"".join(answers), self._over

    def whole(self, data: bytes, /) -> bytes | None:
        """The payload of data that consists only of whole binary frames; None: `feed` has to read it."""
        if self._left >= 0 or self._head or self._fragmented or self._over:
            return None
        payload: list[bytes] = []
        at, end = 0, len(data)
        while at < end:
            if end - at < 8 or data[at] != 0x80 | BINARY or data[at + 1] < 0x80:
                return None
            length, begin = data[at + 1] & 0x7F, at + 6
            if length == 126:
                length, begin = int.from_bytes(data[at + 2 : at + 4], "big"), at + 8
            if length > end - begin or (length < 126) is not (begin == at + 6) or length == 127:
                return None
            self._key = data[begin - 4 : begin]
            payload.append(self._unmasked(data[begin : begin + length]))
            at = begin + length
        return payload[0] if len(payload) == 1 else b"".join(payload)

    def _begin(self, data: bytes, at: int) -> int:
        """Read the head of a frame; returns its length, or 0 if it is incomplete."""
        if len(data) - at < 2:
            return 0
        first, second = data[at], data[at + 1]
        kind, final, short = first & 15, first & 0x80, second & 0x7F
        self._check(first, kind, second)
        extended = 2 if short == 126 else 8 if short == 127 else 0
        size = 2 + extended + 4
        if len(data) - at < size:
            return 0
        length = short
        if extended:
            length = int.from_bytes(data[at + 2 : at + 2 + extended], "big")
            if length < (126 if extended == 2 else 1 << 16) or length >> 63:  # 5.2: as short as can be
                raise _End(PROTOCOL_ERROR, "a length that is not minimal")
        if kind < CLOSE:
            self._fragmented = not final
        self._kind, self._left, self._control = kind, length, b""
        self._key = data[at + size - 4 : at + size]
        return size

    def _check(self, first: int, kind: int, second: int) -> None:
        if kind == TEXT:  # [MQTT-6.0.0-1]
            raise _End(UNSUPPORTED, "MQTT needs binary frames")
        if first & 0x70 or kind not in {CONTINUATION, BINARY, CLOSE, PING, PONG}:
            raise _End(PROTOCOL_ERROR, "reserved bits or an unknown kind of frame")
        if not second & 0x80:
            raise _End(PROTOCOL_ERROR, "a frame that is not masked")
        if kind >= CLOSE and (not first & 0x80 or second & 0x7F > MOST_CONTROL):
            raise _End(PROTOCOL_ERROR, "a control frame that is too long or fragmented")
        if kind < CLOSE and (kind == CONTINUATION) is not self._fragmented:
            raise _End(PROTOCOL_ERROR, "fragments that do not belong together")

    def _unmasked(self, piece: bytes) -> bytes:
        length = len(piece)
        key = (self._key * (length // 4 + 2))[: length + 4]
        self._key = key[length:]
        masked = int.from_bytes(piece, "little") ^ int.from_bytes(key[:length], "little")
        return masked.to_bytes(length, "little")

    def _end_control(self, answers: list[bytes]) -> None:
        if self._kind == PING:
            answers.append(frame_of(self._control, PONG))
        elif self._kind == CLOSE:
            _check_close(self._control)
            answers.append(frame_of(self._control, CLOSE))
            self._over = True


def _check_close(payload: bytes) -> None:
    """Check what a Close frame says (7.4). Raises _End."""
    if not payload:
        return
    code = int.from_bytes(payload[:2], "big") if len(payload) > 1 else 0
    if not (1000 <= code <= 1003 or 1007 <= code <= 1014 or 3000 <= code <= 4999):
        raise _End(PROTOCOL_ERROR, "a close code that may not be sent")
    try:
        payload[2:].decode()
    except UnicodeDecodeError:
        raise _End(NOT_UTF_8, "a reason that is not UTF-8") from None


new_frames: Callable[[], Frames] = PythonFrames
"""Makes the frames of a new connection."""
frame: Callable[[bytes], bytes] = frame_of
"""One binary frame with these bytes."""
with suppress(ModuleNotFoundError):
    import gateway.net._frames as compiled_frames

    new_frames, frame = compiled_frames.Frames, compiled_frames.frame


def compiled() -> bool:
    """Whether the compiled form is used."""
    return new_frames is not PythonFrames
