"""Decoders of payloads: JSON, CBOR, Sparkplug B, text, raw bytes and hooks of users, to JSON text. Pure.

All formats become JSON text, so that the same typing and checks follow (Spark's `from_json` and `jobs/silver.py`). A
payload that cannot be decoded gives an error text instead of a document, never an exception: its row goes to quarantine
with the raw payload.
"""

from __future__ import annotations

import base64
import datetime as dt
import importlib
import json
import math
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from gateway.config.extras import how_to_install
from gateway.errors import MQError
from gateway.mq.character_sets.ccsid import decoded, source_codec
from gateway.pipeline.decode.sparkplug import decode_payload
from gateway.pipeline.errors import PipelineError, WrongOption

Decoded = tuple[list[str | None], list[str | None]]
"""Documents and errors as parallel lists; each payload has one of the two."""

Hook = Callable[[bytes], Any]

BUILT_IN = ("json", "cbor", "sparkplug_b", "text", "raw")
OF_TEXT = ("json", "text")
"""Decoders of text, which is converted from the character set that its message names."""
STRING = "MQSTR"
"""The Format of text, for which CodedCharSetId names the character set of the payload."""
MAX_ERROR = 200


def decoder(name: str) -> Callable[[Iterable[bytes]], Decoded]:
    """The function for `json`, `cbor`, `sparkplug_b`, `text`, `raw` or `python:module:function`."""
    return lambda payloads: decode_column(_hook(name), payloads)


def decode_column(decode: Hook, payloads: Iterable[bytes]) -> Decoded:
    """Apply `decode` to every payload. Any exception is that row's error, because a hook is a user's code."""
    documents: list[str | None] = []
    errors: list[str | None] = []
    for payload in payloads:
        try:
            documents.append(_json(decode(payload)))
            errors.append(None)
        except Exception as error:  # noqa: BLE001 - whatever a payload does to a decoder, the row must land
            documents.append(None)
            errors.append(f"{type(error).__name__}: {error}"[:MAX_ERROR])
    return documents, errors


def decode_texts(
    name: str, payloads: Iterable[bytes | None], ccsids: Iterable[int], encodings: Iterable[int]
) -> Decoded:
    """The documents of payloads that are text in these character sets: for `json` the text without a byte order mark,
    which may precede it (RFC 8259, 8.1). Where there is no payload there is neither document nor error."""
    documents: list[str | None] = []
    errors: list[str | None] = []
    for payload, ccsid, encoding in zip(payloads, ccsids, encodings, strict=True):
        document = error = None
        if payload is not None:
            try:
                text = text_of(payload, ccsid, encoding)
                document = text.removeprefix("\ufeff") if name == "json" else json.dumps({"text": text})
            except MQError as wrong:
                error = str(wrong)[:MAX_ERROR]
        documents.append(document)
        errors.append(error)
    return documents, errors


def text_of(payload: bytes, ccsid: int, encoding: int) -> str:
    """The text of a payload. Raises MQError 2111 if the character set is not known here, or 2119 if the payload is not
    text in it."""
    return decoded(payload, source_codec(ccsid, encoding))


def _json(document: Any) -> str:
    try:
        return json.dumps(document, default=_plain, allow_nan=False)
    except ValueError:  # or it goes in a circle, which ends as an error of its own
        return json.dumps(_finite(document), default=_plain, allow_nan=False)


def _finite(value: Any) -> Any:
    """The value with null for NaN and infinities, which floats of CBOR and Sparkplug may be, and which JSON does not
    have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, (list, tuple)) else value


def _hook(name: str) -> Hook:
    if name.startswith("python:"):
        return load_hook(name.removeprefix("python:"))
    if name == "cbor":
        return _cbor()
    hooks: dict[str, Hook] = {"json": _document, "sparkplug_b": decode_payload, "text": decode_text, "raw": decode_raw}
    if name not in hooks:
        raise WrongOption(f"no decoder {name!r}: use one of {', '.join(BUILT_IN)} or python:module:function")
    return hooks[name]


def load_hook(reference: str) -> Hook:
    """`package.module:function`, which takes the payload and returns anything JSON can hold."""
    module, _, function = reference.partition(":")
    try:
        hook = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise WrongOption(f"decoder python:{reference} cannot be loaded ({error}): write python:module:function, "
                          "and put the module on PYTHONPATH of driver and executors") from error  # fmt: skip
    if not callable(hook):
        raise WrongOption(f"decoder python:{reference} is not a function")
    return hook  # type: ignore[no-any-return]


def _document(payload: bytes) -> Any:
    return json.loads(payload, parse_constant=_no_number)


def _no_number(name: str) -> NoReturn:
    raise PipelineError(f"{name} is no number of JSON")


def decode_text(payload: bytes) -> dict[str, str]:
    """UTF-8 text as the field `text`."""
    return {"text": payload.decode()}


def decode_raw(payload: bytes) -> dict[str, Any]:
    """Any bytes: their length and Base64."""
    return {"length": len(payload), "base64": base64.b64encode(payload).decode()}


def _cbor() -> Hook:
    try:
        import cbor2
    except ImportError as error:
        raise PipelineError(f"decode: cbor needs the package cbor2: {how_to_install('spark')}") from error

    def decode(payload: bytes) -> Any:
        import io

        source = io.BytesIO(payload)
        document = cbor2.CBORDecoder(source).decode()
        if source.tell() != len(payload) and source.read(1):
            raise PipelineError("bytes follow the CBOR item")
        return document

    return decode


def _plain(value: Any) -> Any:
    """JSON values for types that CBOR and hooks return and JSON lacks."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, (dt.datetime, dt.date)):
        return value.isoformat()
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=repr)
    return str(value)
