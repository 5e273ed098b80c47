"""JSON as an attacker sends it: lone surrogates as escapes and as bytes, constants that are none, deep and long values,
numbers beyond every type, keys that repeat, and text that is nearly JSON."""

from __future__ import annotations

import json

from hypothesis import strategies as st

_CHARACTERS = st.characters(codec=None, categories=None) | st.sampled_from(
    '\ud800\udfff\udc00\ud83d\u0000\u2028\x7f"\\{}[]/+#'
)
texts = st.text(_CHARACTERS, max_size=12)
_LEAVES = st.one_of(
    st.none(), st.booleans(), st.floats(), texts, st.integers(),
    st.sampled_from([10**18, -(2**63), 2**63, 2**64, 10**400, 1e308, -0.0, "x" * 3000, "1e999"]),
)  # fmt: skip
_BEFORE = [b"", b"\xef\xbb\xbf", b" ", b"\x00", b"\xff\xfe"]
_CODECS = ["utf-8", "utf-16", "utf-16-le", "utf-32", "utf-8-sig"]


def values(keys: st.SearchStrategy[str] = texts) -> st.SearchStrategy[object]:
    """Documents; most of their keys are among `keys`."""
    return st.recursive(
        _LEAVES,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys | texts, inner, max_size=5),
        max_leaves=15,
    )


@st.composite
def documents(draw: st.DrawFn, keys: st.SearchStrategy[str] = texts) -> bytes:
    """JSON text, or nearly."""
    if draw(st.integers(0, 19)) == 0:
        deep = draw(st.sampled_from([50, 200, 990, 1100, 3000]))
        return draw(st.sampled_from([b"[", b'{"t":', b'[{"a":'])) * deep + draw(
            st.sampled_from([b"", b"]" * deep, b"1" + b"}" * deep])
        )
    text = json.dumps(draw(values(keys)), ensure_ascii=draw(st.booleans()))
    raw = draw(st.sampled_from(_BEFORE)) + text.encode(draw(st.sampled_from(_CODECS)), "surrogatepass")
    if draw(st.integers(0, 3)) == 0:
        at = draw(st.integers(0, len(raw)))
        raw = (
            raw[:at]
            + draw(st.sampled_from([b"\\ud800", b"\xed\xa0\x80", b"NaN", b"1e999", b",", b'"', b"\x00", b"\\u12"]))
            + raw[at:]
        )
    return raw
