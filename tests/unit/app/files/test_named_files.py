"""gateway.app.files.named_files: every file that settings name is looked at, by `mqgate check` and at the start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from certificates import Authority
from click.testing import CliRunner

from gateway.app.files.named_files import wrong_files
from gateway.cli.main import main
from gateway.config.load import load_settings

ROOT = Path(__file__).parents[4]
TLS = "listeners: [{{name: t, port: 0, tls: {{certificate: {0}, key: {1}}}}}]\nadmin: {{port: 0}}\n"


def said(tmp_path: Path, text: str) -> list[str]:
    """The findings about these settings, as `mqgate check` prints them."""
    path = tmp_path / "mqgate.yaml"
    path.write_text(text)
    found = [str(one) for one in wrong_files(load_settings(path, {}))]
    result = CliRunner().invoke(main, ["check", str(path)])
    assert result.exit_code == (1 if found else 0)
    assert all(one in result.output for one in found)
    return found


def test_a_missing_certificate_and_key(tmp_path: Path) -> None:
    text = TLS.format("nope.pem", "nope.key")
    found = said(tmp_path, text)
    place = tmp_path / "mqgate.yaml"
    fix = "write the file, or correct the name"
    assert found == [
        f"{place}:1:{text.index(name) + 1}: `listeners.0.tls.{key}`: {tmp_path / name} does not exist: {fix}"
        for key, name in (("certificate", "nope.pem"), ("key", "nope.key"))
    ]


def test_a_key_of_another_certificate_and_garbage(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("one")
    _, other = authority.issue("other")
    assert said(tmp_path, TLS.format(certificate, key)) == []
    (mismatched,) = said(tmp_path, TLS.format(certificate, other))
    assert "listener `t`" in mismatched
    assert "key values mismatch" in mismatched
    (tmp_path / "garbage.pem").write_text("not a certificate\n")
    (garbage,) = said(tmp_path, TLS.format("garbage.pem", key))
    assert "garbage.pem" in garbage


def test_authorities_and_a_revocation_list_in_each_others_place(tmp_path: Path) -> None:
    """OpenSSL takes both, and believes no client then."""
    authority = Authority(tmp_path)
    certificate, key = authority.issue("one")
    settings = TLS.format(certificate, f"{key}, client_certificate: required, client_ca: CA, crl: LIST")
    crl = authority.revocation_list()
    assert said(tmp_path, settings.replace("CA", str(authority.path)).replace("LIST", str(crl))) == []
    (found,) = said(tmp_path, settings.replace("CA", str(crl)).replace("LIST", str(crl)))
    assert f"{crl} has no certificate in PEM form" in found
    (found,) = said(tmp_path, settings.replace("CA", str(authority.path)).replace("LIST", str(authority.path)))
    assert f"{authority.path} has no revocation list in PEM form" in found


def test_the_place_is_that_of_the_name_wherever_it_stands(tmp_path: Path) -> None:
    (found,) = said(tmp_path, "log: {level: info}\nadmin:\n  port: 0\n  token_file:   nope\n")
    assert found.startswith(f"{tmp_path}/mqgate.yaml:4:17: `admin.token_file`")
    (tmp_path / "mqgate.yaml").write_text("listeners: []\nmappings: [none.yaml]\n")
    result = CliRunner().invoke(main, ["check", str(tmp_path / "mqgate.yaml")])
    assert f"{tmp_path}/mqgate.yaml:2:12: there is no mapping file {tmp_path}/none.yaml: " in result.output
    (finding,) = wrong_files(load_settings(None, {"MQGATE_ADMIN__TOKEN_FILE": "/nowhere/token"}))
    assert str(finding).startswith("environment MQGATE_ADMIN__TOKEN_FILE: `admin.token_file`: /nowhere/token does not")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("security: {password_file: users}", "`security.password_file`"),
        ("security: {acl: list.yaml}", "`security.acl`"),
        ("security: {users: {ann: {password_file: ann}}}", "`security.users.ann.password_file`"),
        ("security: {jwt: {jwks_file: keys.json}}", "`security.jwt.jwks_file`"),
        ("admin: {token_file: token}", "`admin.token_file`"),
        ("queue_manager: {ibm: {connection: h(1414), channel: C, password_file: pw}}", "`queue_manager.ibm.passw"),
        ("queue_manager: {embedded: {objects: objects.mqsc}}", "`queue_manager.embedded.objects`"),
        ("queue_manager: {ibm: {ccdt: AMQCLCHL.TAB}}", "`queue_manager.ibm.ccdt`"),
    ],
)
def test_every_other_file(tmp_path: Path, settings: str, expected: str) -> None:
    (found,) = said(tmp_path, settings)
    assert expected in found
    assert "does not exist" in found


def test_an_authenticator_beside_the_settings_is_found(tmp_path: Path) -> None:
    settings = "security: {authenticator: 'check_beside_settings:check'}"
    (missing,) = said(tmp_path, settings)
    assert f"put check_beside_settings.py into {tmp_path}" in missing
    assert f"{tmp_path}/mqgate.yaml:1:27: `security.authenticator`: check_beside_settings:check: " in missing
    (tmp_path / "check_beside_settings.py").write_text("def check(client, user, password):\n    return user\n")
    assert said(tmp_path, settings) == []
    (unknown,) = said(tmp_path, settings.replace(":check'", ":chek'"))
    assert "write `module:function`" in unknown


def test_the_start_says_the_same_without_a_traceback(tmp_path: Path) -> None:
    path = tmp_path / "mqgate.yaml"
    path.write_text(TLS.format("nope.pem", "nope.key"))
    command = [sys.executable, "-m", "gateway", "run", "-c", str(path), "--data", str(tmp_path / "data")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False, timeout=120)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.splitlines() == [str(one) for one in wrong_files(load_settings(path, {}))]


def shipped() -> list[Path]:
    """Every file of settings in the tree that is meant to be used."""
    return sorted((ROOT / "deploy").rglob("mqgate.yaml"))


@pytest.mark.parametrize("path", shipped(), ids=lambda path: path.parent.name)
def test_shipped_settings_pass_the_check(tmp_path: Path, path: Path) -> None:
    """At the places where the image and the compose file have them."""
    text = path.read_text()
    text = text.replace("/usr/share/mqgate/mappings", str(ROOT / "mappings"))
    text = text.replace("/etc/mqgate", str(path.parent))
    for beside in path.parent.iterdir():
        if beside != path:
            (tmp_path / beside.name).symlink_to(beside)
    (tmp_path / "mappings").symlink_to(ROOT / "mappings")
    assert said(tmp_path, text) == []
    result = CliRunner().invoke(main, ["check", str(tmp_path / "mqgate.yaml")])
    assert "warning" not in result.output, "no rule is hidden by another"
    assert "all is well" in result.output


def test_there_are_such_files() -> None:
    assert {path.parent.name for path in shipped()} >= {"compose", "container"}


@pytest.mark.parametrize(
    "text",
    [
        "queue_manager: {embedded: {objects: FILE}}",
        "queue_manager: {embedded: {users: {a: {password_file: FILE}}}}",
        "queue_manager: {ibm: {connection: h(1), channel: C, user: u, password_file: FILE}}",
        "security: {password_file: FILE}",
        "security: {jwt: {jwks_file: FILE}}",
        "admin: {read_token_file: FILE}",
    ],
)
def test_a_file_of_other_bytes_is_no_text(tmp_path: Path, text: str) -> None:
    (tmp_path / "FILE").write_bytes(b"ab\xff\n")
    (found,) = said(tmp_path, text)
    assert f":1:{text.index('FILE') + 1}: " in found
    assert "is not UTF-8 text (byte 3)" in found


@pytest.mark.parametrize(
    ("text", "findings"),
    [
        (
            "- {user: a, alow: ['#']}\n- {allow: ['a#']}\n- a\n",
            ["1:13: `alow` is", "2:3: ", "3:3: `acl` has the wrong type"],
        ),
        ("acl: [\n", ["2:1: YAML cannot be read here"]),
        ("- {user: a, user: b, allow: ['#']}\n", ["1:13: `user` is given twice"]),
        ("acl: []\nother: 5\n", ["2:1: `other` is not a known key"]),
        ("", ["1:1: not a list of entries"]),
        ("{}", ["1:1: `acl` is missing"]),
    ],
)
def test_everything_wrong_in_a_file_of_an_access_list_is_said_where_it_stands(
    tmp_path: Path, text: str, findings: list[str]
) -> None:
    (tmp_path / "acl.yaml").write_text(text)
    found = said(tmp_path, "security: {acl: acl.yaml}")
    assert [one.startswith(f"{tmp_path / 'acl.yaml'}:{begin}") for one, begin in zip(found, findings, strict=True)] == (
        [True] * len(findings)
    ), found


def test_a_user_whose_password_is_empty(tmp_path: Path) -> None:
    (tmp_path / "ana.pw").write_text("\n")
    (tmp_path / "bob.pw").write_text("secret\n")
    users = "users: {ana: {password_file: ana.pw}, bob: {password_file: bob.pw}}"
    (found,) = said(tmp_path, f"admin: {{port: 0}}\nsecurity: {{anonymous: false, {users}}}\n")
    assert found.endswith("the password of user `ana` is empty: write one into its file")
