"""One raw MQTT client of a conformance case: sends bytes, takes frames apart. Shares nothing with the codec."""

from __future__ import annotations

import re
import socket
import time

from conformance_notation import to_bytes, to_pattern

TIMEOUT = 40.0


class Failed(AssertionError):
    """A step of a case did not hold."""


class Client:
    def __init__(self, name: str, client_id: str, version: int, connection: socket.socket) -> None:
        self.name, self.client_id, self.version = name, client_id, version
        self.socket = connection
        self.buffer = b""
        self.held: list[bytes] = []
        self.log: list[str] = []

    def send(self, raw: bytes) -> None:
        self.log.append(f"{self.name} > {raw[:60].hex(' ')}")
        try:
            self.socket.sendall(raw)
        except (BrokenPipeError, ConnectionResetError):
            self.log.append(f"{self.name}: the connection is closed already")

    def frame(self, timeout: float = TIMEOUT) -> bytes:
        """The next frame without its remaining length; b"" at the end of the stream."""
        deadline = time.monotonic() + timeout
        if self.held:
            return self.held.pop(0)
        while True:
            frame = self.take()
            if frame:
                self.log.append(f"{self.name} < {frame[:60].hex(' ')}")
                return frame
            self.socket.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                chunk = self.socket.recv(65536)
            except ConnectionResetError:
                chunk = b""
            except TimeoutError:
                raise Failed(f"{self.name}: nothing came within {timeout} s") from None
            if not chunk:
                self.log.append(f"{self.name} < end of stream, {len(self.buffer)} bytes left over")
                return b""
            self.buffer += chunk

    def take(self) -> bytes:
        length = 0
        for place, byte in enumerate(self.buffer[1:5]):
            length |= (byte & 127) << 7 * place
            if byte < 128:
                if place and not byte:
                    raise Failed(f"{self.name}: the remaining length is longer than needed")
                start = place + 2
                if len(self.buffer) < start + length:
                    return b""
                frame = self.buffer[:1] + self.buffer[start : start + length]
                self.buffer = self.buffer[start + length :]
                return frame
        return b""

    def expect(self, pattern: re.Pattern[bytes], meaning: str, timeout: float = TIMEOUT) -> bytes:
        frame = self.frame(timeout)
        if not pattern.fullmatch(frame):
            raise Failed(f"{self.name}: expected {meaning}, got {frame[:200].hex(' ') or 'the end of the connection'}")
        return frame

    # --- one method a verb of the cases ---------------------------------------------------------------------------

    def connects(self, text: str) -> None:
        """`connects [clean=0] [keepalive=N] [present=1] [props=HEX] [will=TOPIC,QOS,RETAIN,PAYLOAD] [willprops=HEX]`"""
        options = dict(part.split("=", 1) for part in text.split())
        clean = options.get("clean", "1") == "1"
        props = options.get("props", "" if clean else "11000003E8")
        will = options.get("will")
        flags, payload = clean << 1, ""
        if will:
            topic, qos, retain, message = will.split(",")
            flags |= 4 | int(qos) << 3 | int(retain) << 5
            payload = f"p({options.get('willprops', '')}) s'{topic}' s'{message}'"
        keep_alive = int(options.get("keepalive", "0"))
        packet = f"10 [ N {flags:02X} {keep_alive:04X} p({props}) s'{self.client_id}' {payload} ]"
        self.send(to_bytes(packet, self.version))
        present = "00" if self.version == 3 else f"{int(options.get('present', '0')):02X}"
        self.expect(to_pattern(f"20 [ {present} 00 p(*) ]", self.version), f"CONNACK 0, session present {present}")

    def speaks(self, text: str) -> None:
        """`speaks LEVEL`: another version than the case's."""
        self.version = int(text)

    def user(self, text: str) -> None:
        """`user NAME PASSWORD`: connects as this user."""
        name, password = text.split()
        self.send(to_bytes(f"10 [ N C2 0000 p() s'{self.client_id}' s'{name}' s'{password}' ]", self.version))
        self.expect(to_pattern("20 [ 0000 p(*) ]", self.version), "CONNACK 0")

    def skips_until(self, text: str) -> None:
        """`skips_until PATTERN not TEXT`: any packets without the text, then this one."""
        wanted, _, forbidden = text.partition(" not ")
        pattern = to_pattern(wanted, self.version)
        while not pattern.fullmatch(frame := self.frame()):
            if not frame or forbidden.encode() in frame:
                raise Failed(f"{self.name}: {frame.hex(' ')} instead of {wanted}")

    def subscribes(self, text: str) -> None:
        """`subscribes FILTER OPTIONS [granted=QOS] [props=HEX]`: options as the byte's hex digits."""
        filter_, options, *rest = text.split()
        more = dict(part.split("=", 1) for part in rest)
        packet = f"82 [ 0001 p({more.get('props', '')}) s'{filter_}' {int(options, 16):02X} ]"
        self.send(to_bytes(packet, self.version))
        granted = more.get("granted", f"{int(options, 16) & 3:02X}")
        self.expect(to_pattern(f"90 [ 0001 p(*) {granted} ]", self.version), f"SUBACK {granted}")

    def publishes(self, text: str) -> None:
        """`publishes TOPIC QOS PAYLOAD [retain=1] [props=HEX] [id=HEX]`, with the whole handshake."""
        topic, qos_text, payload, *rest = text.split()
        more = dict(part.split("=", 1) for part in rest)
        qos, packet_id = int(qos_text), more.get("id", "0001")
        first = 0x30 | qos << 1 | (more.get("retain") == "1")
        identifier = packet_id if qos else ""
        payload = "" if payload == "-" else payload
        packet = f"{first:02X} [ s'{topic}' {identifier} p({more.get('props', '')}) '{payload}' ]"
        self.send(to_bytes(packet, self.version))
        good = re.escape(bytes.fromhex(packet_id)) + rb"(?:[\x00\x10](?:\x00)?)?"
        if qos == 1:
            self.expect(re.compile(b"\x40" + good, re.DOTALL), "PUBACK")
        elif qos == 2:
            self.expect(re.compile(b"\x50" + good, re.DOTALL), "PUBREC")
            self.send(to_bytes(f"62 [ {packet_id} ]", self.version))
            self.expect(re.compile(b"\x70" + good, re.DOTALL), "PUBCOMP")

    def receives(self, text: str) -> None:
        """`receives TOPIC QOS PAYLOAD [retain=1] [props=PATTERN] [dup=1] [ack=0]`, acknowledged to the end."""
        topic, qos_text, payload, *rest = text.split()
        more = dict(part.split("=", 1) for part in rest)
        qos = int(qos_text)
        first = 0x30 | qos << 1 | (more.get("retain") == "1") | (more.get("dup") == "1") << 3
        identifier = ".. .." if qos else ""
        payload = "" if payload == "-" else payload
        packet = f"{first:02X} [ s'{topic}' {identifier} p({more.get('props', '')}) '{payload}' ]"
        frame = self.expect(to_pattern(packet, self.version), f"PUBLISH {text}")
        if not qos or more.get("ack") == "0":
            return
        place = 3 + int.from_bytes(frame[1:3], "big")
        packet_id = frame[place : place + 2]
        if qos == 1:
            self.send(b"\x40\x02" + packet_id)
        else:
            self.send(b"\x50\x02" + packet_id)
            self.await_pubrel(packet_id)
            self.send(b"\x70\x02" + packet_id)

    def await_pubrel(self, packet_id: bytes) -> None:
        """Other packets may come before it: they are the next steps' business."""
        others = []
        while (frame := self.frame()) != b"\x62" + packet_id:
            if not frame:
                raise Failed(f"{self.name}: the end of the connection instead of PUBREL")
            others.append(frame)
        self.held = others + self.held

    def quiet(self, text: str) -> None:
        """Nothing has been sent to us: the answer to a PINGREQ is the next packet."""
        self.send(b"\xc0\0")
        self.expect(re.compile(b"\xd0"), "PINGRESP and nothing before it")

    def refused(self, text: str) -> None:
        """`refused REASON`: DISCONNECT with the reason in 5.0, then the end; only the end before 5.0."""
        if self.version == 5:
            self.expect(to_pattern(f"E0 [ {text.strip()} * ]", 5), f"DISCONNECT {text}")
        self.closed("")

    def refused_late(self, text: str) -> None:
        """`refused_late REASON AFTER BEFORE`: the same, in these seconds."""
        reason, after, before = text.split()
        begun = time.monotonic()
        if self.version == 5:
            self.expect(to_pattern(f"E0 [ {reason} * ]", 5), f"DISCONNECT {reason}", float(before))
        self.closed(f"0 {before}")
        if time.monotonic() - begun < float(after):
            raise Failed(f"{self.name}: closed after {time.monotonic() - begun:.2f} s, not before {after} s")

    def trickles(self, text: str) -> None:
        """Sends byte by byte."""
        for byte in to_bytes(text, self.version):
            self.send(bytes((byte,)))

    def turned_away(self, text: str) -> None:
        """`turned_away CODE3 CODE5`: CONNACK with the code of the version (`-`: none), then the end."""
        code = text.split()[self.version == 5]
        if code != "-":
            self.expect(to_pattern(f"20 [ 00 {code} 5(*) ]", self.version), f"CONNACK {code}")
        self.closed("")

    def closed(self, text: str) -> None:
        """`closed [AFTER BEFORE]`: the server ends the connection, in these seconds if given."""
        after, before = map(float, text.split()) if text.strip() else (0.0, TIMEOUT)
        begun = time.monotonic()
        frame = self.frame(before)
        passed = time.monotonic() - begun
        if frame:
            raise Failed(f"{self.name}: expected the end of the connection, got {frame.hex(' ')}")
        if passed < after:
            raise Failed(f"{self.name}: closed after {passed:.2f} s, not before {after} s")

    def leaves(self, text: str) -> None:
        self.send(b"\xe0\0")
        self.closed("")

    def drops(self, text: str) -> None:
        self.socket.close()
