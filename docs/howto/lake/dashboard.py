"""A dashboard of the lake: one HTML file from three questions in SQL. Run it from cron or a timer.

python dashboard.py LAKE [dashboard.html]        needs: pip install duckdb
"""

from __future__ import annotations

import html
import sys
from pathlib import Path
from typing import Any

import duckdb

PANELS = {
    "Readings by device": """
        SELECT device AS name, count(*) AS value FROM read_parquet('{lake}/readings/*/status=ok/*.parquet')
        GROUP BY device ORDER BY value DESC, name LIMIT 20""",
    "Mean temperature, ten seconds a bar": """
        SELECT strftime(time_bucket(INTERVAL '10 seconds', ts), '%H:%M:%S') AS name, round(avg(temperature), 2) AS value
        FROM read_parquet('{lake}/readings/*/status=ok/*.parquet') GROUP BY name ORDER BY name""",
    "In quarantine, by error": """
        SELECT error AS name, count(*) AS value FROM read_parquet('{lake}/readings/*/status=quarantine/*.parquet')
        GROUP BY error ORDER BY value DESC""",
}
PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="60">
<title>Lake</title><style>body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem }}
td {{ padding: .1rem .8rem .1rem 0 }} meter {{ width: 20rem }}</style><h1>Lake</h1>{panels}</html>
"""


def panel(title: str, rows: list[tuple[Any, float]]) -> str:
    """A table with a bar for each row."""
    most = max((value for _, value in rows), default=1)
    lines = "".join(
        f"<tr><td>{html.escape(str(name))}</td><td>{value:,}</td>"
        f'<td><meter max="{most}" value="{value}"></meter></td></tr>'
        for name, value in rows
    )
    return f"<h2>{html.escape(title)}</h2><table>{lines or '<tr><td>none</td></tr>'}</table>"


def dashboard(lake: Path) -> str:
    """The page."""
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        return PAGE.format(panels="".join(panel(title, asked(db, sql, lake)) for title, sql in PANELS.items()))


def asked(db: Any, sql: str, lake: Path) -> list[tuple[Any, float]]:
    """The answer to one question; none where the table has no file yet."""
    try:
        found: list[tuple[Any, float]] = db.sql(sql.format(lake=lake)).fetchall()
    except duckdb.IOException as error:
        if "No files found" not in str(error):
            raise
        return []
    return found


if __name__ == "__main__":
    target = Path(sys.argv[2] if len(sys.argv) > 2 else "dashboard.html")
    target.write_text(dashboard(Path(sys.argv[1])), encoding="utf-8")
