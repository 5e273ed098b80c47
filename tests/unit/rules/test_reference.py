"""The reference pages are what the field lists and the shipped mappings make of them."""

from __future__ import annotations

import subprocess
import sys


def test_the_reference_pages_are_up_to_date():
    made = subprocess.run(
        [sys.executable, "docs/make_reference.py", "--check"], capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stderr
