"""The backends the contract suites run over."""

from __future__ import annotations

import pytest
from embedded_rig import MqiRig, md

from gateway.mq import pcf
from gateway.ports.mqi import ObjectDescriptor
from gateway.queue_manager.descriptor import Descriptor


@pytest.fixture(params=["memory", "embedded"])
def mqi(request, tmp_path):
    """A queue manager behind the MQI port."""
    rig = MqiRig(None if request.param == "memory" else tmp_path / "data", "DEFINE QLOCAL(A)\nDEFINE QLOCAL(B)")
    yield rig
    rig.queue_manager.close()


@pytest.fixture
def ask(mqi):
    """Send a command of PCF; the replies as dictionaries, in order."""
    reply_to = ObjectDescriptor("SYSTEM.DEFAULT.MODEL.QUEUE", dynamic_name="REPLY.*")
    handle = mqi.connection.open(reply_to, 1).handle

    def run(command, *parameters, fails=0):
        request = pcf.build(pcf.Message(1, command, parameters))
        descriptor = md(type=1, format=b"MQADMIN", reply_to_q=reply_to.name.encode())
        sent = mqi.put("SYSTEM.ADMIN.COMMAND.QUEUE", request, descriptor=descriptor)
        replies = []
        while not replies or not replies[-1].control:
            got = mqi.get(handle, match=2, descriptor=md(correl_id=sent.md[48:72]))
            assert Descriptor(got.md).format == b"MQADMIN "
            replies.append(pcf.parse(got.data))
        assert [one.msg_seq_number for one in replies] == list(range(1, len(replies) + 1))
        assert (replies[-1].command, replies[-1].reason) == (command, fails)
        assert replies[-1].comp_code == (2 if fails else 0)
        return [{one.parameter: _value_of(one) for one in reply.parameters} for reply in replies]

    return run


def _value_of(parameter):
    if parameter.type == pcf.STRING:
        return parameter.text()
    if parameter.type == pcf.STRING_LIST:
        return parameter.texts()
    return parameter.value
