"""Mapping files: the design's example, every error at once with its place, and what may not be said."""

from __future__ import annotations

import time

import pytest

from gateway.errors import ConfigurationError
from gateway.rules.parse import load_mappings, parse_mappings

DESIGN = """
version: 1
to_mq:
  - name: line temperature
    topic: plant/{site}/line/{line}/temperature
    when: {qos: [1, 2]}
    queue: TELEMETRY.{site}
    payload: {format: string, ccsid: 1208, schema: schemas/temperature.json}
    descriptor: {persistence: from_qos, priority: 4, expiry: 5m, reply_to: {queue: REPLIES}, report: [coa, exception]}
    properties: {site: "{site}", line: "{line:int}", received: "{received_at}"}
    headers: [mqtt, mqps]
    group_by: "{client}"
    too_long: dead_letter
    on_failure: {retry: {times: 5, from: 1s, to: 30s}, then: dead_letter}
to_mqtt:
  - name: commands
    queue: COMMANDS
    topic: "plant/{usr.site}/cmd"
    qos: from_persistence
    backout: {threshold: 5, queue: COMMANDS.BACKOUT}
  - name: direct to device
    transmission_queue: SYSTEM.MQTT.TRANSMIT.QUEUE
tests:
  - publish: {topic: plant/lima/line/7/temperature, qos: 1, payload: "21.5"}
    expect: [{queue: TELEMETRY.LIMA, persistence: persistent, properties: {site: lima, line: 7}}]
"""


def read(text, **files):
    return parse_mappings([("dir/m.yaml", text)], lambda path: files[path.rpartition("/")[2].partition(".")[0]])


def findings(text, **files):
    with pytest.raises(ConfigurationError) as caught:
        read(text, **files)
    return caught.value.findings


def rule(text):
    return findings(f"to_mq: [{{name: r, {text}}}]\n")


def test_the_example_of_the_design_is_read():
    mappings = read(DESIGN, temperature='{"type": "number"}')
    [inbound] = mappings.to_mq
    assert inbound.filter == "plant/+/line/+/temperature"
    assert inbound.names == ((1, "site"), (3, "line"))
    assert inbound.spec.on_failure.retry.longest == 30
    assert inbound.schema == '{"type": "number"}'
    assert (inbound.file, inbound.line) == ("dir/m.yaml", 4)
    assert [one.name for one in mappings.to_mqtt] == ["commands", "direct to device"]
    assert mappings.tests[0].line == 24
    assert mappings.warnings == ()


def test_rules_of_several_files_keep_their_order():
    one = "to_mq: [{name: a, topic: a, queue: Q}]\n"
    two = "unmatched: dead_letter\nto_mq: [{name: b, topic: b, queue: Q}]\n"
    mappings = parse_mappings([("1", one), ("2", two), ("3", "")])
    assert [(rule.name, rule.position) for rule in mappings.to_mq] == [("a", 0), ("b", 1)]
    assert mappings.dead_letter_unmatched


def test_everything_wrong_in_all_files_is_reported_at_once():
    one = (
        "to_mq:\n"
        "  - {name: a, topic: a/{x, quue: Q}\n"  # not YAML: its own finding, and the other file is still read
    )
    two = (
        "to_mq:\n"
        "  - name: b\n"
        "    topic: a/#/b\n"
        "    queue: Q-1\n"
        "    descriptor: {priority: 12, report: [coaa]}\n"
        "  - {name: b, topic: 'a/{site}', queue: 'T.{sit}', properties: {JMSx: a, and: b, 'x y': c}}\n"
        "to_mqtt:\n"
        "  - {name: c, queue: Q, topic: 'a/+/{usrr.x}'}\n"
        "tests:\n"
        "  - {publish: {topic: a}, put: {queue: Q}}\n"
        "unmached: count\n"
    )
    with pytest.raises(ConfigurationError) as caught:
        parse_mappings([("1.yaml", one), ("2.yaml", two)])
    text = str(caught.value)
    for expected in (
        "1.yaml:2:",
        "2.yaml:3:12: `#` stands before another level",
        "2.yaml:4:12: `Q-1` is not an MQ queue name",
        "2.yaml:5:28: `priority` is out of range: write a number of at most 9",
        "2.yaml:5:41: 'coaa' is not allowed for `report`: did you mean `coa`?",
        "2.yaml:6:12: the name `b` is already taken at 2.yaml:2",
        "2.yaml:6:41: `{sit}` is not known: known here: site,",
        "2.yaml:6:71: MQ reserves the property name `JMSx`",
        "2.yaml:6:79: MQ reserves the property name `and`",
        "2.yaml:6:89: `x y` is not a property name",
        "2.yaml:8:32: `{usrr.x}` is not known",
        "2.yaml:10:5: a test publishes or puts one message",
        "2.yaml:11:1: `unmached` is not a known key: did you mean `unmatched`?",
    ):
        assert expected in text, text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("topic: a", "one destination: give either `queue` or `mq_topic`"),
        ("topic: a, queue: Q, mq_topic: t", "one destination"),
        ("topic: a, mq_topic: t, queue_manager: QM", "goes with `queue` only"),
        ("topic: a, mq_topic: t, too_long: segment", "cannot be segmented"),
        ("topic: '{x}', queue: '{x}'", "could name any queue"),
        ("topic: '{x}', queue: 'Q.{x}', queue_manager: 'Q-{x}'", "not an MQ queue name"),
        ("topic: 'a{x}', queue: Q", "mixes text and placeholder"),
        ("topic: '{x*}/a', queue: Q", "stands before another level"),
        ("topic: '{x}/{x}', queue: Q", "occurs twice"),
        ("topic: '{client}', queue: Q", "not a usable name"),
        ("topic: '', queue: Q", "1 to 65535 bytes"),
        ("topic: a, queue: Q, descriptor: {report: coa}", "needs a queue for the answer"),
        ("topic: a, queue: Q, descriptor: {message_type: request}", "needs a queue for the answer"),
        ("topic: a, queue: Q, descriptor: {reply_to: {queue: 'a b', queue_manager: 'c d'}}", "not an MQ queue manager"),
        ("topic: a, queue: Q, properties: {x: '{y'}", "has no partner"),
        ("topic: a, queue: Q, properties: {x: '{client:integer}'}", "unknown type"),
        ("topic: a, queue: Q, headers: [], properties: {x: y}", "need a header"),
        ("topic: a, queue: Q, payload: {format: text}", "format"),
        ("topic: a, queue: Q, payload: {ccsid: 4294967296}", "at most 2147483647"),
        ("topic: a, queue: Q, payload: {encoding: -4294967296}", "at least -2147483648"),
        ("topic: a, queue: Q, descriptor: {feedback: 4294967296}", "at most 2147483647"),
        ("topic: a, queue: Q, on_failure: {then: hould}", "did you mean `hold`?"),
        ("topic: a, queue: Q, on_failure: {retry: {frm: 1s}}", "did you mean `from`?"),
    ],
)
def test_what_a_rule_may_not_say(text, words):
    assert words in "\n".join(map(str, rule(text)))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("topic: a", "one source, not 0"),
        ("queue: Q, mq_topic: t", "one source, not 2"),
        ("transmission_queue: X, topic: a", "RemoteQName is the topic"),
        ("transmission_queue: X, groups: whole", "local queues only"),
        ("mq_topic: t, groups: whole", "local queues only"),
        ("queue: Q, groups: all", "groups"),
        ("queue: Q, topic: 'a/#'", "no wildcard"),
        ("queue: Q, topic: $SYS/x", "belong to the gateway"),
        ("queue: Q, backout: {queue: 'a b'}", "not an MQ queue name"),
        ("queue: Q, topic: a, convert: 4294967296", "at most 2147483647"),
        ("queue: Q, topic: '{client}'", "known here: queue"),
        ("queue: Q, topic: 'a/{md.MsgID}'", "did you mean `MsgId`?"),
        ("transmission_queue: Q, client: '{xqh.Name}'", "RemoteQMgrName, RemoteQName"),
    ],
)
def test_what_a_rule_from_a_queue_may_not_say(text, words):
    assert words in "\n".join(map(str, findings(f"to_mqtt: [{{name: r, {text}}}]\n")))


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("queue: {site}", '`queue` has the wrong type: quote it: "{site}"'),
        ("queue: Q, descriptor: {correlation: {client}}", 'quote it: "{client}"'),
        (
            "queue: Q, properties: {s: {site}}",
            '`site` is not a known key: quote it: "{site}" where a placeholder is meant',
        ),
    ],
)
def test_a_placeholder_without_quotes_is_recognized(rule: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read("version: 1\nto_mq: [{name: a, topic: 'plant/{site}', " + rule + "}]\n")
    assert said in str(caught.value)


def test_a_rule_for_topics_on_which_nobody_may_publish_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"nobody may publish on `\$SYS/x/\{y\}`"):
        read("version: 1\nto_mq: [{name: a, topic: '$SYS/x/{y}', queue: Q}]\n")


def test_a_number_in_quotes_is_recognized() -> None:
    with pytest.raises(ConfigurationError, match="write 1 without quotes"):
        read("version: 1\nto_mqtt: [{name: a, queue: Q, qos: '1'}]\n")


def test_schemas_are_read_beside_the_file_and_must_be_json(tmp_path):
    (tmp_path / "s.json").write_text("{")
    (tmp_path / "m.yaml").write_text(
        "to_mq:\n  - {name: a, topic: a, queue: Q, payload: {schema: s.json}}\n"
        "  - {name: b, topic: b, queue: Q, payload: {schema: none.json}}\n"
    )
    with pytest.raises(ConfigurationError) as caught:
        load_mappings([str(tmp_path / "m.yaml"), str(tmp_path / "gone.yaml")])
    text = str(caught.value)
    assert "m.yaml:2:53" in text
    assert "is not JSON" in text
    assert "m.yaml:3:53" in text
    assert "cannot be read" in text
    assert "gone.yaml: cannot be read" in text


@pytest.mark.parametrize(
    ("rules", "shadowed"),
    [
        (("topic: 'a/#'", "topic: a/b"), ["r1"]),
        (("topic: 'a/#'", "topic: a"), ["r1"]),
        (("topic: '#'", "topic: 'a/{x}/+'", "topic: $aws/x"), ["r1"]),
        (("topic: +/b", "topic: a/b", "topic: a/+", "topic: 'a/{rest*}'"), ["r1"]),
        (("topic: a/+", "topic: 'a/{x}'"), ["r1"]),
        (("topic: 'a/#', continue: true", "topic: a/b"), []),
        (("topic: 'a/#', when: {qos: 1}", "topic: a/b"), []),
        (("topic: 'a/#', when: {qos: 1}", "topic: a/b, when: {qos: [1]}"), ["r1"]),
        (("topic: a/b", "topic: 'a/#'"), []),
        (("topic: a/+", "topic: 'a/#'"), []),
        (("topic: +/x", "topic: $aws/x"), []),
    ],
)
def test_rules_that_are_never_reached_are_reported(rules, shadowed):
    text = "to_mq:\n" + "".join(f"  - {{name: r{n}, queue: Q, {one}}}\n" for n, one in enumerate(rules))
    found = read(text)
    warnings = found.warnings
    assert [warning.what.split("`")[1] for warning in warnings] == shadowed
    assert found.hidden_by == dict.fromkeys(shadowed, "r0")
    if warnings:
        assert "dir/m.yaml:2" in warnings[0].what


def test_ten_thousand_rules_are_checked_for_shadows_in_time():
    text = "to_mq:\n" + "".join(f"  - {{name: r{n}, topic: '{{s}}/{n}/#', queue: Q}}\n" for n in range(3000))
    before = time.process_time()
    assert read(text).warnings == ()
    assert time.process_time() - before < 20  # quadratic work would take minutes


def test_a_mapping_that_is_no_mapping_is_said_so():
    assert findings("- a\n")[0].what
    assert findings("to_mq: 5\n")[0].fix == "write a list"
    assert findings("to_mq: [5]\n")[0].fix == "write a mapping (key: value)"


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ('{"type": "nonsense"}', "not a JSON Schema"),
        ('{"pattern": "("}', "not a JSON Schema"),
        ('{"$ref": "http://127.0.0.1:9/x.json"}', "references may only lead inside"),
        ('{"$ref": "file:///etc/hostname"}', "references may only lead inside"),
        ('{"$ref": "#/nowhere"}', "not a JSON Schema"),
        ("[" * 100_000, "not JSON"),
        ("5", "not a JSON Schema"),
    ],
)
def test_schemas_are_compiled_when_they_are_read_and_fetch_nothing(schema, words):
    found = findings("to_mq: [{name: a, topic: a, queue: Q, payload: {schema: s.json}}]", s=schema)
    assert words in "\n".join(map(str, found))


def test_rules_behind_one_that_takes_everything_from_their_queue_are_reported():
    text = (
        "to_mqtt:\n"
        "  - {name: a, queue: Q, topic: 'a/{usr.x}'}\n"
        "  - {name: b, queue: Q, topic: b}\n"
        "  - {name: c, queue: Q, topic: c}\n"
        "  - {name: d, queue: R, topic: c}\n"
    )
    assert [warning.what.split("`")[1] for warning in read(text).warnings] == ["c"]


@pytest.mark.parametrize("key", ["goes_on: true", "payload: {schema_file: s}", "when: {json_fields: {}}"])
def test_names_inside_the_program_are_no_keys(key):
    assert "is not a known key" in "\n".join(map(str, rule(f"topic: a, queue: Q, {key}")))


def test_a_rule_that_consumes_from_targets_names_them() -> None:
    where = "{name: a, queue: Q, topic: t, "
    found = parse_mappings([("m", f"to_mqtt: [{where}queue_manager: QM2}}]")]).to_mqtt[0]
    assert found.targets == ("QM2",)
    found = parse_mappings([("m", f"to_mqtt: [{where}queue_manager: [QM2, QM3]}}]")]).to_mqtt[0]
    assert found.targets == ("QM2", "QM3")
    for text, told in (
        ("queue_manager: [QM2, QM2]", "`QM2` is in the list already"),
        ("queue_manager: '{usr.x}'", "has a placeholder: what is consumed must be known before there is a message"),
        ("queue_manager: QM-2", "QM-2"),
        ("queue_manager: QM2, groups: whole", "groups are put together on the gateway's own queue manager only"),
    ):
        with pytest.raises(ConfigurationError) as caught:
            parse_mappings([("m", f"to_mqtt: [{where}{text}}}]")])
        assert told in str(caught.value)


def test_a_rule_is_hidden_by_one_for_the_same_queue_of_the_same_target_only() -> None:
    text = """
to_mqtt:
  - {name: own, queue: Q, topic: t}
  - {name: far, queue: Q, topic: t, queue_manager: [QM2, QM3]}
  - {name: half, queue: Q, topic: u, queue_manager: [QM3, QM4]}
  - {name: hidden, queue: Q, topic: u, queue_manager: QM3}
"""
    found = parse_mappings([("m", text)])
    (warning,) = found.warnings
    assert "rule `hidden` is never reached: `far`" in warning.what
    assert found.hidden_by == {"hidden": "far"}
