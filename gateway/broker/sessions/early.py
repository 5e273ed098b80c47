"""Packets before CONNACK: the first must be CONNECT [MQTT-3.1.0-1]; what follows waits for its verdict, and is dropped
with a refusal [MQTT3-3.1.4-5] [MQTT5-3.1.4-6]. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gateway.errors import ProtocolError
from gateway.mqtt.packets import Connect
from gateway.session.connection import AUTHENTICATING, CLOSED, NEW, ONLINE, Connection

if TYPE_CHECKING:
    from gateway.broker.engine import Engine


def packets(engine: Engine, connection: Connection, packets: list[Any]) -> None:
    """What a connection sent that is not online yet, in order."""
    for index, packet in enumerate(packets):
        if connection.state == NEW and isinstance(packet[-1], Connect):
            engine.connecting.connect(connection, packet)
        elif connection.state == AUTHENTICATING:
            if packet[0] >> 4 in {14, 15}:  # [MQTT-3.1.2-30]
                engine.plain_lane.handlers[packet[0] >> 4](connection, packet)
            elif len(connection.held) < 1000:
                connection.held.append(packet)
            else:
                engine.protocol_error(connection, ProtocolError("too much before CONNACK"))
        elif connection.state == ONLINE:
            connection.eager = True
            engine.plain_lane.packets(connection, packets[index:])
            return
        elif connection.state == CLOSED:
            return
        else:
            engine.protocol_error(connection, ProtocolError("the first packet has to be CONNECT"))
