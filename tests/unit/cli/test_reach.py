"""How a command says where to ask when it cannot open the store itself."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from gateway.cli.reach import Refused, remote
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
