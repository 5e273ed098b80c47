"""The generated headers: they compile, agree with the layout table, and initialise as the Python codec does."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from pathlib import Path

import mqi_clients
import pytest

from gateway.mq.layout import LITTLE, STRUCTURES, codec, defaults, unpack
from gateway.mqi.headers import assertions, headers
from gateway.mqi.prototypes import BAG_PROTOTYPES, NAMES, PROTOTYPES

pytestmark = pytest.mark.mqi

WITH_DEFAULTS = [
    name
    for name, structure in STRUCTURES.items()
    if not {"XQH", "EPH", "PMR"} & {name[2:]} and structure.fields[0].name == "StrucId" and name != "MQCBC"
]


def _compile(tmp_path: Path, source: str, *, run: bool = False, compiler: str = "cc") -> bytes:
    for name, text in headers().items():
        (tmp_path / name).write_text(text)
    suffix = ".cc" if compiler == "c++" else ".c"
    (tmp_path / f"main{suffix}").write_text(source)
    command = [compiler, "-Wall", "-Wextra", "-Werror", "-o", str(tmp_path / "main"), str(tmp_path / f"main{suffix}")]
    if not run:
        command.insert(1, "-c")
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return subprocess.run([tmp_path / "main"], check=True, capture_output=True).stdout if run else b""


def test_every_offset_and_length_is_that_of_the_table(tmp_path: Path) -> None:
    mqi_clients.installation()
    text = assertions()
    assert text.count("_Static_assert") > 600
    _compile(tmp_path, text)


def test_what_programs_say_for_none_compiles(tmp_path: Path) -> None:
    mqi_clients.installation()
    program = """#include <string.h>
    #include <cmqc.h>
    MQLONG options = MQGMO_NONE | MQPMO_NONE | MQCMHO_NONE | MQBMHO_DELETE_PROPERTIES | MQMHBO_PROPERTIES_IN_MQRFH2;
    void reset(MQMD *md) {
        memcpy(md->MsgId, MQMI_NONE, sizeof md->MsgId);
        memcpy(md->CorrelId, MQCI_NONE, sizeof md->CorrelId);
        memcpy(md->GroupId, MQGI_NONE, sizeof md->GroupId);
        memcpy(md->AccountingToken, MQACT_NONE, sizeof md->AccountingToken);
    }"""
    _compile(tmp_path, program.replace("<cmqc.h>", '"cmqc.h"'))


def test_names_of_usual_programs_compile(tmp_path: Path) -> None:
    """The names used by a trigger monitor that inquires and sets attributes, and checks feedback and reason codes."""
    mqi_clients.installation()
    program = """#include <string.h>
    #include "cmqc.h"
    static MQLONG asked[] = {MQIA_TRIGGER_TYPE, MQIA_TRIGGER_DEPTH, MQIA_Q_DEPTH_HIGH_LIMIT, MQIA_SCOPE, MQIA_USAGE,
        MQCA_INITIATION_Q_NAME, MQCA_PROCESS_NAME, MQCA_TRIGGER_DATA, MQCA_APPL_ID, MQCA_ALTERATION_DATE};
    static char values[2 * MQ_Q_NAME_LENGTH + MQ_TRIGGER_DATA_LENGTH + MQ_PROCESS_APPL_ID_LENGTH + MQ_DATE_LENGTH];
    static MQTMC2 started;
    int handles(MQHCONN connection, MQHOBJ queue, MQMD *md, const char *data, MQOD *od) {
        MQLONG code, reason, numbers[5] = {MQTT_FIRST, MQTT_EVERY, MQTT_DEPTH, MQQA_GET_INHIBITED, MQTC_ON};
        MQINQ(connection, queue, 10, asked, 5, numbers, sizeof values, values, &code, &reason);
        memcpy(md->Format, MQFMT_STRING, (size_t)MQ_FORMAT_LENGTH);
        memcpy(md->CorrelId, md->MsgId, MQ_CORREL_ID_LENGTH);
        memcpy(started.StrucId, MQTMC_STRUC_ID, 4);
        od->ObjectType = MQOT_PROCESS;
        md->PutApplType = MQAT_DEFAULT;
        if (memcmp(data, MQTM_STRUC_ID, 4) || md->Feedback == MQFB_APPL_CANNOT_BE_STARTED) return MQFB_APPL_FIRST;
        return reason == MQRC_HANDLE_IN_USE_FOR_UOW ? MQENC_NATIVE : MQEC_CONNECTION_QUIESCING;
    }"""
    _compile(tmp_path, program)


def test_groups_and_arrays_of_characters_compile(tmp_path: Path) -> None:
    """GroupStatus and the like are characters; `_ARRAY` is the start of an array of them."""
    program = """#include <stdio.h>
    #include "cmqc.h"
    static MQCHAR8 format = {MQFMT_STRING_ARRAY};
    static MQCHAR4 id = {MQMD_STRUC_ID_ARRAY};
    static MQBYTE24 none = {MQMI_NONE_ARRAY};
    int main(void) {
        MQGMO gmo = {MQGMO_DEFAULT};
        if (gmo.GroupStatus != MQGS_NOT_IN_GROUP || gmo.Segmentation != MQSEG_INHIBITED) return 1;
        switch (gmo.SegmentStatus) {
        case MQSS_SEGMENT: case MQSS_LAST_SEGMENT: return 2;
        case MQSS_NOT_A_SEGMENT: break;
        }
        printf("%.8s|%.4s|%d", format, id, none[23]);
        return 0;
    }"""
    assert _compile(tmp_path, program, run=True) == b"MQSTR   |MD  |0"


def test_names_of_administration_programs_compile(tmp_path: Path) -> None:
    """The names used by programs that inquire queues and channels by PCF, and that connect with a channel of their
    own."""
    program = """#include "cmqc.h"
    #include "cmqcfc.h"
    #include "cmqxc.h"
    MQLONG admin(MQCNO *cno, MQCHAR *connection) {
        static MQCD channel = {MQCD_CLIENT_CONN_DEFAULT};
        static MQCFH header = {MQCFH_DEFAULT};
        static const MQLONG wanted[] = {MQIACF_Q_STATUS_TYPE, MQIACF_OPEN_TYPE, MQIACF_Q_STATUS_ATTRS,
            MQCACF_Q_NAMES, MQCACF_APPL_TAG, MQCACF_RESPONSE_Q_MGR_NAME, MQIACH_CHANNEL_STATUS, MQCACH_CHANNEL_NAME,
            MQIACF_PURGE, MQPO_YES, MQRP_YES, MQQSOT_ALL, MQRCCF_CHANNEL_NOT_ACTIVE, MQBACF_CONNECTION_ID};
        memcpy(channel.ConnectionName, connection, 9);
        channel.TransportType = MQXPT_TCP;
        channel.ChannelType = MQCHT_CLNTCONN;
        cno->ClientConnPtr = &channel;
        cno->Version = MQCNO_VERSION_2;
        header.StrucLength = MQCFH_STRUC_LENGTH + MQCFST_STRUC_LENGTH_FIXED + MQCFIN_STRUC_LENGTH;
        header.Command = cno->Options ? MQCMD_INQUIRE_CHANNEL_STATUS : MQCMD_ESCAPE;
        return wanted[0] + header.Command + MQET_MQSC + MQCHS_RUNNING;
    }"""
    _compile(tmp_path, "#include <string.h>\n" + program)


def test_numbers_are_those_of_another_binding(tmp_path: Path) -> None:
    """`ibmmq` has the same names."""
    mqi_clients.load_bindings()
    from ibmmq import CMQC, CMQCFC, CMQXC

    for file, names, least in (("cmqc.h", CMQC, 1500), ("cmqcfc.h", CMQCFC, 1500), ("cmqxc.h", CMQXC, 30)):
        defined = dict(re.findall(r"^#define (MQ\w+) \(?(-?\d+)\)?$", headers()[file], re.MULTILINE))
        known = {name: int(value) for name, value in defined.items() if isinstance(getattr(names, name, None), int)}
        known = {name: value for name, value in known.items() if not re.search("_(VERSION|LENGTH|LEVEL)(_|$)", name)}
        assert len(known) > least
        assert {name: value for name, value in known.items() if getattr(names, name) != value} == {}


def test_no_name_has_two_definitions() -> None:
    """A program may include all headers; a name that is defined again differently would be a warning."""
    found = {pair for text in headers().values() for pair in re.findall(r"^#define (MQ\w+) (.*)$", text, re.MULTILINE)}
    assert [name for name, times in Counter(name for name, _ in found).items() if times > 1] == []


def test_defaults_are_the_same_bytes_in_c_and_python(tmp_path: Path) -> None:
    mqi_clients.installation()
    lines = [f'#include "{name}"' for name in headers()] + ["#include <stdio.h>", "int main(void) {"]
    for name in WITH_DEFAULTS:
        length = STRUCTURES[name].length()
        lines += [f"{{ static {name} s = {{{name}_DEFAULT}}; fwrite(&s, 1, {length}, stdout); }}"]
    output = _compile(tmp_path, "\n".join([*lines, "return 0; }"]), run=True)
    at = 0
    for name in WITH_DEFAULTS:
        structure = STRUCTURES[name]
        in_c = unpack(name, output, at)
        in_python = unpack(name, codec(name, structure.latest, LITTLE).pack(*defaults(name, structure.latest)))
        del in_python["Version"]  # the codec writes the version asked for, C the one a program gets without asking
        version = in_c.pop("Version")
        assert version in (*structure.versions, structure.field("Version").default), name
        assert {field: _plain(value) for field, value in in_c.items()} == {
            field: _plain(value) for field, value in in_python.items()
        }, name
        at += structure.length()
    assert at == len(output)


def _plain(value: object) -> object:
    """Returns a value for comparison: in a text field NULs and blanks mean the same."""
    return value.rstrip(b"\0 ") if isinstance(value, bytes) else value


def test_the_headers_compile_as_cpp_too(tmp_path: Path) -> None:
    mqi_clients.installation()
    source = "\n".join(f'#include "{name}"' for name in headers())
    _compile(tmp_path, source + "\nMQMD md = {MQMD_DEFAULT};\n", compiler="c++") if _has_cpp() else pytest.skip(
        "no c++"
    )


def _has_cpp() -> bool:
    return subprocess.run(["sh", "-c", "command -v c++"], check=False, capture_output=True).returncode == 0


def test_the_library_exports_the_calls_and_nothing_else() -> None:
    library = mqi_clients.installation().library
    done = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True)
    exported = {line.split()[-1] for line in done.stdout.splitlines()}
    assert exported == set(NAMES)
    assert len(NAMES) == 64
    assert len(PROTOTYPES) + len(BAG_PROTOTYPES) == 64


def test_the_soname_and_the_client_link_are_there() -> None:
    library = mqi_clients.installation().library
    done = subprocess.run(["readelf", "-d", library], check=True, capture_output=True, text=True)
    assert "soname: [libmqm_r.so]" in done.stdout
    needed = [line for line in done.stdout.splitlines() if "(NEEDED)" in line]
    assert all("libc.so" in line for line in needed), needed
    assert library.with_name("libmqic_r.so").resolve() == library.resolve()
