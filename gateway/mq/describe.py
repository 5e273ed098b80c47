"""Structures in words, ready for JSON: what `mqgate queue browse` and the dashboard show. Never raises on bad bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gateway.errors import HeaderError
from gateway.mq import layout, mqmd, pcf
from gateway.mq.character_sets.ccsid import codec_of
from gateway.mq.constants import name_of, name_of_reason
from gateway.mq.headers import dh, rfh, rfh2, rmh
from gateway.mq.headers.header import Described, Header, characters
from gateway.mq.headers.rfh2_folder import Element, parse_folder

Words = dict[str, object]

_NAMED = {
    "MsgType": "MQMT_",
    "Persistence": "MQPER_",
    "PutApplType": "MQAT_",
    "Control": "MQCFC_",
    "Type": "MQCFT_",
    "CompCode": "MQCC_",
    "Command": "MQCMD_",
    "ApplType": "MQAT_",
}
_FLAGS = {"Report": "MQRO_", "MsgFlags": "MQMF_", "PutMsgRecFields": "MQPMRF_"}
_BYTE_ORDER = {"<": "little-endian", ">": "big-endian"}
_HIDDEN = {"StrucId"}
_SHOWN = 4096
"""The most bytes of a variable part that are shown without being interpreted."""


def descriptor_in_words(md: bytes, order: str = "<", codec: str = "utf-8") -> Words:
    """Returns the fields of an MQMD of either version."""
    version = 2 if len(md) >= mqmd.LENGTH else 1
    values = layout.unpack("MQMD", md, version=version, order=order)
    return _fields(layout.STRUCTURES["MQMD"], values, codec)


def header_in_words(header: Header, *, whole: bool = True) -> Words:
    """Returns one header in words: where it is, its fields, and what its variable part holds (not `whole`: its
    beginning)."""
    words: Words = {"header": header.name, "offset": header.offset, "length": len(header.raw)}
    words["byte_order"] = _BYTE_ORDER[header.order]
    words |= _fields(header.structure, header.values, header.codec, header.order)
    if header.version > header.structure.latest:
        words["note"] = f"version {header.version} is newer than {header.structure.latest}: shown as far as known"
    return words | (_tail(header) if whole else _beginning(header) | {"problem": "too long to be shown"})


def _fields(structure: layout.Structure, values: Mapping[str, layout.Value], codec: str, order: str = "<") -> Words:
    words: Words = {}
    for field in structure.fields:
        if field.name in values and field.name not in _HIDDEN:
            words[field.name] = _value(field, values[field.name], codec, order)
    return words


def _value(field: layout.Field, value: layout.Value, codec: str, order: str) -> object:
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, int):
        return _number(field.name, value)
    if field.embedded == "MQMD":
        return descriptor_in_words(value, order, codec)
    if field.embedded:
        inner = layout.STRUCTURES[field.embedded]
        return _fields(inner, layout.unpack(inner.name, value, order=order), codec, order)
    return characters(value, codec) if field.is_text else value.hex()


def _number(name: str, value: int) -> object:
    if name in _NAMED:
        return _with_name(value, name_of(_NAMED[name], value))
    if name in _FLAGS:
        return _flags(_FLAGS[name], value)
    if name == "Encoding":
        return _encoding(value)
    if name == "Expiry":
        return "unlimited" if value == -1 else f"{value / 10:g} s"
    if name in {"Reason", "Feedback"} and value:
        return _with_name(value, _reason(value))
    return value


def _with_name(value: int, name: str) -> object:
    return value if name == str(value) else f"{name} ({value})"


def _reason(value: int) -> str:
    return name_of_reason(value) if value >= 2000 and value < 65536 else name_of("MQFB_", value)


def _flags(prefix: str, value: int) -> object:
    if not value:
        return 0
    names, rest = [], value
    for bit in (1 << n for n in range(31, -1, -1)):
        if value & bit and (name := name_of(prefix, bit)) != str(bit):
            names.append(name)
            rest &= ~bit
    return " ".join([*names, f"{rest:#x}"] if rest else names)


_INTEGERS = {0: "undefined", 1: "big-endian", 2: "little-endian"}
_FLOATS = {0: "undefined", 1: "IEEE big-endian", 2: "IEEE little-endian", 3: "S/390"}


def _encoding(value: int) -> str:
    integers, decimals, floats = value & 15, value >> 4 & 15, value >> 8 & 15
    if integers == decimals == floats and integers in {1, 2}:
        return f"{_INTEGERS[integers]} ({value})"
    words = _INTEGERS.get(integers, "?"), _INTEGERS.get(decimals, "?"), _FLOATS.get(floats, "?")
    return f"integers {words[0]}, decimals {words[1]}, floats {words[2]} ({value})"


def _tail(header: Header) -> Words:
    reader = _TAILS.get(header.name)
    if not header.tail:
        return {}
    try:
        return reader(header) if reader else _beginning(header)
    except HeaderError as broken:
        return {"problem": str(broken), **_beginning(header)}


def _beginning(header: Header) -> Words:
    return {"data": header.tail[:_SHOWN].hex()}


def _folders(header: Header) -> Words:
    return {"folders": [_folder(text) for text in _folder_texts(header)]}


def _pairs(header: Header) -> Words:
    found = rfh.parse(header.raw, order=header.order, codec=header.codec)
    return {"pairs": [list(pair) for pair in found.pairs]}


def _destinations(header: Header) -> Words:
    found = dh.parse(header.raw, order=header.order, codec=header.codec)
    return {"destinations": [_destination(each) for each in found.destinations]}


def _destination(given: dh.Destination) -> Words:
    fields = {name: value for name, value in given._asdict().items() if value is not None}
    return {name: value.hex() if isinstance(value, bytes) else value for name, value in fields.items()}


def _reference(header: Header) -> Words:
    found = rmh.parse(header.raw, header.values)
    return {name: characters(raw, header.codec) for name, raw in found._asdict().items()}


def _parameters(header: Header) -> Words:
    at = 68 if header.name == "MQEPH" else 36
    count = int.from_bytes(header.raw[at - 4 : at], "little" if header.order == "<" else "big")
    found, _ = pcf.parse_parameters(header.raw, at, count, order=header.order)
    return {"parameters": [_parameter(each, header.ccsid) for each in found]}


def _parameter(given: pcf.Parameter, ccsid: int) -> Words:
    words: Words = {
        "parameter": _parameter_name(given.parameter),
        "type": pcf.STRUCTURE_OF_TYPE.get(given.type, given.type),
    }
    if given.operator:
        words["operator"] = name_of("MQCFOP_", given.operator)
    if given.type == pcf.GROUP:
        return words | {"members": [_parameter(each, ccsid) for each in given.members]}
    return words | {"value": _parameter_value(given, ccsid)}


def _parameter_value(given: pcf.Parameter, ccsid: int) -> object:
    if given.type in {pcf.STRING, pcf.STRING_FILTER}:
        return given.text(ccsid)
    if given.type == pcf.STRING_LIST:
        return given.texts(ccsid)
    return given.value.hex() if isinstance(given.value, bytes) else given.value


def _parameter_name(number: int) -> object:
    families = "MQIA_", "MQCA_", "MQIACF_", "MQCACF_", "MQBACF_", "MQCACH_", "MQIACH_"
    names = [found for prefix in families if (found := name_of(prefix, number)) != str(number)]
    return names[0] if names else number


_TAILS: dict[str, Callable[[Header], Words]] = {
    "MQRFH2": _folders,
    "MQRFH": _pairs,
    "MQDH": _destinations,
    "MQRMH": _reference,
    "MQCFH": _parameters,
    "MQEPH": _parameters,
}


def _folder_texts(header: Header) -> tuple[str, ...]:
    return rfh2.parse(header.raw, order=header.order).texts()


def _folder(text: str) -> Words:
    try:
        root = parse_folder(text)
    except HeaderError as broken:
        return {"text": text, "problem": str(broken)}
    words: Words = {"folder": root.name}
    if root.attributes:
        words["attributes"] = root.attributes
    words["elements"] = [_element(child) for child in root.children]
    return words


def _element(element: Element) -> Words:
    words: Words = {"name": element.name}
    if element.children:
        return words | {"elements": [_element(child) for child in element.children]}
    if element.dt != "string":
        words["type"] = element.dt
    try:
        value = element.value
    except HeaderError as broken:
        return words | {"text": element.text, "problem": str(broken)}
    return words | {"value": value.hex() if isinstance(value, bytes) else value}


_TEXT_FORMATS = {b"MQSTR   ", b"MQCMD1  ", b"MQCMD2  "}


def body_in_words(body: Described, data: bytes, at: int, limit: int) -> Words:
    """Returns the payload: as text where Format or the bytes themselves say that it is text, otherwise in
    hexadecimal."""
    shown = data[at : at + limit]
    words: Words = {"format": body.format.decode("ascii", "replace").rstrip(), "length": len(data) - at}
    words |= {"encoding": _encoding(body.encoding), "ccsid": body.ccsid}
    text = _text(body, shown)
    words |= {"hex": shown.hex()} if text is None else {"text": text}
    if len(data) - at > limit:
        words["shown"] = len(shown)
    return words


def _text(body: Described, raw: bytes) -> str | None:
    if body.format in _TEXT_FORMATS:
        return raw.decode(codec_of(body.ccsid, body.encoding) or "utf-8", "replace")
    text = raw.decode("utf-8", "replace")
    readable = "\ufffd" not in text and all(each.isprintable() or each in "\r\n\t" for each in text)
    return text if readable else None
