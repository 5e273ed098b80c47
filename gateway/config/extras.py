"""How to install what is optional, in a form that works for this very installation: mqgate is on no package index."""

from __future__ import annotations

import re
import sys
from importlib import metadata
from pathlib import PurePath


def how_to_install(*extras: str) -> str:
    """The command that installs the packages of these extras of pyproject.toml."""
    try:
        asked = metadata.requires("mqgate") or []
    except metadata.PackageNotFoundError:
        asked = []
    packages = [text for text in (_needed(one, extras) for one in asked) if text]
    if not packages:
        return f"python deploy/install.py {' '.join(extras)}"
    return f"{PurePath(sys.prefix, 'bin', 'pip')} install {' '.join(packages)}"


def _needed(requirement: str, extras: tuple[str, ...]) -> str:
    """The requirement as a word of a shell command, if it belongs to one of the extras; otherwise empty."""
    package, _, marker = requirement.partition(";")
    named = re.search(r"""extra\s*==\s*["']([\w-]+)["']""", marker)
    if named is None or named[1] not in extras:
        return ""
    wanted = package.replace(" ", "").strip()
    return f"'{wanted}'" if re.search(r"[<>=!~\[]", wanted) else wanted
