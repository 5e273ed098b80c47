"""Topic filters as access lists contain them."""

from __future__ import annotations

from gateway.config.units import Wrong


def check_filter(filter_: str) -> None:
    """Raise Wrong unless this is a topic filter, in which {client} and {user} may occur."""
    *parents, last = filter_.split("/")
    mixed = any("#" in level or ("+" in level and level != "+") for level in parents)
    if not filter_ or mixed or ("#" in last and last != "#") or ("+" in last and last != "+"):
        raise Wrong(f"`{filter_}` is not a topic filter", "`+` is a whole level, `#` the whole last level")
    if "{" in filter_.replace("{client}", "").replace("{user}", ""):
        raise Wrong(f"`{filter_}` has an unknown placeholder", "write {client} or {user}")
