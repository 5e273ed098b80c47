"""What a setting is for, by its dotted key, from the text of the field list."""

from __future__ import annotations

from functools import cache
from typing import get_args

from pydantic import BaseModel

from gateway.config.model import Settings


@cache
def description_of(key: str) -> str:
    """The description of a key such as `mqtt.max_qos` or `listeners.0.tls.key`. If a key is the user's own, as in a
    table of users, it is that of the nearest key above. Empty: there is none."""
    models: list[type[BaseModel]] = [Settings]
    found = ""
    for name in key.split("."):
        fields = [field for one in models for own, field in one.model_fields.items() if name in (own, field.alias)]
        if fields:
            found = fields[0].description or found
            models = list(_models(fields[0].annotation))
    return found


def _models(annotation: object) -> list[type[BaseModel]]:
    """The models within a type, such as `list[Listener] | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in get_args(annotation) for model in _models(inner)]
