"""Sessions behind cookies: how they begin, how they end, how many there are."""

from __future__ import annotations

from itertools import count

from gateway.people.sessions import MAX_OF_USER, MAX_SESSIONS, Sessions

NUMBERS = count()


def text() -> str:
    return f"text {next(NUMBERS)}"


def test_each_session_is_a_new_one_with_a_form_token_of_its_own() -> None:
    sessions = Sessions(60, 600)
    one, two = (sessions.begin("ann", "password", "viewer", 0.0, text) for _ in range(2))
    first, second = sessions.caller_of(one, 1.0), sessions.caller_of(two, 1.0)
    assert first is not None
    assert second is not None
    assert first[:3] == second[:3] == ("ann", "password", "viewer")
    assert len({one, two, first.form_token, second.form_token, first.session, second.session}) == 6
    assert one not in repr(vars(sessions))  # only its digest is kept


def test_it_ends_when_it_is_not_used_and_when_it_is_as_old_as_it_may_become() -> None:
    sessions = Sessions(60, 600)
    cookie = sessions.begin("ann", "password", "viewer", 0.0, text)
    for now in range(0, 601, 60):
        assert sessions.caller_of(cookie, float(now))
    assert sessions.caller_of(cookie, 601.0) is None
    cookie = sessions.begin("ann", "password", "viewer", 0.0, text)
    assert sessions.caller_of(cookie, 61.0) is None
    assert sessions.caller_of(cookie, 1.0) is None  # gone, not asleep


def test_signing_out_ends_one_and_a_change_those_it_is_about() -> None:
    sessions = Sessions(60, 600)
    one, two, other = (sessions.begin(user, "password", "viewer", 0.0, text) for user in ("ann", "ann", "bob"))
    caller = sessions.caller_of(one, 1.0)
    assert caller is not None
    sessions.end(caller.session)
    assert sessions.caller_of(one, 1.0) is None
    assert sessions.end_those(lambda each: each.user == "ann") == 1
    assert sessions.caller_of(two, 1.0) is None
    assert sessions.caller_of(other, 1.0)
    assert sessions.caller_of("unknown", 1.0) is None


def test_the_oldest_make_room_for_new_ones() -> None:
    sessions = Sessions(60, 600)
    cookies = [sessions.begin("ann", "password", "viewer", 0.0, text) for _ in range(MAX_OF_USER + 1)]
    assert sessions.caller_of(cookies[0], 1.0) is None
    assert sessions.caller_of(cookies[1], 1.0)
    for number in range(MAX_SESSIONS):
        sessions.begin(f"user {number}", "oidc", "viewer", 0.0, text)
    assert len(sessions) == MAX_SESSIONS
