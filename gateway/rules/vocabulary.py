"""Types of the values in a mapping file. Nothing is evaluated here."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, GetCoreSchemaHandler, GetJsonSchemaHandler, WithJsonSchema
from pydantic_core import CoreSchema, core_schema

from gateway.config.units import Wrong

Scalar = bool | int | float | str
Qos = Annotated[int, Field(ge=0, le=2)]
MqLong = Annotated[int, Field(ge=-(2**31), le=2**31 - 1)]
"""The value of an MQLONG field."""


class OneOrMany:
    """Accepts one value in place of a list, as a list of one; the JSON Schema says so too."""

    @staticmethod
    def __get_pydantic_core_schema__(source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(_as_list, handler(source))

    @staticmethod
    def __get_pydantic_json_schema__(schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        many = handler(schema)
        return {"anyOf": [many["items"], many]}


def _as_list(value: object) -> object:
    return value if isinstance(value, list) or value is None else [value]


def _folder_choice(value: object) -> object:
    """`true` and `false` are short for `usr` and `none`."""
    return {True: "usr", False: "none"}[value] if isinstance(value, bool) else value


def _format_name(value: str) -> str:
    if not re.fullmatch(r"[A-Z0-9]{1,8}", value):
        raise Wrong(f"`{value}` is not a format", "write an MQ format name in capitals (MQSTR, MYFORMAT)")
    return value


FormatName = Annotated[
    str, AfterValidator(_format_name), WithJsonSchema({"type": "string", "pattern": "^[A-Z0-9]{1,8}$"})
]
FolderChoice = Annotated[
    Literal["usr", "all", "none"],
    BeforeValidator(_folder_choice),
    WithJsonSchema({"enum": ["usr", "all", "none", True, False]}),
]
Names = Annotated[list[str], OneOrMany]
Levels = Annotated[list[Qos], OneOrMany]
Report = Literal[
    "coa", "cod", "exception", "expiration", "pan", "nan", "pass_msg_id", "pass_correl_id", "discard", "pass_expiry",
    "coa_with_data", "cod_with_data", "exception_with_data", "expiration_with_data",
    "coa_with_full_data", "cod_with_full_data", "exception_with_full_data", "expiration_with_full_data",
]  # fmt: skip
Folder = Literal["mcd", "mqps", "mqtt"]
Then = Literal["dead_letter", "hold", "drop", "disconnect"]
