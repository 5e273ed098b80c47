"""The structure classes of IBM's own `ibmmq` package as an independent reader and writer of our bytes.

They run in a process of their own, beside the MQI library of this checkout.
"""

import json
import subprocess
import sys
from pathlib import Path

import mqi_clients
import pytest

from gateway.mq import layout, mqmd, pcf
from gateway.mq.headers import rfh2, xqh

pytestmark = pytest.mark.mqi

SCRIPT = r"""
import json, sys
import ibmmq
cases = json.load(sys.stdin)
answers = []
for case in cases:
    made = getattr(ibmmq, case["class"])(**case.get("make", {}))
    if "hex" in case:
        made.unpack(bytes.fromhex(case["hex"]), *case["more"])
    values = {name: value.hex() if isinstance(value, bytes) else value for name, value in made.get().items()}
    answers.append({"values": values, "hex": made.pack().hex()})
json.dump(answers, sys.stdout)
"""
HEADERS = {"MD": "MQMD", "DLH": "MQDLH", "CIH": "MQCIH", "IIH": "MQIIH", "MDE": "MQMDE", "TM": "MQTM"}
CALLS = {"OD": 4, "PMO": 3, "GMO": 4, "SD": 1, "STS": 2, "SRO": 1, "CSP": 3, "MD": 2}
GOLDEN = Path(__file__).parents[1] / "golden" / "mq" / "headers.json"


@pytest.fixture(scope="module")
def ask():
    """Ask the classes to read bytes; they answer with values and the bytes they write."""
    environment = mqi_clients.program_environment("", *mqi_clients.BINDINGS)

    def call(cases):
        run = subprocess.run(
            [sys.executable, "-c", SCRIPT],
            input=json.dumps(cases),
            capture_output=True,
            text=True,
            check=False,
            env=environment,
        )
        assert run.returncode == 0, run.stderr
        return json.loads(run.stdout)

    return call


def test_golden_headers(ask):
    """What an independent writer put at the published offsets, IBM's classes read and write alike."""
    golden = [each for each in json.loads(GOLDEN.read_text()) if each["order"] == "<" and each["charset"] == "ascii"]
    latest = {each["structure"]: each for each in golden}  # versions ascend
    cases = [{"class": name, "hex": latest[structure]["hex"], "more": []} for name, structure in HEADERS.items()]
    for case, answer in zip(cases, ask(cases), strict=True):
        assert answer["hex"] == case["hex"], case["class"]
        for field, value in latest[HEADERS[case["class"]]]["fields"].items():
            found = answer["values"].get(field, answer["values"].get(f"_{field}"))
            text = bytes.fromhex(found).rstrip().decode("latin-1") if isinstance(found, str) else chr(found % 256)
            assert value in {found, text}, (case["class"], field)


def test_call_structures(ask):
    """Every number in its place: our structures with a number of its own in each field, as IBM's classes read them."""
    cases = []
    for name, version in CALLS.items():
        fields = layout.STRUCTURES[f"MQ{name}"].fields_of(version)
        numbers = {
            field.name: 1000 + n for n, field in enumerate(fields) if field.code == "i" and field.name != "Version"
        }
        raw = layout.pack(f"MQ{name}", numbers, version=version)
        cases.append({"class": name, "hex": raw.hex(), "more": [], "numbers": numbers})
    for case, answer in zip(cases, ask(cases), strict=True):
        assert answer["hex"] == case["hex"], case["class"]
        for field, value in case["numbers"].items():
            assert answer["values"].get(field, answer["values"].get(f"_{field}")) == value, (case["class"], field)


def test_folders(ask):
    """The MQRFH2 we build is the one IBM's class reads, in both byte orders."""
    folders = [
        rfh2.folder("mcd", {"Msd": "jms_text"}),
        rfh2.folder("usr", {"site": "lima & co", "line": 7, "on": True}),
    ]
    cases = [
        {"class": "RFH2", "hex": rfh2.build(folders, order=order, format_name=b"MQSTR   ").hex(), "more": [encoding]}
        for order, encoding in (("<", 546), (">", 273))
    ]
    for case, answer in zip(cases, ask(cases), strict=True):
        values = answer["values"]
        assert [bytes.fromhex(values[name]).decode().rstrip() for name in ("mcd", "usr")] == folders
        assert values["StrucLength"] == len(case["hex"]) // 2


def test_transmission_header(ask):
    """The names of an MQXQH, and its embedded descriptor grown to the version 2 their class wants."""
    md = mqmd.build(format="MQSTR", reply_to_q="REPLIES", expiry=77, msg_id=b"m" * 24)
    raw = xqh.build("REMOTE.Q", "QM2", md)
    cases = [
        {"class": "XQH", "hex": raw[:104].hex(), "more": []},
        {"class": "MD", "hex": mqmd.version_2(raw[104:]).hex(), "more": []},
    ]
    header, descriptor = (answer["values"] for answer in ask(cases))
    assert bytes.fromhex(header["RemoteQName"]).rstrip() == b"REMOTE.Q"
    assert bytes.fromhex(header["RemoteQMgrName"]).rstrip() == b"QM2"
    assert (descriptor["Expiry"], bytes.fromhex(descriptor["ReplyToQ"]).rstrip()) == (77, b"REPLIES")


PARAMETERS = [
    ("CFIN", {"Parameter": 1, "Value": -2}, pcf.integer(1, -2)),
    ("CFIN64", {"Parameter": 1, "Value": 1 << 40}, pcf.integer64(1, 1 << 40)),
    ("CFIL", {"Parameter": 1, "Values": [1, -2, 3]}, pcf.integers(1, [1, -2, 3])),
    ("CFIL64", {"Parameter": 1, "Values": [1, -(1 << 40)]}, pcf.integers64(1, [1, -(1 << 40)])),
    ("CFST", {"Parameter": 1, "String": "QUEUE"}, pcf.string(1, "QUEUE", ccsid=0)),
    ("CFSL", {"Parameter": 1, "Strings": ["ABCD", "EFGH"]}, pcf.strings(1, ["ABCD", "EFGH"], ccsid=0)),
    ("CFBS", {"Parameter": 1, "String": "abc"}, pcf.byte_string(1, b"abc")),
    ("CFIF", {"Parameter": 1, "Operator": 4, "FilterValue": 9}, pcf.integer_filter(1, 4, 9)),
    ("CFSF", {"Parameter": 1, "Operator": 18, "FilterValue": "A*"}, pcf.string_filter(1, 18, "A*", ccsid=0)),
    ("CFBF", {"Parameter": 1, "Operator": 2, "FilterValue": "xyz"}, pcf.byte_string_filter(1, 2, b"xyz")),
    ("CFGR", {"Parameter": 1, "ParameterCount": 0}, pcf.group(1, [])),
]


def test_pcf_parameters(ask):
    """Each parameter as IBM's class writes it is the one we write."""
    answers = ask([{"class": name, "make": values} for name, values, _ in PARAMETERS])
    for (name, _, ours), answer in zip(PARAMETERS, answers, strict=True):
        assert answer["hex"] == pcf.build_parameter(ours).hex(), name
