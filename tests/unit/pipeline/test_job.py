"""Job files: every error at once, each at its place and with what to write instead."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gateway.errors import ConfigurationError
from gateway.pipeline.jobs.job import Job, job_schema, parse_job, read_job
from gateway.pipeline.jobs.silver import (
    checks,
    error_expression,
    payload_schema,
    typed_value,
    warnings_expression,
)

GOOD = """
version: 1
name: plant
source: {queue: "TELEMETRY.*", path: data, purge_delay: 10m}
warehouse: lake
silver:
  - table: readings
    event_time: ts
    key: [device]
    columns:
      - {name: device, from: client_id, required: true}
      - {name: ts, type: timestamp, from: payload.at.ms, unit: ms}
      - {name: temperature, type: double, min: -60, max: 150}
      - {name: state, values: [run, stop], pattern: "^[a-z]+$"}
gold:
  - {table: minutes, kind: window, values: [temperature], every: 1m}
"""


def findings(text: str) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        parse_job("job.yaml", text)
    return [str(finding) for finding in caught.value.findings]


def test_a_good_job() -> None:
    job = parse_job("job.yaml", GOOD)
    assert (job.source.purge_delay, job.gold[0].every, job.checkpoint_folder) == (600.0, 60.0, "lake/_checkpoint/plant")
    assert job.silver_of(job.gold[0]).table == "readings"


def test_paths_are_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(GOOD)
    job = read_job(tmp_path / "job.yaml")
    assert (job.source.path, job.warehouse) == (str(tmp_path / "data"), str(tmp_path / "lake"))


def test_a_gold_table_that_does_not_fit_is_named_at_its_place() -> None:
    (said,) = findings(GOOD.replace("values: [temperature]", "values: [temp]"))
    assert said.startswith(
        "job.yaml:16:5: gold table 'minutes': 'readings' has no column 'temp': use one of device, ts,"
    )
    (said,) = findings(GOOD.replace("kind: window", "from: reading, kind: window"))
    assert said.startswith("job.yaml:16:5: gold table 'minutes': no silver table 'reading' (readings)")


def test_all_errors_with_their_places() -> None:
    text = (
        GOOD.replace("purge_delay: 10m", "purge_dely: 10m").replace("unit: ms", "unit: minutes").replace("-60", "low")
    )
    told = findings(text)
    assert len(told) == 3
    assert told[0].startswith("job.yaml:4:44: `purge_dely` is not a known key: did you mean `purge_delay`")
    assert told[1].startswith("job.yaml:12:64: 'minutes' is not allowed for `unit`")
    assert told[2].startswith("job.yaml:13:48: `min` has the wrong type: write a number")


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("path: data, ", "", "add path (a data folder) or url"),
        ("key: [device]", "key: [devce]", "there is no column 'devce'"),
        ("table: minutes", "table: readings", "table 'readings' is there twice"),
        ("values: [temperature]", "values: [temp]", "'readings' has no column 'temp'"),
        ("values: [temperature], ", "", "a window needs values"),
        ("name: plant", "name: Plant 1", "use lower-case letters"),
        ("every: 1m", "every: often", "is not a duration"),
        ('pattern: "^[a-z]+$"', 'pattern: "["', "not a regular expression"),
        ("table: readings", "table: readings\n    decode: jsn", "no decoder 'jsn'"),
        ("table: readings", "table: readings\n    ccsid: 60000", "CCSID 60000 is not known here"),
        ("table: readings", "table: readings\n    decode: cbor\n    ccsid: 37", "`ccsid` has no meaning for `decode"),
        ("from: client_id", "from: clientid", "no column 'clientid': write payload.clientid for a field"),
        ("from: client_id", "from: client_id.x", "'client_id' holds no fields: write `from: client_id`"),
        ("unit: ms}", "unit: ms, min: 5}", "min and max do not fit type timestamp"),
        ("type: double,", "type: double, unit: ms,", "`unit` has no meaning for a double: give the column `type: ti"),
        ("from: payload.at.ms", "from: put_ts", "'put_ts' is a timestamp already: leave `unit` out"),
        ("from: payload.at.ms, unit: ms", "from: seq", "'seq' is a number: say with `unit` what it counts"),
        ("from: payload.at.ms", "from: properties", "'properties' is a map, of which no timestamp is made: write `fr"),
        ("from: payload.at.ms", "from: payload", "'payload' is a binary, of which no timestamp is made"),
        ("from: payload.at.ms", "from: retain", "'retain' is a boolean, of which no timestamp is made: write type"),
        ('"^[a-z]+$"', '"^(?P<kind>[a-z]+)$"', "Spark's regular expressions are Java's, which have no `(?P<`: write"),
        ("min: -60, max: 150", "min: 150, max: -60", "min 150 is more than max -60"),
        ("values: [run, stop]", "values: []", "values is an empty list"),
        ("name: state,", "name: status,", "the table has a column 'status' of its own: give yours another name"),
        ("name: state,", "name: state, from: payload.temperature,", "payload.temperature is read as double and as "),
        ("name: state,", "name: state, from: payload.Temperature,", "differ only in case, which Spark does not tell"),
        ("name: state,", "name: state, from: payload.AT.kind,", "payload.at and payload.AT differ only in case"),
        ("event_time: ts", "event_time: temperature", "the event time 'temperature' is a double"),
        ("values: [temperature]", "values: [state]", "'state' is a string: use a column whose type is one of int"),
        ("kind: window", "kind: gaps, by: [device], sequence: temperature", "'temperature' is a double"),
        ("kind: window", "kind: latency, start: state", "use a column whose type is one of timestamp"),
        ("TELEMETRY.*", "TELE METRY", "'TELE METRY' is neither the name of a queue nor a pattern: write 1 to 48 of"),
        ("TELEMETRY.*", " , ", "'' is neither the name of a queue nor a pattern"),
        ("path: data", "url: ftp://x", "'ftp://x' is no address of a gateway: write http://host:port or https://ho"),
        ("path: data", "url: localhost:9160", "'localhost:9160' is no address of a gateway"),
        ("warehouse: lake", 'warehouse: ""', "job.yaml:5:12: the warehouse has no name: write a folder, such as ./la"),
        ("name: state,", "name: batch,", "readers take `batch` from the names of the folders: give the column another"),
        ("kind: window", "kind: window, by: [device, device]", "'minutes' would have a column 'device' twice: give t"),
        ("gold:", "gold:\n  - {table: gaps, kind: gaps, sequence: seq, by: [ts]}", "'gaps' would have a column 'ts' t"),
        ("gold:", "retention: {keep: {reading: 1d}}\ngold:", "no table 'reading': name one of bronze, readings"),
    ],
)  # fmt: skip
def test_wrong_values_say_what_to_write(old: str, new: str, told: str) -> None:
    assert old in GOOD
    assert any(told in line for line in findings(GOOD.replace(old, new, 1)))


@pytest.mark.parametrize(
    ("kind", "own"),
    [
        ("window, values: [temperature]", "temperature_mean"), ("window, values: [temperature]", "late"),
        ("gaps, sequence: n", "kind"), ("gaps, sequence: n", "seq"), ("silence", "silent_from"),
        ("latency", "messages"),
    ],
)  # fmt: skip
def test_a_gold_table_has_no_column_twice(kind: str, own: str) -> None:
    """Spark writes no such table, and the job began again for good."""
    text = GOOD.partition("gold:")[0].replace("name: state", f"name: n, type: int}}\n      - {{name: {own}")
    text += f"gold: [{{table: g, kind: {kind}, by: [device, {own}]}}]\n"
    (told,) = findings(text)
    assert f"gold table 'g' would have a column '{own}' twice: give the column of 'readings' another name" in told


def test_gaps_go_by_message_numbers() -> None:
    """A counter of the device that is called so hid them: rows were put in the order of the counter itself."""
    text = GOOD.replace("name: state", "name: seq, type: int}\n      - {name: state")
    (told,) = findings(text + "  - {table: gaps, kind: gaps, sequence: seq}\n")
    assert (
        "goes by message numbers, and 'readings' has a column 'seq' of its own: give that another name, as in" in told
    )
    assert parse_job("job.yaml", text).silver[0].columns


def test_a_column_may_be_called_batch_where_no_folder_is() -> None:
    text = GOOD.replace("name: state", "name: batch").replace("warehouse: lake", "warehouse: s3://lake/plant")
    assert parse_job("job.yaml", text).on_objects


@pytest.mark.parametrize("pattern", ["^\\p{L}+$", "(?<kind>a)\\k<kind>", "[a-z&&[^x]]", "\\(?P<", "\\Qa.b\\E"])
def test_patterns_of_java_are_taken(pattern: str) -> None:
    job = parse_job("job.yaml", GOOD.replace('"^[a-z]+$"', f"'{pattern}'"))
    assert job.silver[0].columns[3].pattern == pattern


def test_whole_message_columns_of_fitting_types_are_taken() -> None:
    more = "\n".join(
        f"      - {{name: c{number}, from: {source}, {kind}}}"
        for number, (source, kind) in enumerate([
            ("properties", "type: string"), ("payload", "type: binary"), ("seq", "type: timestamp, unit: s"),
            ("put_ts", "type: timestamp"), ("topic", "type: timestamp, unit: ms"), ("qos", "type: double"),
            ("properties.at", "type: timestamp, unit: us"), ("put_ts", "type: date"),
        ])
    )  # fmt: skip
    assert len(parse_job("job.yaml", GOOD.replace("gold:", f"{more}\ngold:")).silver[0].columns) == 12


SOURCES = GOOD.replace(
    'source: {queue: "TELEMETRY.*", path: data, purge_delay: 10m}',
    """sources:
  - {name: south, queue: "TELEMETRY.*", url: "http://south:9090", token_file: south.token}
  - {name: north, queue: "TELEMETRY.A, TELEMETRY.B", path: data}
  - {name: other, queue: OTHER, path: data, group: mine}""",
)


def test_several_sources_have_groups_streams_and_a_checkpoint_of_their_own(tmp_path: Path) -> None:
    job = parse_job("job.yaml", SOURCES)
    found = [(each.name, each.stream, each.group) for each in job.inputs]
    assert found == [
        ("north", "plant:north", "plant_north"),
        ("other", "plant:other", "mine"),
        ("south", "plant:south", "plant_south"),
    ]
    turned = (
        SOURCES.replace("name: south", "name: x")
        .replace("name: north", "name: south")
        .replace("name: x", "name: north")
    )
    assert parse_job("job.yaml", turned).checkpoint_folder == job.checkpoint_folder, "their names alone count"
    assert job.checkpoint_folder.startswith("lake/_checkpoint/plant-")
    assert (
        parse_job("job.yaml", SOURCES.replace("name: other", "name: third")).checkpoint_folder != job.checkpoint_folder
    )
    (tmp_path / "job.yaml").write_text(SOURCES)
    north, _, south = (each.source for each in read_job(tmp_path / "job.yaml").inputs)
    assert (north.path, south.token_file) == (str(tmp_path / "data"), str(tmp_path / "south.token"))


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("queue: OTHER", "queue: TELEMETRY.*", "both read TELEMETRY.A (TELEMETRY.*) of one queue manager"),
        ("name: other", "name: north", "'north' twice: give each source a name"),
        ("group: mine", "group: plant_north", "have the same consumer group 'plant_north'"),
        ("name: other, ", "", "`name`"),
        ("sources:", "source: {queue: A, path: b}\nsources:", "`source` and `sources`"),
        ("path: data, group: mine", "group: mine", "add path (a data folder) or url"),
    ],
)  # fmt: skip
def test_sources_that_do_not_fit_together(old: str, new: str, told: str) -> None:
    assert old in SOURCES
    assert any(told in line for line in findings(SOURCES.replace(old, new, 1))), findings(SOURCES.replace(old, new, 1))


def test_the_column_source_is_there_with_several_sources() -> None:
    parse_job("job.yaml", SOURCES.replace("key: [device]", "key: [source, device]"))
    assert "has no column 'source'" in findings(GOOD.replace("key: [device]", "key: [source, device]"))[0]
    without = "\n".join(line for line in GOOD.splitlines() if not line.startswith("source:"))
    assert "the job has no `source`" in findings(without)[0]


def test_checks_that_only_count() -> None:
    silver = parse_job("job.yaml", GOOD.replace("max: 150}", "max: 150, on_failure: count}")).silver[0]
    assert [code for code, _ in checks(silver, "count")] == [
        "type:temperature", "not_a_number:temperature", "type:temperature", "below_min:temperature",
        "above_max:temperature",
    ]  # fmt: skip
    assert ":temperature" not in error_expression(silver)
    found = warnings_expression(silver)
    assert found.startswith("nullif(concat_ws(', ', CASE WHEN _parsed._corrupt IS NOT NULL AND ")
    assert "CASE WHEN isnan(`_v_temperature`) THEN" in found


def test_not_yaml_and_not_a_job() -> None:
    assert findings("a: [")[0].startswith("job.yaml:")
    assert "begin with `version: 1`" in findings("- x")[0]


def test_the_schema_knows_all_keys() -> None:
    schema = json.loads(job_schema())
    assert set(schema["properties"]) == set(Job.model_fields)
    assert "from" in schema["$defs"]["Column"]["properties"]


def test_silver_as_sql() -> None:
    silver = parse_job("job.yaml", GOOD).silver[0]
    assert payload_schema(silver) == (
        "`at` struct<`ms`: double>, `temperature` double, `state` string, `_corrupt` string"
    )
    micros = "round(_parsed.`at`.`ms` * 1000)"
    assert typed_value(silver.columns[1]) == (
        f"timestamp_micros(CAST(CASE WHEN {micros} BETWEEN -62135596800000000 AND 253402300799999000 THEN {micros} END "
        "AS bigint))"
    )
    codes = [code for code, _ in checks(silver)]
    assert codes == [
        "not_json", "missing:device", "type:device", "type:ts", "type:ts", "type:temperature",
        "not_a_number:temperature", "type:temperature", "below_min:temperature", "above_max:temperature",
        "pattern:state", "not_allowed:state",
    ]  # fmt: skip
    assert error_expression(silver).startswith("CASE WHEN _decode_error IS NOT NULL THEN concat('decode: '")


def test_what_does_not_go_together_is_said_at_once() -> None:
    assert {one.partition(": ")[2].partition(":")[0] for one in findings("""
name: plant
source: {queue: TELEMETRY, path: data}
trigger: often
warehouse: lake
format: iceberg
silver:
  - table: readings
    columns:
      - {name: level, type: int, unit: ms, values: [], pattern: "("}
      - {name: level, from: payload.tank.level}
    event_time: at
gold:
  - {table: readings, kind: window}
  - {table: rates, kind: gaps, from: others}
retention: {keep: {rows: 7d}}
""")} == {
        "'often' is not a duration",
        "`unit` has no meaning for a int",
        "values is an empty list, so no value passes",
        "pattern is not a regular expression",
        "column 'level' is there twice",
        "there is no column 'at'",
        "a window needs values",
        "gaps needs sequence",
        "table 'readings' is there twice",
        "gold table 'rates'",
        "retention",
        "`format",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (
            "silver: [{table: readings}]\ngold: [{table: g, kind: last, from: readings, by: [a]}]",
            "`columns` is missing",
        ),
        ("silver: [{table: Rows, columns: []}]\nretention: {keep: {rows: 7d}}", "`table`: 'Rows'"),
        ("bronze: {table: Rows}\nsilver: [{table: bronze, columns: [{name: a}]}]", "`table`: 'Rows'"),
        ("format: iceberg\ncatalog: {typ: sql}", "`typ` is not"),
        ("format: iceber\ncatalog: {type: sql}", "'iceber' is not"),
    ],
)
def test_what_only_follows_from_a_wrong_value_is_not_said(text: str, wrong: str) -> None:
    (one,) = findings(f"name: plant\nsource: {{queue: TELEMETRY, path: data}}\nwarehouse: lake\n{text}\n")
    assert wrong in one


def test_a_job_without_a_source_is_told_so_besides_other_mistakes() -> None:
    found = findings("name: plant\nwarehouse: lake\ntrigger: often\n")
    assert len(found) == 2
    assert "the job has no `source`" in "".join(found)
    assert len(findings("name: plant\nwarehouse: lake\nsource: {queue: Q}\n")) == 1, "it has one, without an address"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "job.yaml: cannot be read: No such file or directory: correct the path"),
        (b"\xff\xfe", "give a UTF-8 file"),
    ],
)
def test_a_file_that_cannot_be_read_says_what_to_do(tmp_path: Path, content: bytes | None, says: str) -> None:
    """A file that is not there was to be given in UTF-8."""
    if content is not None:
        (tmp_path / "job.yaml").write_bytes(content)
    with pytest.raises(ConfigurationError) as raised:
        read_job(tmp_path / "job.yaml")
    assert says in "\n".join(map(str, raised.value.findings))
