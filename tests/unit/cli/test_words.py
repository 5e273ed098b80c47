"""gateway.cli.words: what people type, and what they are told to type."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from gateway.cli.main import main
from gateway.cli.versions import LEVELS, Version


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
        ("pub a/# b", "a topic name may not contain the wildcards"),
        ("sub a a/#b", "# stands alone in the last level"),
        ("publish a b", "Did you mean 'pub'?"),
        ("subscribe a", "Did you mean 'sub'?"),
        ("start", "Did you mean 'run'?"),
        ("validate x.yaml", "Did you mean 'check'?"),
        ("replay", "Did you mean 'dlq replay' or 'pipeline replay'?"),
        ("kick x", "Did you mean 'client kick'?"),
        ("dlq delete", "Did you mean 'purge'?"),
        ("run --host 0.0.0.0", "No such option '--host'. Did you mean '--bind'?"),
        ("run --verbose", "No such option '--verbose'. Did you mean '--log-level'?"),
        ("pub --cafile ca.pem a b", "No such option '--cafile'. Did you mean '--ca-file'?"),
        ("status --host x", "No such option '--host'."),
        ("-c gate.yaml status", "Did you mean: mqgate status -c gate.yaml"),
        ("--json queue list", "Did you mean: mqgate queue list --json"),
        ("queue -c gate.yaml list X", "Did you mean: mqgate queue list X -c gate.yaml"),
        ("-v", "Did you mean '--version'?"),
        ("-c gate.yaml", "No such option '-c'."),
        ("queue list --format json", "Did you mean '--json'?"),
        ("dlq list -o json", "Did you mean '--json'?"),
        ("pub -u alice -P secret a b", "Did you mean '--password-file'?"),
        ("sub -C 1 a", "Did you mean '--number'?"),
        ("run mqgate.yaml", "A file of settings is named with -c FILE."),
        ("status mqgate.yaml", "A file of settings is named with -c FILE."),
        ("mqsc DISPLAY QMGR", "echo 'DISPLAY QMGR' | mqgate mqsc"),
        ("define QLOCAL(X)", "Did you mean 'mqsc'?"),
    ],
)
def test_what_is_no_command_leads_to_one(words: str, told: str) -> None:
    done = CliRunner().invoke(main, words.split(), prog_name="mqgate")
    assert done.exit_code == 2
    assert told in done.output


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("init Q --path j --token-file t", "--token-file goes with --url"),
        ("init Q --path j --ca-file c", "--ca-file goes with --url"),
        ("run job.yaml --metrics-bind 0.0.0.0", "--metrics-bind goes with --metrics-port"),
        ("drain Q --bind 0.0.0.0", "--bind goes with --port"),
        ("drain Q --certificate c", "--certificate goes with --port"),
        ("drain Q --token-file t --port 0", "--token-file goes with --port"),
        ("drain Q --port 1 --key k", "--key goes with --certificate"),
    ],
)
def test_an_option_that_says_nothing_without_another_is_wrong_use(words: str, told: str) -> None:
    done = CliRunner().invoke(main, ["pipeline", *words.split()])
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


@pytest.mark.parametrize(
    ("written", "level"),
    [
        ("5", 5),
        ("5.0", 5),
        ("v5", 5),
        ("mqttv5", 5),
        ("MQTTv311", 4),
        ("4", 4),
        ("311", 4),
        ("3.1.1", 4),
        ("31", 3),
        ("3", 3),
    ],
)
def test_the_version_of_mqtt_is_taken_as_people_write_it(written: str, level: int) -> None:
    assert LEVELS[Version().convert(written, None, None)] == level


@pytest.mark.parametrize("command", ["pub a b", "sub a", "probe"])
def test_another_version_is_refused_with_those_that_there_are(command: str) -> None:
    done = CliRunner().invoke(main, [*command.split(), "--version", "6"])
    assert done.exit_code == 2
    assert "is not one of '3.1', '3.1.1', '5.0'" in done.output


@pytest.mark.parametrize(
    ("words", "told"),
    [("help", "Commands:"), ("help pub", "mqgate pub [OPTIONS]"), ("help dlq list", "mqgate dlq list [OPTIONS]")],
)
def test_help_is_a_word_too(words: str, told: str) -> None:
    done = CliRunner().invoke(main, words.split(), prog_name="mqgate")
    assert (done.exit_code, told in done.output) == (0, True), done.output


def test_nothing_is_told_to_a_shell_that_completes() -> None:
    completing = {"_MQGATE_COMPLETE": "bash_complete", "COMP_WORDS": "mqgate help d", "COMP_CWORD": "2"}
    done = CliRunner().invoke(main, [], prog_name="mqgate", env=completing)
    assert "Usage" not in done.output
