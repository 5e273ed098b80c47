"""Who may connect and what they may do, by the settings: by certificate, token, password, SCRAM, a directory, or a
service or function of the operator.

Verifying a hash takes tens of milliseconds and is done on threads (`checks`). A verified password is remembered by a
keyed digest, never as a password. So is a wrong one, because a device that repeats it is not guessing. Refusals are
delayed, the longer the more there were from an address (`attempts`), and only a limited number of different wrong
passwords is checked (`guesses`).
"""

from __future__ import annotations

import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from gateway.access import client_ids, scram
from gateway.access.attempts import Attempts
from gateway.access.checks import Check, Checks
from gateway.access.granted import EVERYTHING, Granted
from gateway.access.guesses import Guesses
from gateway.access.logins import Answer, Credentials, Login, Method, NotNow, PlainUsers, ask_in_order
from gateway.access.managed import ManagedUsers
from gateway.access.policy import Policy, policy_of
from gateway.access.scram import Exchange, ScramError
from gateway.access.tokens import Claimed, Issuers, NotBelieved, Tokens
from gateway.config.model import Settings
from gateway.config.security import MethodName
from gateway.errors import ConfigurationError
from gateway.mqtt import properties as prop
from gateway.mqtt import reasons
from gateway.mqtt.packets import V5, Connect
from gateway.ports.access import Authenticating, Decisions, Verdict
from gateway.ports.batch import Scheduler
from gateway.ports.counters import IdentityMethod, LoginMethod
from gateway.ports.link import Link, address_of, host_of
from gateway.routing.acl import PUBLISH, Acl, Lists, Subject

REMEMBERED = 100_000
REMEMBER_SECONDS = 300.0
"""How long a wrong password is remembered. How long a right one is remembered, its method says."""
TOKEN_METHOD = "JWT"  # noqa: S105 - a name
"""The Authentication Method of MQTT 5 for tokens, which are also renewed by AUTH before they end."""
_WAIT = "too many wrong passwords for this user or from this address: try again later"
Done = Callable[[Verdict], None]
_Known = TypeVar("_Known")
_NEVER: tuple[float, Login | None] = (float("-inf"), None)


@dataclass(slots=True, frozen=True)
class _Attempt:
    """A password that is being checked."""

    user: str
    address: str
    digest: bytes
    begun: float
    wrong: Verdict
    counts: bool
    """Whether it counts as a guess if it is wrong: a token does not, because a signature cannot be guessed."""
    done: Done


class Gatekeeper:
    """Implements `ports.access.Access`. `secret` is kept across restarts, so that salts stay the same."""

    def __init__(self, settings: Settings, scheduler: Scheduler, secret: bytes = b"") -> None:
        self._scheduler = scheduler
        self.on_asked: Callable[[IdentityMethod, str, str], None] = lambda _method, _provider, _why: None
        """Called with the method, the provider and the outcome of a request to a provider of identities; an empty text:
        a success."""
        self.on_login: Callable[[LoginMethod], None] = lambda _method: None
        """Called with the method that has identified a client that is let in."""
        self._issuers = Issuers(scheduler, lambda provider, why: self.on_asked("jwt", provider, why))
        self._checks, self._asked = Checks(scheduler), Checks(scheduler)
        """Those that are computed here, and those for which others are asked: who does not answer holds up nobody whom
        the gateway knows itself."""
        self._key = secrets.token_bytes(32)
        self._secret = secret or self._key
        self._right: OrderedDict[bytes, tuple[float, Login]] = OrderedDict()
        self._wrong: OrderedDict[bytes, float] = OrderedDict()
        self._attempts = Attempts()
        self.granted = Granted()
        """What logins let their clients publish and subscribe."""
        self.managed = ManagedUsers()
        """Users that are managed while the gateway runs."""
        self.on_guessing: Callable[[str], None] = lambda _who: None
        """Called with the user or address whose number of wrong passwords is used up."""
        self._reached = {one.name: one.bind for one in settings.listeners if not one.local}
        """Listeners that other hosts can reach. A new `bind` takes effect with a restart, so a reload does not change
        this."""
        self._policy = policy_of(settings, self._reached, self._secret, self._issuers, self._told, self.managed)
        self._begin_with(self._policy)
        self._guesses = Guesses(*_bounds(self._policy))

    def prepare(self, settings: Settings) -> Callable[[], None]:
        """Read all files now, and return a function that puts them into force. Raises ConfigurationError; the old ones
        then stay in force."""
        settings = _managing(settings, managed=self._policy.managed)
        before = self._policy.scram
        policy = policy_of(settings, self._reached, self._secret, self._issuers, self._told, self.managed, before)
        lost = policy.emptied(self._policy)
        if lost is not None:
            policy.close()
            raise ConfigurationError([lost])

        def use() -> None:
            self._policy.tokens.close_others(policy.tokens)
            self._policy.close()
            self._policy = policy
            self._issuers.keep(policy.tokens)
            self._begin_with(policy)
            self._right.clear()
            self._wrong.clear()
            self._guesses.use(*_bounds(policy))

        return use

    def _begin_with(self, policy: Policy) -> None:
        policy.tokens.start()
        self._asked.most = policy.threads

    def _told(self, method: IdentityMethod, provider: str, why: str) -> None:
        """Report how a provider has answered; may be called on any thread."""
        self._scheduler.soon(lambda: self.on_asked(method, provider, why))

    # -- identity --

    def authenticate(self, connect: Connect, link: Link, done: Done) -> None:
        """Decide about a CONNECT."""
        policy = self._policy
        certified = self._certified(link)

        def decided(verdict: Verdict) -> None:
            verdict = self._allowed(connect, client_ids.bound(policy, connect, certified, verdict))
            if not verdict.reason:
                self.on_login(verdict.method or "anonymous")  # type: ignore[arg-type]
            done(self._given(connect, verdict))

        if prop.AUTHENTICATION_METHOD in connect.properties:
            self._begin(connect, link, decided)
        elif certified is not None:
            decided(_certificate_verdict(connect, certified))
        elif connect.username is None and connect.password is None:
            decided(self._anonymous_verdict(link))
        elif policy.checked:
            self._check(connect, link, decided)
        elif policy.anonymous_on.get(link.listener, False):
            decided(Verdict(0))  # an unproven user name counts for nothing: all see an anonymous client
        else:
            decided(_wrong(connect.version))

    def _certified(self, link: Link) -> str | None:
        """The user of a connection's certificate; empty: the certificate belongs to nobody; None: there is none."""
        if not self._policy.certificates:
            return None
        name = link.certificate_user
        return self.managed.certified(name, link.certificate_fingerprint) if self._policy.managed else name

    def _allowed(self, connect: Connect, verdict: Verdict, client_id: str = "") -> Verdict:
        """The verdict, unless it lets in a managed user who is disabled, or who has another client identifier."""
        if verdict.reason or not self._policy.managed:
            return verdict
        why = self.managed.refuses(verdict.user, client_id or verdict.client_id or connect.client_id)
        return Verdict(reasons.NOT_AUTHORIZED, text=why) if why else verdict

    def _given(self, connect: Connect, verdict: Verdict, client_id: str = "") -> Verdict:
        """The verdict, with what the login permits the client in force if it is let in."""
        if verdict.reason or not self._policy.gives:
            return verdict
        return self.granted.keep(connect, verdict, client_id)

    def _anonymous_verdict(self, link: Link) -> Verdict:
        if self._policy.anonymous_on.get(link.listener, False):
            return Verdict(0)
        return Verdict(reasons.NOT_AUTHORIZED, text="user name and password are needed here")

    # -- passwords --

    def _check(self, connect: Connect, link: Link, done: Done) -> None:
        """Check a token, if the password is one; check a password if it is not, or if the token proves nothing."""
        policy, user, password = self._policy, connect.username or "", connect.password or b""
        if not (policy.tokens and policy.tokens.is_token(password)):
            self._check_password(connect, link, done)
            return

        def answered(said: Claimed | NotBelieved) -> None:
            if isinstance(said, NotBelieved):
                if said.found in {"unavailable", "busy"}:
                    done(_not_now(said))
                else:
                    self._check_password(connect, link, done, said.why)
            elif user in {"", said.user}:
                done(_claimed(said))
            else:
                self._check_password(connect, link, done, "it is of another user than the user name")

        policy.tokens.check(password, answered)

    def _check_password(self, connect: Connect, link: Link, done: Done, token: str = "") -> None:
        """Check a password. `token`: why it does not count as a token, if it has the form of one."""
        policy, now = self._policy, self._scheduler.monotonic()
        user, password = connect.username or "", connect.password or b""
        who = Credentials(connect.client_id, connect.username, connect.password, link.listener, host_of(link.peer))
        known_by = [user, link.listener, who.address, connect.client_id] if policy.by_client else [user]
        known_by += [self.managed.version(user)] if policy.managed else []
        digest = hmac.digest(self._key, "\0".join(known_by).encode() + b"\0" + password, "sha256")
        wrong = _wrong(connect.version)
        if token:
            wrong = wrong._replace(text=f"the token is refused: {token}")
        attempt = _Attempt(user, address_of(link.peer), digest, now, wrong, not token, done)
        if self._held_up(attempt):
            return
        login = self._known(digest, now)
        at_once = policy.methods[0].ask(who) if policy.methods and isinstance(policy.methods[0], PlainUsers) else None
        if login is not None:
            self._accept(attempt, login)
        elif isinstance(at_once, Login):
            self._accept(attempt, at_once)
        elif self._is_wrong(policy, digest, now):
            self._refuse(attempt)
        else:
            self._check_slowly(policy, who, link, attempt, lambda: self._check_password(connect, link, done, token))

    def _known(self, digest: bytes, now: float) -> Login | None:
        """The login that this password has proved lately; None: there is none."""
        until, login = self._right.get(digest, _NEVER)
        return login if until > now and login is not None and not self._is_over(login) else None

    def _is_wrong(self, policy: Policy, digest: bytes, now: float) -> bool:
        """Whether a password is known to be wrong without asking anybody."""
        if any(one.asked_again for one in policy.methods):
            return False
        first_only = all(isinstance(one, PlainUsers) for one in policy.methods)
        return first_only or self._wrong.get(digest, 0.0) > now

    def _held_up(self, attempt: _Attempt) -> bool:
        """Whether this user or address has used up its wrong passwords; the attempt is then refused unchecked."""
        now = self._scheduler.monotonic()
        if not self._guesses.wait(attempt.address, attempt.user, now):
            return False
        delay = self._attempts.failed(attempt.address, now)
        attempt.done(Verdict(reasons.CONNECTION_RATE_EXCEEDED, text=_WAIT, after=delay))
        return True

    def _accept(self, attempt: _Attempt, login: Login) -> None:
        self._guesses.right(attempt.address, attempt.user)
        attempt.done(
            Verdict(0, login.user, login.client_id, expires=login.expires, method=login.method, topics=login.topics)
        )

    def _is_over(self, login: Login) -> bool:
        """Whether the login has ended by now: a client let in by it would be disconnected at once."""
        return 0 < login.expires <= self._scheduler.now()

    def _refuse(self, attempt: _Attempt) -> None:
        """Refuse a wrong password; one that was wrong before does not count as another guess."""
        now = self._scheduler.monotonic()
        if attempt.counts and self._wrong.get(attempt.digest, 0.0) <= now:
            self._count(attempt.address, attempt.user)
        _remember(self._wrong, attempt.digest, now + REMEMBER_SECONDS)
        delay = self._attempts.failed(attempt.address, now) - (now - attempt.begun)
        attempt.done(attempt.wrong._replace(after=max(0.0, delay)))

    def _count(self, address: str, user: str) -> None:
        for who in self._guesses.wrong(address, user, self._scheduler.monotonic()):
            self.on_guessing(who)

    def _check_slowly(
        self, policy: Policy, who: Credentials, link: Link, attempt: _Attempt, again: Callable[[], None]
    ) -> None:
        """Ask the methods of the settings on a thread. `again` is called if the user has been changed or removed
        meanwhile."""
        version = self.managed.version(attempt.user)

        def wanted() -> bool:  # other attempts of this user or address may have been wrong or right meanwhile
            if getattr(link, "closed", False) or self._held_up(attempt):
                return False
            login = self._known(attempt.digest, self._scheduler.monotonic())
            if login is None or self.managed.version(attempt.user) != version:
                return True
            self._accept(attempt, login)
            return False

        computed = partial(self._computed, policy, attempt, version, again)

        def given_up() -> None:
            attempt.done(Verdict(reasons.SERVER_BUSY, text="too many passwords are being checked: try again later"))

        def check(checks: Checks, methods: Sequence[Method], told: Callable[[Answer], None]) -> None:
            ask = partial(ask_in_order, methods, who)
            if not checks.submit(Check(attempt.address, wanted, ask, told, attempt.user, given_up)):
                given_up()

        here, elsewhere = policy.stages

        def looked(answer: Answer) -> None:
            if isinstance(answer, Login) or not elsewhere:
                computed(answer)
            else:
                check(self._asked, elsewhere, lambda last: computed(last or answer))

        if here:
            check(self._checks, here, looked)
        else:
            check(self._asked, elsewhere, computed)

    def _computed(
        self, policy: Policy, attempt: _Attempt, version: str, again: Callable[[], None], answer: Answer
    ) -> None:
        """What the methods have said. `version`: of the user when they were asked."""
        if isinstance(answer, NotNow):
            attempt.done(Verdict(reasons.SERVER_UNAVAILABLE, text=answer.why))
        elif self.managed.version(attempt.user) != version:
            again()
        elif answer is None:
            self._refuse(attempt)
        elif self._is_over(answer):
            attempt.done(Verdict(reasons.NOT_AUTHORIZED, text="its login has ended"))
        else:
            if policy is self._policy:  # else a reload came between
                _remember(self._right, attempt.digest, (self._scheduler.monotonic() + answer.lasts, answer))
            self._accept(attempt, answer)

    # -- enhanced authentication: SCRAM, and tokens --

    def _begin(self, connect: Connect, link: Link, done: Done) -> None:
        method, data = connect.properties[prop.AUTHENTICATION_METHOD], connect.properties.get(prop.AUTHENTICATION_DATA)
        data = data if isinstance(data, bytes) else b""
        if method == scram.METHOD and self._policy.scram:
            self._challenge(data, address_of(link.peer), done)
        elif method == TOKEN_METHOD and self._policy.tokens:
            self._check_token(data, connect.username, address_of(link.peer), done)
        else:
            done(Verdict(reasons.BAD_AUTHENTICATION_METHOD, text="that authentication method is not offered here"))

    def _check_token(self, token: bytes, username: str | None, address: str, done: Done) -> None:
        def answered(said: Claimed | NotBelieved) -> None:
            if isinstance(said, Claimed) and username in {None, "", said.user}:
                done(_claimed(said))
            elif isinstance(said, NotBelieved) and said.found in {"unavailable", "busy"}:
                done(_not_now(said))
            else:
                why = said.why if isinstance(said, NotBelieved) else "it is of another user than the user name"
                self._refuse_proof(address, f"the token is refused: {why}", done)

        self._policy.tokens.check(token, answered)

    def _challenge(self, data: bytes, address: str, done: Done) -> None:
        exchange = Exchange()
        try:
            challenge = exchange.challenge(self._policy.scram, data, secrets.token_urlsafe(18))
        except ScramError as error:
            self._refuse_proof(address, str(error), done)
            return
        done(Verdict(reasons.CONTINUE_AUTHENTICATION, data=challenge, exchange=exchange))

    def exchange(self, connection: Authenticating, data: bytes, done: Done) -> None:
        """Handle the client's next message in AUTH: a proof, or the first message of a re-authentication, which has to
        be for the same user."""
        policy, link, exchange = self._policy, connection.link, connection.exchange
        certified = self._certified(link)
        address = address_of(link.peer)

        def same(verdict: Verdict) -> None:
            if verdict.reason == 0 and connection.user not in {None, verdict.user}:
                verdict = Verdict(reasons.NOT_AUTHORIZED, text="the proof is for another user")
            elif verdict.reason == 0 and connection.request.username not in {None, "", verdict.user}:
                verdict = Verdict(reasons.NOT_AUTHORIZED, text="the proof is for another user than the user name")
            elif verdict.reason == reasons.SERVER_UNAVAILABLE:  # which DISCONNECT cannot say
                verdict = verdict._replace(reason=reasons.SERVER_BUSY)
            elif verdict.client_id not in {None, connection.publisher.client_id or verdict.client_id}:
                verdict = Verdict(reasons.NOT_AUTHORIZED, text="the proof is for another client identifier")
            client_id = connection.publisher.client_id
            verdict = client_ids.bound(policy, connection.request, certified, verdict)
            verdict = self._allowed(connection.request, verdict, client_id)
            done(self._given(connection.request, verdict, client_id))

        if connection.request.properties.get(prop.AUTHENTICATION_METHOD) == TOKEN_METHOD:
            if policy.tokens:
                self._check_token(data, connection.request.username, address, same)
            else:
                done(Verdict(reasons.NOT_AUTHORIZED, text="tokens are no longer accepted here"))
        elif isinstance(exchange, Exchange):
            self._finish(exchange, data, address, same)
        else:
            self._challenge(data, address, same)

    def _finish(self, exchange: Exchange, data: bytes, address: str, done: Done) -> None:
        if self._guesses.wait(address, exchange.user, self._scheduler.monotonic()):
            self._refuse_proof(address, _WAIT, done, reasons.CONNECTION_RATE_EXCEEDED)
            return
        try:
            signature = exchange.finish(self._policy.scram, data)
        except ScramError as error:
            self._count(address, exchange.user)
            self._refuse_proof(address, str(error), done)
            return
        self._guesses.right(address, exchange.user)
        done(Verdict(0, exchange.user, data=signature, method="scram"))

    def _refuse_proof(self, address: str, text: str, done: Done, reason: int = reasons.NOT_AUTHORIZED) -> None:
        done(Verdict(reason, text=text, after=self._attempts.failed(address, self._scheduler.monotonic())))

    # -- authority --

    def may_take(self, owner: str | None, owner_listener: str, user: str | None, listener: str) -> bool:
        """A session belongs to the user that made it. A user may have the session of an anonymous client if he could
        have connected anonymously too, or if nobody can any more, so that users can be introduced while devices have
        sessions."""
        if owner == user:
            return True
        anonymous_on = self._policy.anonymous_on
        return owner is None and (anonymous_on.get(listener, False) or not anonymous_on.get(owner_listener, False))

    def may_publish(self, listener: str, client_id: str, user: str | None, topic: str) -> bool:
        """Whether this client may publish to `topic`."""
        policy = self._policy
        lists = self._lists(client_id, user) if policy.gives else None
        return policy.acl.may_publish(listener, client_id, user, topic, lists)

    def decisions(self, listener: str, client_id: str, user: str | None) -> Decisions:
        """The cached decisions about topics that this client may publish to; True: it may publish to all."""
        return self._policy.acl.decisions(listener, client_id, user, self._lists(client_id, user))

    def may_subscribe(self, listener: str, client_id: str, user: str | None, filter_: str) -> bool:
        """Whether this client may subscribe to `filter_`."""
        return self._policy.acl.may_subscribe(listener, client_id, user, filter_, self._lists(client_id, user))

    def may_receive(self, listener: str, client_id: str, user: str | None, topic: str) -> bool:
        """Whether a message on `topic` may be delivered to this client."""
        return self._policy.acl.may_receive(listener, client_id, user, topic, self._lists(client_id, user, EVERYTHING))

    def why(self, listener: str, client_id: str, user: str | None, topic: str) -> str:
        """Which entry decides about a publication, as text."""
        lists = self._lists(client_id, user)
        return self._policy.acl.of(Subject(client_id, user or "", listener), lists).why(PUBLISH, topic).text

    def _lists(self, client_id: str, user: str | None, unknown: Lists | None = None) -> Lists | None:
        if not self._policy.gives:
            return None
        given = self.granted.lists(client_id, user)
        if given is None and self._policy.managed:
            given = self.managed.lists(user)
        return self.granted.lists(client_id, user, unknown) if given is None else given

    @property
    def acl(self) -> Acl:
        """The access list in force."""
        return self._policy.acl

    @property
    def keys_age(self) -> float | None:
        """The age, in seconds, of the oldest fetched keys for tokens; None: none were fetched."""
        return self._policy.tokens.keys_age

    def close(self) -> None:
        """End the threads."""
        self._checks.close()
        self._asked.close()
        self._policy.close()
        self._policy.tokens.close_others(Tokens([]))


def _bounds(policy: Policy) -> tuple[int, int, float]:
    return policy.guesses.per_user, policy.guesses.per_address, policy.guesses.within


def _remember(known: OrderedDict[bytes, _Known], digest: bytes, until: _Known) -> None:
    if digest not in known and len(known) >= REMEMBERED:
        known.popitem(last=False)
    known[digest] = until


def _not_now(said: NotBelieved) -> Verdict:
    reason = reasons.SERVER_BUSY if said.found == "busy" else reasons.SERVER_UNAVAILABLE
    return Verdict(reason, text=said.why)


def _claimed(said: Claimed) -> Verdict:
    return Verdict(0, said.user, said.client_id, expires=said.expires, method="jwt", topics=said.topics)


def _wrong(version: int) -> Verdict:
    reason = reasons.BAD_USER_NAME_OR_PASSWORD if version == V5 else reasons.NOT_AUTHORIZED
    return Verdict(reason, text="user name or password is wrong")


def _certificate_verdict(connect: Connect, user: str) -> Verdict:
    """The verdict about a certificate's user; a CONNECT with another user name is refused."""
    if not user:
        return Verdict(reasons.NOT_AUTHORIZED, text="the certificate does not name exactly one user")
    if connect.username not in {None, user}:
        return Verdict(reasons.NOT_AUTHORIZED, text="the user name is not that of the certificate")
    return Verdict(0, user, method="certificate")


def _managing(settings: Settings, *, managed: bool) -> Settings:
    """The settings, with users managed or not as at the start: a change takes effect with a restart."""
    security = settings.security
    if security.managed == managed:
        return settings
    methods: list[MethodName] = [one for one in security.methods if one != "managed"]
    methods += ["managed"] if methods and managed else []
    security = security.model_copy(update={"managed": managed, "methods": methods})
    return settings.model_copy(update={"security": security})
