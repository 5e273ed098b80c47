"""Health check of the container: whether the gateway in it answers /livez, with TLS or without. It sends no secret, so
the certificate's name, which is not this address, does not matter."""

from __future__ import annotations

import http.client
import ssl
import sys
import urllib.request

try:
    urllib.request.urlopen("http://127.0.0.1:9160/livez", timeout=1)
except (OSError, http.client.HTTPException) as plain:
    try:
        unchecked = ssl._create_unverified_context()  # noqa: S323, SLF001
        urllib.request.urlopen("https://127.0.0.1:9160/livez", timeout=1, context=unchecked)
    except OSError as error:
        sys.exit(f"{plain}; {error}")
