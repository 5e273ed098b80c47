"""Text that a command is given as a file, or on standard input."""

from __future__ import annotations

from typing import Any

import click


class TextFile(click.ParamType):  # type: ignore[type-arg]  # click 8.1 cannot say it
    """The text of a file in UTF-8, with or without a byte order mark; `-` is standard input."""

    name = "file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Read the file completely. What is not UTF-8 is reported with its line, and how to convert it."""
        data = click.File("rb").convert(value, param, ctx).read()
        try:
            return str(data.decode("utf-8-sig")).replace("\r\n", "\n")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            text = (
                f"{value}:{line}: byte 0x{data[error.start]:02x} is not UTF-8: convert the file, "
                "as by `iconv -f latin1 -t utf-8`"
            )
            self.fail(text, param, ctx)
