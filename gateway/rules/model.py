"""The mapping language as frozen records: what a mapping file may say, with the text that documents each key.

The parser, the JSON Schema and the reference page are all made from this one list of fields. Nothing is evaluated here.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gateway.config.findings import Part
from gateway.config.units import Count, Duration, Size
from gateway.rules.trials import Test
from gateway.rules.vocabulary import (
    Folder,
    FolderChoice,
    FormatName,
    Levels,
    MqLong,
    Names,
    OneOrMany,
    Qos,
    Report,
    Scalar,
    Then,
)


class PayloadSize(Part):
    """Bounds of the payload's length."""

    at_least: Size = Field(default=0, description="Matches payloads of this many bytes or more.")
    at_most: Size | None = Field(default=None, description="Matches payloads of this many bytes or fewer.")


class When(Part):
    """Conditions besides the topic; all of them must hold."""

    qos: Levels | None = Field(default=None, description="Matches these qualities of service.")
    client: Names | None = Field(
        default=None, description="Matches client identifiers like one of these (`*` and `?`)."
    )
    user: Names | None = Field(
        default=None, description='Matches user names like one of these; `""` is an anonymous client, which `*` is not.'
    )
    listener: Names | None = Field(default=None, description="Matches publications through one of these listeners.")
    retained: bool | None = Field(default=None, description="Matches publications with (or without) the retain flag.")
    payload: PayloadSize | None = Field(default=None, description="Matches payloads of a certain size.")
    json_fields: dict[str, Scalar] | None = Field(
        default=None,
        alias="json",
        description="Matches JSON payloads whose fields (`a.b`, `list.0.c`) have these values.",
    )
    properties: dict[str, str] | None = Field(
        default=None, description="Matches MQTT 5 user properties like these (`*` and `?`)."
    )


_WHEN = When()


class ReplyTo(Part):
    """Where an MQ application is to send its answer."""

    queue: str = Field(description="ReplyToQ. With a response topic (MQTT 5) answers found there go to the device.")
    queue_manager: str = Field(default="", description="ReplyToQMgr; left out, the queue manager fills it in.")


class Descriptor(Part):
    """The message descriptor (MQMD)."""

    persistence: Literal["from_qos", "persistent", "not_persistent"] = Field(
        default="from_qos", description="`from_qos`: QoS 0 is not persistent, QoS 1 and 2 are."
    )
    priority: Annotated[int, Field(ge=0, le=9)] | Literal["queue_default"] = Field(
        default=0, description="0 to 9, or `queue_default` for the queue's DEFPRTY."
    )
    expiry: Duration | Literal["from_publish", "never"] = Field(
        default="from_publish",
        description="Expiry. A duration is an upper limit; `from_publish` takes the MQTT 5 message expiry, if any.",
    )
    message_type: Literal["auto", "datagram", "request", "reply"] = Field(
        default="auto",
        description="MsgType. `auto`: a request when `reply_to` is given and the device sends a response topic.",
    )
    reply_to: ReplyTo | None = Field(default=None, description="ReplyToQ and ReplyToQMgr.")
    report: Annotated[list[Report], OneOrMany] = Field(
        default=[], description="Reports asked for; they need `reply_to`."
    )
    correlation: str | None = Field(
        default=None, description="Template for CorrelId (24 bytes, UTF-8, cut). Left out: the MQTT 5 correlation data."
    )
    user: str = Field(
        default="{user_or_client}", description="Template for UserIdentifier (12 characters); used where authorised."
    )
    application_data: str | None = Field(default=None, description="Template for ApplIdentityData (32 characters).")
    feedback: MqLong = Field(default=0, description="Feedback.")


_DESCRIPTOR = Descriptor()


class Payload(Part):
    """The format of the payload, and what is checked in it."""

    format: Literal["auto", "bytes", "string", "json"] | FormatName = Field(
        default="auto",
        description="`bytes`: no format; `string`: MQSTR; `json`: MQSTR and checked; or an MQ format name in capitals. "
        "`auto`: what the MQTT 5 payload format indicator says, else bytes.",
    )
    ccsid: MqLong | None = Field(default=None, description="CodedCharSetId of the payload; 1208 (UTF-8) for text.")
    encoding: MqLong | None = Field(
        default=None, description="Encoding of numbers in the payload; 546 (little-endian)."
    )
    schema_file: str | None = Field(
        default=None,
        alias="schema",
        description="JSON Schema file, relative to this file; a payload that differs is refused.",
    )


_PAYLOAD = Payload()


class Retry(Part):
    """How often and how fast a put is tried again."""

    times: Annotated[int, Field(ge=0, le=1000)] = Field(default=5, description="Attempts after the first.")
    first: Duration = Field(default=1.0, alias="from", description="Wait before the first of them; doubled each time.")
    longest: Duration = Field(default=30.0, alias="to", description="Longest wait.")


_RETRY = Retry()


class OnFailure(Part):
    """What happens if a message cannot be put."""

    retry: Retry = Field(
        default_factory=lambda: _RETRY, description="Repeated while the reason may pass (queue full, put inhibited)."
    )
    then: Then = Field(
        default="dead_letter",
        description="After that: `dead_letter` (with the reason), `hold` (not acknowledged, repeated without limit), "
        "`drop` (acknowledged, counted), `disconnect` (the device is told with a reason code and sends again later). A "
        "message that cannot follow its rule is dead-lettered with `hold` and `disconnect` too: sent again it would be "
        "the same.",
    )


_ONFAILURE = OnFailure()


class Property(Part):
    """A message property with its type spelled out."""

    value: str = Field(description="Template.")
    type: Literal["string", "int", "float", "bool", "bytes"] = Field(default="string", description="Type.")


class ToMq(Part):
    """One rule from a topic to a queue."""

    name: str = Field(min_length=1, max_length=100, description="Names the rule in metrics, logs and dead letters.")
    description: str = Field(default="", description="A comment.")
    topic: str = Field(description="Pattern: `{x}` is one level, `{x*}` the rest (at the end only); `+` and `#` too.")
    when: When = Field(default_factory=lambda: _WHEN, description="Conditions besides the topic.")
    queue: str | None = Field(
        default=None, description="Template for the queue. Values from the topic become capitals."
    )
    mq_topic: str | None = Field(
        default=None,
        description="Template for an MQ topic string, instead of a queue. A retained publication is retained there.",
    )
    queue_manager: str | list[str] = Field(
        default="",
        description="Template for another queue manager: one of `targets` in the settings is put to directly; any "
        "other is a remote one, which the gateway's own sends to. A list of targets: each message goes to one of them, "
        "as `spread` says; one that is away is passed over.",
    )
    spread: Literal["by_client", "round_robin"] = Field(
        default="by_client",
        description="With a list of targets. `by_client`: all messages of a client go to the same one, in their order, "
        "as long as it is there; while it is away they go to the next. `round_robin`: what is committed together goes "
        "to each in turn.",
    )
    allowed_queues: Names | None = Field(
        default=None,
        description="Queue names (with `*`) that the template may give; needed when it begins with a placeholder.",
    )
    payload: Payload = Field(default_factory=lambda: _PAYLOAD, description="What the payload is.")
    descriptor: Descriptor = Field(default_factory=lambda: _DESCRIPTOR, description="The message descriptor.")
    properties: dict[str, Property | Scalar] = Field(
        default={}, description="Message properties (`usr` folder); a template of one placeholder with a type keeps it."
    )
    user_properties: bool = Field(default=True, description="Whether MQTT 5 user properties become message properties.")
    headers: Annotated[list[Folder], OneOrMany] = Field(
        default=["mcd", "mqps", "mqtt"],
        description="MQRFH2 folders as MQ Telemetry writes them. `[]` without properties: the body alone.",
    )
    group_by: str | None = Field(
        default=None,
        description="Template; messages with equal values get the same GroupId. Each is a group of one, unless "
        "`group_sequence` numbers them.",
    )
    group_sequence: str | None = Field(
        default=None, description="Template for MsgSeqNumber (1 and up), as in `{property.part}` or `{json.n}`."
    )
    group_last: str | None = Field(
        default=None, description="Template; `true`, `1` or `yes` marks the last message of its group."
    )
    too_long: Literal["dead_letter", "segment", "reject"] = Field(
        default="dead_letter",
        description="When the message is longer than the queue takes. `dead_letter`: it is acknowledged, and what the "
        "dead-letter queue does not take either (its MAXMSGL and the queue manager's) is cut off.",
    )
    on_failure: OnFailure = Field(default_factory=lambda: _ONFAILURE, description="When the put fails.")
    syncpoint: Literal["from_qos", "always"] = Field(
        default="from_qos",
        description="`from_qos`: QoS 0 that is not persistent is put out of syncpoint, QoS 1 and 2 in the unit of work "
        "that is acknowledged. `always`: QoS 0 too. Several destinations (`continue`) are always one unit of work, "
        "and so are the segments of a message (`too_long: segment`).",
    )
    goes_on: bool = Field(default=False, alias="continue", description="Whether later rules are considered too.")


class Backout(Part):
    """When a message that cannot be delivered is moved away."""

    threshold: Count | None = Field(default=None, description="BackoutCount from which on a message is moved.")
    queue: str | None = Field(default=None, description="Queue to move it to; else the dead-letter queue.")


_BACKOUT = Backout()


class ToMqtt(Part):
    """One rule from a queue to topics."""

    name: str = Field(min_length=1, max_length=100, description="Names the rule in metrics, logs and dead letters.")
    description: str = Field(default="", description="A comment.")
    queue: str | None = Field(default=None, description="The queue to get from.")
    transmission_queue: str | None = Field(
        default=None,
        description="A transmission queue: RemoteQMgrName is the client identifier, RemoteQName the topic.",
    )
    queue_manager: Annotated[list[str], OneOrMany] = Field(
        default=[],
        description="One of `targets` in the settings, or a list of them: the queue of each is consumed there. Left "
        "out: that of the gateway's own queue manager.",
    )
    mq_topic: str | None = Field(
        default=None,
        description="An MQ topic to subscribe to, with `+` and `#`: the subscription is durable and outlives the rule.",
    )
    subscription: str | None = Field(
        default=None,
        description="Name of the durable subscription to `mq_topic`; `mqgate.NAME OF THE RULE` when left out. "
        "`{gateway}` in it is this gateway's name: replicas that each want all publications need their own.",
    )
    topic: str | None = Field(
        default=None,
        description="Template: `{usr.x}`, `{mqps.Top}`, `{md.CorrelId}`, `{json.a.b}`. Default: `{mqps.Top}`.",
    )
    client: str | None = Field(default=None, description="Template: publish to this client only.")
    qos: Literal["from_persistence", "from_property", 0, 1, 2] = Field(
        default="from_property",
        description="`from_property`: `mqtt.qos` when present, else by persistence; `from_persistence`: 0 or 2.",
    )
    max_qos: Qos = Field(default=2, description="Upper limit of the QoS.")
    retain: Literal["from_property"] | bool = Field(
        default="from_property", description="`from_property`: the message's `mqps.Ret`; or always, or never."
    )
    convert: MqLong | None = Field(
        default=None, description="CCSID to convert text to (1208 for UTF-8); else bytes as they are."
    )
    strip_headers: bool = Field(
        default=True, description="Whether the header chain is taken off; else it is in the payload."
    )
    user_properties: FolderChoice = Field(
        default="usr",
        description="Which properties become MQTT 5 user properties: those of the application (`usr`), or `all`: other "
        "folders, descriptor fields (`md.MsgId`) and headers (`MQDLH.Reason`) too.",
    )
    response_topic: str | None = Field(
        default=None,
        description="Template; set for requests (MsgType 1), with the MsgId as correlation data, so that the device's "
        "answer can be matched.",
    )
    backout: Backout = Field(
        default_factory=lambda: _BACKOUT, description="Left out: the queue's BOTHRESH and BOQNAME."
    )
    order_by: str | None = Field(
        default=None,
        description="Has no effect: the messages of a queue come in its order, with or without it. Accepted for "
        "mappings that have it.",
    )
    groups: Literal["as_they_come", "whole"] = Field(
        default="as_they_come",
        description="Messages of an MQ group (GroupId): in the order of the queue, or `whole`: when the last of them "
        "has arrived, in logical order, in one unit of work, with `md.GroupId`, `md.MsgSeqNumber` and "
        "`md.MsgFlags` as user properties (unless these are `none`). It holds for all rules of the queue.",
    )


class MappingFile(Part):
    """One mapping file."""

    version: Literal[1] = Field(default=1, description="Version of this language.")
    description: str = Field(default="", description="A comment.")
    unmatched: Literal["count", "dead_letter"] = Field(
        default="count", description="Publications that no rule matches: counted, or dead-lettered as well."
    )
    to_mq: list[ToMq] = Field(default=[], description="From devices to queues; the first rule that matches is used.")
    to_mqtt: list[ToMqtt] = Field(default=[], description="From queues to devices.")
    tests: list[Test] = Field(default=[], description="Run by `mqgate check`.")
