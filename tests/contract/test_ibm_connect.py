"""What both bindings hand to MQCONNX for each setting, byte by byte, as the client library receives it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import mqi_clients
import pytest
from ibm_rig import served

from gateway.mq import constants as mq
from gateway.mq.layout import unpack

pytestmark = pytest.mark.mqi
SOURCE = Path(__file__).parents[1] / "unit" / "mqi" / "c" / "connect_recorder.c"
PROGRAM = """
import json, sys
from gateway.backends.ibm.driver import ConnectSettings, load
from gateway.errors import DriverUnavailable, MQError
driver, settings = sys.argv[1], json.loads(sys.argv[2])
try:
    load(driver).connect(ConnectSettings(**settings)).disconnect()
except MQError as error:
    print(error.reason, error)
except DriverUnavailable as error:
    print(error)
"""
BASIC = {"name": "QM1", "connection": "mq1.example(1414),mq2.example(1415)", "channel": "MQGATE.SVRCONN"}


class Recorded(NamedTuple):
    """One MQCONNX: structures by name as fields, texts by name."""

    structures: dict[str, dict[str, Any]]
    texts: dict[str, bytes]
    said: str

    def text(self, structure: str, field: str) -> str:
        return self.structures[structure][field].partition(b"\0")[0].rstrip(b" ").decode()


@pytest.fixture(scope="module")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("recorder") / "recorder.so"
    command = [os.environ.get("CC", "cc"), "-std=gnu11", "-Wall", "-Werror", "-shared", "-fPIC", "-o", str(library)]
    command += [f"-I{mqi_clients.installation().includes}", str(SOURCE), "-ldl"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return library


@pytest.fixture(scope="module")
def manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The socket of a queue manager that accepts any user."""
    where = tmp_path_factory.mktemp("manager") / "mqi.sock"
    with served(None, where, "ALTER AUTHINFO(SYSTEM.DEFAULT.AUTHINFO.IDPWOS) CHCKCLNT(NONE)"):
        yield str(where)


@pytest.fixture(params=["ibmmq", "pymqi"])
def connect(request: pytest.FixtureRequest, recorder: Path, manager: str, tmp_path: Path):
    def connected(**settings: str) -> Recorded:
        record = tmp_path / "record"
        environment = mqi_clients.program_environment(manager, *mqi_clients.BINDINGS)
        environment |= {"LD_PRELOAD": str(recorder), "MQ_RECORD": str(record)}
        environment["PYTHONPATH"] += os.pathsep + str(Path(__file__).parents[2])
        environment.pop("MQCCDTURL", None)
        command = [sys.executable, "-c", PROGRAM, request.param, json.dumps({**BASIC, **settings})]
        done = subprocess.run(command, check=False, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        structures: dict[str, dict[str, Any]] = {}
        texts: dict[str, bytes] = {}
        for line in record.read_text().splitlines() if record.exists() else []:
            name, _, digits = line.partition(" ")
            data = bytes.fromhex(digits)
            if name in {"MQCNO", "MQCD", "MQSCO", "MQCSP"}:
                at = 20 if name == "MQCD" else 4
                version = int.from_bytes(data[at : at + 4], "little")
                structures[name] = unpack(name, data, version=version)
            else:
                texts[name] = data
        return Recorded(structures, texts, done.stdout.strip())

    return connected


def test_name_list_of_addresses_and_channel(connect) -> None:
    seen = connect()
    assert not seen.said
    assert seen.texts["QMgrName"] == b"QM1"
    assert seen.text("MQCD", "ConnectionName") == "mq1.example(1414),mq2.example(1415)"
    assert seen.text("MQCD", "ChannelName") == "MQGATE.SVRCONN"
    assert seen.structures["MQCD"]["ChannelType"] == 6  # client connection
    assert seen.structures["MQCD"]["TransportType"] == 2  # TCP
    assert seen.structures["MQCD"]["MaxMsgLength"] == 104_857_600


def test_handles_are_shared_and_reconnecting_is_ours(connect) -> None:
    options = connect().structures["MQCNO"]["Options"]
    assert options & mq.MQCNO_HANDLE_SHARE_BLOCK
    assert options & mq.MQCNO_RECONNECT_DISABLED


def test_user_and_password_go_by_mqcsp(connect) -> None:
    seen = connect(user="mqgate", password="pass word ü")
    assert seen.structures["MQCSP"]["AuthenticationType"] == mq.MQCSP_AUTH_USER_ID_AND_PWD
    assert seen.texts["CSPUserId"] == b"mqgate"
    assert seen.texts["CSPPassword"] == "pass word ü".encode()
    assert not seen.text("MQCD", "Password")


def test_a_token_goes_by_mqcsp_or_is_refused_by_name(connect, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("eyJhbGciOiJFUzI1NiJ9.e30.c2ln\n")
    seen = connect(token_file=str(file))
    if "pymqi cannot" in seen.said:
        assert not seen.structures, "nothing was sent"
        assert "`token_file`: pymqi" in seen.said
        return
    assert seen.structures["MQCSP"]["AuthenticationType"] == mq.MQCSP_AUTH_ID_TOKEN
    assert seen.structures["MQCSP"]["Version"] == 3
    assert seen.texts["Token"] == b"eyJhbGciOiJFUzI1NiJ9.e30.c2ln"
    assert not seen.texts.get("CSPPassword")
    assert seen.said.startswith("2595"), "an embedded queue manager takes none"
    file.write_text("")
    assert "is empty" in connect(token_file=str(file)).said
    file.unlink()
    assert "cannot be read" in connect(token_file=str(file)).said


def test_without_a_user_nothing_is_claimed(connect) -> None:
    seen = connect()
    assert seen.structures.get("MQCSP", {"AuthenticationType": 0})["AuthenticationType"] == mq.MQCSP_AUTH_NONE


def test_tls_settings(connect) -> None:
    seen = connect(
        cipher="ANY_TLS12_OR_HIGHER",
        key_repository="/etc/mqgate/keys/gateway.p12",
        certificate_label="mqgate edge 7",
        peer_name="CN=QM1,O=Example",
    )
    assert seen.structures["MQCD"]["Version"] >= 7
    assert seen.text("MQCD", "SSLCipherSpec") == "ANY_TLS12_OR_HIGHER"
    assert seen.texts["SSLPeerName"] == b"CN=QM1,O=Example"
    assert seen.text("MQSCO", "KeyRepository") == "/etc/mqgate/keys/gateway.p12"
    assert seen.structures["MQSCO"]["Version"] >= 5
    assert seen.text("MQSCO", "CertificateLabel") == "mqgate edge 7"


def test_without_tls_there_is_no_cipher(connect) -> None:
    assert not connect().structures["MQCD"].get("SSLCipherSpec", b"").strip(b" \0")


def test_a_channel_table_replaces_the_channel(connect) -> None:
    seen = connect(ccdt="file:///etc/mqgate/AMQCLCHL.TAB", connection="", channel="")
    assert "MQCD" not in seen.structures
    assert seen.texts["MQCCDTURL"] == b"file:///etc/mqgate/AMQCLCHL.TAB"


def test_a_channel_table_with_tls(connect) -> None:
    seen = connect(ccdt="file:///t.json", connection="", channel="", key_repository="/k", certificate_label="edge")
    assert "MQCD" not in seen.structures
    assert seen.text("MQSCO", "KeyRepository") == "/k"
    assert seen.text("MQSCO", "CertificateLabel") == "edge"


def test_the_gateway_says_who_it_is(connect) -> None:
    cno = connect().structures["MQCNO"]
    if cno["Version"] >= 7:  # pymqi has no field for it: there the queue manager sees the program's name
        assert cno["ApplName"].rstrip(b" \0") == b"mqgate"
