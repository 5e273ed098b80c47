"""Host sets of East Asia, with characters of one and two bytes, against two other sources: the C library's iconv, and
ICU's uconv where it is installed."""

from __future__ import annotations

import shutil
import subprocess
from itertools import product

import pytest

from gateway.errors import MQError
from gateway.mq.character_sets import ccsid, host_sets

SETS = sorted(host_sets.CODECS)
SOURCES = [("iconv", "IBM{}", "UTF-8"), ("uconv", "ibm-{}", "utf-8")]


def every_pair(number: int) -> bytes:
    """All characters of two bytes, the ideographic space first."""
    return b"".join(code.to_bytes(2, "big") for code in sorted(host_sets.tables_of(number).double))


def every_single(number: int) -> bytes:
    """All characters of one byte but line ends, which sources have each in its own way."""
    table = host_sets.tables_of(number).single
    return bytes(byte for byte in range(256) if table[byte] != "\ufffe" and byte not in {0x15, 0x25})


def elsewhere(source: tuple[str, str, str], number: int, raw: bytes) -> str | None:
    """What another program makes of bytes; None: they are no characters there."""
    program, name, utf_8 = source
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    stops = ["--from-callback", "stop"] if program == "uconv" else []
    done = subprocess.run(
        [program, "-f", name.format(number), "-t", utf_8, *stops],
        input=raw,
        capture_output=True,
        timeout=60,
        check=False,
    )
    if done.returncode and not done.stdout and (b"not supported" in done.stderr or b"Couldn't open" in done.stderr):
        pytest.skip(f"{program} has no {name.format(number)} here")
    return done.stdout.decode() if done.returncode == 0 else None


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source[0])
@pytest.mark.parametrize("number", SETS)
def test_every_character_is_that_of_another_source(number, source):
    raw = every_single(number) + host_sets.SO + every_pair(number) + host_sets.SI
    theirs = elsewhere(source, number, raw)
    assert theirs is not None
    assert raw.decode(ccsid.codec_of(number)) == theirs


@pytest.mark.parametrize("number", SETS)
def test_what_is_no_character_here_is_none_elsewhere(number):
    double = host_sets.tables_of(number).double
    none = [pair for pair in product(range(0x41, 0xFF), repeat=2) if pair[0] << 8 | pair[1] not in double]
    for pair in none[:: max(1, len(none) // 5)]:
        raw = host_sets.SO + bytes(pair) + host_sets.SI
        assert elsewhere(SOURCES[0], number, raw) is None
        with pytest.raises(MQError) as refused:
            ccsid.converted(raw, ccsid.codec_of(number), "utf-8")
        assert refused.value.reason == 2119


@pytest.mark.parametrize("number", SETS)
def test_every_character_is_written_as_another_source_writes_it(number):
    text = "".join(one for one in host_sets.tables_of(number).double_of if len(one) == 1)
    theirs = subprocess.run(
        ["iconv", "-f", "UTF-8", "-t", f"IBM{number}"],
        input=text.encode(),
        capture_output=True,
        timeout=60,
        check=False,
    )
    if theirs.returncode:
        pytest.skip(f"iconv does not write IBM{number} here")
    assert text.encode(ccsid.codec_of(number)) == theirs.stdout


@pytest.mark.parametrize("number", SETS)
def test_every_character_comes_back_the_same(number):
    codec = ccsid.codec_of(number)
    singles, doubles = every_single(number).decode(codec), list(host_sets.tables_of(number).double.values())
    text = "".join(f"{char}{singles[at % len(singles)]}" for at, char in enumerate(doubles)) + "".join(doubles)
    assert text.encode(codec).decode(codec) == text


@pytest.mark.parametrize(
    ("number", "raw", "text"),
    [
        (930, "c1c20e448144820fc3", "ABあいC"),
        (939, "81820e456245660f", "ab日本"),
        (1399, "e10e42600f", "€−"),
        (933, "c10e88610fc2", "A가B"),
        (1364, "c10e88610fc2", "A가B"),
        (935, "c10e5bcf0fc2", "A中B"),
        (1388, "c10e5bcf0fc2", "A中B"),
        (937, "c10e4c410fc2", "A一B"),
        (1371, "c10e4c410fc2", "A一B"),
    ],
)
def test_known_texts(number, raw, text):
    codec = ccsid.codec_of(number)
    assert bytes.fromhex(raw).decode(codec) == text
    assert ccsid.converted(text.encode(), "utf-8", codec) == (bytes.fromhex(raw), 0)


def test_what_a_set_lacks_is_substituted_between_its_neighbours():
    codec = ccsid.codec_of(939)
    assert ccsid.converted("あ😀いa😀".encode(), "utf-8", codec) == (bytes.fromhex("0e44810f3f0e44820f813f"), 2)
    assert ccsid.converted("あい😀".encode(), "utf-8", codec) == (bytes.fromhex("0e448144820f3f"), 1)
    assert "あ😀".encode(codec, "ignore") == bytes.fromhex("0e44810f")


@pytest.mark.parametrize("raw", ["0e44", "0e448144", "0e41ff0f", "0f", "0e0e", "41"], ids=str)
def test_what_is_damaged_is_refused(raw):
    codec = ccsid.codec_of(939)
    with pytest.raises(MQError) as refused:
        ccsid.converted(bytes.fromhex(raw), codec, "utf-8")
    assert refused.value.reason == 2119
    assert bytes.fromhex(raw).decode(codec, "replace") != ""


def test_characters_that_end_with_the_data_need_no_shift_in():
    assert bytes.fromhex("0e4481").decode(ccsid.codec_of(939)) == "あ"


def test_new_lines_become_line_feeds():
    assert ccsid.converted(bytes.fromhex("81150e44810f"), "host_939", "utf-8") == ("a\nあ".encode(), 0)


@pytest.mark.parametrize("number", SETS)
def test_they_are_ebcdic_and_can_be_headers(number):
    codec = ccsid.codec_of(number)
    assert ccsid.is_ebcdic_codec(codec)
    assert ccsid.can_be_a_header(codec)
    assert not ccsid.is_single_byte(codec)
    assert "MQHRF2".encode(codec) == "MQHRF2".encode("cp500")
