"""The settings of TLS on a port.

A part of the field list in `gateway.config.model`. Opens no file and knows no environment.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from gateway.config.findings import Part, contradictions
from gateway.config.units import Wrong


class Tls(Part):
    """TLS of a port. Files are read again on reload."""

    certificate: str = Field(description="PEM file with the certificate and its chain.")
    key: str = Field(description="PEM file with the private key.")
    client_ca: str | None = Field(default=None, description="PEM file with the authorities of client certificates.")
    client_certificate: Literal["none", "optional", "required"] = Field(
        default="none", description="Whether clients must show a certificate."
    )
    crl: str | None = Field(default=None, description="PEM file with the certificate revocation list.")
    minimum_version: Literal["1.2", "1.3"] = Field(default="1.2", description="Lowest TLS version.")

    @contradictions
    def _unchecked(self) -> Iterator[Wrong]:
        if self.client_certificate != "none" and self.client_ca is None:
            yield Wrong("client certificates cannot be checked", "name the authorities' file in `client_ca`")
