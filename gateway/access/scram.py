"""SCRAM-SHA-256 (RFC 5802, RFC 7677) as an authentication method of MQTT 5 AUTH. The server's side; no I/O.

Users whose plain password is known (settings with a password file each) can use it; hashes of mosquitto_passwd cannot
be turned into SCRAM keys.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import NamedTuple

METHOD = "SCRAM-SHA-256"
ITERATIONS = 4096


class Keys(NamedTuple):
    """What the server keeps of a password."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


def keys_of(password: bytes, salt: bytes, iterations: int = ITERATIONS) -> Keys:
    """The keys for a password."""
    salted = hashlib.pbkdf2_hmac("sha256", password, salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    return Keys(salt, iterations, hashlib.sha256(client_key).digest(), hmac.digest(salted, b"Server Key", "sha256"))


class ScramError(ValueError):
    """The client's message is not what the exchange expects, or its proof is wrong."""


class Exchange:
    """One authentication: the client's first message is answered by a challenge, its proof by the server's
    signature."""

    def __init__(self, users: dict[str, Keys], unknown: Keys, nonce: str) -> None:
        self._users = users
        self._unknown = unknown
        self._nonce = nonce
        self._first = b""
        self._challenge = b""
        self._header = b""
        self._keys = unknown
        self.user = ""

    def challenge(self, message: bytes) -> bytes:
        """The server's first message, for the client's first. An unknown user gets a challenge like any other."""
        header, _, bare = message.partition(b",,")
        if header not in {b"n", b"y"} or not bare:
            raise ScramError("channel binding and authorisation identities are not offered")
        fields = _fields(bare)
        if "n" not in fields or "r" not in fields or "m" in fields:
            raise ScramError("the first message needs n= and r=")
        self.user = fields["n"].replace("=2C", ",").replace("=3D", "=")
        self._keys = self._users.get(self.user, self._unknown)
        self._nonce = fields["r"] + self._nonce
        self._header, self._first = header + b",,", bare
        salt = base64.b64encode(self._keys.salt).decode()
        self._challenge = f"r={self._nonce},s={salt},i={self._keys.iterations}".encode()
        return self._challenge

    def finish(self, message: bytes) -> bytes:
        """The server's last message; ScramError when the proof is wrong."""
        without, comma, proof_text = message.rpartition(b",p=")
        fields = _fields(without)
        if not comma or fields.get("r") != self._nonce or fields.get("c") != base64.b64encode(self._header).decode():
            raise ScramError("the last message does not belong to this exchange")
        try:
            proof = base64.b64decode(proof_text, validate=True)
        except binascii.Error as error:
            raise ScramError("the proof is not base64") from error
        signed = b",".join((self._first, self._challenge, without))
        signature = hmac.digest(self._keys.stored_key, signed, "sha256")
        if len(proof) != len(signature):
            raise ScramError("the proof is wrong")
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        right = hmac.compare_digest(hashlib.sha256(client_key).digest(), self._keys.stored_key)
        if not right or self._keys is self._unknown:
            raise ScramError("the proof is wrong")
        return b"v=" + base64.b64encode(hmac.digest(self._keys.server_key, signed, "sha256"))


def _fields(text: bytes) -> dict[str, str]:
    try:
        parts = text.decode().split(",")
    except UnicodeDecodeError as error:
        raise ScramError("the message is not UTF-8") from error
    return {part[0]: part[2:] for part in parts if len(part) > 1 and part[1] == "="}
