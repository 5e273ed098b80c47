from gateway.broker.publish.fast import round_in_python as take
from gateway.broker.publish.route import Route
from gateway.mqtt.reader import Reader
from gateway.session.connection import Connection

__all__ = ["classes", "take"]

def classes(connection: type[Connection], reader: type[Reader], route: type[Route], /) -> None: ...
