"""Looks for published advisories about what deploy/requirements.lock names, with pip-audit.

python deploy/audit.py              0: none known, or the advisories cannot be had here (it says which); 1: some are
python deploy/audit.py --strict     3 where they cannot be had: before a release
python deploy/audit.py --ignore ID  an advisory that was looked at and does not concern this use (may be repeated)

pip-audit itself calls it success when it could look nothing up. Here that is said in so many words.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from install import LOCK, locked


def audited(entries: list[str], ignored: list[str]) -> list[dict[str, Any]]:
    """What pip-audit says of each of these; empty when it could not ask at all."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "requirements.txt")
        file.write_text("".join(entries), encoding="utf-8")
        command = [sys.executable, "-m", "pip_audit", "--requirement", str(file), "--disable-pip", "--no-deps"]
        command += ["--format", "json", "--progress-spinner", "off", *(f"--ignore-vuln={one}" for one in ignored)]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    try:
        return list(json.loads(done.stdout)["dependencies"])
    except (ValueError, KeyError):
        return []


def verdict(answers: list[dict[str, Any]], *, strict: bool) -> tuple[int, list[str]]:
    """Exit code and lines to print."""
    unknown = [one["name"] for one in answers if "skip_reason" in one]
    lines = [
        f"{one['name']} {one['version']}: {each['id']}; fixed in {', '.join(each['fix_versions']) or 'no release yet'}"
        for one in answers
        for each in one.get("vulns", ())
    ]
    if lines:
        return 1, [*lines, "raise the version (deploy/lock --upgrade-package NAME) or say --ignore ID and why"]
    if len(unknown) == len(answers):
        return (3 if strict else 0), [
            "NOT CHECKED: advisories cannot be had here. Run it where the package index has them."
        ]
    if unknown:
        lines.append(f"not checked: {', '.join(unknown)}")
    return (3 if strict and unknown else 0), [
        *lines,
        f"no advisory is known about {len(answers) - len(unknown)} packages",
    ]


def main() -> int:
    """Ask about one package first: where that is in vain, the others are too."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strict", action="store_true")
    parser.add_argument("--ignore", action="append", default=[], metavar="ID")
    given = parser.parse_args()
    entries = locked(LOCK.read_text(encoding="utf-8"))
    answers = audited([entries["pip"]], given.ignore)
    if answers and "skip_reason" not in answers[0]:
        answers = audited(list(entries.values()), given.ignore)
    code, lines = verdict(answers, strict=given.strict)
    print("\n".join(lines))
    return code


if __name__ == "__main__":
    sys.exit(main())
