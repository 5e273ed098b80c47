"""What a setting is for, by its dotted key: the text of the field list."""

from __future__ import annotations

from functools import cache
from typing import get_args

from pydantic import BaseModel

from gateway.config.model import Settings


@cache
def description_of(key: str) -> str:
    """The description of `mqtt.max_qos` or `listeners.0.tls.key`; that of the nearest key above where a key is the
    user's own, as in a table of users. Empty: there is none."""
    models: list[type[BaseModel]] = [Settings]
    found = ""
    for name in key.split("."):
        fields = [field for one in models for own, field in one.model_fields.items() if name in (own, field.alias)]
        if fields:
            found = fields[0].description or found
            models = list(_models(fields[0].annotation))
    return found


def _models(annotation: object) -> list[type[BaseModel]]:
    """The models in a type, as in `list[Listener] | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in get_args(annotation) for model in _models(inner)]
