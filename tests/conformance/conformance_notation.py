"""The notation of the conformance cases: packets as text, lengths worked out, differences between versions marked.

    32 [ s'{t}/a' 000A p(02 0000000A) 'hello' ]

hex digits      bytes (`78*300`: repeated)          'text'      its UTF-8 bytes
s'text'         the same, two bytes of length first  b( )        two bytes of length, then the content
[ ]             remaining length, then the content   p( )        property length and content in 5.0, nothing before
5( ) 31( ) 311( ) 3( )   only in that version (3: both)            N           protocol name and level of the version
..  any byte    *  any bytes                         (both in expectations only)

`{t}` is a topic prefix of the case's own, `{A}` the client id of client A.
"""

from __future__ import annotations

import re

from gateway.mqtt.primitives import encode_varint

TOKEN = re.compile(
    r"\s+|(?P<string>s?'[^']*')|(?P<open>\[|[pb]\(|(?:311|31|3|5)\()|(?P<close>[\])])"
    r"|(?P<name>N)|(?P<repeat>(?:[0-9A-Fa-f]{2})+\*\d+)|(?P<hex>(?:[0-9A-Fa-f]{2})+)|(?P<any>\.\.)|(?P<rest>\*)"
)
PROTOCOL = {3: b"\0\6MQIsdp\3", 4: b"\0\4MQTT\4", 5: b"\0\4MQTT\5"}
ONLY = {"5(": {5}, "31(": {3}, "311(": {4}, "3(": {3, 4}}
VARINT = rb"[\x80-\xff]{0,3}[\x00-\x7f]"


def parse(text: str) -> list:
    """Tokens to a tree: `(opener, children)` for groups, `(kind, text)` for the rest."""
    stack: list[list] = [[]]
    openers: list[str] = []
    place = 0
    while place < len(text):
        match = TOKEN.match(text, place)
        if match is None:
            raise ValueError(f"cannot read {text[place:]!r} in {text!r}")
        place = match.end()
        kind = match.lastgroup
        if kind == "open":
            openers.append(match[0])
            stack.append([])
        elif kind == "close":
            children = stack.pop()
            stack[-1].append((openers.pop(), children))
        elif kind:
            stack[-1].append((kind, match[0]))
    if openers:
        raise ValueError(f"{openers[-1]} is not closed in {text!r}")
    return stack[0]


def literal(kind: str, text: str, version: int) -> bytes:
    if kind == "name":
        return PROTOCOL[version]
    if kind == "hex":
        return bytes.fromhex(text)
    if kind == "repeat":
        pair, _, count = text.partition("*")
        return bytes.fromhex(pair) * int(count)
    raw = text.partition("'")[2][:-1].encode()
    return len(raw).to_bytes(2, "big") + raw if text[0] == "s" else raw


def render(nodes: list, version: int) -> bytes:
    """The bytes to send."""
    out = b""
    for kind, content in nodes:
        if not isinstance(content, list):
            out += literal(kind, content, version)
            continue
        if version not in ONLY.get(kind, {3, 4, 5}) or (kind == "p(" and version != 5):
            continue
        inner = render(content, version)
        prefix = {"[": encode_varint, "p(": encode_varint, "b(": lambda n: n.to_bytes(2, "big")}.get(kind)
        out += prefix(len(inner)) + inner if prefix else inner
    return out


def pattern(nodes: list, version: int) -> bytes:
    """A regular expression for a packet without its remaining length."""
    out = b""
    for kind, content in nodes:
        if kind == "any":
            out += b"."
        elif kind == "rest":
            out += b".*"
        elif not isinstance(content, list):
            out += re.escape(literal(kind, content, version))
        elif kind == "b(":
            out += re.escape(render([(kind, content)], version))
        elif kind == "p(" and version == 5:
            wild = any(inner in {"any", "rest"} for inner, _ in content)
            out += (VARINT if wild else re.escape(encode_varint(len(render(content, version))))) + pattern(
                content, version
            )
        elif kind != "p(" and version in ONLY.get(kind, {3, 4, 5}):
            out += pattern(content, version)
    return out


def to_bytes(text: str, version: int) -> bytes:
    return render(parse(text), version)


def to_pattern(text: str, version: int) -> re.Pattern[bytes]:
    return re.compile(pattern(parse(text), version), re.DOTALL)
