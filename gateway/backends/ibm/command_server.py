"""MQSC for a queue manager of IBM MQ: each command goes to its command server as an Escape PCF, and the answer comes to
a queue of our own that ends with the connection."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from gateway.backends.ibm.driver import Session
from gateway.backends.ibm.structures import MSG_ID, NO_ID, get_options, match_md, object_descriptor, put_options
from gateway.errors import MQError
from gateway.mq import constants as mq
from gateway.mq import pcf
from gateway.mq.layout import pack
from gateway.ports.state_queues import COMMANDS

MODEL = "SYSTEM.DEFAULT.MODEL.QUEUE"
WAIT_SECONDS = 30.0
LONGEST = 1 << 20
_ESCAPE = 38
_ESCAPE_TYPE, _MQSC, _ESCAPE_TEXT = 1017, 1, 3014
_OBJECT_NAME = slice(12, 60)
_PUT = mq.MQPMO_NO_SYNCPOINT | mq.MQPMO_NEW_MSG_ID | mq.MQPMO_FAIL_IF_QUIESCING
_GET = mq.MQGMO_NO_SYNCPOINT | mq.MQGMO_WAIT | mq.MQGMO_CONVERT | mq.MQGMO_FAIL_IF_QUIESCING | mq.MQGMO_NO_PROPERTIES


class Answer(NamedTuple):
    """What the command server has answered to one command."""

    lines: list[str]
    failed: bool
    syntax: bool
    """Whether the failure is one of the command's text."""


class CommandServer:
    """The command server of a connection's queue manager. Its methods raise MQError if it cannot be asked, or does not
    answer."""

    def __init__(self, session: Session, wait: float = WAIT_SECONDS) -> None:
        self._session = session
        self._wait = wait
        self._to = _opened(session, object_descriptor(COMMANDS), mq.MQOO_OUTPUT, COMMANDS)[0]
        model = pack("MQOD", {"ObjectName": MODEL.encode(), "DynamicQName": b"MQGATE.MQSC.*"}, version=4)
        self._replies, descriptor = _opened(session, model, mq.MQOO_INPUT_EXCLUSIVE, MODEL)
        self._name = descriptor[_OBJECT_NAME].rstrip(b" \0")

    def close(self) -> None:
        """Close both queues, which deletes the one for answers."""
        for handle in (self._to, self._replies):
            with suppress(MQError):
                self._session.close(handle)

    def run(self, command: str) -> Answer:
        """Carry out one MQSC command."""
        parameters = [pcf.integer(_ESCAPE_TYPE, _MQSC), pcf.string(_ESCAPE_TEXT, command)]
        request = self._ask(pcf.build(pcf.Message(mq.MQCFT_COMMAND, _ESCAPE, parameters)))
        lines: list[str] = []
        reason = 0
        for reply in self._answers(request):
            said = (one.text() for one in reply.parameters if one.parameter == _ESCAPE_TEXT)
            lines += [line for text in said for line in text.splitlines()]
            reason = reason or reply.reason
        lines = [line.rstrip(" \0") for line in lines]
        if reason and not lines:
            lines = [f"the command server refuses (MQRCCF {reason})"]
        syntax = any(line.startswith("AMQ8405") for line in lines)
        return Answer(lines, syntax or bool(reason) or any(map(_is_error, lines)), syntax)

    def _ask(self, data: bytes) -> bytes:
        """Put a request; returns its MsgId."""
        session = self._session
        md = pack(
            "MQMD",
            {
                "MsgType": mq.MQMT_REQUEST, "Format": b"MQADMIN ", "CodedCharSetId": 1208, "ReplyToQ": self._name,
                "Encoding": 546, "Expiry": int(self._wait * 10), "Persistence": mq.MQPER_NOT_PERSISTENT,
            },
            version=2,
        )  # fmt: skip
        answer = session.mqput(session.handle, self._to, md, put_options(_PUT)(), data)
        if answer[-2] == mq.MQCC_FAILED:
            raise MQError(int(answer[-1]), f"putting to {COMMANDS}")
        return bytes(answer[0])[MSG_ID]

    def _answers(self, request: bytes) -> Iterator[pcf.Message]:
        """Yields the replies to a request, up to the last one."""
        session = self._session
        while True:
            options = get_options(_GET, mq.MQMO_MATCH_CORREL_ID, int(self._wait * 1000))
            md = _as_utf_8(match_md(NO_ID, request))
            answer = session.mqget(session.handle, self._replies, md, options(), LONGEST)
            if answer[-1] == mq.MQRC_NO_MSG_AVAILABLE:
                what = f"the command server has not answered for {self._wait:g} s: is it started (`strmqcsv`)"
                raise MQError(mq.MQRC_NO_MSG_AVAILABLE, what)
            if answer[-2] == mq.MQCC_FAILED:
                raise MQError(int(answer[-1]), "getting an answer from the command server")
            reply = pcf.parse(bytes(answer[0])[: int(answer[-3])])
            yield reply
            if reply.control == mq.MQCFC_LAST:
                return


def _opened(session: Session, descriptor: bytes, options: int, queue: str) -> tuple[int, bytes]:
    """Returns the handle, and the descriptor with the name of the queue that was made."""
    try:
        return session.open_named(descriptor, options | mq.MQOO_FAIL_IF_QUIESCING)
    except MQError as error:
        hint = ""
        if error.reason == mq.MQRC_NOT_AUTHORIZED:
            hint = ": the user of the settings may not use it; give its group access, or use runmqsc"
        raise MQError(error.reason, f"opening {queue}{hint}") from None


def _as_utf_8(md: bytes) -> bytes:
    """Returns the descriptor of a request for answers in UTF-8 and in this machine's integers."""
    return md[:24] + (546).to_bytes(4, "little") + (1208).to_bytes(4, "little") + md[32:]


def _is_error(line: str) -> bool:
    """Whether a line is a message of severity E or S, such as AMQ8147E."""
    head = line.split(":", 1)[0]
    return head.startswith("AMQ") and head[-1:] in {"E", "S"}
