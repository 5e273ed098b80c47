"""Users and tokens as data, and their file."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from gateway.errors import ConfigurationError
from gateway.people import users as data
from gateway.people.users import Token, Unfit, User
from gateway.people.users_file import UsersFile
from gateway.ports.people import ROLES, allows

SECRET = "a-secret_with_parts"


def token(scope: str = "viewer", ends: float = 100.0) -> Token:
    return Token("0a1b2c3d", data.digest_of(SECRET), scope, ends)


def test_each_role_may_what_those_before_it_may() -> None:
    assert [[allows(role, needed) for needed in ROLES] for role in ROLES] == [
        [True, False, False], [True, True, False], [True, True, True],
    ]  # fmt: skip
    assert allows("", "")
    assert not any(allows(role, "viewer") for role in ("", "root", "Viewer"))


@pytest.mark.parametrize("name", ["", " ", "a b", "a/b", "a:b", "ä", ".a", "x" * 65, "a\n", "../a"])
def test_names_that_are_none_are_refused(name: str) -> None:
    with pytest.raises(Unfit, match="is not a user name"):
        data.added({}, name, "viewer", "")


def test_a_user_is_added_once_changed_and_removed() -> None:
    users = data.added({}, "ann", "viewer", "hash")
    with pytest.raises(Unfit, match="there is a user ann already"):
        data.added(users, "ann", "viewer", "")
    with pytest.raises(Unfit, match="is not a role"):
        data.added(users, "bob", "root", "")
    changed = data.changed(users, "ann", role="operator", password=None, disabled=True)
    assert changed["ann"] == User("ann", "operator", "hash", True)
    assert users["ann"].role == "viewer"
    assert data.removed(changed, "ann") == {}
    with pytest.raises(Unfit, match="no user bob"):
        data.removed(changed, "bob")


def test_a_token_has_the_lower_role_of_its_own_and_its_users() -> None:
    text = data.token_text("0a1b2c3d", SECRET)
    users = data.with_token({"ann": User("ann", "operator")}, "ann", token("operator"))
    assert data.user_of_token(users, text, 99.0) == (users["ann"], "operator")
    lowered = data.changed(users, "ann", role="viewer", password=None, disabled=None)
    assert data.user_of_token(lowered, text, 99.0) == (lowered["ann"], "viewer")
    raised = data.changed(users, "ann", role="administrator", password=None, disabled=None)
    assert data.user_of_token(raised, text, 99.0) == (raised["ann"], "operator")


def test_a_token_counts_until_it_ends_or_its_user_is_disabled() -> None:
    text = data.token_text("0a1b2c3d", SECRET)
    users = data.with_token({"ann": User("ann", "viewer")}, "ann", token())
    assert data.user_of_token(users, text, 100.0) is None
    assert data.user_of_token(users, text[:-1], 1.0) is None
    assert data.user_of_token(users, SECRET, 1.0) is None
    off = data.changed(users, "ann", role=None, password=None, disabled=True)
    assert data.user_of_token(off, text, 1.0) is None
    assert data.user_of_token(data.without_token(users, "ann", "0a1b2c3d"), text, 1.0) is None


def test_no_token_is_made_that_may_more_than_its_user() -> None:
    with pytest.raises(Unfit, match="ann is viewer"):
        data.with_token({"ann": User("ann", "viewer")}, "ann", token("operator"))


def test_the_file_keeps_everything_but_the_secret_and_belongs_to_its_owner(tmp_path: Path) -> None:
    file = UsersFile(tmp_path / "users")
    assert file.read() == {}
    file.change(lambda users: data.added(users, "ann", "administrator", "hash"))
    users = file.change(lambda users: data.with_token(users, "ann", token()))
    assert UsersFile(file.path).read() == users
    assert SECRET not in file.path.read_text()
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [file.path]


def test_a_change_that_cannot_be_leaves_the_file_alone(tmp_path: Path) -> None:
    file = UsersFile(tmp_path / "users")
    file.change(lambda users: data.added(users, "ann", "viewer", "hash"))
    before = file.path.read_text()
    with pytest.raises(Unfit):
        file.change(lambda users: data.removed(users, "bob"))
    assert file.path.read_text() == before


@pytest.mark.parametrize(("key", "wrong"), [
    ("ends", "NaN"), ("ends", "Infinity"), ("ends", "1e300"), ("ends", "-1"), ("ends", "null"), ("ends", '"1"'),
    ("digest", "null"), ("digest", "5"), ("digest", '"\u00e9"'), ("id", "[]"), ("id", "7"), ("note", "{}"),
    ("scope", '"root"'),
])  # fmt: skip
def test_a_file_with_a_token_that_is_none_is_refused(tmp_path: Path, key: str, wrong: str) -> None:
    """A token that would never end, or one that cannot be compared with what is sent."""
    users = data.with_token({"ann": User("ann", "viewer", "h")}, "ann", token())
    document = data.as_document(users)
    document["users"][0]["tokens"][0][key] = "here"
    path = tmp_path / "users"
    path.write_text(json.dumps(document).replace('"here"', wrong))
    with pytest.raises(ConfigurationError, match="user 1 has an invalid name, role, state or token"):
        UsersFile(path).read()


@pytest.mark.parametrize("wrong", [
    "", "[]", "{}", '{"version": 2, "users": []}', '{"version": 1, "users": [1]}', "[" * 5000,
    '{"version": 1, "users": [{"name": "a", "role": "root"}]}',
    '{"version": 1, "users": [{"name": "a", "role": "viewer", "disabled": "no"}]}',
    '{"version": 1, "users": [{"name": "a", "role": "viewer"}, {"name": "a", "role": "operator"}]}',
    '{"version": 1, "users": [{"name": "a", "role": "viewer", "more": 1}]}',
    '{"version": 1, "users": [{"name": "a", "role": "viewer", "tokens": [{"id": "1"}]}]}',
])  # fmt: skip
def test_a_file_that_is_none_is_refused_with_its_name(tmp_path: Path, wrong: str) -> None:
    path = tmp_path / "users"
    path.write_text(wrong)
    with pytest.raises(ConfigurationError, match="no file of users"):
        UsersFile(path).read()


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    users = data.with_token({"ann": User("ann", "viewer", "$argon2id$x", True)}, "ann", token())
    assert data.of_document(json.loads(json.dumps(data.as_document(users)))) == users
