"""The documentation site builds with warnings as errors, every internal link resolves, every page is reachable."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

import pytest
from ops_machine import ROOT, missing

pytestmark = [pytest.mark.ops, pytest.mark.xdist_group("docs"), pytest.mark.timeout(900)]


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag == "a" and found.get("href"):
            self.links.append(str(found["href"]))
        if found.get("id"):
            self.anchors.add(str(found["id"]))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if subprocess.run(
        [sys.executable, "-c", "import sphinx, myst_parser, furo"], check=False, capture_output=True
    ).returncode:
        missing("sphinx (the extra `docs`)")
    folder = tmp_path_factory.mktemp("site")
    # The navigation of its theme is the same on every page, and takes four fifths of the time: one page has it here.
    sphinx = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-n", "-b", "dirhtml"]
    docs = str(ROOT / "docs")
    for what in (["-D", "html_theme=basic"], [f"{docs}/index.md"]):
        command = [*sphinx, docs, str(folder), *what]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=800)
        assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_link_inside_of_the_site_leads_somewhere(site: Path) -> None:
    pages = {path: _parsed(path) for path in site.rglob("*.html")}
    assert len(pages) > 25
    there = {site, *site.rglob("*")}  # asked once: 50,000 links would be as many walks along their paths
    for path, page in pages.items():
        for link in page.links:
            address, anchor = urldefrag(link)
            if urlsplit(address).scheme or address.startswith("//"):
                continue
            target = Path(os.path.normpath(path.parent / unquote(address))) if address else path
            target = target / "index.html" if target / "index.html" in there else target
            assert target in there, f"{path.relative_to(site)}: {link}"
            if anchor and target in pages:
                assert anchor in pages[target].anchors, f"{path.relative_to(site)}: {link}"


def test_every_page_is_in_the_navigation(site: Path) -> None:
    here = {(site / urldefrag(link)[0]).resolve() for link in _parsed(site / "index.html").links}
    assert {page.parent for page in site.rglob("index.html")} - here <= {site / "genindex", site / "search"}


def _parsed(path: Path) -> _Links:
    parser = _Links()
    parser.feed(path.read_text())
    return parser


def test_pages_are_where_the_alerts_point(site: Path) -> None:
    named = re.findall(r"docs/(runbooks/\S+)\.md", (ROOT / "deploy/prometheus/alerts.yaml").read_text())
    assert len(named) > 15
    for page in named:
        assert (site / page / "index.html").exists()


def test_rows_of_tables_have_the_cells_of_their_heads() -> None:
    """A `|` that is not escaped begins a cell, in code too, and cells beyond the head are not shown; a row behind an
    empty line is shown as it is written."""
    markdown_it = pytest.importorskip("markdown_it", reason="markdown-it is not installed: pip install '.[docs]'")
    parser = markdown_it.MarkdownIt("commonmark").enable("table")
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")]
    for page in pages:
        lines = page.read_text().splitlines()
        for token in parser.parse("\n".join(lines)):
            if token.type == "table_open":
                bars = [len(re.findall(r"(?<!\\)\|", line)) for line in lines[slice(*token.map)]]
                assert [row for row, count in enumerate(bars, token.map[0] + 1) if count != bars[0]] == [], page
            if token.type == "inline" and token.map and token.content.startswith("|"):
                raise AssertionError(f"{page}:{token.map[0] + 1}: not in a table")


def test_links_to_files_of_the_tree_are_right() -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        for name in re.findall(r"`((?:deploy|gateway|mappings|tests)/[\w./-]+\.\w+)`", page.read_text()):
            assert (ROOT / name).exists(), f"{page.name}: {name}"


def test_files_named_on_the_way_of_a_message_exist() -> None:
    text = (ROOT / "docs/explanation/way-of-a-message.md").read_text()
    for name in re.findall(r"\b((?:net|mqtt|broker|bridge|queue_manager|backends)/[\w/]+\.py)", text):
        assert (ROOT / "gateway" / name).exists(), name
