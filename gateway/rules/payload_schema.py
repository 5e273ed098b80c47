"""JSON Schemas of payloads: compiled when rules are read, so that a wrong one is found before any message.

References to other documents are refused: a rule must not fetch anything. Errors never show the payload's values.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

import jsonschema_rs

from gateway.config.units import Wrong

Invalid = jsonschema_rs.ValidationError


def _refuse(uri: str) -> Any:
    raise ValueError(f"{uri} is another document")


@lru_cache(maxsize=1024)
def compile_schema(text: str) -> Any:
    """The validator of a schema; Wrong when the text is not one."""
    try:
        return jsonschema_rs.validator_for(json.loads(text), mask="the value", retriever=_refuse)
    except Invalid as error:
        what = error.message.splitlines()[0][:200]
        raise Wrong(f"not a JSON Schema: {what}", "correct it; references may only lead inside the same file") from None
    except (ValueError, RecursionError) as error:
        raise Wrong(f"not JSON: {error}"[:200], "correct that file") from None
