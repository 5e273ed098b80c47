"""Distribution lists: one MQPUT, many queues, an answer for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.errors import MQError
from gateway.mq import constants as mq
from gateway.ports.mqi import PutOptions, PutRecord, PutResult, Response
from gateway.queue_manager.verbs.handles import Handle
from gateway.queue_manager.verbs.mqput import put, with_record

if TYPE_CHECKING:
    from gateway.queue_manager.verbs.connection import Connection


def put_to_list(connection: Connection, handle: Handle, md: bytes, options: PutOptions, data: bytes) -> PutResult:
    """A distribution list: each destination with its own record; differing reasons are 2136."""
    responses: list[Response] = []
    last = PutResult(md, "", "")
    known = unknown = 0
    plain = PutOptions(options.options, options.context, options.properties)
    for index, target in enumerate(handle.targets):
        if isinstance(target, MQError):
            responses.append(Response(target.comp_code, target.reason))
            continue
        record = options.records[index] if index < len(options.records) else PutRecord()
        try:
            last = put(connection, handle, target, with_record(md, record), plain, data)
            responses.append(Response(last.comp_code, last.reason))
            known, unknown = known + (not target.remote), unknown + target.remote
        except MQError as error:
            responses.append(Response(error.comp_code, error.reason))
    return _judged(responses, last, known, unknown)


def _judged(responses: list[Response], last: PutResult, known: int, unknown: int) -> PutResult:
    """One answer for a distribution list."""
    reasons = {response.reason for response in responses}
    invalid = sum(1 for response in responses if response.comp_code == mq.MQCC_FAILED)
    if invalid == len(responses):
        reason = reasons.pop() if len(reasons) == 1 else mq.MQRC_MULTIPLE_REASONS
        raise MQError(reason, "the message reached no queue of the distribution list")
    comp_code = 1 if reasons != {0} else 0
    reason = 0 if not comp_code else reasons.pop() if len(reasons) == 1 else mq.MQRC_MULTIPLE_REASONS
    return last._replace(
        comp_code=comp_code, reason=reason, known=known, unknown=unknown, invalid=invalid, responses=responses
    )
