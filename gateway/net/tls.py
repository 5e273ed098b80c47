"""TLS on the server's side: the context of a listener, and the user that a client certificate names."""

from __future__ import annotations

import unicodedata

from cryptography import x509
from cryptography.x509.oid import NameOID
from OpenSSL import SSL, crypto
from twisted.internet.ssl import ContextFactory

from gateway.config.model import Tls


class TlsContext(ContextFactory):
    """The TLS context of a listener. A new one is used for new connections; open ones keep theirs."""

    def __init__(self, settings: Tls) -> None:
        self.settings = settings
        self._context = self._make()

    def take(self, fresh: TlsContext) -> None:
        """Use a context that was made later from the same settings."""
        self._context = fresh.getContext()

    def getContext(self) -> SSL.Context:
        """For each new connection."""
        return self._context

    def _make(self) -> SSL.Context:
        settings = self.settings
        context = SSL.Context(SSL.TLS_SERVER_METHOD)
        context.set_min_proto_version(SSL.TLS1_3_VERSION if settings.minimum_version == "1.3" else SSL.TLS1_2_VERSION)
        context.set_options(SSL.OP_NO_RENEGOTIATION | SSL.OP_NO_COMPRESSION | SSL.OP_CIPHER_SERVER_PREFERENCE)
        context.set_cipher_list(b"ECDHE+AESGCM:ECDHE+CHACHA20:DHE+AESGCM:!aNULL:!SHA1")
        context.use_certificate_chain_file(settings.certificate)
        context.use_privatekey_file(settings.key)
        context.check_privatekey()
        context.set_session_id(b"mqgate")
        if settings.client_certificate != "none" and settings.client_ca is not None:
            self._verify_clients(context, settings)
        return context

    def _verify_clients(self, context: SSL.Context, settings: Tls) -> None:
        context.load_verify_locations(settings.client_ca)
        flags = SSL.VERIFY_PEER
        if settings.client_certificate == "required":
            flags |= SSL.VERIFY_FAIL_IF_NO_PEER_CERT
        context.set_verify(flags, lambda _connection, _certificate, _error, _depth, ok: bool(ok))
        if settings.crl is not None:
            store = context.get_cert_store()
            if store is not None:
                store.load_locations(settings.crl)
                store.set_flags(crypto.X509StoreFlags.CRL_CHECK)


def tls_context(settings: Tls) -> TlsContext:
    """The context of a listener; OpenSSL's errors say which file is wrong."""
    return TlsContext(settings)


def user_of(certificate: x509.Certificate, naming: str) -> str:
    """The user that a certificate names: its only common name, or its subject (RFC 4514). Empty if there is no common
    name, if there are several, or if the name contains control characters."""
    if naming == "subject":
        name = certificate.subject.rfc4514_string()
    else:
        names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        name = str(names[0].value) if len(names) == 1 else ""
    return "" if any(unicodedata.category(letter) == "Cc" for letter in name) else name
