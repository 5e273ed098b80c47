"""What a person sees who comes to an address of the API by a link or a redirect and is refused there."""

from __future__ import annotations

from html import escape

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}: mqgate</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="stylesheet" href="/admin/app.css"></head>
<body><main><h1>{title}</h1><p class="wrong" role="alert">{detail}</p><p>{advice}</p>
<p><a class="button" href="/admin/">Back to the sign-in</a></p></main></body></html>
"""
_AWAY = "Begin again in a minute. Until the provider answers, users of this page and tokens still get in."
_AGAIN = "Begin again. If you see this again, tell an administrator: the audit trail and the log say more."


def refusal_page(status: int, title: str, detail: str) -> bytes:
    """The page of a refusal. All values are escaped; its only address is that of this gateway's own page."""
    advice = _AWAY if status == 503 else _AGAIN
    return _PAGE.format(title=escape(title), detail=escape(detail), advice=escape(advice)).encode("utf-8", "replace")
