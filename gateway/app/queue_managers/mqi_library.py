"""The MQI library of this distribution, for a gateway whose queue manager is an embedded one in another process."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from gateway.errors import DriverUnavailable
from gateway.mqi.build import LIBRARY, BuildFailed, build

_LONGEST_NAME = 100
"""The longest name that is used; the name of a Unix socket has room for 107 bytes."""


def short_name(path: Path) -> Path:
    """Returns a name for the same socket that fits into its address, if there is one."""
    return Path(os.path.relpath(path)) if len(str(path)) > _LONGEST_NAME else path


def load_library() -> None:
    """Load the library for the whole process, so that ibmmq and pymqi find it by its name. It is compiled the first
    time; on a machine without a compiler it is the one made by `mqgate mqi build`, found by LD_LIBRARY_PATH. Raises
    DriverUnavailable if there is none."""
    try:
        name = str(build().library)
    except BuildFailed as error:
        name, why = LIBRARY, str(error)
    else:
        why = f"{name} cannot be loaded"
    try:
        ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
    except OSError:
        raise DriverUnavailable(
            f"the MQI library for a connection `unix:...` is missing: {why}; or make it with `mqgate mqi build --out "
            "DIR` on another machine and put DIR/lib64 in LD_LIBRARY_PATH"
        ) from None
