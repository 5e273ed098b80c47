"""A module holds one thing and has up to 600 lines, whatever language it is written in."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MOST = 600
KINDS = {".py", ".pyi", ".c", ".h", ".js", ".css"}


def test_no_module_is_longer_than_a_reader_can_hold() -> None:
    lengths = {
        str(file.relative_to(ROOT)): len(file.read_text(encoding="utf-8").splitlines())
        for file in (ROOT / "gateway").rglob("*")
        if file.suffix in KINDS
    }
    assert len(lengths) > 500
    assert {name: length for name, length in lengths.items() if length > MOST} == {}
