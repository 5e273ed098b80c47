"""Publications that no rule matches, as MQ messages for the dead-letter queue. Pure."""

from __future__ import annotations

from gateway.bridge.inbound import Origin
from gateway.mq import mqmd, rfh2
from gateway.mq.rfh2_folder import folder


def unmatched(origin: Origin, packet_id: int) -> tuple[bytes, bytes]:
    """(head, tail): topic, client and quality of service in the folders MQ Telemetry writes."""
    template = rfh2.build_template(
        [folder("mcd", [("Msd", "jms_bytes")]), folder("mqps", [("Top", origin.topic)])],
        "mqtt",
        [("clientId", origin.client_id), ("qos", origin.qos)],
        "msgId",
    )
    md = mqmd.build(persistence=1 if origin.qos else 0, format="MQHRF2", put_appl_name="mqgate", coded_char_set_id=1208)
    return md + template.head, template.tails[packet_id]
