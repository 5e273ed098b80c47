"""SCRAM-SHA-256 (RFC 5802, RFC 7677) as an authentication method of MQTT 5 AUTH. The server's side; no I/O.

It is for users whose plain password is known (settings with a password file each): hashes of mosquitto_passwd cannot be
turned into SCRAM keys. The salt of a name is made from a secret, whether the user exists or not: it is the same at each
attempt and after each restart, and reveals nothing.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import stringprep
import unicodedata
from typing import NamedTuple

METHOD = "SCRAM-SHA-256"
ITERATIONS = 4096
MAX_FIRST = 256
"""The most bytes of a client's first message, which has name and nonce. An exchange keeps less than 1 KiB until its
proof arrives."""


class Keys(NamedTuple):
    """What the server keeps of a password."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


def salt_of(secret: bytes, user: str) -> bytes:
    """The salt of a name."""
    return hmac.digest(secret, b"SCRAM salt of " + user.encode(), "sha256")[:16]


def keys_of(password: bytes, salt: bytes) -> Keys:
    """The keys for a password."""
    salted = hashlib.pbkdf2_hmac("sha256", password, salt, ITERATIONS)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    return Keys(salt, ITERATIONS, hashlib.sha256(client_key).digest(), hmac.digest(salted, b"Server Key", "sha256"))


class Users:
    """The keys of all users, and what stands for those of an unknown name."""

    def __init__(self, passwords: dict[str, bytes], secret: bytes, before: Users | None = None) -> None:
        """`before`: the users so far, with the same secret. Making the keys of a password takes milliseconds in which
        everybody waits, so only those of changed passwords are made."""
        known = {} if before is None else before.made
        self.made: dict[tuple[str, bytes], list[Keys]] = {}
        """Keys by name and digest of the password."""
        self._keys: dict[str, list[Keys]] = {}
        for name, password in passwords.items():
            made = name, hmac.digest(secret, password, "sha256")
            keys = known.get(made) or [keys_of(form, salt_of(secret, name)) for form in _forms(password)]
            self.made[made] = self._keys[name] = keys
        self._secret = secret
        self._nobody = hmac.digest(secret, b"SCRAM keys of nobody", "sha256")

    def __bool__(self) -> bool:
        return bool(self._keys)

    def __contains__(self, user: str) -> bool:
        return user in self._keys

    def keys(self, user: str) -> list[Keys]:
        """The keys of a name, one for each form of its password, all with the same salt; those of an unknown name fit
        no proof."""
        salt = salt_of(self._secret, user)
        return self._keys.get(user) or [Keys(salt, ITERATIONS, self._nobody, self._nobody)]


def _forms(password: bytes) -> list[bytes]:
    """The forms in which clients hash a password: prepared by SASLprep (RFC 5802, 2.2), or as it is, as many clients
    do. What SASLprep prohibits is not checked: a client that prepares its password does not send one with it."""
    try:
        text = password.decode()
    except UnicodeDecodeError:
        return [password]
    mapped = "".join(
        " " if stringprep.in_table_c12(one) else one for one in text if not stringprep.in_table_b1(one)
    )  # RFC 4013, 2.1
    return list(dict.fromkeys((unicodedata.normalize("NFKC", mapped).encode(), password)))


class ScramError(ValueError):
    """Raised if the client's message is not what the exchange expects, or if its proof is wrong."""


class Exchange:
    """One authentication: the client's first message is answered by a challenge, its proof by the server's
    signature."""

    __slots__ = ("_header", "_signed", "user")

    def __init__(self) -> None:
        self._signed = b""
        """The client's first message and the challenge, as both sides sign them."""
        self._header = b""
        self.user = ""

    def challenge(self, users: Users, message: bytes, nonce: str) -> bytes:
        """The server's first message, in answer to the client's. An unknown user gets a challenge like any other.
        Raises ScramError."""
        if len(message) > MAX_FIRST:
            raise ScramError(f"the first message has more than {MAX_FIRST} bytes")
        header, _, bare = message.partition(b",,")
        if not message:
            raise ScramError("the first message is missing: CONNECT carries it as Authentication Data")
        if header not in {b"n", b"y"}:
            raise ScramError(
                "channel binding and authorisation identities are not offered: begin the first message with n,,"
            )
        fields = _fields(bare)
        if not fields.get("n") or not fields.get("r") or "m" in fields:
            raise ScramError("the first message needs n= and r=")
        self.user = fields["n"].replace("=2C", ",").replace("=3D", "=")
        self._header = base64.b64encode(header + b",,")
        keys = users.keys(self.user)[0]
        salt = base64.b64encode(keys.salt).decode()
        challenge = f"r={fields['r']}{nonce},s={salt},i={keys.iterations}".encode()
        self._signed = bare + b"," + challenge + b","
        return challenge

    def finish(self, users: Users, message: bytes) -> bytes:
        """The server's last message. `users` are those of now, whatever they were at the challenge. Raises ScramError
        if the proof is wrong."""
        without, comma, proof_text = message.rpartition(b",p=")
        ours = _fields(self._signed[self._signed.rindex(b",r=") + 1 :])
        fields = _fields(without)
        if not comma or fields.get("r") != ours["r"] or fields.get("c", "").encode() != self._header:
            raise ScramError("the last message does not belong to this exchange")
        try:
            proof = base64.b64decode(proof_text, validate=True)
        except binascii.Error as error:
            raise ScramError("the proof is not base64") from error
        signed = self._signed + without
        for keys in users.keys(self.user):
            if _is_right(proof, keys, signed) and self.user in users:
                return b"v=" + base64.b64encode(hmac.digest(keys.server_key, signed, "sha256"))
        raise ScramError("the proof is wrong")


def _is_right(proof: bytes, keys: Keys, signed: bytes) -> bool:
    signature = hmac.digest(keys.stored_key, signed, "sha256")
    if len(proof) != len(signature):
        return False
    client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
    return hmac.compare_digest(hashlib.sha256(client_key).digest(), keys.stored_key)


def _fields(text: bytes) -> dict[str, str]:
    try:
        parts = text.decode().split(",")
    except UnicodeDecodeError as error:
        raise ScramError("the message is not UTF-8") from error
    return {part[0]: part[2:] for part in parts if len(part) > 1 and part[1] == "="}
