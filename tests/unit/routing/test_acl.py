"""Access lists: the design's example, hostile names, memory, and the words of `why`."""

from __future__ import annotations

import pytest

from gateway.config.load import load_acl, load_settings
from gateway.config.security import AclEntry
from gateway.errors import ConfigurationError
from gateway.routing import acl
from gateway.routing.acl import Subject, Verdict, compile_acl

DESIGN = [
    AclEntry(user="sensor-*", publish=["plant/{client}/#"], subscribe=["plant/{client}/cmd/#"]),
    AclEntry(anonymous=True, deny_subscribe=["secret/#"], publish=["open/#"], subscribe=["#"]),
    AclEntry(user="*", deny=["#"]),
]
SENSOR = Subject("dev-1", "sensor-7")
NOBODY = Subject("dev-1")


def test_the_example_of_the_design():
    rights = compile_acl(DESIGN).of(SENSOR)
    assert rights.publish("plant/dev-1/t")
    assert not rights.publish("plant/dev-2/t")
    assert rights.subscribe("plant/dev-1/cmd/#") == Verdict(allowed=True)
    assert not rights.subscribe("plant/+/cmd/#").allowed
    assert not rights.subscribe("#").allowed
    assert compile_acl(DESIGN).of(NOBODY).publish("open/x")
    assert not compile_acl(DESIGN).of(NOBODY).publish("plant/dev-1/t")


def test_a_wide_subscription_over_a_denial_is_checked_at_delivery():
    rights = compile_acl(DESIGN).of(NOBODY)
    assert rights.subscribe("#") == Verdict(allowed=True, check_deliveries=True)
    assert rights.subscribe("open/#") == Verdict(allowed=True)
    assert not rights.subscribe("secret/x").allowed
    assert not rights.subscribe("$share/g/secret/#").allowed
    assert rights.deliver("open/x")
    assert not rights.deliver("secret/x")


@pytest.mark.parametrize(
    ("filter_", "verdict"),
    [
        ("#", Verdict(allowed=True, check_deliveries=True)),
        ("$share/g/plant/#", Verdict(allowed=True, check_deliveries=True)),
        ("plant/dev-1/cmd/now", Verdict(allowed=True)),
        ("office/#", Verdict(allowed=False)),
    ],
)
def test_a_subscription_of_which_a_part_is_permitted_is_granted_on_request(filter_, verdict):
    entries = [AclEntry(user="*", subscribe=["plant/+/cmd/#"]), AclEntry(user="*", deny=["#"])]
    rights = compile_acl(entries, partly=True).of(SENSOR)
    assert rights.subscribe(filter_) == verdict
    assert rights.why("subscribe", filter_).allowed == verdict.allowed
    assert rights.subscribe(filter_).allowed or not rights.deliver("office/lamp")
    if verdict.check_deliveries:
        assert not compile_acl(entries).of(SENSOR).subscribe(filter_).allowed


@pytest.mark.parametrize("name", ["#", "+", "a/b", "dev-1/#", "x\0", ""])
def test_a_name_cannot_widen_what_it_is_written_into(name):
    rights = compile_acl([AclEntry(allow=["plant/{client}/#"])]).of(Subject(name, "u"))
    assert not rights.publish("plant/dev-1/t")
    assert not rights.publish(f"plant/{name}/t")
    denied = compile_acl([AclEntry(deny=["plant/{client}/#"]), AclEntry(allow=["#"])]).of(Subject(name, "u"))
    assert not denied.publish("plant/dev-1/t")
    assert denied.publish("other")


def test_a_name_is_no_placeholder_and_no_way_to_the_brokers_own_topics():
    rights = compile_acl([AclEntry(deny=["plant/{client}/#"]), AclEntry(allow=["plant/#"])]).of(Subject("{user}", "u"))
    assert not rights.publish("plant/{user}/t")
    assert rights.publish("plant/u/t")
    for client, allowed in (("$SYS", False), ("SYS", True)):
        rights = compile_acl([AclEntry(subscribe=["{client}/#", "$SYS/of/{client}"])]).of(Subject(client, "u"))
        assert rights.subscribe(f"{client}/#").allowed is allowed
        assert rights.deliver(f"$SYS/of/{client}")


def test_without_a_list_everything_is_allowed_and_with_an_empty_one_nothing():
    everything, nothing = compile_acl(None), compile_acl([])
    assert everything.may_publish("", "c", None, "a")
    assert everything.of(NOBODY).subscribe("#") == Verdict(allowed=True)
    assert not nothing.may_subscribe("", "c", None, "a")
    assert not nothing.may_receive("", "c", None, "a")


def test_decisions_are_remembered_in_bounded_memory(monkeypatch):
    monkeypatch.setattr(acl, "MAX_REMEMBERED", 10)
    monkeypatch.setattr(acl, "MAX_SUBJECTS", 10)
    compiled = compile_acl(DESIGN)
    for number in range(200):
        compiled.may_publish("tls", f"c{number}", "sensor-1", "plant/x")
        compiled.may_publish("tls", "c", "sensor-1", f"plant/c/{number}")
        compiled.may_publish("tls", "c", "sensor-1", "plant/c/" + "x" * 60_000 + str(number))
    assert len(compiled._recent) <= 10
    remembered = [known for rights in compiled._recent.values() for known in rights._remembered.values()]
    assert all(len(known) <= 10 and all(len(topic) < 300 for topic in known) for known in remembered)


def test_why_names_the_entry():
    rights = compile_acl(DESIGN).of(SENSOR)
    assert rights.why("publish", "plant/dev-1/t").text == (
        "entry 1 allows publish on plant/{client}/# (here plant/dev-1/#)"
    )
    assert rights.why("subscribe", "#").text == "entry 3 denies subscribe on #"
    assert "no entry" in compile_acl([]).of(SENSOR).why("publish", "x").text
    assert "everything is allowed" in compile_acl(None).of(SENSOR).why("publish", "x").text


def test_a_list_in_a_file_of_its_own(tmp_path):
    (tmp_path / "acl.yaml").write_text("- {user: alice, allow: ['a/#']}\n")
    (tmp_path / "mqgate.yaml").write_text("security: {acl: acl.yaml}\n")
    settings = load_settings(tmp_path / "mqgate.yaml")
    assert load_acl(settings) == [AclEntry(user="alice", allow=["a/#"])]
    (tmp_path / "acl.yaml").write_text("- {user: alice, alow: ['a/#']}\n- {allow: ['a#']}\n")
    with pytest.raises(ConfigurationError) as caught:
        load_acl(settings)
    assert [(one.line, one.column) for one in caught.value.findings] == [(1, 17), (2, 3)]
    assert "did you mean `allow`?" in str(caught.value)
    (tmp_path / "acl.yaml").unlink()
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load_acl(settings)
