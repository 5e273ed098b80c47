"""Errors of commands, in one sentence that says what to do; with `--verbose` everything else follows.

A query's error comes through Spark, Java and Python, and each adds its frames. What counts is the innermost error of
ours, whose text has its remedy.
"""

from __future__ import annotations

import errno
import os
import re
import traceback
from typing import Any

import click

from gateway.errors import ConfigurationError, MqgateError
from gateway.pipeline.errors import WrongOption

VERBOSE = "mqgate.verbose"
OURS = re.compile(r"(?:^|[\s(])gateway\.[\w.]+\.(\w+): (.*)")
NAMED = re.compile(r"[\w.]+(?:Error|Exception|Exit|Missing|Interrupt)\b.*:")
CONDITION = re.compile(r"\[(?!STREAM_FAILED\]|FOREACH_BATCH_USER_FUNCTION_ERROR\])[A-Z][A-Z0-9_.]+\] .*")
"""How Spark names its own errors, except those that only say where another one was raised, which tell a user
nothing."""
LONGEST = 500
LATE = "Python worker failed to connect back"
"""Spark's text when a process of its own took more than ten seconds to start, which no setting changes."""
WHY_LATE = (
    "no Python process of Spark's has started within its ten seconds, as this machine is very busy: "
    "begin when less runs on it, or give the job a larger share with `nice: 0` where it has not got that"
)
FULL = os.strerror(errno.ENOSPC)
"""The text that the system, Arrow and Java have in common, each without the name of the file."""
WHY_FULL = (
    "a disk that the job writes to is full (that of the warehouse, or of the folder for temporary files): make room; "
    "the job goes on where it was"
)
HEAP_FULL = "java.lang.OutOfMemoryError"
NO_MEMORY = re.compile(r"^(?:[\w.]+\.)?(?:Arrow)?MemoryError\b", re.MULTILINE)
"""What Python and Arrow say where the system gives none."""
MORE_MEMORY = "give it more (`spark: {spark.driver.memory: 4g}`) or smaller batches (`max_bytes` of the source)"
WHY_MEMORY = f"there was not enough memory for a batch: {MORE_MEMORY}"
WHY_NO_MEMORY = (
    "a process of the job got no more memory from the system: give the machine or container more, or take smaller "
    "batches (`max_bytes` of the source)"
)


def known_cause(text: str) -> str:
    """The sentence for what Spark, Java and Arrow say of the machine, which has no remedy in its text."""
    if FULL in text:
        return WHY_FULL
    if HEAP_FULL in text:
        return WHY_MEMORY
    return WHY_NO_MEMORY if NO_MEMORY.search(text) else ""


def first_cause(text: str) -> str:
    """The line of Spark's report that tells the cause: the text of the last error of ours, or else the last line that
    names an error."""
    if LATE in text:
        return WHY_LATE
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    ours = [found[2] for line in lines if (found := OURS.match(line))]
    if not ours and (known := known_cause(text)):
        return known
    named = [line for line in lines if NAMED.match(line)]
    return next(reversed(ours or named or lines[:1]), "")[:LONGEST]


def sentence(error: BaseException) -> str:
    """The sentence that a user is told for an error."""
    if isinstance(error, ConfigurationError):
        return "\n".join(map(str, error.findings))
    if isinstance(error, MqgateError):
        return str(error)
    text = str(error)
    if LATE in text:
        return WHY_LATE
    ours = [found for line in text.splitlines() if (found := OURS.search(line))]
    if ours:
        return ours[-1][2][:LONGEST]
    if known := known_cause(f"{type(error).__name__}: {text}"):
        return known
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or error}: correct the path, or what this user may do there"
    spark = next((found[0] for line in text.splitlines() if (found := CONDITION.search(line))), "")
    cause = spark or first_cause(text) or type(error).__name__
    return f"{cause[:LONGEST].rstrip('.')}: the same command with --verbose says where"


def exit_code(error: BaseException) -> int:
    """1 if the job is wrong; 3 if something that it needs cannot be had."""
    wrong = isinstance(error, (ConfigurationError, WrongOption)) or WrongOption.__name__ in str(error)
    return 1 if wrong else 3


class PipelineCommand(click.Command):
    """A command that reports its errors as sentences."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        text = "Show all of an error, and what Spark logs."
        self.params.append(click.Option(["--verbose"], is_flag=True, help=text))

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        verbose = ctx.meta[VERBOSE] = ctx.params.pop("verbose", False)
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:  # noqa: BLE001 - whatever a query raises, its user is told in one sentence
            if verbose:
                traceback.print_exc()
            click.echo(sentence(error), err=True)
            ctx.exit(exit_code(error))


class PipelineGroup(click.Group):
    """A group of commands, and of groups."""

    command_class = PipelineCommand
    group_class = type


def is_verbose() -> bool:
    """Whether the running command was given `--verbose`."""
    return bool(click.get_current_context().meta.get(VERBOSE))
