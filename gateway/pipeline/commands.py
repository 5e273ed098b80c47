"""`mqgate pipeline ...`: init, run, check, status, report, compact, replay, groups. Spark is imported where it is
used."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from gateway.config.counting import counted
from gateway.errors import ConfigurationError
from gateway.pipeline.errors import QueueUnreachable
from gateway.pipeline.jobs.job import Job
from gateway.pipeline.sentences import PipelineGroup, is_verbose

OPTIONS = {"path": "path", "url": "url", "token_file": "tokenFile", "ca_file": "caFile"}
INTERRUPTED = 130
"""The exit code of a `run --once` that was asked to end before it was done, the same as of a program that SIGINT
ends."""
SOURCE = click.option("--source", default="", help="The source, in a job that has several.")
FILE = click.argument("file", type=click.Path(path_type=Path, dir_okay=False))


@click.group(cls=PipelineGroup)
def pipeline() -> None:
    """The data pipeline: queues to tables with Spark."""


def only_with(needed: str, *names: str) -> None:
    """UsageError if one of these options of the running command was given without the one that it goes with."""
    context = click.get_current_context()
    for name in names:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE and not context.params[needed]:
            one, other = (f"--{each.replace('_', '-')}" for each in (name, needed))
            raise click.UsageError(f"{one} goes with {other}: add that, or leave {one} out")


def job_of(file: Path) -> Job:
    """The job in a file."""
    from gateway.pipeline.jobs.job import read_job

    return read_job(file)


def quieted(job: Job) -> Job:
    """The job without Spark's log, unless the command is verbose: for one error it has pages of Spark's own frames."""
    if is_verbose():
        return job
    return job.model_copy(update={"spark": {"spark.log.level": "OFF"} | job.spark})


@pipeline.command()
@click.argument("queue")
@click.option("--path", default="", help="Data folder of an embedded queue manager on this machine.")
@click.option("--url", default="", help="Administration address of a running gateway; needs --token-file.")
@click.option("--token-file", default="", help="File with the admin token for --url.")
@click.option("--ca-file", default="", help="Certificates that the certificate of --url must be signed by.")
@click.option("--warehouse", default="./lake", show_default=True, help="Where the tables are to be.")
@click.option(
    "--messages", type=click.IntRange(1, 100_000), default=1000, show_default=True, help="How many to look at."
)
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("job.yaml"), show_default=True)
def init(queue: str, warehouse: str, messages: int, output: Path, **where: str) -> None:
    """Write a job for what is on a queue: look at messages and propose decoding, columns and types."""
    from gateway.pipeline.jobs.job import parse_job
    from gateway.pipeline.jobs.proposal import job_text, messages_on, propose
    from gateway.pipeline.source.options import Options

    if not (where["path"] or where["url"]):
        raise click.UsageError("say where the queue is: --path FOLDER, or --url ADDRESS with --token-file")
    only_with("url", "token_file", "ca_file")
    if output.exists():
        raise click.ClickException(f"{output} is there already: name another file with -o")
    options = Options.read({"queue": queue} | {OPTIONS[name]: value for name, value in where.items() if value})
    text = job_text(propose(messages_on(options, messages)), options, warehouse)
    parse_job(str(output), text)
    output.write_text(text, encoding="utf-8")
    click.echo(f"wrote {output}: read it, then mqgate pipeline check {output}")


@pipeline.command()
@FILE
@click.option("--once", is_flag=True, help="Read what is there, then end.")
@click.option("--metrics-port", type=click.IntRange(1, 65535), help="Serve Prometheus metrics on this port.")
@click.option("--metrics-bind", default="127.0.0.1", show_default=True)
@click.option("--report", type=click.Path(path_type=Path), help="Write an HTML report at the end.")
def run(file: Path, once: bool, metrics_port: int | None, metrics_bind: str, report: Path | None) -> None:
    """Run a job, here or under spark-submit."""
    from gateway.pipeline.jobs.metrics import metrics_text, serve_metrics
    from gateway.pipeline.jobs.progress import ProgressDisplay
    from gateway.pipeline.jobs.run import run_job
    from gateway.pipeline.jobs.status import job_status

    only_with("metrics_port", "metrics_bind")
    job = quieted(job_of(file))
    server = serve_metrics(metrics_bind, metrics_port, lambda: metrics_text(job_status(job))) if metrics_port else None
    try:
        with ProgressDisplay() as shown:
            progress = run_job(job, once=once, watch=shown)
    finally:
        if server is not None:
            server.shutdown()
    if report:
        _write_report(job, report)
    if once and progress.state == "stopped":
        raise click.exceptions.Exit(INTERRUPTED)


@pipeline.command()
@FILE
@click.option("--sql", is_flag=True, help="Show the checks of silver tables as SQL.")
def check(file: Path, sql: bool) -> None:
    """Validate a job file and report every error at once. Object storage is tried: can a batch be committed there? So
    are conditions and patterns, by Spark, where Spark and Java are installed. Name, queues, format and columns are
    compared with what has landed. A `path` without a journal is only reported: the job may be meant for another
    host."""
    from gateway.pipeline.jobs.silver import checks, payload_schema, typed_value

    job = job_of(file)
    click.echo(f"{file}: job {job.name}: {len(job.silver)} silver and {len(job.gold)} gold tables")
    _tell_kept_for_good(job)
    _tell_no_journal(job)
    if job.on_objects:
        _try_warehouse(job)
    _try_format(job)
    _try_landed(job)
    _try_columns(job, file)
    _try_conditions(job, file)
    for silver in job.silver if sql else ():
        click.echo(f"\n{silver.table}: from_json({payload_schema(silver)})")
        for column in silver.columns:
            click.echo(f"  {column.name} = {typed_value(column)}")
        for code, condition in checks(silver):
            click.echo(f"  quarantine {code}: {condition}")
        for code, condition in checks(silver, "count"):
            click.echo(f"  count {code}: {condition}")


def _tell_kept_for_good(job: Job) -> None:
    from gateway.pipeline.jobs.tables.compaction import kept_for_good

    for table in kept_for_good(job):
        click.echo(
            f"{table}: `retention.keep` deletes nothing from Delta tables on object storage: use Delta's own `delete`, "
            "such as DeltaTable(...).delete(\"put_ts < '2026-01-01T00:00:00Z'\")", err=True,
        )  # fmt: skip


def _tell_no_journal(job: Job) -> None:
    from gateway.pipeline.journal.segments import Segments

    for folder in [one.source.path for one in job.inputs if one.source.path]:
        try:
            Segments(Path(folder)).headers()
        except QueueUnreachable as missing:
            click.echo(str(missing), err=True)


def _try_conditions(job: Job, file: Path) -> None:
    from gateway.pipeline.jobs.spark.trial import has_trials, tried, why_not_tried

    if not has_trials(job):
        return
    missing = why_not_tried()
    if missing:
        click.echo(f"conditions and patterns are not tried: {missing}", err=True)
        return
    click.echo("starting Spark, which alone can judge conditions and patterns: that takes a while", err=True)
    found = tried(quieted(job), file)
    if found:
        raise ConfigurationError(found)
    click.echo("conditions and patterns: Spark takes them")


def _try_landed(job: Job) -> None:
    from gateway.pipeline.jobs.tables.foreign_warehouse import check_warehouse
    from gateway.pipeline.jobs.tables.warehouse import warehouse_of

    check_warehouse(job, warehouse_of(job).manifest(), {})


def _try_format(job: Job) -> None:
    from gateway.pipeline.errors import SparkMissing
    from gateway.pipeline.jobs.tables.table_format import check_format

    try:
        check_format(job)
    except SparkMissing as missing:
        click.echo(f"the format is not compared with the tables: {missing}", err=True)


def _try_columns(job: Job, file: Path) -> None:
    from gateway.config.source import read_yaml
    from gateway.pipeline.errors import SparkMissing
    from gateway.pipeline.jobs.tables.column_types import misfits

    if job.format == "parquet":
        return
    try:
        found = misfits(job, read_yaml(str(file), file.read_text(encoding="utf-8")))
    except SparkMissing as missing:
        click.echo(f"columns are not compared with the tables: {missing}", err=True)
        return
    if found:
        raise ConfigurationError(found)
    click.echo("columns: the tables that have landed take them")


def _try_warehouse(job: Job) -> None:
    from gateway.pipeline.jobs.tables.warehouse import warehouse_of

    warehouse_of(job).check()
    click.echo(f"{job.warehouse}: takes objects, and refuses a second one of the same name")


@pipeline.command()
@FILE
@click.option("--table", required=True, help="A table of the job.")
@click.option("--part", default="", help="One partition of it, such as status=ok.")
@click.option("--json", "as_json", is_flag=True)
def files(file: Path, table: str, part: str, as_json: bool) -> None:
    """Name the committed files of a table, for readers that would otherwise list a folder."""
    from gateway.pipeline.jobs.tables.table_format import check_format
    from gateway.pipeline.jobs.tables.warehouse import warehouse_of

    job = job_of(file)
    tables = sorted({*job.growing_tables, *job.replaced_tables})
    if table not in tables:
        raise click.ClickException(f"the job has no table {table!r}: name one of {', '.join(tables)}")
    check_format(job)
    found = warehouse_of(job).files(table, part)
    if as_json or found:
        click.echo(json.dumps(found) if as_json else "\n".join(found))


@pipeline.command()
@FILE
@click.option("--json", "as_json", is_flag=True)
def status(file: Path, as_json: bool) -> None:
    """Show cursors, lag, last batch and restarts of a job."""
    from gateway.pipeline.jobs.status import job_status, status_lines

    shown = job_status(job_of(file))
    click.echo(json.dumps(shown, indent=2) if as_json else "\n".join(status_lines(shown)))


@pipeline.command()
@FILE
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("pipeline.html"), show_default=True)
def report(file: Path, output: Path) -> None:
    """Write an HTML page with plots of what has landed."""
    _write_report(job_of(file), output)


def _write_report(job: Job, output: Path) -> None:
    from gateway.pipeline.jobs.report import make_report

    output.write_text(make_report(job), encoding="utf-8")
    click.echo(f"wrote {output}")


@pipeline.command()
@FILE
def compact(file: Path) -> None:
    """Merge small files, delete what is older than its retention, and remove what dead drivers have left."""
    from gateway.pipeline.jobs.tables.compaction import compact as merge
    from gateway.pipeline.jobs.tables.compaction import expire
    from gateway.pipeline.jobs.tables.leftovers import remove_leftovers, shown_age
    from gateway.pipeline.jobs.tables.object_compaction import keep_iceberg

    job = job_of(file)
    what = ("file", "files") if job.on_objects else ("batch", "batches")
    of_merges = ("file", "files") if job.format == "delta" else what  # in a folder too: its batches stay
    for table, count in merge(job).items():
        click.echo(f"{table}: {counted(count, *of_merges)} merged")
    for table, count in expire(job).items():
        click.echo(f"{table}: {counted(count, *what)} deleted")
    if job.format == "iceberg":
        click.echo(f"{counted(keep_iceberg(job), 'snapshot')} expired")
    _tell_kept_for_good(job)
    found = remove_leftovers(job)
    stay = f"; {found.younger:,} not yet {shown_age(job)} old" if found.younger else ""
    click.echo(f"{counted(found.removed, 'left-over file')} removed{stay}")


@pipeline.command()
@FILE
@click.option("--table", required=True, help="A silver table (its quarantine) or bronze (its dead letters).")
@click.option("--queue", required=True, help="The queue to put them on.")
@click.option("--where", default="", help="SQL condition on the rows.")
@click.option("--txn", default="", help="Name of this replay; repeated under the same name it puts nothing twice.")
@SOURCE
def replay(file: Path, table: str, queue: str, where: str, txn: str, source: str) -> None:
    """Put quarantined rows or dead letters back on a queue."""
    from gateway.pipeline.jobs.replay import put_sentence, replay_rows

    count = replay_rows(quieted(job_of(file)), table, queue, where, txn, source)
    click.echo(put_sentence(count, queue, txn))


@pipeline.group()
def groups() -> None:
    """Consumer groups: list, remove, move their cursor."""


@groups.command("list")
@FILE
@click.option("--json", "as_json", is_flag=True)
@SOURCE
def list_groups(file: Path, as_json: bool, source: str) -> None:
    """Show all groups of the queue manager, of other jobs too: their lag, and who reads."""
    from gateway.pipeline.jobs.sources import chosen
    from gateway.pipeline.jobs.status import group_line, groups_of

    found = groups_of(chosen(job_of(file).inputs, source))
    if as_json:
        click.echo(json.dumps(found))
        return
    for group in found:
        click.echo(group_line(group, time.time()).strip())
    if not found:
        click.echo("no groups")


@groups.command("remove")
@FILE
@click.argument("name")
@SOURCE
def remove_group(file: Path, name: str, source: str) -> None:
    """Delete a group, so that it keeps no messages on the queues."""
    done = _on_groups(job_of(file), source, "remove", {"name": name})["removed"]
    click.echo("removed" if done else f"there is no group {name}: `mqgate pipeline groups list` shows those there are")


@groups.command("move")
@FILE
@click.argument("name")
@click.argument("cursor", type=int)
@SOURCE
def move_group(file: Path, name: str, cursor: int, source: str) -> None:
    """Set a group's cursor, back or forth. Its current reader loses the lease."""
    moved = _on_groups(job_of(file), source, "cursor", {"name": name, "cursor": cursor})
    click.echo(f"cursor of {name}: {moved['cursor']}")


def _on_groups(job: Job, name: str, call: str, body: dict[str, Any]) -> Any:
    """Call the pipeline's service: in the gateway, or on its store when it is stopped."""
    from gateway.pipeline.jobs.sources import chosen
    from gateway.pipeline.journal.owner import opened
    from gateway.pipeline.journal.service import PipelineService
    from gateway.pipeline.source.http_access import HttpAccess
    from gateway.pipeline.source.options import Options

    source = chosen(job.inputs, name).source
    if source.url:
        options = Options(url=source.url, token_file=source.token_file, ca_file=source.ca_file)
        return HttpAccess(options).address.call("POST", call, body=body)
    with opened(Path(source.path)) as owner:
        reply = PipelineService(owner, Path(source.path)).handle("POST", call, {}, json.dumps(body).encode())
        answer = json.loads(b"".join(reply.body))
    if reply.status != 200:
        raise click.ClickException(answer["error"])
    return answer


@pipeline.command()
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("mqgate-pipeline.zip"), show_default=True)
def package(output: Path) -> None:
    """Write the data source as one file for spark-submit --py-files."""
    from gateway.pipeline.jobs.spark.spark_session import write_package

    click.echo(f"wrote {output}: {write_package(output)} modules")


@pipeline.command()
@click.option("--indent", default=2)
def schema(indent: int) -> None:
    """Print the JSON Schema of job files, for editors."""
    from gateway.pipeline.jobs.job import job_schema

    click.echo(json.dumps(json.loads(job_schema()), indent=indent))
