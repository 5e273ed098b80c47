"""WebSocket frames in Python and compiled: the same bytes, answers and faults, however they are cut."""

from __future__ import annotations

import os
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.net import frames
from gateway.net.frames import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, PythonFrames

COMPILED = frames.compiled()
TWINS = [
    pytest.param(PythonFrames, id="python"),
    pytest.param(
        frames.new_frames, id="compiled",
        marks=pytest.mark.skipif(not COMPILED, reason="no compiler where the gateway was installed"),
    ),
]  # fmt: skip
KEY = b"\x01\x80\xff\x5a"


def masked(data: bytes, kind: int = BINARY, *, final: bool = True, key: bytes = KEY) -> bytes:
    """A frame of a client."""
    length = len(data)
    if length < 126:
        size = bytes((0x80 | length,))
    elif length < 1 << 16:
        size = b"\xfe" + struct.pack("!H", length)
    else:
        size = b"\xff" + struct.pack("!Q", length)
    hidden = bytes(byte ^ key[at % 4] for at, byte in enumerate(data))
    return bytes((0x80 * final | kind,)) + size + key + hidden


def fed(make, pieces: list[bytes]) -> tuple[bytes, bytes, bool, str]:
    """Everything that comes of these pieces, fed one after the other."""
    one = make()
    payload, answers, over = b"", b"", False
    for piece in pieces:
        more, answer, over = one.feed(piece)
        payload += more
        answers += answer
    return payload, answers, over, one.fault


def test_it_is_compiled_where_it_should_be():
    assert COMPILED or not os.environ.get("CI"), "tests/run installs a compiler and Python's headers"


@pytest.mark.parametrize("make", TWINS)
class TestFrames:
    """Tests of both forms."""

    @pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 125, 126, 127, 65_535, 65_536, 100_000])
    def test_every_length_of_payload(self, make, length):
        data = os.urandom(length)
        assert fed(make, [masked(data)]) == (data, b"", False, "")

    def test_many_frames_in_a_chunk_and_fragments_are_one_stream(self, make):
        chunk = masked(b"ab") + masked(b"", final=False) + masked(b"cd", CONTINUATION, final=False)
        chunk += masked(b"?", PING) + masked(b"e", CONTINUATION) + masked(b"!", PONG) + masked(b"f")
        assert fed(make, [chunk]) == (b"abcdef", b"\x8a\x01?", False, "")

    def test_frames_cut_at_each_byte(self, make):
        chunk = masked(b"abc") + masked(b"hello", PING) + masked(bytes(200)) + masked(b"d", final=False)
        chunk += masked(b"", CONTINUATION) + masked(struct.pack("!H", 1000) + b"bye", CLOSE)
        whole = fed(make, [chunk])
        assert whole == (b"abc" + bytes(200) + b"d", b"\x8a\x05hello" + b"\x88\x05\x03\xe8bye", True, "")
        assert fed(make, [chunk[at : at + 1] for at in range(len(chunk))]) == whole
        for at in range(len(chunk)):
            assert fed(make, [chunk[:at], chunk[at:]]) == whole

    @pytest.mark.parametrize(("data", "code", "fault"), [
        (masked(b"text", TEXT), 1003, "MQTT needs binary frames"),
        (masked(b"", 3), 1002, "reserved"), (masked(b"", 11), 1002, "reserved"), (b"\xc2\x80" + KEY, 1002, "reserved"),
        (b"\x92\x80" + KEY, 1002, "reserved"), (b"\x82\x01a", 1002, "not masked"),
        (masked(bytes(126), PING), 1002, "control frame"), (masked(b"", PING, final=False), 1002, "control frame"),
        (masked(b"", CONTINUATION), 1002, "fragments"), (masked(b"", final=False) + masked(b""), 1002, "fragments"),
        (b"\x82\xfe\x00\x7d" + KEY, 1002, "minimal"), (b"\x82\xff" + struct.pack("!Q", 65_535) + KEY, 1002, "minimal"),
        (b"\x82\xff" + struct.pack("!Q", 1 << 63) + KEY, 1002, "minimal"),
        (masked(b"\x03", CLOSE), 1002, "close code"), (masked(b"\x03\xed", CLOSE), 1002, "close code"),
        (masked(b"\x03\xe7", CLOSE), 1002, "close code"), (masked(b"\x0b\xb7", CLOSE), 1002, "close code"),
        (masked(b"\x13\x88", CLOSE), 1002, "close code"), (masked(b"\x03\xe8\xff", CLOSE), 1007, "UTF-8"),
    ])  # fmt: skip
    def test_what_breaks_the_protocol_ends_the_connection(self, make, data, code, fault):
        one = make()
        payload, answer, over = one.feed(masked(b"before") + data + masked(b"behind"))
        assert payload == b"before"
        assert over
        assert answer[0] == 0x88
        assert struct.unpack_from("!H", answer, 2) == (code,)
        assert fault in one.fault
        assert one.feed(masked(b"more")) == (b"", b"", True)

    def test_a_close_is_answered_with_its_code_once(self, make):
        assert fed(make, [masked(b"", CLOSE) * 2]) == (b"", b"\x88\x00", True, "")
        assert fed(make, [masked(b"\x0f\xa0", CLOSE), masked(b"x")]) == (b"", b"\x88\x02\x0f\xa0", True, "")

    def test_only_bytes(self, make):
        with pytest.raises(TypeError):
            make().feed("text")

    def test_many_pings_are_all_answered(self, make):
        assert fed(make, [masked(bytes(125), PING) * 500])[1] == (b"\x8a\x7d" + bytes(125)) * 500


KINDS = st.sampled_from([BINARY, BINARY, BINARY, CONTINUATION, PING, PONG, CLOSE, TEXT, 3, 15])
FRAMES = st.builds(
    lambda data, kind, final, key: masked(data, kind, final=final, key=key),
    st.one_of(st.binary(max_size=20), st.integers(100, 140).map(bytes), st.just(bytes(65_536))),
    KINDS, st.booleans(), st.binary(min_size=4, max_size=4),
)  # fmt: skip


@pytest.mark.skipif(not COMPILED, reason="no compiler where the gateway was installed")
@given(st.lists(st.one_of(FRAMES, FRAMES, FRAMES, st.binary(max_size=12)), max_size=6), st.data())
def test_both_forms_are_the_same_however_the_bytes_are_cut(parts: list[bytes], data: st.DataObject) -> None:
    chunk = b"".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(chunk)), max_size=5)))
    pieces = [chunk[a:b] for a, b in zip([0, *cuts], [*cuts, len(chunk)], strict=True)]
    found = fed(PythonFrames, pieces)
    assert fed(frames.new_frames, pieces) == found
    assert fed(PythonFrames, [chunk]) == found


@pytest.mark.parametrize("make", TWINS)
@given(parts=st.lists(st.one_of(FRAMES, st.binary(max_size=300).map(masked), st.binary(max_size=12)), max_size=5))
def test_whole_frames_in_one_call_are_those_that_feed_takes(make, parts: list[bytes]) -> None:
    chunk = b"".join(parts)
    one, other = make(), make()
    payload = one.whole(chunk)
    if payload is None:
        assert one.feed(chunk) == other.feed(chunk), "nothing was taken"
    else:
        assert other.feed(chunk) == (payload, b"", False)


@pytest.mark.parametrize("make", TWINS)
def test_whole_frames_are_those_of_devices(make) -> None:
    one = make()
    for length in (2, 125, 126, 4000, 65_535):
        data = os.urandom(length)
        assert one.whole(masked(data)) == data
        assert one.whole(masked(data) * 3) == data * 3
        assert one.whole(masked(data)[:-1]) is None
    one.feed(masked(b"a", final=False))
    assert one.whole(masked(b"abc")) is None


@pytest.mark.parametrize("frame", [frames.frame_of, frames.frame])
@pytest.mark.parametrize("length", [0, 1, 125, 126, 65_535, 65_536])
def test_the_servers_frames(frame, length):
    data = bytes(length)
    made = frame(data)
    assert made.endswith(data)
    assert made[0] == 0x82
    head = len(made) - length
    assert head == (2 if length < 126 else 4 if length < 65_536 else 10)
    announced = made[1] if head == 2 else int.from_bytes(made[2:head], "big")
    assert announced == length
    assert frames.closing(1000) == b"\x88\x02\x03\xe8"
