"""TLS on the server's side: the context of a listener, and the user that a client certificate names."""

from __future__ import annotations

import re
import unicodedata
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gateway.config.tls import Tls
from gateway.net.tls_session import Session, new_context

if TYPE_CHECKING:
    from cryptography import x509

CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20:DHE+AESGCM:!aNULL:!SHA1"
"""The ciphers of TLS 1.2: only those with forward secrecy and authenticated encryption."""
_CERTIFICATE = re.compile(rb"-----BEGIN (X509 |TRUSTED )?CERTIFICATE-----")
_CRL = re.compile(rb"-----BEGIN X509 CRL-----.*?-----END X509 CRL-----", re.DOTALL)


class TlsContext:
    """The TLS context of a listener. A new one is used for new connections; open ones keep theirs. Raises OSError if a
    file cannot be used."""

    def __init__(self, settings: Tls, *, browsers: bool) -> None:
        self.settings = settings
        self.browsers = browsers
        self._context = _made(settings)
        self.names = _names_in(settings.certificate) if browsers else frozenset()
        """If browsers connect here: the host names in the certificate, which browsers have compared with the page's."""

    def again(self) -> TlsContext:
        """A context with the same settings, from the files as they are now."""
        return TlsContext(self.settings, browsers=self.browsers)

    def take(self, fresh: TlsContext) -> None:
        """Take over a context that was made later from the same settings."""
        self._context, self.names = fresh._context, fresh.names

    def session(self) -> Session:
        """The session of a new connection."""
        session: Session = self._context.session()
        return session


def _made(settings: Tls) -> Any:
    """The context that the library makes from the files. Raises OSError with the library's reason."""
    files = settings.certificate, settings.key, settings.client_ca, settings.crl
    for name in files:
        if name is not None:
            with Path(name).open("rb"):
                pass  # if a file cannot be read, OpenSSL says neither which one nor why
    checked = settings.client_certificate != "none"
    if checked:  # OpenSSL takes either kind from either file, and would then accept no client's certificate
        _look_for("certificate", _CERTIFICATE, settings.client_ca)
        _look_for("revocation list", _CRL, settings.crl)
    try:
        return new_context(
            settings.certificate, settings.key, CIPHERS, settings.minimum_version == "1.3",
            settings.client_ca if checked else None, settings.client_certificate == "required",
            settings.crl if checked else None, verified_until(settings) if checked else 0,
        )  # fmt: skip
    except (ValueError, OSError) as error:
        named = ", ".join(dict.fromkeys(name for name in files if name is not None))
        raise OSError(f"OpenSSL does not accept {named}: {error}") from error


def _look_for(what: str, form: re.Pattern[bytes], file: str | None) -> None:
    if file is not None and not form.search(Path(file).read_bytes()):
        raise OSError(f"{file} has no {what} in PEM form")


def verified_until(settings: Tls) -> int:
    """When the first of the authorities and revocation lists expires with which clients' certificates are verified, in
    seconds since 1970; 0 if that is unknown. Until then a client may resume an earlier session, whose certificate is
    not verified again."""
    from cryptography import x509

    try:
        ends = [
            one.not_valid_after_utc
            for one in x509.load_pem_x509_certificates(Path(settings.client_ca or "").read_bytes())
        ]
        for one in _CRL.findall(Path(settings.crl).read_bytes()) if settings.crl is not None else ():
            next_update = x509.load_pem_x509_crl(one).next_update_utc
            ends += [] if next_update is None else [next_update]
    except (OSError, ValueError):  # OpenSSL accepts more than this library
        return 0
    return int(min(ends).timestamp())


def user_of_der(certificate: bytes, naming: str) -> str | None:
    """The user that a client's certificate names, which is empty if it names nobody; None: the client has shown no
    certificate."""
    if not certificate:
        return None
    from cryptography import x509  # only where clients show certificates

    try:
        return user_of(x509.load_der_x509_certificate(certificate), naming)
    except (ValueError, x509.InvalidVersion, x509.DuplicateExtension, x509.UnsupportedGeneralNameType):
        return ""  # OpenSSL accepts more than X.509 allows, and kinds of names that are not read here


def end_of_der(certificate: bytes) -> float:
    """When a client's certificate expires, in seconds since 1970; 0: the client has shown none, or that is unknown."""
    if not certificate:
        return 0.0
    from cryptography import x509

    try:
        return x509.load_der_x509_certificate(certificate).not_valid_after_utc.timestamp()
    except (ValueError, x509.InvalidVersion):
        return 0.0


def fingerprint_of(certificate: bytes) -> str:
    """The SHA-256 digest of a certificate; empty: there is none."""
    return sha256(certificate).hexdigest() if certificate else ""


def user_of(certificate: x509.Certificate, naming: str) -> str:
    """The user that a certificate names: its subject (RFC 4514), or its only common name or alternative name of a kind
    (`only_name`)."""
    from cryptography.x509.oid import NameOID

    if naming == "subject":
        names = [certificate.subject.rfc4514_string()]
    elif naming in {"dns", "email", "uri"}:
        names = _alternative_names(certificate, naming)
    else:  # for `none` too: the name is not used then, but may be after a reload
        names = [str(one.value) for one in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    return only_name(names)


def only_name(names: list[str]) -> str:
    """The only name; empty if there is none, if there are several, or if it contains control characters."""
    name = names[0] if len(names) == 1 else ""
    return "" if any(unicodedata.category(letter) == "Cc" for letter in name) else name


def _alternative_names(certificate: x509.Certificate, kind: str) -> list[str]:
    """The names of one kind under subjectAltName (RFC 5280, 4.2.1.6)."""
    from cryptography import x509

    kinds = {"dns": x509.DNSName, "email": x509.RFC822Name, "uri": x509.UniformResourceIdentifier}
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return []
    return [str(name.value) for name in found.value if isinstance(name, kinds[kind])]


def _names_in(certificate: str) -> frozenset[str]:
    """The DNS names of a certificate, in lower case."""
    from cryptography import x509

    try:
        found = x509.load_pem_x509_certificate(Path(certificate).read_bytes())
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, x509.ExtensionNotFound):
        return frozenset()
    return frozenset(name.lower() for name in names.get_values_for_type(x509.DNSName))
