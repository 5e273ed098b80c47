"""The JSON Schema of mapping files, made from the field list that reads them, for completion and checks in any
editor."""

from __future__ import annotations

from typing import Any

from gateway.config.schema import json_schema
from gateway.rules.model import MappingFile


def mapping_schema() -> dict[str, Any]:
    """The schema of a mapping file."""
    return json_schema(MappingFile, "Mappings of mqgate")
