from gateway.broker.publish.route import Route
from gateway.broker.publish.singles import take as take
from gateway.mqtt.reader import Reader
from gateway.session.connection import Connection

def classes(connection: type[Connection], reader: type[Reader], route: type[Route], /) -> None: ...
