"""Typed message properties: read from and written into the MQRFH2 in front of a message, and the descriptor's fields.

A queue manager keeps properties beside the message; on the wire, and for getters without a handle, they are folders of
an MQRFH2. Here the message has that form: `properties_of` reads it, `with_properties` writes it, and propctl.py says
what a getter sees. Elements that cannot be named through the API (invalid names, groups in usr) stay where they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from gateway.errors import HeaderError, MQError
from gateway.mq import layout, mqmd, property_names
from gateway.mq.constants import (
    MQRC_PROPERTIES_TOO_BIG,
    MQRC_PROPERTY_NOT_AVAILABLE,
    MQRC_PROPERTY_TYPE_ERROR,
    MQRC_RFH_FORMAT_ERROR,
)
from gateway.mq.headers import rfh2
from gateway.mq.headers.chain import described_by
from gateway.mq.headers.header import Header, read
from gateway.mq.headers.rfh2_folder import Element, Scalar, Typed, check_name, parse_folder, render, typed, written
from gateway.mq.property_tree import PropertyTree

MAX_PROPERTIES_LENGTH = 100 * 1024 * 1024
"""The most bytes that the properties of one message take, not counting the descriptor (IBM: 100 MB)."""
MQTYPE_OF_DT = {
    "boolean": 4, "bin.hex": 8, "i1": 16, "i2": 32, "i4": 64, "i8": 128, "int": 128, "r4": 256, "r8": 512,
    "string": 1024,
}  # fmt: skip
DT_OF_MQTYPE = {number: dt for dt, number in MQTYPE_OF_DT.items() if dt != "int"}
MQTYPE_NULL = 2

_SUPPORT = {"sr": 0x100000, "sx": 1024, "sa": 1}
_CONTEXT = {"none": 0, "user": 1}
_COPY = {"forward": 2, "publish": 4, "reply": 8, "report": 16, "all": 1, "none": 0, "default": 22}
_COPY_DEFAULT = 22


class Property(NamedTuple):
    """One property. `name` is without `usr.`; support, context and copy are the fields of an MQPD."""

    name: str
    value: Scalar
    dt: str = "string"
    support: int = 1
    context: int = 0
    copy: int = _COPY_DEFAULT

    @property
    def mqtype(self) -> int:
        """The MQTYPE_ value of its type; a null value is MQTYPE_NULL."""
        return MQTYPE_NULL if self.value is None else MQTYPE_OF_DT.get(self.dt, 1024)


def new(name: str, value: Scalar | Typed, *, support: int = 1, context: int = 0, copy: int = _COPY_DEFAULT) -> Property:
    """Returns a property with its name checked and its type taken from the value. Raises MQError as MQSETMP would."""
    kept = property_names.resolve(name)
    dt, content = typed(value)
    try:
        written(Typed(dt, content))
    except HeaderError as wrong:
        raise MQError(MQRC_PROPERTY_TYPE_ERROR, f"property {name!r}: {wrong}") from None
    return Property(kept, content, dt, support, context, copy)


def is_property_folder(root: Element) -> bool:
    """Whether a folder holds properties: it has one of the defined names, or says so."""
    return root.name in property_names.PROPERTY_FOLDERS or root.attributes.get("content") == "properties"


@dataclass(slots=True)
class Folders:
    """The MQRFH2 headers at the front of a message, in order, with the folders of each parsed."""

    chain: list[Header]
    headers: list[rfh2.Rfh2]
    """The headers with their folders."""
    roots: list[list[Element]]


def leading_folders(md: bytes, data: bytes) -> Folders:
    """Returns every MQRFH2 in series at the front. Raises MQError 2421 for an invalid folder."""
    chain, headers = _leading(md, data)
    try:
        return Folders(chain, headers, [[parse_folder(text) for text in _texts(header) if text] for header in headers])
    except HeaderError as broken:
        raise MQError(MQRC_RFH_FORMAT_ERROR, str(broken)) from broken


def leading_headers(md: bytes, data: bytes) -> list[rfh2.Rfh2]:
    """Returns every MQRFH2 in series at the front, with folders not yet read."""
    return _leading(md, data)[1]


def _leading(md: bytes, data: bytes) -> tuple[list[Header], list[rfh2.Rfh2]]:
    """Returns the headers as members of the chain, and their contents. An invalid one behind the first is data."""
    chain: list[Header] = []
    found: list[rfh2.Rfh2] = []
    bounds = rfh2.Bounds()
    described, at = described_by(md), 0
    while described.format == rfh2.FORMAT:
        try:
            header = read(described, data, at)
            if header is None or header.name != "MQRFH2":
                break
            found.append(rfh2.parse(data, at, order=header.order, bounds=bounds))
        except HeaderError as broken:
            if found and broken.field == "StrucId":
                break
            raise MQError(MQRC_RFH_FORMAT_ERROR, str(broken)) from broken
        chain.append(header)
        at, described = at + found[-1].length, header.follows
    return chain, found


def _texts(header: rfh2.Rfh2) -> tuple[str, ...]:
    try:
        return header.texts()
    except HeaderError as broken:
        raise MQError(MQRC_RFH_FORMAT_ERROR, str(broken)) from broken


def properties_of(md: bytes, data: bytes) -> list[Property]:
    """Returns the properties of a message, each name once (the first counts), in the order of its folders."""
    found: dict[str, Property] = {}
    for header in leading_headers(md, data):
        for text in _texts(header):
            for each in text_properties(text):
                found.setdefault(each.name, each)
    return list(found.values())


def text_properties(text: str) -> tuple[Property, ...]:
    """Returns the properties of one folder from its text; short texts, which repeat, are read once."""
    return _short_text(text) if len(text) <= _SHORT else _read_text(text)


_SHORT = 200


@lru_cache(maxsize=512)
def _short_text(text: str) -> tuple[Property, ...]:
    return _read_text(text)


def _read_text(text: str) -> tuple[Property, ...]:
    if not text:
        return ()
    try:
        root = parse_folder(text)
    except HeaderError as broken:
        raise MQError(MQRC_RFH_FORMAT_ERROR, str(broken)) from broken
    return tuple(folder_properties(root)) if is_property_folder(root) else ()


def folder_properties(root: Element) -> Iterator[Property]:
    """Yields the properties of one folder that can be reached by name."""
    prefix = "" if root.name == "usr" else f"{root.name}."
    for name, leaf in _leaves(root.children, prefix, groups=root.name not in property_names.UNGROUPED_FOLDERS):
        if not _is_reachable(name):
            continue  # IBM: reading goes on, the property is only out of reach
        attributes = leaf.attributes
        try:
            value = leaf.value
        except HeaderError:
            continue
        dt = _dt(leaf) if attributes else "string"
        if len(attributes) <= ("dt" in attributes):
            yield Property(name, value, dt)
        else:
            context = _CONTEXT.get(attributes.get("context", ""), 0)
            yield Property(name, value, dt, _support(leaf), context, _copy(leaf))


def _is_reachable(name: str) -> bool:
    # Long names are not kept: a hostile message must not fill the cache with megabytes.
    return _short_is_reachable(name) if len(name) <= _SHORT else _checked(name)


@lru_cache(maxsize=4096)
def _short_is_reachable(name: str) -> bool:
    return _checked(name)


def _checked(name: str) -> bool:
    try:
        property_names.check(name)
    except MQError:
        return False
    return True


def _leaves(children: Iterable[Element], prefix: str, *, groups: bool) -> Iterator[tuple[str, Element]]:
    for child in children:
        if not child.children:
            yield prefix + child.name, child
        elif groups:
            yield from _leaves(child.children, f"{prefix}{child.name}.", groups=True)


def _dt(leaf: Element) -> str:
    dt = leaf.dt
    return dt if dt in MQTYPE_OF_DT else "string"


def _support(leaf: Element) -> int:
    return next((bits for attribute, bits in _SUPPORT.items() if attribute in leaf.attributes), 1)


def _copy(leaf: Element) -> int:
    said = leaf.attributes.get("copy")
    if said is None:
        return _COPY_DEFAULT
    return sum(_COPY.get(word.strip(), 0) for word in set(said.split(",")))


def element_of(given: Property, leaf: str) -> Element:
    """Returns one property as an element, its descriptor as attributes where it differs from the default."""
    check_name(leaf)
    attributes, text = written(Typed(given.dt, given.value))
    if given.context:
        attributes["context"] = "user"
    if given.copy != _COPY_DEFAULT:
        attributes["copy"] = ",".join(_copy_words(given.copy))
    if given.support != 1 and given.name.startswith("mq."):  # valid in the mq folder only
        attributes |= {"sr": "required"} if given.support == _SUPPORT["sr"] else {"sx": "local"}
    return Element(leaf, attributes, text)


def _copy_words(options: int) -> list[str]:
    if options & 1:
        return ["all"]
    return [word for word, bit in _COPY.items() if bit in {2, 4, 8, 16} and options & bit] or ["none"]


def folder_texts(properties: Iterable[Property]) -> list[str]:
    """Returns the folders that hold these properties, with folders and elements in the order given and groups put
    together."""
    tree = PropertyTree({})
    for each in properties:
        _put(tree, each)
    return list(map(render, tree.roots.values()))


def _put(tree: PropertyTree, given: Property) -> str:
    """Put one property into the tree, replacing one of its name; returns the folder's name."""
    folder, parts = property_names.split(given.name)
    said = {} if folder in property_names.PROPERTY_FOLDERS else {"content": "properties"}
    tree.put(folder, said, parts[:-1], element_of(given, parts[-1]))
    return folder


def with_properties(
    md: bytes, data: bytes, properties: Iterable[Property], *, maximum: int = MAX_PROPERTIES_LENGTH
) -> tuple[bytes, bytes]:
    """Returns the message with these properties added to those it has; a property of the same name takes the new value.

    They go into the MQRFH2 that is first in the data, otherwise into a new one; folders not touched keep their bytes.
    """
    added = list(properties)
    if not added:
        return md, data
    folders = leading_folders(md, data)
    if not folders.headers:
        result = _prepended(md, data, folder_texts(added))
    else:
        result = md, _merged(data, folders, added)
    if len(result[1]) - len(data) > maximum:
        why = f"properties of {len(result[1]) - len(data)} bytes are more than the {maximum} allowed"
        raise MQError(MQRC_PROPERTIES_TOO_BIG, why)
    try:  # nobody could read them
        rfh2.parse(result[1], 0, order=folders.headers[0].order if folders.headers else "<")
    except HeaderError as too_many:
        raise MQError(MQRC_PROPERTIES_TOO_BIG, str(too_many)) from too_many
    return result


def _prepended(md: bytes, data: bytes, texts: list[str]) -> tuple[bytes, bytes]:
    encoding, ccsid = mqmd.number(md, mqmd.AT_ENCODING), mqmd.number(md, mqmd.AT_CCSID)
    header = rfh2.build(texts, encoding=encoding, coded_char_set_id=ccsid, format_name=md[mqmd.FORMAT])
    return mqmd.with_described(md, 546, 1208, rfh2.FORMAT), header + data


def _merged(data: bytes, folders: Folders, added: list[Property]) -> bytes:
    first = folders.headers[0]
    roots: dict[str, Element] = {}
    for root in folders.roots[0]:
        roots.setdefault(root.name, root)
    tree = PropertyTree(roots)
    touched = {_put(tree, each) for each in added}
    codec = rfh2.name_value_codec(first.name_value_ccsid, first.order)
    made = {name: rfh2.padded(render(roots[name]), codec) for name in roots if name in touched}
    inside = [made.pop(rfh2.folder_name(raw.decode(codec, "replace")), raw) for raw in first.folders]
    return rfh2.rebuilt(data, first, [*inside, *made.values()]) + data[first.length :]


def copied(properties: Iterable[Property], into: str) -> list[Property]:
    """Returns the properties that go from a message into one made from it: a forward, publish, reply or report."""
    wanted = _COPY[into] | _COPY["all"]
    return [each for each in properties if each.copy & wanted]


def descriptor_property(md: bytes, name: str) -> Property:
    """Returns `Root.MQMD.Field` of a message. Raises MQError 2471 if there is no such field."""
    field = _descriptor_field(name)
    value = layout.unpack("MQMD", mqmd.version_2(md), version=2)[field.name]
    if isinstance(value, bytes):
        text = mqmd.text(md, slice(field.offset, field.end)) if field.is_text else value
        return Property(name, text, "string" if field.is_text else "bin.hex")
    assert isinstance(value, int)  # noqa: S101  MQMD has no arrays
    return Property(name, value, "i4")


def with_descriptor_property(md: bytes, name: str, value: Scalar) -> bytes:
    """Returns the descriptor with one field set by its property name."""
    field = _descriptor_field(name)
    if isinstance(value, bool | float) or value is None:
        raise MQError(MQRC_PROPERTY_TYPE_ERROR, f"{name} cannot be {value!r}")
    try:
        changed = layout.unpack("MQMD", md, version=2) | {
            field.name: value.encode() if isinstance(value, str) else value
        }
        return layout.pack("MQMD", changed, version=2)
    except HeaderError as wrong:
        raise MQError(MQRC_PROPERTY_TYPE_ERROR, str(wrong)) from wrong


def _descriptor_field(name: str) -> layout.Field:
    # StrucId and Version are not properties.
    wanted = name.removeprefix(property_names.DESCRIPTOR)
    for field in layout.STRUCTURES["MQMD"].fields[2:]:
        if field.name == wanted and name.startswith(property_names.DESCRIPTOR):
            return field
    raise MQError(MQRC_PROPERTY_NOT_AVAILABLE, f"{name!r} is not a field of the descriptor")
