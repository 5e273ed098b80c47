"""Payloads and headers in C are those that Arrow's functions make, of any bodies, also where they are cut columns."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

np = pytest.importorskip("numpy", reason="numpy is not installed: pip install '.[spark]'")
pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install '.[spark]'")

from gateway.pipeline.decode import message_parts  # noqa: E402

TAILS = st.one_of(
    st.builds(
        lambda number, pad: f"{number}</msgId></mqtt>{' ' * pad}".encode(), st.integers(0, 65535), st.integers(0, 3)
    ),
    st.sampled_from(
        [b"", b"</msgId></mqtt>", b" 7 </msgId></mqtt>0", b"7</msgId></mqtt", b"7</msgId></mqtt>x", b"\xff"]
    ),
)
BODIES = st.lists(st.tuples(TAILS, st.binary(max_size=12), st.integers(-2, 2)), min_size=1, max_size=12)
HEADS = st.lists(st.binary(max_size=9), min_size=1, max_size=4)


@pytest.fixture(autouse=True)
def compiled() -> None:
    if message_parts._compiled is None:
        assert not os.environ.get("CI"), "tests/run installs a compiler and Python's headers"
        pytest.skip("no compiler where the gateway was installed")


@given(BODIES, HEADS, st.randoms(use_true_random=False))
def test_the_same_as_with_arrow(bodies: list[tuple[bytes, bytes, int]], heads: list[bytes], dice: object) -> None:
    skips = np.array([max(0, len(tail) + (wrong if wrong == 2 else 0)) for tail, _, wrong in bodies], dtype=np.int64)
    column = pa.array([b"before", *[tail + rest for tail, rest, _ in bodies], b"after"], pa.binary())
    column = column.slice(1, len(bodies))
    mine, other = message_parts.payloads(column, skips), message_parts.payloads_by_arrow(column, skips)
    assert (mine is None) == (other is None)
    assert mine is None or mine.to_pylist() == other.to_pylist()
    numbers = np.array([dice.randrange(len(heads)) for _ in bodies], dtype=np.int32)  # type: ignore[attr-defined]
    of_heads = pa.array(heads, pa.binary())
    joined = message_parts.headers(of_heads, numbers, column, skips)
    joined.validate(full=True)
    assert joined.to_pylist() == message_parts.headers_by_arrow(of_heads, numbers, column, skips).to_pylist()


def test_columns_that_are_none_are_refused() -> None:
    parts = message_parts._compiled

    def numbers(*values: int, kind: str = "<i4") -> bytes:
        return np.array(values, dtype=kind).tobytes()

    one = numbers(0, kind="<i8")
    for bounds, skips in [
        (numbers(0, 4), one), (numbers(2, 1), one), (numbers(-1, 2), one), (b"\0\0\0", one), (b"", one),
        (numbers(0, 3), b""), (numbers(0, 3), numbers(-1, kind="<i8")),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match=r"ascend|bytes to skip"):
            parts.payloads(bounds, b"abc", skips)
        with pytest.raises(ValueError, match=r"ascend|bytes to skip"):
            parts.headers(numbers(0, 1), b"h", numbers(0), bounds, b"abc", skips)
    for of in (b"", numbers(1), numbers(-1), numbers(0, 0)):
        with pytest.raises(ValueError, match="number of a head"):
            parts.headers(numbers(0, 1), b"h", of, numbers(0, 3), b"abc", one)
