"""What a getter sees of a message: properties by PROPCTL, conversion on request, as much as its buffer holds. Pure."""

from __future__ import annotations

from gateway.backends.embedded.descriptor import Descriptor
from gateway.errors import HeaderError, MQError
from gateway.mq import constants as mq
from gateway.mq import propctl
from gateway.mq.ccsid import codec_of
from gateway.ports.mqi import GetOptions, Got, Property


def seen(
    md: bytes, data: bytes, options: GetOptions, property_control: int
) -> tuple[bytes, bytes, list[Property] | None]:
    """Descriptor, data and the properties for the handle. A broken MQRFH2 is given as it is: it is the getter's to
    judge."""
    if md[32:40] != mq.MQFMT_RF_HEADER_2:
        return md, data, [] if options.handle_given else None
    try:
        view = propctl.as_got(md, data, propctl=property_control, options=options.options, handle=options.handle_given)
    except (MQError, HeaderError):
        return md, data, [] if options.handle_given else None
    held = [Property(one.name, one.value, one.mqtype, one.support, one.context, one.copy) for one in view.properties]
    return view.md, view.data, held if options.handle_given else None


def converted(md: bytes, data: bytes, wanted: bytes, queue_manager_ccsid: int) -> tuple[bytes, bytes, int]:
    """MQGMO_CONVERT: to the character set and encoding of the caller's MQMD; the reason (0, or a warning) says what
    became of it."""
    message, asked = Descriptor(md), Descriptor(wanted)
    ccsid = asked.ccsid if asked.ccsid > 0 else queue_manager_ccsid
    encoding = asked.encoding
    if (message.ccsid, message.encoding) == (ccsid, encoding):
        return md, data, 0
    if message.format == mq.MQFMT_NONE:
        return md, data, mq.MQRC_FORMAT_ERROR if data else 0
    if message.format != mq.MQFMT_STRING:
        return md, data, mq.MQRC_NOT_CONVERTED
    source, target = codec_of(message.ccsid), codec_of(ccsid)
    if source is None:
        return md, data, mq.MQRC_SOURCE_CCSID_ERROR
    if target is None:
        return md, data, mq.MQRC_TARGET_CCSID_ERROR
    try:
        data = data.decode(source).encode(target)
    except UnicodeError:
        return md, data, mq.MQRC_NOT_CONVERTED
    message.ccsid, message.encoding = ccsid, encoding
    return message.pack(), data, 0


def fitted(got: Got, buffer_length: int, *, accept: bool) -> bool:
    """Cut the data to the buffer; False when the message must stay where it is (2080)."""
    if got.length <= buffer_length:
        return True
    got.data = got.data[:buffer_length]
    got.comp_code = 1
    got.reason = mq.MQRC_TRUNCATED_MSG_ACCEPTED if accept else mq.MQRC_TRUNCATED_MSG_FAILED
    return accept
