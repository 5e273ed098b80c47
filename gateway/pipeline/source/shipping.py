"""The data source as one file for `spark-submit --py-files`: executors on other hosts need not have mqgate installed.

Python modules only; what they import from elsewhere (pyarrow, numpy, xxhash, pydantic, pyyaml) must be there. The same
sources give the same bytes, so that a cache of the cluster recognises the file.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[2]
AUTOLOAD = Path(__file__).parents[1] / "autoload"
EPOCH = (1980, 1, 1, 0, 0, 0)


def write_package(target: Path) -> int:
    """Write the file; how many modules are in it."""
    count = 0
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in modules():
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, path.read_bytes())
            count += 1
    return count


def modules() -> Iterator[tuple[str, Path]]:
    """Names in the file, and sources: the package, and at the top the one by which Spark finds the data source."""
    for root in (PACKAGE, AUTOLOAD):
        for path in sorted(root.rglob("*.py")):
            yield str(path.relative_to(root.parent if root is PACKAGE else root)), path
