"""The compiled extensions: which are there, and which were built from other sources than those beside them."""

from __future__ import annotations

from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES

EXTENSIONS = {
    "gateway.broker.publish._fast": "publications of devices",
    "gateway.session._copies": "copies for subscribers",
    "gateway.net._wire": "sockets",
    "gateway.net._tls": "TLS",
    "gateway.net._frames": "WebSocket frames",
    "gateway.mqi._sockets": "sockets of MQI programs",
    "gateway.queue_manager.store._rows": "rows of the store",
    "gateway.pipeline.decode._parts": "headers and payloads of the pipeline",
    "gateway.backends.ibm._calls": "calls to IBM MQ",
}
"""By module: what each extension does; the list in pyproject.toml is the same."""


def missing() -> list[str]:
    """Returns what is done in Python because there was no compiler. Raises ImportError if an extension cannot be
    loaded."""
    found = []
    for module, part in EXTENSIONS.items():
        try:
            import_module(module)
        except ModuleNotFoundError:
            found.append(part)
    return found


def unusable(error: ImportError) -> bool:
    """Whether the error is an extension that could not be loaded; its text then says what to type."""
    return error.path is not None and error.path.endswith(tuple(EXTENSION_SUFFIXES))
