"""MQDISC, and the end of a connection that was lost: the unit of work ends, waits end, objects are closed."""

from __future__ import annotations

from gateway.errors import MQError
from gateway.mq import constants as mq
from gateway.queue_manager.verbs import mqcmit, mqopen, mqsub
from gateway.queue_manager.verbs.connection_state import ConnectionState


def disconnect(connection: ConnectionState, *, commit: bool) -> None:
    """End the connection and commit or back out its unit of work. Waiting gets are answered with 2009."""
    if connection.ended:
        return
    failure: MQError | None = None
    try:
        if commit:
            mqcmit.commit(connection)
        else:
            mqcmit.back(connection)
    except MQError as error:
        failure = error
    connection.ended, connection.broken = True, not commit
    connection.core.committer.came(connection)
    for get in list(connection.waiting):
        get.attempt()
    _close_all(connection)
    connection.connections.discard(connection)
    if failure is not None and commit:
        raise failure


def _close_all(connection: ConnectionState) -> None:
    # Subscriptions first: the managed queue of one that ends is deleted when its own handle is closed.
    for handle in sorted(connection.handles.values(), key=lambda handle: not handle.subscription):
        try:
            if handle.subscription:
                mqsub.close_subscription(connection, handle, mq.MQCO_NONE)
            else:
                mqopen.close_object(connection, handle)
        except MQError:  # the store cannot be written: the next start cleans up temporary objects
            continue
    connection.handles.clear()
