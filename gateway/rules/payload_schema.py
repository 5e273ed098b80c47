"""JSON Schemas of payloads, compiled when rules are read, so that a wrong one is found before any message arrives.

References to other documents are refused: a rule must not fetch anything. Errors never show the values of the payload.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from gateway.config.units import Wrong
from gateway.rules.pattern_weight import bounded

Differs = Callable[[object, bool], str]
"""Says in what a document differs from the schema; empty: in nothing. The flag: whether to name the place, for which
the validator writes out the whole document."""


def _refuse(uri: str) -> Any:
    raise ValueError(f"{uri} is another document")


def _branches_again(schema: Any) -> bool:
    """Whether a schema has both alternatives and references, so that alternatives may contain themselves. To name the
    place, the validator describes the error in each alternative, and in each of their own: with a document nested
    twelve deep that takes a second, with one twice as deep it never ends."""
    keys: set[str] = set()
    left = [schema]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            keys |= one.keys()
            left += one.values()
        elif isinstance(one, list):
            left += one
    return not keys.isdisjoint({"anyOf", "oneOf"}) and not keys.isdisjoint({"$ref", "$dynamicRef", "$recursiveRef"})


@lru_cache(maxsize=1024)
def compile_schema(text: str) -> Differs:
    """The validator of a schema. Raises Wrong if the text is not a schema."""
    import jsonschema_rs  # 8 MB: only where a rule has a schema

    invalid = jsonschema_rs.ValidationError
    try:
        schema = json.loads(text)
        validator = jsonschema_rs.validator_for(bounded(schema), mask="the value", retriever=_refuse)
        shows_place = not _branches_again(schema)
    except invalid as error:
        what = error.message.splitlines()[0][:200]
        raise Wrong(f"not a JSON Schema: {what}", "correct it; references may only lead inside the same file") from None
    except (ValueError, RecursionError) as error:
        raise Wrong(f"not JSON: {error}"[:200], "correct that file") from None

    def differs(document: object, place: bool) -> str:
        try:
            if not validator.is_valid(document):  # takes a third of the time of `validate`
                if not (place and shows_place):
                    return "the document does not match the schema"
                validator.validate(document)
        except invalid as error:
            return f"{'/'.join(map(str, error.instance_path)) or 'the document'}: {error.message}"
        except (ValueError, RecursionError):  # what the validator cannot read, such as 300 nested arrays
            return "the schema cannot be applied to the document"
        except BaseException as error:
            if type(error).__name__ != "PanicException":  # of the validator: no Exception, and not to end the process
                raise
            return "the schema cannot be applied to the document"
        return ""

    return differs
