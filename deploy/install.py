"""Installs the gateway into the environment of the Python that runs this: nothing but files whose hash is in the lock.

python deploy/install.py [--editable] [EXTRA ...]     the gateway with these extras
python deploy/install.py --wheels FOLDER [EXTRA ...]  wheels of it and of all it needs, for another place
python deploy/install.py --only NAME ... --target FOLDER   single packages of the lock, without what they need
python deploy/install.py --digest [EXTRA ...]         a digest of all that such an installation depends on

`deploy/requirements.lock` names every package of every extra with the hashes of its files, for each Python from 3.11
on; `deploy/lock` writes it anew from pyproject.toml. Packages that come as source are built with the locked setuptools,
because what a build fetches for itself is checked by nobody. MQGATE_UNLOCKED=1 installs what the index has today
instead. Needs nothing beyond the standard library.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "deploy" / "requirements.lock"
TOOLS = ("pip", "setuptools")
"""Installed first: an old pip does not check hashes that stand in a constraint."""


def locked(text: str) -> dict[str, str]:
    """Entry of each package, by normalised name; several where versions depend on Python's."""
    found: dict[str, str] = {}
    for entry in re.findall(r"^[A-Za-z0-9].*?(?=^[A-Za-z0-9#]|\Z)", text, re.MULTILINE | re.DOTALL):
        name = normal(entry.split("==", 1)[0])
        found[name] = found.get(name, "") + entry
    return found


def normal(name: str) -> str:
    """A package's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def extensions() -> dict[str, list[str]]:
    """The compiled extensions by module name, each with all its files: sources and headers."""
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    return {one["name"]: [*one["sources"], *one.get("depends", ())] for one in setuptools["ext-modules"]}


def digest(extras: list[str]) -> str:
    """Differs when the gateway has to be installed again: other extras, versions, C files or another compiler."""
    files = {"pyproject.toml", "deploy/requirements.lock", "deploy/install.py"}.union(*extensions().values())
    headers = Path(sysconfig.get_path("include"), "Python.h").exists()
    found = hashlib.sha256(repr((sorted(words(extras)), shutil.which("cc"), headers)).encode())
    for file in sorted(files):
        found.update(hashlib.sha256((ROOT / file).read_bytes()).digest())
    return found.hexdigest()[:16]


def remove_extensions() -> None:
    """Delete this Python's extensions in the checkout: setuptools keeps those it finds new enough or cannot compile."""
    for module in extensions():
        file = ROOT / (module.replace(".", "/") + sysconfig.get_config_var("EXT_SUFFIX"))
        file.unlink(missing_ok=True)


def wanted(extras: list[str]) -> list[str]:
    """What pyproject.toml asks for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    unknown = set(extras) - project["optional-dependencies"].keys()
    if unknown:
        sys.exit(f"there is no extra {', '.join(sorted(unknown))}: see pyproject.toml")
    return [*project["dependencies"], *(one for extra in extras for one in project["optional-dependencies"][extra])]


def words(extras: list[str]) -> list[str]:
    """`spark delta`, `spark,delta` and `[spark,delta]` are the same."""
    return re.findall(r"[\w-]+", " ".join(extras))


def pip(*arguments: str) -> None:
    """Run this environment's pip; its own words on failure, and ours about the lock."""
    command = [sys.executable, "-m", "pip", arguments[0], "-q", "--disable-pip-version-check", *arguments[1:]]
    quiet = {**os.environ, "PYTHONWARNINGS": "ignore"}  # setuptools explains editable installs at length
    if subprocess.run(command, check=False, env=quiet).returncode:
        sys.exit(
            "pip could not install what deploy/requirements.lock names. If it says that a hash is missing or wrong, "
            "the lock is older than pyproject.toml: run deploy/lock. MQGATE_UNLOCKED=1 installs without the lock."
        )


def from_lock(names: list[str], *more: str) -> None:
    """Install these entries of the lock themselves."""
    entries = locked(LOCK.read_text(encoding="utf-8"))
    missing = [name for name in names if normal(name) not in entries]
    if missing:
        sys.exit(f"deploy/requirements.lock does not name {', '.join(missing)}: run deploy/lock")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "requirements.txt")
        file.write_text("".join(entries[normal(name)] for name in names), encoding="utf-8")
        pip("install", "--require-hashes", "--no-deps", "--no-build-isolation", *more, "-r", str(file))


def tools() -> None:
    """The locked pip and setuptools, unless they are here."""
    entries = locked(LOCK.read_text(encoding="utf-8"))
    versions = {one.metadata["Name"]: one.version for one in metadata.distributions()}
    if any(f"=={versions.get(name)} " not in entries[name] for name in TOOLS):
        from_lock(list(TOOLS), "--only-binary", ":all:")


def install(extras: list[str], *, editable: bool, wheels: str | None) -> None:
    """The gateway and what it needs."""
    verb = ["install"] if wheels is None else ["wheel", "--wheel-dir", wheels]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "requirements.txt")
        file.write_text("\n".join(wanted(extras)) + "\n", encoding="utf-8")
        pip(*verb, "--require-hashes", "--no-build-isolation", "-c", str(LOCK), "-r", str(file))
    own = ["--editable", str(ROOT)] if editable else [str(ROOT)]
    if editable:
        remove_extensions()
    pip(*verb, "--no-deps", "--no-build-isolation", *own)


def unlocked(given: argparse.Namespace) -> None:
    """The same with what the index has today."""
    if given.only:
        pip("install", "--no-deps", *(["--target", given.target] if given.target else []), *given.only)
        return
    verb = ["install"] if given.wheels is None else ["wheel", "--wheel-dir", given.wheels]
    if given.editable:
        remove_extensions()
    extras = f"[{','.join(words(given.extras))}]"
    pip(*verb, *(["--editable"] if given.editable else []), f"{ROOT}{extras}")


def main() -> None:
    """Read the arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("extras", nargs="*", metavar="EXTRA")
    parser.add_argument("--editable", action="store_true")
    parser.add_argument("--wheels", metavar="FOLDER")
    parser.add_argument("--only", nargs="+", metavar="NAME")
    parser.add_argument("--target", metavar="FOLDER")
    parser.add_argument("--digest", action="store_true")
    given = parser.parse_args()
    if given.digest:
        print(digest(given.extras))
        return
    if os.environ.get("MQGATE_UNLOCKED"):
        print("MQGATE_UNLOCKED is set: versions and hashes are not those of deploy/requirements.lock", file=sys.stderr)
        unlocked(given)
        return
    tools()
    if given.only:
        from_lock(given.only, *(["--target", given.target] if given.target else []))
    else:
        install(words(given.extras), editable=given.editable, wheels=given.wheels)


if __name__ == "__main__":
    main()
