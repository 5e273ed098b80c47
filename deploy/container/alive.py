"""Health check of the container: whether the gateway in it answers /livez, with TLS or without. It sends no secret, so
the certificate's name, which is not this address, does not matter."""

from __future__ import annotations

import http.client
import ssl
import sys
import urllib.request


def ask(url: str, *handlers: urllib.request.BaseHandler) -> None:
    """Without the proxy that the environment may name: it does not know this container."""
    urllib.request.build_opener(urllib.request.ProxyHandler({}), *handlers).open(url, timeout=1)


try:
    ask("http://127.0.0.1:9160/livez")
except (OSError, http.client.HTTPException) as plain:
    try:
        unchecked = ssl._create_unverified_context()  # noqa: S323, SLF001
        ask("https://127.0.0.1:9160/livez", urllib.request.HTTPSHandler(context=unchecked))
    except OSError as error:
        sys.exit(f"{plain}; {error}")
