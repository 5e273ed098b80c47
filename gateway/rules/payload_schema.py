"""JSON Schemas of payloads: compiled when rules are read, so that a wrong one is found before any message.

References to other documents are refused: a rule must not fetch anything. Errors never show the payload's values.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from gateway.config.units import Wrong
from gateway.rules.pattern_weight import bounded

Differs = Callable[[object, bool], str]
"""What in a document is not as a schema describes; empty: all is. The flag: whether to look for the place, for which
the validator writes out all of the document."""


def _refuse(uri: str) -> Any:
    raise ValueError(f"{uri} is another document")


def _branches_again(schema: Any) -> bool:
    """Whether a schema has both alternatives and references, so that alternatives may lie within themselves. Whoever
    asks for the place is told what is wrong in each of them, and in each of theirs: a document twelve deep takes a
    second then, one twice as deep for ever."""
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
    """The validator of a schema; Wrong when the text is not one."""
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
            if not validator.is_valid(document):  # a third of what it takes to be told what is wrong
                if not (place and shows_place):
                    return "the document is not as the schema describes it"
                validator.validate(document)
        except invalid as error:
            return f"{'/'.join(map(str, error.instance_path)) or 'the document'}: {error.message}"
        except (ValueError, RecursionError):  # what the validator does not take in, such as 300 arrays in each other
            return "the schema cannot be applied to the document"
        except BaseException as error:
            if type(error).__name__ != "PanicException":  # of the validator's own language: no Exception, and no end
                raise
            return "the schema cannot be applied to the document"
        return ""

    return differs
