"""`--reason` of `mqgate dlq` accepts what its list shows."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from gateway.cli.reason import Reason


@click.command()
@click.option("--reason", type=Reason())
def show(reason: int) -> None:
    click.echo(repr(reason))


@pytest.mark.parametrize(
    ("text", "number"),
    [("2085", 2085), ("MQRC_UNKNOWN_OBJECT_NAME", 2085), ("mqrc_q_full", 2053), ("name_not_valid", 65538)],
)
def test_a_reason_is_a_number_or_a_name(text: str, number: int) -> None:
    assert CliRunner().invoke(show, ["--reason", text]).output == f"{number}\n"


@pytest.mark.parametrize(
    ("text", "said"), [("name_notvalid", "did you mean NAME_NOT_VALID?"), ("-1", "give its number")]
)
def test_another_word_is_said_with_what_is_near(text: str, said: str) -> None:
    done = CliRunner().invoke(show, ["--reason", text])
    assert done.exit_code == 2
    assert said in done.output
