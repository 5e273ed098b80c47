"""gateway.session.subscribed: how subscriptions are written into the record of their session."""

from __future__ import annotations

import json

import pytest

from gateway.mqtt.packets import Subscription
from gateway.session import subscribed as module
from gateway.session.subscribed import MANY, Subscribed, Subscriptions


def subscriptions_of(count: int) -> Subscriptions:
    made = Subscriptions()
    for number in range(count):
        made[f"a/{number}"] = one_of(f"a/{number}")
    return made


def one_of(filter_: str, identifier: int = 0) -> Subscribed:
    return Subscribed(Subscription(filter_, 1), identifier)


def read(subscriptions: Subscriptions) -> list[tuple[str, int]]:
    rows = json.loads(b"[%s]" % b",".join(subscriptions.texts()))
    return [(row[0], row[-1]) for row in rows]


def has(subscriptions: Subscriptions) -> list[tuple[str, int]]:
    return [(name, one.identifier) for name, one in subscriptions.items()]


def test_of_many_only_what_has_changed_is_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    many, made, whole = subscriptions_of(MANY + 100), list[str](), module.text_of

    def counted(subscribed: Subscribed) -> bytes:
        made.append(subscribed.options.filter)
        return whole(subscribed)

    assert read(many) == has(many)
    monkeypatch.setattr(module, "text_of", counted)
    for number in range(10):
        many[f"more/{number}"] = one_of(f"more/{number}")
        many[f"a/{number}"] = one_of(f"a/{number}", 7)
        many.pop(f"a/{100 + number}")
        assert read(many) == has(many)
    assert len(made) == 20


@pytest.mark.parametrize("left", [MANY - 1, 0])
def test_what_is_kept_of_many_goes_with_them(left: int) -> None:
    many = subscriptions_of(MANY)
    assert read(many) == has(many)
    if left:
        many.pop("a/0")
    else:
        many.clear()
    assert read(many) == has(many)
    assert len(many) == left
    many["a/0"] = one_of("a/0", 3)
    assert read(many) == has(many)


def test_one_is_written_as_the_encoder_of_json_would() -> None:
    options = Subscription('a"\\/],[\u00e9\U0001f600/+', 2, no_local=True, retain_handling=1)
    expected = [options.filter, 2, True, False, 1, 268_435_455]
    text = json.dumps(expected, separators=(",", ":"), ensure_ascii=False).encode()
    assert module.text_of(Subscribed(options, 268_435_455)) == text
