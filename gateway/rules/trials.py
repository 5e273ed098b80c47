"""The tests of a mapping file as frozen records: what is published or put, and what is expected."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from gateway.config.findings import Part
from gateway.config.units import Duration
from gateway.rules.vocabulary import Qos, Scalar


class Publication(Part):
    """What a test publishes."""

    topic: str = Field(description="Topic name.")
    qos: Qos = Field(default=0, description="Quality of service.")
    retain: bool = Field(default=False, description="Retain flag.")
    payload: str | dict[str, Any] | list[Any] = Field(
        default="", description="Text; a mapping or list is sent as JSON."
    )
    payload_hex: str | None = Field(default=None, description="Payload as hexadecimal digits.")
    client: str = Field(default="test", description="Client identifier.")
    user: str = Field(default="", description="User name.")
    listener: str = Field(default="", description="Listener.")
    user_properties: list[tuple[str, str]] | dict[str, str] = Field(default={}, description="MQTT 5 user properties.")
    content_type: str | None = Field(default=None, description="MQTT 5 content type.")
    response_topic: str | None = Field(default=None, description="MQTT 5 response topic.")
    correlation_data: str | None = Field(default=None, description="MQTT 5 correlation data.")
    expiry: Duration | None = Field(default=None, description="MQTT 5 message expiry.")


class QueueMessage(Part):
    """A message on a queue, as a test describes it."""

    queue: str = Field(
        description="The queue that it is on (or the transmission queue), or `topic://TOPIC`: published on an MQ topic."
    )
    queue_manager: str | None = Field(
        default=None, description="The target that has the queue; left out, it is on each that a rule consumes it from."
    )
    body: str = Field(default="", description="Text of the body.")
    format: str = Field(default="", description="Format of the body.")
    persistence: Literal["persistent", "not_persistent"] = Field(default="persistent", description="Persistence.")
    properties: dict[str, Scalar] = Field(default={}, description="Properties: `name` (usr) or `folder.name`.")
    correlation_id: str = Field(default="", description="CorrelId, text.")
    reply_to: str = Field(default="", description="ReplyToQ; the message is a request then.")
    remote_queue: str = Field(default="", description="RemoteQName of the MQXQH.")
    remote_queue_manager: str = Field(default="", description="RemoteQMgrName of the MQXQH.")


class ExpectedPut(Part):
    """What a test expects to be put; keys that are left out are not compared."""

    queue: str | None = Field(default=None, description="Queue name.")
    mq_topic: str | None = Field(default=None, description="MQ topic string.")
    queue_manager: str | None = Field(default=None, description="Queue manager name.")
    rule: str | None = Field(default=None, description="Name of the rule.")
    persistence: Literal["persistent", "not_persistent"] | None = Field(default=None, description="Persistence.")
    priority: int | None = Field(default=None, description="Priority.")
    format: str | None = Field(default=None, description="Format of the body.")
    properties: dict[str, Scalar] | None = Field(
        default=None, description="Properties that it must have, with these values."
    )
    refused: str | None = Field(default=None, description="Name of the reason for which the message is refused.")


class ExpectedPublication(Part):
    """What a test expects to be published."""

    topic: str | None = Field(default=None, description="Topic name.")
    qos: Qos | None = Field(default=None, description="Quality of service.")
    retain: bool | None = Field(default=None, description="Retain flag.")
    payload: str | None = Field(default=None, description="Text of the payload.")
    client: str | None = Field(default=None, description="The only client it is for.")
    user_properties: dict[str, str] | None = Field(default=None, description="User properties that it must have.")
    refused: str | None = Field(default=None, description="Name of the reason for which the message is refused.")


class Test(Part):
    """A test next to the rules: what is published or put, and what is expected."""

    name: str = Field(default="", description="Name in the report.")
    publish: Publication | None = Field(default=None, description="A publication of a device.")
    put: QueueMessage | None = Field(default=None, description="A message that an application puts.")
    expect: list[ExpectedPut | ExpectedPublication] = Field(
        default=[], description="The expected puts or publications, in order; an empty list: none."
    )
