"""What a setting is for, by its key."""

import pytest

from gateway.config.descriptions import description_of
from gateway.config.load import display
from gateway.config.model import Settings


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("listeners.0.tls.key", "private key"),
        ("queue_manager.embedded.path", "directory"),
        ("security.users.alice.password_file", "password"),
        ("nothing.of.the.kind", ""),
    ],
)
def test_the_description_is_that_of_the_field(key: str, says: str) -> None:
    assert says in description_of(key).lower()
    assert bool(says) == bool(description_of(key))


def test_every_setting_has_one() -> None:
    assert [key for key, _, _ in display(Settings()) if not description_of(key)] == []
