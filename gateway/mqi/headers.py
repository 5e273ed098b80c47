"""The C headers of the MQI library, generated from the layout table that the Python codecs are compiled from.

`cmqc.h`, `cmqxc.h`, `cmqcfc.h`, `cmqbc.h` hold what programs and the sources of MQ clients need to compile: types,
structures with defaults and lengths, the constants this project knows, prototypes. Static assertions pin every offset
and length, so that a compiler that lays a structure out differently refuses. Pure text: writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import ModuleType

from gateway.mq.constants import md, mqi, mqrc, pcf
from gateway.mq.layout import STRUCTURES, Field, Structure
from gateway.mqi.administration_constants import ADMINISTRATION, CHANNELS
from gateway.mqi.application_constants import numbers
from gateway.mqi.program_constants import NULLS, NUMBERS, STRINGS
from gateway.mqi.prototypes import BAG_CONSTANTS, BAG_PROTOTYPES, PROTOTYPES

_CHANNEL = ("MQCD",)
_PCF = (*(name for name in STRUCTURES if name.startswith("MQCF")), "MQEPH")
_ELSEWHERE = {*_CHANNEL, *_PCF, "MQPMR"}  # MQPMR has no fixed layout: each program lists the fields it sends

_TYPES = """\
typedef int32_t MQLONG, MQHCONN, MQHOBJ, MQBOOL, MQINT32, MQHBAG;
typedef int64_t MQHMSG, MQINT64;
typedef uint32_t MQULONG, MQUINT32;
typedef uint64_t MQUINT64;
typedef int8_t MQINT8;
typedef uint8_t MQUINT8;
typedef int16_t MQINT16;
typedef uint16_t MQUINT16;
typedef float MQFLOAT32;
typedef double MQFLOAT64;
typedef char MQCHAR;
typedef unsigned char MQBYTE;
typedef void *MQPTR;
typedef void MQVOID;
typedef MQVOID *PMQVOID;
typedef PMQVOID *PPMQVOID;
typedef MQCHAR *PMQCHAR;
typedef MQBYTE *PMQBYTE;
typedef MQLONG *PMQLONG;
typedef MQHCONN *PMQHCONN;
typedef MQHOBJ *PMQHOBJ;
typedef MQHMSG *PMQHMSG;
typedef MQBOOL *PMQBOOL;
typedef MQINT8 *PMQINT8;
typedef MQINT16 *PMQINT16;
typedef MQINT32 *PMQINT32;
typedef MQINT64 *PMQINT64;
typedef MQFLOAT32 *PMQFLOAT32;
typedef MQFLOAT64 *PMQFLOAT64;
typedef MQHBAG *PMQHBAG;
"""
_ARRAYS = """\
typedef MQCHAR MQCHAR4[4], MQCHAR8[8], MQCHAR12[12], MQCHAR20[20], MQCHAR28[28], MQCHAR32[32], MQCHAR48[48],
    MQCHAR64[64], MQCHAR128[128], MQCHAR256[256], MQCHAR264[264];
typedef MQBYTE MQBYTE4[4], MQBYTE8[8], MQBYTE16[16], MQBYTE24[24], MQBYTE32[32], MQBYTE40[40], MQBYTE128[128];
"""
_LEVELS = (500, 510, 520, 530, 531, 532, 600, 700, 701, 710, 750, 800, 801)
_FIXED = {
    "MQCC_UNKNOWN": -1,
    "MQRC_NONE": 0,
    "MQRC_STRING_TRUNCATED": 2311,
    "MQHC_DEF_HCONN": 0,
    **NUMBERS,
    **numbers(),
}


def headers() -> dict[str, str]:
    """Returns the text of every header by file name."""
    return {
        "cmqc.h": _header("CMQC", (), _cmqc()),
        "cmqxc.h": _header("CMQXC", ("cmqc.h",), _cmqxc()),
        "cmqcfc.h": _header("CMQCFC", ("cmqc.h",), _cmqcfc()),
        "cmqbc.h": _header("CMQBC", ("cmqc.h", "cmqcfc.h"), _cmqbc()),
    }


def assertions() -> str:
    """Returns a C file that compiles only if every offset and length is the one in the table."""
    lines = [f'#include "{name}"' for name in ("cmqc.h", "cmqxc.h", "cmqcfc.h")] + ["#include <stddef.h>"]
    for structure in STRUCTURES.values():
        if structure.name != "MQPMR":
            lines += _assertions(structure)
    return "\n".join(lines) + "\n"


def _assertions(structure: Structure) -> Iterator[str]:
    name = structure.name
    yield f'_Static_assert(sizeof({name}) == {structure.length()}, "length of {name}");'
    for field in structure.fields:
        yield f'_Static_assert(offsetof({name}, {field.name}) == {field.offset}, "offset of {name}.{field.name}");'


def _header(guard: str, includes: Iterable[str], body: Iterable[str]) -> str:
    lines = [
        "/* Generated from the layout table of mqgate: do not edit. For Linux x86-64, natural alignment. */",
        f"#ifndef MQGATE_{guard}_H",
        f"#define MQGATE_{guard}_H",
        "",
        *(f'#include "{name}"' for name in includes),
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        "",
        *body,
        "#ifdef __cplusplus",
        "}",
        "#endif",
        "#endif",
    ]
    return "\n".join(lines) + "\n"


def _cmqc() -> Iterator[str]:
    yield "#include <stdint.h>"
    yield _TYPES
    yield _ARRAYS
    yield "#ifndef MQENTRY\n#define MQENTRY\n#endif\n#define MQPOINTER MQPTR"
    yield from (f"#define MQCMDL_LEVEL_{level} {level}" for level in _LEVELS)
    yield "#define MQCMDL_CURRENT_LEVEL MQCMDL_LEVEL_801\n"
    yield from (f"#define {name} {_parenthesised(value)}" for name, value in _FIXED.items())
    for name, length in NULLS.items():
        yield from _bytes(name, bytes(length))
    for name, value in STRINGS.items():
        yield from _bytes(name, value)
    for module in (mqi, md, mqrc):
        yield from _constants(module)
    yield from _structures(name for name in STRUCTURES if name not in _ELSEWHERE)
    yield from (f"void MQENTRY {line};" for line in PROTOTYPES)
    yield ""


def _cmqxc() -> Iterator[str]:
    yield from (f"#define {name} {_parenthesised(value)}" for name, value in CHANNELS.items())
    yield from _structures(_CHANNEL)
    yield "#define MQCD_CLIENT_CONN_DEFAULT MQCD_DEFAULT"  # the defaults of the table are those of a client connection
    yield ""


def _cmqcfc() -> Iterator[str]:
    yield from (f"#define {name} {_parenthesised(value)}" for name, value in ADMINISTRATION.items())
    yield from _constants(pcf)
    yield from _structures(_PCF)


def _cmqbc() -> Iterator[str]:
    yield from (f"#define {name} {_parenthesised(value)}" for name, value in BAG_CONSTANTS.items())
    yield ""
    yield from (f"void MQENTRY {line};" for line in BAG_PROTOTYPES)
    yield ""


def _constants(module: ModuleType) -> Iterator[str]:
    for name, value in vars(module).items():
        if name in _FIXED or not name.startswith("MQ"):
            continue
        if isinstance(value, int):
            yield f"#define {name} {_parenthesised(value)}"
        elif isinstance(value, bytes):
            yield from _bytes(name, value)
    yield ""


def _parenthesised(value: int) -> str:
    return f"({value})" if value < 0 else str(value)


def _bytes(name: str, value: bytes) -> Iterator[str]:
    """Yields a string and the start of an array of characters; a single byte is a character, because fields of that
    type are."""
    if len(value) == 1:
        yield f"#define {name} {_character(value[0])}"
        return
    yield f"#define {name} {_string(value)}"
    yield f"#define {name}_ARRAY {','.join(map(_character, value))}"


def _character(byte: int) -> str:
    return f"'{chr(byte)}'" if 32 <= byte < 127 else f"'\\{byte:03o}'"


def _string(value: bytes) -> str:
    """Returns a C string literal; in binary constants (MQMI_NONE) every byte is escaped."""
    if value.isascii() and value.decode().isprintable():
        return f'"{value.decode()}"'
    return '"' + "".join(f"\\{byte:03o}" for byte in value) + '"'


def _structures(names: Iterable[str]) -> Iterator[str]:
    for name in names:
        yield from _structure(STRUCTURES[name])


def _structure(structure: Structure) -> Iterator[str]:
    name = structure.name
    for version in structure.versions:
        yield f"#define {name}_VERSION_{version} {version}"
        yield f"#define {name}_LENGTH_{version} {structure.length(version)}"
    first = structure.fields[0]
    if first.name == "StrucId" and isinstance(first.default, bytes) and first.default:
        yield from _bytes(f"{name}_STRUC_ID", first.default)
    yield f"#define {name}_CURRENT_VERSION {structure.latest}"
    yield f"#define {name}_CURRENT_LENGTH {structure.length()}"
    yield f"typedef struct tag{name} {{"
    for field in structure.fields:
        yield f"    {_declaration(field)};"
    yield f"}} {name}, *P{name};"
    if name == "MQMD":
        yield "typedef MQMD MQMD2, *PMQMD2;"
    yield f"#define {name}_DEFAULT {', '.join(_initialiser(field) for field in structure.fields)}"
    yield ""


def _declaration(field: Field) -> str:
    if field.embedded and field.embedded != "MQMD":
        return f"{field.embedded} {field.name}"
    if field.embedded:  # MQXQH holds a descriptor of version 1, which is shorter than the type MQMD
        return f"union {{ MQBYTE bytes[{field.size}]; MQLONG aligned; }} {field.name}"
    kind = field.type[0]
    if kind in "cb":
        base = "MQCHAR" if kind == "c" else "MQBYTE"
        return f"{base} {field.name}" + (f"[{field.size}]" if field.size > 1 else "")
    if kind == "p":
        return f"MQPTR {field.name}"
    if kind == "n":  # a 64-bit number at an address that is a multiple of four only
        return f"__attribute__((packed, aligned(4))) MQINT64 {field.name}"
    base = "MQHMSG" if kind == "i" and field.type == "i8" else "MQLONG"
    return f"{base} {field.name}" + (f"[{field.count}]" if field.count > 1 else "")


def _initialiser(field: Field) -> str:
    if field.embedded:
        return "{{0}}" if field.embedded == "MQMD" else f"{{{field.embedded}_DEFAULT}}"
    if isinstance(field.default, tuple):
        return "{" + ",".join(map(str, field.default)) + "}"
    if isinstance(field.default, int):
        return _parenthesised(field.default)
    return _bytes_initialiser(field)


def _bytes_initialiser(field: Field) -> str:
    default = field.default if isinstance(field.default, bytes) else b""
    if field.size == 1:
        return f"'{default.decode()}'" if default else "0"
    if not default:
        return "{0}"
    return "{" + ",".join(f"'{chr(byte)}'" for byte in default) + "}"
