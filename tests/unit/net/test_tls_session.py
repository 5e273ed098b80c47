"""TLS without sockets, with the `ssl` module and compiled: both do the same with a client of the `ssl` module."""

from __future__ import annotations

import contextlib
import ctypes
import os
import ssl
import threading
import time
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any

import pytest
from certificates import NOW, Authority
from cryptography import x509
from hypothesis import given, settings
from hypothesis import strategies as st
from waiting import until

from gateway.config.tls import Tls
from gateway.net import tls_session
from gateway.net.tls import CIPHERS, verified_until
from gateway.net.tls_session import PythonContext, python_handshakes

COMPILED = tls_session.compiled()
TWINS = [
    pytest.param((PythonContext, python_handshakes), id="python"),
    pytest.param(
        (tls_session.new_context, tls_session.handshakes), id="compiled",
        marks=pytest.mark.skipif(not COMPILED, reason="no compiler or OpenSSL 3 where the gateway was installed"),
    ),
]  # fmt: skip


def before_it_ends(show: Callable[[int], Any]) -> Any:
    """What `show` returns of a certificate that ends at the time that it is given, once it has ended. It lasts longer
    where the machine does not get that far in two seconds."""
    for seconds in (2, 20, 100):
        ends = int(time.time()) + seconds
        try:
            shown = show(ends)
        except Exception:
            if time.time() < ends:
                raise
            continue
        if time.time() < ends:
            until(lambda ends=ends: time.time() > ends + 0.1, 200)  # OpenSSL's clock is some milliseconds behind
            return shown
    raise AssertionError("it has ended before it was shown")


class Files:
    """Certificates of both sides."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory)
        self.server = self.authority.issue("localhost")
        self.device = self.authority.issue("device-7")
        self.lost = self.authority.issue("device-lost")
        self.foreign = Authority(directory, "another").issue("device-foreign")
        self.authority.revoke(self.lost[0])
        self.crl = self.authority.revocation_list()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("tls"))


def context_of(form: Any, files: Files, *, newest: bool = False, clients: bool = False, until: float = inf) -> Any:
    """The context of a listener."""
    ca, crl = (str(files.authority.path), str(files.crl)) if clients else (None, None)
    until = int(min(until, 1 << 40))
    return form[0](str(files.server[0]), str(files.server[1]), CIPHERS, newest, ca, clients, crl, until)


class Client:
    """The client's side, over memory too."""

    def __init__(
        self, files: Files, *, version: ssl.TLSVersion | None = None, own: Any = None, session: Any = None
    ) -> None:
        self.context = ssl.create_default_context(cafile=str(files.authority.path))
        if version is not None:
            self.context.minimum_version = self.context.maximum_version = version
        if own is not None:
            self.context.load_cert_chain(*own)
        self._begin(session)

    def _begin(self, session: Any) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = self.context.wrap_bio(
            self.incoming, self.outgoing, server_hostname="localhost", session=session
        )  # fmt: skip

    def again(self) -> None:
        """A new connection that offers the session of the last one."""
        self._begin(self.tls.session)

    def shake(self) -> bytes:
        """Do one step of the handshake; SSLError means that it has failed."""
        with contextlib.suppress(ssl.SSLWantReadError):
            self.tls.do_handshake()
        return self.outgoing.read()

    def send(self, data: bytes) -> bytes:
        self.tls.write(data)
        return self.outgoing.read()

    def update_keys(self) -> bytes:
        """A KeyUpdate of TLS 1.3 that asks for one of the other side."""
        library = ctypes.CDLL(next(name for name in Path("/proc/self/maps").read_text().split() if "libssl" in name))
        head = object.__basicsize__ + ctypes.sizeof(ctypes.c_void_p)  # of PySSLSocket: its socket comes first
        assert library.SSL_key_update(ctypes.c_void_p.from_address(id(self.tls._sslobj) + head), 1) == 1
        self.tls.do_handshake()
        return self.outgoing.read()

    def read(self, records: bytes) -> bytes:
        self.incoming.write(records)
        found = b""
        with contextlib.suppress(ssl.SSLWantReadError):
            while piece := self.tls.read(1 << 20):
                found += piece
        return found


def shaken(form: Any, context: Any, client: Client, early: bytes = b"") -> tuple[Any, Any]:
    """The server's session at the end of the handshake, and the last step."""
    session, step = context.session(), (False, b"", b"", None)
    data = client.shake()
    for _ in range(4):
        (step,) = form[1]([(session, data)])
        client.incoming.write(step[1])
        if step[0] or step[3] is not None:
            break
        data = client.shake()
        if early and client.tls.version():
            with contextlib.suppress(ssl.SSLWantReadError):
                data += client.send(early)
    return session, step


@pytest.mark.parametrize("form", TWINS)
class TestSession:
    """Tests of both forms."""

    @pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
    def test_there_and_back(self, form, files, version):
        client = Client(files, version=version)
        session, step = shaken(form, context_of(form, files), client)
        assert (step[0], step[3]) == (True, None)
        client.shake()
        assert session.version() == client.tls.version()
        for size in (1, 100, 16_384, 16_385, 300_000):
            data = os.urandom(size)
            plain = b""
            records = client.send(data)
            for at in range(0, len(records), 65_536):
                more, answer, end = session.decrypt(records[at : at + 65_536])
                assert (answer, end) == (b"", None)
                plain += more
            assert plain == data
            assert client.read(session.encrypt(data)) == data
        assert session.encrypt(b"") == b""

    def test_what_is_sent_with_the_end_of_the_handshake_is_read_with_it(self, form, files):
        _, step = shaken(form, context_of(form, files), Client(files), early=b"CONNECT")
        assert step[0]
        assert step[2:] == (b"CONNECT", None)

    def test_a_handshake_byte_by_byte_and_records_byte_by_byte(self, form, files):
        client, session = Client(files), context_of(form, files).session()
        done = False
        data = client.shake()
        while not done:
            answer = b""
            for at in range(len(data)):
                ((done, more, plain, end),) = form[1]([(session, data[at : at + 1])])
                assert (plain, end) == (b"", None)
                answer += more
            client.incoming.write(answer)
            data = client.shake()
        records = client.send(b"abc") + client.send(b"defg")
        assert b"".join(session.decrypt(records[at : at + 1])[0] for at in range(len(records))) == b"abcdefg"

    def test_close_notify_both_ways(self, form, files):
        client = Client(files)
        session, _ = shaken(form, context_of(form, files), client)
        last = client.send(b"last")
        with contextlib.suppress(ssl.SSLWantReadError):
            client.tls.unwrap()
        assert session.decrypt(last + client.outgoing.read()) == (b"last", b"", "")
        client.incoming.write(session.close())
        client.tls.unwrap()  # SSLError unless both sides have said it
        assert session.decrypt(b"")[2] == ""

    def test_what_is_ordinary_comes_in_one_call_and_the_rest_is_kept_for_decrypt(self, form, files):
        client = Client(files)
        session, _ = shaken(form, context_of(form, files), client)
        data = os.urandom(30_000)
        records = client.send(data)
        assert session.whole(records[:20_000]) + session.whole(records[20_000:]) == data
        with contextlib.suppress(ssl.SSLWantReadError):
            client.tls.unwrap()
        last = client.outgoing.read()
        assert session.whole(last) is None
        assert session.whole(last) is None, "as often as it is asked"
        assert session.decrypt(last) == (b"", b"", "")
        assert session.decrypt(b"")[2] == ""
        with pytest.raises(TypeError):
            session.whole("text")

    @pytest.mark.parametrize("between", [b"", b"data"])
    def test_keys_are_updated_now_and_then_but_not_without_end(self, form, files, between):
        client = Client(files, version=ssl.TLSVersion.TLSv1_3)
        session, _ = shaken(form, context_of(form, files), client)
        for _ in range(10):
            plain, answer, end = session.decrypt(client.update_keys() + client.send(b"abc"))
            assert (plain, end) == (b"abc", None)
            assert client.read(answer + session.encrypt(b"defg")) == b"defg"
        flood = b"".join(client.update_keys() + (client.send(between) if between else b"") for _ in range(100))
        _, answer, end = session.decrypt(flood)
        assert end == "too many key updates"
        assert len(answer) < 100 * len(client.update_keys())
        assert session.decrypt(client.send(b"more")) == (b"", b"", "")

    def test_a_record_that_was_changed_ends_the_connection(self, form, files):
        client = Client(files)
        session, _ = shaken(form, context_of(form, files), client)
        record = bytearray(client.send(b"a secret"))
        record[-1] ^= 1
        plain, alert, end = session.decrypt(bytes(record))
        assert plain == b""
        assert alert
        assert "bad" in end or "record layer failure" in end, "as OpenSSL calls it before and since 3.2"
        assert session.decrypt(client.send(b"more")) == (b"", b"", "")
        assert session.encrypt(b"more") == b""
        assert session.close() == b""

    @pytest.mark.parametrize("data", [b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00", b"GET / HTTP/1.1\r\n\r\n"])
    def test_what_is_no_tls_is_refused(self, form, files, data):
        session = context_of(form, files).session()
        ((done, _, plain, end),) = form[1]([(session, data)])
        assert not done
        assert plain == b""
        assert end
        assert session.encrypt(b"x") == b""
        assert session.decrypt(b"x") == (b"", b"", "")

    def test_an_old_version_is_refused_where_the_newest_is_asked_for(self, form, files):
        client = Client(files, version=ssl.TLSVersion.TLSv1_2)
        _, step = shaken(form, context_of(form, files, newest=True), client)
        assert "unsupported protocol" in step[3]

    def test_client_certificates(self, form, files):
        context = context_of(form, files, clients=True)
        session, step = shaken(form, context, Client(files, own=files.device))
        assert step[0]
        assert session.certificate() == ssl.PEM_cert_to_DER_cert(files.device[0].read_text())
        for own, why in ((None, "certificate"), (files.lost, "certificate"), (files.foreign, "certificate")):
            client = Client(files, own=own)
            _, step = shaken(form, context, client)
            assert not step[0]
            assert why in step[3]
            assert step[1], "the alert is sent"
        assert shaken(form, context_of(form, files), Client(files, own=files.device))[0].certificate() == b""

    @pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
    def test_a_session_is_resumed_with_its_ticket(self, form, files, version):
        client = Client(files, version=version)
        context = context_of(form, files)
        session, _ = shaken(form, context, client)
        assert not session.resumed()
        client.read(session.encrypt(b"the ticket comes before this"))
        client.again()
        session, step = shaken(form, context, client)
        assert step[0]
        assert session.resumed()
        client.again()
        assert not shaken(form, context_of(form, files), client)[0].resumed(), "a reload forgets all tickets"

    def test_what_has_ended_since_is_not_taken_up(self, form, files):
        versions = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]
        ended = context_of(form, files, clients=True, until=time.time() - 1)
        good = context_of(form, files, clients=True)

        def show(ends):
            soon = files.authority.issue("device-soon", days=(ends - NOW.timestamp()) / 86400)
            came = []
            for version in versions:
                for context, own in ((good, files.device), (good, soon), (ended, files.device)):
                    came.append((context, Client(files, version=version, own=own)))
                    session, step = shaken(form, *came[-1])
                    assert step[0]
                    came[-1][1].read(session.encrypt(b"the ticket comes before this"))
            return came

        came = before_it_ends(show)
        for context, client in came:
            client.again()
            session, step = shaken(form, context, client)
            has_ended = client is came[1][1] or client is came[4][1]
            if form[0] is not PythonContext:
                assert step[0] is not has_ended, step[3]
                assert session.resumed() is (context is good and not has_ended)
            else:  # there is no ticket; by its identifier a session of TLS 1.2 may be taken up while it is good
                assert not (step[0] and has_ended)
                assert not (step[0] and session.resumed() and context is ended)

    def test_a_session_without_a_ticket_is_not_taken_up_when_it_has_ended(self, form, files):
        ended = context_of(form, files, clients=True, until=time.time() - 1)
        good = context_of(form, files, clients=True)

        def show(ends):
            soon = files.authority.issue("device-soon", days=(ends - NOW.timestamp()) / 86400)
            came = []
            for context, own in ((good, files.device), (good, soon), (ended, files.device)):
                client = Client(files, version=ssl.TLSVersion.TLSv1_2, own=own)
                client.context.options |= ssl.OP_NO_TICKET
                client.again()
                session, _ = shaken(form, context, client)
                client.read(session.encrypt(b"more") + session.close())
                client.tls.unwrap()
                session.decrypt(client.outgoing.read())  # a session that does not end in order is forgotten
                came.append((context, client))
            return came

        steps = []
        for context, client in before_it_ends(show):
            client.again()
            session, step = shaken(form, context, client)
            assert context is good or not (step[0] and session.resumed())
            steps.append(step)
        assert steps[0][0]
        assert not steps[1][0]
        assert steps[1][3]

    def test_files_that_cannot_be_used(self, form, files, tmp_path):
        server, device = files.server, files.device
        broken = tmp_path / "broken.pem"
        broken.write_text("-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n")
        for arguments in (
            (str(server[0]), str(device[1]), CIPHERS, False, None, False, None),
            (str(broken), str(server[1]), CIPHERS, False, None, False, None),
            (str(server[0]), str(server[1]), CIPHERS, False, str(broken), True, None),
            (str(server[0]), str(server[1]), CIPHERS, False, str(files.authority.path), True, str(broken)),
        ):
            with pytest.raises((ValueError, OSError)):
                form[0](*arguments, 0)

    def test_many_handshakes_in_one_call(self, form, files):
        context = context_of(form, files)
        clients = [Client(files) for _ in range(10)]
        sessions = [context.session() for _ in clients]
        for _ in range(2):
            steps = form[1]([(one, client.shake()) for one, client in zip(sessions, clients, strict=True)])
            for client, step in zip(clients, steps, strict=True):
                client.incoming.write(step[1])
        assert all(step[0] for step in steps)
        assert form[1]([]) == []


@pytest.mark.skipif(not COMPILED, reason="no compiler where the gateway was installed")
def test_a_session_is_in_one_thread_at_a_time(files: Files) -> None:
    form = (tls_session.new_context, tls_session.handshakes)
    context = context_of(form, files)
    sessions = [context.session() for _ in range(300)]
    hello = Client(files).shake()
    refused = 0

    def shake() -> None:
        form[1]([(one, hello) for one in sessions])

    worker = threading.Thread(target=shake)
    worker.start()
    while worker.is_alive():
        try:
            sessions[-1].decrypt(b"")
        except RuntimeError:
            refused += 1
    worker.join()
    assert refused
    assert sessions[-1].decrypt(b"")[2] == ""
    with pytest.raises(RuntimeError):
        form[1]([(sessions[0], hello), (sessions[0], hello)])
    with pytest.raises(TypeError):
        form[1]([(sessions[0], "text")])
    with pytest.raises(TypeError):
        form[1]([sessions[0]])


@pytest.mark.skipif(not COMPILED, reason="no compiler where the gateway was installed")
def test_errors_that_others_have_left_behind_end_no_connection(files: Files) -> None:
    form = tls_session.new_context, tls_session.handshakes
    client = Client(files)
    session, _ = shaken(form, context_of(form, files), client)
    library = next(name for name in Path("/proc/self/maps").read_text().split() if "libcrypto" in name)
    crypto = ctypes.CDLL(library)

    def leave_an_error() -> None:
        crypto.ERR_new()
        crypto.ERR_set_error(20, 1, None)
        assert crypto.ERR_peek_error()

    records = client.send(b"abc")
    leave_an_error()
    assert session.whole(records[:5]) == b""  # OpenSSL has to ask for more
    leave_an_error()
    assert session.whole(records[5:]) == b"abc"
    leave_an_error()
    assert client.read(session.encrypt(b"defg")) == b"defg"


@pytest.mark.parametrize("form", TWINS)
@settings(max_examples=50, deadline=None)
@given(st.data())
def test_records_cut_anywhere(form, files, data) -> None:
    client = Client(files)
    session, _ = shaken(form, context_of(form, files), client)
    parts = data.draw(st.lists(st.integers(1, 40_000).map(os.urandom), min_size=1, max_size=4))
    records = b"".join(map(client.send, parts))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(records)), max_size=6)))
    found = b""
    for begin, end in zip([0, *cuts], [*cuts, len(records)], strict=True):
        plain, answer, over = session.decrypt(records[begin:end])
        assert (answer, over) == (b"", None)
        found += plain
    assert found == b"".join(parts)


def test_sessions_are_taken_up_until_an_authority_or_a_revocation_list_ends(files):
    settings = Tls(certificate=str(files.server[0]), key=str(files.server[1]), client_ca=str(files.authority.path))
    assert verified_until(settings) == int(files.authority.certificate.not_valid_after_utc.timestamp())
    crl = x509.load_pem_x509_crl(files.crl.read_bytes())
    settings = settings.model_copy(update={"crl": str(files.crl)})
    assert verified_until(settings) == int(crl.next_update_utc.timestamp())
    assert verified_until(settings.model_copy(update={"client_ca": str(files.server[1])})) == 0
