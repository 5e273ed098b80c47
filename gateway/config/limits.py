"""The settings of limits: rates and shares of the process and of a listener. The limits page says what each does.

A part of the field list in `gateway.config.model`. Opens no file and knows no environment.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from gateway.config.findings import Part
from gateway.config.units import Count, Size

PacketSize = Annotated[Size, Field(ge=128, le=268_435_460)]
Window = Annotated[int, Field(ge=1, le=65535)]
Levels = Annotated[int, Field(ge=1, le=1000)]
Length = Annotated[int, Field(ge=1, le=65535)]
Port = Annotated[int, Field(ge=0, le=65535)]


class Limits(Part):
    """Rates and shares of the process, of one address, of one client; 0 is no limit.

    Each of several gateways on a queue manager counts for itself.
    """

    connects_per_second: Count = Field(default=0, description="New connections of the process.")
    connects_per_second_per_address: Count = Field(default=0, description="New connections from one address.")
    connections_per_address: Count = Field(default=0, description="Open connections from one address to one listener.")
    publishes_per_second: Count = Field(default=0, description="Publications of one client; reading pauses beyond it.")
    bytes_per_second: Size = Field(default=0, description="Bytes of one client; reading pauses beyond it.")
    total_publishes_per_second: Count = Field(
        default=0, description="Publications of all clients together; clients that send beyond it are read later."
    )
    total_bytes_per_second: Size = Field(
        default=0, description="Bytes of all clients together; clients that send beyond it are read later."
    )


class ListenerRates(Part):
    """Rates and shares of a listener: those of one client or address replace `limits`, totals apply as well."""

    connects_per_second: Count = Field(default=0, description="New connections of the listener.")
    connects_per_second_per_address: Count | None = Field(default=None, description="New connections from one address.")
    connections_per_address: Count | None = Field(default=None, description="Open connections from one address.")
    publishes_per_second: Count | None = Field(default=None, description="Publications of one client.")
    bytes_per_second: Size | None = Field(default=None, description="Bytes of one client.")
    total_publishes_per_second: Count = Field(default=0, description="Publications of all clients of the listener.")
    total_bytes_per_second: Size = Field(default=0, description="Bytes of all clients of the listener.")
