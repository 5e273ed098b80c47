"""How a command says where to ask when it cannot open the store itself."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from free_ports import free_port
from gateways import TREE
from key_server import KeyServer

from gateway.cli import reach
from gateway.cli.main import main
from gateway.cli.reach import Refused, remote, running_gateway
from gateway.errors import StoreInUse

BUSY = StoreInUse("process 7 has this store open")


def test_a_queue_manager_without_a_gateway_is_asked_through_its_socket(tmp_path: Path) -> None:
    path = tmp_path / "mqi.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        with pytest.raises(Refused) as caught:
            remote(tmp_path, BUSY)
    assert f'connection: "unix:{path.resolve()}"' in caught.value.message
    assert "process 7" in caught.value.message


def test_without_one_the_administration_port_is_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="administration port cannot be found"):
        remote(tmp_path, BUSY)


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> str:
    """The environment of many machines, and of containers, names a proxy. Nothing may go there, least of all a
    token."""
    address = f"http://127.0.0.1:{free_port()}"
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, address)
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    return address


@pytest.mark.usefixtures("proxy")
def test_the_gateway_of_this_machine_is_asked_without_a_proxy(tmp_path: Path) -> None:
    (tmp_path / "admin.token").write_text("a-token\n")
    with KeyServer() as server:
        server.paths["/api/v1/queues"] = lambda request: request.give({"token": request.headers["Authorization"]})
        (tmp_path / "gateway.json").write_text(json.dumps({"admin": server.url}))
        assert remote(tmp_path, BUSY).get("/queues") == {"token": "Bearer a-token"}


@pytest.mark.usefixtures("proxy")
def test_the_health_check_of_the_container_asks_without_a_proxy() -> None:
    text = (Path(TREE) / "deploy/container/alive.py").read_text()
    with KeyServer() as server:
        server.paths["/livez"] = lambda request: request.give({})
        program = text.replace(":9160", f":{server.port}")
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("status", "detail"),
    [(400, "there is no parameter 'whole'; there are: limit"), (404, "there is nothing at /api/v1/queues")],
)
def test_a_gateway_that_was_not_started_again_after_an_upgrade_is_told_of(
    tmp_path: Path, status: int, detail: str
) -> None:
    (tmp_path / "admin.token").write_text("a-token\n")
    with KeyServer() as server:
        server.paths["/api/v1/queues"] = lambda request: request.give({"detail": detail}, status)
        (tmp_path / "gateway.json").write_text(json.dumps({"admin": server.url}))
        with pytest.raises(Refused, match=r"of another release than this command: restart it \(there is no"):
            remote(tmp_path, BUSY).get("/queues")


def test_a_token_that_was_changed_and_not_read_yet_is_told_of(tmp_path: Path) -> None:
    """The advice must not be a command that itself needs the token."""
    (tmp_path / "admin.token").write_text("new\n")
    with KeyServer() as server:
        server.paths["/api/v1/me"] = lambda request: request.give({"detail": "sign in"}, 401)
        (tmp_path / "gateway.json").write_text(json.dumps({"admin": server.url}))
        with pytest.raises(Refused) as caught:
            running_gateway(None, str(tmp_path))
    assert caught.value.message == (
        f"the gateway at {server.url} does not accept the token in {tmp_path / 'admin.token'}: if it was changed, "
        "SIGHUP makes the gateway read it again (systemctl reload mqgate)"
    )
    assert vars(caught.value)["exit_code"] == 1


def test_commands_without_options_take_the_settings_of_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, elsewhere = tmp_path / "etc/mqgate.yaml", tmp_path / "elsewhere"
    service.parent.mkdir()
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    monkeypatch.setattr(reach, "SERVICE_SETTINGS", service)
    assert reach.settings_file(None, None) is None, "there is no service"
    service.write_text(f"queue_manager: {{embedded: {{path: {tmp_path}/store}}}}\n")
    assert CliRunner().invoke(main, ["mqsc"], input="DEFINE QLOCAL(OF.SERVICE)\n").exit_code == 0
    assert (tmp_path / "store").is_dir()
    assert "OF.SERVICE" in CliRunner().invoke(main, ["queue", "list"]).output
    asked = CliRunner().invoke(main, ["queue", "clear", "OF.SERVICE"], input="n\n").output
    assert f"Remove every message from OF.SERVICE (of the service, {service})?" in asked
    asked = CliRunner().invoke(main, ["queue", "clear", "Q", "--data", str(tmp_path / "store")], input="n\n").output
    assert "Remove every message from Q?" in asked
    assert f"settings: {service}" in CliRunner().invoke(main, ["doctor"]).output
    assert f"no gateway is found in {tmp_path}/store" in CliRunner().invoke(main, ["status"]).output
    assert reach.settings_file("mine.yaml", None) == "mine.yaml"
    assert reach.settings_file(None, "data") is None
    (elsewhere / "mqgate-data").mkdir()
    assert reach.settings_file(None, None) is None, "the store here comes first"


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_the_service_is_found_from_a_directory_that_may_not_be_looked_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "of_root"
    here.mkdir(mode=0o700)
    monkeypatch.chdir(here)
    monkeypatch.setattr(reach, "SERVICE_SETTINGS", Path(__file__))
    os.seteuid(65534)
    try:
        assert reach.settings_file(None, None) == __file__
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("text", ["queue_manager: {embeded: {path: there}}", "queue_manager: {embedded: {path: there}"])
def test_where_settings_do_not_say_where_the_gateway_is_another_one_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wrong.yaml").write_text(f"{text}\n")
    other = tmp_path / "mqgate-data"
    other.mkdir()
    (other / "admin.token").write_text("a-token\n")
    with KeyServer() as server:
        server.paths["/api/v1/me"] = server.paths["/api/v1/reload"] = lambda request: request.give({})
        (other / "gateway.json").write_text(json.dumps({"admin": server.url}))
        done = CliRunner().invoke(main, ["reload", "-c", "wrong.yaml"])
        assert not server.asked
    assert done.exit_code == 1
    assert done.output.startswith("wrong.yaml:")


def test_a_gateway_that_is_still_at_it_is_not_said_to_have_done_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.cli.reach.PATIENCE_SECONDS", 0.2)
    (tmp_path / "admin.token").write_text("a-token\n")
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it is reached, and does not answer
        (tmp_path / "gateway.json").write_text(json.dumps({"admin": f"http://127.0.0.1:{silent.getsockname()[1]}"}))
        there = remote(tmp_path, BUSY)
        with pytest.raises(Refused, match="may still be carrying out the request") as refused:
            there.post("/mqsc", {"text": "DEFINE QLOCAL(A)"})
        assert refused.value.exit_code == 3
        with pytest.raises(Refused, match=r"has not answered for 0 s$"):
            there.get("/queues")
