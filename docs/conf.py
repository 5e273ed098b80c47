"""Sphinx settings of the documentation: `sphinx-build -W -n -b dirhtml docs build/docs`. Markdown, no network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

project = "mqgate"
author = "mqgate"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["**/*.head.md", "changelog.d/*"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "mqgate"
html_favicon = "../gateway/net/static/favicon.svg"
html_show_sourcelink = False
html_show_copyright = False
suppress_warnings = ["myst.header", "misc.highlighting_failure"]  # fragments and MQSC have no lexer of their own
KINDS = {"added": "Added", "changed": "Changed", "fixed": "Fixed", "removed": "Removed", "security": "Security"}


def _changelog(_app: Any, name: str, source: list[str]) -> None:
    """Put the fragments of changelog.d into the changelog page, by kind."""
    if name != "changelog":
        return
    folder = Path(__file__).parent / "changelog.d"
    for kind, title in KINDS.items():
        texts = [path.read_text().strip().removeprefix("- ") for path in sorted(folder.glob(f"*.{kind}.md"))]
        if texts:
            source[0] += f"\n### {title}\n\n" + "\n".join(f"- {text}" for text in texts) + "\n"


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("source-read", _changelog)
