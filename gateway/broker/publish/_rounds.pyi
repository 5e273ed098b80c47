from gateway.broker.publish.fast import round_in_python as take
from gateway.broker.publish.route import FastPath, Route
from gateway.mqtt.reader import Reader
from gateway.session.connection import Connection

__all__ = ["configure", "take"]

def configure(
    connection: type[Connection],
    reader: type[Reader],
    route: type[Route],
    direct: FastPath,
    online: int,
    version_5: int,
    /,
) -> None: ...
