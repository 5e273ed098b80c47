"""Changed files are noticed however they were changed, once they have settled, and once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gateway.app.files.watched_files import Watch, look, watched_files
from gateway.app.mappings import read_table
from gateway.config.load import load_settings

MAPPING = """
version: 1
to_mq:
  - {name: a, topic: "a/#", queue: Q, payload: {format: json, schema: a.json}}
"""


def project(folder: Path, number: int, text: str) -> None:
    """As Kubernetes changes a mounted ConfigMap."""
    (folder / f"..{number}").mkdir()
    (folder / f"..{number}" / "plant.yaml").write_text(text)
    (folder / "..new").symlink_to(f"..{number}")
    (folder / "..new").replace(folder / "..data")


class Watched:
    def __init__(self, folder: Path) -> None:
        self.calls = 0
        self.during: Callable[[], None] = lambda: None
        self.watch = Watch(lambda: sorted(str(each) for each in folder.glob("*.yaml")), self.called)

    def called(self, over: Callable[[], None]) -> None:
        self.calls += 1
        self.during()
        over()


def test_a_swapped_link_is_a_change_though_size_and_time_are_the_same(tmp_path: Path) -> None:
    (tmp_path / "plant.yaml").symlink_to("..data/plant.yaml")
    project(tmp_path, 1, "one")
    watched = Watched(tmp_path)
    watched.watch.look()
    assert watched.calls == 0
    project(tmp_path, 2, "two")
    watched.watch.look()
    assert watched.calls == 0, "it may still be on its way"
    watched.watch.look()
    watched.watch.look()
    assert watched.calls == 1


def test_files_that_come_and_go_are_changes(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("a")
    watched = Watched(tmp_path)
    (tmp_path / "b.yaml").write_text("b")
    watched.watch.look()
    watched.watch.look()
    (tmp_path / "a.yaml").unlink()
    watched.watch.look()
    watched.watch.look()
    assert watched.calls == 2


def test_what_changes_while_files_are_read_is_a_change(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("a")
    watched = Watched(tmp_path)

    def changed_once() -> None:
        if file.read_text() != "later":
            file.write_text("later")

    watched.during = changed_once
    file.write_text("other")
    for _ in range(2):
        watched.watch.look()
    assert watched.calls == 1
    for _ in range(3):
        watched.watch.look()
    assert watched.calls == 2


def test_a_file_that_comes_while_others_are_read_is_a_change(tmp_path: Path) -> None:
    """It may not have been read."""
    (tmp_path / "a.yaml").write_text("a")
    watched = Watched(tmp_path)
    watched.during = lambda: (tmp_path / "b.yaml").write_text("b") and None
    (tmp_path / "a.yaml").write_text("other")
    for _ in range(2):
        watched.watch.look()
    assert watched.calls == 1
    watched.during = lambda: None
    for _ in range(4):
        watched.watch.look()
    assert watched.calls == 2


def test_what_is_still_being_written_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("a")
    watched = Watched(tmp_path)
    for length in range(2, 6):
        file.write_text("a" * length)
        watched.watch.look()
    assert watched.calls == 0
    watched.watch.look()
    assert watched.calls == 1


def test_everything_a_reload_reads_is_looked_at(tmp_path: Path) -> None:
    (tmp_path / "plant.yaml").write_text(MAPPING)
    (tmp_path / "a.json").write_text("{}")
    (tmp_path / "mqgate.yaml").write_text("""
listeners: [{name: tls, port: 0, tls: {certificate: s.pem, key: s.key, crl: s.crl}}]
admin: {token_file: token}
security: {users: {bob: {password_file: bob.pw}}, password_file: users, acl: acl.yaml}
mappings: ["*plant.yaml"]
""")
    settings = load_settings(tmp_path / "mqgate.yaml", {})
    names = [Path(file).name for file in watched_files(settings, read_table(settings))]
    assert sorted(names) == sorted(
        ["mqgate.yaml", "plant.yaml", "a.json", "s.pem", "s.key", "s.crl", "token", "bob.pw", "users", "acl.yaml"]
    )


def test_a_file_that_is_not_there_is_seen_to_be_missing(tmp_path: Path) -> None:
    assert look([str(tmp_path / "none")]) == ((str(tmp_path / "none"), "", 0, 0),)
