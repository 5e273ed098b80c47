"""gateway.cli.check: counts in its output have the right singular and plural forms."""

from __future__ import annotations

import signal
from pathlib import Path

from click.testing import CliRunner

from gateway.cli.check import check
from gateway.cli.mqsc import mqsc
from gateway.cli.passwd import passwd
from gateway.cli.run import run

ONE = """
version: 1
to_mq:
  - {name: up, topic: up, queue: Q}
tests:
  - {publish: {topic: up, payload: x}, expect: [{queue: Q}]}
"""


def test_check_counts_as_a_person_does(tmp_path: Path) -> None:
    file = tmp_path / "map.yaml"
    file.write_text(ONE)
    assert CliRunner().invoke(check, [str(file)]).output == "all is well: 1 file, 1 test passed\n"


def test_settings_are_named_as_for_run_too(tmp_path: Path) -> None:
    settings, rules = tmp_path / "settings.yaml", tmp_path / "map.yaml"
    settings.write_text("mqtt: {max_packet: 1MiB}\n")
    rules.write_text(ONE)
    invoke = CliRunner().invoke
    assert invoke(check, ["-c", str(settings)]).output == "all is well: 1 file, 0 tests passed\n"
    assert invoke(check, ["--config", str(settings), str(rules)]).output == "all is well: 2 files, 1 test passed\n"
    none = invoke(check, [])
    assert none.exit_code == 2
    assert "name a file of settings or of mappings: `mqgate check mqgate.yaml`" in none.output


def test_check_asks_the_queue_manager_for_the_queues_of_rules(tmp_path: Path) -> None:
    (tmp_path / "map.yaml").write_text("""
version: 1
to_mq:
  - {name: there, topic: there, queue: Q}
  - {name: gone, topic: gone, queue: NONE}
  - {name: named, topic: "named/{site}", queue: "SITE.{site}"}
  - {name: made when it is used, topic: all, queue: MQGATE.DEFAULT}
to_mqtt:
  - {name: back, queue: COMMANDS, topic: back}
""")
    settings = tmp_path / "settings.yaml"
    settings.write_text(f"mappings: [map.yaml]\nqueue_manager: {{embedded: {{path: {tmp_path}/store}}}}\n")
    invoke = CliRunner().invoke
    nothing = invoke(check, ["--queues", str(settings)])
    assert nothing.exit_code == 1
    assert len(nothing.output.splitlines()) == 3, "no store yet: the first start makes none of these queues"
    assert not (tmp_path / "store").exists()
    assert invoke(mqsc, ["-c", str(settings)], input="DEFINE QLOCAL(Q)\n").exit_code == 0
    done = invoke(check, ["--queues", str(settings)])
    assert done.exit_code == 1
    found = [line.partition(": ")[2].partition(": define")[0] for line in done.output.splitlines()]
    assert found == [
        "rule 'gone': there is no queue 'NONE': its messages are dead-lettered",
        "rule 'back': there is no queue 'COMMANDS': no messages come from it",
    ]
    assert invoke(mqsc, ["-c", str(settings)], input="DEFINE QLOCAL(NONE)\nDEFINE QLOCAL(COMMANDS)\n").exit_code == 0
    assert invoke(check, ["--queues", str(settings)]).exit_code == 0


def test_the_objects_of_the_settings_count_before_and_between_starts(tmp_path: Path) -> None:
    (tmp_path / "map.yaml").write_text(
        ONE
        + """  - {publish: {topic: up, payload: y}, expect: [{queue: Q}]}
to_mqtt:
  - {name: back, queue: COMMANDS, topic: back}
"""
    )
    objects, settings = tmp_path / "objects.mqsc", tmp_path / "settings.yaml"
    objects.write_text(
        "* what the devices need\nDEF QL('Q') +\n  MAXDEPTH(10)\ndefine qalias(commands) target(q)\nEND\n"
    )
    where = f"{{embedded: {{path: {tmp_path}/store, objects: objects.mqsc}}}}"
    settings.write_text(f"mappings: [map.yaml]\nqueue_manager: {where}\n")
    invoke = CliRunner().invoke
    first = invoke(check, ["--queues", str(settings)])
    assert first.exit_code == 0, first.output
    assert invoke(mqsc, ["-c", str(settings)], input="DEFINE QLOCAL(OTHER)\n").exit_code == 0
    assert (tmp_path / "store").is_dir()
    assert invoke(check, ["--queues", str(settings)]).exit_code == 0, "the next start makes them"
    objects.write_text("DEFINE QLOCAL(Q) MAXDEPTH(10\n")
    wrong = invoke(check, ["--queues", str(settings)])
    assert wrong.exit_code == 1
    assert f"{objects}:1:1: AMQ8405I: Syntax error" in wrong.output


def test_listeners_that_there_are_not_are_said(tmp_path: Path) -> None:
    settings, rules = tmp_path / "settings.yaml", tmp_path / "map.yaml"
    settings.write_text(
        "mappings: [map.yaml]\nlisteners: [{name: plain, port: 1883, bind: 127.0.0.1}]\n"
        'security: {acl: [{listener: plian, deny: ["#"]}, {listener: plain, allow: ["#"]}]}\n'
    )
    rules.write_text("version: 1\nto_mq:\n  - {name: up, topic: up, queue: Q, when: {listener: [plain, tls]}}\n")
    done = CliRunner().invoke(check, [str(settings)])
    assert done.exit_code == 0, done.output
    assert (
        "map.yaml:3:1: rule 'up': no listener of the settings is called `tls`: known here: plain (warn" in done.output
    )
    assert "settings.yaml:3:29: no listener is called `plian`: the entry applies to nobody: did you mean" in done.output


def test_a_mapping_that_is_not_there_hides_nothing_that_is_wrong_with_other_files(tmp_path: Path) -> None:
    (tmp_path / "acl.yaml").write_text('- {user: a, publis: ["x"]}\n')
    settings = tmp_path / "settings.yaml"
    settings.write_text("security: {acl: acl.yaml, password_file: none}\nmappings: [rules.yaml]\n")
    done = CliRunner().invoke(check, [str(settings)])
    assert done.exit_code == 1
    assert "did you mean `publish`?" in done.output
    assert "none does not exist" in done.output
    assert "there is no mapping file" in done.output


def test_a_pattern_of_mapping_files_that_is_none_finds_none(tmp_path: Path) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text('mappings: ["rules/**.yaml", "/"]\n')
    lines = CliRunner().invoke(check, [str(settings)]).output.splitlines()
    assert [line.partition(": ")[2].partition(":")[0] for line in lines] == [
        f"there is no mapping file {tmp_path}/rules/**.yaml",
        "there is no mapping file /",
    ]


def test_a_mapping_file_whose_name_is_too_long_is_not_there(tmp_path: Path) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text(f"mappings: [{'x' * 300}.yaml, '{'y' * 300}/*.yaml']\n")
    done = CliRunner().invoke(check, [str(settings)])
    assert done.exit_code == 1
    assert done.output.count("there is no mapping file") == 2


def test_files_of_parts_that_do_not_go_together_are_looked_at(tmp_path: Path) -> None:
    (tmp_path / "objects.mqsc").write_text("DEFIN QLOCAL(A)\n")
    settings = tmp_path / "settings.yaml"
    settings.write_text(f"""
listeners: [{{name: a, port: 1883, bind: 0.0.0.0, tls: {{certificate: none.pem, key: none.key}}}}]
queue_manager: {{embedded: {{objects: objects.mqsc, max_bytes: 10, path: {tmp_path}/store}}}}
""")
    lines = CliRunner().invoke(check, [str(settings)]).output
    for wrong in ("nobody could connect", ":3:62: `max_bytes`", "none.pem does not", "none.key does not", "AMQ8405I"):
        assert wrong in lines


def test_a_job_of_the_pipeline_is_not_taken_for_a_mapping(tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("version: 1\nname: plant\nsource: {queue: Q, path: data}\nwarehouse: ./lake\n")
    done = CliRunner().invoke(check, [str(job)])
    assert (done.exit_code, done.output) == (1, f"{job}:1:1: a job of the pipeline: mqgate pipeline check {job}\n")


def everything_wrong(folder: Path) -> Path:
    (folder / "rules.yaml").write_text("""
version: 1
to_mq:
  - {name: up, topic: "a/#/b", queue: Q}
""")
    (folder / "objects.mqsc").write_text("DEFINE QLOCAL(A) MAXDEPTH(abc)\nDEFINE QLOCAL(B) MAXDPTH(5)\n")
    settings = folder / "settings.yaml"
    settings.write_text(f"""
listeners: [{{name: web, port: 1883}}, {{name: web, port: 1884}}]
mqtt: {{max_packet: 5XB}}
security: {{password_file: users, users: {{pump: {{password_file: pump.pw}}}}}}
mappings: [missing.yaml, rules.yaml]
queue_manager: {{embedded: {{objects: objects.mqsc, path: {folder}/store}}}}
""")
    return settings


ALL_THAT_IS_WRONG = [
    ("settings.yaml", 2, "two listeners are called"),
    ("settings.yaml", 3, "'5XB' is not a size"),
    ("settings.yaml", 4, "does not exist"),
    ("settings.yaml", 4, "does not exist"),
    ("objects.mqsc", 1, "AMQ8405I"),
    ("objects.mqsc", 2, "AMQ8405I"),
    ("settings.yaml", 5, "there is no mapping file"),
    ("rules.yaml", 4, "`#` stands before another level"),
]


def is_all_that_is_wrong(output: str) -> bool:
    lines = output.splitlines()
    return len(lines) == len(ALL_THAT_IS_WRONG) and all(
        f"{file}:{number}:" in line and what in line
        for line, (file, number, what) in zip(lines, ALL_THAT_IS_WRONG, strict=True)
    )


def test_everything_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    settings = everything_wrong(tmp_path)
    checked = CliRunner().invoke(check, [str(settings)])
    assert is_all_that_is_wrong(checked.output), checked.output
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    started = CliRunner().invoke(run, ["-c", str(settings)])
    for number, handler in handlers.items():
        signal.signal(number, handler)
    assert is_all_that_is_wrong(started.output), started.output
    assert (checked.exit_code, started.exit_code) == (1, 1)
    assert not (tmp_path / "store").exists(), "nothing was started"


def test_check_warns_of_files_that_say_nothing(tmp_path: Path) -> None:
    settings, rules = tmp_path / "settings.yaml", tmp_path / "map.yaml"
    settings.write_text("# all as by default\n")
    done = CliRunner().invoke(check, [str(settings)])
    assert done.exit_code == 0
    assert done.stderr.startswith(f"{settings}:1:1: the file says nothing, so all settings are as by default: ")
    settings.write_text("mappings: [map.yaml]\n")
    rules.write_text("")
    done = CliRunner().invoke(check, [str(settings)])
    assert done.exit_code == 0
    assert done.stderr.startswith(f"{rules}:1:1: the file says nothing, so it has no rules: ")


def test_objects_that_are_in_the_store_are_not_missed_by_check(tmp_path: Path) -> None:
    (tmp_path / "objects.mqsc").write_text("ALTER QLOCAL(A) MAXDEPTH(5)\n")
    settings = tmp_path / "settings.yaml"
    settings.write_text(f"queue_manager: {{embedded: {{objects: objects.mqsc, path: {tmp_path}/store}}}}\n")
    assert "AMQ8147E" in CliRunner().invoke(check, [str(settings)]).output, "the first start does not find A"
    made = CliRunner().invoke(mqsc, ["--data", str(tmp_path / "store")], input="DEFINE QLOCAL(A)\n")
    assert made.exit_code == 0, made.output
    assert CliRunner().invoke(check, [str(settings)]).output == "all is well: 1 file, 0 tests passed\n"


def test_check_takes_the_password_of_whom_it_asks_for_from_a_pipe(tmp_path: Path) -> None:
    """As `mqgate passwd` and `mqgate admin user` do: nobody is there to be asked, and nothing to be hidden."""
    settings, users = tmp_path / "mqgate.yaml", tmp_path / "users"
    settings.write_text("security: {anonymous: false, password_file: users}\n")
    assert CliRunner().invoke(passwd, ["--pbkdf2", str(users), "alice"], input="wonder\n").exit_code == 0
    done = CliRunner().invoke(check, [str(settings), "--ask", "alice"], input="wonder\n")
    assert done.exit_code == 0
    assert done.output.splitlines()[0] == "password_file: lets in as alice"
