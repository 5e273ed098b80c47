"""gateway.cli.words: what people type, and what they are told to type."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from gateway.cli.main import main


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("queue purge X", "Did you mean 'clear'?"),
        ("queue create X", "echo 'DEFINE QLOCAL(NAME)' | mqgate mqsc"),
        ("queue brouse X", "Did you mean 'browse'?"),
        ("client disconnect x", "Did you mean 'kick'?"),
        ("user remove x", "Did you mean 'delete'?"),
        ("dlq retry", "Did you mean 'replay'?"),
        ("queue zzz", "No such command 'zzz'."),
        ("pub", "name the topic"),
        ("pub -t a b c", "'c' is one word too many"),
        ("pub a b c", "'c' is one word too many"),
        ("sub -n 1", "name a topic filter"),
    ],
)
def test_what_is_no_command_leads_to_one(words: str, told: str) -> None:
    done = CliRunner().invoke(main, words.split())
    assert done.exit_code == 2
    assert told in done.output


@pytest.mark.parametrize(
    "words",
    [
        "run --port 65536",
        "run --admin-port -1",
        "mqi serve --admin-port 65536",
        "pub -p 0 a b",
        "sub -p 65536 a",
        "probe --port 0",
        "demo --port 65536",
        "demo --seconds nan",
        "pipeline drain Q --port 65536",
        "pipeline run job.yaml --metrics-port 65536",
    ],
)
def test_numbers_that_are_none_are_wrong_use(words: str) -> None:
    done = CliRunner().invoke(main, words.split())
    assert done.exit_code == 2
    assert "Invalid value for" in done.output
