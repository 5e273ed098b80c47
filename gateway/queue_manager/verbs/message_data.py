"""What a getter sees of a message: properties by PROPCTL, conversion on request, as much as its buffer holds. Pure."""

from __future__ import annotations

from gateway.errors import HeaderError, MQError
from gateway.mq import constants as mq
from gateway.mq import conversion, propctl
from gateway.ports.mqi import GetOptions, Got, Property
from gateway.queue_manager import descriptor


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


def convert(got: Got, asked: bytes, buffer_length: int, ccsid: int, *, accept: bool) -> None:
    """MQGMO_CONVERT: to the character set and encoding of the caller's MQMD; `ccsid` is the queue manager's.

    What fits before conversion and not after it comes unconverted (2120), unless truncation is accepted. A message to
    be cut short that is accepted so keeps its length before conversion in DataLength; one that is not stays as it is.
    """
    too_long = got.length > buffer_length
    if not buffer_length or (too_long and not accept):
        return
    made = conversion.convert(
        got.md, got.data, encoding=descriptor.integer(asked, "encoding"), ccsid=descriptor.integer(asked, "ccsid"),
        default_ccsid=ccsid, max_length=None if accept else buffer_length,
    )  # fmt: skip
    got.md, got.data = made.md, made.data
    if len(made.data) <= buffer_length:
        got.length = len(made.data)
    if made.reason:
        got.comp_code, got.reason = 1, made.reason


def fitted(got: Got, buffer_length: int, *, accept: bool) -> bool:
    """Cut the data to the buffer; False when the message must stay where it is (2080)."""
    if len(got.data) <= buffer_length:
        return True
    got.data = got.data[:buffer_length]
    got.comp_code = 1
    if not got.reason:  # a failed conversion says more than that the data, whose length is known, was cut
        got.reason = mq.MQRC_TRUNCATED_MSG_ACCEPTED if accept else mq.MQRC_TRUNCATED_MSG_FAILED
    return accept
