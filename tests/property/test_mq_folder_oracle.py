"""The folder reader against a general XML parser: the same tree for everything both accept."""

import xml.etree.ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from gateway.mq.headers.rfh2_folder import parse_folder, render, unescape

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.\-]{0,6}", fullmatch=True)
TEXT = st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S", "Zs"]), max_size=10)


def _tree(children):
    return st.builds(_element, NAMES, st.dictionaries(NAMES, TEXT, max_size=2), children)


def _element(name, attributes, inside):
    made = ET.Element(name, attributes)
    if isinstance(inside, str):
        made.text = inside
    else:
        made.extend(inside)
    return made


TREES = st.recursive(_tree(TEXT), lambda inner: _tree(st.lists(inner, max_size=4)), max_leaves=12)


def _shape(element):
    """Name, attributes, and text or children, of a tree of either parser."""
    if isinstance(element, ET.Element):
        inside = [_shape(child) for child in element] or (element.text or "")
        return element.tag, dict(element.attrib), inside
    inside = [_shape(child) for child in element.children] or unescape(element.text)
    return element.name, element.attributes, inside


@given(TREES, st.booleans())
def test_read_as_xml(tree, short):
    text = ET.tostring(tree, encoding="unicode", short_empty_elements=short)
    assert _shape(parse_folder(text)) == _shape(ET.fromstring(text))


@given(TREES)
def test_written_as_xml(tree):
    text = render(parse_folder(ET.tostring(tree, encoding="unicode")))
    assert _shape(ET.fromstring(text)) == _shape(tree)
