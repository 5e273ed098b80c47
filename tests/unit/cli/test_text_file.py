from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from gateway.cli.mqsc import mqsc
from gateway.cli.text_file import TextFile


@click.command()
@click.argument("text", type=TextFile())
def show(text: str) -> None:
    click.echo(repr(text))


@pytest.mark.parametrize("data", ["Gerät\n".encode(), "Gerät\n".encode("utf-8-sig"), "Gerät\r\n".encode()])
def test_text_is_read_from_a_file_and_from_standard_input(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "text"
    file.write_bytes(data)
    assert CliRunner().invoke(show, [str(file)]).output == "'Gerät\\n'\n"
    assert CliRunner().invoke(show, ["-"], input=data).output == "'Gerät\\n'\n"


def test_what_is_no_text_is_said_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "queues.mqsc"
    file.write_bytes("DEFINE QLOCAL(A)\nDEFINE QLOCAL(B) DESCR('Gerät')\n".encode("latin-1"))
    done = CliRunner().invoke(mqsc, ["--data", str(tmp_path / "data"), str(file)])
    assert done.exit_code == 2
    assert f"{file}:2: byte 0xe4 is not UTF-8: convert the file, as by `iconv -f latin1 -t utf-8`" in done.output
    assert not (tmp_path / "data").exists()


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    done = CliRunner().invoke(show, [str(tmp_path / "none")])
    assert done.exit_code == 2
    assert "No such file" in done.output


def test_commands_of_a_file_from_windows_are_run(tmp_path: Path) -> None:
    file = tmp_path / "queues.mqsc"
    file.write_bytes("DEFINE QLOCAL(A) +\n  DESCR('Gerät')\n".replace("\n", "\r\n").encode("utf-8-sig"))
    done = CliRunner().invoke(mqsc, ["--data", str(tmp_path / "data"), str(file)])
    assert done.exit_code == 0, done.output
