from gateway.broker.route import Route
from gateway.broker.singles import take as take
from gateway.mqtt.reader import Reader
from gateway.session.connection import Connection

def classes(connection: type[Connection], reader: type[Reader], route: type[Route], /) -> None: ...
