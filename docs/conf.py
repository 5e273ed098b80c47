"""Sphinx settings of the documentation: `sphinx-build -W -n -b dirhtml docs build/docs`. Markdown, no network."""

from __future__ import annotations

project = "mqgate"
author = "mqgate"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["**/*.head.md"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "mqgate"
html_favicon = "../gateway/net/static/favicon.svg"
html_show_sourcelink = False
html_show_copyright = False
suppress_warnings = ["myst.header", "misc.highlighting_failure"]  # MQSC has no lexer of its own
